//! Writes HTML 4 (XSLT, section 16.2).
//!
//! Elements in a namespace have no meaning in HTML: they are written in full, and no line ends come
//! beside them.

use std::cell::RefCell;
use std::collections::HashMap;

use super::{Sink, Source, Step, walk};
use crate::atoms::Name;
use crate::tree::{Id, Kind, NONE, ROOT};

/// Elements beside whose tags line ends do not show.
const BLOCKS: [&str; 42] = [
    "address",
    "blockquote",
    "body",
    "caption",
    "center",
    "colgroup",
    "dd",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "form",
    "frameset",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "html",
    "legend",
    "li",
    "menu",
    "noframes",
    "noscript",
    "ol",
    "optgroup",
    "option",
    "p",
    "pre",
    "style",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "title",
    "tr",
    "ul",
];

/// Elements that have no content and no end tag: blocks, and others.
const VOID_BLOCKS: [&str; 9] =
    ["area", "base", "col", "frame", "hr", "isindex", "link", "meta", "param"];
const VOID: [&str; 4] = ["basefont", "br", "img", "input"];

/// Attributes that are written without a value.
const BOOLEAN: [&str; 13] = [
    "checked", "compact", "declare", "defer", "disabled", "ismap", "multiple", "nohref",
    "noresize", "noshade", "nowrap", "readonly", "selected",
];

/// What HTML says of an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Block,
    VoidBlock,
    Void,
    /// An inline element, or one that HTML 4 does not know.
    Other,
}

/// Whether an attribute is written without a value.
pub(super) fn is_boolean(local: &str) -> bool {
    BOOLEAN.iter().any(|name| name.eq_ignore_ascii_case(local))
}

/// The doctype of a version, where the stylesheet states no identifier: public and system.
fn version_doctype(version: &str) -> (&'static str, Option<&'static str>) {
    const LOOSE_401: &str = "-//W3C//DTD HTML 4.01 Transitional//EN";
    const STRICT_401: &str = "-//W3C//DTD HTML 4.01//EN";
    const FRAMES_401: &str = "-//W3C//DTD HTML 4.01 Frameset//EN";
    match version {
        "4.01" | "4.01trans" => {
            (LOOSE_401, Some("http://www.w3.org/TR/1999/REC-html401-19991224/loose.dtd"))
        }
        "4.01strict" => {
            (STRICT_401, Some("http://www.w3.org/TR/1999/REC-html401-19991224/strict.dtd"))
        }
        "4.01frame" => {
            (FRAMES_401, Some("http://www.w3.org/TR/1999/REC-html401-19991224/frameset.dtd"))
        }
        "4.0" | "4.0trans" => (LOOSE_401, Some("http://www.w3.org/TR/html4/loose.dtd")),
        "4.0strict" => (STRICT_401, Some("http://www.w3.org/TR/html4/strict.dtd")),
        "4.0frame" => (FRAMES_401, Some("http://www.w3.org/TR/html4/frameset.dtd")),
        "3.2" => ("-//W3C//DTD HTML 3.2//EN", None),
        _ => (
            "-//W3C//DTD HTML 4.0 Transitional//EN",
            Some("http://www.w3.org/TR/REC-html40/loose.dtd"),
        ),
    }
}

/// Writes a document as HTML.
pub(super) fn write(out: &mut Sink, source: &Source) {
    doctype(out, source);
    let has_lines = source.output.indent != Some(false);
    let mut html = Html { out, source, has_lines, meta: meta(source), classes: RefCell::default() };
    walk(source.doc, |step| match step {
        Step::Open(id) => html.open(id),
        Step::Close(id) => html.close(id),
    });
    html.out.push("\n");
}

fn doctype(out: &mut Sink, source: &Source) {
    let output = source.output;
    let mut public = output.doctype_public.as_deref();
    let mut system = output.doctype_system.as_deref();
    if public.is_none() && system.is_none() {
        let Some(version) = output.version.as_deref() else { return };
        let (of_version, its_system) = version_doctype(version);
        (public, system) = (Some(of_version), its_system);
    }
    out.push("<!DOCTYPE ");
    match source.top_element() {
        Some(top) if output.method != Some(super::Method::Html) => source.name(out, top),
        _ => out.push("html"),
    }
    if let Some(public) = public {
        out.push(" PUBLIC ");
        out.quoted(public);
    }
    if let Some(system) = system {
        out.push(if public.is_some() { " " } else { " SYSTEM " });
        out.quoted(system);
    }
    out.push(">\n");
}

