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
}
