//! Threads without the fault of the standard library's: those map a stack for signals when a thread
//! starts, and abort the process if there is no memory for it. These have none: a thread that
//! overflows its stack still ends the process, by SIGSEGV.

use std::ffi::{CString, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Main = Box<dyn FnOnce() + Send>;

/// Starts a detached thread with a stack of `stack` bytes.
///
/// # Errors
/// The system's: there is no memory for the stack, or no more threads are allowed.
pub fn start(name: &str, stack: usize, main: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // The kernel keeps 15 bytes of the name.
    let name = CString::new(&name.as_bytes()[..name.len().min(15)]).unwrap_or_default();
    let main: Main = Box::new(move || {
        // SAFETY: the name is a string with a NUL behind it, and is only read.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        main();
    });
    let main = Box::into_raw(Box::new(main));
    let mut attributes = MaybeUninit::uninit();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the attributes are made by the first call and destroyed by the last one; `run` takes
    // the box exactly once.
    let made = unsafe {
        let made = libc::pthread_attr_init(attributes.as_mut_ptr());
        if made == 0 {
            let attributes = attributes.as_mut_ptr();
            libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
            let sized = libc::pthread_attr_setstacksize(attributes, stack);
            let made = match sized {
                0 => libc::pthread_create(thread.as_mut_ptr(), attributes, run, main.cast()),
                refused => refused,
            };
            libc::pthread_attr_destroy(attributes);
            made
        } else {
            made
        }
    };
    if made != 0 {
        // SAFETY: no thread was made, so the box is still ours.
        drop(unsafe { Box::from_raw(main) });
        return Err(io::Error::from_raw_os_error(made));
    }
    Ok(())
}

/// How often the calling thread has waited for something (a disk, a lock), since it began: its
/// voluntary context switches (getrusage(2), `RUSAGE_THREAD`).
pub fn waits() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes a whole structure, and nothing but that; zeros are one, too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw as i64
}

/// The time since it began that the calling thread has run, or was to run and another one did, in
/// microseconds (the first two fields of its `schedstat` in /proc). The run that goes on may be
/// missing. `None` where the kernel tells nothing, or /proc is not there.
pub fn ready_us() -> Option<u64> {
    let mut text = [0; 64];
    let file = std::fs::File::open("/proc/thread-self/schedstat").ok()?;
    let len = std::io::Read::read(&mut &file, &mut text).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    let mut ns = text.split_ascii_whitespace().map(str::parse::<u64>);
    Some((ns.next()?.ok()? + ns.next()?.ok()?) / 1000)
}

/// The number of the calling thread, for [`is_waiting`].
pub fn id() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// Whether a thread of this process waits for something, rather than to be run: the third field of
/// its `stat` (proc_pid_stat(5)) is not `R`. A thread of which nothing is known waits.
pub fn is_waiting(id: u32) -> bool {
    let Ok(stat) = std::fs::read(format!("/proc/self/task/{id}/stat")) else { return true };
    // The name before it may contain anything.
    let state = stat.iter().rposition(|b| *b == b')').and_then(|i| stat.get(i + 2));
    state != Some(&b'R')
}

extern "C" fn run(main: *mut c_void) -> *mut c_void {
    // SAFETY: `start` made the pointer from a box, and gives it to this thread alone.
    let main = unsafe { Box::from_raw(main.cast::<Main>()) };
    // A panic must not unwind into the C library.
    let _ = catch_unwind(AssertUnwindSafe(main));
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn threads_run_have_names_and_may_fail() {
        let (tell, told) = mpsc::channel();
        let main = move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            tell.send(name).unwrap();
            panic!("which ends the thread alone");
        };
        start("a name that is too long", 128 << 10, main).unwrap();
        assert_eq!(told.recv().unwrap(), "a name that is \n");
        assert!(start("none", 1 << 50, || ()).is_err());
    }

    #[test]
    fn a_thread_that_waits_is_told_from_one_that_runs() {
        assert!(!is_waiting(id()));
        let before = waits();
        let (tell, told) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(id()).unwrap();
            let _ = gone.recv();
        });
        let other = told.recv().unwrap();
        while !is_waiting(other) {
            std::thread::yield_now();
        }
        drop(go);
        thread.join().unwrap();
        // A thread can be joined a moment before the kernel removes it, and still runs until then.
        while std::path::Path::new(&format!("/proc/self/task/{other}")).exists() {
            std::thread::yield_now();
        }
        assert!(is_waiting(other), "it is no more");
        std::thread::sleep(Duration::from_millis(1));
        assert!(waits() > before);
    }

    /// Other processes may keep this thread from its processor at any moment. So the bounds are
    /// those that hold however long that takes: the part of the passed time that must not count,
    /// and the processor time that must.
    #[test]
    fn the_time_of_a_wait_is_told_from_that_of_a_run() {
        const WAIT: Duration = Duration::from_millis(100);
        // The longest tick of the kernel's clock, and so the longest run that may be missing.
        const TICK: Duration = Duration::from_millis(10);
        let start = Instant::now();
        let Some(before) = ready_us() else { return };
        std::thread::sleep(WAIT);
        let ready = Duration::from_micros(ready_us().unwrap() - before);
        let others = start.elapsed().saturating_sub(ready);
        assert!(others + TICK >= WAIT, "{others:?} of a wait of {WAIT:?} do not count");
        let (before, ran_before) = (ready_us().unwrap(), crate::clock::thread_usec());
        while crate::clock::thread_usec() - ran_before < 50_000 {
            std::hint::spin_loop();
        }
        // A run that goes on is told with the clock's next tick, and one that ends at once.
        std::thread::sleep(Duration::from_millis(1));
        let ready = ready_us().unwrap() - before;
        assert!(ready >= 50_000, "{ready} us of a run of 50 ms");
    }
}
