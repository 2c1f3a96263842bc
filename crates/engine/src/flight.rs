//! The flight recorder: the latest slow or failed requests of all workers.
//!
//! The records are a ring in shared memory (`shm::Latest`) that the master makes and that outlives
//! configurations, like the counters of `stub_status`. Workers write without waiting for each
//! other. A record has a number and a checksum, so that a reader skips one that is being
//! overwritten or whose writer died.
//!
//! In the log phase a request compares the time until its response was ready with the limit. Only a
//! request that was slow or failed is copied; any other costs the comparison.

use std::io;

use base::json::Object;
use base::time::format_utc_ms;
use shm::Latest;

/// The number of requests that are kept.
const RECORDS_MAX: usize = 1024;

/// The attempts of a request that are kept, the last ones.
const TRIES_MAX: usize = 4;

/// The longest texts that are kept, in bytes.
const ADDRESS_MAX: usize = 64;
const METHOD_MAX: usize = 16;
const NAME_MAX: usize = 64;
const HOST_MAX: usize = 96;
const PLACE_MAX: usize = 160;
const TARGET_MAX: usize = 256;

/// More than the longest record: fifteen numbers, eight texts and the attempts.
const RECORD_BYTES: usize = 1400;

/// A request that was slow, or failed.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Its end, milliseconds since 1970.
    pub at_ms: u64,
    /// The worker's process.
    pub pid: u64,
    /// The connection's number, as in the error log.
    pub connection: u64,
    /// The status of the response.
    pub status: u64,
    /// It failed; otherwise it was slow alone.
    pub failed: bool,
    /// Its time, microseconds.
    pub total_us: u64,
    /// The part of that time until the head was there.
    pub head_us: u64,
    /// Waits of the phases before the content: limits, access, subrequests.
    pub access_us: u64,
    /// Until the response was ready to be sent; with a server, until its head was there.
    pub content_us: u64,
    /// Until the response was sent; the body of a server's comes meanwhile.
    pub send_us: u64,
    /// Bytes from the client.
    pub received: u64,
    /// Bytes to the client.
    pub sent: u64,
    /// The cache's part, as in `$upstream_cache_status`; empty without a cache.
    pub cache: &'a [u8],
    /// The client's address.
    pub client: &'a [u8],
    /// The virtual server's name.
    pub server: &'a [u8],
    /// The location's name.
    pub location: &'a [u8],
    /// The place of its block in the configuration.
    pub at: &'a [u8],
    /// The method of the request.
    pub method: &'a [u8],
    /// The host that the request names.
    pub host: &'a [u8],
    /// Path and arguments as sent.
    pub target: &'a [u8],
    /// The number of attempts to ask servers.
    pub attempts: u64,
    /// The last of them.
    pub tries: Vec<Try<'a>>,
}

/// An attempt to ask a server.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Try<'a> {
    /// Its address.
    pub server: &'a [u8],
    /// The status that came, or that stands for the failure; 0 for none.
    pub status: u64,
    /// Milliseconds until the connection stood.
    pub connect_ms: Option<u64>,
    /// Until the head was there.
    pub header_ms: Option<u64>,
    /// Until the end.
    pub response_ms: Option<u64>,
}

