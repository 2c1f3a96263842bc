//! Reads documents (XML 1.0, Namespaces in XML 1.0).
//!
//! ```text
//!  bytes ─ encoding ─▶ text ─ dtd, flat ─▶ text without a DOCTYPE ─ roxmltree ─▶ tree ─▶ Doc
//! ```
//!
//! The parser gets text in which entities are replaced: of its own it expands few levels of them,
//! and takes the references in an external one for those of the document. Prefixes that nothing
//! declares are no errors, as with libxml2: they are parts of names then.

mod encoding;
mod flat;
mod lines;
mod load;

use std::path::Path;
use std::sync::Arc;

use roxmltree::{Document, Node, NodeType, ParsingOptions};

use crate::atoms::{Atom, Atoms, Name};
use crate::dtd::{Dtd, Entity, Fault, Kind};
use crate::error::{Error, Result};
use crate::tree::{self, Builder, Doc};
use flat::{ELEMENTS_DEEP_MAX, Source, UNDECLARED, flatten, name_at, spaces, too_large};
use lines::{Flat, Lines, count};
use load::{Loader, resolve};
pub(crate) use load::{path_of, read_file};

/// The size of a file of entities, with all that it refers to, in bytes.
const ENTITIES_BYTES_MAX: usize = 16 << 20;

/// About the memory that the parser sets aside for each `<` and `=`, in bytes.
const PARSER_BYTES: usize = 96;

/// How often a document's memory may be needed meanwhile.
const PARSER_SHARE: usize = 4;

/// Entities of a file (`xml_entities`): they are known in each document that does not declare its
/// own of their names. Whatever else the file declares does not count.
#[derive(Clone, Debug)]
pub struct Entities {
    dtd: Arc<Dtd>,
    file: Arc<str>,
}

impl Entities {
    /// Reads a file of declarations, such as `<!ENTITY nbsp "&#160;">`: an external subset without
    /// conditional sections (XML 1.0, section 2.8). An error has the file and the line.
    pub fn read(path: &Path) -> std::result::Result<Entities, Error> {
        let file = path.to_string_lossy().into_owned();
        let bytes = read_file(path, ENTITIES_BYTES_MAX)
            .map_err(|e| placed(Error::new(format!("the entities cannot be read: {e}")), &file))?;
        Entities::of(&bytes, &file, true)
    }

    /// Reads declarations of a file, and with `external` those of files that it refers to.
    pub(crate) fn of(bytes: &[u8], file: &str, external: bool) -> Result<Entities> {
        let read = || {
            let decoded = encoding::decode(bytes, true)?;
            let loader = Loader::new(external, ENTITIES_BYTES_MAX);
            let load = |uri: &str| loader.text(Some(file), uri).map(str::to_owned);
            let text = decoded.text();
            Dtd::external(text, &load, 8 * ENTITIES_BYTES_MAX)
                .map_err(|fault| declaration_error(fault, text, decoded.line()))
        };
        let dtd = read().map_err(|e| placed(e, file))?.into();
        Ok(Entities { dtd, file: file.into() })
    }
}

/// How documents are read.
#[derive(Clone, Copy, Debug)]
pub struct Parsing<'a> {
    /// Entities besides those of the documents.
    pub entities: Option<&'a Entities>,
    /// Whether external entities are read, of files alone; otherwise they are empty, as are those
    /// that cannot be read.
    pub external_entities: bool,
    /// The memory that a document may take, in bytes; meanwhile it takes a few times that.
    pub bytes_max: usize,
}

/// Reads a document. `base` is the file that it comes from: relative references begin there, and
/// errors name it. With `lines`, each node's line is noted.
pub(crate) fn parse(
    atoms: &Atoms,
    bytes: &[u8],
    base: Option<&str>,
    parsing: &Parsing,
    lines: bool,
) -> Result<Doc> {
    read(atoms, bytes, base, parsing, lines).map_err(|e| placed(e, base.unwrap_or("document")))
}

/// An error with the file, which it may lack; its message is one line.
fn placed(mut error: Error, file: &str) -> Error {
    let line = error.place.take().map_or(1, |(_, line)| line);
    if error.message.contains(char::is_control) {
        let escaped = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        error.message = error.message.chars().map(escaped).collect();
    }
    error.or_at(file, line)
}

