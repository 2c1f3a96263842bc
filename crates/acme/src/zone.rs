//! The shared memory zone: the acme process publishes a view of all certificates and challenge
//! responses, as one text that is replaced as a whole.
//!
//! There is one writer. If it dies while writing, the checksum does not match, and workers keep the
//! last view until the next process publishes one.

use std::cell::RefCell;
use std::rc::Rc;

use base::crc::crc32;
use base::time::unix_secs;
use conf::{ConfError, Word};
use http::cx::Cx;
use pki::issue::KeyKind;
use pki::pem::Secret;
use pki::verify::{check_address, check_host};
use pki::x509::{Certificate, Kind};
use proto::acme::Identifier;
use shm::{Rows, ZoneState};

use crate::issuer::Order;
use crate::ordering::certificates;

/// The default name of the zone.
pub(crate) const NAME: &[u8] = b"ngx_acme_shared";

/// The default size of the zone, in bytes.
pub(crate) const BYTES: usize = 256 << 10;

/// A certificate as workers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// `ISSUER/ORDER`.
    pub key: String,
    /// The state of the order, for messages; for example the last error.
    pub state: String,
    /// The chain in PEM; empty if none was issued yet.
    pub chain: Vec<u8>,
    /// The private key in PEM.
    pub private: Secret,
    /// The last second of its validity, in seconds since 1970; 0 without a certificate.
    pub until: i64,
    /// The time of the next renewal, in seconds since 1970; 0 if unknown.
    pub renewal: i64,
    /// The number of consecutive failed attempts.
    pub failures: i64,
    /// The certificate is not configured any more. It stands in for one of other names that was not
    /// issued yet.
    pub is_stand_in: bool,
}

impl Shown {
    /// Whether the certificate can stand in for that of `order`: it is valid now, has the same
    /// issuer and key type, and covers one of `names`.
    pub fn covers(&self, order: &Order, names: &[Identifier]) -> bool {
        let issuer = |key: &str| key.rsplit_once('/').map(|(issuer, _)| issuer.to_owned());
        if self.chain.is_empty() || self.until <= unix_secs().cast_signed() {
            return false;
        }
        issuer(&self.key) == issuer(&order.key)
            && certificates(&self.chain)
                .and_then(|chain| chain.into_iter().next())
                .is_some_and(|own| is_of_kind(&own, order.kind) && covers_one(&own, names))
    }
}

fn is_of_kind(certificate: &Certificate, kind: KeyKind) -> bool {
    match certificate.public_key().kind() {
        Kind::P256 => kind == KeyKind::Ecdsa(256),
        Kind::P384 => kind == KeyKind::Ecdsa(384),
        Kind::P521 => kind == KeyKind::Ecdsa(521),
        Kind::Rsa(bits) => kind == KeyKind::Rsa(bits),
        _ => false,
    }
}

fn covers_one(certificate: &Certificate, names: &[Identifier]) -> bool {
    names.iter().any(|name| {
        let value = name.value();
        let value = value.as_bytes();
        match name {
            // A wildcard name is only covered by the same wildcard.
            Identifier::Dns(_) => {
                certificate.dns_names().any(|own| own.eq_ignore_ascii_case(value))
                    || check_host(certificate, value)
            }
            Identifier::Ip(_) => check_address(certificate, value),
        }
    })
}

/// The response to a challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// http-01: the token; tls-alpn-01: the server name.
    pub name: String,
    /// http-01: the body; tls-alpn-01: the certificate in PEM.
    pub text: Vec<u8>,
    /// http-01: empty; tls-alpn-01: the private key in PEM.
    pub private: Secret,
}

/// Everything that workers see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub certificates: Vec<Shown>,
    /// The responses to challenges in progress.
    pub answers: Vec<Answer>,
    /// Another host leads, and its challenge responses arrive through the folder, so a missing one
    /// may still appear.
    pub follows: bool,
}

/// The zone, mapped into all processes.
pub(crate) struct Shared {
    rows: Rows,
    /// The last view that this process decoded, and its version.
    seen: RefCell<(u64, Rc<View>)>,
}

impl ZoneState for Shared {
    fn died(&self, pid: u32, slot: usize) {
        self.rows.died(pid, slot, |_, _| {});
    }
}

/// Maps the zone, or reuses that of the previous configuration.
pub(crate) fn map(
    cx: &mut Cx,
    at: &Word,
    name: &[u8],
    bytes: usize,
) -> Result<Rc<Shared>, ConfError> {
    cx.declare_zone(at, name, Some(bytes), "acme")?;
    let shared = match cx.env.zones.kept::<Shared>(name) {
        Some(kept) => kept,
        None => {
            // Leaves space for the header of the rows.
            let words = (bytes / 8).saturating_sub(64);
            let rows = Rows::shared(bytes, words, 1).map_err(|e| {
                let e = base::log::os_error(&e);
                ConfError::at(at, format!("mmap(MAP_ANON|MAP_SHARED, {bytes}) failed {e}"))
            })?;
            Rc::new(Shared { rows, seen: RefCell::default() })
        }
    };
    cx.env.zones.put(name, shared.clone());
    Ok(shared)
}

