//! An established session: records in both directions, changes of keys, the end.

use std::io::IoSlice;

use mem::{Chain, Page};
use rustls::ExtractedSecrets;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;

use zeroize::Zeroizing;

use super::Received;
use super::origin::{Captured, Origin};
use crate::Info;
use crate::error::{Error, alert_text};
use crate::record::{HEADER, Keys, MAX_OVERHEAD, MAX_PLAIN, Material, alert, kind};

/// Data of a burst that goes in small records: the peer can show the beginning of a page before a
/// whole record of 16 KB has arrived.
const BURST: usize = 40 * 1024;
/// A small record; with its header it fits three packets.
const SMALL: usize = 4 * 1024;
/// Silence after which a burst begins anew.
const BURST_PAUSE_MS: u64 = 1000;

/// Records in a row that may come without data, as in OpenSSL.
const EMPTY_MAX: u8 = 32;
/// Changes of keys, warnings and wishes to renegotiate that a peer may send in all.
const ODD_MAX: u8 = 32;
/// A message after the handshake: a ticket is the longest that is of use.
const MESSAGE_MAX: usize = 64 * 1024;

/// The form of [`Traffic::state`].
const STATE_VERSION: u8 = 2;

/// The types of messages after the handshake.
const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// The part of rustls that knows the secrets, by the end that we are.
pub(super) enum Kernel {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
    /// The handshake was another process's; the keys that follow have their [`Origin`].
    Elsewhere {
        is_server: bool,
    },
}

/// An established session.
pub(super) struct Traffic {
    read: Keys,
    write: Keys,
    /// The origins of both; none if the session cannot go to another process.
    origins: Option<Box<[Origin; 2]>>,
    suite: u16,
    kernel: Kernel,
    /// Until somebody takes them.
    pub info: Option<Box<Info>>,
    is_13: bool,
    /// The beginning of a message that goes on in the next record.
    message: Vec<u8>,
    record_size: usize,
    /// Bytes sealed since the last pause.
    burst: usize,
    last_ms: u64,
    empty: u8,
    odd: u8,
    pub is_ended: bool,
    is_closed: bool,
}

impl Traffic {
    pub fn new(
        info: Info,
        secrets: ExtractedSecrets,
        captured: Captured,
        kernel: Kernel,
        record_size: usize,
    ) -> Result<Traffic, Error> {
        let (is_13, suite) = (info.is_13(), info.suite);
        let (read, write) =
            (Material::extracted(&secrets.rx.1)?, Material::extracted(&secrets.tx.1)?);
        let (own, theirs) = match kernel {
            Kernel::Client(_) => (captured.client, captured.server),
            _ => (captured.server, captured.client),
        };
        let keys = (Keys::of(is_13, secrets.rx.0, &read)?, Keys::of(is_13, secrets.tx.0, &write)?);
        let origins = match is_13 {
            true => {
                let read = Origin::checked(suite, theirs, read);
                read.zip(Origin::checked(suite, own, write))
            }
            false => Some((Origin::of(read), Origin::of(write))),
        };
        Ok(Traffic {
            read: keys.0,
            write: keys.1,
            origins: origins.map(|(read, write)| Box::new([read, write])),
            suite,
            kernel,
            info: Some(Box::new(info)),
            is_13,
            message: Vec::new(),
            record_size: record_size.clamp(1, MAX_PLAIN),
            burst: 0,
            last_ms: 0,
            empty: 0,
            odd: 0,
            is_ended: false,
            is_closed: false,
        })
    }

    pub fn has_record(&self, input: &[u8]) -> bool {
        match input.first_chunk::<HEADER>() {
            // A bad header is something to report.
            Some(header) => {
                self.read.fragment_len(*header).map_or(true, |len| input.len() >= HEADER + len)
            }
            None => false,
        }
    }

