//! XSLT 1.0 (<https://www.w3.org/TR/1999/REC-xslt-19991116>) with the functions of EXSLT that
//! libexslt has: a stylesheet is compiled once, and transforms documents in any thread.
//!
//! ```text
//!  bytes ─ parse ─▶ Doc ─┐                       ┌─▶ Doc ─ output ─▶ bytes
//!                        ├─▶ run (xpath, exslt) ─┤
//!  .xsl ─ sheet ─▶ Sheet ┘                       └─▶ Doc, the source of the next stylesheet
//! ```
//!
//! A transformation has bounds ([`Bounds`]): documents come from anywhere, and a stylesheet may go
//! round in circles. It holds the thread meanwhile, and files that it reads (`document()`) are
//! waited for: it belongs into a thread of a pool.

#![forbid(unsafe_code)]

mod atoms;
mod dtd;
mod error;
mod exslt;
mod frozen;
#[doc(hidden)]
pub mod fuzzing;
mod number;
mod output;
mod parse;
mod run;
mod sheet;
mod tree;
mod value;
mod xpath;

pub use error::Error;
pub use output::{Method, Output};
pub use parse::{Entities, Parsing};
pub use run::{Bounds, Parameter, STACK_BYTES, Transformed, transform};
pub use sheet::Sheet;

#[cfg(test)]
mod tests;

/// The namespace of XSLT's elements.
pub(crate) const XSL: &str = "http://www.w3.org/1999/XSL/Transform";

/// The namespace of the prefix `xml`.
pub(crate) const XML: &str = "http://www.w3.org/XML/1998/namespace";
