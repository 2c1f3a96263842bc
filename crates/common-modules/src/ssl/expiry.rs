//! The ends of the certificates of servers: warnings before they come, and the days that are left.

use std::fmt::Write;
use std::io;
use std::rc::Rc;

use base::json::Object;
use base::log::{Level, Log, lossy};
use base::time::Civil;
use bytes::Bytes;
use conf::Word;
use engine::Seat;
use engine::life::Life;
use event::Gate;
use pki::x509::{Certificate, Time};
use tls::certified::Certified;

use super::server::{SecureServer, ServerTls};

const DAY_S: i64 = 86_400;

/// The time before the end from which warnings are written, seconds.
const WARN_S: i64 = 14 * DAY_S;

/// The names of servers in a message; further ones are counted.
const NAMES_MAX: usize = 3;

/// The end of one certificate of a server.
#[derive(Clone)]
pub(super) struct Term {
    at: Word,
    file: String,
    not_after: Time,
}

impl Term {
    /// The term of a certificate that was read from `file`; the directive stands at `at`.
    pub fn of(at: &Word, file: String, certified: &Certified) -> Option<Term> {
        let der = Bytes::copy_from_slice(certified.chain().next()?);
        let not_after = Certificate::parse(der).ok()?.not_after();
        Some(Term { at: at.clone(), file, not_after })
    }
}

/// The certificates of all servers, each file once.
#[derive(Default)]
pub struct Expiries(Vec<Expiry>);

struct Expiry {
    term: Term,
    /// The names of the servers that have it.
    servers: Vec<Bytes>,
}

impl Expiries {
    /// The certificates of servers.
    pub fn of<'a, T: SecureServer + 'a>(servers: impl IntoIterator<Item = &'a Rc<T>>) -> Expiries {
        Expiries::named(servers.into_iter().map(|server| server.name_and_tls()))
    }

    /// One worker writes for all that certificates end; for [`engine::module::Module::start`].
    ///
    /// # Errors
    /// None.
    pub fn start<'a, T: SecureServer + 'a>(
        servers: impl IntoIterator<Item = &'a Rc<T>>,
        seat: &Seat,
        life: &Life,
    ) -> io::Result<()> {
        if seat.index == 0 {
            event::spawn(Expiries::of(servers).watch(seat.log.clone(), life.gate.clone()));
        }
        Ok(())
    }

    /// The certificates of servers with these names.
    fn named<'a>(servers: impl Iterator<Item = (&'a Bytes, &'a ServerTls)>) -> Expiries {
        let mut all: Vec<Expiry> = Vec::new();
        for (name, tls) in servers {
            for term in &tls.terms {
                let is_same = |known: &&mut Expiry| {
                    known.term.file == term.file && known.term.not_after == term.not_after
                };
                match all.iter_mut().find(is_same) {
                    Some(known) if known.servers.contains(name) => {}
                    Some(known) => known.servers.push(name.clone()),
                    None => all.push(Expiry { term: term.clone(), servers: vec![name.clone()] }),
                }
            }
        }
        Expiries(all)
    }

    /// Warns of those that are over or end soon, at the places of their directives.
    pub(crate) fn warn_at_load(&self) {
        let now = now();
        for expiry in &self.0 {
            if let Some((_, message)) = expiry.message(now) {
                conf::warn(&expiry.term.at, message);
            }
        }
    }

    /// Writes warnings to the log once a day, and when a certificate ends, until the gate closes.
    async fn watch(self, log: Log, gate: Gate) {
        while !self.0.is_empty() && !gate.is_closed() {
            let ms = u64::try_from(self.wait_s(now())).unwrap_or(0).saturating_mul(1_000);
            event::race(event::sleep(ms), gate.closed()).await;
            if gate.is_closed() {
                return;
            }
            for (level, message) in self.messages(now()) {
                base::log!(log, level, None, "{message}");
            }
        }
    }

    /// The certificates, for the status.
    pub fn known(&self) -> impl Iterator<Item = Known> {
        self.0.iter().map(|Expiry { term, servers }| Known {
            name: term.file.clone(),
            servers: servers.clone(),
            until: term.not_after.unix(),
            order: None,
        })
    }

    /// The seconds until the next messages: a day, or less where one ends sooner.
    fn wait_s(&self, now: i64) -> i64 {
        // A certificate is good in the last second of its time.
        let ends = self.0.iter().map(|expiry| expiry.left(now) + 1);
        ends.filter(|left| *left > 0).min().unwrap_or(DAY_S).min(DAY_S)
    }

    fn messages(&self, now: i64) -> impl Iterator<Item = (Level, String)> {
        self.0.iter().filter_map(move |expiry| expiry.message(now))
    }
}

impl Expiry {
    /// The seconds that are left. A time that cannot be read is over.
    fn left(&self, now: i64) -> i64 {
        self.term.not_after.unix().map_or(-1, |end| end.saturating_sub(now))
    }

    fn message(&self, now: i64) -> Option<(Level, String)> {
        let left = self.left(now);
        let (level, what) = match left / DAY_S {
            _ if left < 0 => (Level::Error, "has expired".to_owned()),
            _ if left >= WARN_S => return None,
            0 => (Level::Warn, "expires in less than a day".to_owned()),
            1 => (Level::Warn, "expires in 1 day".to_owned()),
            days => (Level::Warn, format!("expires in {days} days")),
        };
        let Term { file, not_after, .. } = &self.term;
        let mut message = format!("certificate \"{file}\" {what}, at {not_after}, server: ");
        for (i, name) in self.servers.iter().take(NAMES_MAX).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            let _ = write!(message, "{comma}\"{}\"", lossy(name));
        }
        if let more @ 1.. = self.servers.len().saturating_sub(NAMES_MAX) {
            let _ = write!(message, " and {more} more");
        }
        Some((level, message))
    }
}

