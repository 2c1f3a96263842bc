//! Reloads and upgrades, what they take, and how others are served meanwhile.

use std::fs;
use std::time::{Duration, Instant};

use rig::proc;
use rig::server::{Server, get};
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
    /// The workers that left, and those that came in their place, each until the end of a change.
    pub left: Shares,
    pub came: Shares,
    /// The length of the error log before the first one.
    log_before: usize,
}

/// The time of workers on the processors, and in the queues for them.
#[derive(Clone, Copy, Default)]
pub struct Shares {
    workers: u32,
    cpu_ns: u64,
    queued_ns: u64,
}

impl Shares {
    fn add(&mut self, (cpu_ns, queued_ns): (u64, u64)) {
        self.workers += 1;
        self.cpu_ns += cpu_ns;
        self.queued_ns += queued_ns;
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let each_ms = |ns: u64| ns as f64 / 1e6 / f64::from(self.workers.max(1));
        let (cpu, queued) = (each_ms(self.cpu_ns), each_ms(self.queued_ns));
        write!(f, "{cpu:.0} ms on a processor and {queued:.0} ms in a queue for one")
    }
}

impl<'a> Changes<'a> {
    pub fn new(server: &'a Server, rest: Duration) -> Changes<'a> {
        let (left, came) = (Shares::default(), Shares::default());
        let log_before = log_of(server).len();
        Changes { server, rest, all: Vec::new(), moved: 0, stayed: 0, left, came, log_before }
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
        let before: Vec<_> = old.iter().map(|pid| proc::shares(*pid)).collect();
        let mut last = before.clone();
        let began = change(self.server);
        while old.iter().any(|pid| proc::is_running(*pid)) {
            if began.elapsed() > PATIENCE {
                self.all.push((began, None));
                return;
            }
            for (pid, last) in old.iter().zip(&mut last) {
                // Nothing is left of one that has ended.
                *last = proc::shares(*pid).or(*last);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.all.push((began, Some(Instant::now())));
        for (before, last) in before.iter().zip(&last) {
            let (Some(before), Some(last)) = (before, last) else { continue };
            self.left.add((last.0 - before.0, last.1 - before.1));
        }
        let new = self.server.pids().into_iter().filter(|pid| is_worker(*pid));
        new.filter_map(proc::shares).for_each(|shares| self.came.add(shares));
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

    /// The time since the last change before began.
    pub fn since(&self, at: Instant) -> Option<Duration> {
        let last = self.all.iter().rev().find(|(began, _)| *began <= at)?;
        Some(at.duration_since(last.0))
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
        let log = log_of(self.server);
        let of_end = |line: &&str| {
            ["disconnected", "while proxying", "closed connection"].iter().any(|m| line.contains(m))
        };
        log.lines().filter(of_end).map(str::to_owned).collect()
    }

    /// The turns that were logged before the first change, in which connections were opened, and
    /// those since then.
    pub fn turns(&self) -> [Turns; 2] {
        let log = log_of(self.server);
        let (before, since) = log.split_at_checked(self.log_before).unwrap_or((&log, ""));
        [before, since].map(turns)
    }

    /// The lines about the turns since then that took most of a processor.
    pub fn longest_turns(&self) -> Vec<String> {
        let log = log_of(self.server);
        let since = log.get(self.log_before..).unwrap_or_default();
        let mut lines: Vec<_> =
            since.lines().map(|line| (turns(line).longest_cpu_ms, line)).collect();
        lines.sort_by_key(|(ms, _)| std::cmp::Reverse(*ms));
        lines.iter().take(3).filter(|(ms, _)| *ms > 0).map(|(_, line)| (*line).to_owned()).collect()
    }
}

fn log_of(server: &Server) -> String {
    let log = fs::read(server.prefix().join("error.log")).unwrap_or_default();
    String::from_utf8_lossy(&log).into_owned()
}

fn turns(log: &str) -> Turns {
    let mut turns = Turns::default();
    for line in log.lines() {
        let Some((_, rest)) = line.split_once("a turn of the event loop took ") else { continue };
        let (first, more) = rest.split_once(" ms").unwrap_or_default();
        let ms = first.parse().unwrap_or(0);
        let cpu = more.split_once(" ms of it on a processor").map(|(cpu, _)| cpu);
        let cpu_ms = cpu.and_then(|cpu| cpu.strip_prefix(", ")?.parse().ok()).unwrap_or(ms);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_a_log_are_read() {
        let log = "[warn] 7#7: a turn of the event loop took 9 ms, 2 ms of it on a processor, x\n\
                   [warn] 7#7: a turn of the event loop took 5 ms, 4 ms of it on a processor, x\n\
                   [warn] 7#7: a turn of the event loop took 8 ms for 20 tasks, in which\nx 99 ms";
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
