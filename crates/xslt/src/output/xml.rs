//! Writes XML, and XML that is XHTML too (XHTML 1.0, appendix C).

use super::{Sink, Source, Step, XHTML, html, walk};
use crate::atoms::Name;
use crate::tree::{Id, Kind, NONE, ROOT};

/// Deeper elements are not indented further: that would cost the square of the depth.
const INDENTED_DEPTH: usize = 30;

/// Elements of XHTML without children that are written as `<br />`; the others get an end tag.
const VOID: [&str; 13] = [
    "area", "base", "basefont", "br", "col", "frame", "hr", "img", "input", "isindex", "link",
    "meta", "param",
];

/// Elements of XHTML whose `name` is an `id` too.
const NAMED: [&str; 9] = ["a", "applet", "div", "form", "frame", "iframe", "img", "map", "p"];

/// What a character of an attribute is written as, where it is not itself.
pub(super) fn in_attribute(c: char) -> Option<&'static str> {
    match c {
        '"' => Some("&quot;"),
        '\t' => Some("&#9;"),
        '\n' => Some("&#10;"),
        _ => in_text(c),
    }
}

fn in_text(c: char) -> Option<&'static str> {
    match c {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '\r' => Some("&#13;"),
        _ => None,
    }
}

/// Writes a document as XML.
pub(super) fn write(out: &mut Sink, source: &Source, is_xhtml: bool) {
    let output = source.output;
    if output.omit_xml_declaration != Some(true) {
        out.push("<?xml version=");
        out.quoted(output.version.as_deref().unwrap_or("1.0"));
        if output.encoding.is_some() {
            out.push(" encoding=");
            out.quoted(output.charset_name());
        }
        match output.standalone {
            Some(true) => out.push(" standalone=\"yes\""),
            Some(false) => out.push(" standalone=\"no\""),
            None => {}
        }
        out.push("?>\n");
    }
    // Without a word on indentation there are line ends at the top, and none below.
    let has_lines = output.indent != Some(false);
    doctype(out, source, has_lines);
    let mut xml = Xml { out, source, is_xhtml, indents: Vec::new() };
    walk(source.doc, |step| match step {
        Step::Open(id) => xml.open(id, has_lines),
        Step::Close(id) => xml.close(id),
    });
    if has_lines {
        xml.out.push("\n");
    }
}

fn doctype(out: &mut Sink, source: &Source, has_lines: bool) {
    let (public, system) = (&source.output.doctype_public, &source.output.doctype_system);
    let Some(top) = source.top_element() else { return };
    if public.is_none() && system.is_none() {
        return;
    }
    out.push("<!DOCTYPE ");
    source.name(out, top);
    match public {
        Some(public) => {
            out.push(" PUBLIC ");
            out.quoted(public);
            out.push(" ");
        }
        None => out.push(" SYSTEM "),
    }
    out.quoted(system.as_deref().unwrap_or_default());
    out.push(">");
    if has_lines {
        out.push("\n");
    }
}

struct Xml<'a> {
    out: &'a mut Sink,
    source: &'a Source<'a>,
    is_xhtml: bool,
    /// Of each open element: whether its children are on lines of their own.
    indents: Vec<bool>,
}

