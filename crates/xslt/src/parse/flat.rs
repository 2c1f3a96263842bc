//! The text of a document with all that its document type declaration adds to it: what entities
//! stand for, the default values of attributes. The declaration itself is left out. What comes out
//! is XML that needs no declaration.
//!
//! Only as much is checked as this takes; whatever else is wrong is left as it is, for the parser
//! to find. What makes the parser slow is bounded here, too: the depth of elements, their
//! attributes and namespaces.

use std::borrow::Cow;

use super::lines::{Flat, Mark, count};
use super::load::Loader;
use crate::dtd::{DEPTH_MAX, Dtd, Entity, character, is_name, reference};
use crate::error::{Error, Result};

/// The namespace of prefixes that nothing declares: names that have one are in no namespace, and
/// the prefix is a part of the name.
pub(super) const UNDECLARED: &str = "\u{efffd}undeclared";

/// How deep elements may be nested.
pub(super) const ELEMENTS_DEEP_MAX: usize = 256;

/// Comparisons of attributes and namespaces: the parser compares each of an element with each.
const COMPARISONS_MAX: usize = 1 << 31;

/// Elements with fewer attributes and namespaces are not counted.
const FEW: usize = 64;

/// About the memory that a reference takes besides its text, in bytes.
const REFERENCE_BYTES: usize = 64;

/// What a text is made of.
pub(super) struct Source<'a> {
    /// The document behind its XML declaration.
    pub(super) text: &'a str,
    /// The line on which the text begins.
    pub(super) line: u32,
    /// Where its document type declaration begins and ends; empty where it has none.
    pub(super) doctype: (usize, usize),
    pub(super) dtd: &'a Dtd,
    /// Whether no declaration is elsewhere.
    pub(super) standalone: bool,
    /// Entities of all documents, and their file.
    pub(super) entities: Option<(&'a Dtd, &'a str)>,
    pub(super) base: Option<&'a str>,
    pub(super) loader: &'a Loader,
    pub(super) bytes_max: usize,
}

/// A text that is read: the document, and in it entities in each other.
struct Frame<'a> {
    text: &'a str,
    at: usize,
    /// What is before was written.
    written: usize,
    /// The number of elements that were open at its beginning.
    floor: usize,
    /// The entity's name; empty for the document.
    name: &'a str,
}

/// An open element.
struct Open<'a> {
    name: &'a str,
    /// Its place in the document.
    at: usize,
    /// The number of namespaces around it.
    scope: usize,
}

struct Scanner<'a> {
    source: Source<'a>,
    frames: Vec<Frame<'a>>,
    open: Vec<Open<'a>>,
    /// Prefixes that are declared.
    scope: Vec<&'a str>,
    out: String,
    marks: Vec<Mark>,
    /// An offset of the document and its line.
    line: (usize, u32),
    /// The bytes that entities may take still.
    left: usize,
    /// The comparisons that are left.
    comparisons: usize,
    /// The bytes that lists of namespaces may take still.
    lists: usize,
}

/// Makes the text. Errors have the document's line, and no file.
pub(super) fn flatten(source: Source) -> Result<Flat> {
    let document = Frame { text: source.text, at: 0, written: 0, floor: 0, name: "" };
    let mut scanner = Scanner {
        frames: vec![document],
        open: Vec::new(),
        scope: Vec::new(),
        out: String::new(),
        marks: Vec::new(),
        line: (0, source.line),
        left: source.bytes_max,
        comparisons: COMPARISONS_MAX,
        lists: source.bytes_max,
        source,
    };
    if scanner.source.text.len() > scanner.source.bytes_max {
        return Err(too_large());
    }
    while scanner.step()? {}
    let open = scanner.open.last().map(|open| {
        let before = scanner.source.text.get(..open.at).unwrap_or_default();
        (open.name.to_owned(), scanner.source.line + count(before))
    });
    let text: Cow<str> = match scanner.marks.len() {
        // Nothing was written but the end.
        1 => scanner.source.text.into(),
        _ => scanner.out.into(),
    };
    Ok(Flat { text, marks: scanner.marks, open })
}

/// The error of a document that is too large.
pub(super) fn too_large() -> Error {
    Error::new("the document needs more memory than it may have")
}

/// The error of elements that are nested too deep.
pub(super) fn too_deep() -> Error {
    Error::new(format!("elements are nested deeper than {ELEMENTS_DEEP_MAX}"))
}

/// The prefix of a name.
fn prefix(name: &str) -> Option<&str> {
    name.split_once(':').map(|(prefix, _)| prefix).filter(|prefix| !prefix.is_empty())
}

fn is_predefined(name: &str) -> bool {
    matches!(name, "lt" | "gt" | "amp" | "apos" | "quot")
}

