//! Users, groups, and dropping root.

use std::ffi::{CStr, CString};
use std::io;

use rustix::process::DumpableBehavior;

/// An account of the system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Its name, for the list of its supplementary groups.
    pub name: CString,
    /// User id.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
}

/// Looks an account up by name; `None` when there is none.
pub fn user(name: &[u8]) -> io::Result<Option<User>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let found = look_up(|entry, buf, found| {
        // SAFETY: name is NUL-terminated; entry, buf (with its true length) and found are the
        // caller's own.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, buf.as_mut_ptr(), buf.len(), found) }
    })?;
    Ok(found.map(|entry: libc::passwd| User { name, uid: entry.pw_uid, gid: entry.pw_gid }))
}

/// Looks a group's id up by name; `None` when there is none.
pub fn group(name: &[u8]) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let found = look_up(|entry, buf, found| {
        // SAFETY: as in `user`.
        unsafe { libc::getgrnam_r(name.as_ptr(), entry, buf.as_mut_ptr(), buf.len(), found) }
    })?;
    Ok(found.map(|entry: libc::group| entry.gr_gid))
}

/// Calls one of the system's look-ups with buffers that grow until they are large enough. The texts
/// that the entry points to are freed with the buffer: only its numbers are valid.
///
/// `call` gets room for the entry, a buffer for texts, and a place for the pointer to the entry; it
/// answers with an error number, or 0.
fn look_up<E>(
    call: impl Fn(*mut E, &mut [libc::c_char], *mut *mut E) -> i32,
) -> io::Result<Option<E>> {
    let mut buf = vec![0; 1024];
    loop {
        let mut entry = std::mem::MaybeUninit::<E>::uninit();
        let mut found = std::ptr::null_mut();
        let rc = call(entry.as_mut_ptr(), &mut buf, &mut found);
        if rc == 0 && !found.is_null() {
            // SAFETY: found is not null, so the call filled the entry; it is plain data.
            return Ok(Some(unsafe { entry.assume_init() }));
        }
        if !grow(rc, &mut buf)? {
            return Ok(None);
        }
    }
}

/// Whether to try a look-up without a result again with the larger buffer.
fn grow(rc: i32, buf: &mut Vec<libc::c_char>) -> io::Result<bool> {
    const LARGEST: usize = 1 << 20;
    match rc {
        // Systems differ in the error for "not found" (getpwnam_r(3)).
        0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => Ok(false),
        libc::ERANGE if buf.len() < LARGEST => {
            buf.resize(buf.len() * 4, 0);
            Ok(true)
        }
        rc => Err(io::Error::from_raw_os_error(rc)),
    }
}

/// The call of [`drop_to`] that failed, by its name, with the system's error.
pub(crate) type StepError = (&'static str, io::Error);

/// Becomes `uid` and `gid` for good, with the supplementary groups of `name`, and checks that there
/// is no way back. To be called while the process has one thread. The change makes the kernel hide
/// the process's memory from others of its user, and write no core file of it; with `dumps` it is
/// as open as before.
///
/// A process that has these ids already may lack the privilege to set its groups: root in a
/// container without capabilities, or in a user namespace. It keeps the groups that it has, and
/// that error is returned as `Ok(Some(error))`.
pub fn drop_to(
    name: &CStr,
    uid: u32,
    gid: u32,
    dumps: bool,
) -> Result<Option<StepError>, StepError> {
    fn step(what: &'static str, rc: i32) -> Result<(), StepError> {
        if rc == -1 { Err((what, io::Error::last_os_error())) } else { Ok(()) }
    }
    let has_ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: these calls change the process's ids; `name` is NUL-terminated.
    step("setgid", unsafe { libc::setgid(gid) })?;
    // SAFETY: as above.
    let groups = step("initgroups", unsafe { libc::initgroups(name.as_ptr(), gid) });
    let kept = match groups {
        Err((call, e)) if has_ids == (uid, gid) && e.raw_os_error() == Some(libc::EPERM) => {
            Some((call, e))
        }
        groups => groups.map(|()| None)?,
    };
    // SAFETY: as above.
    step("setuid", unsafe { libc::setuid(uid) })?;
    // A kernel or a container that let setuid pass without doing it would leave a worker with root.
    // SAFETY: as above.
    if uid != 0 && unsafe { libc::setuid(0) } == 0 {
        return Err(("setuid", io::Error::other("root could be taken back")));
    }
    // Changing ids clears this flag, unless `fs.suid_dumpable` says otherwise or none has changed.
    let behavior = match dumps {
        true => DumpableBehavior::Dumpable,
        false => DumpableBehavior::NotDumpable,
    };
    rustix::process::set_dumpable_behavior(behavior)
        .map_err(|e| ("prctl(PR_SET_DUMPABLE)", e.into()))?;
    Ok(kept)
}

/// Gives up for good what this process could gain by executing a program: privileges of files
/// with set-user-id bits or capabilities, and the capabilities of root.
///
/// # Errors
/// The system's for the former. The latter takes a privilege that only root has.
pub fn renounce() -> io::Result<()> {
    for capability in 0..64 {
        // SAFETY: the call takes numbers and changes an attribute of this thread alone.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            break; // The kernel has no more of them, or the process may not.
        }
    }
    Ok(rustix::thread::set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups() {
        let root = user(b"root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(group(b"root").unwrap(), Some(0));
        assert_eq!(user(b"no such user").unwrap(), None);
        assert_eq!(group(b"no such group").unwrap(), None);
        assert_eq!(user(b"a\0b").unwrap(), None);
    }
}
