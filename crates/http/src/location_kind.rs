//! The kinds of locations.

/// The kind of a location, which its modifier selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocKind {
    /// The server's own level, for requests that no location takes.
    Server,
    /// `location = /x`
    Exact,
    /// `location /x`
    Prefix,
    /// `location ^~ /x`
    PrefixNoRegex,
    /// `location ~ x`, `location ~* x`
    Regex,
    /// `location @x`
    Named,
    /// An `if` block.
    If,
    /// A `limit_except` block.
    LimitExcept,
}
