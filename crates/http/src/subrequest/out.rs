//! The response of a subrequest: no head, and a body that goes into the pipe.

use base::log::Level;
use mem::Chain;

use super::Use;
use crate::channel::{SendFailed, in_memory};
use crate::request::Request;

/// Whether the response has a body to pass on.
fn has_body(r: &Request) -> bool {
    !r.flags.header_only && !matches!(r.status(), 100..200 | 204 | 304)
}

/// Begins the response, which has no head to send. Says whether a body follows.
pub(crate) fn start(r: &mut Request) -> bool {
    r.flags.header_sent = true;
    has_body(r)
}

/// Ends the response, with the substitute for its body where that was empty.
pub(crate) async fn finish(r: &mut Request) -> Result<(), SendFailed> {
    if !has_body(r) {
        return Ok(());
    }
    let Some(sub) = r.sub_mut() else { return Ok(()) };
    if sub.given == 0
        && let Some(instead) = sub.instead.take()
    {
        let mut chain = Chain::new();
        chain.push_bytes(instead);
        put(r, chain).await?;
    }
    Ok(())
}

/// Passes a piece of a subrequest's body on to where it goes.
pub(crate) async fn put(r: &mut Request, mut piece: Chain) -> Result<(), SendFailed> {
    let max = r.loc.core.subrequest_output_buffer_size as u64;
    let len = piece.len();
    r.account.bytes_sent += len;
    let Some(sub) = r.sub_mut() else { return Ok(()) };
    sub.given += len;
    if len == 0 {
        return Ok(());
    }
    match sub.take {
        Use::Head => {}
        Use::Body => {
            let pipe = sub.pipe.clone();
            pipe.put(piece).await;
        }
        Use::Memory => {
            if sub.given > max {
                r.log(Level::Error, format_args!("too big subrequest response"));
                r.work.subrequests.family().overflow();
                return Err(SendFailed);
            }
            let pipe = sub.pipe.clone();
            while !piece.is_empty() {
                pipe.keep(&mut in_memory(r, &mut piece).await?);
            }
        }
    }
    Ok(())
}
