//! Request targets and hosts.

mod escape;
mod host;
mod normalize;
pub(crate) mod target;

pub use escape::{Escape, Unescape, escape, escape_html, parse_unsafe, unescape};
pub use host::{Host, validate_host};
pub(crate) use normalize::hex_digit;
pub use normalize::{BadUri, Parts, extension, normalize};
pub use target::{Target, inspect};