impl<'a> Scanner<'a> {
    /// An error at the place of the document that is read.
    fn fault<T>(&self, message: impl Into<String>) -> Result<T> {
        let at = self.frames.first().map_or(0, |frame| frame.at);
        let before = self.source.text.get(..at).unwrap_or_default();
        let line = self.source.line + count(before);
        Err(Error::new(message).or_at("", line))
    }

    fn top(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("it ends with the last frame")
    }

    /// Reads text up to the next markup or reference, and that; whether there is more.
    fn step(&mut self) -> Result<bool> {
        let is_inside = !self.open.is_empty();
        let frame = self.top();
        let (text, from) = (frame.text, frame.at);
        let rest = text.as_bytes().get(from..).unwrap_or_default();
        let Some(len) = rest.iter().position(|b| matches!(b, b'<' | b'&' | b'\r')) else {
            return self.end();
        };
        frame.at = from + len;
        match rest[len] {
            b'<' => self.markup()?,
            b'&' if is_inside => self.reference()?,
            // Line ends are others: it comes from a reference to it.
            b'\r' => {
                self.spend(0)?;
                self.write(from + len);
                self.out.push_str("&#13;");
                self.resume(from + len + 1);
            }
            _ => frame.at += 1,
        }
        Ok(true)
    }

    /// The end of a text.
    fn end(&mut self) -> Result<bool> {
        let depth = self.open.len();
        let frame = self.top();
        let (name, floor, len) = (frame.name, frame.floor, frame.text.len());
        if self.frames.len() == 1 && self.marks.is_empty() {
            // All stays as it is.
            self.marks.push(Mark { at: 0, line: self.source.line, counts: true });
        } else {
            self.write(len);
        }
        if self.out.len() > self.source.bytes_max {
            return Err(too_large());
        }
        if self.frames.len() > 1 && depth != floor {
            return self.malformed(name);
        }
        self.frames.pop();
        Ok(!self.frames.is_empty())
    }

    fn malformed<T>(&self, name: &str) -> Result<T> {
        self.fault(format!("the text of the entity \"{name}\" is not well-formed"))
    }

    /// Leaves the rest of the text as it is: the parser will find what is wrong with it.
    fn give_up(&mut self) -> Result<()> {
        let frame = self.top();
        frame.at = frame.text.len();
        match frame.name {
            "" => Ok(()),
            name => self.malformed(name),
        }
    }

    /// Writes the text up to an offset.
    fn write(&mut self, to: usize) {
        let is_document = self.frames.len() == 1;
        let frame = self.top();
        let (text, from) = (frame.text, frame.written);
        frame.written = to;
        let place =
            self.frames.first().map_or(0, |frame| if is_document { from } else { frame.at });
        let between = self.source.text.get(self.line.0..place).unwrap_or_default();
        self.line = (place, self.line.1 + count(between));
        self.marks.push(Mark { at: self.out.len(), line: self.line.1, counts: is_document });
        self.out.push_str(text.get(from..to).unwrap_or_default());
    }

    /// Goes on at an offset; what is between was written in another way.
    fn resume(&mut self, at: usize) {
        let frame = self.top();
        (frame.at, frame.written) = (at, at);
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        let Some(left) = self.left.checked_sub(bytes + REFERENCE_BYTES) else {
            let bytes = self.source.bytes_max;
            return self.fault(format!("entities stand for more than {bytes} bytes of text"));
        };
        self.left = left;
        Ok(())
    }

    fn markup(&mut self) -> Result<()> {
        let is_document = self.frames.len() == 1;
        let doctype = self.source.doctype;
        let frame = self.top();
        let rest = &frame.text[frame.at..];
        let (begin, end) = if rest.starts_with("<!--") {
            ("<!--", "-->")
        } else if rest.starts_with("<![CDATA[") {
            ("<![CDATA[", "]]>")
        } else if let Some(behind) = rest.strip_prefix("<?") {
            if behind.strip_prefix("xml").is_some_and(|rest| !rest.starts_with(is_name)) {
                return self.fault("an XML declaration is not at the document's beginning");
            }
            ("<?", "?>")
        } else if is_document && doctype.1 > doctype.0 && doctype.0 == frame.at {
            self.write(doctype.0);
            self.resume(doctype.1);
            return Ok(());
        } else if rest.starts_with("</") {
            return self.end_tag();
        } else if rest.starts_with("<!") {
            return self.give_up();
        } else {
            return self.start_tag();
        };
        match rest[begin.len()..].find(end) {
            Some(len) => frame.at += begin.len() + len + end.len(),
            None => return self.give_up(),
        }
        Ok(())
    }

