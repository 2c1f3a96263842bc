//! The turns of an event loop as the kernel saw them: how long they were, for how much of that the
//! thread had no processor, and where it slept. By the kernel's own tracing (`tracefs`), which
//! needs root; a trace costs the loop some microseconds a turn.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder of trace instances.
const TRACING: &str = "/sys/kernel/tracing/instances";

/// The length from which on a turn counts as long, microseconds.
const LONG_US: u64 = 10_000;

/// A trace of a thread, under way.
pub struct Turns {
    dir: PathBuf,
    thread: u32,
}

/// A sleep that was none for events.
#[derive(Clone, Debug)]
pub struct Sleep {
    /// The system call, by its number; `None`: a page that was not there, say.
    pub call: Option<i64>,
    /// As the kernel writes it: `S`, `D`.
    pub state: char,
    /// For how long.
    pub us: u64,
}

/// The result of a trace.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// From the end of a wait for events to the beginning of the next.
    pub turns: usize,
    /// The longest turn by the clock.
    pub longest_us: u64,
    /// The longest turn without the time in which others had the processor.
    pub longest_own_us: u64,
    /// Turns that were longer than 10 ms without that time. A virtual machine that did not run
    /// makes a turn long now and then; a loop that does too much does so each time.
    pub long_turns: usize,
    /// Sleeps within turns.
    pub sleeps: Vec<Sleep>,
}

impl Turns {
    /// Begins to trace the first thread of a process.
    ///
    /// # Errors
    /// Where this machine or user may not.
    pub fn watch(pid: u32) -> io::Result<Turns> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = Path::new(TRACING).join(format!("weir-{}-{number}", std::process::id()));
        fs::create_dir(&dir)?;
        let turns = Turns { dir, thread: pid };
        turns.write("buffer_size_kb", "8192")?;
        turns.write("set_event_pid", &pid.to_string())?;
        for event in ["raw_syscalls/sys_enter", "raw_syscalls/sys_exit", "sched/sched_switch"] {
            turns.write(&format!("events/{event}/enable"), "1")?;
        }
        Ok(turns)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.dir.join(name), text)
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn end(self) -> io::Result<Seen> {
        self.write("tracing_on", "0")?;
        let text = fs::read(self.dir.join("trace"))?;
        Ok(read(&String::from_utf8_lossy(&text), self.thread))
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let _ = self.write("events/enable", "0");
        let _ = fs::remove_dir(&self.dir);
    }
}

/// System calls in which a loop waits for events.
fn is_a_wait(call: i64) -> bool {
    // x86-64: epoll_wait, epoll_pwait, epoll_pwait2, poll, ppoll, select, pselect6; then those of
    // the architectures that share a table: epoll_pwait, epoll_pwait2, ppoll, pselect6; and
    // io_uring_enter, which has one number everywhere.
    [232, 281, 441, 7, 271, 23, 270, 22, 73, 72, 426].contains(&call)
}

/// The state of the thread while a trace is read.
#[derive(Default)]
struct Reader {
    seen: Seen,
    call: Option<i64>,
    /// When the turn began, and for how long others had the processor since.
    turn: Option<(u64, u64)>,
    /// Since when it has had no processor, and in which state.
    off: Option<(u64, char)>,
}

impl Reader {
    fn entered(&mut self, at: u64, call: i64) {
        self.call = Some(call);
        if is_a_wait(call)
            && let Some((began, lost)) = self.turn.take()
        {
            let us = at - began;
            self.seen.turns += 1;
            self.seen.longest_us = self.seen.longest_us.max(us);
            let own = us.saturating_sub(lost);
            self.seen.longest_own_us = self.seen.longest_own_us.max(own);
            self.seen.long_turns += usize::from(own >= LONG_US);
        }
    }

    fn left(&mut self, at: u64, call: i64) {
        self.call = None;
        if is_a_wait(call) {
            self.turn = Some((at, 0));
        }
    }

    fn resumed(&mut self, at: u64) {
        let Some((since, state)) = self.off.take() else { return };
        let us = at - since;
        match state {
            'R' => {
                if let Some((_, lost)) = &mut self.turn {
                    *lost += us;
                }
            }
            _ if self.turn.is_some() => {
                self.seen.sleeps.push(Sleep { call: self.call, state, us });
            }
            _ => {}
        }
    }
}