    pub fn receive(
        &mut self,
        input: &mut Page,
        plain: &mut Page,
        out: &mut Chain,
    ) -> Result<Received, Error> {
        while !self.is_ended {
            let Some(header) = input.first_chunk::<HEADER>().copied() else {
                return Ok(Received::All);
            };
            let len = self.read.fragment_len(header)?;
            if input.len() < HEADER + len {
                // The rest of a long record has to fit.
                input.reserve(HEADER + len - input.len());
                return Ok(Received::All);
            }
            if !plain.is_empty() && plain.spare() < len {
                return Ok(Received::Full);
            }
            let fragment = &mut input.filled_mut()[HEADER..HEADER + len];
            let (kind, text) = self.reading()?.open(header, fragment)?;
            if self.is_13 {
                let is_split = !self.message.is_empty();
                in_place(kind, text, is_split)?;
            }
            match kind {
                kind::DATA => {
                    self.empty = if text.is_empty() { self.empty + 1 } else { 0 };
                    if self.empty > EMPTY_MAX {
                        let why = "too many empty fragments";
                        return Err(Error::peer(alert::UNEXPECTED_MESSAGE, why));
                    }
                    plain.extend_from_slice(text);
                }
                kind::ALERT => {
                    let (level, what) = match *text {
                        [level, what] => (level, what),
                        _ => return Err(Error::peer(alert::DECODE_ERROR, "bad alert record")),
                    };
                    self.alerted(level, what)?;
                }
                kind::HANDSHAKE => {
                    self.message.extend_from_slice(text);
                    self.messages(out)?;
                }
                _ => return Err(Error::peer(alert::UNEXPECTED_MESSAGE, "unexpected record")),
            }
            input.consume(HEADER + len);
        }
        input.clear();
        Ok(Received::End)
    }

    fn alerted(&mut self, level: u8, what: u8) -> Result<(), Error> {
        let is_warning = level == 1 && !self.is_13 || what == alert::USER_CANCELED;
        match what {
            alert::CLOSE_NOTIFY => self.is_ended = true,
            _ if is_warning => self.odd()?,
            _ => return Err(Error::told(alert_text(what))),
        }
        Ok(())
    }

    /// Counts what is allowed and of no use.
    fn odd(&mut self) -> Result<(), Error> {
        self.odd += 1;
        match self.odd > ODD_MAX {
            true => Err(Error::peer(alert::UNEXPECTED_MESSAGE, "too many messages without data")),
            false => Ok(()),
        }
    }

    /// Takes the whole messages among the bytes of handshake records.
    fn messages(&mut self, out: &mut Chain) -> Result<(), Error> {
        let mut message = std::mem::take(&mut self.message);
        let mut rest = &message[..];
        while let [what, a, b, c, behind @ ..] = rest {
            let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if len > MESSAGE_MAX {
                return Err(Error::peer(alert::DECODE_ERROR, "excessive message size"));
            }
            let Some((body, behind)) = behind.split_at_checked(len) else { break };
            self.message(*what, body, behind.is_empty(), out)?;
            rest = behind;
        }
        let used = message.len() - rest.len();
        message.drain(..used);
        if !message.is_empty() {
            self.message = message;
        }
        Ok(())
    }

    fn message(
        &mut self,
        what: u8,
        body: &[u8],
        is_last: bool,
        out: &mut Chain,
    ) -> Result<(), Error> {
        let unexpected = || Error::peer(alert::UNEXPECTED_MESSAGE, "unexpected message");
        match (self.is_13, what, &mut self.kernel) {
            (true, KEY_UPDATE, _) => {
                // Messages behind it in the same record would be sealed with the old keys.
                let wish = match (is_last, body) {
                    (true, [wish @ (0 | 1)]) => *wish,
                    // RFC 8446 section 4.6.3.
                    (true, [_]) => {
                        return Err(Error::peer(alert::ILLEGAL_PARAMETER, "bad key update"));
                    }
                    (true, _) => return Err(Error::peer(alert::DECODE_ERROR, "bad key update")),
                    (false, _) => return Err(unexpected()),
                };
                self.odd()?;
                self.read = self.next_read()?;
                if wish == 1 {
                    self.update_keys(out.writer_for(2 * MAX_OVERHEAD))?;
                }
                Ok(())
            }
            (true, NEW_SESSION_TICKET, Kernel::Client(kernel)) => {
                kernel.handle_new_session_ticket(body).map_err(|e| Error::rustls(&e))?;
                self.odd()
            }
            // The ticket is for sessions of the other process.
            (true, NEW_SESSION_TICKET, Kernel::Elsewhere { is_server: false }) => self.odd(),
            (false, HELLO_REQUEST, Kernel::Client(_) | Kernel::Elsewhere { is_server: false })
            | (false, CLIENT_HELLO, Kernel::Server(_) | Kernel::Elsewhere { is_server: true }) => {
                self.odd()?;
                let refusal = [1, alert::NO_RENEGOTIATION];
                let out = out.writer_for(2 + MAX_OVERHEAD);
                self.writing()?.seal(kind::ALERT, 2, [&refusal[..]].into_iter(), out)
            }
            _ => Err(unexpected()),
        }
    }