    fn end_tag(&mut self) -> Result<()> {
        let depth = self.open.len();
        let frame = self.top();
        let len = frame.text[frame.at..].find('>');
        let Some(len) = len.filter(|_| depth > frame.floor) else { return self.give_up() };
        frame.at += len + 1;
        if let Some(ended) = self.open.pop() {
            self.scope.truncate(ended.scope);
        }
        Ok(())
    }

    fn start_tag(&mut self) -> Result<()> {
        let frame = self.top();
        let (text, begin) = (frame.text, frame.at);
        let name = name_at(text, begin + 1);
        if name.is_empty() {
            return self.give_up();
        }
        let scope = self.scope.len();
        let mut names: Vec<&str> = vec![name];
        let mut at = begin + 1 + name.len();
        loop {
            at = spaces(text, at);
            match text.as_bytes().get(at) {
                Some(b'>' | b'/') => break,
                None => return self.give_up(),
                Some(_) => {}
            }
            let Some((attribute, from, to)) = attribute_at(text, at) else { return self.give_up() };
            if attribute == "xmlns" && names[1..].contains(&"xmlns") {
                return self.fault("the attribute \"xmlns\" comes twice");
            }
            match attribute.strip_prefix("xmlns:") {
                // It declares nothing.
                Some(_) if from == to => {
                    self.write(at);
                    self.resume(to + 1);
                }
                Some(prefix) => self.scope.push(prefix),
                None => {}
            }
            names.push(attribute);
            self.value(text, from, to)?;
            at = to + 1;
        }
        self.count(&names)?;
        self.add(at, &mut names)?;
        if self.scope.len() > scope {
            self.lists = self.lists.checked_sub(2 * self.scope.len()).ok_or_else(too_large)?;
        }
        let is_empty = text.as_bytes().get(at) == Some(&b'/');
        self.top().at = at + 1;
        if is_empty {
            self.scope.truncate(scope);
            return Ok(());
        }
        let place = if self.frames.len() == 1 { begin } else { self.frames[0].at };
        self.open.push(Open { name, at: place, scope });
        if self.open.len() > ELEMENTS_DEEP_MAX {
            return self.fault(too_deep().message);
        }
        Ok(())
    }

    /// Bounds the comparisons that an element takes, here and in the parser.
    fn count(&mut self, names: &[&str]) -> Result<()> {
        let attributes = names.len() + self.source.dtd.attributes(names[0]).len();
        let all = attributes + self.scope.len();
        if all > FEW {
            let comparisons = attributes.saturating_mul(all);
            let Some(left) = self.comparisons.checked_sub(comparisons) else {
                return self.fault("elements have too many attributes or namespaces");
            };
            self.comparisons = left;
        }
        Ok(())
    }

    /// Adds to a tag what its element lacks: the default values of attributes, and declarations of
    /// prefixes that have none.
    fn add(&mut self, at: usize, names: &mut Vec<&'a str>) -> Result<()> {
        let dtd = self.source.dtd;
        for attribute in dtd.attributes(names[0]) {
            let Some(value) = attribute.default.as_deref() else { continue };
            // A prefix for nothing declares nothing.
            let is_void = value.is_empty() && attribute.name.starts_with("xmlns:");
            if is_void || names[1..].contains(&&*attribute.name) {
                continue;
            }
            self.spend(attribute.name.len() + value.len())?;
            self.write(at);
            self.out.extend([" ", &*attribute.name, "=\""]);
            self.expand(value, &attribute.name, '"', 0)?;
            self.out.push('"');
            self.scope.extend(attribute.name.strip_prefix("xmlns:"));
            names.push(&attribute.name);
        }
        for name in names.iter() {
            let Some(prefix) = prefix(name).filter(|prefix| !matches!(*prefix, "xml" | "xmlns"))
            else {
                continue;
            };
            if !self.scope.contains(&prefix) {
                self.spend(prefix.len())?;
                self.write(at);
                self.out.extend([" xmlns:", prefix, "=\"", UNDECLARED, "\""]);
                self.scope.push(prefix);
            }
        }
        Ok(())
    }

    /// The value of an attribute in a text: its references are replaced.
    fn value(&mut self, text: &'a str, from: usize, to: usize) -> Result<()> {
        let mut at = from;
        while let Some(mark) = text[at..to].find('&').map(|mark| at + mark) {
            at = mark + 1;
            let Some(name) = reference(&text[at..to]) else { continue };
            if !self.is_kept(name)? {
                self.write(mark);
                let quote = if text[to..].starts_with('"') { '"' } else { '\'' };
                self.expand_one(name, quote, 0)?;
                at += name.len() + 1;
                self.resume(at);
            }
        }
        Ok(())
    }

