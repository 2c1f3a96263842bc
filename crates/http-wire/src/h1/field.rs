//! Known field names: an id for each, found without allocation.
//!
//! The look-up hashes the length and three letters of a name into a table that is filled, and
//! checked to be free of collisions, at compile time; one comparison then confirms the name.

/// Generates the enum, its names in lower case and its number of members.
macro_rules! fields {
    ($($id:ident = $name:literal,)*) => {
        /// A field name known to the engine; everything else is [`FieldId::Other`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum FieldId {
            /// A name that has no id, or one that holds a character no known name has.
            Other,
            $(#[doc = concat!("`", $name, "`")] $id,)*
        }

        /// Names in lower case, indexed by `FieldId as usize`; the first is empty.
        const NAMES: &[&str] = &["", $($name,)*];

        /// Ids in the order of `NAMES`.
        const IDS: &[FieldId] = &[FieldId::Other, $(FieldId::$id,)*];
    };
}

fields! {
    Accept = "accept",
    AcceptEncoding = "accept-encoding",
    AcceptLanguage = "accept-language",
    AcceptRanges = "accept-ranges",
    Age = "age",
    Allow = "allow",
    Authorization = "authorization",
    CacheControl = "cache-control",
    Connection = "connection",
    ContentDisposition = "content-disposition",
    ContentEncoding = "content-encoding",
    ContentLength = "content-length",
    ContentLocation = "content-location",
    ContentRange = "content-range",
    ContentType = "content-type",
    Cookie = "cookie",
    Date = "date",
    Depth = "depth",
    Destination = "destination",
    EarlyData = "early-data",
    ETag = "etag",
    Expect = "expect",
    Expires = "expires",
    Forwarded = "forwarded",
    Host = "host",
    If = "if",
    IfMatch = "if-match",
    IfModifiedSince = "if-modified-since",
    IfNoneMatch = "if-none-match",
    IfRange = "if-range",
    IfUnmodifiedSince = "if-unmodified-since",
    KeepAlive = "keep-alive",
    LastModified = "last-modified",
    Link = "link",
    Location = "location",
    LockToken = "lock-token",
    Origin = "origin",
    Overwrite = "overwrite",
    P3p = "p3p",
    Pragma = "pragma",
    Priority = "priority",
    ProxyAuthenticate = "proxy-authenticate",
    ProxyAuthorization = "proxy-authorization",
    ProxyConnection = "proxy-connection",
    Range = "range",
    Referer = "referer",
    Refresh = "refresh",
    SecWebSocketKey = "sec-websocket-key",
    Server = "server",
    SetCookie = "set-cookie",
    SetCookie2 = "set-cookie2",
    Status = "status",
    StrictTransportSecurity = "strict-transport-security",
    Te = "te",
    Timeout = "timeout",
    Trailer = "trailer",
    TransferEncoding = "transfer-encoding",
    Upgrade = "upgrade",
    UpgradeInsecureRequests = "upgrade-insecure-requests",
    UserAgent = "user-agent",
    Vary = "vary",
    Via = "via",
    WwwAuthenticate = "www-authenticate",
    XAccelBuffering = "x-accel-buffering",
    XAccelCharset = "x-accel-charset",
    XAccelExpires = "x-accel-expires",
    XAccelLimitRate = "x-accel-limit-rate",
    XAccelRedirect = "x-accel-redirect",
    XForwardedFor = "x-forwarded-for",
    XForwardedHost = "x-forwarded-host",
    XForwardedProto = "x-forwarded-proto",
    XPad = "x-pad",
    XRealIp = "x-real-ip",
    XRequestedWith = "x-requested-with",
}

/// Ids, `Other` not among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FieldSet([u64; 2]);

const _: () = assert!(FieldId::COUNT <= 128, "a bit for each id in FieldSet");

impl FieldSet {
    /// None.
    pub const EMPTY: FieldSet = FieldSet([0; 2]);

    /// These ids.
    pub const fn of(ids: &[FieldId]) -> FieldSet {
        let mut set = FieldSet::EMPTY;
        let mut i = 0;
        while i < ids.len() {
            set.0[(ids[i] as usize >> 6) & 1] |= 1 << (ids[i] as u8 & 63);
            i += 1;
        }
        set
    }

    /// Adds an id.
    #[inline]
    pub fn insert(&mut self, id: FieldId) {
        self.0[usize::from(id as u8 >> 6) & 1] |= 1 << (id as u8 & 63);
    }

    /// Whether an id is among them.
    #[inline]
    pub fn has(&self, id: FieldId) -> bool {
        self.0[usize::from(id as u8 >> 6) & 1] >> (id as u8 & 63) & 1 != 0
    }

    /// Whether an id is in both.
    #[inline]
    pub(super) fn meets(&self, other: &FieldSet) -> bool {
        self.0[0] & other.0[0] | self.0[1] & other.0[1] != 0
    }
}

/// Slots of the look-up table; a power of two.
const SLOTS: usize = 512;

/// Longest known name: anything longer is `Other` without hashing.
const LONGEST: usize = longest();

/// The table: an index into `IDS` and `NAMES`, 0 for an empty slot.
static TABLE: [u8; SLOTS] = table();

impl FieldId {
    /// The number of ids, `Other` included; each `id as usize` is below it.
    pub const COUNT: usize = IDS.len();

    /// The id of a name, letters of either case.
    /// Not inlined: the set of modules does not decide whether the parser of heads has a copy of
    /// its own.
    #[inline(never)]
    pub fn lookup(name: &[u8]) -> FieldId {
        let len = name.len();
        if len == 0 || len > LONGEST {
            return FieldId::Other;
        }
        let at = TABLE[slot(name)] as usize;
        if eq_lower(name, NAMES[at].as_bytes()) { IDS[at] } else { FieldId::Other }
    }

