//! Resource limits, priority, time slices, processors.

use std::io;
use std::marker::PhantomData;

use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::CpuSet;

/// A resource limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Open descriptors.
    NoFile,
    /// Size of a core file, bytes.
    Core,
}

impl Limit {
    fn resource(self) -> Resource {
        match self {
            Limit::NoFile => Resource::Nofile,
            Limit::Core => Resource::Core,
        }
    }
}

/// Sets soft and hard limit.
pub fn set(limit: Limit, value: u64) -> io::Result<()> {
    let value = Rlimit { current: Some(value), maximum: Some(value) };
    Ok(rustix::process::setrlimit(limit.resource(), value)?)
}

/// The soft limit; `u64::MAX` when there is none.
pub fn get(limit: Limit) -> u64 {
    get_both(limit).0
}

/// The soft and the hard limit; `u64::MAX` where there is none.
pub fn get_both(limit: Limit) -> (u64, u64) {
    let rlimit = rustix::process::getrlimit(limit.resource());
    (rlimit.current.unwrap_or(u64::MAX), rlimit.maximum.unwrap_or(u64::MAX))
}

/// Sets the scheduling priority of this process, -20 (first) to 19.
pub fn set_priority(nice: i32) -> io::Result<()> {
    Ok(rustix::process::setpriority_process(None, nice)?)
}

/// The scheduling priority of a process's first thread; of the calling thread for 0.
pub fn priority(pid: i32) -> io::Result<i32> {
    Ok(rustix::process::getpriority_process(Pid::from_raw(pid))?)
}

/// A process whose priority another one has lowered for a while.
#[derive(Debug)]
pub struct Lowered {
    pid: Pid,
    before: i32,
}

impl Lowered {
    /// Lowers the priority of a process's first thread by so many steps of `nice`. The priority
    /// stays as it is (`None`) if the calling process may not raise it again, which takes
    /// `CAP_SYS_NICE`, or if it is the highest or the lowest already.
    pub fn by(steps: i32, pid: i32) -> Option<Lowered> {
        let before = priority(pid).ok()?;
        let pid = Pid::from_raw(pid)?;
        if !(-19..=18).contains(&before) {
            return None;
        }
        let set = |nice| rustix::process::setpriority_process(Some(pid), nice);
        // Raising it by a step shows whether raising is allowed.
        set(before - 1).ok()?;
        let _ = set(before + steps);
        Some(Lowered { pid, before })
    }

    /// Gives the process the priority that it had. It must be a child that has not been waited
    /// for, because its id may belong to another process after that.
    pub fn raise(self) {
        let _ = rustix::process::setpriority_process(Some(self.pid), self.before);
    }
}

/// The calling thread has short time slices until this is dropped: it waits less for a processor
/// that others use as well, and has no more of it.
#[derive(Debug)]
pub struct ShortSlices {
    before_ns: u64,
    _of_this_thread: PhantomData<*const ()>,
}

impl ShortSlices {
    /// Asks for slices of this length, nanoseconds: the kernel allows 0.1 to 100 ms, and ignores
    /// the length before Linux 6.12. `None` if it refuses, or if the thread's scheduling policy has
    /// no slices, as those of real time.
    pub fn of(ns: u64) -> Option<ShortSlices> {
        let before_ns = set_slice(ns)?;
        Some(ShortSlices { before_ns, _of_this_thread: PhantomData })
    }
}

impl Drop for ShortSlices {
    fn drop(&mut self) {
        set_slice(self.before_ns);
    }
}

/// Sets the length of the calling thread's time slices, nanoseconds; 0 is the kernel's own. Gives
/// the length before; `None` if the kernel refuses, or if the thread's policy has no slices.
fn set_slice(ns: u64) -> Option<u64> {
    let before = scheduling()?;
    let attr = libc::sched_attr { sched_runtime: ns, ..before };
    // SAFETY: the kernel reads `size` bytes, which is the size of the structure.
    let rc = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    (rc >= 0).then_some(before.sched_runtime)
}

/// How the calling thread is scheduled, if its policy has time slices. Their length is 0 before
/// Linux 6.12, which does not tell it.
fn scheduling() -> Option<libc::sched_attr> {
    let mut attr = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes, which is the size of the structure.
    let rc = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, attr.size, 0) };
    let has_slices =
        [libc::SCHED_OTHER, libc::SCHED_BATCH].iter().any(|p| *p as u32 == attr.sched_policy);
    (rc >= 0 && has_slices).then_some(attr)
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

    #[test]
    fn a_process_has_a_lower_priority_for_a_while() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = i32::try_from(child.id()).unwrap();
        let pid = Pid::from_raw(id);
        let nice = || priority(id).unwrap();
        let before = nice();
        match Lowered::by(3, id) {
            Some(lowered) => {
                assert_eq!(nice(), (before + 3).min(19));
                lowered.raise();
            }
            None if matches!(before, -20 | 19) => {}
            None => assert!(set_priority(before - 1).is_err(), "it could be raised again"),
        }
        assert_eq!(nice(), before);
        rustix::process::setpriority_process(pid, 19).unwrap();
        assert!(Lowered::by(3, id).is_none(), "nothing is lower");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Lowered::by(3, id).is_none(), "it has ended");
    }

    #[test]
    fn a_thread_has_short_slices_for_a_while() {
        std::thread::spawn(|| {
            let nice = (priority(0).unwrap() + 1).min(19);
            set_priority(nice).unwrap();
            let slice = || scheduling().unwrap().sched_runtime;
            let before = slice();
            let short = ShortSlices::of(300_000).unwrap();
            // Kernels before 6.12 have none of a thread's own.
            if before > 0 {
                assert_eq!(slice(), 300_000);
            }
            drop(short);
            assert_eq!(slice(), before);
            assert_eq!(priority(0).unwrap(), nice);
        })
        .join()
        .unwrap();
    }
}
