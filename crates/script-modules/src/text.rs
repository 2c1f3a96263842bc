//! Values as text, and lines of the error log.

use base::log::Level;
use bytes::Bytes;
use engine::Client;

use ::script::{Data, Fault, FaultKind, Level as ScriptLevel};

/// Why a call came to nothing; it was logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed;

/// The text of a value, as `String(value)` has it; nothing of `null` and `undefined`.
pub fn text_of(data: Data) -> Bytes {
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

/// `String(n)`
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

fn level(level: ScriptLevel) -> Level {
    match level {
        ScriptLevel::Info => Level::Info,
        ScriptLevel::Warn => Level::Warn,
        ScriptLevel::Error => Level::Error,
    }
}

/// The longest text that is logged, bytes, as in nginx.
const LOG_MAX: usize = 2048;

/// Writes a line of a script to the error log.
pub fn log(client: &impl Client, of: ScriptLevel, text: &str) {
    let level = level(of);
    if !client.logs(level) {
        return;
    }
    let end = text.len().min(LOG_MAX);
    let text = base::log::lossy(&text.as_bytes()[..end]);
    client.log(level, format_args!("js: {text}"));
}

/// Logs a fault: what, the function and its place.
pub fn report(client: &impl Client, what: &str, fault: &Fault) -> Failed {
    let what = match fault.kind {
        FaultKind::Rejected => "js unhandled rejection",
        FaultKind::Stretch | FaultKind::Cpu => "js was ended",
        FaultKind::NoFunction => {
            client.log(Level::Error, format_args!("{}", fault.message));
            return Failed;
        }
        _ => what,
    };
    let stack = fault.stack.lines().map(str::trim).filter(|line| !line.is_empty());
    let stack: Vec<_> = stack.collect();
    let stack = stack.join(" ");
    client.log(Level::Error, format_args!("{what}: {} {stack}", fault.message));
    Failed
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