/// A certificate of servers, as the status shows it.
pub struct Known {
    /// Its file, or the order that it is from.
    pub name: String,
    /// The names of the servers that have it.
    pub servers: Vec<Bytes>,
    /// Its last second, since 1970; none where there is no certificate yet, or the time cannot be
    /// read.
    pub until: Option<i64>,
    /// The state of the order, for one that is ordered.
    pub order: Option<Ordered>,
}

/// The order of a certificate.
pub struct Ordered {
    /// There is a certificate.
    pub is_issued: bool,
    /// The second since 1970 from which on it is renewed, where one is known.
    pub renewal: Option<i64>,
    /// The present step, in words; empty between orders.
    pub state: String,
    /// Attempts that failed, in a row.
    pub failures: u64,
}

impl Known {
    /// Whether there is a certificate.
    pub fn is_issued(&self) -> bool {
        self.order.as_ref().is_none_or(|order| order.is_issued)
    }

    /// Writes its members, but the name.
    pub fn write(&self, o: &mut Object<'_>) {
        o.text("servers", self.servers.join(&b' ').as_slice());
        if self.is_issued() {
            // A time that cannot be read is over.
            let left = self.until.map_or(-1, |end| end.saturating_sub(now()));
            o.text("not_after", date(self.until).as_bytes());
            o.number("days_left", u64::try_from(left / DAY_S).unwrap_or(0));
            o.flag("expired", left < 0);
        }
        if let Some(order) = &self.order {
            o.flag("issued", order.is_issued);
            if order.renewal.is_some() {
                o.text("renewal", date(order.renewal).as_bytes());
            }
            o.text("state", order.state.as_bytes());
            o.number("failures", order.failures);
        }
    }
}

/// A date as those of certificates are written.
fn date(unix: Option<i64>) -> String {
    let Some(unix) = unix else { return "Bad time value".to_owned() };
    let t = Civil::from_unix(unix);
    let Civil { year, day, hour, min, sec, .. } = t;
    format!("{} {day:2} {hour:02}:{min:02}:{sec:02} {year} GMT", t.month_name())
}

/// The list of certificates in the status.
pub fn report(known: &[Known], o: &mut Object<'_>) {
    o.list("certificates", known.iter().filter(|one| one.is_issued()), |o, one| {
        o.text("file", one.name.as_bytes());
        one.write(o);
    });
}

fn now() -> i64 {
    base::time::unix_secs().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use testkit::certificates::{Draft, Key, KeyKind};

    /// 2026-12-01 00:00:00 GMT.
    const END: i64 = 1_796_083_200;

    fn expiries(names: &[&str]) -> Expiries {
        let key = Key::generate(KeyKind::P256);
        let mut draft = Draft::new("CN=a", "CN=a", &key);
        draft.validity.1 = "261201000000Z".to_owned();
        let not_after = Certificate::parse(draft.sign(&key).into()).unwrap().not_after();
        assert_eq!(not_after.unix(), Some(END));
        let pos = conf::Pos { file: Path::new("a.conf").into(), line: 1, column: 1 };
        let at = Word { text: Bytes::new(), pos, quoted: false };
        let term = Term { at, file: "a.pem".to_owned(), not_after };
        let tls = ServerTls { terms: vec![term], ..ServerTls::default() };
        let names: Vec<Bytes> =
            names.iter().map(|n| Bytes::copy_from_slice(n.as_bytes())).collect();
        Expiries::named(names.iter().map(|name| (name, &tls)))
    }

    fn message(now: i64) -> Option<(Level, String)> {
        expiries(&["x"]).messages(now).next()
    }

    #[test]
    fn warnings_begin_fourteen_days_before_the_end() {
        assert_eq!(message(END - 14 * DAY_S), None);
        let at = "at Dec  1 00:00:00 2026 GMT, server: \"x\"";
        for (now, level, text) in [
            (END - 14 * DAY_S + 1, Level::Warn, "expires in 13 days"),
            (END - DAY_S, Level::Warn, "expires in 1 day"),
            (END - DAY_S + 1, Level::Warn, "expires in less than a day"),
            (END, Level::Warn, "expires in less than a day"),
            (END + 1, Level::Error, "has expired"),
        ] {
            let expected = format!("certificate \"a.pem\" {text}, {at}");
            assert_eq!(message(now), Some((level, expected)), "{now}");
        }
    }

    #[test]
    fn messages_come_daily_and_at_the_end() {
        let expiries = expiries(&["x"]);
        assert_eq!(expiries.wait_s(END - 100 * DAY_S), DAY_S);
        assert_eq!(expiries.wait_s(END - 5), 6);
        assert_eq!(expiries.wait_s(END), 1);
        assert_eq!(expiries.wait_s(END + 1), DAY_S);
        assert_eq!(expiries.messages(END - 5 + expiries.wait_s(END - 5)).count(), 1);
    }

    #[test]
    fn dates_are_those_of_certificates() {
        let expiries = expiries(&["x"]);
        let known: Vec<Known> = expiries.known().collect();
        assert_eq!(date(known[0].until), expiries.0[0].term.not_after.to_string());
        assert_eq!(date(Some(END)), "Dec  1 00:00:00 2026 GMT");
    }

    #[test]
    fn servers_with_one_file_are_named_together() {
        let (_, message) = expiries(&["x", "y", "x", "", "z", "u"]).messages(END).next().unwrap();
        assert!(message.ends_with("server: \"x\", \"y\", \"\" and 2 more"), "{message}");
    }
}
