//! `js_periodic`: functions that run at intervals, without a client.

use std::rc::Rc;

use base::log::Level;
use conf::{ConfError, Node, value};
use http::HttpMain;
use http::cx::Cx;
use http::request::Request;
use http::server::Server;
use http::server::location::Location;

use crate::script::{Caller, Script};
use crate::settings::{Periodic, Periodics};

/// The default of `interval=`.
const INTERVAL_MS: u64 = 5_000;

/// The directive's setter.
pub(crate) fn js_periodic(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let mut periodic = Periodic {
        function: n.args[0].text.clone(),
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

/// Starts the functions of this worker.
pub(crate) fn start(main: &Rc<HttpMain>, worker: usize) {
    let (mut all, mut seen) = (Vec::new(), Vec::new());
    main.each_location(|server, location| {
        let here = location.confs.listed::<Periodics>();
        // A nested location shares the value of the one around.
        if seen.iter().any(|known| Rc::ptr_eq(known, &here)) {
            return;
        }
        seen.push(here.clone());
        for periodic in &here.0 {
            let runs_here = match &periodic.workers {
                None => worker == 0,
                Some(workers) => workers.get(worker).copied().unwrap_or(false),
            };
            if runs_here {
                all.push((server.clone(), location.clone(), periodic.clone()));
            }
        }
    });
    for (server, location, periodic) in all {
        let main = main.clone();
        event::spawn(async move {
            let dice = base::dice::Dice::default();
            // The first run is due when the worker begins to serve.
            let mut interval_ms = 0_u64;
            loop {
                let jitter = match periodic.jitter_ms {
                    0 => 0,
                    most => dice.roll() % most.saturating_add(1),
                };
                let wait = event::sleep(interval_ms.saturating_add(jitter));
                if event::race(wait, main.life.gate.closed()).await.is_second() {
                    return;
                }
                run(&main, &server, &location, &periodic).await;
                interval_ms = periodic.interval_ms;
            }
        });
    }
}

/// One run. A worker that leaves does not wait for it.
async fn run(main: &Rc<HttpMain>, server: &Rc<Server>, location: &Rc<Location>, of: &Periodic) {
    let Some(mut r) = Request::without_client(main, server, location) else { return };
    let done = event::race(call(&mut r, of), main.life.gate.closed()).await;
    if done.is_second() {
        r.log(Level::Info, format_args!("js periodic was ended: the worker leaves"));
    }
    r.end_without_client();
}

async fn call(r: &mut Request, of: &Periodic) {
    let Ok(Some(script)) = Script::of(r) else { return };
    if script.call(r, Caller::Periodic, &of.function, &[]).is_err() {
        return;
    }
    while script.is_waiting() {
        if script.progress(r).await.is_err() {
            return;
        }
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