fn read(
    atoms: &Atoms,
    bytes: &[u8],
    base: Option<&str>,
    parsing: &Parsing,
    lines: bool,
) -> Result<Doc> {
    let bytes_max = parsing.bytes_max;
    let decoded = encoding::decode(bytes, false)?;
    let (text, line) = (decoded.text(), decoded.line());
    let loader = Loader::new(parsing.external_entities, bytes_max);
    let (mut dtd, mut doctype) = (Dtd::default(), (0, 0));
    if let Some(at) = doctype_at(text) {
        let load = |uri: &str| loader.text(base, uri).map(str::to_owned);
        // That of a response is left alone, as nginx does; files are the operator's.
        let load_subset = |uri: &str| base.and_then(|_| load(uri));
        let (found, len) = Dtd::doctype(&text[at..], &load, &load_subset, bytes_max)
            .map_err(|fault| declaration_error(Fault { at: at + fault.at, ..fault }, text, line))?;
        (dtd, doctype) = (found, (at, at + len));
    }
    let shared = parsing.entities.map(|shared| (&*shared.dtd, &*shared.file));
    let flat = flatten(Source {
        text,
        line,
        doctype,
        dtd: &dtd,
        standalone: decoded.standalone,
        entities: shared,
        base,
        loader: &loader,
        bytes_max,
    })?;
    let tree = tree_of(&flat, bytes_max)?;
    let mut walk = Walk {
        text: &flat.text,
        dtd: &dtd,
        builder: Builder::new(atoms, false, bytes_max),
        lines: flat.lines(),
        line,
        notes_lines: lines,
    };
    walk.all(&tree).map_err(|e| e.or_at("", walk.line))?;
    let mut doc = walk.builder.finish();
    doc.base = base.map(Arc::from);
    doc.notes = loader.notes();
    note_unparsed(&mut doc, &dtd, base);
    if let Some((dtd, file)) = shared {
        note_unparsed(&mut doc, dtd, Some(file));
    }
    Ok(doc)
}

fn note_unparsed(doc: &mut Doc, dtd: &Dtd, base: Option<&str>) {
    for (name, entity) in &dtd.entities {
        if let Entity::Unparsed(uri) = entity {
            doc.unparsed.entry(name.clone()).or_insert_with(|| resolve(base, uri).into());
        }
    }
}

/// Parses text that has no document type declaration.
fn tree_of<'t>(flat: &'t Flat, bytes_max: usize) -> Result<Document<'t>> {
    // The parser sets memory aside at its beginning.
    let marks = flat.text.bytes().filter(|b| matches!(b, b'<' | b'=')).count();
    if marks.saturating_mul(PARSER_BYTES) > bytes_max.saturating_mul(PARSER_SHARE) {
        return Err(too_large());
    }
    let nodes = bytes_max / size_of::<tree::Node>() + 1;
    let nodes_limit = u32::try_from(nodes).unwrap_or(u32::MAX);
    let options = ParsingOptions { nodes_limit, ..ParsingOptions::default() };
    Document::parse_with_options(&flat.text, options).map_err(|e| explained(&e, flat))
}

/// The parser's error, for a log.
fn explained(error: &roxmltree::Error, flat: &Flat) -> Error {
    use roxmltree::Error as E;
    let pos = error.pos();
    let row = flat.text.split_inclusive('\n').take(pos.row.saturating_sub(1) as usize);
    let mut offset = row.map(str::len).sum::<usize>();
    let rest = flat.text.get(offset..).unwrap_or_default().char_indices();
    offset += rest.map(|(at, _)| at).nth(pos.col.saturating_sub(1) as usize).unwrap_or(0);
    let mut line = flat.lines().line(offset);
    let message = match error {
        E::NodesLimitReached => return too_large(),
        E::UnclosedRootNode | E::UnexpectedEndOfStream => {
            line = flat.lines().line(flat.text.len());
            match &flat.open {
                Some((name, of)) => format!("the document ends in <{name}> of line {of}"),
                None => "the document is not complete".to_owned(),
            }
        }
        E::UnexpectedCloseTag(expected, found, _) => {
            format!("mismatched tags: expected </{expected}>, found </{found}>")
        }
        E::NoRootNode => "the document has no element".to_owned(),
        E::DtdDetected => "a document type declaration is out of place".to_owned(),
        _ => error.to_string().replace(&format!(" at {pos}"), ""),
    };
    Error::new(message).or_at("", line)
}

/// Makes a document of the parser's tree.
struct Walk<'t, 'a> {
    text: &'t str,
    dtd: &'t Dtd,
    builder: Builder<'a>,
    lines: Lines<'t>,
    /// The line of the node at hand.
    line: u32,
    notes_lines: bool,
}

