//! DATA frames: of bytes in memory, one for each turn, and of files, as many as one read fills.
//!
//! Frames of files are read to where they are sent from: behind those before them in the output,
//! with gaps for their heads. That page is the same one for all connections as long as clients take
//! what is sent, so that the bytes stay in the nearest cache of the processor.

use http_wire::h2::frame::{FrameHead, HEAD_LEN, flag, kind};
use mem::{Buf, Chain, WIDE_SIZE};
use os::file_parts::Parts;

use super::head;
use super::mux::{Entry, Half, State};
use crate::channel::streams::outgoing::PIECE_MAX;

/// Payloads up to this size are copied behind their head, so that both are one piece.
const COPY_MAX: usize = 4096;

const _: () = assert!(PIECE_MAX + HEAD_LEN <= WIDE_SIZE, "the longest frame of a file fits");

impl Entry {
    /// Whether a part of a file is in front of the queue.
    pub(crate) fn is_file_next(&self) -> bool {
        matches!(self.queue.front(), Some(Buf::File { .. }))
    }

    /// Takes up to `n` bytes off the front of the queue, which are in memory.
    fn front(&mut self, n: usize) -> Chain {
        let memory = self.queue.iter().map_while(Buf::memory).map(<[u8]>::len);
        let there = memory.scan(0, |sum, len| {
            (*sum < n).then(|| {
                *sum += len;
                *sum
            })
        });
        let n = there.last().unwrap_or(0).min(n);
        let all = n as u64 == self.queued;
        if all { self.queue.take() } else { self.queue.split_to(n as u64) }
    }

    /// Whether the response ends with its queue, which is empty, and no trailers follow.
    fn ends_here(&self) -> bool {
        self.ends && self.queue.is_empty() && self.trailers.is_empty()
    }
}

impl State {
    /// Makes a DATA frame of up to `n` bytes in front of a stream's queue, and what follows its
    /// end: says how many they were, and whether that was the end.
    pub fn data_frame(&mut self, i: usize, n: usize) -> (usize, bool) {
        let entry = &mut self.streams[i];
        let part = entry.front(n);
        let n = part.len() as usize;
        entry.queued -= n as u64;
        let ends_here = entry.ends_here();
        if n > 0 || ends_here {
            let flags = if ends_here { flag::END_STREAM } else { 0 };
            self.put_data(i, part, n, flags);
        }
        (n, self.end(i))
    }

    /// Makes DATA frames of up to `part` bytes of the file in front of a stream's queue, `len`
    /// bytes at most in all, as [`State::data_frame`] does. `None`: they have to be fetched.
    pub(crate) fn file_frames(
        &mut self,
        i: usize,
        part: usize,
        len: usize,
    ) -> Option<(usize, bool)> {
        let entry = &mut self.streams[i];
        if entry.unread {
            return None;
        }
        let Some(Buf::File { file, pos, end }) = entry.queue.front() else { return None };
        let part = part.min(PIECE_MAX);
        let len = len.min(usize::try_from(end - pos).unwrap_or(usize::MAX));
        let (mut at, mut read) = (0, None);
        if let Ok(out) = self.output.wide_writer_for(room(part, len)) {
            at = out.len();
            let fits = (out.capacity() - at) / (HEAD_LEN + part) * part;
            let parts = Parts { gap: HEAD_LEN, part, len: len.min(fits.max(part)) };
            // A failure is told by the request, which tries again.
            read = files::parts_now(file, *pos, out, parts, entry.reading.aio_off).unwrap_or(None);
        }
        let Some(n) = read else {
            entry.unread = true;
            if self.out_len == 0 {
                self.output.clear();
            }
            return None;
        };
        entry.queue.advance(n as u64);
        entry.queued -= n as u64;
        self.put_heads(i, at, part, n);
        Some((n, self.end(i)))
    }

    /// Writes the heads of frames whose payloads, `n` bytes, lie in the output already: the first
    /// one at `at` of its last page.
    fn put_heads(&mut self, i: usize, mut at: usize, part: usize, n: usize) {
        let entry = &mut self.streams[i];
        let ends_here = entry.ends_here();
        let out = self.output.writer_for(0);
        let mut left = n;
        while left > 0 {
            let len = left.min(part);
            left -= len;
            let flags = if left == 0 && ends_here { flag::END_STREAM } else { 0 };
            let head = FrameHead { len: len as u32, kind: kind::DATA, flags, stream: entry.id };
            out[at..at + HEAD_LEN].copy_from_slice(&head.bytes());
            at += HEAD_LEN + len;
            entry.framing += HEAD_LEN as u64;
            self.out_len += HEAD_LEN + len;
        }
        entry.send.take(n);
        self.send.take(n);
        self.moved += n as u64;
    }