    /// The name in lower case; empty for `Other`.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// True for fields that a request may carry once only (nginx answers 400 to a second one).
    #[inline]
    pub(crate) const fn is_unique_in_request(self) -> bool {
        matches!(
            self,
            FieldId::Authorization
                | FieldId::ContentLength
                | FieldId::ContentRange
                | FieldId::Expect
                | FieldId::Host
                | FieldId::IfMatch
                | FieldId::IfModifiedSince
                | FieldId::IfNoneMatch
                | FieldId::IfRange
                | FieldId::IfUnmodifiedSince
                | FieldId::ProxyAuthorization
                | FieldId::TransferEncoding
        )
    }
}

/// Slot of a name that is not empty.
#[inline]
const fn slot(name: &[u8]) -> usize {
    let len = name.len();
    let first = (name[0] | 0x20) as usize;
    let middle = (name[len / 2] | 0x20) as usize;
    let last = (name[len - 1] | 0x20) as usize;
    (len * MUL[0] + first * MUL[1] + middle * MUL[2] + last * MUL[3]) & (SLOTS - 1)
}

/// Found by search: with these no two names share a slot (checked in `table`).
const MUL: [usize; 4] = [10, 5, 59, 38];

const fn longest() -> usize {
    let (mut i, mut max) = (0, 0);
    while i < NAMES.len() {
        if NAMES[i].len() > max {
            max = NAMES[i].len();
        }
        i += 1;
    }
    max
}

const fn table() -> [u8; SLOTS] {
    let mut table = [0u8; SLOTS];
    let mut i = 1;
    while i < NAMES.len() {
        let at = slot(NAMES[i].as_bytes());
        assert!(table[at] == 0, "two field names share a slot: search for new multipliers");
        table[at] = i as u8;
        i += 1;
    }
    table
}

/// Compares a name with a known one, which consists of small letters, digits and `-`.
///
/// `| 0x20` folds capital letters, but also control characters into digits and `-`; the second test
/// (bit 5 or bit 6 is set) excludes those, so that the comparison is exact for any input.
#[inline]
fn eq_lower(name: &[u8], lower: &[u8]) -> bool {
    const FOLD: u64 = 0x2020_2020_2020_2020;
    const PRINT: u64 = 0x4040_4040_4040_4040;
    if name.len() != lower.len() {
        return false;
    }
    let same = |x: &[u8; 8], y: &[u8; 8]| {
        let (x, y) = (u64::from_ne_bytes(*x), u64::from_ne_bytes(*y));
        x | FOLD == y && (x | x << 1) & PRINT == PRINT
    };
    // The last eight bytes overlap those before, where the length is no multiple: for most names,
    // the first and the last eight are all of them.
    if let (Some(x), Some(y)) = (name.last_chunk::<8>(), lower.last_chunk::<8>())
        && let (Some(a), Some(b)) = (name.first_chunk::<8>(), lower.first_chunk::<8>())
    {
        let between = || {
            let (a, _) = name.as_chunks::<8>();
            let (b, _) = lower.as_chunks::<8>();
            a.iter().zip(b).skip(1).all(|(x, y)| same(x, y))
        };
        return same(x, y) && same(a, b) && (name.len() <= 16 || between());
    }
    let half = |x: &[u8; 4], y: &[u8; 4]| {
        let (x, y) = (u32::from_ne_bytes(*x), u32::from_ne_bytes(*y));
        x | FOLD as u32 == y && (x | x << 1) & PRINT as u32 == PRINT as u32
    };
    if let (Some(x), Some(y)) = (name.last_chunk::<4>(), lower.last_chunk::<4>())
        && let (Some(a), Some(b)) = (name.first_chunk::<4>(), lower.first_chunk::<4>())
    {
        return half(x, y) && half(a, b);
    }
    name.iter().zip(lower).all(|(x, y)| x | 0x20 == *y && *x >= 0x20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for (i, name) in NAMES.iter().enumerate().skip(1) {
            assert_eq!(FieldId::lookup(name.as_bytes()) as usize, i, "{name}");
            assert_eq!(FieldId::lookup(name.to_uppercase().as_bytes()) as usize, i, "{name}");
            assert_eq!(FieldId::lookup(name.as_bytes()).name(), *name);
        }
    }

    #[test]
    fn sets_keep_ids_apart() {
        for id in IDS {
            let mut set = FieldSet::EMPTY;
            set.insert(*id);
            assert!(IDS.iter().all(|other| set.has(*other) == (other == id)));
            assert_eq!(FieldSet::of(&[*id]), set);
            assert!(IDS.iter().all(|other| set.meets(&FieldSet::of(&[*other])) == (other == id)));
        }
    }

    #[test]
    fn names_that_differ_in_one_byte_are_other() {
        for name in &NAMES[1..] {
            for at in 0..name.len() {
                for byte in 0..=255u8 {
                    let mut bytes = name.as_bytes().to_vec();
                    if bytes[at].eq_ignore_ascii_case(&byte) {
                        continue;
                    }
                    bytes[at] = byte;
                    let found = FieldId::lookup(&bytes);
                    let same = found.name().as_bytes().eq_ignore_ascii_case(&bytes);
                    assert!(found == FieldId::Other || same, "{bytes:?} found as {found:?}");
                }
            }
        }
        assert_eq!(FieldId::lookup(b""), FieldId::Other);
        assert_eq!(FieldId::lookup(&[b'a'; 300]), FieldId::Other);
    }
}
