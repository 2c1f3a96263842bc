//! select(2).
//!
//! It reports the peer's end only as readability. A wait for that end while unread bytes lie in the
//! socket is served by a look from time to time.

use std::io;
use std::os::fd::RawFd;

use rustix::event::{
    FdSetElement, FdSetIter, PollFd, PollFlags, Timespec, fd_set_insert, fd_set_num_elements, poll,
    select,
};
use rustix::io::Errno;

use super::level::{Report, Watches};
use super::poll::ready_bits;
use crate::state::socks::bits;

/// Descriptors are below this: FD_SETSIZE.
pub const SELECT_MAX: RawFd = 1024;

/// Interval between looks for a peer's end.
const END_MS: i64 = 100;

/// Kept for their capacity.
#[derive(Default)]
pub(super) struct Sets {
    read: Vec<FdSetElement>,
    write: Vec<FdSetElement>,
}

/// Waits, and appends the events.
pub(super) fn wait(
    watches: &Watches,
    sets: &mut Sets,
    mut limit: Option<Timespec>,
    reports: &mut Vec<Report>,
) -> io::Result<()> {
    let highest = watches.list.iter().map(|watch| watch.fd).max().unwrap_or(0);
    let size = fd_set_num_elements(watches.list.len(), highest + 1);
    for set in [&mut sets.read, &mut sets.write] {
        set.clear();
        set.resize(size, FdSetElement::default());
    }
    let mut ends = false;
    for watch in &watches.list {
        if watch.wants & bits::READ != 0 {
            fd_set_insert(&mut sets.read, watch.fd);
        }
        if watch.wants & bits::WRITE != 0 {
            fd_set_insert(&mut sets.write, watch.fd);
        }
        ends |= watch.wants & bits::PEER_CLOSED != 0;
    }
    if ends {
        let often = Timespec { tv_sec: 0, tv_nsec: END_MS * 1_000_000 };
        limit = Some(limit.map_or(often, |limit| limit.min(often)));
    }
    // SAFETY: both sets have room for `highest + 1` descriptors, and those in them are open, as
    // `Watch` promises.
    let found = unsafe {
        select(highest + 1, Some(&mut sets.read), Some(&mut sets.write), None, limit.as_ref())
    };
    match found {
        Ok(_) => (),
        Err(Errno::INTR) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let readable: Vec<RawFd> = FdSetIter::new(&sets.read).collect();
    let writable: Vec<RawFd> = FdSetIter::new(&sets.write).collect();
    let first = reports.len();
    for watch in &watches.list {
        let mut ready = 0;
        if readable.binary_search(&watch.fd).is_ok() {
            ready |= bits::READ;
        }
        if writable.binary_search(&watch.fd).is_ok() {
            ready |= bits::WRITE;
        }
        if ready != 0 || watch.wants & bits::PEER_CLOSED != 0 {
            reports.push(Report { fd: watch.fd, owner: watch.owner, ready });
        }
    }
    if reports.len() > first {
        add_ends(watches, reports);
        reports.retain(|report| report.ready != 0);
    }
    Ok(())
}

/// Adds to each report whether the peer has sent its end, or the connection is broken.
fn add_ends(watches: &Watches, reports: &mut [Report]) {
    let fds = reports.iter().map(|report| watches.find(report.fd));
    let mut fds: Vec<PollFd<'_>> =
        fds.flatten().map(|w| PollFd::from_borrowed_fd(w.borrow(), PollFlags::RDHUP)).collect();
    if poll(&mut fds, Some(&Timespec::default())).is_ok() {
        for (report, fd) in reports.iter_mut().zip(&fds) {
            report.ready |= ready_bits(fd.revents());
        }
    }
}
