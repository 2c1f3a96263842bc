//! Heartbeats of workers, and what each of them last did: memory that the master reads
//! (`server::watchdog`) to find a worker whose loop stands still, and to log what holds it up.
//!
//! A worker beats from a task of its loop, so that a beat proves that the loop turns. The worker
//! records what it does with plain stores to a line of shared memory of its own, a few for each
//! request.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use os::SockAddr;
use shm::{Counters, Line};

/// The interval of beats, milliseconds.
pub const BEAT_MS: u64 = 500;

/// The interval while [`Beats::any_stuck`].
pub const BUSY_BEAT_MS: u64 = 50;

/// The fields of a worker's line.
#[derive(Clone, Copy)]
enum Of {
    /// The last beat: its time, and [`RAN_BITS`] of the worker's time on a processor, both in
    /// milliseconds. 0: none yet, or the last one was.
    Beat,
    Phase,
    Connection,
    /// The client's address, as one of IPv6.
    ClientHigh,
    ClientLow,
    /// The name of a module from outside while its code runs, cut to the three words.
    Module,
}

/// Bits of a beat that tell the time on a processor: four hours and a half.
const RAN_BITS: u32 = u64::BITS - base::time::MONOTONIC_BITS;

const MODULE_WORDS: usize = 3;
const MODULE_BYTES: usize = MODULE_WORDS * 8;

/// The part of its work that a worker began last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Doing {
    /// No request yet.
    Nothing,
    /// Looking for the server of a request.
    Head,
    /// The phase of this name.
    PostRead,
    /// The phase of this name.
    ServerRewrite,
    /// The phase of this name.
    Rewrite,
    /// The phase of this name.
    Preaccess,
    /// The phase of this name.
    Access,
    /// The phase of this name.
    Precontent,
    /// The phase of this name.
    Content,
    /// Header filters, body filters and sending.
    Response,
    /// The phase of this name.
    Log,
    /// A session of `stream`.
    Session,
    /// A session of `mail`.
    Mail,
}

impl Doing {
    const ALL: [(Doing, &'static str); 13] = [
        (Doing::Nothing, "no request"),
        (Doing::Head, "the head of a request"),
        (Doing::PostRead, "the post-read phase"),
        (Doing::ServerRewrite, "the server rewrite phase"),
        (Doing::Rewrite, "the rewrite phase"),
        (Doing::Preaccess, "the preaccess phase"),
        (Doing::Access, "the access phase"),
        (Doing::Precontent, "the precontent phase"),
        (Doing::Content, "the content phase"),
        (Doing::Response, "a response"),
        (Doing::Log, "the log phase"),
        (Doing::Session, "a stream session"),
        (Doing::Mail, "a mail session"),
    ];

    fn name(number: u64) -> &'static str {
        let of = |(doing, _): &&(Doing, &str)| *doing as u64 == number;
        Doing::ALL.iter().find(of).map_or("unknown work", |(_, name)| name)
    }
}

/// The lines of all processes: made once by the master, and there as long as it.
pub struct Beats {
    lines: Counters,
    slots: usize,
}

thread_local! {
    /// This worker's line.
    static OWN: Cell<Option<&'static Line>> = const { Cell::new(None) };
    /// The lines of all workers, in a worker.
    static ALL: Cell<Option<&'static Beats>> = const { Cell::new(None) };
}

/// A beat of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat {
    /// Its time on the clock of [`now_ms`].
    pub at_ms: u64,
    ran: u64,
}

impl Beat {
    /// A beat at that moment, of a worker that had `ran_ms` on a processor in all.
    pub fn new(at_ms: u64, ran_ms: u64) -> Beat {
        Beat { at_ms, ran: ran_ms % (1 << RAN_BITS) }
    }

    /// The worker's time on a processor since this beat, milliseconds, where it is `ran_ms` in all.
    pub fn ran_since(self, ran_ms: u64) -> u64 {
        ran_ms.wrapping_sub(self.ran) % (1 << RAN_BITS)
    }
}

/// The last work of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Activity {
    doing: u64,
    connection: u64,
    client: Option<IpAddr>,
    module: String,
}

