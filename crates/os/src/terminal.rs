//! The terminal behind a descriptor.

use std::os::fd::{AsFd, AsRawFd};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_terminal() {
        assert_eq!(size(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
