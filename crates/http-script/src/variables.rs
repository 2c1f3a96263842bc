//! `js_set`: variables that functions compute.

use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use http::request::Request;
use script_modules::Function;
use script_modules::text::text_of;

use ::script::{Argument, Outcome};

use crate::script::{Caller, Script};

/// The value of a variable; none where the function fails.
pub(crate) fn evaluate(r: &mut Request, function: &Function) -> Option<Bytes> {
    if r.is_traced() {
        // An explanation changes nothing, and a script may do anything.
        crate::handler::explain(r, function);
        return None;
    }
    let own = match Script::of(r) {
        Ok(Some(script)) => script,
        Ok(None) => {
            let m = "no \"js_import\" directives found for \"js_set\" handler";
            let name = function.lossy();
            r.log(Level::Error, format_args!("{m} \"{name}\" in the current scope"));
            return None;
        }
        Err(_) => return None,
    };
    if !own.job.is_running() {
        return value(r, &own, function);
    }
    // A script reads the variable: its engine is in the middle of something.
    let other = Script::new(r).ok()??;
    let value = value(r, &other, function);
    other.end(r);
    value
}

fn value(r: &mut Request, script: &Rc<Script>, function: &Function) -> Option<Bytes> {
    let waited = script.is_waiting();
    script.return_value.take();
    let outcome = script.call(r, Caller::Other, function, &[Argument::Request]).ok()?;
    let set = script.return_value.take();
    if !waited && script.is_waiting() {
        let name = function.lossy();
        r.log(Level::Error, format_args!("async operation inside \"{name}\" variable handler"));
        return None;
    }
    let data = match (set, outcome) {
        (Some(set), _) => set,
        (None, Outcome::Done(data)) => data,
        (None, Outcome::Pending(_)) => return None,
    };
    Some(text_of(data))
}
