//! `/proc` on processes.

use std::fs;
use std::path::Path;

use rustix::process::Pid;

/// A process as `/proc/PID/stat` shows it.
pub struct Process {
    /// Its process group.
    pub group: u32,
    /// Ended, but not waited for yet.
    pub zombie: bool,
}

/// A process that is there now.
pub fn process(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold any character; the text behind the last one is plain.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let zombie = fields.next()? == "Z";
    let group = fields.nth(1)?.parse().ok()?;
    Some(Process { group, zombie })
}

/// The children of a process, those that wait to be reaped included. The kernel has a list for
/// each thread, so that nothing depends on how many processes the machine has.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let ids = |list: String| -> Vec<u32> {
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    lists.flat_map(ids).collect()
}

/// The command line, arguments separated by spaces.
pub(crate) fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text: String = bytes.iter().map(|&b| if b == 0 { ' ' } else { char::from(b) }).collect();
    text.trim_end().to_string()
}

/// Whether the process holds a file below `dir` open.
pub(crate) fn has_open_below(pid: u32, dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries.flatten().any(|e| fs::read_link(e.path()).is_ok_and(|to| to.starts_with(dir)))
}

/// The number of a process's descriptors.
pub fn open_count(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// A process id for system calls.
pub fn id(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id")
}

#[cfg(test)]
mod tests {
    use super::{children, process};

    #[test]
    fn a_child_of_another_thread_is_found() {
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let (started, start) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
            started.send(child.id()).expect("the test waits");
            let _ = end.recv();
            child.kill().expect("end it");
            child.wait().expect("reap it");
        });
        let pid = start.recv().expect("its id");
        assert!(children(std::process::id()).contains(&pid));
        assert!(process(pid).is_some_and(|process| !process.zombie));
        drop(ended);
        thread.join().expect("the thread ends");
        assert!(!children(std::process::id()).contains(&pid));
    }
}