    /// Tells the peer that the next record has new keys, and takes them.
    fn update_keys(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let message = [KEY_UPDATE, 0, 0, 1, 0];
        self.writing()?.seal(kind::HANDSHAKE, message.len(), [&message[..]].into_iter(), out)?;
        self.write = self.next_write()?;
        Ok(())
    }

    /// Seals a record of any type.
    #[cfg(test)]
    pub(crate) fn say_record(
        &mut self,
        kind: u8,
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.writing()?.seal(kind, text.len(), [text].into_iter(), out)
    }

    /// Takes new keys for writing, and asks the peer for the same.
    #[cfg(test)]
    pub(crate) fn change_keys_of_both(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let message = [KEY_UPDATE, 0, 0, 1, 1];
        self.writing()?.seal(kind::HANDSHAKE, message.len(), [&message[..]].into_iter(), out)?;
        self.write = self.next_write()?;
        Ok(())
    }

    pub fn seal(
        &mut self,
        chain: &mut Chain,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        if self.is_closed {
            return Err(Error::internal("data behind the end of the session"));
        }
        let now = base::time::now_ms();
        if now.saturating_sub(self.last_ms) > BURST_PAUSE_MS {
            self.burst = 0;
        }
        self.last_ms = now;
        let mut taken = 0;
        while taken < limit {
            if self.write.is_worn() {
                match self.is_13 {
                    true => self.update_keys(out)?,
                    false => return Err(Error::internal("the keys are used up")),
                }
            }
            let size = match self.burst < BURST {
                true => self.record_size.min(SMALL),
                false => self.record_size,
            };
            let mut slices = [IoSlice::new(&[]); 16];
            let (count, bytes) = chain.slices(&mut slices, size.min(limit - taken));
            if bytes == 0 {
                break;
            }
            let pieces = slices.iter().take(count).map(|slice| &slice[..]);
            self.writing()?.seal(kind::DATA, bytes, pieces, out)?;
            chain.advance(bytes as u64);
            taken += bytes;
            self.burst = self.burst.saturating_add(bytes);
        }
        Ok(taken)
    }

    pub fn close(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_closed, true) {
            // Without it the peer sees the end of the connection alone.
            let _ = self.alert(alert::CLOSE_NOTIFY, out);
        }
    }

    pub fn alert(&mut self, what: u8, out: &mut Vec<u8>) -> Result<(), Error> {
        self.is_closed = true;
        let level = if what == alert::CLOSE_NOTIFY { 1 } else { 2 };
        self.writing()?.seal(kind::ALERT, 2, [&[level, what][..]].into_iter(), out)
    }
}

/// Whether a record of TLS 1.3 may come where it does: a message that is split has no record of
/// another type between its parts, and only data may be empty (RFC 8446 section 5.1).
fn in_place(kind: u8, text: &[u8], is_split: bool) -> Result<(), Error> {
    let why = match kind {
        kind::DATA if is_split => "data within a message of the handshake",
        kind::ALERT | kind::HANDSHAKE if text.is_empty() => "an empty record",
        _ => return Ok(()),
    };
    Err(Error::peer(alert::UNEXPECTED_MESSAGE, why))
}

impl Traffic {
    /// The keys for the next record from the peer.
    #[inline]
    fn reading(&mut self) -> Result<&mut Keys, Error> {
        made(&mut self.read, self.origins.as_deref().map(|[read, _]| read))
    }

    /// The keys for the next record to the peer.
    #[inline]
    fn writing(&mut self) -> Result<&mut Keys, Error> {
        made(&mut self.write, self.origins.as_deref().map(|[_, write]| write))
    }

