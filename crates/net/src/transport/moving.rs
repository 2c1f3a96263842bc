//! A connection that moves to another process, and one that comes from there: see [`crate::moves`].

use std::io;
use std::os::fd::BorrowedFd;

use ::tls::Session;
use event::Sock;
use mem::Page;
use proto::handover::{Refusal, Sealed};

use super::tls::{SealedCopy, TlsSock};
use super::{Carrier, Transport};
use crate::moves::Stay;

impl Transport {
    /// Takes the kernel's receives back, before the descriptor goes to another process. No task may
    /// wait for the connection, which can be used on afterwards. See [`Sock::withdraw`].
    ///
    /// # Errors
    /// As there: the connection stays in this process.
    pub async fn withdraw(&self) -> io::Result<()> {
        self.carrier().withdraw().await?;
        if let Carrier::Tls(tls) = &self.0 {
            tls.take_received();
        }
        Ok(())
    }

    /// Takes bytes that the driver has received and no task has taken yet: see
    /// [`Sock::take_received`]. TLS keeps them with its records.
    pub fn take_received(&self) -> Option<Page> {
        match &self.0 {
            Carrier::Plain(sock) => sock.take_received(),
            Carrier::Tls(_) => None,
        }
    }

    /// A copy of the session of TLS for another process, after [`Transport::withdraw`]; `None` in
    /// plain text. If the other process takes the connection, this one must not use it again.
    ///
    /// # Errors
    /// The session cannot go to another process.
    pub fn copy_session(&self) -> Result<Option<SealedCopy>, Stay> {
        match &self.0 {
            Carrier::Plain(_) => Ok(None),
            Carrier::Tls(tls) => tls.copy().map(Some).ok_or(Stay::Protocol),
        }
    }

    /// A connection that another process has had; over TLS its session follows by
    /// [`Transport::arrived`]. Until then it has no effect on the peer, also if it is dropped.
    ///
    /// # Errors
    /// The session is none.
    pub fn resumed(
        sock: Sock,
        sealed: Option<&Sealed<'_>>,
    ) -> Result<(Transport, Option<Session>), Refusal> {
        let Some(sealed) = sealed else { return Ok((sock.into(), None)) };
        let session = Session::resumed(sealed.state).ok_or(Refusal::Other)?;
        let tls = Box::new(TlsSock::resumed(sock, sealed));
        Ok((Transport(Carrier::Tls(tls)), Some(session)))
    }

    /// The other process has given the connection up: others make room for it here, and the session
    /// of TLS goes on. See [`Sock::arrived`].
    pub fn arrived(&self, session: Option<Session>) {
        self.carrier().arrived();
        if let Some(session) = session {
            self.go_sealed(session);
        }
    }

    /// The descriptor, to be duplicated for another process.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.carrier().fd()
    }

    /// The connection is another process's now: it closes here without a word to the peer. See
    /// [`Sock::part`].
    pub fn part(&self) {
        match &self.0 {
            Carrier::Plain(sock) => sock.part(),
            Carrier::Tls(tls) => tls.part(),
        }
    }
}
