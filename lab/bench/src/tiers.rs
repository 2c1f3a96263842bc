//! Two tiers that speak HTTP/2 to each other: an outer server for clients of HTTP/1, and two inner
//! ones before the backends. `backends-h2` kills and reloads the inner ones under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::Outcome;
use crate::backends::{self, Backend, Counts, Seen, Terms};
use crate::options::Options;
use crate::server::{Kind, Server, Setup};
use testkit::rng::Rng;

/// Requests of a connection between the tiers, until it ends with GOAWAY.
const REQUESTS: u64 = 200;
/// The time between disturbances.
const EVERY: Duration = Duration::from_millis(1500);

/// The servers.
pub struct Tiers {
    pub outer: Server,
    pub inner: Vec<Server>,
}

fn inner_setup(behind: &[Backend], requests: u64) -> Setup {
    let ports: Vec<u16> = behind.iter().map(|backend| backend.port).collect();
    backends::setup_with(&ports, &Terms { http2: true, requests, ..Terms::default() })
}

impl Tiers {
    /// `requests` of a connection between the tiers.
    pub fn start(
        options: &Options,
        kind: Kind,
        behind: &[Backend],
        requests: u64,
    ) -> Outcome<Tiers> {
        let setup = inner_setup(behind, requests);
        let one = |_| Server::start(options, kind, &setup).map(|(server, _)| server);
        let inner: Vec<Server> = (0..2).map(one).collect::<Outcome<_>>()?;
        let ports: Vec<u16> = inner.iter().map(|server| server.port).collect();
        let setup = backends::setup_with(&ports, &Terms { version: "2", ..Terms::default() });
        let (outer, _) = Server::start(options, kind, &setup)?;
        Ok(Tiers { outer, inner })
    }
}

/// Kills an inner server and starts it again, or reloads one, in turn; the other one serves.
fn trouble(options: &Options, setup: &Setup, inner: &mut [Server], over: &AtomicBool) -> Outcome {
    let mut rng = Rng::new(7);
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(EVERY / 2 + EVERY * rng.below(100) as u32 / 100);
        let server = &mut inner[rng.below(2)];
        match rng.percent(50) {
            true => server.signal(Signal::HUP),
            false => server.start_again(options, setup)?,
        }
    }
    Ok(())
}

/// Runs the load `backends-h2`.
pub fn run(options: &Options, _: &str) -> Outcome {
    println!("server  answered  GET lost  POST lost  POST twice  mixed up");
    let mut wrong = 0;
    for kind in backends::kinds(options).filter(|kind| *kind != Kind::Nginx) {
        let seen = Arc::new(Seen::default());
        let behind: Vec<Backend> = (0..3).map(|_| Backend::new(&seen)).collect::<Outcome<_>>()?;
        let Tiers { outer, inner } = Tiers::start(options, kind, &behind, REQUESTS)?;
        let (counts, setup) = (Counts::default(), inner_setup(&behind, REQUESTS));
        let inner = std::sync::Mutex::new((inner, Ok(())));
        backends::drive(outer.port, options.seconds, true, &counts, |over| {
            let mut inner = backends::locked(&inner);
            inner.1 = trouble(options, &setup, &mut inner.0, over);
        })?;
        backends::locked(&inner).1.clone()?;
        let (of, twice) = (|c: &AtomicU64| c.load(Ordering::Relaxed), backends::twice(&seen));
        println!(
            "{:<7} {:>8} {:>9} {:>10} {twice:>11} {:>9}",
            kind.name(),
            of(&counts.ok),
            of(&counts.get_lost),
            of(&counts.post_lost),
            of(&counts.mixed)
        );
        wrong += twice + of(&counts.mixed) + of(&counts.get_lost);
    }
    if wrong > 0 { Err(format!("{wrong} answers mixed up, lost or repeated")) } else { Ok(()) }
}
