//! Signals, taken where the program asks for them and never in a handler.
//!
//! The signals that control a process are blocked from the start. The master waits for the next one
//! ([`wait`]); a worker reads them from a descriptor in its event loop ([`SignalFd`]). No code runs
//! in signal context, so none has to be safe there.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A signal, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Signal(pub i32);

impl Signal {
    /// Reload.
    pub const HUP: Signal = Signal(libc::SIGHUP);
    /// Fast stop (keyboard).
    pub const INT: Signal = Signal(libc::SIGINT);
    /// Fast stop.
    pub const TERM: Signal = Signal(libc::SIGTERM);
    /// Graceful stop.
    pub const QUIT: Signal = Signal(libc::SIGQUIT);
    /// Reopen log files.
    pub const USR1: Signal = Signal(libc::SIGUSR1);
    /// Start a new binary.
    pub const USR2: Signal = Signal(libc::SIGUSR2);
    /// Graceful stop of the workers.
    pub const WINCH: Signal = Signal(libc::SIGWINCH);
    /// A child ended.
    pub const CHLD: Signal = Signal(libc::SIGCHLD);
    /// Kill: cannot be caught.
    pub const KILL: Signal = Signal(libc::SIGKILL);
    /// Abort, with a core dump.
    const ABRT: Signal = Signal(libc::SIGABRT);
    /// Stop the process (debugging).
    pub const STOP: Signal = Signal(libc::SIGSTOP);
    /// I/O possible; logged and ignored.
    pub const IO: Signal = Signal(libc::SIGIO);
    /// Timer; logged and ignored.
    pub const ALRM: Signal = Signal(libc::SIGALRM);

    /// `SIGHUP` and so on; `SIG` and the number for signals without a constant above.
    pub fn name(self) -> std::borrow::Cow<'static, str> {
        match self {
            Signal::HUP => "SIGHUP".into(),
            Signal::INT => "SIGINT".into(),
            Signal::TERM => "SIGTERM".into(),
            Signal::QUIT => "SIGQUIT".into(),
            Signal::USR1 => "SIGUSR1".into(),
            Signal::USR2 => "SIGUSR2".into(),
            Signal::WINCH => "SIGWINCH".into(),
            Signal::CHLD => "SIGCHLD".into(),
            Signal::KILL => "SIGKILL".into(),
            Signal::ABRT => "SIGABRT".into(),
            Signal::STOP => "SIGSTOP".into(),
            Signal::IO => "SIGIO".into(),
            Signal::ALRM => "SIGALRM".into(),
            Signal(n) => format!("SIG{n}").into(),
        }
    }
}

