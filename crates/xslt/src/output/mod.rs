//! Writes a result tree (XSLT, section 16): as XML, HTML, XHTML or text.
//!
//! Where the specification leaves room, the bytes are those of libxslt 1.1.35: the white space that
//! indentation adds, the form of references, the order of attributes.

mod charset;
mod html;
mod sink;
mod xml;

use crate::atoms::{Atom, Atoms, Name};
use crate::error::Result;
use crate::tree::{Doc, Id, Kind, NONE, ROOT};
use charset::Charset;
use sink::Sink;

/// The namespace of XHTML's elements.
const XHTML: &str = "http://www.w3.org/1999/xhtml";

/// The doctypes that make XHTML of XML.
const XHTML_PUBLIC: [&str; 3] = [
    "-//W3C//DTD XHTML 1.0 Strict//EN",
    "-//W3C//DTD XHTML 1.0 Transitional//EN",
    "-//W3C//DTD XHTML 1.0 Frameset//EN",
];
const XHTML_SYSTEM: [&str; 3] = [
    "http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd",
    "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd",
    "http://www.w3.org/TR/xhtml1/DTD/xhtml1-frameset.dtd",
];

/// How a result is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// As XML.
    Xml,
    /// As HTML 4.
    Html,
    /// Its text alone.
    Text,
    /// As XML that browsers read as HTML too: what the method `xml` does with a doctype of XHTML
    /// 1.0. Where a stylesheet states `xhtml`, which is no method of XSLT 1.0, it states none.
    Xhtml,
}

/// What `xsl:output` says (XSLT, section 16); `None` where it does not.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// `method`
    pub method: Option<Method>,
    /// `version`: of XML, or of HTML.
    pub version: Option<String>,
    /// `encoding`: a name as IANA has them; UTF-8 where there is none.
    pub encoding: Option<String>,
    /// Whether the XML declaration is left out.
    pub omit_xml_declaration: Option<bool>,
    /// The value of `standalone` in the XML declaration.
    pub standalone: Option<bool>,
    /// `doctype-public`
    pub doctype_public: Option<String>,
    /// `doctype-system`
    pub doctype_system: Option<String>,
    /// `indent`: HTML is indented where it is not said.
    pub indent: Option<bool>,
    /// `media-type`
    pub media_type: Option<String>,
    /// `cdata-section-elements`
    pub(crate) cdata: Vec<Name>,
}

impl Output {
    /// The method for a result: the stated one, or `Html` where the first element is `html` in no
    /// namespace with nothing but white space before it, else `Xml`; `Xhtml` for XML with a doctype
    /// of XHTML.
    pub(crate) fn method_for(&self, atoms: &Atoms, doc: &Doc) -> Method {
        let stated = self.method.filter(|method| *method != Method::Xhtml);
        let method = stated.unwrap_or_else(|| match is_html(atoms, doc) {
            true => Method::Html,
            false => Method::Xml,
        });
        let is_xhtml = |of: &Option<String>, known: [&str; 3]| {
            of.as_deref().is_some_and(|id| known.contains(&id))
        };
        let public = is_xhtml(&self.doctype_public, XHTML_PUBLIC);
        let has_element = doc.children(ROOT).any(|id| doc.node(id).kind == Kind::Element);
        if method == Method::Xml
            && has_element
            && (public || is_xhtml(&self.doctype_system, XHTML_SYSTEM))
        {
            return Method::Xhtml;
        }
        method
    }

    /// The encoding of the result; an error where nobody knows its name.
    pub(crate) fn charset(&self) -> Result<Charset> {
        Charset::of(self.charset_name())
    }

    /// The name of the encoding.
    fn charset_name(&self) -> &str {
        self.encoding.as_deref().map_or("UTF-8", str::trim)
    }
}

fn is_html(atoms: &Atoms, doc: &Doc) -> bool {
    for id in doc.children(ROOT) {
        let node = doc.node(id);
        match node.kind {
            Kind::Element => {
                return node.name.uri == Atom::EMPTY
                    && atoms.text(node.name.local).eq_ignore_ascii_case("html");
            }
            Kind::Text | Kind::RawText if !doc.own_value(id).bytes().all(crate::tree::is_space) => {
                return false;
            }
            _ => {}
        }
    }
    false
}