impl<'a> Record<'a> {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let mut numbers = vec![
            self.at_ms,
            self.pid,
            self.connection,
            self.status,
            self.failed.into(),
            self.total_us,
            self.head_us,
            self.access_us,
            self.content_us,
            self.send_us,
            self.received,
            self.sent,
            self.attempts,
        ];
        let tries = &self.tries[self.tries.len().saturating_sub(TRIES_MAX)..];
        numbers.push(tries.len() as u64);
        numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        for (text, max) in [
            (self.cache, METHOD_MAX),
            (self.client, ADDRESS_MAX),
            (self.server, NAME_MAX),
            (self.location, NAME_MAX),
            (self.at, PLACE_MAX),
            (self.method, METHOD_MAX),
            (self.host, HOST_MAX),
            (self.target, TARGET_MAX),
        ] {
            put_text(&mut out, text, max);
        }
        for one in tries {
            put_text(&mut out, one.server, ADDRESS_MAX);
            let times = [one.connect_ms, one.header_ms, one.response_ms];
            for n in [one.status].into_iter().chain(times.map(or_none)) {
                out.extend_from_slice(&n.to_le_bytes());
            }
        }
        out
    }

    fn decode(bytes: &'a [u8]) -> Option<Record<'a>> {
        let mut r = Reader(bytes);
        let mut record = Record {
            at_ms: r.number()?,
            pid: r.number()?,
            connection: r.number()?,
            status: r.number()?,
            failed: r.number()? != 0,
            total_us: r.number()?,
            head_us: r.number()?,
            access_us: r.number()?,
            content_us: r.number()?,
            send_us: r.number()?,
            received: r.number()?,
            sent: r.number()?,
            attempts: r.number()?,
            ..Record::default()
        };
        let tries = r.number()?.min(TRIES_MAX as u64);
        for text in [
            &mut record.cache,
            &mut record.client,
            &mut record.server,
            &mut record.location,
            &mut record.at,
            &mut record.method,
            &mut record.host,
            &mut record.target,
        ] {
            *text = r.text()?;
        }
        for _ in 0..tries {
            record.tries.push(Try {
                server: r.text()?,
                status: r.number()?,
                connect_ms: r.time()?,
                header_ms: r.time()?,
                response_ms: r.time()?,
            });
        }
        Some(record)
    }

    /// Its members as JSON.
    pub fn json(&self, o: &mut Object<'_>, number: u64) {
        o.number("id", number);
        o.text("time", format_utc_ms(self.at_ms).as_bytes());
        o.flag("failed", self.failed);
        o.number("status", self.status);
        o.text("client", self.client);
        o.text("server", self.server);
        o.text("location", self.location);
        o.text("at", self.at);
        o.text("method", self.method);
        o.text("host", self.host);
        o.text("uri", self.target);
        o.text("cache", self.cache);
        o.object("times_us", |o| {
            o.number("total", self.total_us);
            o.number("head", self.head_us);
            o.number("access", self.access_us);
            o.number("content", self.content_us);
            o.number("send", self.send_us);
        });
        o.number("attempts", self.attempts);
        o.list("tries", self.tries.iter(), |o, one| {
            o.text("server", one.server);
            o.number("status", one.status);
            for (name, time) in [
                ("connect_ms", one.connect_ms),
                ("header_ms", one.header_ms),
                ("response_ms", one.response_ms),
            ] {
                if let Some(ms) = time {
                    o.number(name, ms);
                }
            }
        });
        o.number("received", self.received);
        o.number("sent", self.sent);
        o.number("pid", self.pid);
        o.number("connection", self.connection);
    }

    /// Its members in a line for people. Bytes that a terminal might take for orders are escaped.
    pub fn line(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
        let why = if self.failed { "failed" } else { "slow" };
        let mut out = format!(
            "{} {why} {} {} {} {}{} from {} in {}",
            format_utc_ms(self.at_ms),
            self.status,
            seconds(self.total_us / 1000),
            text(self.method),
            text(self.host),
            text(self.target),
            text(self.client),
            text(if self.location.is_empty() { self.server } else { self.location }),
        );
        for (name, us) in [
            ("head", self.head_us),
            ("access", self.access_us),
            ("content", self.content_us),
            ("send", self.send_us),
        ] {
            out.push_str(&format!(" {name} {}", seconds(us / 1000)));
        }
        if !self.cache.is_empty() {
            out.push_str(&format!(" cache {}", text(self.cache)));
        }
        if self.attempts > self.tries.len() as u64 {
            out.push_str(&format!(" attempts {}", self.attempts));
        }
        for one in &self.tries {
            let time = |ms: Option<u64>| ms.map_or("-".to_owned(), seconds);
            out.push_str(&format!(
                " server {} {} connect {} header {} response {}",
                text(one.server),
                one.status,
                time(one.connect_ms),
                time(one.header_ms),
                time(one.response_ms)
            ));
        }
        out
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}s", ms / 1000, ms % 1000)
}

fn or_none(ms: Option<u64>) -> u64 {
    ms.unwrap_or(u64::MAX)
}

/// Writes a text of at most `max` bytes; a longer one ends in an ellipsis.
fn put_text(out: &mut Vec<u8>, text: &[u8], max: usize) {
    const MORE: &[u8] = "…".as_bytes();
    let (text, more) = match text.len() > max {
        true => (&text[..max - MORE.len()], MORE),
        false => (text, &[][..]),
    };
    out.extend_from_slice(&((text.len() + more.len()) as u16).to_le_bytes());
    out.extend_from_slice(text);
    out.extend_from_slice(more);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn time(&mut self) -> Option<Option<u64>> {
        Some(Some(self.number()?).filter(|ms| *ms != u64::MAX))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        self.take(len.into())
    }
}

