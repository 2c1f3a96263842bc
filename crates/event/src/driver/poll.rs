//! poll(2).

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::level::{Report, Watches};
use crate::state::socks::bits;

/// Waits, and appends the events.
pub(super) fn wait(
    watches: &Watches,
    limit: Option<Timespec>,
    reports: &mut Vec<Report>,
) -> io::Result<()> {
    // The kernel looks at every descriptor; that the list is made anew is the smaller part.
    let mut fds: Vec<PollFd<'_>> = watches
        .list
        .iter()
        .map(|watch| PollFd::from_borrowed_fd(watch.borrow(), flags(watch.wants)))
        .collect();
    let mut left = match poll(&mut fds, limit.as_ref()) {
        Ok(count) => count,
        // A signal: the turn ends without events, and the owner of the signal's flag looks at it.
        Err(Errno::INTR) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for (fd, watch) in fds.iter().zip(&watches.list) {
        if left == 0 {
            break;
        }
        if !fd.revents().is_empty() {
            left -= 1;
            let ready = ready_bits(fd.revents());
            reports.push(Report { fd: watch.fd, owner: watch.owner, ready });
        }
    }
    Ok(())
}

fn flags(wants: u8) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, wants & bits::READ != 0);
    flags.set(PollFlags::OUT, wants & bits::WRITE != 0);
    flags.set(PollFlags::RDHUP, wants & (bits::READ | bits::PEER_CLOSED) != 0);
    flags
}

pub(super) fn ready_bits(found: PollFlags) -> u8 {
    let mut ready = 0;
    if found.intersects(PollFlags::IN) {
        ready |= bits::READ;
    }
    if found.intersects(PollFlags::OUT) {
        ready |= bits::WRITE;
    }
    if found.intersects(PollFlags::RDHUP) {
        ready |= bits::READ | bits::PEER_CLOSED;
    }
    if found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        // The next operation gets the error.
        ready |= bits::READ | bits::WRITE | bits::PEER_CLOSED;
    }
    ready
}
