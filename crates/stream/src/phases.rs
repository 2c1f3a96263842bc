//! The phases of a session.

use base::future::{boxed, rarely};
use base::log::Level;
use engine::Client;
use event::Deadline;
use mem::Page;

use crate::module::{Handler, Pipeline, Preread, Verdict, WaitingHandler};
use crate::session::StreamSession;

/// The statuses of sessions.
pub mod status {
    /// The session was served.
    pub const OK: u16 = 200;
    /// The client's data is malformed.
    pub const BAD_REQUEST: u16 = 400;
    /// Access was denied.
    pub const FORBIDDEN: u16 = 403;
    /// An internal error.
    pub const INTERNAL: u16 = 500;
    /// No upstream server could be reached.
    pub(crate) const BAD_GATEWAY: u16 = 502;
    /// A limit was exceeded.
    pub const UNAVAILABLE: u16 = 503;
}

/// Runs the handlers of a phase.
///
/// # Errors
/// The session's status.
pub(crate) async fn run(
    s: &mut StreamSession,
    handlers: impl Fn(&Pipeline) -> &[Handler],
) -> Result<(), u16> {
    let server = s.server.clone();
    for handler in handlers(&server.pipeline) {
        match handler(s) {
            Verdict::Next => {}
            Verdict::Wait(ms) => event::sleep(ms).await,
            Verdict::Done => return Ok(()),
            Verdict::Status(status) => return Err(status),
        }
    }
    Ok(())
}

/// Runs the handlers of a phase that come first and may wait. Returns whether the phase goes on.
///
/// # Errors
/// The session's status.
pub(crate) async fn run_first(
    s: &mut StreamSession,
    handlers: impl Fn(&Pipeline) -> &[Box<dyn WaitingHandler>],
) -> Result<bool, u16> {
    let server = s.server.clone();
    for handler in handlers(&server.pipeline) {
        match handler.run(s).await {
            Verdict::Next => {}
            Verdict::Wait(ms) => event::sleep(ms).await,
            Verdict::Done => return Ok(false),
            Verdict::Status(status) => return Err(status),
        }
    }
    Ok(true)
}

/// Runs the preread handlers, and reads as many bytes as they need.
///
/// # Errors
/// The session's status.
pub(crate) async fn preread(s: &mut StreamSession) -> Result<(), u16> {
    if !s.server.pipeline.first_preread.is_empty()
        && !boxed(|| run_first(s, |p| &p.first_preread)).await?
    {
        return Ok(());
    }
    let server = s.server.clone();
    for handler in &server.pipeline.preread {
        let mut until = None;
        loop {
            let bytes = std::mem::take(&mut s.preread);
            let verdict = if bytes.is_empty() { Preread::More } else { handler(s, &bytes) };
            s.preread = bytes;
            match verdict {
                Preread::Done => break,
                Preread::Status(status) => return Err(status),
                // A UDP session starts with one datagram, to which nothing will be added.
                Preread::More if s.is_udp() => break,
                Preread::More => {}
            }
            let ms = server.core.preread_timeout;
            let until = *until.get_or_insert_with(|| Deadline::in_ms(ms));
            rarely(read_more(s, until)).await?;
        }
    }
    Ok(())
}

/// The deadline of the preread phase, which begins now.
pub fn preread_deadline(s: &StreamSession) -> Deadline {
    Deadline::in_ms(s.server.core.preread_timeout)
}

/// Resolves when the client is known to send no more; never over UDP. It may still wait for an
/// answer.
pub async fn client_ended(s: &StreamSession) {
    match s.sock() {
        // Whatever is wrong with the connection ends it, too.
        Some(sock) => drop(sock.closed_by_peer().await),
        None => std::future::pending().await,
    }
}

/// Adds to the bytes of the preread phase what the client sends next. May be dropped at any time.
///
/// # Errors
/// The session's status: the client has ended, or has sent nothing in time; or the buffer is full.
pub async fn receive_more(s: &mut StreamSession, until: Deadline) -> Result<(), u16> {
    loop {
        let size = s.server.core.preread_buffer_size.max(s.server.pipeline.preread_max);
        let have = s.preread.len();
        // A UDP session begins with one datagram, which fills its buffer.
        if have >= size || s.is_udp() {
            return Err(full(s));
        }
        let Some(sock) = s.sock() else { return Err(status::OK) };
        sock.readable(until).await.map_err(|e| failed(s, &e))?;
        let mut page = std::mem::take(&mut s.preread);
        if page.spare() == 0 {
            let room = if have == 0 {
                Page::try_with_room(size).map(|new| page = new)
            } else {
                page.try_reserve(have)
            };
            room.map_err(|_| status::INTERNAL)?;
        }
        let received = s.sock().map_or(Ok(Some(0)), |sock| sock.try_recv_into(&mut page));
        let more = page.len() - have;
        s.preread = page;
        s.received.set(s.received.get() + more as u64);
        match received {
            Ok(None) => {}
            Ok(Some(0)) => return Err(status::OK),
            Ok(Some(_)) => return Ok(()),
            Err(e) => return Err(failed(s, &e)),
        }
    }
}

fn full(s: &StreamSession) -> u16 {
    s.log(Level::Error, format_args!("preread buffer full while prereading client data"));
    status::BAD_REQUEST
}

/// Reads more bytes for the preread handlers.
async fn read_more(s: &mut StreamSession, until: Deadline) -> Result<(), u16> {
    let (size, have) = (s.server.core.preread_buffer_size, s.preread.len());
    if have >= size.max(s.server.pipeline.preread_max) {
        return Err(full(s));
    }
    let mut page = std::mem::take(&mut s.preread);
    let Some(sock) = s.sock() else { return Err(status::OK) };
    if have == 0 {
        // Waits first, so that an idle session holds no buffer.
        sock.readable(until).await.map_err(|e| failed(s, &e))?;
        page = Page::try_with_room(size).map_err(|_| status::INTERNAL)?;
    } else if page.spare() == 0 {
        page.try_reserve(have).map_err(|_| status::INTERNAL)?;
    }
    let received = sock.recv_into(&mut page, until).await;
    let more = page.len() - have;
    s.preread = page;
    s.received.set(s.received.get() + more as u64);
    match received {
        Ok(0) => Err(status::OK),
        Ok(_) => Ok(()),
        Err(e) => Err(failed(s, &e)),
    }
}

/// The status of a session whose client sent too little; not logged as an error, as in nginx.
fn failed(s: &StreamSession, e: &std::io::Error) -> u16 {
    if e.kind() != std::io::ErrorKind::TimedOut {
        let e = base::log::os_error(e);
        s.log(Level::Info, format_args!("recv() failed {e} while prereading client data"));
    }
    status::OK
}