impl Xml<'_> {
    fn open(&mut self, id: Id, has_lines: bool) -> bool {
        let doc = self.source.doc;
        let node = doc.node(id);
        match node.kind {
            Kind::Element => {
                self.line(true);
                return self.element(id);
            }
            Kind::Text | Kind::RawText => self.text(id),
            Kind::Comment => {
                self.line(!self.is_xhtml);
                self.out.push("<!--");
                self.out.push(doc.own_value(id));
                self.out.push("-->");
                if node.parent == ROOT && node.next != NONE && has_lines {
                    self.out.push("\n");
                }
            }
            Kind::Pi => {
                self.line(!self.is_xhtml);
                self.out.push("<?");
                self.out.push(self.source.local(id));
                let value = doc.own_value(id);
                if !value.is_empty() {
                    self.out.push(" ");
                    self.out.push(value);
                }
                self.out.push("?>");
            }
            Kind::Root | Kind::Namespace | Kind::Attribute => {}
        }
        false
    }

    fn close(&mut self, id: Id) -> bool {
        if self.indents.pop() == Some(true) {
            // libxml2 does not indent the end of a `head` that has nothing but the added `meta`.
            let is_empty = self.source.doc.node(id).first == NONE;
            self.new_line(if is_empty { 0 } else { self.indents.len() });
        }
        self.source.end_tag(self.out, id);
        false
    }

    /// Begins the line of a child, where it has one.
    fn line(&mut self, is_indented: bool) {
        if self.indents.last() == Some(&true) {
            self.new_line(if is_indented { self.indents.len() } else { 0 });
        }
    }

    fn new_line(&mut self, depth: usize) {
        self.out.push("\n");
        self.out.push(&"  ".repeat(depth.min(INDENTED_DEPTH)));
    }

    /// Writes the start of an element; all of it where it has no children.
    fn element(&mut self, id: Id) -> bool {
        let doc = self.source.doc;
        self.out.push("<");
        self.source.name(self.out, id);
        self.source.namespaces(self.out, id);
        if self.is_xhtml && self.is_plain(id, "html") && doc.declared(id).next().is_none() {
            self.out.push(&format!(" xmlns=\"{XHTML}\""));
        }
        for attribute in doc.attributes(id) {
            self.attribute(attribute);
        }
        if self.is_xhtml {
            self.more_attributes(id);
        }
        let has_meta = self.is_xhtml && self.lacks_meta(id);
        let is_empty = doc.node(id).first == NONE;
        if is_empty && !has_meta {
            self.end_empty(id);
            return false;
        }
        self.out.push(">");
        // White space beside text shows; so does that inside of an element with text beside it.
        let is_indented = match self.indents.last() {
            Some(parent) => *parent,
            None => self.source.output.indent == Some(true),
        } && !doc.children(id).any(|id| self.source.is_text(id));
        self.indents.push(is_indented);
        if has_meta {
            self.line(true);
            let content = self.source.content_type();
            self.out.push(&format!("<meta http-equiv=\"Content-Type\" content=\"{content}\" />"));
        }
        true
    }

    fn end_empty(&mut self, id: Id) {
        let node = self.source.doc.node(id);
        let is_of_xhtml =
            node.prefix == crate::atoms::Atom::EMPTY && matches!(self.source.uri(id), "" | XHTML);
        if !self.is_xhtml {
            self.out.push("/>");
        } else if is_of_xhtml && VOID.contains(&self.source.local(id)) {
            self.out.push(" />");
        } else {
            self.out.push(">");
            self.source.end_tag(self.out, id);
        }
    }

    fn attribute(&mut self, id: Id) {
        let source = self.source;
        let mut value = source.doc.own_value(id);
        if self.is_xhtml && value.is_empty() && source.uri(id).is_empty() {
            let local = source.local(id);
            if html::is_boolean(local) {
                value = local;
            }
        }
        self.out.push(" ");
        source.name(self.out, id);
        self.value(value);
    }

    fn value(&mut self, value: &str) {
        self.out.push("=\"");
        if self.source.output.encoding.is_some() || value.is_ascii() {
            self.out.escaped(value, in_attribute);
        } else {
            // So libxml2 does where no encoding is stated.
            for c in value.chars() {
                match in_attribute(c) {
                    Some(other) => self.out.push(other),
                    None if c.is_ascii() => self.out.push(c.encode_utf8(&mut [0; 4])),
                    None => self.out.push(&format!("&#x{:X};", u32::from(c))),
                }
            }
        }
        self.out.push("\"");
    }

    /// Adds what one of two attributes says to the other (XHTML 1.0, C.7 and C.8).
    fn more_attributes(&mut self, id: Id) {
        let (doc, atoms) = (self.source.doc, self.source.atoms);
        let plain = |local| doc.plain_attribute(atoms, id, local);
        let xml_lang: Name = atoms.name(crate::XML, "lang");
        let is_named = NAMED.contains(&self.source.local(id));
        let more = [
            ("id", plain("name").filter(|_| is_named && plain("id").is_none())),
            ("xml:lang", plain("lang").filter(|_| doc.attribute(id, xml_lang).is_none())),
            ("lang", doc.attribute(id, xml_lang).filter(|_| plain("lang").is_none())),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                self.out.push(" ");
                self.out.push(name);
                self.value(value);
            }
        }
    }

    /// Whether an element has a name in no namespace.
    fn is_plain(&self, id: Id, local: &str) -> bool {
        self.source.uri(id).is_empty() && self.source.local(id) == local
    }

    /// Whether an element is the `head` of the document, and does not state the encoding.
    fn lacks_meta(&self, id: Id) -> bool {
        let source = self.source;
        let parent = source.doc.node(id).parent;
        source.local(id) == "head"
            && source.is_element(parent)
            && source.local(parent) == "html"
            && source.doc.node(parent).parent == ROOT
            && !source.doc.children(id).any(|id| source.is_content_type(id))
    }

    fn text(&mut self, id: Id) {
        let source = self.source;
        let doc = source.doc;
        let node = doc.node(id);
        if source.is_element(node.parent)
            && source.output.cdata.contains(&doc.node(node.parent).name)
        {
            self.cdata(id);
        } else if node.kind == Kind::RawText {
            self.out.push(doc.own_value(id));
        } else {
            self.out.escaped(doc.own_value(id), in_text);
        }
    }

    /// Writes texts that follow each other as one CDATA section, when the first of them comes.
    fn cdata(&mut self, id: Id) {
        let doc = self.source.doc;
        if self.source.is_text(doc.node(id).prev) {
            return;
        }
        let next = |id: &Id| Some(doc.node(*id).next).filter(|id| self.source.is_text(*id));
        let texts = std::iter::successors(Some(id), next);
        let text: String = texts.map(|id| doc.own_value(id)).collect();
        self.out.push("<![CDATA[");
        let mut from = 0;
        for (at, c) in text.char_indices() {
            if c == '>' && text[from..at].ends_with("]]") {
                self.out.push(&text[from..at]);
                self.out.push("]]><![CDATA[");
                from = at;
            } else if !self.source.charset.has(c) {
                // References have to be outside.
                self.out.push(&text[from..at]);
                self.out.push(&format!("]]>&#{};<![CDATA[", u32::from(c)));
                from = at + c.len_utf8();
            }
        }
        self.out.push(&text[from..]);
        self.out.push("]]>");
    }
}
