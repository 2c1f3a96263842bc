//! Helpers for modules that serve sessions.

use base::log::Level;
use bytes::Bytes;
use engine::Client;
use event::Deadline;
use mem::Chain;

use crate::module::{BytesFilter, Piece, Sent, Way};
use crate::phases::status;
use crate::proxy::filtered::filter_of;
use crate::session::StreamSession;

pub use crate::phases::status as statuses;

/// Sends `bytes` to the client and closes the session. Returns the session's status.
pub async fn answer(s: &mut StreamSession, bytes: Bytes) -> u16 {
    match filter_of(s) {
        None => send(s, bytes).await,
        Some(filter) => match filtered(s, filter, bytes).await {
            Ok(bytes) => send(s, bytes).await,
            Err(status) => status,
        },
    }
}

/// The bytes that a filter makes of an answer.
async fn filtered(
    s: &mut StreamSession,
    mut filter: Box<dyn BytesFilter>,
    bytes: Bytes,
) -> Result<Bytes, u16> {
    let mut sent = Sent::default();
    filter.filter(s, Way::Down, Piece { bytes, flush: true }, true, &mut sent)?;
    while filter.is_waiting() {
        filter.go_on(s, &mut sent).await?;
    }
    let pieces: Vec<Bytes> = sent.down.into_iter().map(|piece| piece.bytes).collect();
    Ok(pieces.concat().into())
}

async fn send(s: &mut StreamSession, bytes: Bytes) -> u16 {
    if let Some(client) = s.datagrams() {
        let len = bytes.len() as u64;
        match client.send(&bytes) {
            Ok(()) => s.sent.set(s.sent.get() + len),
            Err(e) => {
                let e = base::log::os_error(&e);
                s.log(Level::Info, format_args!("sendmsg() failed {e}"));
            }
        }
        return status::OK;
    }
    let Some(sock) = s.take_sock() else { return status::OK };
    let (mut chain, len) = (Chain::new(), bytes.len() as u64);
    chain.push_bytes(bytes);
    match sock.send(&mut chain, Deadline::NEVER).await {
        Ok(()) => {
            s.sent.set(s.sent.get() + len);
            // Reads pending bytes of the client, because unread ones would turn the close into a
            // reset, which can destroy the response on its way.
            while let Ok(Some(page)) = sock.try_recv()
                && !page.is_empty()
            {}
        }
        Err(e) => {
            let e = base::log::os_error(&e);
            s.log(Level::Info, format_args!("send() failed {e}"));
        }
    }
    s.put_sock(sock);
    status::OK
}
