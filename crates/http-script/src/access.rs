//! `js_access`: a function that decides about access.

use std::rc::Rc;

use ::script::Outcome;
use base::log::{Level, lossy};
use bytes::Bytes;
use http::module::{Dry, PhaseHandler, Step, Verdict};
use http::request::Request;

use crate::content;
use crate::script::{Caller, Decision, Script};
use crate::settings::Settings;

pub(crate) struct Handler {
    function: Bytes,
    #[expect(dead_code, reason = "keeps the compiled imports")]
    conf: Rc<Settings>,
}

impl Handler {
    pub fn new(function: &Bytes, conf: Rc<Settings>) -> Handler {
        Handler { function: function.clone(), conf }
    }

    async fn decide(&self, r: &mut Request) -> Result<Verdict, Verdict> {
        let failed = Verdict::Status(500);
        let script = Script::of(r).map_err(|_| failed)?.ok_or(failed)?;
        script.decision.take();
        let called = script.call(r, Caller::Access, &self.function, &[]).map_err(|_| failed)?;
        while script.is_waiting() {
            script.progress(r).await?;
        }
        script.caller.set(Caller::Other);
        let decision = script.decision.take();
        if let Outcome::Pending(call) = called
            && decision == Decision::None
            && !script.has_ended(r, call).map_err(|_| failed)?
        {
            let name = lossy(&self.function);
            let m = format_args!("the promise of js_access \"{name}\" is never settled");
            r.log(Level::Error, m);
            return Err(failed);
        }
        if script.output.header_sent.get() {
            return Ok(content::respond(r, &script));
        }
        Ok(match decision {
            Decision::None => Verdict::Ok,
            Decision::Declined => Verdict::Next,
            Decision::Redirect(uri) => content::redirect(r, &uri),
            Decision::Status(status) => Verdict::Status(status),
            Decision::Responded => content::respond(r, &script),
        })
    }
}

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        Step::Wait(Box::pin(async move {
            match self.decide(r).await {
                Ok(verdict) | Err(verdict) => verdict,
            }
        }))
    }

    fn dry(&self) -> Dry {
        Dry::Skipped
    }
}
