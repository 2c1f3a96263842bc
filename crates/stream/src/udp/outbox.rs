//! Answers to clients, sent together: those of one turn of the worker's table, in one call per
//! socket for as many clients as possible. Empty whenever the task waits.

use std::io;
use std::rc::Rc;

use os::datagram::{self, Outgoing, SEND_MAX};

use super::client::Client;
use super::datagrams::{joined, may_follow, send};

/// The size at which the outbox is full, in bytes.
const BYTES_MAX: usize = 65536;

/// Datagrams for one client, sent in one call.
struct Answer {
    client: Rc<Client>,
    /// The range of their bytes in the buffer.
    start: usize,
    end: usize,
    /// The length of each except the last; never 0.
    segment: usize,
}

impl Answer {
    /// Whether datagrams of this client and length can be appended.
    fn takes(&self, client: &Rc<Client>, bytes: usize, segment: usize) -> bool {
        let held = self.end - self.start;
        Rc::ptr_eq(&self.client, client) && may_follow(held, self.segment, bytes, segment)
    }
}

/// The queue of answers; see the module.
#[derive(Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    answers: Vec<Answer>,
}

impl Outbox {
    /// Adds datagrams of `segment` bytes each.
    pub fn push(&mut self, client: &Rc<Client>, bytes: &[u8], segment: usize) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len();
        match self.answers.last_mut() {
            Some(last) if last.takes(client, bytes.len(), segment) => last.end = end,
            _ => self.answers.push(Answer { client: client.clone(), start, end, segment }),
        }
    }

    /// Whether to flush before adding more.
    pub fn is_full(&self) -> bool {
        self.answers.len() >= SEND_MAX || self.bytes.len() >= BYTES_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Sends everything. Calls `failed` for each error with the number of unsent bytes.
    pub fn flush(&mut self, mut failed: impl FnMut(&Rc<Client>, usize, io::Error)) {
        let mut rest = &self.answers[..];
        while let Some(first) = rest.first() {
            let together = rest.iter().take_while(|a| a.client.shares_socket(&first.client));
            let sent = match together.clone().nth(1) {
                Some(_) => self.send_some(together),
                // A single datagram is cheaper without batching.
                None => self.send_one(first).map(|()| 1),
            };
            let sent = sent.unwrap_or_else(|e| {
                // The joined datagrams of this client may be the problem: send them one by one.
                let is_joined = joined(first.end - first.start, first.segment).is_some();
                let again = is_joined && e.kind() != io::ErrorKind::WouldBlock;
                if let Err(e) = if again { self.send_one(first) } else { Err(e) } {
                    failed(&first.client, first.end - first.start, e);
                }
                1
            });
            rest = &rest[sent.clamp(1, rest.len())..];
        }
        self.answers.clear();
        self.bytes.clear();
    }

    /// Sends the first answers, all over one socket; returns the number sent.
    fn send_some<'a>(&'a self, all: impl Iterator<Item = &'a Answer> + Clone) -> io::Result<usize> {
        let Some(fd) = all.clone().next().and_then(|first| first.client.socket()) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let outgoing = all.map(|answer| {
            let key = answer.client.key();
            let bytes = self.bytes_of(answer);
            let segment = joined(bytes.len(), answer.segment);
            Outgoing { bytes, to: key.peer(), from: key.local, segment, ecn: 0 }
        });
        datagram::send_batch(fd, outgoing)
    }

    fn send_one(&self, answer: &Answer) -> io::Result<()> {
        let Some(fd) = answer.client.socket() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let key = answer.client.key();
        send(fd, self.bytes_of(answer), answer.segment, Some(&key.peer()), key.local)
    }

    fn bytes_of(&self, answer: &Answer) -> &[u8] {
        self.bytes.get(answer.start..answer.end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_one_length_leave_in_one_call() {
        let [one, two] = [0; 2].map(|_| Rc::new(Client::for_test(0, false)));
        let mut outbox = Outbox::default();
        assert!(outbox.is_empty());
        let pushed: [(&Rc<Client>, &[u8], usize); 9] = [
            (&one, b"aa", 2),
            (&one, b"bbccd", 2),
            // Behind a shorter one there is no other.
            (&one, b"ee", 2),
            (&two, b"ff", 2),
            (&two, b"", 1),
            (&two, b"", 1),
            (&two, b"gg", 2),
            (&two, b"hhh", 3),
            (&two, b"iij", 2),
        ];
        for (client, bytes, segment) in pushed {
            outbox.push(client, bytes, segment);
        }
        let texts: Vec<_> = outbox.answers.iter().map(|answer| outbox.bytes_of(answer)).collect();
        let wanted: [&[u8]; 8] = [b"aabbccd", b"ee", b"ff", b"", b"", b"gg", b"hhh", b"iij"];
        assert_eq!(texts, wanted);
        // Clients of tests have no socket: each answer is lost for itself.
        let mut lost = Vec::new();
        outbox.flush(|client, bytes, e| {
            assert_eq!(e.kind(), io::ErrorKind::NotConnected);
            lost.push((Rc::ptr_eq(client, &one), bytes));
        });
        let of = |i: usize| (i < 2, wanted[i].len());
        assert_eq!(lost, [0, 1, 2, 3, 4, 5, 6, 7].map(of));
        assert!(outbox.is_empty());
    }

    #[test]
    fn it_is_full_by_number_and_by_size() {
        let client = Rc::new(Client::for_test(0, false));
        let mut outbox = Outbox::default();
        for _ in 0..SEND_MAX {
            assert!(!outbox.is_full());
            outbox.push(&client, b"", 1);
        }
        assert!(outbox.is_full());
        outbox.flush(|_, _, _| {});
        assert!(!outbox.is_full());
        outbox.push(&client, &[0; BYTES_MAX - 1], 1000);
        assert!(!outbox.is_full());
        outbox.push(&client, b"x", 1);
        assert!(outbox.is_full());
    }
}
