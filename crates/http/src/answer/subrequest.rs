//! A subrequest's way from its URI to the end of its body.

use std::rc::Rc;

use event::TaskId;

use super::log_phase;
use crate::channel::SendFailed;
use crate::output::Broken;
use crate::phases::{self, Outcome};
use crate::request::Request;
use crate::send::{self, Filtered};
use crate::subrequest::Pipe;
use crate::{flight, metering};

/// Tells the parent that this is the end, whatever way it comes.
struct End(Rc<Pipe>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end(Err(Broken));
    }
}

/// A subrequest's task. The guard is made by the caller's call, not by the first poll: a task may
/// be cancelled before that.
pub(crate) fn run(mut r: Box<Request>, pipe: Rc<Pipe>, is_clone: bool) -> TaskId {
    let end = End(pipe);
    event::spawn(async move {
        let done = answer(&mut r, is_clone).await;
        end.0.status.set(r.status());
        metering::exchanges(&r);
        flight::end(&r);
        if r.loc.core.log_subrequest {
            r.flags.complete = done.is_ok();
            log_phase(&mut r).await;
        }
        if let Some(at_end) = r.sub_mut().and_then(|s| s.at_end.take()) {
            at_end(&mut r);
        }
        r.call_endings();
        let keep = r.sub_mut().and_then(|s| s.keep.take());
        match keep {
            Some(keep) => {
                keep(r);
                end.0.end(done);
            }
            None => {
                end.0.end(done);
                r.give_back();
            }
        }
    })
}

async fn answer(r: &mut Request, is_clone: bool) -> Result<(), Broken> {
    let mut outcome = match is_clone {
        true => phases::run_content(r).await,
        false => phases::run_inside(r).await,
    };
    r.account.times.ready_us = r.account.elapsed_us();
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
        r.flags.err_status = if r.flags.err_status == 0 { 444 } else { r.flags.err_status };
        return Err(Broken);
    }
    send::response(r, false).await.map_err(|SendFailed| Broken)
}
