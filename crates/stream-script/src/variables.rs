//! `js_set`: variables that functions compute.

use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use engine::Client;
use script_modules::Function;
use script_modules::text::text_of;
use stream::StreamSession;

use crate::script::Script;

/// The value of a variable; none where the function fails.
pub(crate) fn evaluate(s: &mut StreamSession, function: &Function) -> Option<Bytes> {
    let own = match Script::of(s) {
        Ok(Some(script)) => script,
        Ok(None) => {
            let m = "no \"js_import\" directives found for \"js_set\" handler";
            let name = function.lossy();
            s.log(Level::Error, format_args!("{m} \"{name}\" in the current scope"));
            return None;
        }
        Err(_) => return None,
    };
    if !own.job.is_running() {
        return value(s, &own, function);
    }
    // A script reads the variable: its engine is in the middle of something.
    let other = Script::new(s, false).ok()??;
    let value = value(s, &other, function);
    other.end(s);
    value
}

fn value(s: &mut StreamSession, script: &Rc<Script>, function: &Function) -> Option<Bytes> {
    let waited = script.is_waiting();
    let value = script.value(s, function).ok()?;
    if !waited && script.is_waiting() {
        let name = function.lossy();
        s.log(Level::Error, format_args!("async operation inside \"{name}\" variable handler"));
        return None;
    }
    value.map(text_of)
}