/// Where the document states its type and encoding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meta {
    Nowhere,
    /// In a `meta` before the children of an element.
    First(Id),
    /// In an attribute of a `meta` that is there.
    Content(Id),
}

/// Finds the place for type and encoding: the `head`.
fn meta(source: &Source) -> Meta {
    let doc = source.doc;
    let is =
        |id: Id, local: &str| source.is_element(id) && source.local(id).eq_ignore_ascii_case(local);
    let top = doc.children(ROOT).find(|id| is(*id, "html") || is(*id, "head"));
    let found = top.and_then(|top| match is(top, "head") {
        true => Some(top),
        false => doc.children(top).find(|id| is(*id, "head") || is(*id, "meta")),
    });
    let Some(found) = found else { return Meta::Nowhere };
    let head = if is(found, "head") { found } else { doc.node(found).parent };
    let mut contents = doc
        .children(head)
        .filter(|id| source.is_content_type(*id))
        .filter_map(|id| source.attribute_like(id, "content"));
    let Some(content) = contents.next() else { return Meta::First(head) };
    match stated_charset(doc.own_value(content)) {
        Some(stated) if stated.eq_ignore_ascii_case(source.output.charset_name()) => Meta::Nowhere,
        _ => Meta::Content(content),
    }
}

/// The encoding of a type (`text/html; charset=…`).
fn stated_charset(content: &str) -> Option<&str> {
    let at = content.to_ascii_lowercase().find("charset=")?;
    let value = content.get(at + "charset=".len()..)?.trim_start();
    value.split([';', ' ', '\t', '\n', '\r']).next()
}

struct Html<'a> {
    out: &'a mut Sink,
    source: &'a Source<'a>,
    has_lines: bool,
    meta: Meta,
    /// What is known of names already.
    classes: RefCell<HashMap<Name, Class>>,
}