impl Shared {
    /// A zone of this process alone.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Shared {
        let rows = Rows::shared(64 << 10, 8000, 1).expect("memory");
        Shared { rows, seen: RefCell::default() }
    }

    /// The current view; decoded again only if the version has changed.
    pub fn view(&self) -> Rc<View> {
        let mut seen = self.seen.borrow_mut();
        if seen.0 == self.rows.version() {
            return seen.1.clone();
        }
        let (version, text) = {
            let _lock = self.rows.lock();
            (self.rows.version(), Secret::new(self.rows.text(0, 0)))
        };
        if let Some(view) = decode(&text) {
            seen.1 = Rc::new(view);
        }
        seen.0 = version;
        seen.1.clone()
    }

    /// Publishes a view. Returns false and changes nothing if it does not fit.
    pub fn show(&self, view: &View) -> bool {
        let text = encode(view);
        let _lock = self.rows.lock();
        if !self.rows.put_text(0, 0, &text) {
            return false;
        }
        self.rows.changed();
        true
    }
}

/// Encodes a view: a checksum, then its parts, each with its length.
fn encode(view: &View) -> Secret {
    let parts = parts_of(view);
    let len = parts.iter().map(|part| part.len() + 4).sum::<usize>();
    // Allocated at the final size, because growing would leave copies of the keys in freed memory.
    let mut out = Secret::new(Vec::with_capacity(len + 4));
    out.extend_from_slice(&[0; 4]);
    for part in parts {
        out.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(part.as_ref());
    }
    let sum = crc32(&out[4..]);
    out[..4].copy_from_slice(&sum.to_le_bytes());
    out
}

fn parts_of(view: &View) -> Vec<std::borrow::Cow<'_, [u8]>> {
    use std::borrow::Cow::{Borrowed, Owned};
    let mut parts = vec![Owned(vec![u8::from(view.follows)])];
    for one in &view.certificates {
        parts.push(Borrowed(if one.is_stand_in { &b"s"[..] } else { &b"c"[..] }));
        parts.push(Borrowed(one.key.as_bytes()));
        parts.push(Borrowed(one.state.as_bytes()));
        parts.push(Borrowed(&one.chain));
        parts.push(Borrowed(&one.private));
        parts.push(Owned(one.until.to_le_bytes().to_vec()));
        parts.push(Owned(one.renewal.to_le_bytes().to_vec()));
        parts.push(Owned(one.failures.to_le_bytes().to_vec()));
    }
    for one in &view.answers {
        parts.push(Borrowed(&b"a"[..]));
        parts.push(Borrowed(one.name.as_bytes()));
        parts.push(Borrowed(&one.text));
        parts.push(Borrowed(&one.private));
    }
    parts
}

fn decode(text: &[u8]) -> Option<View> {
    let (sum, mut rest) = text.split_first_chunk::<4>()?;
    if crc32(rest) != u32::from_le_bytes(*sum) {
        return None;
    }
    let mut next = || {
        let (len, behind) = rest.split_first_chunk::<4>()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (part, behind) = behind.split_at_checked(len)?;
        rest = behind;
        Some(part)
    };
    let string = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let number = |part: &[u8]| Some(i64::from_le_bytes(part.try_into().ok()?));
    let mut view = View { follows: next()? == [1], ..View::default() };
    while let Some(kind) = next() {
        match kind {
            b"c" | b"s" => view.certificates.push(Shown {
                is_stand_in: kind == b"s",
                key: string(next()?),
                state: string(next()?),
                chain: next()?.to_vec(),
                private: Secret::new(next()?.to_vec()),
                until: number(next()?)?,
                renewal: number(next()?)?,
                failures: number(next()?)?,
            }),
            _ => view.answers.push(Answer {
                name: string(next()?),
                text: next()?.to_vec(),
                private: Secret::new(next()?.to_vec()),
            }),
        }
    }
    Some(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> View {
        View {
            certificates: vec![
                Shown { key: "i/a-1".into(), state: "waits".into(), ..Shown::default() },
                Shown {
                    key: "i/b-2".into(),
                    chain: b"chain".to_vec(),
                    private: Secret::new(b"key".to_vec()),
                    until: i64::MAX,
                    renewal: -1,
                    failures: 3,
                    ..Shown::default()
                },
                Shown { key: "i/c-3".into(), is_stand_in: true, ..Shown::default() },
            ],
            answers: vec![Answer {
                name: "token".into(),
                text: b"text".to_vec(),
                private: Secret::default(),
            }],
            follows: true,
        }
    }

    #[test]
    fn what_is_shown_is_seen() {
        let rows = Rows::shared(4096, 400, 1).unwrap();
        let shared = Shared { rows, seen: RefCell::default() };
        assert_eq!(*shared.view(), View::default());
        assert!(shared.show(&sample()));
        assert_eq!(*shared.view(), sample());
        assert!(Rc::ptr_eq(&shared.view(), &shared.view()));
        let mut large = sample();
        large.certificates[1].chain = vec![b'x'; 4000];
        assert!(!shared.show(&large));
        assert_eq!(*shared.view(), sample());
    }

    #[test]
    fn a_text_that_is_not_whole_is_passed_over() {
        let text = encode(&sample());
        assert_eq!(decode(&text), Some(sample()));
        for at in 0..text.len() {
            let mut broken = text.to_vec();
            broken[at] ^= 1;
            assert_eq!(decode(&broken), None, "{at}");
            assert_eq!(decode(&text[..at]), None, "{at}");
        }
        // Whole by its sum, and senseless.
        for parts in [&b"\xff\xff\xff\xff"[..], b"\x01\0\0\0\x01\x01\0\0\0c\x01\0\0\0x"] {
            let mut odd = crc32(parts).to_le_bytes().to_vec();
            odd.extend_from_slice(parts);
            assert_eq!(decode(&odd), None);
        }
    }
}
