//! `js_periodic`: functions that run at intervals, without a client.

use conf::{ConfError, Node, value};
use engine::{Cx, Session};
use event::Gate;

use crate::function::Function;
use crate::settings::{Periodic, Periodics};

/// The default of `interval=`.
const INTERVAL_MS: u64 = 5_000;

/// The directive's setter.
///
/// # Errors
/// A parameter is wrong.
pub fn js_periodic<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let mut periodic = Periodic {
        function: Function::of(cx, "js_periodic", n.arg(0)?)?,
        interval_ms: INTERVAL_MS,
        jitter_ms: 0,
        workers: None,
    };
    for word in &n.args[1..] {
        let text = word.bytes();
        let invalid = || ConfError::at(word, format!("invalid parameter \"{}\"", word.lossy()));
        if let Some(time) = text.strip_prefix(b"interval=") {
            let ms = value::parse_msec(time).filter(|ms| *ms > 0);
            periodic.interval_ms = ms.ok_or_else(invalid)?;
        } else if let Some(time) = text.strip_prefix(b"jitter=") {
            periodic.jitter_ms = value::parse_msec(time).ok_or_else(invalid)?;
        } else if let Some(mask) = text.strip_prefix(b"worker_affinity=") {
            let workers = affinity(mask, cx.env.workers).map_err(|m| ConfError::at(word, m))?;
            periodic.workers = Some(workers);
        } else {
            return Err(invalid());
        }
    }
    cx.loc::<Periodics>().0.push(periodic);
    Ok(())
}

/// Which of `workers` workers a mask names.
fn affinity(mask: &[u8], workers: usize) -> Result<Vec<bool>, String> {
    if mask == b"all" {
        return Ok(vec![true; workers]);
    }
    if mask.len() != workers {
        return Err("the number of \"worker_processes\" is not equal to the size of \
                    \"worker_affinity\" mask"
            .to_owned());
    }
    let bit = |byte: &u8| match byte {
        b'0' => Ok(false),
        b'1' => Ok(true),
        other => {
            let other = char::from(*other);
            Err(format!("invalid character \"{other}\" in \"worker_affinity=\""))
        }
    };
    mask.iter().map(bit).collect()
}

/// Runs `run` at the intervals of a function, until the worker leaves. The first run is due when
/// the worker begins to serve.
pub async fn at_intervals(of: Periodic, gate: Gate, run: impl AsyncFn(&Periodic)) {
    let dice = base::dice::Dice::default();
    let mut interval_ms = 0_u64;
    loop {
        let jitter = match of.jitter_ms {
            0 => 0,
            most => dice.roll() % most.saturating_add(1),
        };
        let wait = event::sleep(interval_ms.saturating_add(jitter));
        if event::race(wait, gate.closed()).await.is_second() {
            return;
        }
        run(&of).await;
        interval_ms = of.interval_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::affinity;

    #[test]
    fn masks_name_workers() {
        assert_eq!(affinity(b"all", 2).unwrap(), [true, true]);
        assert_eq!(affinity(b"010", 3).unwrap(), [false, true, false]);
        assert!(affinity(b"01", 3).unwrap_err().contains("is not equal"));
        assert!(affinity(b"0a", 2).unwrap_err().contains("\"a\""));
    }
}
