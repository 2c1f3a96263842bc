//! The disturbances of the server: reloads, rotations, killed workers and helpers.
//!
//! They come in three kinds of stretches, one after the other, so that workers live for seconds and
//! for minutes, and nothing explains a loss for a good part of the time:
//!
//! ```text
//!  storm ──▶ reloads ──▶ calm ──▶ storm …
//!  --reload-every, kills    every 20 s, helpers killed    rotations alone
//! ```

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::rng::Rng;

use super::log::Log;
use super::samples;
use super::tally::Tally;
use crate::options::Options;
use crate::proc;
use crate::server::Server;
use crate::stream::mixed::alone;

const KILL_EVERY: Duration = Duration::from_secs(7);
const HELPERS_EVERY: Duration = Duration::from_secs(25);
const ROTATE_EVERY: Duration = Duration::from_secs(20);
const RELOAD_RARELY: Duration = Duration::from_secs(20);
/// The error log is rotated every so many times that the other one is.
const ERROR_LOG: u32 = 15;
/// A worker or a cache manager that was killed has a successor by then.
const REPLACED: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stretch {
    Storm,
    Reloads,
    Calm,
}

/// The time from a stretch to the next one of its kind.
pub fn cycle(length: Duration) -> Duration {
    (length / 9).clamp(Duration::from_secs(10), Duration::from_secs(600)) * 3
}

fn stretch(at: Duration, length: Duration) -> Stretch {
    match (at.as_secs_f64() / (cycle(length) / 3).as_secs_f64()) as u64 % 3 {
        0 => Stretch::Storm,
        1 => Stretch::Reloads,
        _ => Stretch::Calm,
    }
}

/// When everything was done last.
pub struct Disturber<'a> {
    options: &'a Options,
    server: &'a Server,
    tally: &'a Tally,
    udp: &'a alone::Clients,
    length: Duration,
    began: Instant,
    reloaded: Instant,
    rotated: Instant,
    killed: Instant,
    helpers: Instant,
    /// Since when there are too few workers, and no cache manager.
    missing: [Option<Instant>; 2],
    rotations: u32,
    rng: Rng,
}

/// Whether a time is over; if so, it begins anew.
fn is_due(last: &mut Instant, every: Duration) -> bool {
    let due = !every.is_zero() && last.elapsed() >= every;
    if due {
        *last = Instant::now();
    }
    due
}

impl<'a> Disturber<'a> {
    pub fn new(
        options: &'a Options,
        server: &'a Server,
        tally: &'a Tally,
        udp: &'a alone::Clients,
        length: Duration,
    ) -> Self {
        let now = Instant::now();
        Self {
            options,
            server,
            tally,
            udp,
            length,
            began: now,
            reloaded: now,
            rotated: now,
            killed: now,
            helpers: now,
            missing: [None; 2],
            rotations: 0,
            rng: Rng::new(options.seed),
        }
    }

    /// Does what is due.
    pub fn turn(&mut self, log: &mut Log) {
        let stretch = stretch(self.began.elapsed(), self.length);
        let kills = self.options.kill_workers;
        let reload_every = match stretch {
            Stretch::Storm => Duration::from_secs(self.options.reload_every),
            Stretch::Reloads => RELOAD_RARELY.max(Duration::from_secs(self.options.reload_every)),
            Stretch::Calm => Duration::ZERO,
        };
        if self.options.reload_every > 0 && is_due(&mut self.reloaded, reload_every) {
            self.udp.reloaded();
            self.tally.disturbed("reload", "");
            self.server.signal(Signal::HUP);
        }
        if is_due(&mut self.rotated, ROTATE_EVERY) {
            self.rotate(log);
        }
        if kills && stretch == Stretch::Storm && is_due(&mut self.killed, KILL_EVERY) {
            self.kill_worker();
        }
        if kills && stretch != Stretch::Calm && is_due(&mut self.helpers, HELPERS_EVERY) {
            self.kill_helper();
        }
    }

    fn rotate(&mut self, log: &mut Log) {
        let path = self.server.prefix().join("access.log");
        let _ = fs::rename(&path, path.with_extension("old"));
        self.rotations += 1;
        if self.rotations.is_multiple_of(ERROR_LOG) {
            log.rotate(self.tally, self.options.kill_workers);
        }
        self.tally.disturbed("rotation of logs", "");
        self.server.signal(Signal::USR1);
    }

    /// Kills any worker, those that leave as well.
    fn kill_worker(&mut self) {
        let (workers, _) = samples::children(self.server);
        if workers.is_empty() {
            return;
        }
        let pid = workers[self.rng.below(workers.len())];
        let title = proc::title(pid);
        self.tally.kills.moment();
        self.udp.killed();
        proc::signal(pid, Signal::KILL);
        self.tally.disturbed("killed worker", title.trim());
    }

    fn kill_helper(&mut self) {
        let (_, helpers) = samples::children(self.server);
        if helpers.is_empty() {
            return;
        }
        let pid = helpers[self.rng.below(helpers.len())];
        let title = proc::title(pid);
        proc::signal(pid, Signal::KILL);
        self.tally.disturbed("killed helper", title.trim());
    }

    /// Whether those who were killed have successors.
    pub fn check(&mut self) {
        let (workers, helpers) = samples::children(self.server);
        let titled = |pids: &[u32], text: &str| {
            let is = |pid: &&u32| proc::title(**pid).contains(text);
            pids.iter().filter(is).count()
        };
        let leaving = titled(&workers, "shutting down");
        let few = [workers.len() - leaving < 2, titled(&helpers, "cache manager") < 1];
        for (n, name) in ["two workers", "a cache manager"].into_iter().enumerate() {
            if !few[n] {
                self.missing[n] = None;
                continue;
            }
            let since = *self.missing[n].get_or_insert_with(Instant::now);
            if since.elapsed() > REPLACED + self.tally.stalls.since(since) {
                self.missing[n] = None;
                self.tally.finding(format!("there were not {name} for {REPLACED:?}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_follow_each_other() {
        let (hours, minute) = (Duration::from_secs(6 * 3600), Duration::from_secs(60));
        assert!(stretch(minute, hours) == Stretch::Storm);
        assert!(stretch(minute * 11, hours) == Stretch::Reloads);
        assert!(stretch(minute * 21, hours) == Stretch::Calm);
        assert!(stretch(minute * 31, hours) == Stretch::Storm);
    }
}