    /// Ends a stream whose response is made to its end, which may be trailers; says whether it is.
    fn end(&mut self, i: usize) -> bool {
        let entry = &mut self.streams[i];
        let ends = entry.ends && entry.queue.is_empty();
        if ends {
            entry.local = Half::Ended;
            let trailers = std::mem::take(&mut entry.trailers);
            if !trailers.is_empty() {
                head::trailers(self, i, &trailers);
            }
        }
        ends
    }

    /// Puts a DATA frame into the output; the windows have room for it.
    pub(crate) fn put_data(&mut self, i: usize, mut part: Chain, n: usize, flags: u8) {
        let entry = &mut self.streams[i];
        let head = FrameHead { len: n as u32, kind: kind::DATA, flags, stream: entry.id };
        self.out_len += HEAD_LEN + n;
        entry.framing += HEAD_LEN as u64;
        entry.send.take(n);
        self.send.take(n);
        self.moved += n as u64;
        if n > COPY_MAX
            && part.single().is_some()
            && let Some(mut buf) = part.pop_front()
        {
            if let Buf::Page(page) = &mut buf
                && page.prepend(&head.bytes())
            {
                return self.output.push(buf);
            }
            part.push(buf);
        }
        let copied = match part.single() {
            Some(bytes) if bytes.len() <= COPY_MAX => Some(bytes),
            _ => None,
        };
        let w = self.output.writer_for(HEAD_LEN + copied.map_or(0, <[u8]>::len));
        w.extend_from_slice(&head.bytes());
        match copied {
            Some(bytes) => w.extend_from_slice(bytes),
            None => self.output.append(&mut part),
        }
    }
}

/// Room for frames of `part` bytes of payload, `len` bytes in all, as far as a page has it.
fn room(part: usize, len: usize) -> usize {
    Parts { gap: HEAD_LEN, part, len }.room().min(WIDE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::super::priority_tests::{connection, frames, open};
    use super::*;

    /// A file of 100,000 bytes, all of them in memory.
    fn file() -> mem::FileHandle {
        let n = std::process::id();
        let path = std::env::temp_dir().join(format!("weir-h2-frames-{n}-{:p}", &n));
        std::fs::write(&path, [b'x'; 100_000]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::fd::OwnedFd::from(file).into()
    }

    /// A request hands over a range of a file, which ends the response.
    fn give_file(state: &mut State, i: usize, pos: u64, end: u64) {
        let entry = &mut state.streams[i];
        entry.queue.push_file(file(), pos, end);
        entry.queued += end - pos;
        entry.ends = true;
        state.schedule.add(i, entry);
    }

    #[test]
    fn a_file_alone_fills_a_page_with_frames() {
        let mut state = connection();
        let i = open(&mut state, 1, "");
        state.streams[i].chunk = 8192;
        state.control(|w| w.extend_from_slice(&[0; HEAD_LEN]));
        give_file(&mut state, i, 10, 100_000);
        assert!(!state.pump());
        assert!(
            state.output.iter().count() <= 2,
            "what stands before it may have a page of its own"
        );
        let first = frames(&mut state);
        assert_eq!(first[1..], [(1, 8192); 12]);
        assert!(!state.pump());
        assert_eq!(frames(&mut state), [(1, 1686)]);
        assert!(state.streams[i].framing == 13 * HEAD_LEN as u64 && state.schedule.is_empty());
        assert_eq!(state.streams[i].local, Half::Ended);
    }

    #[test]
    fn files_that_take_turns_send_a_little_each() {
        for (priority, frames_of_turn) in [("", 4), ("u=3, i", 2)] {
            let mut state = connection();
            for id in [1, 3] {
                let i = open(&mut state, id, priority);
                state.streams[i].chunk = 8192;
                give_file(&mut state, i, 0, 40_000);
            }
            let turn = |id: u32| vec![(id, 8192); frames_of_turn];
            assert!(!state.pump());
            let turns = [turn(1), turn(3)].concat().repeat(4 / frames_of_turn);
            assert_eq!(frames(&mut state), [&turns[..], &[(1, 7232), (3, 7232)]].concat());
        }
    }

    #[test]
    fn a_file_is_sent_as_far_as_windows_allow() {
        let mut state = connection();
        state.peer.window = 10_000;
        let i = open(&mut state, 1, "u=1");
        state.streams[i].chunk = 8192;
        give_file(&mut state, i, 0, 20_000);
        assert!(!state.pump());
        assert_eq!(frames(&mut state), [(1, 8192), (1, 1808)]);
        state.streams[i].send.add(1 << 20).unwrap();
        state.may_send(i);
        assert!(!state.pump());
        assert_eq!(frames(&mut state), [(1, 8192), (1, 1808)]);
    }
}