impl Beats {
    /// A line for each of `slots` processes. The lines live as long as this process.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(slots: usize) -> io::Result<&'static Beats> {
        // One more: the number of workers that stand still, and whether the server ends.
        let lines = Counters::new(slots + 1)?;
        Ok(Box::leak(Box::new(Beats { lines, slots })))
    }

    /// In a worker: its work is written to the line of this slot from now on.
    pub fn begin(&'static self, slot: usize) {
        ALL.set(Some(self));
        OWN.set(Some(self.lines.line(slot.min(self.slots - 1))));
        self.beat();
    }

    /// In a worker: its loop turns.
    pub fn beat(&self) {
        if let Some(line) = OWN.get() {
            let beat = Beat::new(now_ms(), os::clock::thread_usec() / 1000);
            line.set(Of::Beat as usize, beat.at_ms << RAN_BITS | beat.ran);
        }
    }

    /// In a worker: it beats no more, because it ends.
    pub fn end(&self) {
        if let Some(line) = OWN.take() {
            line.set(Of::Beat as usize, 0);
        }
    }

    /// In the master: the line of a process that has ended, or is about to start.
    pub fn clear(&self, slot: usize) {
        self.lines.clear(slot, &[0, 1, 2, 3, 4, 5, 6, 7]);
    }

    /// The last beat of the process; `None` while it does not beat.
    pub fn last(&self, slot: usize) -> Option<Beat> {
        let word = self.lines.line(slot).get(Of::Beat as usize);
        (word != 0).then(|| Beat::new(word >> RAN_BITS, word))
    }

    /// The last work of the process.
    pub fn activity(&self, slot: usize) -> Activity {
        let line = self.lines.line(slot);
        let [high, low] = [Of::ClientHigh, Of::ClientLow].map(|of| line.get(of as usize));
        let client = (high, low) != (0, 0);
        let address = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
        let module: Vec<u8> = (0..MODULE_WORDS)
            .flat_map(|i| line.get(Of::Module as usize + i).to_le_bytes())
            .take_while(|&byte| byte != 0)
            .collect();
        Activity {
            doing: line.get(Of::Phase as usize),
            connection: line.get(Of::Connection as usize),
            client: client.then(|| address.to_canonical()),
            module: String::from_utf8_lossy(&module).into_owned(),
        }
    }

    /// In the master: the number of workers that stand still now, or died a moment ago.
    pub fn set_stuck(&self, count: usize) {
        self.lines.line(self.slots).set(0, count as u64);
    }

    /// In the master: whether the server ends, and no other binary goes on in its place.
    pub fn set_ending(&self, ends: bool) {
        self.lines.line(self.slots).set(1, ends.into());
    }

    /// Whether a worker stands still, or has died a moment ago.
    pub fn any_stuck(&self) -> bool {
        self.lines.line(self.slots).get(0) > 0
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Doing::name(self.doing))?;
        if self.connection != 0 {
            write!(f, " of connection {}", self.connection)?;
        }
        if let Some(client) = self.client {
            write!(f, " from {client}")?;
        }
        if !self.module.is_empty() {
            write!(f, " in module {}", self.module)?;
        }
        Ok(())
    }
}

/// Milliseconds on a clock that all processes share; never 0.
pub fn now_ms() -> u64 {
    (os::clock::monotonic_usec() / 1000).max(1)
}

/// In a worker: whether the server ends, so that no other process takes its connections.
pub fn is_ending() -> bool {
    ALL.get().is_some_and(|beats| beats.lines.line(beats.slots).get(1) > 0)
}

/// In a worker: for how long the loop of the process with that slot has not turned, milliseconds;
/// `None` while it does not beat.
pub fn silent_ms(slot: usize) -> Option<u64> {
    Some(now_ms().saturating_sub(ALL.get()?.last(slot)?.at_ms))
}

/// The worker serves this connection now.
#[inline]
pub fn serves(connection: u64, client: &SockAddr, doing: Doing) {
    if let Some(line) = OWN.get() {
        let [high, low] = match client {
            SockAddr::V4(v4) => [0, 0xffff_0000_0000 | u64::from(u32::from(*v4.ip()))],
            SockAddr::V6(v6) => {
                let bits = u128::from(*v6.ip());
                [(bits >> 64) as u64, bits as u64]
            }
            SockAddr::Unix(_) => [0, 0],
        };
        line.set(Of::Phase as usize, doing as u64);
        line.set(Of::Connection as usize, connection);
        line.set(Of::ClientHigh as usize, high);
        line.set(Of::ClientLow as usize, low);
    }
}

