//! The floor for passing on over HTTP/2: as `floor`, but its clients speak HTTP/2 by prior
//! knowledge. One thread, one epoll, the same response of 1 KB for each request without a body.
//! What one receive brings is answered in one send. It reads frames' heads, the windows and the
//! table size that the client allows, and none of the fields.
//!
//! `floor_h2 PORT`

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use bare::h2::{HEAD_LEN, PREFACE, word, write_head};
use bare::{Bare, Connections, Outcome};
use rustix::buffer::spare_capacity;

const BODY: usize = 1024;
/// The window of a connection before the client opens it further.
const INITIAL_WINDOW: i64 = 65_535;

/// `:status: 200`, and `server`, `content-type` and `content-length` put into the table.
const FIRST: &[u8] = b"\x88\x76\x05floor\x5f\x0atext/plain\x5c\x041024";
/// The same fields from the table.
const NEXT: &[u8] = b"\x88\xc0\xbf\xbe";
/// The same without a table, behind the word that it has no room (RFC 7541 section 6.3).
const WITHOUT_TABLE: &[u8] = b"\x20\x88\x0f\x27\x05floor\x0f\x10\x0atext/plain\x0f\x0d\x041024";

fn main() -> ExitCode {
    bare::run("floor_h2 PORT", |arguments| {
        let port = arguments.first()?.parse().ok()?;
        Some(bare::serve(port, &mut Floor { frames: Vec::new() }))
    })
}

/// What is kept of a connection.
struct Own {
    has_preface: bool,
    has_table: bool,
    answered: bool,
    window: i64,
    received: Vec<u8>,
    /// Streams that wait for the connection's window.
    waiting: VecDeque<u32>,
}

struct Floor {
    /// What a turn sends.
    frames: Vec<u8>,
}

impl Bare for Floor {
    type Own = Own;

    fn accepted(&mut self, client: OwnedFd, all: &mut Connections<Own>) -> Outcome {
        let own = Own {
            has_preface: false,
            has_table: true,
            answered: false,
            window: INITIAL_WINDOW,
            received: Vec::with_capacity(64 << 10),
            waiting: VecDeque::new(),
        };
        let index = all.add(client, own)?;
        // Our parameters: the usual ones.
        self.frames.clear();
        write_head(&mut self.frames, 0, 4, 0, 0);
        all.get(index).map(|c| c.send(&self.frames));
        Ok(())
    }

    /// Receives and answers until nothing is there.
    fn readable(&mut self, index: usize, all: &mut Connections<Own>) -> bool {
        let Some(c) = all.get(index) else { return false };
        loop {
            let room = c.own.received.capacity() - c.own.received.len();
            let received = spare_capacity(&mut c.own.received);
            let Some(came) = bare::receive(&c.fd, received) else { return false };
            self.frames.clear();
            if frames(&mut c.own, &mut self.frames).is_none()
                || !self.frames.is_empty() && !c.send(&self.frames)
            {
                return false;
            }
            // Less than there was room for: all of it.
            if came < room {
                return true;
            }
        }
    }
}

/// Takes whole frames.
fn frames(c: &mut Own, out: &mut Vec<u8>) -> Option<()> {
    let mut used = 0;
    if !c.has_preface {
        if c.received.len() < PREFACE.len() {
            return Some(());
        }
        if !c.received.starts_with(PREFACE) {
            return None;
        }
        (c.has_preface, used) = (true, PREFACE.len());
    }
    let received = std::mem::take(&mut c.received);
    while let Some(head) = received[used..].first_chunk::<HEAD_LEN>() {
        let len = word(&head[..3]) as usize;
        let Some(payload) = received.get(used + HEAD_LEN..used + HEAD_LEN + len) else { break };
        let (flags, stream) = (head[4], word(&head[5..]) & 0x7fff_ffff);
        match head[3] {
            // HEADERS; it answers no request with a body.
            1 if flags & 1 == 0 => return None,
            1 => c.waiting.push_back(stream),
            4 if flags & 1 == 0 => {
                let mut all = payload.chunks_exact(6).map(|s| (word(&s[..2]), word(&s[2..])));
                c.has_table &= !all.any(|(id, value)| id == 1 && value < 4096);
                write_head(out, 0, 4, 1, 0);
            }
            6 if flags & 1 == 0 => {
                write_head(out, len, 6, 1, 0);
                out.extend_from_slice(payload);
            }
            7 => return None,
            8 if stream == 0 => c.window += i64::from(word(payload)),
            _ => {}
        }
        used += HEAD_LEN + len;
    }
    c.received = received;
    c.received.drain(..used);
    while c.window >= BODY as i64
        && let Some(stream) = c.waiting.pop_front()
    {
        c.window -= BODY as i64;
        let block = match (c.has_table, std::mem::replace(&mut c.answered, true)) {
            (true, true) => NEXT,
            (true, false) => FIRST,
            (false, true) => &WITHOUT_TABLE[1..],
            (false, false) => WITHOUT_TABLE,
        };
        write_head(out, block.len(), 1, 4, stream);
        out.extend_from_slice(block);
        write_head(out, BODY, 0, 1, stream);
        out.resize(out.len() + BODY, b'x');
    }
    Some(())
}
