//! The static table (appendix A), and what the encoder does with the fields of its names.

use crate::compression::name::Name;
use crate::compression::static_names::{Entry, StaticNames};

/// Entries of the static table; dynamic entries have the indices behind.
pub(super) const LEN: usize = ENTRIES.len();

/// When a field goes into the dynamic table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    /// At once: one value, or few, on a connection.
    First,
    /// When it comes a second time: its value differs from one resource to the next, and a table
    /// full of values that never come again would hold those that do for a short time only.
    Second,
    /// Never: the sizes of blocks would tell whether a guess is right (section 7.1).
    Never,
    /// Never where the value is short enough to be guessed.
    NeverShort,
}

use Policy::{First, Never, NeverShort, Second};

#[rustfmt::skip]
const ENTRIES: [(&str, &str, Policy); 61] = [
    (":authority", "", First),
    (":method", "GET", First),
    (":method", "POST", First),
    (":path", "/", Second),
    (":path", "/index.html", Second),
    (":scheme", "http", First),
    (":scheme", "https", First),
    (":status", "200", First),
    (":status", "204", First),
    (":status", "206", First),
    (":status", "304", First),
    (":status", "400", First),
    (":status", "404", First),
    (":status", "500", First),
    ("accept-charset", "", First),
    ("accept-encoding", "gzip, deflate", First),
    ("accept-language", "", Second),
    ("accept-ranges", "", First),
    ("accept", "", Second),
    ("access-control-allow-origin", "", First),
    ("age", "", Second),
    ("allow", "", First),
    ("authorization", "", Never),
    ("cache-control", "", First),
    ("content-disposition", "", Second),
    ("content-encoding", "", First),
    ("content-language", "", First),
    ("content-length", "", Second),
    ("content-location", "", Second),
    ("content-range", "", Second),
    ("content-type", "", First),
    ("cookie", "", NeverShort),
    ("date", "", Second),
    ("etag", "", Second),
    ("expect", "", First),
    ("expires", "", Second),
    ("from", "", Second),
    ("host", "", First),
    ("if-match", "", Second),
    ("if-modified-since", "", Second),
    ("if-none-match", "", Second),
    ("if-range", "", Second),
    ("if-unmodified-since", "", Second),
    ("last-modified", "", Second),
    ("link", "", Second),
    ("location", "", Second),
    ("max-forwards", "", First),
    ("proxy-authenticate", "", Second),
    ("proxy-authorization", "", Never),
    ("range", "", Second),
    ("referer", "", Second),
    ("refresh", "", Second),
    ("retry-after", "", Second),
    ("server", "", First),
    ("set-cookie", "", NeverShort),
    ("strict-transport-security", "", First),
    ("transfer-encoding", "", First),
    ("user-agent", "", Second),
    ("vary", "", First),
    ("via", "", First),
    ("www-authenticate", "", Second),
];

/// The entry at `index`, from 1.
#[inline]
pub(super) fn get(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    BYTES.get(index.wrapping_sub(1)).copied()
}

static BYTES: [Entry; LEN] = {
    let mut bytes: [Entry; LEN] = [(b"", b""); LEN];
    let mut at = 0;
    while at < LEN {
        bytes[at] = (ENTRIES[at].0.as_bytes(), ENTRIES[at].1.as_bytes());
        at += 1;
    }
    bytes
};

static POLICIES: [Policy; LEN] = {
    let mut policies = [First; LEN];
    let mut at = 0;
    while at < LEN {
        policies[at] = ENTRIES[at].2;
        at += 1;
    }
    policies
};

static NAMES: StaticNames<LEN> = StaticNames::new(&BYTES);

/// A name of the static table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Index of the first entry with the name.
    pub index: usize,
    pub policy: Policy,
}

impl Known {
    /// Index of the entry that has `value`, too.
    pub(crate) fn with_value(self, value: &[u8]) -> Option<usize> {
        NAMES.with_value(&BYTES, self.index - 1, value).map(|at| at + 1)
    }
}

pub(super) fn find(name: &Name) -> Option<Known> {
    let at = NAMES.find(&BYTES, name)?;
    Some(Known { index: at + 1, policy: POLICIES[at] })
}
