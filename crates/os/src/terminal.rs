//! The terminal behind a descriptor.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// Columns and rows of the terminal; `None` if it is none, or does not know.
pub fn size(fd: impl AsFd) -> Option<(usize, usize)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: TIOCGWINSZ writes a `winsize` to the address, which is that of a local one; the
    // descriptor is open, as `fd` is borrowed.
    let done = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) } == 0;
    let known = done && size.ws_col > 0 && size.ws_row > 0;
    known.then(|| (size.ws_col.into(), size.ws_row.into()))
}

/// A terminal that reports each key at once and does not show it; as before when dropped.
pub struct Keys {
    fd: OwnedFd,
    before: libc::termios,
}

impl Keys {
    /// Keys of the terminal at `fd`, without those that would send a signal: Ctrl-C is byte 3.
    /// Reads then return what there is, at most. `None` if it is no terminal.
    pub fn of(fd: impl AsFd) -> Option<Keys> {
        let fd = fd.as_fd().try_clone_to_owned().ok()?;
        // SAFETY: all zeroes are a `termios`, a structure of numbers.
        let mut before: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: tcgetattr writes a `termios` to the address, which is that of a local one; the
        // descriptor is open, as `fd` is owned.
        if unsafe { libc::tcgetattr(fd.as_raw_fd(), &raw mut before) } != 0 {
            return None;
        }
        let mut now = before;
        now.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
        (now.c_cc[libc::VMIN], now.c_cc[libc::VTIME]) = (0, 0);
        let keys = Keys { fd, before };
        keys.set(&now).then_some(keys)
    }

    fn set(&self, to: &libc::termios) -> bool {
        // SAFETY: tcsetattr reads a `termios` from the address, which is a reference's; the
        // descriptor is open, as it is owned.
        unsafe { libc::tcsetattr(self.fd.as_raw_fd(), libc::TCSADRAIN, to) == 0 }
    }

    /// Waits for keys, `limit` at most, and returns their bytes. `None` if the terminal is gone.
    pub fn next(&self, limit: Duration) -> Option<Vec<u8>> {
        let ready = crate::fd::wait_any(&[crate::fd::Awaited::input(&self.fd)], Some(limit));
        if ready != [true] {
            return Some(Vec::new());
        }
        let mut bytes = vec![0; 64];
        let n = rustix::io::read(&self.fd, &mut bytes[..]).ok().filter(|n| *n > 0)?;
        bytes.truncate(n);
        Some(bytes)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.set(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_terminal() {
        assert_eq!(size(std::fs::File::open("/dev/null").unwrap()), None);
        assert!(Keys::of(std::fs::File::open("/dev/null").unwrap()).is_none());
    }
}
