//! `nginx.conf`: from text to a tree with positions, from the tree through tables of directives to
//! values and templates.
//!
//! - [`parse`]: words, blocks and `include`, with nginx's syntax and its messages
//! - [`table`]: directives with their contexts and numbers of arguments
//! - [`value`]: flags, sizes, times and enumerations as arguments
//! - [`template`]: text with `$variables`, compiled once and evaluated per request
//! - [`pattern`]: regular expressions with PCRE's syntax
//! - [`known`]: every directive of nginx, for messages about those that are not built in
//! - [`redact`]: the text without its secrets
//! - [`tokens`], [`format`], [`edit`]: a file's text with its comments and layout, for tools that
//!   change it
//! - [`collect`]: all errors of a configuration instead of the first
//! - [`mod@reference`]: directives as lines of text, for the reference page
//!
//! A file that works under nginx reads the same here, and messages are nginx's word for word. The
//! differences:
//!
//! - a message about a directive has the line of its name, one about an argument that of the
//!   argument; nginx uses the line of the `;` or `{` that ends the directive
//! - a comment may be of any length, which nginx refuses beyond its buffer of 4096 bytes
//! - a NUL byte outside of a comment is an error; nginx cuts the word there
//! - circles and floods of `include`, more than 128 nested blocks, pipes, sockets and devices (but
//!   `/dev/null`) are errors; nginx runs out of descriptors or stack, or waits
//!
//! Nothing in here may panic, hang or exhaust the stack, whatever the text is.
#![forbid(unsafe_code)]

pub mod collect;
pub mod edit;
pub mod environment;
mod error;
pub mod files;
pub mod foreign;
pub mod format;
pub mod glob;
pub mod hostnames;
pub mod known;
mod lexer;
pub mod lint;
pub mod map;
pub mod num_map;
pub mod parse;
pub mod pattern;
pub mod redact;
pub mod reference;
mod semicolon;
pub mod shares;
mod spelling;
pub mod table;
pub mod template;
pub mod tokens;
mod tree;
pub mod value;

pub use error::{ConfError, warn};
pub use tree::{Node, Pos, SourceFile, Tree, Word};
