//! A subrequest's way from its URI to the end of its body.

use std::future::Future;
use std::rc::Rc;

use base::log::Level;
use mem::Chain;

use super::{Pipe, Use};
use crate::head::Framing;
use crate::output::{Body, Broken};
use crate::phases::{self, Outcome};
use crate::request::Request;
use crate::send::{self, Filtered, SendFailed};

/// Tells the parent that this is the end, whatever way it comes.
struct End(Rc<Pipe>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end(Err(Broken));
    }
}

/// A subrequest's task. The guard is made by the caller's call, not by the first poll: a task may
/// be cancelled before that.
pub(super) fn run(mut r: Box<Request>, pipe: Rc<Pipe>, is_clone: bool) -> impl Future<Output = ()> {
    let end = End(pipe);
    async move {
        let done = answer(&mut r, is_clone).await;
        end.0.status.set(r.status());
        if r.loc.core.log_subrequest {
            r.flags.complete = done.is_ok();
            crate::conn::log_phase(&mut r).await;
        }
        if let Some(at_end) = r.sub.as_mut().and_then(|s| s.at_end.take()) {
            at_end(&mut r);
        }
        end.0.end(done);
        r.give_back();
    }
}

async fn answer(r: &mut Request, is_clone: bool) -> Result<(), Broken> {
    let mut outcome = match is_clone {
        true => phases::run_content(r).await,
        false => phases::run_inside(r).await,
    };
    if outcome == Outcome::Respond && r.out.body.is_empty() {
        r.stands_in();
    }
    if outcome == Outcome::Respond {
        match send::filters(r) {
            Filtered::Whole => {}
            now => outcome = Box::pin(send::settle_filtered(r, now)).await,
        }
    }
    if outcome == Outcome::Close {
        r.err_status = if r.err_status == 0 { 444 } else { r.err_status };
        return Err(Broken);
    }
    r.flags.header_sent = true;
    body(r).await.map_err(|SendFailed| Broken)
}

async fn body(r: &mut Request) -> Result<(), SendFailed> {
    let mut body = std::mem::take(&mut r.out.body);
    if r.flags.header_only || matches!(r.status(), 100..200 | 204 | 304) {
        if let Body::Stream(source) = &mut body {
            source.abandoned(r);
        }
        return Ok(());
    }
    match body {
        Body::Empty => crate::filter::filtered(r, &mut Chain::new(), true, Framing::None).await?,
        Body::Chain(mut chain) => {
            crate::filter::filtered(r, &mut chain, true, Framing::None).await?;
        }
        Body::Stream(mut source) => {
            if let Err(e) = send::stream(r, source.as_mut(), Framing::None).await {
                source.abandoned(r);
                return Err(e);
            }
        }
        // There is no connection that could become something else.
        Body::Upgraded(_) => return Err(SendFailed),
    }
    let Some(sub) = &mut r.sub else { return Ok(()) };
    if sub.given == 0
        && let Some(instead) = sub.instead.take()
    {
        let mut chain = Chain::new();
        chain.push_bytes(instead);
        give(r, chain).await?;
    }
    Ok(())
}

/// Passes a piece of a subrequest's body on to where it goes.
pub(crate) async fn give(r: &mut Request, mut piece: Chain) -> Result<(), SendFailed> {
    let max = r.loc.core.subrequest_output_buffer_size as u64;
    let Some(sub) = &mut r.sub else { return Ok(()) };
    let len = piece.len();
    sub.given += len;
    r.bytes_sent += len;
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
                r.family().overflow();
                return Err(SendFailed);
            }
            let pipe = sub.pipe.clone();
            while !piece.is_empty() {
                pipe.keep(&mut send::in_memory(r, &mut piece).await?);
            }
        }
    }
    Ok(())
}
