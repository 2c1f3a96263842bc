//! Attribute value templates (XSLT, section 7.6.2).

use std::rc::Rc;

use super::fault;
use crate::error::Result;
use crate::xpath::{Cx, Scope, XPath, parse};

/// A text with expressions in braces.
#[derive(Debug)]
pub(crate) enum Avt {
    Constant(String),
    Parts(Vec<Part>),
}

/// A part of such a text.
#[derive(Debug)]
pub(crate) enum Part {
    Text(String),
    Expr(XPath),
}

impl Avt {
    pub(super) fn read(text: &str, scope: &dyn Scope) -> Result<Avt> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let after = &rest[at + 1..];
            if after.starts_with(brace) {
                literal.push_str(brace);
                rest = &after[1..];
                continue;
            }
            let Some(end) = end_of(after).filter(|_| brace == "{") else {
                return fault(format!("\"{text}\" has a brace without its other one"));
            };
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Expr(parse(&after[..end], scope)?));
            rest = &after[end + 1..];
        }
        literal.push_str(rest);
        if parts.is_empty() {
            return Ok(Avt::Constant(literal));
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Avt::Parts(parts))
    }

    /// The text in a context.
    pub(crate) fn eval(&self, cx: &Cx) -> Result<Rc<str>> {
        match self {
            Avt::Constant(text) => Ok(Rc::from(text.as_str())),
            Avt::Parts(parts) => match parts.as_slice() {
                [Part::Expr(one)] => one.text(cx),
                parts => {
                    let mut text = String::new();
                    for part in parts {
                        match part {
                            Part::Text(part) => text.push_str(part),
                            Part::Expr(expr) => text.push_str(&expr.text(cx)?),
                        }
                    }
                    cx.run.fits(text.len())?;
                    Ok(Rc::from(text))
                }
            },
        }
    }
}

/// Where an expression's closing brace is: not in a literal.
fn end_of(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '}') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    None
}
