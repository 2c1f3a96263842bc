//! `/proc` on a tree of processes: CPU time, memory, descriptors.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setpriority_process, setrlimit,
};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

/// Memory of a process tree in bytes, from `smaps_rollup`.
#[derive(Clone, Copy, Default)]
pub struct Memory {
    /// Resident, shared pages counted in each process.
    pub rss: u64,
    /// Resident, shared pages divided among their users.
    pub pss: u64,
    /// The part of it that is of no file. Pages of a program are the page cache's, and count where
    /// they were touched: a master that reads its configuration again touches 5 MB of them.
    pub pss_data: u64,
    /// Written by the process itself and not shared.
    pub private_dirty: u64,
}

/// The process and all that descend from it.
pub fn tree(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

/// Every process with a file below the folder open, but this one: also those that left the tree.
pub fn holders(folder: &Path) -> Vec<u32> {
    let holds = |pid: u32| {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        open.flatten().any(|e| fs::read_link(e.path()).is_ok_and(|to| to.starts_with(folder)))
    };
    let me = std::process::id();
    parents().into_iter().map(|(pid, _)| pid).filter(|&pid| pid != me && holds(pid)).collect()
}

/// Every process with its parent; those that ended and wait to be reaped are left out.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let zombie = fields.next()? == "Z";
            let parent = fields.next()?.parse().ok()?;
            (!zombie).then_some((pid, parent))
        })
        .collect()
}

/// Nanoseconds on a CPU, of all threads of all these processes.
pub fn cpu_ns(pids: &[u32]) -> u64 {
    pids.iter().map(|&pid| cpu_ns_of(pid)).sum()
}

fn cpu_ns_of(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

/// Seconds on a CPU of a process, those of threads that ended and of children that ended and were
/// waited for included.
pub fn cpu_secs_of_all(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    // From the fourteenth on; the first two and the state stand before. A tick is 10 ms.
    fields.skip(11).take(4).filter_map(|n| n.parse::<u64>().ok()).sum::<u64>() as f64 / 100.0
}

/// Nanoseconds that a process's first thread could run and had no CPU.
pub fn queued_ns(pid: u32) -> u64 {
    shares(pid).map_or(0, |(_, queued)| queued)
}

/// Nanoseconds of a process's first thread on a CPU, and those in which it could run and had none;
/// `None` once it has ended.
pub fn shares(pid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map_while(|n| n.parse().ok());
    numbers.next().zip(numbers.next())
}

/// Keeps this thread on one CPU, where that is allowed.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

/// Lets every other thread of the CPU go before this one.
pub fn be_nice() {
    let _ = setpriority_process(Some(gettid()), 19);
}

/// Lets this thread go before all others of its CPU, where that is allowed: a nice one that is
/// within a system call is not interrupted for a usual one before its slice is over.
pub fn go_first() {
    let thread = gettid().as_raw_nonzero().to_string();
    let mut command = Command::new("chrt");
    let _ = command.args(["-f", "-p", "10", &thread]).stderr(Stdio::null()).status();
}

/// Memory of all these processes together.
pub fn memory(pids: &[u32]) -> Memory {
    let mut sum = Memory::default();
    for pid in pids {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let value = |name: &str| {
            let line = text.lines().find(|l| l.starts_with(name));
            let kb = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
            kb.unwrap_or(0) * 1024
        };
        sum.rss += value("Rss:");
        sum.pss += value("Pss:");
        sum.pss_data += value("Pss_Anon:") + value("Pss_Shmem:");
        sum.private_dirty += value("Private_Dirty:");
    }
    sum
}

/// Bytes that all these processes have written and share with no other one. Memory that is mapped
/// to be shared is left out: its pages count as private where the others that wrote them are gone.
pub fn own_memory(pids: &[u32]) -> u64 {
    let smaps = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    pids.iter().map(|pid| own_dirty(&smaps(pid))).sum()
}

/// The same of the mappings that the kernel's text lists.
fn own_dirty(smaps: &str) -> u64 {
    let (mut sum_kb, mut is_own) = (0, false);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Private_Dirty:"), Some(kb)) if is_own => sum_kb += kb.parse().unwrap_or(0),
            // The head of a mapping: its addresses, and what is allowed.
            (Some(first), Some(allowed)) if !first.ends_with(':') => {
                is_own = allowed.ends_with('p');
            }
            _ => {}
        }
    }
    sum_kb * 1024
}

/// Descriptors that all these processes hold.
pub fn descriptors(pids: &[u32]) -> usize {
    pids.iter().map(|p| fs::read_dir(format!("/proc/{p}/fd")).map_or(0, Iterator::count)).sum()
}

/// Whether the process runs (or waits to be reaped).
pub fn is_there(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

/// Whether the process runs: one that waits to be reaped does not.
pub fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Its title.
pub fn title(pid: u32) -> String {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text).replace('\0', " ")
}

/// Signals a process; one that is gone is no error.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process(pid, signal);
    }
}

/// Ten thousand connections need as many descriptors: takes all that the hard limit gives.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The limit on descriptors of this process and its children.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::own_dirty;

    #[test]
    fn shared_memory_is_nobody_s_own() {
        let smaps = "55d0c0000000-55d0c0100000 rw-p 00000000 00:00 0      [heap]\n\
                     Size:               1024 kB\n\
                     Private_Dirty:       868 kB\n\
                     7f7de0d0f000-7f7de1120000 rw-s 00000000 00:01 100496  /dev/zero (deleted)\n\
                     Private_Dirty:       340 kB\n\
                     7f7de32e8000-7f7de32e9000 rw-p 00000000 00:00 0 \n\
                     Private_Dirty:         4 kB\n\
                     VmFlags: rd wr mr mw me ac\n";
        assert_eq!(own_dirty(smaps), 872 << 10);
    }
}
