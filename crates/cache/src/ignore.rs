//! Fields of responses that have no effect: the bits of `*_ignore_headers`.

/// `X-Accel-Redirect`
pub const XA_REDIRECT: u64 = 1 << 1;
/// `X-Accel-Limit-Rate`
pub const XA_LIMIT_RATE: u64 = 1 << 2;
/// `X-Accel-Buffering`
pub const XA_BUFFERING: u64 = 1 << 3;
/// `X-Accel-Charset`
pub const XA_CHARSET: u64 = 1 << 4;
/// `X-Accel-Expires`
pub(crate) const XA_EXPIRES: u64 = 1 << 5;
/// `Expires`
pub const EXPIRES: u64 = 1 << 6;
/// `Cache-Control`
pub(crate) const CACHE_CONTROL: u64 = 1 << 7;
/// `Set-Cookie`
pub(crate) const SET_COOKIE: u64 = 1 << 8;
/// `Vary`
pub const VARY: u64 = 1 << 9;
/// The words of the directive.
pub const WORDS: &[(&str, u64)] = &[
    ("X-Accel-Redirect", XA_REDIRECT),
    ("X-Accel-Expires", XA_EXPIRES),
    ("X-Accel-Limit-Rate", XA_LIMIT_RATE),
    ("X-Accel-Buffering", XA_BUFFERING),
    ("X-Accel-Charset", XA_CHARSET),
    ("Expires", EXPIRES),
    ("Cache-Control", CACHE_CONTROL),
    ("Set-Cookie", SET_COOKIE),
    ("Vary", VARY),
];
