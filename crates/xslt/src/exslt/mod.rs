//! The functions of EXSLT (<https://exslt.org>) that libexslt has, and those of libxslt itself.

mod calendar;
mod common;
mod dates;
mod duration;
mod dynamic;
mod lexical;
mod math;
mod sets;
mod strings;

use std::rc::Rc;

use crate::error::Result;
use crate::tree::{Builder, Doc};
use crate::value::Value;
use crate::xpath::{Cx, Function};

/// All functions here, by module.
pub(crate) static FUNCTIONS: &[&[Function]] = &[
    common::FUNCTIONS,
    strings::FUNCTIONS,
    math::FUNCTIONS,
    sets::FUNCTIONS,
    dates::FUNCTIONS,
    dynamic::FUNCTIONS,
];

const fn function(
    uri: &'static str,
    name: &'static str,
    args: (usize, usize),
    call: fn(&Cx, &[Value]) -> Result<Value>,
) -> Function {
    Function { uri, name, args, call }
}

/// A tree that a function makes.
fn tree(cx: &Cx, write: impl FnOnce(&mut Builder) -> Result<()>) -> Result<Rc<Doc>> {
    let mut out = cx.run.builder();
    write(&mut out)?;
    Ok(cx.run.finished(out))
}

/// A tree of a text.
fn tree_of(cx: &Cx, text: &str) -> Result<Rc<Doc>> {
    tree(cx, |out| out.text(text, false))
}

#[cfg(test)]
mod tests;
