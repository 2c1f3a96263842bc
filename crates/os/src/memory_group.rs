//! The memory of this process's control group: its limit, and how much of it is in use.

use std::fs;

/// A control group with a limit of memory.
#[derive(Debug)]
pub struct Group {
    /// The file of its counters.
    stat: String,
    /// Names of those that cannot be taken back from the group.
    names: &'static [&'static str],
    /// The file with the kernel's own memory, where the counters lack that.
    kernel: Option<String>,
    limit: u64,
}

/// Version 2: memory that has no file behind it, and the kernel's.
const NAMES: &[&str] =
    &["anon", "shmem", "sock", "kernel_stack", "pagetables", "slab_unreclaimable"];
/// Version 1, which counts the kernel's elsewhere, with caches that it can take back.
const NAMES_V1: &[&str] = &["total_rss", "total_shmem"];

/// The most of the kernel's memory that counts in version 1, as a part of the limit: more of it is
/// caches.
const KERNEL_PART: u64 = 10;

/// Version 1 shows a number of the size of the address space where there is no limit.
const LIMIT_MAX: u64 = 1 << 60;

impl Group {
    /// The group of this process with the lowest limit.
    pub fn find() -> Option<Group> {
        let of = |folder: &String| {
            let group = |limit: &str, names| {
                let limit = number(&format!("{folder}/{limit}")).filter(|n| *n < LIMIT_MAX)?;
                let stat = format!("{folder}/memory.stat");
                let kernel = format!("{folder}/memory.kmem.usage_in_bytes");
                let kernel = (names == NAMES_V1).then_some(kernel);
                fs::exists(&stat).ok()?.then_some(Group { stat, names, kernel, limit })
            };
            group("memory.max", NAMES).or_else(|| group("memory.limit_in_bytes", NAMES_V1))
        };
        folders().iter().filter_map(of).min_by_key(|group| group.limit)
    }

    /// A group of that limit whose use is not known: for tests of what depends on it.
    pub fn of_limit(limit: u64) -> Group {
        Group { stat: String::new(), names: &[], kernel: None, limit }
    }

    /// Its limit, bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use that the kernel cannot take back: those without a file behind them, and its
    /// own. `None` where the counters cannot be read.
    pub fn used(&self) -> Option<u64> {
        let kernel = self.kernel.as_deref().and_then(number).unwrap_or(0);
        let counted = sum(&fs::read_to_string(&self.stat).ok()?, self.names);
        Some(counted + kernel.min(self.limit / KERNEL_PART))
    }
}

/// The sum of the counters with these names.
fn sum(text: &str, names: &[&str]) -> u64 {
    let of = |line: &str| {
        let (name, n) = line.split_once(' ')?;
        names.contains(&name).then(|| n.trim().parse::<u64>().ok())?
    };
    text.lines().filter_map(of).sum()
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The folders of this process's control groups, as far as they are mounted in the usual places.
fn folders() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            c if c.split(',').any(|c| c == "memory") => "/sys/fs/cgroup/memory",
            _ => continue,
        };
        folders.push(format!("{root}{path}"));
        // Within a container the own group is the root of the mount.
        folders.push(root.to_owned());
    }
    folders
}

/// Bytes of memory that this process alone holds.
pub fn own() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split_whitespace().skip(1).filter_map(|n| n.parse::<u64>().ok());
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_both_versions() {
        let v2 = "anon 1000\nfile 5000\nkernel_stack 16\nsock 4\nslab_reclaimable 900\nshmem 20\n";
        assert_eq!(sum(v2, NAMES), 1040);
        let v1 = "rss 1\ntotal_cache 70\ntotal_rss 30\ntotal_shmem 2\n";
        assert_eq!(sum(v1, NAMES_V1), 32);
        assert_eq!(sum("anon x\n\nanon", NAMES), 0);
    }

    #[test]
    fn this_process_holds_memory() {
        assert!(own() > 0);
    }
}
