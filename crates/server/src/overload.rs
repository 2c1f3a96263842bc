//! `worker_overload` (Weir's own): its parameters. What they do is in [`engine::overload`].

use conf::value::{parse_msec, set_once};
use conf::{ConfError, Node, Word};
use engine::overload::Limits;

use crate::main_block::MainBlock;

/// Less would refuse clients of a worker that has much room.
const PERCENT_MIN: u64 = 50;

/// `off`, or limits by name.
pub fn directive(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    set_once(&mut draft.overload, node, |node| {
        if node.args.len() == 1 && node.arg(0)?.bytes() == b"off" {
            return Ok(Limits::OFF);
        }
        let mut limits = Limits::DEFAULT;
        let mut seen = Vec::new();
        for word in &node.args {
            let invalid = || ConfError::at(word, format!("invalid parameter \"{}\"", word.lossy()));
            let at = word.bytes().iter().position(|b| *b == b'=').ok_or_else(invalid)?;
            let (name, value) = (&word.bytes()[..at], &word.bytes()[at + 1..]);
            let percent = |least| percent(word, value, least);
            match name {
                b"memory" => limits.memory = percent(PERCENT_MIN)?,
                b"descriptors" => limits.descriptors = percent(PERCENT_MIN)?,
                b"connections" => limits.connections = percent(PERCENT_MIN)?,
                b"client" => limits.client = percent(1)?,
                b"latency" if value == b"off" => limits.latency_ms = 0,
                b"latency" => limits.latency_ms = time(word, value)?,
                b"retry" => limits.retry_s = time(word, value)?.div_ceil(1000),
                _ => return Err(invalid()),
            }
            if seen.contains(&name) {
                return Err(ConfError::at(word, format!("duplicate \"{}\"", word.lossy())));
            }
            seen.push(name);
        }
        Ok(limits)
    })
}

/// A share as `95%`, or `off`.
fn percent(word: &Word, value: &[u8], least: u64) -> Result<u8, ConfError> {
    if value == b"off" {
        return Ok(0);
    }
    let n = value.strip_suffix(b"%").and_then(base::ascii::parse_u64);
    match n {
        Some(n) if (least..=100).contains(&n) => Ok(n as u8),
        _ => {
            let m = format!("\"{}\" must be from {least}% to 100%, or off", word.lossy());
            Err(ConfError::at(word, m))
        }
    }
}

fn time(word: &Word, value: &[u8]) -> Result<u64, ConfError> {
    match parse_msec(value) {
        Some(ms) if ms > 0 => Ok(ms),
        _ => Err(ConfError::at(word, format!("invalid time in \"{}\"", word.lossy()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::main_block::tests::read;

    #[test]
    fn parameters() {
        let of = |text: &str| read(text).map(|draft| draft.overload);
        let memory = Limits { memory: 80, ..Limits::DEFAULT };
        assert_eq!(of("worker_overload memory=80%;"), Ok(Some(memory)));
        let all = "worker_overload memory=off descriptors=90% connections=100% client=3% \
                   latency=300ms retry=1500ms;";
        let limits = Limits {
            memory: 0,
            descriptors: 90,
            connections: 100,
            client: 3,
            latency_ms: 300,
            retry_s: 2,
        };
        assert_eq!(of(all), Ok(Some(limits)));
        assert_eq!(of("worker_overload off;"), Ok(Some(Limits::OFF)));
        let share = "must be from 50% to 100%, or off in f:1";
        for (text, message) in [
            ("worker_overload memory=49%;", format!("\"memory=49%\" {share}")),
            ("worker_overload connections=101%;", format!("\"connections=101%\" {share}")),
            ("worker_overload memory=90;", format!("\"memory=90\" {share}")),
            (
                "worker_overload client=0%;",
                "\"client=0%\" must be from 1% to 100%, or off in f:1".into(),
            ),
            ("worker_overload latency=x;", "invalid time in \"latency=x\" in f:1".to_owned()),
            ("worker_overload retry=0;", "invalid time in \"retry=0\" in f:1".to_owned()),
            ("worker_overload off retry=1s;", "invalid parameter \"off\" in f:1".to_owned()),
            ("worker_overload cpu=9%;", "invalid parameter \"cpu=9%\" in f:1".to_owned()),
            ("worker_overload retry=1s retry=2s;", "duplicate \"retry=2s\" in f:1".to_owned()),
        ] {
            assert_eq!(of(text), Err(message));
        }
    }
}
