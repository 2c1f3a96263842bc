//! Clients that misread responses, told by `User-Agent`.

use crate::request::Request;

impl Request {
    /// Whether the client is one of the old MSIE, which misread compressed responses.
    pub fn is_msie6(&self) -> bool {
        self.header(http_wire::h1::FieldId::UserAgent).is_some_and(is_msie6)
    }
}

/// MSIE's version, the text after its name. Other browsers send no such name, or name Opera, too.
pub(crate) fn msie(ua: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::find(ua, b"MSIE ")?;
    let version = &ua[at + 5..];
    (version.len() > 2 && memchr::memmem::find(ua, b"Opera").is_none()).then_some(version)
}

/// MSIE up to version 6.
pub(crate) fn is_msie6(ua: &[u8]) -> bool {
    match msie(ua) {
        Some([b'4' | b'5', b'.', ..]) => true,
        Some(v @ [b'6', b'.', ..]) => memchr::memmem::find(v, b"SV1").is_none(),
        _ => false,
    }
}