/// Writes a document. An error: an encoding that nobody knows; more than `bytes_max` bytes. A
/// document without a node gives nothing, not even an XML declaration.
pub(crate) fn write(
    output: &Output,
    atoms: &Atoms,
    doc: &Doc,
    bytes_max: usize,
) -> Result<Vec<u8>> {
    let charset = output.charset()?;
    let mut out = Sink::new(bytes_max);
    let method = output.method_for(atoms, doc);
    let source = Source { output, atoms, doc, charset: &charset };
    match method {
        _ if doc.node(ROOT).first == NONE => {}
        Method::Xml | Method::Xhtml => xml::write(&mut out, &source, method == Method::Xhtml),
        Method::Html => html::write(&mut out, &source),
        Method::Text => {
            let all = 0..doc.len();
            for id in all.filter(|id| doc.node(*id).kind.is_text()) {
                out.push(doc.own_value(id));
            }
        }
    }
    charset.encode(out.finish()?, bytes_max)
}

/// What is written, and how.
struct Source<'a> {
    output: &'a Output,
    atoms: &'a Atoms,
    doc: &'a Doc,
    charset: &'a Charset,
}

impl<'a> Source<'a> {
    fn local(&self, id: Id) -> &'a str {
        self.atoms.text(self.doc.node(id).name.local)
    }

    fn uri(&self, id: Id) -> &'a str {
        self.atoms.text(self.doc.node(id).name.uri)
    }

    fn is_element(&self, id: Id) -> bool {
        id != NONE && self.doc.node(id).kind == Kind::Element
    }

    fn is_text(&self, id: Id) -> bool {
        id != NONE && self.doc.node(id).kind.is_text()
    }

    /// Adds the name of an element or attribute as it was written.
    fn name(&self, out: &mut Sink, id: Id) {
        let prefix = self.doc.node(id).prefix;
        if prefix != Atom::EMPTY {
            out.push(self.atoms.text(prefix));
            out.push(":");
        }
        out.push(self.local(id));
    }

    fn end_tag(&self, out: &mut Sink, id: Id) {
        out.push("</");
        self.name(out, id);
        out.push(">");
    }

    /// Adds the namespaces that an element declares.
    fn namespaces(&self, out: &mut Sink, id: Id) {
        for declared in self.doc.declared(id) {
            let prefix = self.local(declared);
            if prefix == "xml" {
                continue;
            }
            out.push(if prefix.is_empty() { " xmlns" } else { " xmlns:" });
            out.push(prefix);
            out.push("=\"");
            out.escaped(self.doc.own_value(declared), xml::in_attribute);
            out.push("\"");
        }
    }

    /// The first element at the top.
    fn top_element(&self) -> Option<Id> {
        self.doc.children(ROOT).find(|id| self.is_element(*id))
    }

    /// The attribute of a name in no namespace, in any case.
    fn attribute_like(&self, id: Id, local: &str) -> Option<Id> {
        let is_it =
            |id: &Id| self.uri(*id).is_empty() && self.local(*id).eq_ignore_ascii_case(local);
        self.doc.attributes(id).find(is_it)
    }

    /// Whether an element is a `meta` that states the type of the content.
    fn is_content_type(&self, id: Id) -> bool {
        self.is_element(id)
            && self.local(id).eq_ignore_ascii_case("meta")
            && self
                .attribute_like(id, "http-equiv")
                .is_some_and(|id| self.doc.own_value(id).eq_ignore_ascii_case("Content-Type"))
    }

    /// The type of the content that a `meta` states.
    fn content_type(&self) -> String {
        format!("text/html; charset={}", self.output.charset_name())
    }
}

/// What a walk meets.
enum Step {
    /// A node.
    Open(Id),
    /// An element, behind its last child.
    Close(Id),
}

/// Visits the nodes below the root in document order. The visitor says of an element whether its
/// children are visited too, and its end.
fn walk(doc: &Doc, mut visit: impl FnMut(Step) -> bool) {
    let mut at = doc.node(ROOT).first;
    while at != NONE {
        if visit(Step::Open(at)) {
            if doc.node(at).first != NONE {
                at = doc.node(at).first;
                continue;
            }
            visit(Step::Close(at));
        }
        while doc.node(at).next == NONE {
            at = doc.node(at).parent;
            if at == ROOT || at == NONE {
                return;
            }
            visit(Step::Close(at));
        }
        at = doc.node(at).next;
    }
}

#[cfg(test)]
mod tests;
