//! Request targets and hosts.

mod escape;
mod host;
mod normalize;
pub(crate) mod target;

pub use escape::{
    Escape, Unescape, escape, escape_html, has_whole_escapes, parse_unsafe, unescape,
};
pub use host::{Host, validate_host};
pub use normalize::{BadUri, Parts, extension, normalize};
pub(crate) use normalize::{check, hex_digit};
pub use target::{Target, inspect};