/// Reads lines as `weir-123 [000] d..2. 12.345678: sched_switch: prev_comm=…`.
fn read(text: &str, thread: u32) -> Seen {
    let mut reader = Reader::default();
    let (prev, next) = (format!(" prev_pid={thread} "), format!(" next_pid={thread} "));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((at, what)) = time_and_event(line) else { continue };
        let call = |text: &str| text.split([' ', '(']).next().and_then(|n| n.parse().ok());
        if let Some(rest) = what.strip_prefix("sys_enter: NR ") {
            reader.entered(at, call(rest).unwrap_or(-1));
        } else if let Some(rest) = what.strip_prefix("sys_exit: NR ") {
            reader.left(at, call(rest).unwrap_or(-1));
        } else if what.contains(&prev) {
            let state = what.split_once("prev_state=").and_then(|(_, s)| s.chars().next());
            reader.off = state.map(|state| (at, state));
        } else if format!("{what} ").contains(&next) {
            reader.resumed(at);
        }
    }
    reader.seen
}

/// Microseconds, and the text behind them.
fn time_and_event(line: &str) -> Option<(u64, &str)> {
    let names = ["sys_enter: ", "sys_exit: ", "sched_switch: "];
    let at = names.iter().find_map(|name| line.find(&format!(": {name}")))?;
    let (secs, micros) = line[..at].rsplit(' ').next()?.split_once('.')?;
    let us = secs.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    Some((us, &line[at + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# tracer: nop
 weir-7   [001] .....    10.000000: sys_exit: NR 232 = 1
 weir-7   [001] .....    10.000100: sys_enter: NR 45 (5, 7, 0, 0, 0, 0)
 weir-7   [001] .....    10.000110: sys_exit: NR 45 = 10
 weir-7   [001] d..2.    10.000200: sched_switch: prev_comm=weir prev_pid=7 prev_prio=120 \
prev_state=R+ ==> next_comm=x next_pid=9 next_prio=120
 x-9      [001] d..2.    10.004200: sched_switch: prev_comm=x prev_pid=9 prev_prio=120 \
prev_state=S ==> next_comm=weir next_pid=7 next_prio=120
 weir-7   [001] .....    10.004300: sys_enter: NR 257 (5, 7, 0, 0, 0, 0)
 weir-7   [001] d..2.    10.004400: sched_switch: prev_comm=weir prev_pid=7 prev_prio=120 \
prev_state=D ==> next_comm=x next_pid=9 next_prio=120
 x-9      [001] d..2.    10.005000: sched_switch: prev_comm=x prev_pid=9 prev_prio=120 \
prev_state=S ==> next_comm=weir next_pid=7 next_prio=120
 weir-7   [001] .....    10.005001: sys_exit: NR 257 = 3
 weir-7   [001] .....    10.005100: sys_enter: NR 232 (5, 7, 0, 0, 0, 0)
 weir-7   [001] d..2.    10.005200: sched_switch: prev_comm=weir prev_pid=7 prev_prio=120 \
prev_state=S ==> next_comm=x next_pid=9 next_prio=120
 x-9      [001] d..2.    11.000000: sched_switch: prev_comm=x prev_pid=9 prev_prio=120 \
prev_state=S ==> next_comm=weir next_pid=7 next_prio=120
 weir-7   [001] .....    11.000001: sys_exit: NR 232 = 1
";

    #[test]
    fn a_turn_is_told_apart_from_what_others_took() {
        let seen = read(TRACE, 7);
        assert_eq!((seen.turns, seen.longest_us, seen.longest_own_us), (1, 5100, 1100));
        assert_eq!(seen.long_turns, 0);
        let slow = TRACE.replace("10.005100: sys_enter", "10.025100: sys_enter");
        assert_eq!(read(&slow.replace("10.0052", "10.0252"), 7).long_turns, 1);
        assert_eq!(seen.sleeps.len(), 1);
        let sleep = &seen.sleeps[0];
        assert_eq!((sleep.call, sleep.state, sleep.us), (Some(257), 'D', 600));
    }
}
