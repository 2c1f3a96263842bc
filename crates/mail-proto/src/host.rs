//! Names of clients, from a PTR record.

use std::fmt;

/// Longest name, bytes (RFC 1035 section 2.3.4, without the root's dot).
const NAME_MAX: usize = 253;

/// A host's name: letters, digits, hyphens and dots alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostName(Box<str>);

impl HostName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a client for `Client-Host` and XCLIENT.
///
/// What a PTR record holds is anybody's choice: a name is made by [`ClientHost::from_ptr`] alone,
/// and counts only when its own addresses confirm it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientHost {
    /// A name.
    Name(HostName),
    /// There is none.
    Unavailable,
    /// It could not be resolved now.
    TempUnavail,
}

impl ClientHost {
    /// A name as a name server gave it; none where it holds other than letters, digits, hyphens
    /// and dots (RFC 1034 section 3.5), nothing, or more than 253 bytes.
    pub fn from_ptr(name: &[u8]) -> Option<ClientHost> {
        let ok = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        if name.is_empty() || name.len() > NAME_MAX || !name.iter().all(ok) {
            return None;
        }
        let name = std::str::from_utf8(name).ok()?;
        Some(ClientHost::Name(HostName(name.into())))
    }

    /// The text: the name, `[UNAVAILABLE]` or `[TEMPUNAVAIL]`, the words of XCLIENT.
    pub fn as_str(&self) -> &str {
        match self {
            ClientHost::Name(name) => name.as_str(),
            ClientHost::Unavailable => "[UNAVAILABLE]",
            ClientHost::TempUnavail => "[TEMPUNAVAIL]",
        }
    }
}

impl fmt::Display for ClientHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
