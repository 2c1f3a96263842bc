//! Heartbeats of processes that share listening sockets, and a program in the kernel that gives new
//! connections to the processes that are alive.
//!
//! Each process writes the time into a word of its own, some tens of times a second. A stuck
//! process does not, and once its word is old, connections go to the others. Where bpf(2) is
//! allowed, the words lie in a map of the kernel's, which the program reads; elsewhere in plain
//! shared memory, which only the processes themselves read.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};

use crate::bpf::{self, Step, step};
use crate::map::SharedMap;

/// The time the kernel may take to release the sockets of a program that was detached.
const LET_GO: Duration = Duration::from_millis(500);

/// The heartbeats of a number of processes, shared by all that are forked later.
#[derive(Debug)]
pub struct Heartbeats {
    words: Words,
    count: u32,
}

#[derive(Debug)]
enum Words {
    /// Memory of the kernel's map, and the map.
    Map {
        start: NonNull<u8>,
        len: usize,
        map: OwnedFd,
    },
    Memory(SharedMap),
}

/// Nanoseconds on the clock of the kernel's programs.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Heartbeats {
    /// Words for `count` processes, none with a heartbeat yet.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(count: u32) -> io::Result<Heartbeats> {
        let count = count.max(1);
        let words = match Words::map(count) {
            Ok(words) => words,
            // Not allowed here, or an old kernel.
            Err(_) => Words::Memory(SharedMap::new(count as usize * 8)?),
        };
        Ok(Heartbeats { words, count })
    }

    fn words(&self) -> &[AtomicU64] {
        let start = match &self.words {
            Words::Map { start, .. } => *start,
            Words::Memory(memory) => memory.as_ptr(),
        };
        // SAFETY: the memory has `count` words or more, is mapped as long as `self` lives, and is
        // aligned to a page; others only write atomically, and any bits are values.
        unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), self.count as usize) }
    }

    /// The number of processes there is room for.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Records a heartbeat of process `index`.
    pub fn beat(&self, index: usize) {
        self.set(index, now_ns());
    }

    /// Records a heartbeat as if it had come `offset_ms` after this moment, before it where that is
    /// negative. For tests, because a process is then silent for as long as they say, whatever the
    /// scheduler does.
    pub fn beat_at(&self, index: usize, offset_ms: i64) {
        self.set(index, now_ns().saturating_add_signed(offset_ms * 1_000_000).max(1));
    }

    fn set(&self, index: usize, ns: u64) {
        if let Some(word) = self.words().get(index) {
            word.store(ns, Ordering::Relaxed);
        }
    }

    /// Whether the last heartbeat of process `index` is older than `ms`. Not so before its first
    /// one.
    pub fn is_stuck(&self, index: usize, ms: u64) -> bool {
        let beat = self.words().get(index).map_or(0, |word| word.load(Ordering::Relaxed));
        beat != 0 && beat + ms * 1_000_000 < now_ns()
    }

    /// Makes the kernel give new connections of a `SO_REUSEPORT` group to its first sockets, number
    /// N of which belongs to process N, except to processes whose last heartbeat is older than `ms`
    /// (two seconds at most). While all are, the kernel chooses as usual.
    ///
    /// # Errors
    /// Usually for want of permission. The group is then as the kernel makes it.
    pub fn steer(&self, sockets: &[BorrowedFd<'_>], ms: u32) -> io::Result<()> {
        let Words::Map { map, .. } = &self.words else {
            return Err(io::ErrorKind::PermissionDenied.into());
        };
        let Some(first) = sockets.first().filter(|_| sockets.len() <= self.count()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        crate::socket::unlimit_reuseport_group(first)?;
        let began = Instant::now();
        let array = loop {
            match bpf::socket_array(sockets) {
                // A socket can be in one such map only; the map of a detached program releases its
                // sockets a moment later.
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < LET_GO => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                made => break made?,
            }
        };
        let steps = program(sockets.len() as i32, ms, map.as_raw_fd(), array.as_raw_fd());
        bpf::attach_reuseport(first.as_fd(), &bpf::load_reuseport(&steps)?)
    }
}

impl Words {
    fn map(count: u32) -> io::Result<Words> {
        let map = bpf::array(count)?;
        let len = (count as usize * 8).next_multiple_of(crate::limits::page_size());
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, &map, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Words::Map { start, len, map })
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if let Words::Map { start, len, .. } = self {
            // SAFETY: mapped by `map` with this length; `Heartbeats::words` borrows from its owner.
            let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), *len) };
        }
    }
}

