//! A hello's fields, where they lie in its bytes.

use std::borrow::Cow;

use super::{extension, is_grease};

/// A part of the message. Two bytes a number: messages are shorter than
/// [`INPUT_MAX`](super::INPUT_MAX).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Span {
    start: u16,
    end: u16,
}

impl Span {
    pub(super) fn new(start: usize, len: usize) -> Option<Span> {
        let end = u16::try_from(start.checked_add(len)?).ok()?;
        Some(Span { start: u16::try_from(start).ok()?, end })
    }

    pub(super) fn start(self) -> usize {
        usize::from(self.start)
    }

    pub(super) fn end(self) -> usize {
        usize::from(self.end)
    }

    pub(super) fn len(self) -> usize {
        self.end() - self.start()
    }

    /// Whether it holds numbers of two bytes, one at least.
    pub(super) fn is_pairs(self) -> bool {
        self.len() > 0 && self.len().is_multiple_of(2)
    }

    pub(super) fn of(self, message: &[u8]) -> &[u8] {
        message.get(self.start()..self.end()).unwrap_or_default()
    }
}

/// Where the fields are; empty where the hello has none.
#[derive(Clone, Default, Debug)]
pub(super) struct Spans {
    pub(super) session_id: Span,
    pub(super) cipher_suites: Span,
    pub(super) compression: Span,
    pub(super) extensions: Span,
    pub(super) server_name: Span,
    pub(super) versions: Span,
    pub(super) groups: Span,
    pub(super) signature_algorithms: Span,
    pub(super) key_shares: Span,
    pub(super) alpn: Span,
    pub(super) point_formats: Span,
    pub(super) certificate_compression: Span,
    pub(super) early_data: bool,
}

/// A well-formed hello. All numbers are as they came, those of GREASE included.
#[derive(Clone, Debug)]
pub struct ClientHello<'a> {
    message: Cow<'a, [u8]>,
    spans: Spans,
    len: usize,
}

impl<'a> ClientHello<'a> {
    /// Behind version and random.
    pub(super) const SESSION_ID_AT: usize = 34;

    pub(super) fn new(message: Cow<'a, [u8]>, spans: Spans, len: usize) -> ClientHello<'a> {
        ClientHello { message, spans, len }
    }

    /// The length of input, bytes, up to the end of the hello.
    pub fn input_len(&self) -> usize {
        self.len
    }

    /// The message without its head of four bytes.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// A hello that does not borrow its bytes.
    pub fn into_owned(self) -> ClientHello<'static> {
        ClientHello {
            message: Cow::Owned(self.message.into_owned()),
            spans: self.spans,
            len: self.len,
        }
    }

    /// Whether the bytes were copied, because the message is split over records.
    pub fn is_copied(&self) -> bool {
        matches!(self.message, Cow::Owned(_))
    }

    /// The version in front: the highest one up to TLS 1.2, `0x0303`.
    pub fn legacy_version(&self) -> u16 {
        U16s(self.message.get(..2).unwrap_or_default()).next().unwrap_or_default()
    }

    /// The client's random bytes, 32.
    pub fn random(&self) -> &[u8] {
        self.message.get(2..ClientHello::SESSION_ID_AT).unwrap_or_default()
    }

    /// The session id, up to 32 bytes.
    pub fn session_id(&self) -> &[u8] {
        self.spans.session_id.of(&self.message)
    }

