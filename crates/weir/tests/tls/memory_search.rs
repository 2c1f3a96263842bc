//! Secrets in the memory of processes.

use std::fs;
use std::os::unix::fs::FileExt;

/// The number of places in a process's memory that can be written and hold this. One that has
/// ended holds nothing.
pub fn count_in_memory(pid: u32, secret: &[u8]) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
    let (Ok(maps), Ok(memory)) = (maps, fs::File::open(format!("/proc/{pid}/mem"))) else {
        return 0;
    };
    let mut count = 0;
    for line in maps.lines() {
        let mut words = line.split(' ');
        let (range, mode) = (words.next().unwrap(), words.next().unwrap());
        if !mode.starts_with("rw") {
            continue;
        }
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        const STEP: u64 = 1 << 20;
        let mut at = from;
        while at < to {
            // A place that begins in this step may end in the next one.
            let len = (to - at).min(STEP + secret.len() as u64 - 1);
            let mut bytes = vec![0; usize::try_from(len).unwrap()];
            let read = memory.read_at(&mut bytes, at).unwrap_or(0);
            count += memchr::memmem::find_iter(&bytes[..read], secret).count();
            at += STEP;
        }
    }
    count
}

/// Whether there is such a place.
pub fn holds_in_memory(pid: u32, secret: &[u8]) -> bool {
    count_in_memory(pid, secret) > 0
}