    /// Whether a reference stays: to a character, or to an entity that everyone knows.
    fn is_kept(&self, name: &str) -> Result<bool> {
        match name.strip_prefix('#') {
            Some(number) if character(number).is_none() => {
                self.fault(format!("the reference \"&{name};\" names no character"))
            }
            Some(_) => Ok(true),
            None => Ok(is_predefined(name)),
        }
    }

    /// Writes what an entity stands for in the value of an attribute (section 3.3.3).
    fn expand_one(&mut self, name: &str, quote: char, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return self.fault(format!("the entity \"{name}\" refers to itself, or too deep"));
        }
        match self.entity(name)? {
            Some((Entity::Text(text), _)) => {
                self.spend(text.len())?;
                self.expand(text, name, quote, depth)
            }
            Some((Entity::External(_), _)) => {
                self.fault(format!("an attribute refers to the external entity \"{name}\""))
            }
            _ => Ok(()),
        }
    }

    /// Writes a text as a part of an attribute's value.
    fn expand(&mut self, text: &str, name: &str, quote: char, depth: usize) -> Result<()> {
        let mut rest = text;
        while let Some(mark) = rest.find(['&', '<', '\t', '\n', '\r', quote]) {
            self.out.push_str(&rest[..mark]);
            let behind = &rest[mark + 1..];
            match rest.as_bytes()[mark] {
                b'<' => {
                    return self.fault(format!("an attribute gets a '<' from \"{name}\""));
                }
                b'"' | b'\'' => {
                    self.spend(0)?;
                    self.out.push_str(if quote == '"' { "&quot;" } else { "&apos;" });
                }
                b'&' => match reference(behind) {
                    Some(of) if !self.is_kept(of)? => {
                        self.expand_one(of, quote, depth + 1)?;
                        rest = &behind[of.len() + 1..];
                        continue;
                    }
                    _ => self.out.push('&'),
                },
                _ => self.out.push(' '),
            }
            rest = behind;
        }
        self.out.push_str(rest);
        Ok(())
    }

    /// What a name stands for, and the file of its declaration; `None` where nobody declares it
    /// and that is no error.
    fn entity(&self, name: &str) -> Result<Option<(&'a Entity, Option<&'a str>)>> {
        let dtd = self.source.dtd;
        let shared = || {
            self.source
                .entities
                .and_then(|(dtd, base)| dtd.entities.get(name).map(|entity| (entity, Some(base))))
        };
        let own = dtd.entities.get(name).map(|entity| (entity, self.source.base));
        match own.or_else(shared) {
            Some((Entity::Unparsed(_), _)) => {
                self.fault(format!("a reference to the entity \"{name}\", which is no XML"))
            }
            None if !dtd.is_partial || self.source.standalone => {
                self.fault(format!("the entity \"{name}\" is not declared"))
            }
            found => Ok(found),
        }
    }

    /// A reference in text, at its `&`.
    fn reference(&mut self) -> Result<()> {
        let frame = self.top();
        let (mark, behind) = (frame.at, &frame.text[frame.at + 1..]);
        let Some(name) = reference(behind) else { return self.give_up() };
        frame.at += name.len() + 2;
        if self.is_kept(name)? {
            return Ok(());
        }
        let text = match self.entity(name)? {
            Some((Entity::Text(text), _)) => text,
            Some((Entity::External(uri), base)) => {
                self.source.loader.text(base, uri).unwrap_or_default()
            }
            _ => "",
        };
        if self.frames.len() > DEPTH_MAX || self.frames.iter().any(|frame| frame.name == name) {
            return self.fault(format!("the entity \"{name}\" refers to itself, or too deep"));
        }
        self.spend(text.len())?;
        let after = self.top().at;
        self.write(mark);
        self.resume(after);
        let floor = self.open.len();
        self.frames.push(Frame { text, at: 0, written: 0, floor, name });
        Ok(())
    }
}

/// The offset behind white space.
pub(super) fn spaces(text: &str, at: usize) -> usize {
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    at + rest.iter().take_while(|b| crate::tree::is_space(**b)).count()
}

/// The characters of a name at an offset.
pub(super) fn name_at(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or_default();
    &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]
}

/// An attribute at an offset: its name, where its value begins and ends.
fn attribute_at(text: &str, at: usize) -> Option<(&str, usize, usize)> {
    let name = name_at(text, at);
    let at = spaces(text, at + name.len());
    let at = spaces(text, at + text.get(at..)?.starts_with('=').then_some(1)?);
    let quote = text.as_bytes().get(at).filter(|b| matches!(b, b'"' | b'\''))?;
    let len = text.as_bytes()[at + 1..].iter().position(|b| b == quote)?;
    (!name.is_empty()).then_some((name, at + 1, at + 1 + len))
}