    /// The cipher suites, one at least.
    pub fn cipher_suites(&self) -> U16s<'_> {
        self.u16s(self.spans.cipher_suites)
    }

    /// The compression methods, one at least; 0 is the null one.
    pub fn compression_methods(&self) -> &[u8] {
        self.spans.compression.of(&self.message)
    }

    /// The extensions, in their order.
    pub fn extensions(&self) -> Extensions<'_> {
        Extensions(self.spans.extensions.of(&self.message))
    }

    /// The data of an extension.
    pub fn extension(&self, number: u16) -> Option<&[u8]> {
        self.extensions().find(|one| one.number == number).map(|one| one.data)
    }

    /// The name of the server as it came, at most 255 bytes without a zero; none where it is empty.
    /// It is any bytes, as in nginx, and a dot at its end is still there: what takes it for a host
    /// checks it as a `Host` field.
    pub fn server_name(&self) -> Option<&[u8]> {
        Some(self.spans.server_name.of(&self.message)).filter(|name| !name.is_empty())
    }

    /// The name of the server if it consists of visible ASCII characters, as RFC 6066 §3 demands.
    pub fn host(&self) -> Option<&str> {
        let name = self.server_name()?;
        name.iter().all(u8::is_ascii_graphic).then(|| std::str::from_utf8(name).ok()).flatten()
    }

    /// The versions of `supported_versions`; empty without it.
    pub fn supported_versions(&self) -> U16s<'_> {
        self.u16s(self.spans.versions)
    }

    /// Whether `supported_versions` is there, which clients of TLS 1.3 send.
    pub(crate) fn has_supported_versions(&self) -> bool {
        self.spans.versions.len() > 0
    }

    /// The highest version that the client offers, those of GREASE and of later ones than TLS 1.3
    /// left out; the legacy version where `supported_versions` is missing.
    pub fn version_max(&self) -> Option<u16> {
        const SSLV3: u16 = 0x0300;
        const TLSV13: u16 = 0x0304;
        if !self.has_supported_versions() {
            return Some(self.legacy_version());
        }
        self.supported_versions().filter(|version| (SSLV3..=TLSV13).contains(version)).max()
    }

    /// The groups for the key exchange; empty without the extension.
    pub fn groups(&self) -> U16s<'_> {
        self.u16s(self.spans.groups)
    }

    /// The signature schemes; empty without the extension.
    pub fn signature_algorithms(&self) -> U16s<'_> {
        self.u16s(self.spans.signature_algorithms)
    }

    /// The groups of the key shares; empty without the extension.
    pub fn key_share_groups(&self) -> impl Iterator<Item = u16> + '_ {
        Extensions(self.spans.key_shares.of(&self.message)).map(|share| share.number)
    }

    /// The application protocols; empty without the extension.
    pub fn alpn(&self) -> Alpn<'_> {
        Alpn(self.spans.alpn.of(&self.message))
    }

    /// The forms of points on curves; empty without the extension.
    pub(crate) fn ec_point_formats(&self) -> &[u8] {
        self.spans.point_formats.of(&self.message)
    }

    /// The algorithms for compressed certificates: 1 zlib, 2 brotli, 3 zstd; empty without the
    /// extension.
    pub fn certificate_compression(&self) -> U16s<'_> {
        self.u16s(self.spans.certificate_compression)
    }

    /// Whether early data follows.
    pub fn has_early_data(&self) -> bool {
        self.spans.early_data
    }

    /// Whether keys of earlier sessions are offered (TLS 1.3).
    pub fn has_psk(&self) -> bool {
        self.extension(extension::PRE_SHARED_KEY).is_some()
    }

    /// The session ticket (TLS 1.2); empty where the client wants a new one.
    pub fn session_ticket(&self) -> Option<&[u8]> {
        self.extension(extension::SESSION_TICKET)
    }

    /// Whether an encrypted hello is inside, or what looks like one.
    pub fn has_ech(&self) -> bool {
        self.extension(extension::ENCRYPTED_CLIENT_HELLO).is_some()
    }

    fn u16s(&self, span: Span) -> U16s<'_> {
        U16s(span.of(&self.message))
    }
}

/// Numbers of two bytes.
#[derive(Clone, Debug)]
pub struct U16s<'a>(pub(super) &'a [u8]);

impl<'a> U16s<'a> {
    /// The numbers that GREASE does not reserve.
    pub(crate) fn without_grease(self) -> impl Iterator<Item = u16> + 'a {
        self.filter(|number| !is_grease(*number))
    }
}

impl Iterator for U16s<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        let (first, rest) = self.0.split_first_chunk::<2>()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*first))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len() / 2, Some(self.0.len() / 2))
    }
}

impl ExactSizeIterator for U16s<'_> {}

/// An extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extension<'a> {
    /// Its number; [`extension`] has names.
    pub number: u16,
    /// Its data.
    pub data: &'a [u8],
}

/// A list of extensions. That of key shares has the same form.
#[derive(Clone, Debug)]
pub struct Extensions<'a>(&'a [u8]);

impl<'a> Iterator for Extensions<'a> {
    type Item = Extension<'a>;

    fn next(&mut self) -> Option<Extension<'a>> {
        let (&[high, low, len_high, len_low], rest) = self.0.split_first_chunk::<4>()?;
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let (data, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some(Extension { number: u16::from_be_bytes([high, low]), data })
    }
}

/// Application protocols.
#[derive(Clone, Debug)]
pub struct Alpn<'a>(&'a [u8]);

impl<'a> Iterator for Alpn<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.0.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        self.0 = rest;
        Some(name)
    }
}
