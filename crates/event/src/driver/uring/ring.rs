//! The ring itself: its setup with the features that this kernel has, and the one call that submits
//! and waits.

use std::io;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use rustix::io::Errno;

/// Entries of the submission queue; when it is full, it is submitted at once.
const ENTRIES: u32 = 1024;

/// Entries of the completion queue, more than one turn brings; the kernel keeps those beyond.
const COMPLETIONS: u32 = 4096;

/// Threads of the kernel's that may wait for disks at once.
const READERS: u32 = 32;

/// Bits of io_uring_enter(2).
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 8;

/// Of the kernel's, in the place of an entry that other operations use for a priority: wait for
/// readiness first, because a first attempt would find nothing.
const RECVSEND_POLL_FIRST: u16 = 1;

#[derive(Clone, Copy)]
pub(super) struct Completion {
    pub(super) token: u64,
    pub(super) result: i32,
    pub(super) flags: u32,
}

impl Completion {
    /// The bytes, or the error.
    pub(super) fn outcome(&self) -> io::Result<usize> {
        usize::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }

    pub(super) fn is(&self, errno: Errno) -> bool {
        self.result == -errno.raw_os_error()
    }

    /// Whether the operation continues, and will complete again.
    pub(super) fn goes_on(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// There may be more to receive.
    pub(super) fn nonempty(&self) -> bool {
        cqueue::sock_nonempty(self.flags)
    }

    /// The number of the provided buffer that was filled.
    pub(super) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

pub(super) struct Ring {
    ring: IoUring,
    /// `IORING_SETUP_DEFER_TASKRUN`: completions are made in [`Ring::enter`], and nowhere else.
    pub(super) deferred: bool,
    /// Operations can be set to report failures only; since Linux 5.17.
    pub(super) skips: bool,
}

impl Ring {
    /// Makes a ring.
    ///
    /// # Errors
    /// The kernel's; `Unsupported` when it is too old for waits with a timeout (5.11).
    pub(super) fn new() -> io::Result<Ring> {
        let (ring, deferred) = build()?;
        let params = ring.params();
        if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::PollAdd::CODE,
            opcode::Accept::CODE,
            opcode::Send::CODE,
            opcode::SendMsg::CODE,
            opcode::Recv::CODE,
            opcode::Read::CODE,
            opcode::AsyncCancel::CODE,
            opcode::Close::CODE,
        ];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // As many as the default pool has; the kernel's own limit is a few for each processor.
        let _ = ring.submitter().register_iowq_max_workers(&mut [READERS, 0]);
        let skips = params.is_feature_skip_cqe_on_success();
        Ok(Ring { ring, deferred, skips })
    }

    /// The crate's ring, to register buffers with.
    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    /// Queues an operation; it begins with the next [`Ring::enter`].
    ///
    /// # Safety
    /// The memory that the entry points to stays in place, and is used by nothing else, until the
    /// operation's last completion.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: as the caller promises.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            // Full: the queue is submitted now, and the wait submits the rest.
            self.enter(false, Some(0))?;
        }
    }

    /// Submits the queue, and waits for a completion unless there is one: for `timeout_ms` at most,
    /// or without a limit. A signal ends the wait.
    pub(super) fn enter(&mut self, wait: bool, timeout_ms: Option<u64>) -> io::Result<()> {
        let queued = self.ring.submission().len() as u32;
        let wait = wait && timeout_ms != Some(0) && self.ring.completion().is_empty();
        let timeout = timeout_ms
            .map(|ms| Timespec::new().sec(ms / 1000).nsec((ms % 1000) as u32 * 1_000_000));
        let mut args = SubmitArgs::new();
        if wait && let Some(timeout) = &timeout {
            args = args.timespec(timeout);
        }
        let flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
        // SAFETY: the arguments live through the call, and their size goes with them; callers of
        // `push` vouch for the memory that the queued entries point to.
        let entered =
            unsafe { self.ring.submitter().enter(queued, u32::from(wait), flags, Some(&args)) };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                // The time is over, a signal came, or completions must be taken first.
                Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes the completions with those that had no room in the queue.
    pub(super) fn collect_all(&mut self, into: &mut Vec<Completion>) -> io::Result<()> {
        loop {
            self.collect(into);
            if !self.ring.submission().cq_overflow() {
                return Ok(());
            }
            self.enter(false, Some(0))?;
        }
    }

    /// Takes the completions. Their entries are the kernel's again afterwards.
    pub(super) fn collect(&mut self, into: &mut Vec<Completion>) {
        into.extend(self.ring.completion().map(|entry| Completion {
            token: entry.user_data(),
            result: entry.result(),
            flags: entry.flags(),
        }));
    }
}

/// Makes a ring with all features, or with fewer and fewer of them.
fn build() -> io::Result<(IoUring, bool)> {
    let mut last = io::ErrorKind::Unsupported.into();
    for step in 0..4 {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(COMPLETIONS).dontfork();
        match step {
            // Since Linux 6.6, and 6.1.
            0 => builder.setup_single_issuer().setup_defer_taskrun().setup_no_sqarray(),
            1 => builder.setup_single_issuer().setup_defer_taskrun(),
            // Since 5.19.
            2 => builder.setup_coop_taskrun(),
            _ => &mut builder,
        };
        if step < 3 {
            builder.setup_submit_all();
        }
        match builder.build(ENTRIES) {
            Ok(ring) => return Ok((ring, step < 2)),
            Err(error) => last = error,
        }
        if Errno::from_io_error(&last) != Some(Errno::INVAL) {
            break;
        }
    }
    Err(last)
}

/// Makes a recv or send wait for readiness before its first attempt.
pub(super) fn poll_first(entry: squeue::Entry) -> squeue::Entry {
    const { assert!(size_of::<squeue::Entry>() == 64) };
    let mut entry = entry;
    // SAFETY: an entry is the kernel's `struct io_uring_sqe`, whose `ioprio` is the 16-bit word
    // at its third byte; the entry is aligned to more than two bytes, and is ours.
    unsafe { *(&raw mut entry).cast::<u16>().add(1) |= RECVSEND_POLL_FIRST };
    entry
}