    fn next_read(&mut self) -> Result<Keys, Error> {
        if let Some(origins) = &mut self.origins {
            return origins[0].next(self.suite).ok_or_else(no_next);
        }
        let next = match &mut self.kernel {
            Kernel::Server(kernel) => kernel.update_rx_secret(),
            Kernel::Client(kernel) => kernel.update_rx_secret(),
            Kernel::Elsewhere { .. } => return Err(no_next()),
        };
        Keys::new(true, next.map_err(|e| Error::rustls(&e))?)
    }

    fn next_write(&mut self) -> Result<Keys, Error> {
        if let Some(origins) = &mut self.origins {
            return origins[1].next(self.suite).ok_or_else(no_next);
        }
        let next = match &mut self.kernel {
            Kernel::Server(kernel) => kernel.update_tx_secret(),
            Kernel::Client(kernel) => kernel.update_tx_secret(),
            Kernel::Elsewhere { .. } => return Err(no_next()),
        };
        Keys::new(true, next.map_err(|e| Error::rustls(&e))?)
    }

    /// The session's state for another process; `None` if it cannot go there.
    pub fn state(&self) -> Option<Zeroizing<Vec<u8>>> {
        let [read, write] = self.origins.as_deref()?;
        let is_server = match self.kernel {
            Kernel::Server(_) => true,
            Kernel::Client(_) => false,
            Kernel::Elsewhere { is_server } => is_server,
        };
        // Enough for all, so that no copy is left in memory that was too small.
        let mut out = Zeroizing::new(Vec::with_capacity(512 + self.message.len()));
        let flags = [is_server, self.is_13, self.is_ended, self.is_closed];
        out.push(STATE_VERSION);
        out.extend(flags.map(u8::from));
        out.extend(self.suite.to_be_bytes());
        out.extend(self.read.sequence().to_be_bytes());
        out.extend(self.write.sequence().to_be_bytes());
        read.put(&mut out);
        write.put(&mut out);
        out.extend((self.record_size as u32).to_be_bytes());
        out.extend([self.empty, self.odd]);
        out.extend_from_slice(&self.message);
        Some(out)
    }

    /// The session that another process has described; `None` if that is no session.
    pub fn resumed(state: &[u8]) -> Option<Traffic> {
        let mut rest = state;
        let [STATE_VERSION, flags @ ..] = *take::<5>(&mut rest)? else { return None };
        if flags.iter().any(|flag| *flag > 1) {
            return None;
        }
        let [is_server, is_13, is_ended, is_closed] = flags.map(|flag| flag == 1);
        let suite = u16::from_be_bytes(*take(&mut rest)?);
        let read_sequence = u64::from_be_bytes(*take(&mut rest)?);
        let write_sequence = u64::from_be_bytes(*take(&mut rest)?);
        let mut bytes = || {
            let [len] = *take(&mut rest)?;
            let (bytes, behind) = rest.split_at_checked(len.into())?;
            rest = behind;
            Some(bytes)
        };
        let read = Origin::get(is_13, suite, &mut bytes)?;
        let write = Origin::get(is_13, suite, &mut bytes)?;
        let record_size = u32::from_be_bytes(*take(&mut rest)?) as usize;
        let [empty, odd] = *take(&mut rest)?;
        if rest.len() > MESSAGE_MAX + MAX_PLAIN {
            return None;
        }
        Some(Traffic {
            read: read.keys(read_sequence),
            write: write.keys(write_sequence),
            origins: Some(Box::new([read, write])),
            suite,
            kernel: Kernel::Elsewhere { is_server },
            info: None,
            is_13,
            message: rest.to_vec(),
            record_size: record_size.clamp(1, MAX_PLAIN),
            burst: 0,
            last_ms: 0,
            empty: empty.min(EMPTY_MAX),
            odd: odd.min(ODD_MAX),
            is_ended,
            is_closed,
        })
    }
}

/// Makes keys before their first record. A session that another process had waits for that, because
/// thousands may come at once, and making the keys is a part of the work of taking one.
#[inline]
fn made<'a>(keys: &'a mut Keys, origin: Option<&Origin>) -> Result<&'a mut Keys, Error> {
    if !keys.are_made() {
        origin.and_then(|origin| origin.make(keys)).ok_or_else(no_next)?;
    }
    Ok(keys)
}

fn no_next() -> Error {
    Error::internal("the session has no next keys")
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (bytes, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(bytes)
}
