//! `js_set`: variables that functions compute.

use base::log::{Level, lossy};
use bytes::Bytes;
use http::request::Request;

use ::script::{Data, Outcome};

use crate::script::{Caller, Script};

/// The value of a variable; none where the function fails.
pub(crate) fn evaluate(r: &mut Request, function: &Bytes) -> Option<Bytes> {
    let name = lossy(function);
    if r.is_traced() {
        // An explanation changes nothing, and a script may do anything.
        r.log(Level::Notice, format_args!("the script \"{name}\" of a variable is not run"));
        return None;
    }
    let own = match Script::of(r) {
        Ok(Some(script)) => script,
        Ok(None) => {
            let m = "no \"js_import\" directives found for \"js_set\" handler";
            r.log(Level::Error, format_args!("{m} \"{name}\" in the current scope"));
            return None;
        }
        Err(_) => return None,
    };
    if !own.is_running() {
        return value(r, &own, function);
    }
    // A script reads the variable: its engine is in the middle of something.
    let other = Script::new(r).ok()??;
    let value = value(r, &other, function);
    other.end(r);
    value
}

fn value(r: &mut Request, script: &std::rc::Rc<Script>, function: &Bytes) -> Option<Bytes> {
    let waited = script.is_waiting();
    script.return_value.take();
    let outcome = script.call(r, Caller::Other, function, &[]).ok()?;
    let set = script.return_value.take();
    if !waited && script.is_waiting() {
        let name = lossy(function);
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

/// The text of a value, as `String(value)` has it; nothing of `null` and `undefined`.
pub(crate) fn text_of(data: Data) -> Bytes {
    match data {
        Data::Undefined | Data::Null => Bytes::new(),
        Data::Bool(b) => b.to_string().into(),
        Data::Number(n) => number(n).into(),
        Data::Text(text) => text.into(),
        Data::Bytes(bytes) => bytes.into(),
        Data::List(list) => {
            let parts: Vec<_> = list.into_iter().map(text_of).collect();
            parts.join(&b","[..]).into()
        }
        Data::Object(_) => Bytes::from_static(b"[object Object]"),
    }
}

fn number(n: f64) -> String {
    match n {
        n if n.is_nan() => "NaN".to_owned(),
        n if n.is_infinite() => if n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        0.0 => "0".to_owned(),
        n if (1e-6..1e21).contains(&n.abs()) => n.to_string(),
        n => {
            let text = format!("{n:e}");
            if text.contains("e-") { text } else { text.replacen('e', "e+", 1) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_written_as_in_javascript() {
        for (n, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (30.0, "30"),
            (-1.5, "-1.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-7, "1e-7"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(number(n), text);
        }
    }
}
