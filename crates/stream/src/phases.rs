//! The phases of a session.

use base::future::rarely;
use base::log::Level;
use engine::Client;
use event::Deadline;
use mem::Page;

use crate::module::{Handler, Pipeline, Preread, Verdict};
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
    pub const BAD_GATEWAY: u16 = 502;
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

/// Runs the preread handlers, and reads as many bytes as they need.
///
/// # Errors
/// The session's status.
pub(crate) async fn preread(s: &mut StreamSession) -> Result<(), u16> {
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

/// Reads more bytes for the preread handlers.
async fn read_more(s: &mut StreamSession, until: Deadline) -> Result<(), u16> {
    let (size, have) = (s.server.core.preread_buffer_size, s.preread.len());
    if have >= size.max(s.server.pipeline.preread_max) {
        s.log(Level::Error, format_args!("preread buffer full while prereading client data"));
        return Err(status::BAD_REQUEST);
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
