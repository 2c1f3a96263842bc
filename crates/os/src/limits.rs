//! Resource limits, priority, processors.

use std::io;

use rustix::process::{Resource, Rlimit};
use rustix::thread::CpuSet;

/// A resource limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Open descriptors.
    NoFile,
    /// Size of a core file, bytes.
    Core,
}

/// Sets soft and hard limit.
pub fn set(limit: Limit, value: u64) -> io::Result<()> {
    let what = match limit {
        Limit::NoFile => Resource::Nofile,
        Limit::Core => Resource::Core,
    };
    let value = Rlimit { current: Some(value), maximum: Some(value) };
    Ok(rustix::process::setrlimit(what, value)?)
}

/// The soft limit; `u64::MAX` when there is none.
pub fn get(limit: Limit) -> u64 {
    get_both(limit).0
}

/// The soft and the hard limit; `u64::MAX` where there is none.
pub fn get_both(limit: Limit) -> (u64, u64) {
    let what = match limit {
        Limit::NoFile => Resource::Nofile,
        Limit::Core => Resource::Core,
    };
    let rlimit = rustix::process::getrlimit(what);
    (rlimit.current.unwrap_or(u64::MAX), rlimit.maximum.unwrap_or(u64::MAX))
}

/// Sets the scheduling priority of this process, -20 (first) to 19.
pub fn set_priority(nice: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice)?)
}

/// The scheduling priority of this process.
pub fn priority() -> io::Result<i32> {
    Ok(rustix::process::getpriority_process(None)?)
}

/// The number of processors that this process can use, at least 1: those that it may run on, or
/// fewer if a control group (version 1 or 2) has a CPU quota. A part of a processor is left out.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The numbers of the processors this process may run on, ascending.
pub fn allowed_cpus() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&i| set.is_set(i)).collect(),
        Err(_) => vec![0],
    }
}

/// The highest processor number that [`set_affinity`] takes, plus one.
pub const CPUS_MAX: usize = CpuSet::MAX_CPU;

/// Binds this process to the processors given; numbers from [`CPUS_MAX`] on are refused.
pub fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CPUS_MAX {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        set.set(cpu);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The system's page size, bytes.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_processors() {
        assert!(cpus() >= 1);
        assert_eq!(allowed_cpus().len(), cpus());
        assert!(set_affinity(&[CPUS_MAX]).is_err());
        assert!(get(Limit::NoFile) > 0);
        assert!(page_size() >= 4096);
    }
}