/// The program for `count` processes:
///
/// ```text
/// old = now - limit
/// i = hash * count >> 32
/// repeat count times:
///     if words[i] > old and sockets[i] can be had: give it the connection, and end
///     i = (i + 1) % count
/// let the kernel choose
/// ```
fn program(count: i32, limit_ms: u32, words: i32, sockets: i32) -> Vec<Step> {
    /// `struct sk_reuseport_md`.
    const HASH: i16 = 32;
    const MAP_LOOKUP_ELEM: i32 = 1;
    const KTIME_GET_NS: i32 = 5;
    const SK_SELECT_REUSEPORT: i32 = 82;
    const SK_PASS: i32 = 1;
    // The context, the index under test, the oldest good time, the number of indices seen.
    const CONTEXT: u8 = 6;
    const AT: u8 = 7;
    const OLD: u8 = 8;
    const SEEN: u8 = 9;
    const FRAME: u8 = 10;
    let limit_ns = i32::try_from(u64::from(limit_ms) * 1_000_000).unwrap_or(i32::MAX);
    let [words_low, words_high] = step::map(1, words);
    let [sockets_low, sockets_high] = step::map(2, sockets);
    vec![
        step::copy(CONTEXT, 1),
        step::call(KTIME_GET_NS),
        step::copy(OLD, 0),
        step::add(OLD, -limit_ns),
        step::load_word(AT, CONTEXT, HASH),
        step::multiply(AT, count),
        step::shift_right(AT, 32),
        step::set(SEEN, 0),
        // The loop's begin:
        step::store_word(FRAME, -4, AT),
        words_low,
        words_high,
        step::copy(2, FRAME),
        step::add(2, -4),
        step::call(MAP_LOOKUP_ELEM),
        step::jump_if_equal(0, 0, 10),
        step::load_double(1, 0, 0),
        step::jump_unless_above(1, OLD, 8),
        step::copy(1, CONTEXT),
        sockets_low,
        sockets_high,
        step::copy(3, FRAME),
        step::add(3, -4),
        step::set(4, 0),
        step::call(SK_SELECT_REUSEPORT),
        step::jump_if_equal(0, 0, 5),
        // The next index:
        step::add(AT, 1),
        step::jump_if_below(AT, count, 1),
        step::set(AT, 0),
        step::add(SEEN, 1),
        step::jump_if_below(SEEN, count, -22),
        step::set(0, SK_PASS),
        step::exit(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SockAddr;
    use crate::socket::{self, Kind};

    fn group(count: usize) -> (Vec<OwnedFd>, SockAddr) {
        let mut addr = SockAddr::ip(std::net::Ipv4Addr::LOCALHOST.into(), 0);
        let mut all = Vec::new();
        for _ in 0..count {
            let fd = socket::socket(&addr, Kind::Stream).unwrap();
            socket::set_reuseport(&fd, true).unwrap();
            socket::bind(&fd, &addr).unwrap();
            socket::listen(&fd, 1024).unwrap();
            addr = socket::local_addr(&fd).unwrap();
            all.push(fd);
        }
        (all, addr)
    }

    fn connect(addr: &SockAddr, count: usize) -> Vec<std::net::TcpStream> {
        (0..count).map(|_| std::net::TcpStream::connect(addr.to_string()).unwrap()).collect()
    }

    fn waiting(group: &[OwnedFd]) -> Vec<u32> {
        group.iter().map(|fd| socket::accept_queue(fd).unwrap().0).collect()
    }

    #[test]
    fn silence_is_noticed() {
        let heartbeats = Heartbeats::new(3).unwrap();
        assert!(!heartbeats.is_stuck(1, 5) && !heartbeats.is_stuck(99, 5));
        // The limits are far from the time that this test takes, be the machine ever so busy.
        heartbeats.beat(1);
        assert!(!heartbeats.is_stuck(1, 3_600_000));
        heartbeats.beat_at(1, -1010);
        assert!(heartbeats.is_stuck(1, 1000) && !heartbeats.is_stuck(0, 1000));
        heartbeats.beat(1);
        assert!(!heartbeats.is_stuck(1, 3_600_000));
        heartbeats.beat(99);
    }

    #[test]
    fn connections_go_to_the_living() {
        let heartbeats = Heartbeats::new(8).unwrap();
        let (fds, addr) = group(3);
        let sockets: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if let Err(e) = heartbeats.steer(&sockets, 10_000) {
            let denied = e.kind() == io::ErrorKind::PermissionDenied;
            assert!(denied, "steering: {e}");
            // Not allowed here: the group works as without.
            assert_eq!(connect(&addr, 6).len(), 6);
            return;
        }
        // No process has a heartbeat: the kernel chooses.
        let mut clients = connect(&addr, 24);
        let before = waiting(&fds);
        assert_eq!(before.iter().sum::<u32>(), 24);
        for alive in 0..3 {
            let before = waiting(&fds);
            let now = now_ns();
            for (index, word) in heartbeats.words().iter().enumerate() {
                word.store(if index == alive { now } else { 1 }, Ordering::Relaxed);
            }
            clients.append(&mut connect(&addr, 8));
            let mut expected = before;
            expected[alive] += 8;
            assert_eq!(waiting(&fds), expected);
        }
        // All are alive: each gets some.
        for index in 0..3 {
            heartbeats.beat(index);
        }
        let before = waiting(&fds);
        clients.append(&mut connect(&addr, 48));
        let after = waiting(&fds);
        assert!(before.iter().zip(&after).all(|(before, after)| after > before), "{after:?}");
        // Fewer sockets, with a program of their own; then none.
        heartbeats.steer(&sockets[..2], 10_000).unwrap();
        let before = waiting(&fds)[2];
        clients.append(&mut connect(&addr, 24));
        assert_eq!(waiting(&fds)[2], before);
        socket::unlimit_reuseport_group(&fds[0]).unwrap();
        clients.append(&mut connect(&addr, 48));
        assert!(waiting(&fds)[2] > before);
    }

    #[test]
    fn a_large_group_is_steered_too() {
        let heartbeats = Heartbeats::new(256).unwrap();
        let (fds, addr) = group(64);
        let sockets: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        match heartbeats.steer(&sockets, 10_000) {
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::PermissionDenied, "{e}"),
            Ok(()) => {
                heartbeats.beat(63);
                let _clients = connect(&addr, 20);
                assert_eq!(waiting(&fds)[63], 20);
            }
        }
    }

    #[test]
    fn jumps_stay_inside_and_meet_whole_steps() {
        assert_eq!(size_of::<Step>(), 8);
        let steps = program(4, 30, 5, 6);
        let second_halves: Vec<usize> =
            (0..steps.len()).filter(|&at| steps[at] == step::map(1, 0)[1]).collect();
        assert_eq!(second_halves.len(), 2);
        let targets: Vec<usize> = (0..)
            .zip(&steps)
            .filter_map(|(at, step)| (at + 1isize).checked_add(isize::from(step.jump()?)))
            .map(|target| usize::try_from(target).unwrap())
            .collect();
        assert_eq!(targets.len(), 5);
        assert!(targets.iter().all(|to| *to < steps.len() && !second_halves.contains(to)));
    }
}
