//! `js_access`: a function that decides about access; `js_content`: one that answers requests.
//!
//! A response that is whole when the function and all that it waits for are done is prepared as any
//! other. One whose header section is settled earlier goes out at once: the script moves into the
//! response's body ([`Rest`]), which is asked for more while the script goes on.

use std::rc::Rc;

use ::script::Outcome;
use base::log::{Level, lossy};
use http::explain;
use http::module::{Dry, PhaseHandler, Step, Verdict};
use http::output::{Body, BodySource, Broken, NextPiece};
use http::request::Request;
use script_modules::{Function, share};

use crate::script::{Caller, Decision, Script};

/// A function that a phase calls.
pub(crate) struct Handler {
    function: Function,
    /// It answers requests; otherwise it decides about access.
    answers: bool,
}

impl Handler {
    /// A handler for the access phase.
    pub fn access(function: &Function) -> Handler {
        Handler { function: function.clone(), answers: false }
    }

    /// A content handler.
    pub fn content(function: &Function) -> Handler {
        Handler { function: function.clone(), answers: true }
    }

    async fn decide(&self, r: &mut Request) -> Result<Verdict, Verdict> {
        let failed = Verdict::Status(500);
        share::time().await;
        let script = Script::of(r).map_err(|_| failed)?.ok_or(failed)?;
        script.decision.take();
        let called = script.call(r, Caller::Access, &self.function, Vec::new());
        let called = called.map_err(|_| failed)?;
        while script.is_waiting() {
            script.progress(r).await?;
        }
        script.caller.set(Caller::Other);
        let decision = script.decision.take();
        if let Outcome::Pending(call) = called
            && decision == Decision::None
            && !script.has_ended(r, call).map_err(|_| failed)?
        {
            let name = self.function.lossy();
            let m = format_args!("the promise of js_access \"{name}\" is never settled");
            r.log(Level::Error, m);
            return Err(failed);
        }
        if script.output.header_sent.get() {
            return Ok(respond(r, &script));
        }
        Ok(match decision {
            Decision::None => Verdict::Ok,
            Decision::Declined => Verdict::Next,
            Decision::Redirect(uri) => redirect(r, &uri),
            Decision::Status(status) => Verdict::Status(status),
            Decision::Responded => respond(r, &script),
        })
    }

    async fn answer(&self, r: &mut Request) -> Result<Verdict, Verdict> {
        let failed = Verdict::Status(500);
        r.read_body().await?;
        share::time().await;
        let script = Script::of(r).map_err(|_| failed)?.ok_or(failed)?;
        script.load_body(r).await?;
        script.decision.take();
        script.call(r, Caller::Content, &self.function, Vec::new()).map_err(|_| failed)?;
        while script.is_waiting() && !script.output.header_sent.get() {
            script.progress(r).await?;
        }
        if script.output.header_sent.get() {
            return Ok(respond(r, &script));
        }
        Ok(match script.decision.take() {
            Decision::Redirect(uri) => redirect(r, &uri),
            Decision::Status(status) => Verdict::Status(status),
            // It neither answered nor said what else is to be.
            Decision::None | Decision::Declined | Decision::Responded => failed,
        })
    }
}

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if r.is_traced() {
            explain(r, &self.function);
            return Step::Now(match self.answers {
                true => r.end_explained(explain::Step::Content),
                false => Verdict::Next,
            });
        }
        Step::Wait(Box::pin(async move {
            let verdict = if self.answers { self.answer(r).await } else { self.decide(r).await };
            match verdict {
                Ok(verdict) | Err(verdict) => verdict,
            }
        }))
    }

    fn dry(&self) -> Dry {
        if self.answers { Dry::Looks } else { Dry::Usual }
    }
}

/// Notes in an explanation that a function would be called, which explanations do not do.
pub(crate) fn explain(r: &Request, function: &Function) {
    r.note_called(function.counts.directive, &function.lossy());
}

/// Goes to the URI that a script redirects to.
pub(crate) fn redirect(r: &mut Request, uri: &[u8]) -> Verdict {
    if uri.first() == Some(&b'@') {
        return r.named_redirect(uri);
    }
    let mut path = Vec::new();
    match http_wire::uri::parse_unsafe(uri, &mut path) {
        Ok(args) => r.internal_redirect(&path, &uri[args]),
        Err(_) => {
            let uri = lossy(uri);
            r.log(Level::Error, format_args!("unsafe URI \"{uri}\" was detected"));
            Verdict::Status(500)
        }
    }
}

/// Prepares the response whose header section the script has settled.
pub(crate) fn respond(r: &mut Request, script: &Rc<Script>) -> Verdict {
    if script.is_waiting() {
        r.out.flush = true;
        r.out.body = Body::Stream(Box::new(Rest { script: script.clone() }));
    } else {
        r.out.body = Body::Chain(script.output.take());
    }
    Verdict::Done
}

/// What a script still has to send.
struct Rest {
    script: Rc<Script>,
}

impl BodySource for Rest {
    fn next<'a>(&'a mut self, r: &'a mut Request) -> NextPiece<'a> {
        Box::pin(async move {
            loop {
                let piece = self.script.output.take();
                if !piece.is_empty() {
                    return Ok(Some(piece));
                }
                if !self.script.is_waiting() {
                    return Ok(None);
                }
                self.script.progress(r).await.map_err(|_| Broken)?;
            }
        })
    }

    fn is_over(&self) -> bool {
        self.script.output.queue.borrow().is_empty() && !self.script.is_waiting()
    }

    fn is_ready(&self) -> bool {
        !self.script.output.queue.borrow().is_empty() || !self.script.is_waiting()
    }
}
