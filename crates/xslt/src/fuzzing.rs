//! What fuzz targets call: nothing else does.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use crate::atoms::{Atom, Atoms};
use crate::parse::{Entities, Parsing, parse};
use crate::run::{Bounds, Run};
use crate::sheet::Sheet;
use crate::tree::{Doc, Id, Kind, ROOT};

/// Reads a document, which may take so many bytes of memory, with the entities that a text
/// declares; its canonical form (<https://www.w3.org/TR/2001/REC-xml-c14n-20010315>, with
/// comments), which declares namespaces where they are declared. No file is read.
pub fn canonical(
    document: &[u8],
    entities: &[u8],
    bytes_max: usize,
) -> Result<String, crate::Error> {
    let atoms = Atoms::default();
    let entities = Entities::of(entities, "entities", false)?;
    let parsing = Parsing { entities: Some(&entities), external_entities: false, bytes_max };
    let doc = parse(&atoms, document, None, &parsing, true)?;
    assert!((1..doc.len()).all(|id| doc.line(id - 1) <= doc.line(id)), "lines grow");
    assert!(doc.ids.values().all(|id| doc.node(*id).kind == Kind::Element), "elements have IDs");
    Ok(written(&atoms, &doc))
}

/// The values of expressions at the root of a document, as text; the first error otherwise.
/// Everything together may take so many bytes of memory.
pub fn values(
    expressions: &[&str],
    document: &[u8],
    bytes_max: usize,
) -> Result<Vec<String>, crate::Error> {
    let sheet = Sheet::empty();
    let atoms = Atoms::over(sheet.atoms.clone());
    let parsing = Parsing { entities: None, external_entities: false, bytes_max };
    let doc = parse(&atoms, document, None, &parsing, false)?;
    let bounds = Bounds { bytes_max, is_cancelled: &AtomicBool::new(false) };
    let run = Run::new(&sheet, atoms, &bounds, false, doc)?;
    let text = |expression: &&str| Ok(run.value_of(expression)?.to_text(&run.docs).into_owned());
    expressions.iter().map(text).collect()
}

fn written(atoms: &Atoms, doc: &Doc) -> String {
    let mut out = String::new();
    let mut ends: Vec<(Id, String)> = Vec::new();
    let mut is_behind = false;
    for id in doc.node(ROOT).first.min(doc.len())..=doc.len() {
        while let Some((_, name)) = ends.pop_if(|(end, _)| *end <= id) {
            out.extend(["</", &name, ">"]);
            is_behind = ends.is_empty();
        }
        if id == doc.len() {
            break;
        }
        let node = doc.node(id);
        let is_top = node.parent == ROOT && node.kind != Kind::Element;
        out.push_str(if is_top && is_behind { "\n" } else { "" });
        let value = doc.own_value(id);
        match node.kind {
            Kind::Element => {
                let name = qname(atoms, node.prefix, node.name.local);
                out.extend(["<", &name]);
                tag(atoms, doc, id, &mut out);
                out.push('>');
                ends.push((node.end, name));
            }
            Kind::Text | Kind::RawText => escaped(value, false, &mut out),
            Kind::Comment => out.extend(["<!--", value, "-->"]),
            Kind::Pi => {
                let space = if value.is_empty() { "" } else { " " };
                out.extend(["<?", atoms.text(node.name.local), space, value, "?>"]);
            }
            Kind::Root | Kind::Namespace | Kind::Attribute => {}
        }
        out.push_str(if is_top && !is_behind { "\n" } else { "" });
    }
    out
}

fn qname(atoms: &Atoms, prefix: Atom, local: Atom) -> String {
    match (atoms.text(prefix), atoms.text(local)) {
        ("", local) => local.to_owned(),
        (prefix, local) => format!("{prefix}:{local}"),
    }
}

/// The namespaces that an element declares, and its attributes, in their order.
fn tag(atoms: &Atoms, doc: &Doc, id: Id, out: &mut String) {
    let declared: BTreeMap<_, _> = doc
        .declared(id)
        .map(|id| (atoms.text(doc.node(id).name.local), doc.own_value(id)))
        .collect();
    for (prefix, uri) in declared {
        out.extend([if prefix.is_empty() { " xmlns" } else { " xmlns:" }, prefix, "=\""]);
        escaped(uri, true, out);
        out.push('"');
    }
    let attributes: BTreeMap<_, _> = doc
        .attributes(id)
        .map(|id| ((atoms.text(doc.node(id).name.uri), atoms.text(doc.node(id).name.local)), id))
        .collect();
    for id in attributes.into_values() {
        out.extend([" ", &qname(atoms, doc.node(id).prefix, doc.node(id).name.local), "=\""]);
        escaped(doc.own_value(id), true, out);
        out.push('"');
    }
}

fn escaped(text: &str, is_attribute: bool, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' if !is_attribute => out.push_str("&gt;"),
            '"' if is_attribute => out.push_str("&quot;"),
            '\t' if is_attribute => out.push_str("&#x9;"),
            '\n' if is_attribute => out.push_str("&#xA;"),
            '\r' => out.push_str("&#xD;"),
            c => out.push(c),
        }
    }
}