macro_rules! numbers {
    ($($name:literal $constant:ident)*) => {
        impl Signal {
            /// The signal of a name of POSIX without its `SIG`, for example `TERM`.
            pub fn named(name: &str) -> Option<Signal> {
                match name {
                    $($name => Some(Signal(libc::$constant)),)*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    "ABRT" SIGABRT "ALRM" SIGALRM "CHLD" SIGCHLD "CONT" SIGCONT "FPE" SIGFPE "HUP" SIGHUP
    "ILL" SIGILL "INT" SIGINT "KILL" SIGKILL "PIPE" SIGPIPE "QUIT" SIGQUIT "SEGV" SIGSEGV
    "STOP" SIGSTOP "TSTP" SIGTSTP "TERM" SIGTERM "TTIN" SIGTTIN "TTOU" SIGTTOU "USR1" SIGUSR1
    "USR2" SIGUSR2
}

/// A received signal and its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// The signal that came.
    pub signal: Signal,
    /// The sender's process id; 0 when the kernel sent it.
    pub pid: i32,
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// The set of the signals given; numbers the kernel does not know are left out.
    pub fn new(signals: &[Signal]) -> SignalSet {
        let mut set = std::mem::MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the whole set it is given.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for s in signals {
            // SAFETY: `set` is initialised; an unknown number changes nothing.
            unsafe { libc::sigaddset(&mut set, s.0) };
        }
        SignalSet(set)
    }

    /// Blocks these signals, beside those already blocked.
    pub fn block(&self) {
        self.mask(libc::SIG_BLOCK);
    }

    /// Unblocks these signals, as an executed program expects.
    pub fn unblock(&self) {
        self.mask(libc::SIG_UNBLOCK);
    }

    fn mask(&self, how: i32) {
        // SAFETY: the set is initialised, and the old one is not asked for. It fails only for a
        // wrong `how`.
        unsafe { libc::pthread_sigmask(how, &self.0, std::ptr::null_mut()) };
    }
}

/// Runs `f` with every signal blocked but those that a fault of the thread itself raises. Threads
/// started by `f` inherit that, and never take a signal of the process.
pub fn with_all_blocked<R>(f: impl FnOnce() -> R) -> R {
    let mut all = std::mem::MaybeUninit::uninit();
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set that the calls after it use; pthread_sigmask fills
    // `before`, and fails only for a wrong first argument.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in [libc::SIGILL, libc::SIGFPE, libc::SIGSEGV, libc::SIGBUS] {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        SignalSet(before.assume_init())
    };
    let result = f();
    before.mask(libc::SIG_SETMASK);
    result
}

/// Waits for one of the blocked signals of `set`. `None` when the time is over. Without a limit it
/// waits for as long as it takes.
pub fn wait(set: &SignalSet, limit: Option<Duration>) -> Option<Received> {
    let limit = limit.map(|d| libc::timespec {
        tv_sec: d.as_secs() as libc::time_t,
        tv_nsec: d.subsec_nanos().into(),
    });
    let limit_ptr = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: set and limit are initialised (or null, which means no limit); the kernel fills
        // `info`.
        let signal = unsafe { libc::sigtimedwait(&set.0, info.as_mut_ptr(), limit_ptr) };
        if signal > 0 {
            // SAFETY: the call filled `info`; it was zeroed before, so that each field is a value.
            let info = unsafe { info.assume_init() };
            // The field holds a process id only for signals of other processes and for a child's
            // end.
            let from_process = info.si_code <= 0 || signal == libc::SIGCHLD;
            // SAFETY: plain data in every variant that has it, zero in the others.
            let pid = if from_process { unsafe { info.si_pid() } } else { 0 };
            return Some(Received { signal: Signal(signal), pid });
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}

/// Blocked signals as a descriptor that becomes readable.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Watches for the signals of `set`, which are to be blocked. Non-blocking, closed on exec.
    pub fn new(set: &SignalSet) -> io::Result<SignalFd> {
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set.0, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor for us alone.
        Ok(SignalFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next signal that came, or `None`.
    pub fn next(&self) -> Option<Received> {
        next_from(self.0.as_fd())
    }

    /// The descriptor itself, for an event loop that wants to own it; read it with [`next_from`].
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads one signal from a descriptor made by [`SignalFd`]; `None` when no more has come.
pub fn next_from(fd: impl AsFd) -> Option<Received> {
    const LEN: usize = size_of::<libc::signalfd_siginfo>();
    let mut info = std::mem::MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    // SAFETY: the kernel writes at most LEN bytes into `info`, which is that long.
    let n = unsafe { libc::read(fd.as_fd().as_raw_fd(), info.as_mut_ptr().cast(), LEN) };
    if n != LEN as isize {
        return None;
    }
    // SAFETY: all LEN bytes were written, and the type is plain integers.
    let info = unsafe { info.assume_init() };
    Some(Received { signal: Signal(info.ssi_signo as i32), pid: info.ssi_pid as i32 })
}

/// Sends a signal to a process.
pub fn kill(pid: i32, signal: Signal) -> io::Result<()> {
    if pid <= 0 {
        // Zero and below would name process groups, or everything.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    kill_raw(pid, signal)
}

/// Sends a signal to all processes of a group.
///
/// # Errors
/// The system's; `ESRCH` if there is no such group.
pub fn kill_group(group: i32, signal: Signal) -> io::Result<()> {
    if group <= 1 {
        // Zero is this process's own group, and one would name everything.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    kill_raw(-group, signal)
}

fn kill_raw(pid: i32, signal: Signal) -> io::Result<()> {
    // SAFETY: kill(2) touches no memory of this process.
    if unsafe { libc::kill(pid, signal.0) } == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sends a signal to this process itself.
pub fn raise(signal: Signal) {
    // SAFETY: raise(3) touches no memory of this process.
    unsafe { libc::raise(signal.0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_waits_to_be_taken() {
        let set = SignalSet::new(&[Signal::WINCH]);
        set.block();
        let fd = SignalFd::new(&set).unwrap();
        assert_eq!(fd.next(), None);
        // To this thread alone: other test threads do not block it.
        raise(Signal::WINCH);
        let me = std::process::id() as i32;
        assert_eq!(fd.next(), Some(Received { signal: Signal::WINCH, pid: me }));
        assert_eq!(wait(&set, Some(Duration::ZERO)), None);
        raise(Signal::WINCH);
        assert_eq!(wait(&set, None), Some(Received { signal: Signal::WINCH, pid: me }));
    }

    #[test]
    fn process_groups_cannot_be_hit_by_accident() {
        assert!(kill(0, Signal::WINCH).is_err());
        assert!(kill(-1, Signal::WINCH).is_err());
    }
}
