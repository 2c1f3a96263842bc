//! Values of expressions, and how one kind becomes another (XPath, sections 3.2 to 3.5 and 4).

use std::borrow::Cow;
use std::rc::Rc;

use crate::frozen::Frozen;
use crate::tree::{Doc, Id, Node, ROOT};

/// A node of one of the documents of a run. Their order is document order; documents come in the
/// order in which they were read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct N {
    pub(crate) doc: u32,
    pub(crate) id: Id,
}

/// The documents of a run.
#[derive(Default)]
pub(crate) struct Docs(Frozen<Rc<Doc>>);

impl Docs {
    /// Adds a document, where it is not there yet; its root.
    pub(crate) fn add(&self, doc: Rc<Doc>) -> N {
        let known =
            doc.place.get().filter(|at| self.0.get(*at).is_some_and(|d| Rc::ptr_eq(d, &doc)));
        let at = known.unwrap_or_else(|| {
            doc.place.set(Some(self.0.len()));
            self.0.push(doc)
        });
        N { doc: at, id: ROOT }
    }

    /// The document of a node.
    pub(crate) fn doc(&self, n: N) -> &Rc<Doc> {
        self.0.get(n.doc).expect("nodes are made of documents that were added")
    }

    pub(crate) fn node(&self, n: N) -> &Node {
        self.doc(n).node(n.id)
    }

    /// A node's string-value.
    pub(crate) fn value(&self, n: N) -> Cow<'_, str> {
        self.doc(n).value(n.id)
    }
}

/// The value of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Nodes in document order, each once.
    Nodes(Rc<Vec<N>>),
    Bool(bool),
    Number(f64),
    Text(Rc<str>),
    /// A result tree fragment (XSLT, section 11.1).
    Tree(Rc<Doc>),
}

impl Value {
    pub(crate) fn text(text: &str) -> Value {
        Value::Text(Rc::from(text))
    }

    /// Nodes that are in document order, each once.
    pub(crate) fn nodes(nodes: Vec<N>) -> Value {
        Value::Nodes(Rc::new(nodes))
    }

    /// Nodes in any order, and some of them repeated.
    pub(crate) fn unordered(mut nodes: Vec<N>) -> Value {
        order(&mut nodes);
        Value::nodes(nodes)
    }

    /// As `boolean()` makes it.
    pub(crate) fn to_bool(&self) -> bool {
        match self {
            Value::Nodes(nodes) => !nodes.is_empty(),
            Value::Bool(value) => *value,
            Value::Number(number) => *number != 0.0 && !number.is_nan(),
            Value::Text(text) => !text.is_empty(),
            Value::Tree(_) => true,
        }
    }

    /// As `string()` makes it.
    pub(crate) fn to_text<'a>(&'a self, docs: &'a Docs) -> Cow<'a, str> {
        match self {
            Value::Nodes(nodes) => nodes.first().map_or("".into(), |n| docs.value(*n)),
            Value::Bool(value) => if *value { "true" } else { "false" }.into(),
            Value::Number(number) => number_text(*number).into(),
            Value::Text(text) => (&**text).into(),
            Value::Tree(doc) => doc.value(ROOT),
        }
    }

    /// As `number()` makes it.
    pub(crate) fn to_number(&self, docs: &Docs) -> f64 {
        match self {
            Value::Bool(value) => f64::from(u8::from(*value)),
            Value::Number(number) => *number,
            _ => text_number(&self.to_text(docs)),
        }
    }
}

/// Brings nodes into document order, and leaves each once.
pub(crate) fn order(nodes: &mut Vec<N>) {
    if !nodes.is_sorted_by(|a, b| a < b) {
        nodes.sort_unstable();
        nodes.dedup();
    }
}

/// A number as text: integers as they are, others with the digits that libxml2 writes, 15 of them
/// or 16.
pub(crate) fn number_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if number == 0.0 {
        return "0".to_owned();
    }
    if number == number.trunc() {
        return format!("{number}");
    }
    // The noise behind the digits that a double has goes: 0.1 + 0.2 is 0.3.
    let place = number.abs().log10() as i32;
    let decimals = if place > 0 { 14 - place } else { 15 - place };
    let text = format!("{number:.*}", usize::try_from(decimals).unwrap_or_default());
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A text as a number: an optional sign and digits, with white space around; NaN for all else.
pub(crate) fn text_number(text: &str) -> f64 {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        && digits.bytes().any(|b| b.is_ascii_digit())
        && digits.bytes().filter(|b| *b == b'.').count() < 2;
    if is_number { text.parse().unwrap_or(f64::NAN) } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_text() {
        for (number, want) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-12.0, "-12"),
            (1.5, "1.5"),
            (0.1 + 0.2, "0.3"),
            (1e15, "1000000000000000"),
            (1e21, "1000000000000000000000"),
            (0.000_001_5, "0.0000015"),
            (std::f64::consts::PI, "3.141592653589793"),
            (316.227_766_016_837_9, "316.227766016838"),
            (123_456_789_012_345_680.5, "123456789012345680"),
            (12_345_678_901_234.5, "12345678901234.5"),
            (-1.0 / 3.0, "-0.333333333333333"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(number_text(number), want);
        }
    }

    #[test]
    fn texts_as_numbers() {
        for (text, want) in [("1", 1.0), (" -1.5\n", -1.5), (".5", 0.5), ("5.", 5.0)] {
            assert_eq!(text_number(text), want, "{text}");
        }
        for text in ["", "-", ".", "+1", "1e3", "1 2", "1.2.3", "0x1", "inf", "NaN"] {
            assert!(text_number(text).is_nan(), "{text}");
        }
    }
}
