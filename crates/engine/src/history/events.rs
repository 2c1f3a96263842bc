//! Events on the time axis of the history: reloads, deaths of workers, servers that fail and come
//! back, certificates.

use base::json::Object;

/// The longest texts that are kept, in bytes.
const SUBJECT_MAX: usize = 128;
const TEXT_MAX: usize = 256;

/// The longest record: a time, two bytes, and two texts with their lengths.
pub(crate) const EVENT_BYTES: usize = 8 + 2 + 2 + SUBJECT_MAX + 2 + TEXT_MAX;

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EventKind {
    /// The server started.
    Start,
    /// A new configuration serves, or was refused.
    Reload,
    /// A worker died, hangs, or runs again.
    Worker,
    /// A server of an upstream changed its state.
    Peer,
    /// A certificate was renewed, is about to expire, or has expired.
    Certificate,
}

impl EventKind {
    const ALL: [(EventKind, &'static str); 5] = [
        (EventKind::Start, "start"),
        (EventKind::Reload, "reload"),
        (EventKind::Worker, "worker"),
        (EventKind::Peer, "peer"),
        (EventKind::Certificate, "certificate"),
    ];
}

/// The severity of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Severity {
    /// Something was done on purpose.
    Info,
    /// Something works again.
    Good,
    /// Something needs a look.
    Warn,
    /// Something failed.
    Bad,
}

impl Severity {
    const ALL: [(Severity, &'static str); 4] = [
        (Severity::Info, "info"),
        (Severity::Good, "good"),
        (Severity::Warn, "warn"),
        (Severity::Bad, "bad"),
    ];
}

/// An event that the dashboard shows, for example a reload or a server that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// Its time on the clock of [`crate::beat::now_ms`].
    pub at_ms: u64,
    /// What happened.
    pub kind: EventKind,
    /// How serious it is.
    pub severity: Severity,
    /// The thing that it is about: of a server `UPSTREAM ADDRESS`. Long ones are cut.
    pub subject: &'a [u8],
    /// The event in words. Long ones are cut.
    pub text: &'a [u8],
}

impl<'a> Event<'a> {
    /// As a record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(EVENT_BYTES);
        out.extend_from_slice(&self.at_ms.to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, self.severity as u8]);
        for (text, max) in [(self.subject, SUBJECT_MAX), (self.text, TEXT_MAX)] {
            let text = &text[..text.len().min(max)];
            out.extend_from_slice(&(text.len() as u16).to_le_bytes());
            out.extend_from_slice(text);
        }
        out
    }

    /// The event in a record.
    pub fn decode(mut bytes: &'a [u8]) -> Option<Event<'a>> {
        let at_ms = u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?);
        let [kind, severity] = *bytes.split_off(..2)?.first_chunk()?;
        let mut text = || {
            let len = u16::from_le_bytes(*bytes.split_off(..2)?.first_chunk()?);
            bytes.split_off(..usize::from(len))
        };
        let (subject, text) = (text()?, text()?);
        let (kind, _) = *EventKind::ALL.get(usize::from(kind))?;
        let (severity, _) = *Severity::ALL.get(usize::from(severity))?;
        Some(Event { at_ms, kind, severity, subject, text })
    }

    /// Its members as JSON. `unix_ms` is the time since 1970 that [`Event::at_ms`] stands for.
    pub fn json(&self, o: &mut Object<'_>, number: u64, unix_ms: u64) {
        o.number("id", number);
        o.number("time", unix_ms);
        o.text("kind", EventKind::ALL[self.kind as usize].1.as_bytes());
        o.text("severity", Severity::ALL[self.severity as usize].1.as_bytes());
        o.text("subject", self.subject);
        o.text("text", self.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_from_their_records() {
        let event = Event {
            at_ms: 7,
            kind: EventKind::Certificate,
            severity: Severity::Bad,
            subject: b"app 10.0.0.1:80",
            text: b"10.0.0.1:80 of app is unhealthy",
        };
        let record = event.encode();
        assert_eq!(Event::decode(&record).as_ref(), Some(&event));
        (0..record.len()).for_each(|len| assert_eq!(Event::decode(&record[..len]), None));
        let long = [b'x'; 999];
        let record = Event { subject: &long, text: &long, ..event }.encode();
        assert_eq!(record.len(), EVENT_BYTES);
        assert_eq!(Event::decode(&record).unwrap().text.len(), TEXT_MAX);
        for (i, (kind, _)) in EventKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, i);
        }
        for (i, (severity, _)) in Severity::ALL.iter().enumerate() {
            assert_eq!(*severity as usize, i);
        }
    }
}
