//! The process group of a server under test: its members, and its end.
//!
//! The test's process is a "child subreaper" (prctl(2)): the kernel gives it the workers of a
//! master that has ended, so that it can wait for their end, and finds them among its own children.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    PidfdFlags, WaitOptions, getpid, pidfd_open, set_child_subreaper, test_kill_process_group,
    waitpgid,
};

use crate::procfs;

/// The groups of all servers under test in this process.
static GROUPS: Mutex<Option<HashSet<u32>>> = Mutex::new(None);

fn groups() -> MutexGuard<'static, Option<HashSet<u32>>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has orphans below this process become its children, from now on.
pub(crate) fn adopt_orphans() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_child_subreaper(Some(getpid())).expect("Linux can since 3.4");
    });
}

/// A server's process group: it has the id of the master, and children stay in it unless they make
/// their own.
pub struct Group(u32);

impl Group {
    /// The group that a process leads which was started a moment ago.
    pub fn of(leader: u32) -> Self {
        groups().get_or_insert_default().insert(leader);
        Self(leader)
    }

    /// Its id, the master's.
    pub fn id(&self) -> u32 {
        self.0
    }

    /// Its processes that run: descendants of the master, and orphans.
    pub fn members(&self) -> Vec<u32> {
        let mut found = Vec::new();
        let mut candidates = procfs::children(std::process::id());
        while let Some(pid) = candidates.pop() {
            let Some(process) = procfs::process(pid) else { continue };
            // Children that left the group are no members, and theirs are neither.
            if process.group == self.0 {
                candidates.extend(procfs::children(pid));
                found.extend((!process.zombie).then_some(pid));
            }
        }
        found.sort_unstable();
        found
    }

    /// Whether a process is a member and runs.
    pub fn has(&self, pid: u32) -> bool {
        procfs::process(pid).is_some_and(|process| process.group == self.0 && !process.zombie)
    }

    /// Waits until no process of the group is left, or until the time given, and returns whether
    /// that is so. The master must have been waited for: this reaps all that is in the group.
    pub(crate) fn wait_until_empty(&self, until: Instant) -> bool {
        loop {
            if self.is_empty() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            // The list of children is not exact while others end: it is read again soon.
            wait_for_one(&self.members(), until.min(Instant::now() + Duration::from_millis(50)));
        }
    }

    /// Asks the kernel, whose answer is exact, where a list of processes is not.
    fn is_empty(&self) -> bool {
        let group = procfs::id(self.0);
        while let Ok(Some(_)) = waitpgid(group, WaitOptions::NOHANG) {}
        test_kill_process_group(group) == Err(Errno::SRCH)
    }

    /// Processes below this one, of no server's group, that have files in the folder open: they
    /// left the group.
    pub fn strays(&self, folder: &Path) -> Vec<u32> {
        let all = groups().clone().unwrap_or_default();
        let mut found = Vec::new();
        let mut candidates = procfs::children(std::process::id());
        while let Some(pid) = candidates.pop() {
            let Some(process) = procfs::process(pid) else { continue };
            // Orphans of a server become children of this process: none is below another server.
            if process.zombie || process.group != self.0 && all.contains(&process.group) {
                continue;
            }
            candidates.extend(procfs::children(pid));
            found.extend(procfs::has_open_below(pid, folder).then_some(pid));
        }
        found
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        groups().get_or_insert_default().remove(&self.0);
    }
}

/// The pidfd of a process; `None` after its end.
pub(crate) fn pidfd(pid: u32) -> Option<OwnedFd> {
    pidfd_open(procfs::id(pid), PidfdFlags::empty()).ok()
}

/// Waits for the end of at least one of these processes, or until the time given.
pub(crate) fn wait_for_one(pids: &[u32], until: Instant) {
    let fds: Vec<_> = pids.iter().filter_map(|&pid| pidfd(pid)).collect();
    // One that has no pidfd has ended.
    if fds.len() == pids.len() {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        crate::notices::wait_readable(&fds, until);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::PATIENCE;

    /// A shell whose child outlives it, in a group of its own.
    fn orphan(script: &str, folder: &Path) -> Group {
        adopt_orphans();
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(folder).stdin(Stdio::null()).process_group(0);
        let mut shell = shell.spawn().expect("run a shell");
        let group = Group::of(shell.id());
        shell.wait().expect("the shell ends");
        group
    }

    #[test]
    fn an_orphan_of_the_group_is_found_and_reaped() {
        let folder = crate::Folder::new("group");
        let group = orphan("sleep 60 & true", &folder);
        let left = group.members();
        assert_eq!(left.len(), 1);
        assert!(!group.wait_until_empty(Instant::now()));
        assert!(group.has(left[0]));
        crate::signal(left[0], "KILL");
        assert!(group.wait_until_empty(Instant::now() + PATIENCE));
        assert!(group.members().is_empty() && !group.has(left[0]));
    }

    #[test]
    fn a_process_that_left_the_group_is_found_by_its_files() {
        let folder = crate::Folder::new("group");
        let group = orphan("exec 5>file; setsid sleep 60 & true", &folder);
        // It may not have left yet.
        let stray = crate::wait_for("the stray alone", || {
            let strays = group.strays(&folder);
            (group.members().is_empty() && strays.len() == 1).then(|| strays[0])
        });
        crate::signal(stray, "KILL");
        wait_for_one(&[stray], Instant::now() + PATIENCE);
        assert!(group.strays(&folder).is_empty());
    }
}
