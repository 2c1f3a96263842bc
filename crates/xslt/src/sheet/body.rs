//! Compiles what templates do.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::load::File;
use super::{
    Apply, Avt, Binding, Body, Constructed, FUNC, ForEach, Instr, Instruction, Level, Literal,
    Numbering, Sort, WithParams, fault,
};
use crate::atoms::{Atom, Atoms, Name};
use crate::error::{Error, Result};
use crate::tree::{Doc, Id, Kind};
use crate::xpath::{Namespaces, Pattern, Scope, Var, XPath, parse, parse_pattern};

/// The namespace of EXSLT's `exsl:document`.
const COMMON: &str = "http://exslt.org/common";

/// The names of a stylesheet and their meanings.
pub(super) struct Names {
    pub(super) atoms: Atoms,
    pub(super) globals: HashMap<Name, u32>,
    pub(super) templates: HashMap<Name, u32>,
    /// Functions, and the number of their parameters.
    pub(super) functions: HashMap<Name, (u32, usize)>,
    /// What becomes of the namespaces of literal elements: the URI, and the prefix where the
    /// default namespace is one of the two. Otherwise they keep their prefixes.
    pub(super) aliases: HashMap<Atom, (Atom, Option<Atom>)>,
}

/// A template, a global variable or a function in the making: it has variables of its own.
pub(super) struct Unit<'c> {
    names: &'c Names,
    file: &'c File,
    locals: RefCell<Locals>,
}

#[derive(Default)]
struct Locals {
    visible: Vec<(Name, u32)>,
    slots: u32,
}

/// The names at an element.
pub(super) struct Here<'u> {
    unit: &'u Unit<'u>,
    namespaces: Arc<Namespaces>,
}

impl Scope for Here<'_> {
    fn atoms(&self) -> &Atoms {
        &self.unit.names.atoms
    }

    fn namespaces(&self) -> Arc<Namespaces> {
        self.namespaces.clone()
    }

    fn variable(&self, name: Name) -> Option<Var> {
        let locals = self.unit.locals.borrow();
        let local = locals.visible.iter().rev().find(|(known, _)| *known == name);
        let global = || self.unit.names.globals.get(&name).map(|place| Var::Global(*place));
        local.map(|(_, slot)| Var::Local(*slot)).or_else(global)
    }

    fn own_function(&self, name: Name) -> Option<(u32, usize)> {
        self.unit.names.functions.get(&name).copied()
    }

    fn file(&self) -> Arc<str> {
        self.unit.file.name.clone()
    }
}

impl<'c> Unit<'c> {
    pub(super) fn new(names: &'c Names, file: &'c File) -> Self {
        Unit { names, file, locals: RefCell::default() }
    }

    /// How many variables it has.
    pub(super) fn slots(&self) -> u32 {
        self.locals.borrow().slots
    }

