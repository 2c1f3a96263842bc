//! Reloads and upgrades, what they take, and how others are served meanwhile.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rig::server::{Server, get};
use rig::{Outcome, proc};
use rustix::process::Signal;

use crate::PATIENCE;

/// The turns of the loops that were logged as long.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Turns {
    pub count: u64,
    /// The longest, milliseconds.
    pub longest_ms: u64,
    /// The longest in processor time, milliseconds: a turn may wait for a processor.
    pub longest_cpu_ms: u64,
}

impl std::fmt::Display for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Turns { count, longest_ms, longest_cpu_ms } = self;
        if *count == 0 {
            return write!(f, "no turn of a loop above 3 ms");
        }
        let longest = format!("the longest {longest_ms} ms, in processor time {longest_cpu_ms} ms");
        write!(f, "{count} turns of loops above 3 ms, {longest}")
    }
}

/// The changes of a server so far.
pub struct Changes<'a> {
    server: &'a Server,
    /// The pause after each.
    rest: Duration,
    /// Each with its beginning and the end of the workers before it; `None` if they have not ended.
    pub all: Vec<(Instant, Option<Instant>)>,
    /// Moves that the server has counted.
    pub moved: u64,
    /// Connections that it has counted as staying.
    pub stayed: u64,
}

impl<'a> Changes<'a> {
    pub fn new(server: &'a Server, rest: Duration) -> Changes<'a> {
        Changes { server, rest, all: Vec::new(), moved: 0, stayed: 0 }
    }

    /// Reloads, and waits for the end of the workers before.
    pub fn reload(&mut self) {
        self.replace(|server| {
            server.signal(Signal::HUP);
            Instant::now()
        });
    }

    /// Starts the program again, and ends the old master when the new one has workers.
    pub fn upgrade(&mut self) {
        self.replace(|server| {
            let old = server.pid();
            proc::signal(old, Signal::USR2);
            let began = Instant::now();
            while server.pid() == old || !proc::tree(server.pid()).into_iter().any(is_worker) {
                if began.elapsed() > PATIENCE {
                    println!("no new master after USR2: {}", server.complaints());
                    return began;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            proc::signal(old, Signal::QUIT);
            Instant::now()
        });
    }

    fn replace(&mut self, change: impl FnOnce(&Server) -> Instant) {
        let old: Vec<u32> = self.server.pids().into_iter().filter(|pid| is_worker(*pid)).collect();
        let began = change(self.server);
        while old.iter().any(|pid| proc::is_running(*pid)) {
            if began.elapsed() > PATIENCE {
                self.all.push((began, None));
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.all.push((began, Some(Instant::now())));
        std::thread::sleep(self.rest);
    }

    /// Adds the counters of the present binary, which is about to be replaced.
    pub fn count(&mut self) {
        let Ok(text) = get(self.server.port, "localhost", "/status") else { return };
        self.moved += sum_of(&text, &["received"]);
        let reasons = ["off", "protocol", "state", "configuration", "receiver"];
        self.stayed += sum_of(&text, &reasons);
    }

    /// The milliseconds until the old workers were gone.
    pub fn times_ms(&self) -> Vec<f64> {
        let took =
            |(began, end): &(Instant, Option<Instant>)| Some(end.as_ref()?.duration_since(*began));
        self.all.iter().filter_map(took).map(|took| took.as_secs_f64() * 1000.0).collect()
    }

    /// The changes after which old workers have stayed.
    pub fn unfinished(&self) -> usize {
        self.all.iter().filter(|(_, end)| end.is_none()).count()
    }

    /// Whether connections may have moved at that time: from the beginning of a change to the end
    /// of the old workers, and for a second at least.
    pub fn is_within(&self, at: Instant) -> bool {
        let last = self.all.partition_point(|(began, _)| *began <= at);
        let Some((began, end)) = last.checked_sub(1).and_then(|i| self.all.get(i)) else {
            return false;
        };
        at.duration_since(*began) < Duration::from_secs(1) || end.is_none_or(|end| at < end)
    }

    /// The lines of the error log about connections that have ended.
    pub fn ends(&self) -> Vec<String> {
        let log = fs::read(self.server.prefix().join("error.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let of_end = |line: &&str| {
            ["disconnected", "while proxying", "closed connection"].iter().any(|m| line.contains(m))
        };
        log.lines().filter(of_end).map(str::to_owned).collect()
    }

    /// The turns that are in the error log.
    pub fn turns(&self) -> Turns {
        let log = fs::read(self.server.prefix().join("error.log")).unwrap_or_default();
        turns(&String::from_utf8_lossy(&log))
    }
}

fn turns(log: &str) -> Turns {
    let mut turns = Turns::default();
    for line in log.lines() {
        let Some((_, rest)) = line.split_once("a turn of the event loop took ") else { continue };
        let mut words = rest.split(' ').map_while(|word| match word.parse::<u64>() {
            Ok(number) => Some(Some(number)),
            Err(_) => (word != "of").then_some(None),
        });
        let ms = words.next().flatten().unwrap_or(0);
        let cpu_ms = words.flatten().next().unwrap_or(ms);
        turns.count += 1;
        turns.longest_ms = turns.longest_ms.max(ms);
        turns.longest_cpu_ms = turns.longest_cpu_ms.max(cpu_ms);
    }
    turns
}

/// The sum of all numbers with one of these names in the part of the status about moves.
fn sum_of(text: &str, names: &[&str]) -> u64 {
    let part = text.split_once("\"handover\":").map_or("", |(_, part)| part);
    let part = part.split_once("\"logs\":").map_or(part, |(part, _)| part);
    let value = |part: &str| part.split([',', '}']).next()?.trim().parse::<u64>().ok();
    let of = |name: &&str| {
        let name = format!("\"{name}\":");
        part.split(&name).skip(1).filter_map(value).sum::<u64>()
    };
    names.iter().map(of).sum()
}

fn is_worker(pid: u32) -> bool {
    proc::title(pid).contains("worker process")
}

/// Times short requests on new connections.
pub struct Witness(JoinHandle<Vec<(Instant, f64)>>);

impl Witness {
    pub fn start(port: u16, stop: &Arc<AtomicBool>) -> Outcome<Witness> {
        let stop = Arc::clone(stop);
        let run = move || {
            let mut times = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let at = Instant::now();
                if get(port, "localhost", "/return").is_ok() {
                    times.push((at, at.elapsed().as_secs_f64() * 1000.0));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            times
        };
        Builder::new().spawn(run).map(Witness).map_err(|e| e.to_string())
    }

    /// The times at which requests began, and their milliseconds.
    pub fn end(self) -> Vec<(Instant, f64)> {
        self.0.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_a_log_are_read() {
        let log = "[warn] 7#7: a turn of the event loop took 9 ms, 2 ms of it on a processor; x\n\
                   [warn] 7#7: a turn of the event loop took 5 ms, 4 ms of it on a processor; x\n\
                   [warn] 7#7: a turn of the event loop took 8 ms, in which nothing\nx 99 ms";
        assert_eq!(turns(log), Turns { count: 3, longest_ms: 9, longest_cpu_ms: 8 });
        assert_eq!(turns("x"), Turns::default());
    }

    #[test]
    fn moves_of_a_status_are_added() {
        let text = concat!(
            r#"{"x":{"received":9},"handover":{"a":{"received":2,"stayed":{"off":3}},"#,
            r#""b":{"received":4,"stayed":{"off":1}}},"logs":{"received":7}}"#,
        );
        assert_eq!(sum_of(text, &["received"]), 6);
        assert_eq!(sum_of(text, &["off", "state"]), 4);
    }
}
