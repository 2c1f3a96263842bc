//! `js_access`: a function that decides about access; `js_content`: one that answers requests.
//!
//! A response that is whole when the function and all that it waits for are done is prepared as any
//! other. One whose header section is settled earlier goes out at once: the script moves into the
//! response's body ([`Rest`]), which is asked for more while the script goes on.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ::script::{Argument, Outcome};
use base::log::{Level, lossy};
use http::explain;
use http::module::{Dry, PhaseHandler, Step, Verdict};
use http::output::{Body, BodySource, Broken, NextPiece};
use http::request::Request;
use script_modules::text::Failed;
use script_modules::{Function, Settings, share};

use crate::script::{Caller, Decision, Script};

/// A function that a phase calls.
pub(crate) struct Handler {
    function: Function,
    /// The settings of its location.
    here: Rc<Settings>,
    /// It answers requests; otherwise it decides about access.
    answers: bool,
}

impl Handler {
    /// A handler for the access phase.
    pub fn access(function: &Function, here: &Rc<Settings>) -> Handler {
        Handler { function: function.clone(), here: here.clone(), answers: false }
    }

    /// A content handler.
    pub fn content(function: &Function, here: &Rc<Settings>) -> Handler {
        Handler { function: function.clone(), here: here.clone(), answers: true }
    }

    /// Calls the function, where nothing has to be waited for before.
    fn begin_now(&self, r: &mut Request) -> Begun {
        if !share::has_time() || (self.answers && !body_is_read(r)) {
            return Begun::Later;
        }
        match self.begin(r) {
            Ok((script, _)) if self.answers && script.has_answered() => {
                Begun::Ended(self.answer(r, &script))
            }
            Ok((script, called)) if !self.answers && !script.is_waiting() => {
                Begun::Ended(self.decide(r, &script, called))
            }
            Ok((script, called)) => Begun::Waits(script, called),
            Err(verdict) => Begun::Ended(verdict),
        }
    }

    /// Calls the function. The body was read.
    fn begin(&self, r: &mut Request) -> Result<(Rc<Script>, Outcome), Verdict> {
        let failed = Verdict::Status(500);
        let script = Script::of_location(r, &self.here).map_err(|_| failed)?.ok_or(failed)?;
        script.decision.take();
        let caller = if self.answers { Caller::Content } else { Caller::Access };
        let called = script.call(r, caller, &self.function, &[Argument::Request]);
        Ok((script, called.map_err(|_| failed)?))
    }

    /// The same when there is time for it and the body was read, and then what the script waits
    /// for.
    async fn go_on(&self, r: &mut Request, begun: Option<(Rc<Script>, Outcome)>) -> Verdict {
        match self.wait(r, begun).await {
            Ok((script, _)) if self.answers => self.answer(r, &script),
            Ok((script, called)) => self.decide(r, &script, called),
            Err(verdict) => verdict,
        }
    }

    async fn wait(
        &self,
        r: &mut Request,
        begun: Option<(Rc<Script>, Outcome)>,
    ) -> Result<(Rc<Script>, Outcome), Verdict> {
        let (script, called) = match begun {
            Some(begun) => begun,
            None => {
                if self.answers {
                    r.read_body().await?;
                }
                share::time().await;
                if self.answers && r.body.file().is_some() {
                    let failed = Verdict::Status(500);
                    let script = Script::of_location(r, &self.here);
                    let script = script.map_err(|_| failed)?.ok_or(failed)?;
                    script.load_body(r).await?;
                }
                self.begin(r)?
            }
        };
        while script.is_waiting() && !(self.answers && script.output.header_sent.get()) {
            script.progress(r).await?;
        }
        Ok((script, called))
    }

    /// The decision about access of a script that waits for nothing.
    fn decide(&self, r: &mut Request, script: &Rc<Script>, called: Outcome) -> Verdict {
        let failed = Verdict::Status(500);
        script.caller.set(Caller::Other);
        let decision = script.decision.take();
        if let Outcome::Pending(call) = called
            && decision == Decision::None
        {
            match script.has_ended(r, call) {
                Ok(true) => {}
                Ok(false) => {
                    let name = &self.function.name;
                    let m = format_args!("the promise of js_access \"{name}\" is never settled");
                    r.log(Level::Error, m);
                    return failed;
                }
                Err(Failed) => return failed,
            }
        }
        if script.output.header_sent.get() {
            return respond(r, script);
        }
        match decision {
            Decision::None => Verdict::Ok,
            Decision::Declined => Verdict::Next,
            Decision::Redirect(uri) => redirect(r, &uri),
            Decision::Status(status) => Verdict::Status(status),
            Decision::Responded => respond(r, script),
        }
    }

    /// The answer of a script whose header section is settled, or that waits for nothing.
    fn answer(&self, r: &mut Request, script: &Rc<Script>) -> Verdict {
        if script.output.header_sent.get() {
            return respond(r, script);
        }
        match script.decision.take() {
            Decision::Redirect(uri) => redirect(r, &uri),
            Decision::Status(status) => Verdict::Status(status),
            // It neither answered nor said what else is to be.
            Decision::None | Decision::Declined | Decision::Responded => Verdict::Status(500),
        }
    }
}

/// What came of a function that was called at once.
enum Begun {
    /// The verdict.
    Ended(Verdict),
    /// It was called, and waits for something.
    Waits(Rc<Script>, Outcome),
    /// It was not called: something has to be waited for before.
    Later,
}

/// Whether there is no body, or all of it is in memory.
fn body_is_read(r: &mut Request) -> bool {
    let exists = r.head.chunked || r.head.content_length.is_some() || r.head.expect_continue;
    let is_here = r.body.was_read() || (!exists && r.body_is_finished());
    if !is_here || r.body.file().is_some() {
        return false;
    }
    // Nothing is waited for then; the request notes that its body was read.
    let read = pin!(r.read_body());
    matches!(read.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())))
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
        // Most functions wait for nothing: a future in a box takes as long as a short one.
        let begun = match self.begin_now(r) {
            Begun::Ended(verdict) => return Step::Now(verdict),
            Begun::Waits(script, called) => Some((script, called)),
            Begun::Later => None,
        };
        Step::Wait(Box::pin(self.go_on(r, begun)))
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