impl Html<'_> {
    fn class(&self, id: Id) -> Class {
        let name = self.source.doc.node(id).name;
        *self.classes.borrow_mut().entry(name).or_insert_with(|| self.class_of(id))
    }

    fn class_of(&self, id: Id) -> Class {
        if !self.source.uri(id).is_empty() {
            return Class::Other;
        }
        let local = self.source.local(id).to_ascii_lowercase();
        let local = &*local;
        if BLOCKS.contains(&local) {
            Class::Block
        } else if VOID_BLOCKS.contains(&local) {
            Class::VoidBlock
        } else if VOID.contains(&local) {
            Class::Void
        } else {
            Class::Other
        }
    }

    fn open(&mut self, id: Id) -> bool {
        let source = self.source;
        let doc = source.doc;
        match doc.node(id).kind {
            Kind::Element => return self.element(id),
            Kind::Text => self.text(id),
            Kind::RawText => self.out.push(doc.own_value(id)),
            Kind::Comment => {
                self.out.push("<!--");
                self.out.push(doc.own_value(id));
                self.out.push("-->");
            }
            Kind::Pi => {
                self.out.push("<?");
                self.out.push(source.local(id));
                let value = doc.own_value(id);
                if !value.is_empty() {
                    self.out.push(" ");
                    self.out.push(value);
                }
                self.out.push(">");
            }
            Kind::Root | Kind::Namespace | Kind::Attribute => {}
        }
        false
    }

    fn element(&mut self, id: Id) -> bool {
        let source = self.source;
        let first = source.doc.node(id).first;
        self.out.push("<");
        source.name(self.out, id);
        source.namespaces(self.out, id);
        for attribute in source.doc.attributes(id) {
            self.attribute(id, attribute);
        }
        self.out.push(">");
        let class = self.class(id);
        if matches!(class, Class::Void | Class::VoidBlock) {
            self.line_behind(id, class);
            return false;
        }
        let has_meta = self.meta == Meta::First(id);
        if first == NONE && !has_meta {
            // The end tag of `li` may be left out, and is.
            if class != Class::Block || !source.local(id).eq_ignore_ascii_case("li") {
                source.end_tag(self.out, id);
            }
            self.line_behind(id, class);
            return false;
        }
        let is_before_text = !has_meta && source.is_text(first);
        if self.has_lines_inside(id, class) && !is_before_text {
            self.out.push("\n");
        }
        if has_meta {
            let content = source.content_type();
            self.out.push("<meta http-equiv=\"Content-Type\" content=\"");
            self.out.push(&content);
            self.out.push("\">");
            if self.has_lines && first != NONE && !source.is_text(first) {
                self.out.push("\n");
            }
        }
        true
    }

    fn close(&mut self, id: Id) -> bool {
        let class = self.class(id);
        let last = self.source.doc.node(id).last;
        if self.has_lines_inside(id, class) && !self.source.is_text(last) {
            self.out.push("\n");
        }
        self.source.end_tag(self.out, id);
        self.line_behind(id, class);
        false
    }

    /// Whether line ends may come behind the start tag and before the end tag: not where the
    /// element has one child alone.
    fn has_lines_inside(&self, id: Id, class: Class) -> bool {
        let node = self.source.doc.node(id);
        let has_several = match self.meta == Meta::First(id) {
            true => node.first != NONE,
            false => node.first != node.last,
        };
        self.has_lines && class == Class::Block && has_several && !self.begins_with_p(id)
    }

    /// Adds a line end behind an element, where none shows.
    fn line_behind(&mut self, id: Id, class: Class) {
        let node = self.source.doc.node(id);
        if self.has_lines
            && matches!(class, Class::Block | Class::VoidBlock)
            && node.next != NONE
            && !self.source.is_text(node.next)
            && self.source.is_element(node.parent)
            && !self.begins_with_p(node.parent)
        {
            self.out.push("\n");
        }
    }

    /// In `p` and `pre`, libxml2 adds no line ends; nor in others of that letter.
    fn begins_with_p(&self, id: Id) -> bool {
        self.source.local(id).starts_with('p')
    }

    fn text(&mut self, id: Id) {
        let source = self.source;
        let parent = source.doc.node(id).parent;
        let is_raw = source.is_element(parent)
            && ["script", "style"].iter().any(|raw| source.local(parent).eq_ignore_ascii_case(raw));
        let value = source.doc.own_value(id);
        if is_raw {
            self.out.push(value);
        } else {
            self.out.escaped(value, in_text);
        }
    }

    fn attribute(&mut self, element: Id, id: Id) {
        let source = self.source;
        let local = source.local(id);
        self.out.push(" ");
        source.name(self.out, id);
        if is_boolean(local) {
            return;
        }
        self.out.push("=");
        if self.meta == Meta::Content(id) {
            self.out.quoted(&source.content_type());
            return;
        }
        let value = source.doc.own_value(id);
        let is_local = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(local));
        let is_uri = source.uri(id).is_empty()
            && source.uri(element).is_empty()
            && (is_local(&["href", "action", "src"])
                || is_local(&["name"]) && source.local(element).eq_ignore_ascii_case("a"));
        if is_uri {
            let value = value.trim_start_matches([' ', '\t', '\n', '\r']);
            self.out.quoted(&in_uri(&in_attribute(value)));
        } else {
            self.out.quoted(&in_attribute(value));
        }
    }
}

fn in_text(c: char) -> Option<&'static str> {
    match c {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        _ => None,
    }
}

/// The value of an attribute. What stands in `&{…}` (HTML 4, B.7.1) and in `<!--…-->`, which
/// servers replace, stays as it is.
fn in_attribute(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    // Whether the ends have been found missing already: they are not looked for again then.
    let (mut has_brace, mut has_comment) = (true, true);
    while let Some(at) = rest.find(['&', '<', '>']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut verbatim = None;
        if has_brace && rest.starts_with("&{") {
            verbatim = rest.find('}').map(|end| end + 1);
            has_brace = verbatim.is_some();
        } else if has_comment && rest.starts_with("<!--") {
            verbatim = rest.find("-->").map(|end| end + 3);
            has_comment = verbatim.is_some();
        }
        let len = verbatim.unwrap_or(1);
        match rest.chars().next().and_then(in_text) {
            Some(other) if verbatim.is_none() => out.push_str(other),
            _ => out.push_str(&rest[..len]),
        }
        rest = &rest[len..];
    }
    out.push_str(rest);
    out
}

/// The value of an attribute that is a URI: bytes that may not be in one become `%XX`.
fn in_uri(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => out.push(char::from(byte)),
            b if b"-_.!~*'()#%&+,/:;<=>?@".contains(&b) => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