    fn doc(&self) -> &'c Doc {
        &self.file.doc
    }

    fn atoms(&self) -> &'c Atoms {
        &self.names.atoms
    }

    /// Adds the place of an element to an error.
    pub(super) fn at<T>(&self, id: Id, done: Result<T>) -> Result<T> {
        done.map_err(|e| e.or_at(&self.file.name, self.doc().line(id)))
    }

    /// All namespaces in scope at an element.
    fn all_namespaces(&self, id: Id) -> Arc<Namespaces> {
        let doc = self.doc();
        let all = doc.in_scope(id).into_iter().map(|id| {
            let prefix = self.atoms().text(doc.node(id).name.local);
            (prefix.to_owned(), self.atoms().get(doc.own_value(id)))
        });
        Arc::new(all.collect())
    }

    pub(super) fn here(&self, id: Id) -> Here<'_> {
        Here { unit: self, namespaces: self.all_namespaces(id) }
    }

    /// An attribute of no namespace.
    pub(super) fn attribute(&self, id: Id, local: &str) -> Option<&'c str> {
        self.doc().plain_attribute(self.atoms(), id, local)
    }

    fn needed(&self, id: Id, local: &str) -> Result<&'c str> {
        let missing = || Error::new(format!("attribute \"{local}\" is missing"));
        self.attribute(id, local).ok_or_else(missing)
    }

    fn expr(&self, id: Id, text: &str) -> Result<XPath> {
        parse(text, &self.here(id))
    }

    /// The expression of an attribute that has to be there.
    pub(super) fn expr_of(&self, id: Id, local: &str) -> Result<XPath> {
        self.expr(id, self.needed(id, local)?)
    }

    fn optional_expr(&self, id: Id, local: &str) -> Result<Option<XPath>> {
        self.attribute(id, local).map(|text| self.expr(id, text)).transpose()
    }

    /// The pattern of an attribute.
    pub(super) fn pattern_of(&self, id: Id, local: &str) -> Result<Option<Pattern>> {
        let pattern = self.attribute(id, local).map(|text| parse_pattern(text, &self.here(id)));
        pattern.transpose()
    }

    fn avt_of(&self, id: Id, local: &str) -> Result<Option<Avt>> {
        let avt = self.attribute(id, local).map(|text| Avt::read(text, &self.here(id)));
        avt.transpose()
    }

    /// A name whose prefix is declared at an element. The default namespace does not count.
    pub(super) fn qname(&self, id: Id, text: &str) -> Result<Name> {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        let (prefix, local) = text.split_once(':').unwrap_or(("", text));
        let is_name = crate::xpath::is_ncname;
        if !is_name(local) || !(prefix.is_empty() && !text.starts_with(':') || is_name(prefix)) {
            return fault(format!("\"{text}\" is no name"));
        }
        if prefix.is_empty() {
            return Ok(self.atoms().name("", local));
        }
        let uri = self.doc().uri_of(self.atoms(), id, prefix);
        let unknown = || Error::new(format!("unknown prefix \"{prefix}\" of \"{text}\""));
        Ok(self.atoms().name(uri.ok_or_else(unknown)?, local))
    }

    /// The name that an attribute has.
    pub(super) fn name_of(&self, id: Id, local: &str) -> Result<Name> {
        self.qname(id, self.needed(id, local)?)
    }

    /// The name of an element: without a prefix it is in the default namespace.
    pub(super) fn element_name(&self, id: Id, text: &str) -> Result<Name> {
        let mut name = self.qname(id, text)?;
        if !text.contains(':') {
            name.uri =
                self.atoms().get(self.doc().uri_of(self.atoms(), id, "").unwrap_or_default());
        }
        Ok(name)
    }

    /// Names with white space between them.
    pub(super) fn names_in(&self, id: Id, text: &str) -> Result<Vec<Name>> {
        text.split_ascii_whitespace().map(|name| self.qname(id, name)).collect()
    }

    fn sets(&self, id: Id, attribute: Option<&str>) -> Result<Vec<Name>> {
        self.names_in(id, attribute.unwrap_or_default())
    }

    /// Whether an attribute is `yes`.
    pub(super) fn is_yes(&self, id: Id, local: &str) -> Result<bool> {
        match self.attribute(id, local) {
            None | Some("no") => Ok(false),
            Some("yes") => Ok(true),
            Some(other) => fault(format!("\"{local}\" is \"yes\" or \"no\", not \"{other}\"")),
        }
    }

    fn is_xsl(&self, id: Id, local: &str) -> bool {
        let node = self.doc().node(id);
        node.kind == Kind::Element && node.name == self.atoms().name(crate::XSL, local)
    }

    /// A place for a variable that the following ones see.
    fn declare(&self, name: Name) -> u32 {
        let mut locals = self.locals.borrow_mut();
        let slot = locals.slots;
        locals.slots += 1;
        locals.visible.push((name, slot));
        slot
    }

    /// The children of an element as instructions.
    pub(super) fn body(&self, id: Id) -> Result<Body> {
        self.some_of(id, |_| true)
    }

    /// The children that a condition holds for.
    fn some_of(&self, id: Id, is_meant: impl Fn(Id) -> bool) -> Result<Body> {
        let before = self.locals.borrow().visible.len();
        let mut body = Vec::new();
        for child in self.doc().children(id).filter(|id| is_meant(*id)) {
            let what = match self.doc().node(child).kind {
                Kind::Element => self.at(child, self.element(child))?,
                Kind::Text => {
                    Instr::Text { text: Arc::from(self.doc().own_value(child)), raw: false }
                }
                _ => continue,
            };
            let (file, line) = (self.file.name.clone(), self.doc().line(child));
            body.push(Instruction { what, file, line });
        }
        self.locals.borrow_mut().visible.truncate(before);
        Ok(body)
    }

    fn element(&self, id: Id) -> Result<Instr> {
        let name = self.doc().node(id).name;
        let (uri, local) = (self.atoms().text(name.uri), self.atoms().text(name.local));
        match uri {
            crate::XSL => self.instruction(id, local),
            FUNC if local == "result" => Ok(Instr::Result(self.binding(id)?)),
            COMMON if local == "document" => self.no_file(id, "exsl:document"),
            uri if self.prefixed(id, "extension-element-prefixes")?.contains(&name.uri) => {
                self.unknown(id, &format!("{{{uri}}}{local}"))
            }
            _ => self.literal(id),
        }
    }

    /// An element that nobody knows: its fallbacks (section 15).
    fn unknown(&self, id: Id, name: &str) -> Result<Instr> {
        let mut all = Vec::new();
        let fallbacks = self.doc().children(id).filter(|id| self.is_xsl(*id, "fallback"));
        let mut has_some = false;
        for fallback in fallbacks {
            has_some = true;
            all.extend(self.body(fallback)?);
        }
        if has_some {
            return Ok(Instr::Fallback(all));
        }
        Ok(Instr::Fault(format!("unknown element \"{name}\"")))
    }

    /// An element that would write a file: refused unless it has a fallback.
    fn no_file(&self, id: Id, name: &str) -> Result<Instr> {
        match self.unknown(id, name)? {
            Instr::Fault(_) => fault(format!("{name} is refused: transformations write no files")),
            fallback => Ok(fallback),
        }
    }

    fn instruction(&self, id: Id, local: &str) -> Result<Instr> {
        Ok(match local {
            "text" => {
                let raw = self.is_yes(id, "disable-output-escaping")?;
                Instr::Text { text: Arc::from(&*self.doc().value(id)), raw }
            }
            "value-of" => {
                let raw = self.is_yes(id, "disable-output-escaping")?;
                Instr::ValueOf { select: self.expr_of(id, "select")?, raw }
            }
            "element" => Instr::Element(Box::new(self.constructed(id)?)),
            "attribute" => Instr::Attribute(Box::new(self.constructed(id)?)),
            "comment" => Instr::Comment(self.body(id)?),
            "processing-instruction" => {
                let name = self.avt_of(id, "name")?;
                let missing = || Error::new("attribute \"name\" is missing");
                Instr::Pi { name: name.ok_or_else(missing)?, body: self.body(id)? }
            }
            "copy" => {
                let sets = self.sets(id, self.attribute(id, "use-attribute-sets"))?;
                Instr::Copy { sets, body: self.body(id)? }
            }
            "copy-of" => Instr::CopyOf(self.expr_of(id, "select")?),
            "apply-templates" => Instr::Apply(Box::new(Apply {
                select: self.optional_expr(id, "select")?,
                mode: self.mode(id)?,
                sorts: self.sorts(id)?,
                params: self.with_params(id)?,
            })),
            "call-template" => {
                let name = self.name_of(id, "name")?;
                match self.names.templates.get(&name) {
                    Some(template) => {
                        Instr::Call { template: *template, params: self.with_params(id)? }
                    }
                    None => {
                        let name = self.needed(id, "name")?;
                        Instr::Fault(format!("no template is named \"{name}\""))
                    }
                }
            }
            "apply-imports" => Instr::ApplyImports,
            "for-each" => Instr::ForEach(Box::new(ForEach {
                select: self.expr_of(id, "select")?,
                sorts: self.sorts(id)?,
                body: self.some_of(id, |id| !self.is_xsl(id, "sort"))?,
            })),
            "if" => Instr::If { test: self.expr_of(id, "test")?, body: self.body(id)? },
            "choose" => self.choose(id)?,
            "variable" | "param" => self.variable(id, local == "param")?,
            "number" => Instr::Number(Box::new(self.numbering(id)?)),
            "message" => {
                Instr::Message { terminate: self.is_yes(id, "terminate")?, body: self.body(id)? }
            }
            // It is for those who do not know the element around it.
            "fallback" => Instr::Fallback(Vec::new()),
            "sort" | "with-param" => return fault(format!("xsl:{local} stands where it may not")),
            "document" => self.no_file(id, "xsl:document")?,
            _ => self.unknown(id, &format!("xsl:{local}"))?,
        })
    }

    /// The mode of `xsl:template` or `xsl:apply-templates`.
    pub(super) fn mode(&self, id: Id) -> Result<Name> {
        self.attribute(id, "mode").map_or(Ok(Name::default()), |text| self.qname(id, text))
    }

    fn choose(&self, id: Id) -> Result<Instr> {
        let (mut whens, mut otherwise) = (Vec::new(), Vec::new());
        for child in self.doc().children(id) {
            if self.is_xsl(child, "when") {
                let when = self.expr_of(child, "test").and_then(|e| Ok((e, self.body(child)?)));
                whens.push(self.at(child, when)?);
            } else if self.is_xsl(child, "otherwise") {
                otherwise = self.body(child)?;
            } else if self.doc().node(child).kind == Kind::Element {
                let m = "xsl:choose has xsl:when and xsl:otherwise in it, and nothing else";
                return self.at(child, fault(m));
            }
        }
        Ok(Instr::Choose { whens, otherwise })
    }

    fn variable(&self, id: Id, is_param: bool) -> Result<Instr> {
        let name = self.name_of(id, "name")?;
        // It does not see itself.
        let value = self.binding(id)?;
        let slot = self.declare(name);
        Ok(match is_param {
            true => Instr::Param { name, slot, default: value },
            false => Instr::Variable { slot, value },
        })
    }

    /// The value of a variable or parameter: `select`, or what is in it.
    pub(super) fn binding(&self, id: Id) -> Result<Binding> {
        if let Some(select) = self.optional_expr(id, "select")? {
            return Ok(Binding::Select(select));
        }
        let body = self.body(id)?;
        Ok(if body.is_empty() { Binding::Nothing } else { Binding::Body(body) })
    }

    fn with_params(&self, id: Id) -> Result<WithParams> {
        let with = self.doc().children(id).filter(|id| self.is_xsl(*id, "with-param"));
        let all = with.map(|id| {
            let param = self.name_of(id, "name").and_then(|name| Ok((name, self.binding(id)?)));
            self.at(id, param)
        });
        all.collect()
    }

    fn sorts(&self, id: Id) -> Result<Vec<Sort>> {
        let sorts = self.doc().children(id).filter(|id| self.is_xsl(*id, "sort"));
        let read = |id| {
            Ok(Sort {
                select: self.optional_expr(id, "select")?,
                data_type: self.avt_of(id, "data-type")?,
                order: self.avt_of(id, "order")?,
                case_order: self.avt_of(id, "case-order")?,
                lang: self.avt_of(id, "lang")?,
            })
        };
        sorts.map(|id| self.at(id, read(id))).collect()
    }

    fn constructed(&self, id: Id) -> Result<Constructed> {
        let missing = || Error::new("attribute \"name\" is missing");
        Ok(Constructed {
            name: self.avt_of(id, "name")?.ok_or_else(missing)?,
            namespace: self.avt_of(id, "namespace")?,
            scope: self.all_namespaces(id),
            sets: self.sets(id, self.attribute(id, "use-attribute-sets"))?,
            body: self.body(id)?,
        })
    }

    fn numbering(&self, id: Id) -> Result<Numbering> {
        let level = match self.attribute(id, "level") {
            None | Some("single") => Level::Single,
            Some("multiple") => Level::Multiple,
            Some("any") => Level::Any,
            Some(other) => return fault(format!("unknown level \"{other}\"")),
        };
        Ok(Numbering {
            value: self.optional_expr(id, "value")?,
            level,
            count: self.pattern_of(id, "count")?,
            from: self.pattern_of(id, "from")?,
            format: self.avt_of(id, "format")?,
            letter_value: self.avt_of(id, "letter-value")?,
            grouping_separator: self.avt_of(id, "grouping-separator")?,
            grouping_size: self.avt_of(id, "grouping-size")?,
        })
    }

    /// The namespaces that an attribute of the elements around names by their prefixes:
    /// `exclude-result-prefixes`, `extension-element-prefixes`.
    fn prefixed(&self, id: Id, attribute: &str) -> Result<Vec<Atom>> {
        let (doc, atoms) = (self.doc(), self.atoms());
        let mut uris = Vec::new();
        for element in std::iter::once(id).chain(doc.ancestors(id)) {
            let node = doc.node(element);
            if node.kind != Kind::Element {
                continue;
            }
            let is_xsl = atoms.text(node.name.uri) == crate::XSL;
            let uri = if is_xsl { "" } else { crate::XSL };
            let text = doc.attribute(element, atoms.name(uri, attribute)).unwrap_or_default();
            for prefix in text.split_ascii_whitespace() {
                let prefix = if prefix == "#default" { "" } else { prefix };
                let Some(uri) = doc.uri_of(atoms, element, prefix) else {
                    return fault(format!("unknown prefix \"{prefix}\" in \"{attribute}\""));
                };
                uris.push(atoms.get(uri));
            }
        }
        Ok(uris)
    }

    /// A literal result element (section 7.1.1).
    pub(super) fn literal(&self, id: Id) -> Result<Instr> {
        let (doc, atoms) = (self.doc(), self.atoms());
        let mut gone = self.prefixed(id, "exclude-result-prefixes")?;
        gone.extend(self.prefixed(id, "extension-element-prefixes")?);
        gone.push(atoms.get(crate::XSL));
        let aliased = |name: Name, prefix: Atom| match self.names.aliases.get(&name.uri) {
            Some((uri, of_alias)) => (Name { uri: *uri, ..name }, of_alias.unwrap_or(prefix)),
            None => (name, prefix),
        };
        let mut namespaces = Vec::new();
        for (prefix, uri) in self.all_namespaces(id).iter() {
            let prefix = atoms.get(prefix);
            match self.names.aliases.get(uri) {
                Some((uri, of_alias)) => namespaces.push((of_alias.unwrap_or(prefix), *uri)),
                None if gone.contains(uri) => {}
                None => namespaces.push((prefix, *uri)),
            }
        }
        let (mut attributes, mut sets) = (Vec::new(), Vec::new());
        let here = self.here(id);
        for attribute in doc.attributes(id) {
            let (node, value) = (doc.node(attribute), doc.own_value(attribute));
            if atoms.text(node.name.uri) == crate::XSL {
                if atoms.text(node.name.local) == "use-attribute-sets" {
                    sets = self.names_in(id, value)?;
                }
                continue;
            }
            // An attribute without a prefix is in no namespace, whatever the default one becomes.
            let (name, prefix) = match node.name.uri {
                Atom::EMPTY => (node.name, Atom::EMPTY),
                _ => aliased(node.name, node.prefix),
            };
            attributes.push((name, prefix, Avt::read(value, &here)?));
        }
        let node = doc.node(id);
        let (name, prefix) = aliased(node.name, node.prefix);
        let body = self.body(id)?;
        Ok(Instr::Literal(Box::new(Literal { name, prefix, namespaces, sets, attributes, body })))
    }
}