impl Walk<'_, '_> {
    fn all(&mut self, tree: &Document) -> Result<()> {
        let mut next = tree.root().first_child();
        while let Some(node) = next {
            self.one(node)?;
            if let Some(child) = node.first_child() {
                next = Some(child);
                continue;
            }
            // Upwards to one that has a sibling.
            let mut done = Some(node);
            next = None;
            while let Some(node) = done.filter(|node| !node.is_root()) {
                if node.is_element() {
                    self.builder.end();
                }
                next = node.next_sibling();
                done = if next.is_some() { None } else { node.parent() };
            }
        }
        Ok(())
    }

    fn one(&mut self, node: Node) -> Result<()> {
        if self.notes_lines {
            self.line = self.lines.line(node.range().start);
        }
        match node.node_type() {
            NodeType::Root => {}
            NodeType::Element => self.element(node)?,
            NodeType::Text => self.builder.text(node.text().unwrap_or_default(), false)?,
            NodeType::Comment => self.builder.comment(node.text().unwrap_or_default())?,
            NodeType::PI => {
                if let Some(pi) = node.pi() {
                    self.builder.pi(pi.target, pi.value.unwrap_or_default())?;
                }
            }
        }
        if self.notes_lines {
            self.builder.line(self.line);
        }
        Ok(())
    }

    /// The name and the prefix of what is written as `qname`.
    fn name(&self, qname: &str, uri: Option<&str>, local: &str) -> (Name, Atom) {
        let atoms = self.builder.atoms();
        match uri {
            // An entity may have made it empty.
            Some(UNDECLARED | "") => (atoms.name("", qname), Atom::EMPTY),
            Some(uri) => {
                let prefix = qname.split_once(':').map_or("", |(prefix, _)| prefix);
                (atoms.name(uri, local), atoms.get(prefix))
            }
            None => (atoms.name("", local), Atom::EMPTY),
        }
    }

    fn element(&mut self, node: Node) -> Result<()> {
        let qname = name_at(self.text, node.range().start + 1);
        let (name, prefix) = self.name(qname, node.tag_name().namespace(), node.tag_name().name());
        let id = self.builder.start(name, prefix)?;
        if self.builder.depth() > ELEMENTS_DEEP_MAX {
            return Err(flat::too_deep());
        }
        self.namespaces(node)?;
        let declared = self.dtd.attributes(qname);
        for attribute in node.attributes() {
            let qname = name_at(self.text, attribute.range().start);
            let (name, prefix) = self.name(qname, attribute.namespace(), attribute.name());
            let kind = match declared.iter().find(|of| *of.name == *qname) {
                _ if qname == "xml:id" => Kind::Id,
                Some(declared) => declared.kind,
                None => Kind::Cdata,
            };
            if kind == Kind::Cdata {
                self.builder.attribute(name, prefix, attribute.value())?;
                continue;
            }
            let words = attribute.value().split(' ').filter(|word| !word.is_empty());
            let value = words.collect::<Vec<_>>().join(" ");
            self.builder.attribute(name, prefix, &value)?;
            if kind == Kind::Id {
                self.builder.doc().ids.entry(value.into()).or_insert(id);
            }
        }
        Ok(())
    }

    /// The namespaces that an element declares.
    fn namespaces(&mut self, node: Node) -> Result<()> {
        let here = node.namespaces();
        if let Some(parent) = node.parent().filter(Node::is_element) {
            let above = parent.namespaces();
            if above.len() == here.len() && above.zip(here.clone()).all(|(a, b)| std::ptr::eq(a, b))
            {
                return Ok(());
            }
        }
        let atoms = self.builder.atoms();
        // Those that are in scope already are not declared again.
        for namespace in here {
            let prefix = namespace.name().unwrap_or_default();
            if namespace.uri() == UNDECLARED || namespace.uri().is_empty() && !prefix.is_empty() {
                continue;
            }
            self.builder.namespace(atoms.get(prefix), atoms.get(namespace.uri()))?;
        }
        Ok(())
    }
}

/// Where the document type declaration begins: behind comments and processing instructions.
fn doctype_at(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at = spaces(text, at);
        let rest = text.get(at..)?;
        let end = match () {
            () if rest.starts_with("<!DOCTYPE") => return Some(at),
            () if rest.starts_with("<!--") => rest.get(4..)?.find("-->")? + 4 + "-->".len(),
            () if rest.starts_with("<?") => rest.find("?>")? + "?>".len(),
            () => return None,
        };
        at += end;
    }
}

/// The error of a declaration, with the line of the document.
fn declaration_error(fault: Fault, text: &str, line: u32) -> Error {
    let before = text.get(..fault.at).unwrap_or_default();
    Error::new(fault.message).or_at("", line + count(before))
}

#[cfg(test)]
mod tests;