/// The records of all workers, made before the fork.
pub struct Recorder(Latest);

impl Recorder {
    /// An empty one.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new() -> io::Result<Recorder> {
        Ok(Recorder(Latest::new(RECORDS_MAX, RECORD_BYTES)?))
    }

    /// Keeps a record of a request in place of the oldest one.
    #[cold]
    pub fn keep(&self, record: &Record<'_>) {
        self.0.push(&record.encode());
    }

    /// The number of requests that were recorded so far: the next one's number.
    pub fn next(&self) -> u64 {
        self.0.next()
    }

    /// The numbers of the records that are kept, the oldest first.
    pub fn numbers(&self) -> std::ops::Range<u64> {
        self.0.numbers()
    }

    /// Shows the record of that number; `None` where another one has its place.
    pub fn show<T>(&self, number: u64, show: impl FnOnce(&Record<'_>) -> T) -> Option<T> {
        let bytes = self.0.get(number)?;
        Some(show(&Record::decode(&bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record<'static> {
        Record {
            at_ms: 1_700_000_000_123,
            pid: 7,
            connection: 9,
            status: 504,
            failed: true,
            total_us: 2_013_000,
            content_us: 2_012_000,
            sent: 100,
            cache: b"MISS",
            client: b"192.0.2.1",
            server: b"main",
            location: b"/app",
            at: b"/etc/weir/weir.conf:7",
            method: b"GET",
            host: b"a.example",
            target: b"/app?x=1",
            attempts: 2,
            tries: vec![
                Try { server: b"127.0.0.1:1", status: 502, ..Try::default() },
                Try {
                    server: b"127.0.0.1:2",
                    status: 504,
                    connect_ms: Some(0),
                    header_ms: None,
                    response_ms: Some(2012),
                },
            ],
            ..Record::default()
        }
    }

    #[test]
    fn records_come_back_as_they_were() {
        let recorder = Recorder::new().unwrap();
        recorder.keep(&record());
        assert_eq!(recorder.show(0, |r| *r == record()), Some(true));
        assert_eq!(recorder.show(1, |_| ()), None);
        assert_eq!((recorder.next(), recorder.numbers()), (1, 0..1));
        let mut out = Vec::new();
        recorder.show(0, |r| Object::write(&mut out, |o| r.json(o, 0)));
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("{\"id\":0,\"time\":\"2023-11-14T22:13:20.123Z\","), "{text}");
        assert!(text.contains("\"server\":\"127.0.0.1:2\",\"status\":504,\"connect_ms\":0,"));
        let line = recorder.show(0, |r| r.line()).unwrap();
        assert_eq!(
            line,
            "2023-11-14T22:13:20.123Z failed 504 2.013s GET a.example/app?x=1 from 192.0.2.1 in \
             /app head 0.000s access 0.000s content 2.012s send 0.000s cache MISS server \
             127.0.0.1:1 502 connect - header - response - server 127.0.0.1:2 504 connect 0.000s \
             header - response 2.012s"
        );
    }

    #[test]
    fn the_longest_record_fits() {
        let recorder = Recorder::new().unwrap();
        let long = [b'x'; 10_000];
        let one = Try { server: &long, response_ms: Some(7), ..Try::default() };
        let record = Record {
            cache: &long,
            client: &long,
            server: &long,
            location: &long,
            at: &long,
            method: &long,
            host: &long,
            target: &long,
            attempts: 9,
            tries: vec![one; 9],
            ..record()
        };
        assert!(record.encode().len() <= RECORD_BYTES);
        recorder.keep(&record);
        let kept = recorder.show(0, |r| {
            assert!(r.target.ends_with("…".as_bytes()) && r.target.len() == TARGET_MAX);
            (r.tries.len(), r.tries[3].response_ms, r.attempts)
        });
        assert_eq!(kept, Some((TRIES_MAX, Some(7), 9)));
    }

    #[test]
    fn a_line_gives_no_orders_to_a_terminal() {
        let line = Record { target: b"/\x1b[2J\n\xff", ..record() }.line();
        assert!(!line.bytes().any(|b| b < 0x20), "{line}");
    }
}
