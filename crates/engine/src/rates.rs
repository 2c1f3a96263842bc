//! How fast a response may go, and how long a slow client is waited for.

use crate::min_rate::Credit;

/// The rates of one request.
#[derive(Debug, Default)]
pub struct Rates {
    /// `limit_rate` as changed by `set $limit_rate`, bytes a second; 0 is any number.
    pub limit: Option<u64>,
    /// The bytes at the response's start that are free of `limit`, if it is not for
    /// `limit_rate_after` to say.
    pub after: Option<u64>,
    /// The time for which the client's body is still waited for.
    pub body: Credit,
    /// The time for which the client's taking of the response is.
    pub sending: Credit,
}
