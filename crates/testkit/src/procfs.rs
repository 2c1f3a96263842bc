//! `/proc` on processes and listening sockets.

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

/// A TCP socket that listens.
#[derive(Debug)]
pub struct Listener {
    /// Its port, on whatever address.
    pub port: u16,
    /// Its inode, as in [`sockets`].
    pub inode: u64,
}

/// The TCP sockets that listen, on any address: read, not tried, so that the server sees no
/// connection of ours. The kernel walks all of its connections for it: one look for all ports.
pub fn listeners() -> Vec<Listener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].iter();
    let texts = tables.filter_map(|table| fs::read_to_string(table).ok());
    let of_table = |text: String| -> Vec<Listener> { text.lines().filter_map(listener).collect() };
    texts.flat_map(of_table).collect()
}

fn listener(line: &str) -> Option<Listener> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *state != LISTEN {
        return None;
    }
    let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    Some(Listener { port, inode: inode.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::{Listener, listeners, processes, sockets};

    fn on(port: u16) -> Vec<Listener> {
        listeners().into_iter().filter(|l| l.port == port).collect()
    }

    #[test]
    fn a_listener_is_seen_without_connecting() {
        let (listener, port) = crate::listener();
        let found: Vec<Listener> = on(port);
        assert_eq!(found.len(), 1);
        assert!(sockets(std::process::id()).contains(&found[0].inode));
        drop(listener);
        // A process that another test just forked holds it until it has executed its program.
        let ends = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !on(port).is_empty() {
            assert!(std::time::Instant::now() < ends, "it is still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn this_process_is_among_the_processes() {
        let me = std::process::id();
        assert!(processes().iter().any(|p| p.pid == me && !p.zombie));
    }
}
