//! The title a process shows in `ps`.
//!
//! Linux shows the memory where the arguments lay when the program started. A longer title runs on
//! into the environment that follows, so the environment is copied away first.

use std::ptr::NonNull;
use std::sync::Mutex;

/// The memory that holds a title.
struct Area {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the area belongs to the process, not to a thread; the mutex around it orders the writes.
unsafe impl Send for Area {}

static AREA: Mutex<Option<Area>> = Mutex::new(None);

/// Finds the memory of arguments and environment and moves the environment out of it. To be called
/// once, at the start of `main`, after the arguments were copied and before there are threads.
/// Without /proc, titles stay as they are.
pub fn init() {
    let Ok(mut area) = AREA.lock() else { return };
    if area.is_some() {
        return;
    }
    let Some([arg_start, arg_end, env_start, env_end]) = stat_fields() else { return };
    let Some(start) = NonNull::new(arg_start as *mut u8) else { return };
    let mut end = arg_end;
    if env_start == arg_end && env_end > env_start && move_environ(env_start, env_end) {
        end = env_end;
    }
    if end > arg_start {
        *area = Some(Area { start, len: end - arg_start });
    }
}

/// `arg_start`, `arg_end`, `env_start`, `env_end` of this process: fields 48 to 51 of proc(5)'s
/// stat.
fn stat_fields() -> Option<[usize; 4]> {
    let stat = std::fs::read("/proc/self/stat").ok()?;
    // The second field is the program's name in parentheses, which may hold any byte.
    let after = stat.iter().rposition(|&b| b == b')')?;
    let text = std::str::from_utf8(stat.get(after + 2..)?).ok()?;
    let mut fields = text.split_ascii_whitespace().skip(45);
    let mut next = || fields.next()?.parse::<usize>().ok().filter(|n| *n > 0);
    Some([next()?, next()?, next()?, next()?])
}

/// Copies the strings of `environ` that lie in `start..end` to the heap, for good.
fn move_environ(start: usize, end: usize) -> bool {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: one thread runs (see `init`), so nobody reads or changes `environ` meanwhile. Its
    // entries are NUL-terminated strings and the list ends with null. The copies are never
    // freed.
    unsafe {
        let mut entry = environ;
        if entry.is_null() {
            return true;
        }
        while !(*entry).is_null() {
            if (start..end).contains(&(*entry as usize)) {
                let copy = libc::strdup(*entry);
                if copy.is_null() {
                    return false;
                }
                *entry = copy;
            }
            entry = entry.add(1);
        }
    }
    true
}

/// Shows `title` in place of the arguments, cut to their room.
pub fn set(title: &str) {
    let Ok(area) = AREA.lock() else { return };
    let Some(area) = area.as_ref() else { return };
    let bytes = title.as_bytes();
    let n = bytes.len().min(area.len - 1);
    // SAFETY: the area is the process's own arguments and environment, whose strings were copied
    // away (`init`); the lock makes this the only writer. The byte after the title, which
    // exists as n < len, and all others become NUL. The source is another allocation.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), area.start.as_ptr(), n);
        std::ptr::write_bytes(area.start.as_ptr().add(n), 0, area.len - n);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_tells_where_the_arguments_lie() {
        let [arg_start, arg_end, env_start, env_end] = super::stat_fields().unwrap();
        assert!(arg_start < arg_end && arg_end <= env_start && env_start <= env_end);
    }
}
