//! `nginx.conf`: from text to a tree with positions, from the tree through tables of directives to
//! values and templates.
//!
//! - [`parse`]: words, blocks and `include`, with nginx's syntax and its messages
//! - [`table`]: what a directive is, where it may stand, how many arguments it takes
//! - [`value`]: flags, sizes, times and enumerations as arguments
//! - [`template`]: text with `$variables`, compiled once and evaluated per request
//! - [`known`]: every directive of nginx, for the messages about those that are not built in
//! - [`reference`]: directives as lines of text, for the reference page
//!
//! Nothing in here may panic, hang or exhaust the stack, whatever the text is.
#![forbid(unsafe_code)]

mod error;
pub mod glob;
pub mod known;
mod lexer;
mod likely;
pub mod parse;
pub mod reference;
pub mod table;
pub mod template;
mod tree;
pub mod value;

pub use error::{ConfError, warn};
pub use tree::{Node, Pos, SourceFile, Tree, Word};
