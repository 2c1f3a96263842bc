//! Processes: fork, exec, wait, sessions.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, WaitOptions};

pub use rustix::process::{getegid, geteuid, getpid, getppid};

/// The side of a [`fork`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fork {
    /// The parent, with the child's process id.
    Parent(i32),
    /// This is the new process.
    Child,
}

/// This process's id; 0 before the first [`id`].
static ID: AtomicU32 = AtomicU32::new(0);

/// This process's id, asked of the system once: locks in shared memory need it often.
#[inline]
pub fn id() -> u32 {
    match ID.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            ID.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// Whether a process of this id exists. One that has ended exists until its parent has reaped it.
pub fn exists(id: u32) -> bool {
    let pid = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Has the kernel send this process `SIGTERM` when its parent ends, in whatever way. Taking another
/// user undoes that.
///
/// # Errors
/// The system's; `ESRCH` where the parent, `parent`, has ended already.
pub fn end_with_parent(parent: Option<Pid>) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    if getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// Makes a copy of this process. Refused (`EBUSY`) when the process has more than one thread: the
/// child would keep the locks that other threads held, and could wait for them for ever.
pub fn fork() -> io::Result<Fork> {
    if threads()? != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: this is the only thread (just counted, and no other can start one), so the child
    // finds every lock and all memory in the state this thread left them.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            ID.store(0, Ordering::Relaxed);
            Ok(Fork::Child)
        }
        pid => Ok(Fork::Parent(pid)),
    }
}

/// The number of threads of this process; one where /proc cannot be read.
fn threads() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata("/proc/self/task") {
        // A directory has two links more than it has subdirectories.
        Ok(meta) => Ok(meta.nlink().saturating_sub(2)),
        Err(_) => Ok(1),
    }
}

/// Replaces the whole environment of this process by `NAME=VALUE` strings. Strings without a name,
/// or with a NUL byte, are left out. Refused (`EBUSY`) when the process has more than one thread.
pub fn set_environment(strings: &[Vec<u8>]) -> io::Result<()> {
    if threads()? != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    for (name, _) in std::env::vars_os() {
        // SAFETY: this is the only thread (just counted), so nobody reads the environment
        // meanwhile.
        unsafe { std::env::remove_var(name) };
    }
    for string in strings.iter().filter(|s| !s.contains(&0)) {
        match string.iter().position(|&b| b == b'=') {
            None | Some(0) => {}
            Some(i) => {
                let (name, value) = (OsStr::from_bytes(&string[..i]), &string[i + 1..]);
                // SAFETY: as above.
                unsafe { std::env::set_var(name, OsStr::from_bytes(value)) };
            }
        }
    }
    Ok(())
}

/// The manner of a process's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// By itself, with this status.
    Code(i32),
    /// By a signal.
    Signal {
        /// Its number.
        signal: i32,
        /// Whether a core file was written.
        core: bool,
    },
}

/// Reaps one child that has ended; `None` when there is none at the moment. Fails with `ECHILD`
/// when there are no children.
pub fn reap() -> io::Result<Option<(i32, Exit)>> {
    let Some((pid, status)) = rustix::process::wait(WaitOptions::NOHANG)? else {
        return Ok(None);
    };
    let pid = pid.as_raw_nonzero().get();
    Ok(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some((pid, Exit::Code(code))),
        (_, Some(signal)) => {
            let core = libc::WCOREDUMP(status.as_raw());
            Some((pid, Exit::Signal { signal, core }))
        }
        // Stopped or continued: not an end.
        _ => None,
    })
}

/// Waits for the end of one child.
pub fn wait_for(pid: i32) -> io::Result<Exit> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    loop {
        let status = match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => status,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => return Ok(Exit::Code(code)),
            (_, Some(signal)) => return Ok(Exit::Signal { signal, core: false }),
            _ => {}
        }
    }
}

/// Ends the process at once: no destructor runs, no buffer is flushed. A program that counts its
/// branches (`cargo xtask trained`) writes the counts first.
pub fn exit_now(code: i32) -> ! {
    if cfg!(weir_counts) {
        std::process::exit(code);
    }
    // SAFETY: _exit(2) does not return and runs nothing of this process.
    unsafe { libc::_exit(code) }
}

/// Becomes the leader of a new session, without a terminal.
pub fn new_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// This machine's name in lower case, at most 255 bytes.
pub fn hostname() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    name.chars().take(255).collect()
}

/// The system's name and release: `Linux`, `6.1.0`.
pub fn system() -> (String, String) {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    (text(uname.sysname()), text(uname.release()))
}

/// Sets the mask of permissions taken away from new files; returns the one before.
pub fn umask(mask: u32) -> u32 {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask)).as_raw_mode()
}

/// Replaces this process by another program; returns only when that failed. A string with a NUL
/// byte is `InvalidInput`.
pub fn exec(path: &[u8], args: &[Vec<u8>], env: &[Vec<u8>]) -> io::Error {
    fn strings(list: &[Vec<u8>]) -> io::Result<Vec<CString>> {
        Ok(list.iter().map(|s| CString::new(s.as_slice())).collect::<Result<_, _>>()?)
    }
    fn pointers(list: &[CString]) -> Vec<*const libc::c_char> {
        list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    }
    let (path, args, env) = match (CString::new(path), strings(args), strings(env)) {
        (Ok(path), Ok(args), Ok(env)) => (path, args, env),
        _ => return io::Error::from(io::ErrorKind::InvalidInput),
    };
    let (argv, envp) = (pointers(&args), pointers(&env));
    // SAFETY: path, argv and envp are NUL-terminated, the lists end with null, and all of them live
    // until execve replaced this memory or failed.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_is_refused_beside_threads() {
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || rx.recv().is_err());
        assert_eq!(fork().unwrap_err().raw_os_error(), Some(libc::EBUSY));
        drop(tx);
        other.join().unwrap();
    }

    #[test]
    fn exec_refuses_nul() {
        assert_eq!(exec(b"/bin/a\0b", &[], &[]).kind(), io::ErrorKind::InvalidInput);
        let gone = exec(b"/does/not/exist", &[b"x".to_vec()], &[]);
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
