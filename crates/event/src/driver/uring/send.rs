//! Sends and reads: the memory of ours that the kernel uses besides the bytes themselves.

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::RawFd;
use std::rc::Rc;

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use mem::Chain;

use crate::state::flights::Reading;

/// Pieces that one send takes at most.
pub(crate) const PIECES: usize = 16;

/// A send of several pieces.
struct Message {
    header: libc::msghdr,
    pieces: [libc::iovec; PIECES],
}

/// The memory of the sends and reads in the kernel.
#[derive(Default)]
pub(super) struct Messages {
    /// The sends and reads under way, by slot.
    list: Vec<Sending>,
    /// Kept for their memory.
    #[expect(clippy::vec_box, reason = "the kernel has their addresses")]
    spare: Vec<Box<Message>>,
    flying: usize,
}

#[derive(Default)]
enum Sending {
    #[default]
    Nothing,
    /// One piece needs no message.
    Piece,
    Message(Box<Message>),
    /// Not a send: the memory of a read.
    Read(Rc<Reading>),
}

impl Messages {
    /// The entry that sends `range` of `chain`, or the part of it in the first pieces. The memory
    /// it points to stays in place until [`Messages::done`], except for the chain's.
    pub(super) fn prepare(
        &mut self,
        slot: u32,
        fd: RawFd,
        chain: &Chain,
        range: Range<usize>,
    ) -> Entry {
        // Memory before a file is sent elsewhere.
        let more = chain.leading_memory().0 > PIECES;
        self.entry(slot, fd, chain, range, if more { libc::MSG_MORE } else { 0 })
    }

    /// [`Messages::prepare`] for all of a chain of [`PIECES`] pieces at most.
    pub(super) fn prepare_whole(
        &mut self,
        slot: u32,
        fd: RawFd,
        chain: &Chain,
        range: Range<usize>,
    ) -> Entry {
        self.entry(slot, fd, chain, range, libc::MSG_WAITALL)
    }

    fn entry(
        &mut self,
        slot: u32,
        fd: RawFd,
        chain: &Chain,
        range: Range<usize>,
        flags: libc::c_int,
    ) -> Entry {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let (count, bytes) = chain.slices(&mut slices, range.end);
        let mut flags = flags | libc::MSG_NOSIGNAL;
        if bytes == range.end {
            // The limit holds the following bytes back: they need not leave with these.
            flags &= !libc::MSG_MORE;
        }
        let mut slices = &mut slices[..count];
        IoSlice::advance_slices(&mut slices, range.start.min(bytes));
        let fd = types::Fd(fd);
        let (sending, entry) = match &*slices {
            [] => (Sending::Piece, opcode::Nop::new().build()),
            [piece] => {
                let send = opcode::Send::new(fd, piece.as_ptr(), piece.len() as u32);
                (Sending::Piece, send.flags(flags).build())
            }
            many => {
                let message = self.message(many);
                let send = opcode::SendMsg::new(fd, &raw const message.header);
                let entry = send.flags(flags as u32).build();
                (Sending::Message(message), entry)
            }
        };
        self.keep(slot, sending);
        entry
    }

    /// Keeps the memory of `slot`'s read until [`Messages::done`].
    pub(super) fn hold(&mut self, slot: u32, reading: Rc<Reading>) {
        self.keep(slot, Sending::Read(reading));
    }

    fn keep(&mut self, slot: u32, sending: Sending) {
        let at = slot as usize;
        if self.list.len() <= at {
            self.list.resize_with(at + 1, Sending::default);
        }
        self.list[at] = sending;
        self.flying += 1;
    }

    /// Leaks the memory of the reads in the kernel. Returns their number.
    pub(super) fn let_go_of_reads(&mut self) -> usize {
        let reads = self.list.iter().filter_map(|sending| match sending {
            Sending::Read(reading) => Some(reading.clone()),
            _ => None,
        });
        reads.map(std::mem::forget).count()
    }

    fn message(&mut self, slices: &[IoSlice<'_>]) -> Box<Message> {
        let mut message = self.spare.pop().unwrap_or_else(|| {
            // SAFETY: zeros are a message without address, pieces and control data.
            unsafe { Box::new(std::mem::zeroed()) }
        });
        for (piece, slice) in message.pieces.iter_mut().zip(slices) {
            piece.iov_base = slice.as_ptr().cast_mut().cast();
            piece.iov_len = slice.len();
        }
        message.header.msg_iov = message.pieces.as_mut_ptr();
        message.header.msg_iovlen = slices.len() as _;
        message
    }

    /// The kernel is done with the send of `slot`.
    pub(super) fn done(&mut self, slot: u32) {
        let Some(sending) = self.list.get_mut(slot as usize) else { return };
        match std::mem::take(sending) {
            Sending::Nothing => return,
            Sending::Piece | Sending::Read(_) => (),
            Sending::Message(message) => self.spare.push(message),
        }
        self.flying -= 1;
    }

    /// Sends and reads that are with the kernel.
    pub(super) fn flying(&self) -> usize {
        self.flying
    }

    /// Their slots.
    pub(super) fn slots(&self) -> Vec<u32> {
        let flying = self.list.iter().enumerate().filter(|(_, s)| !matches!(s, Sending::Nothing));
        flying.map(|(slot, _)| slot as u32).collect()
    }
}
