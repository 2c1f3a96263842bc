//! The structure of the message.

use std::borrow::Cow;

use super::view::{ClientHello, Span, Spans};
use super::{Malformed, extension};

/// The longest session id, bytes.
const SESSION_ID_MAX: usize = 32;
/// The longest name of a server that OpenSSL takes, bytes.
const SERVER_NAME_MAX: usize = 255;

/// Reads the message behind its head; `len` is the length of input that it took.
pub(super) fn read(message: Cow<'_, [u8]>, len: usize) -> Result<ClientHello<'_>, Malformed> {
    let spans = spans(&message)?;
    Ok(ClientHello::new(message, spans, len))
}

fn spans(message: &[u8]) -> Result<Spans, Malformed> {
    let mut reader = Reader { bytes: message, at: 0 };
    let short = Malformed::LengthMismatch;
    reader.take(ClientHello::SESSION_ID_AT).ok_or(short)?;
    let session_id = reader.list8().ok_or(short)?;
    if session_id.len() > SESSION_ID_MAX {
        return Err(short);
    }
    let cipher_suites = reader.list16().ok_or(short)?;
    let compression = reader.list8().ok_or(short)?;
    // The hello of SSL 3 and of TLS 1.0 may end here.
    let list = match reader.at < message.len() {
        true => reader.list16().filter(|list| list.end() == message.len()).ok_or(short)?,
        false => Span::default(),
    };
    // An empty list is a fault of its own where the lengths fit, as with OpenSSL.
    if cipher_suites.len() == 0 {
        return Err(Malformed::NoCiphers);
    }
    if !cipher_suites.len().is_multiple_of(2) {
        return Err(short);
    }
    if compression.len() == 0 {
        return Err(Malformed::NoCompression);
    }
    let mut spans =
        Spans { session_id, cipher_suites, compression, extensions: list, ..Spans::default() };
    extensions(message, list, &mut spans)?;
    Ok(spans)
}

/// The numbers that have come: a bit each, for as many extensions as fit must not take quadratic
/// time.
struct Seen([u64; 1024]);

impl Seen {
    /// Whether `number` comes for the first time.
    fn insert(&mut self, number: u16) -> bool {
        let Some(word) = self.0.get_mut(usize::from(number / 64)) else { return false };
        let bit = 1u64 << (number % 64);
        let first = *word & bit == 0;
        *word |= bit;
        first
    }
}

fn extensions(message: &[u8], list: Span, spans: &mut Spans) -> Result<(), Malformed> {
    let mut reader =
        Reader { bytes: message.get(..list.end()).unwrap_or_default(), at: list.start() };
    let mut seen = Seen([0; 1024]);
    let mut last = None;
    while reader.at < list.end() {
        let number = reader.u16().ok_or(Malformed::LengthMismatch)?;
        let data = reader.list16().ok_or(Malformed::LengthMismatch)?;
        if !seen.insert(number) {
            return Err(Malformed::DuplicateExtension(number));
        }
        if last == Some(extension::PRE_SHARED_KEY) {
            return Err(Malformed::PskNotLast);
        }
        last = Some(number);
        known(message, number, data, spans)?;
    }
    Ok(())
}

/// Checks the extensions that the view shows, and keeps their places.
fn known(message: &[u8], number: u16, data: Span, spans: &mut Spans) -> Result<(), Malformed> {
    let bad = Malformed::BadExtension(number);
    let mut inner =
        Reader { bytes: message.get(..data.end()).unwrap_or_default(), at: data.start() };
    let is_whole = |inner: &Reader<'_>| inner.at == data.end();
    match number {
        extension::SERVER_NAME => spans.server_name = server_name(message, inner)?,
        extension::SUPPORTED_GROUPS | extension::SIGNATURE_ALGORITHMS => {
            let list = inner.list16().filter(|list| list.is_pairs()).ok_or(bad)?;
            match number {
                extension::SUPPORTED_GROUPS => spans.groups = list,
                _ => spans.signature_algorithms = list,
            }
            is_whole(&inner).then_some(()).ok_or(bad)?;
        }
        extension::SUPPORTED_VERSIONS | extension::COMPRESS_CERTIFICATE => {
            let list = inner.list8().filter(|list| list.is_pairs()).ok_or(bad)?;
            match number {
                extension::SUPPORTED_VERSIONS => spans.versions = list,
                _ => spans.certificate_compression = list,
            }
            is_whole(&inner).then_some(()).ok_or(bad)?;
        }
        extension::EC_POINT_FORMATS => {
            spans.point_formats = inner.list8().filter(|list| list.len() > 0).ok_or(bad)?;
            is_whole(&inner).then_some(()).ok_or(bad)?;
        }
        extension::ALPN => spans.alpn = lists(inner, data, 1, |one| one.list8()).ok_or(bad)?,
        // No share is what a client sends that wants to be asked for one.
        extension::KEY_SHARE => spans.key_shares = lists(inner, data, 0, key_share).ok_or(bad)?,
        extension::EARLY_DATA => spans.early_data = (data.len() == 0).then_some(true).ok_or(bad)?,
        _ => {}
    }
    Ok(())
}

/// A list of non-empty items that is the whole extension.
fn lists(
    mut inner: Reader<'_>,
    data: Span,
    least: usize,
    mut item: impl FnMut(&mut Reader<'_>) -> Option<Span>,
) -> Option<Span> {
    let list = inner.list16().filter(|list| list.end() == data.end())?;
    inner.at = list.start();
    let mut items = 0;
    while inner.at < list.end() {
        item(&mut inner).filter(|item| item.len() > 0)?;
        items += 1;
    }
    (items >= least).then_some(list)
}

fn key_share(reader: &mut Reader<'_>) -> Option<Span> {
    reader.u16()?;
    reader.list16()
}

/// The list of names was made to be extended and cannot be: it holds one name, of a host, or the
/// hello is refused, as OpenSSL does. An empty name counts as none.
fn server_name(message: &[u8], mut reader: Reader<'_>) -> Result<Span, Malformed> {
    let bad = Malformed::BadExtension(extension::SERVER_NAME);
    const HOST_NAME: u8 = 0;
    let end = reader.bytes.len();
    let list = reader.list16().filter(|list| list.end() == end).ok_or(bad)?;
    reader.at = list.start();
    let kind = reader.take(1).and_then(|span| span.of(message).first().copied());
    let name = reader.list16().filter(|name| name.end() == end).ok_or(bad)?;
    if kind != Some(HOST_NAME) {
        return Err(bad);
    }
    if name.len() > SERVER_NAME_MAX || name.of(message).contains(&0) {
        return Err(Malformed::ServerName);
    }
    Ok(name)
}

#[derive(Clone)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Option<Span> {
        let span = Span::new(self.at, len)?;
        self.bytes.get(span.start()..span.end())?;
        self.at = span.end();
        Some(span)
    }

    fn u16(&mut self) -> Option<u16> {
        match *self.take(2)?.of(self.bytes) {
            [high, low] => Some(u16::from_be_bytes([high, low])),
            _ => None,
        }
    }

    /// A list with its length in front, in one byte.
    fn list8(&mut self) -> Option<Span> {
        let len = self.take(1)?.of(self.bytes).first().copied()?;
        self.take(usize::from(len))
    }

    /// A list with its length in front, in two bytes.
    fn list16(&mut self) -> Option<Span> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }
}
