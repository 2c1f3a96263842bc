//! `/proc` on processes.

use std::fs;
use std::path::{Path, PathBuf};

/// A process as `/proc/PID/stat` shows it.
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's id.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Ended, but not waited for yet.
    pub zombie: bool,
}

/// Every process that is there now.
pub fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(process)
        .collect()
}

fn process(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold any character; the text behind the last one is plain.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let zombie = fields.next()? == "Z";
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(Process { pid, parent, group, zombie })
}

/// The command line, arguments separated by spaces.
pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text: String = bytes.iter().map(|&b| if b == 0 { ' ' } else { char::from(b) }).collect();
    text.trim_end().to_string()
}

/// Whether the process holds a file below `dir` open.
pub fn has_open_below(pid: u32, dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries.flatten().any(|e| fs::read_link(e.path()).is_ok_and(|to| to.starts_with(dir)))
}

/// The number of a process's descriptors.
pub fn open_count(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Sockets that the process holds, by their inodes.
pub fn sockets(pid: u32) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let inode =
        |to: PathBuf| to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    entries.flatten().filter_map(|e| inode(fs::read_link(e.path()).ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::processes;

    #[test]
    fn this_process_is_among_the_processes() {
        let me = std::process::id();
        assert!(processes().iter().any(|p| p.pid == me && !p.zombie));
    }
}