/// The worker has begun this part of its work.
#[inline]
pub fn does(doing: Doing) {
    if let Some(line) = OWN.get() {
        line.set(Of::Phase as usize, doing as u64);
    }
}

/// The module whose code ran before another one's.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outer([u64; MODULE_WORDS]);

/// Code of the module runs now.
pub(crate) fn enter(module: &str) -> Outer {
    let Some(line) = OWN.get() else { return Outer::default() };
    let mut bytes = [0; MODULE_BYTES];
    let len = module.len().min(MODULE_BYTES);
    bytes[..len].copy_from_slice(&module.as_bytes()[..len]);
    let outer = Outer(std::array::from_fn(|i| line.get(Of::Module as usize + i)));
    let (words, _) = bytes.as_chunks::<8>();
    write_module(line, words.iter().map(|word| u64::from_le_bytes(*word)));
    outer
}

/// It has returned.
pub(crate) fn leave(outer: Outer) {
    if let Some(line) = OWN.get() {
        write_module(line, outer.0.into_iter());
    }
}

fn write_module(line: &Line, words: impl Iterator<Item = u64>) {
    for (i, word) in words.enumerate() {
        line.set(Of::Module as usize + i, word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_s_line_is_read_by_another() {
        let beats = Beats::new(4).unwrap();
        assert_eq!(beats.last(2), None);
        does(Doing::Log);
        beats.begin(2);
        let beat = beats.last(2).unwrap();
        assert!(beat.at_ms <= now_ms() && beat.at_ms + 60_000 > now_ms());
        assert!(beat.ran_since(os::clock::thread_usec() / 1000) < 60_000);
        assert_eq!(Beat::new(1, (1 << RAN_BITS) - 5).ran_since(1 << RAN_BITS), 5);
        assert_eq!(beats.activity(2).to_string(), "no request");
        serves(7, &SockAddr::parse(b"192.0.2.1:80").unwrap(), Doing::Head);
        does(Doing::Access);
        let text = "the access phase of connection 7 from 192.0.2.1";
        assert_eq!(beats.activity(2).to_string(), text);
        let outer = enter("outer");
        let inner = enter("a-module-with-a-very-long-name");
        assert!(beats.activity(2).to_string().ends_with(" in module a-module-with-a-very-lon"));
        leave(inner);
        assert_eq!(beats.activity(2).to_string(), format!("{text} in module outer"));
        leave(outer);
        assert_eq!(beats.activity(2).to_string(), text);
        serves(8, &SockAddr::parse(b"[2001:db8::1]:80").unwrap(), Doing::Session);
        assert_eq!(
            beats.activity(2).to_string(),
            "a stream session of connection 8 from 2001:db8::1"
        );
        serves(9, &SockAddr::unix(b"/x").unwrap(), Doing::Content);
        assert_eq!(beats.activity(2).to_string(), "the content phase of connection 9");
        beats.end();
        assert_eq!(beats.last(2), None);
        serves(10, &SockAddr::unix(b"/x").unwrap(), Doing::Content);
        beats.clear(2);
        assert_eq!(beats.activity(2).to_string(), "no request");
        assert_eq!(beats.last(3), None);
    }

    #[test]
    fn the_number_of_those_that_stand_still() {
        let beats = Beats::new(2).unwrap();
        assert!(!beats.any_stuck());
        beats.set_stuck(1);
        assert!(beats.any_stuck() && beats.last(1).is_none());
        beats.set_stuck(0);
        assert!(!beats.any_stuck());
    }

    #[test]
    fn each_work_has_its_number() {
        for (i, (doing, name)) in Doing::ALL.iter().enumerate() {
            assert_eq!((*doing as usize, Doing::name(i as u64)), (i, *name));
        }
        assert_eq!(Doing::name(99), "unknown work");
    }
}
