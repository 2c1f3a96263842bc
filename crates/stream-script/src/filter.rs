//! `js_filter`: a function whose callbacks change the bytes that the proxy relays.
//!
//! The function is called with the first bytes of either side, before they are filtered. Bytes of a
//! way without a callback pass as they are.

use std::rc::Rc;

use script_modules::Function;
use stream::StreamSession;
use stream::module::{BytesFilter, GoingOn, Piece, Sent, Way};
use stream::phases::status;

use crate::script::Script;

/// The filter of one session.
pub(crate) struct Filter {
    function: Function,
    /// Known once the function was called.
    script: Option<Rc<Script>>,
}

impl Filter {
    pub fn new(function: &Function) -> Filter {
        Filter { function: function.clone(), script: None }
    }

    /// The script, whose function was called.
    fn begun(&mut self, s: &mut StreamSession) -> Result<Rc<Script>, u16> {
        if let Some(script) = &self.script {
            return Ok(script.clone());
        }
        let failed = status::INTERNAL;
        let script = Script::of(s).map_err(|_| failed)?.ok_or(failed)?;
        script.call(s, &self.function).map_err(|_| failed)?;
        script.is_filtering.set(true);
        self.script = Some(script.clone());
        Ok(script)
    }
}

/// Takes what a script has sent.
fn take(script: &Script, sent: &mut Sent) {
    let mut more = script.take_sent();
    sent.up.append(&mut more.up);
    sent.down.append(&mut more.down);
}

impl BytesFilter for Filter {
    fn filter(
        &mut self,
        s: &mut StreamSession,
        way: Way,
        piece: Piece,
        last: bool,
        sent: &mut Sent,
    ) -> Result<(), u16> {
        let script = self.begun(s)?;
        // A session may last for days: each piece has the processor time of a request.
        script.job.reset_time();
        if script.form(way).is_none() {
            take(&script, sent);
            sent.way(way).push(piece);
            return Ok(());
        }
        script.piece.set(Some((way, piece.flush)));
        let done = script.event(s, way, piece.bytes.to_vec(), last);
        script.piece.set(None);
        take(&script, sent);
        done.map_err(|_| status::INTERNAL)
    }

    fn is_waiting(&self) -> bool {
        self.script.as_ref().is_some_and(|script| script.is_waiting())
    }

    fn go_on<'a>(&'a mut self, s: &'a mut StreamSession, sent: &'a mut Sent) -> GoingOn<'a> {
        Box::pin(async move {
            let Some(script) = &self.script else { return std::future::pending().await };
            let next = script.job.ops.next().await;
            let done = script.go_on(s, next);
            take(script, sent);
            done.map_err(|_| status::INTERNAL)
        })
    }
}
