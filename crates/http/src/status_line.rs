//! Texts of ours in response heads: of statuses, and of `Server`.

pub use http_wire::h1::reason;

use crate::core_conf::ServerTokens;

/// The status in logs of a request whose client is gone before there is an answer.
pub(crate) const CLIENT_CLOSED: u16 = 499;

/// The name and version that responses tell.
pub(crate) fn server_token(tokens: ServerTokens) -> &'static str {
    match tokens {
        ServerTokens::Off => "weir",
        ServerTokens::On => concat!("weir/", env!("CARGO_PKG_VERSION")),
        ServerTokens::Build => concat!("weir/", env!("CARGO_PKG_VERSION"), " (release)"),
    }
}
