//! The static table (appendix A), and what the encoder does with the fields of its names.

use super::name::Name;

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

static BYTES: [(&[u8], &[u8]); LEN] = {
    let mut bytes: [(&[u8], &[u8]); LEN] = [(b"", b""); LEN];
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

/// Indices of the first entry of each name, hashed, with linear probing; 0 is none.
static BY_NAME: [u8; 128] = {
    let mut by_name = [0; 128];
    let mut at = LEN;
    while at > 0 {
        let mut place = Name::new(BYTES[at - 1].0).hash() as usize % 128;
        while by_name[place] != 0 {
            let other = by_name[place] as usize;
            // Entries of one name are neighbours.
            if other == at + 1 && same(BYTES[other - 1].0, BYTES[at - 1].0) {
                break;
            }
            place = (place + 1) % 128;
        }
        by_name[place] = at as u8;
        at -= 1;
    }
    by_name
};

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// A name of the static table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Index of the first entry with the name.
    pub index: usize,
    pub policy: Policy,
}

impl Known {
    /// Index of the entry that has `value`, too.
    pub fn with_value(self, value: &[u8]) -> Option<usize> {
        let (name, _) = get(self.index)?;
        (self.index..)
            .map_while(|index| get(index).map(|entry| (index, entry)))
            .take_while(|(_, (other, _))| *other == name)
            .find(|(_, (_, other))| *other == value)
            .map(|(index, _)| index)
    }
}

/// Finds a name.
pub(super) fn find(name: &Name) -> Option<Known> {
    let mut place = name.hash() as usize % 128;
    // Fewer than 128 names: there is a place without.
    while BY_NAME[place] != 0 {
        let index = usize::from(BY_NAME[place]);
        if name.is(BYTES[index - 1].0) {
            return Some(Known { index, policy: POLICIES[index - 1] });
        }
        place = (place + 1) % 128;
    }
    None
}
