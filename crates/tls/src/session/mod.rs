//! A TLS session without I/O: the handshake by rustls, records afterwards by [`crate::record`].

mod handshake;
mod origin;
mod step;
mod traffic;

#[cfg(test)]
mod tests;

use mem::{Chain, Page};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::record::{MAX_OVERHEAD, kind};
use crate::{ClientConfig, Info, ServerConfig};
use handshake::Handshake;
pub(crate) use origin::Capturing;
pub use step::{Step, Taken};
use traffic::Traffic;

/// One end of a TLS connection. It takes the bytes that arrive and gives plaintext, takes plaintext
/// and gives records; the caller moves the bytes.
pub struct Session(Phase);

enum Phase {
    Shaking(Box<Handshake>),
    Open(Box<Traffic>),
    /// It failed: nothing goes any more.
    Failed(Error),
}

/// A look at the bytes that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// All that could be used of them is used: more must arrive.
    All,
    /// The page for plaintext is full, and there are records still.
    Full,
    /// The peer said that it sends no more.
    End,
}

impl Session {
    /// The server's end.
    ///
    /// # Errors
    /// The library refuses the configuration.
    pub fn server(config: &ServerConfig) -> Result<Session, Error> {
        Ok(Session(Phase::Shaking(Box::new(Handshake::server(config)?))))
    }

    /// The client's end of a session with the server of this name.
    ///
    /// # Errors
    /// The library refuses the configuration.
    pub fn client(config: &ClientConfig, name: &[u8]) -> Result<Session, Error> {
        Ok(Session(Phase::Shaking(Box::new(Handshake::client(config, name)?))))
    }

    /// Whether the handshake is still under way.
    pub fn is_handshaking(&self) -> bool {
        matches!(self.0, Phase::Shaking(_))
    }

    /// The facts of an established session; they are given once.
    pub fn take_info(&mut self) -> Option<Info> {
        match &mut self.0 {
            Phase::Open(traffic) => traffic.info.take().map(|info| *info),
            _ => None,
        }
    }

    /// Takes records from the front of `input`, appends the plaintext to `plain`, and what is to be
    /// sent for them to `out`: the handshake's messages, an alert, a change of keys.
    ///
    /// # Errors
    /// The session is at its end; `out` may hold an alert for the peer.
    pub fn receive(
        &mut self,
        input: &mut Page,
        plain: &mut Page,
        out: &mut Chain,
    ) -> Result<Received, Error> {
        let received = self.take(input, plain, out);
        if let Err(error) = &received {
            match (&mut self.0, error.alert) {
                (Phase::Open(traffic), Some(alert)) => {
                    // It cannot be sealed where the keys are at their end: the peer sees the end.
                    let _ = traffic.alert(alert, out.writer_for(2 + MAX_OVERHEAD));
                }
                // The peer takes it as it is while the handshake is under way.
                (Phase::Shaking(_), Some(alert)) => out.write(&[kind::ALERT, 3, 3, 0, 2, 2, alert]),
                _ => {}
            }
            self.0 = Phase::Failed(error.clone());
        }
        received
    }

    fn take(
        &mut self,
        input: &mut Page,
        plain: &mut Page,
        out: &mut Chain,
    ) -> Result<Received, Error> {
        if let Phase::Shaking(shaking) = &mut self.0 {
            if !shaking.receive(input, plain, out)? {
                return Ok(Received::All);
            }
            let done = std::mem::replace(&mut self.0, Phase::Failed(Error::told("no session")));
            if let Phase::Shaking(shaking) = done {
                self.0 = Phase::Open(Box::new(shaking.finish()?));
            }
        }
        match &mut self.0 {
            Phase::Open(traffic) => traffic.receive(input, plain, out),
            Phase::Failed(error) => Err(error.clone()),
            Phase::Shaking(_) => Ok(Received::All),
        }
    }

    /// Whether [`Session::receive`] would have something to do with these bytes.
    #[inline]
    pub fn has_record(&self, input: &[u8]) -> bool {
        match &self.0 {
            Phase::Open(traffic) => traffic.has_record(input),
            Phase::Shaking(_) => !input.is_empty(),
            Phase::Failed(_) => true,
        }
    }

    /// Whether the peer said that it sends no more.
    #[inline]
    pub fn is_ended(&self) -> bool {
        match &self.0 {
            Phase::Open(traffic) => traffic.is_ended,
            Phase::Shaking(_) => false,
            Phase::Failed(_) => true,
        }
    }

    /// Seals bytes from the front of `chain`, which are memory, as records at the end of `out`:
    /// `limit` bytes at most. Returns their number.
    ///
    /// # Errors
    /// The handshake is not at its end, the session failed or was closed, or the keys have sealed
    /// as much as they may.
    pub fn seal(
        &mut self,
        chain: &mut Chain,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        match &mut self.0 {
            Phase::Open(traffic) => traffic.seal(chain, limit, out),
            Phase::Shaking(_) => Err(Error::internal("the handshake is not finished")),
            Phase::Failed(error) => Err(error.clone()),
        }
    }

    /// The state of an established session for another process, with its keys; `None` if it cannot
    /// go there. From then on one of the two may use the session, and not both.
    pub fn state(&self) -> Option<Zeroizing<Vec<u8>>> {
        match &self.0 {
            Phase::Open(traffic) => traffic.state(),
            Phase::Shaking(_) | Phase::Failed(_) => None,
        }
    }

    /// The session that another process has described; `None` if that is no session.
    pub fn resumed(state: &[u8]) -> Option<Session> {
        Some(Session(Phase::Open(Box::new(Traffic::resumed(state)?))))
    }

    /// Appends the alert that says that no more follows, once.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if let Phase::Open(traffic) = &mut self.0 {
            traffic.close(out);
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Phase::Shaking(_) => "Session (handshake)",
            Phase::Open(_) => "Session (open)",
            Phase::Failed(_) => "Session (failed)",
        })
    }
}
