//! Takes the elements at the top of a stylesheet.

use std::collections::HashMap;

use super::body::{Names, Unit};
use super::load::{File, Loaded, Top};
use super::{
    AttributeSet, FUNC, Global, Instr, Instruction, Key, Mode, OwnFunction, Rule, Sheet, Template,
    fault,
};
use crate::atoms::{Atom, Name};
use crate::error::{Error, Result};
use crate::number::DecimalFormat;
use crate::output::Method;
use crate::tree::{Id, Kind};
use crate::xpath::{Pattern, Test, parse_pattern};

/// Compiles the files of a stylesheet.
pub(super) fn compile(loaded: Loaded) -> Result<Sheet> {
    let Loaded { atoms, files, tops } = loaded;
    let names = Names {
        atoms,
        globals: HashMap::new(),
        templates: HashMap::new(),
        functions: HashMap::new(),
        aliases: HashMap::new(),
    };
    let mut first = First { names, tops: HashMap::new(), template: 0 };
    for top in &tops {
        first.take(&files[top.file], *top)?;
    }
    let names = first.names;
    let mut second = Second::new(&names);
    for top in &tops {
        second.take(&files[top.file], *top)?;
    }
    let main = files.first().map(|file| file.name.clone());
    let mut sheet = second.finish()?;
    sheet.file = main.unwrap_or_default();
    sheet.atoms = names.atoms.freeze();
    Ok(sheet)
}

/// The kind of an element at the top: its local name, in XSLT's namespace or that of functions.
fn kind<'n>(names: &'n Names, file: &File, id: Id) -> Option<&'n str> {
    let node = file.doc.node(id);
    let local = names.atoms.text(node.name.local);
    match names.atoms.text(node.name.uri) {
        _ if file.is_simplified => Some("simplified"),
        crate::XSL => Some(local),
        FUNC if local == "function" => Some("func:function"),
        // Elements of other namespaces are data of others (section 2.2).
        _ => None,
    }
}

/// The first pass: what has a name.
struct First {
    names: Names,
    /// Where named things are declared last: kind and name.
    tops: HashMap<(&'static str, Name), Top>,
    template: u32,
}

impl First {
    fn take(&mut self, file: &File, top: Top) -> Result<()> {
        let line = file.doc.line(top.id);
        self.take_one(file, top).map_err(|e| e.or_at(&file.name, line))
    }

    fn take_one(&mut self, file: &File, top: Top) -> Result<()> {
        let Some(kind) = kind(&self.names, file, top.id) else { return Ok(()) };
        match kind {
            "template" | "simplified" => {
                let place = self.template;
                self.template += 1;
                let unit = Unit::new(&self.names, file);
                if kind == "template" && unit.attribute(top.id, "name").is_some() {
                    let name = unit.name_of(top.id, "name")?;
                    self.declared("template", name, top)?;
                    self.names.templates.insert(name, place);
                }
            }
            "variable" | "param" => {
                let name = Unit::new(&self.names, file).name_of(top.id, "name")?;
                self.declared("variable", name, top)?;
                let next = self.names.globals.len() as u32;
                self.names.globals.entry(name).or_insert(next);
            }
            "func:function" => {
                let unit = Unit::new(&self.names, file);
                let name = unit.name_of(top.id, "name")?;
                if name.uri == Atom::EMPTY {
                    return fault("the name of a function needs a prefix");
                }
                let params = params(&self.names, file, top.id)?.len();
                self.declared("function", name, top)?;
                let next = self.names.functions.len() as u32;
                let known = self.names.functions.get(&name).map_or(next, |(place, _)| *place);
                self.names.functions.insert(name, (known, params));
            }
            "namespace-alias" => {
                let unit = Unit::new(&self.names, file);
                let uri = |attribute| {
                    let prefix = unit.attribute(top.id, attribute).unwrap_or_default();
                    let prefix = if prefix == "#default" { "" } else { prefix };
                    let uri = file.doc.uri_of(&self.names.atoms, top.id, prefix);
                    let unknown = || Error::new(format!("unknown prefix \"{prefix}\""));
                    let atoms = &self.names.atoms;
                    Ok::<_, Error>((atoms.get(uri.ok_or_else(unknown)?), atoms.get(prefix)))
                };
                let (from, to) = (uri("stylesheet-prefix")?, uri("result-prefix")?);
                let has_default = from.1 == Atom::EMPTY || to.1 == Atom::EMPTY;
                self.names.aliases.insert(from.0, (to.0, has_default.then_some(to.1)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses a second thing of a name with the same precedence.
    fn declared(&mut self, kind: &'static str, name: Name, top: Top) -> Result<()> {
        let before = self.tops.insert((kind, name), top);
        if before.is_some_and(|before| before.precedence == top.precedence) {
            let name = self.names.atoms.text(name.local);
            return fault(format!("a second {kind} is named \"{name}\""));
        }
        Ok(())
    }
}

/// The parameters that a function begins with.
fn params(names: &Names, file: &File, id: Id) -> Result<Vec<Name>> {
    let param = names.atoms.name(crate::XSL, "param");
    let is_param = |id: &Id| file.doc.node(*id).name == param;
    let elements = file.doc.children(id).filter(|id| file.doc.node(*id).kind == Kind::Element);
    let unit = Unit::new(names, file);
    elements.take_while(is_param).map(|id| unit.name_of(id, "name")).collect()
}

/// The second pass: compiles all.
struct Second<'c> {
    names: &'c Names,
    sheet: Sheet,
    /// Templates' patterns: mode, precedence, stated priority, template.
    patterns: Vec<(Name, u32, Option<f64>, u32, Pattern)>,
    globals: HashMap<u32, Global>,
    functions: HashMap<u32, OwnFunction>,
    /// Precedence, priority, test, whether it strips.
    spaces: Vec<(u32, f64, Test, bool)>,
    /// Precedences of decimal formats.
    formats: HashMap<Name, u32>,
}

impl<'c> Second<'c> {
    fn new(names: &'c Names) -> Self {
        Second {
            names,
            sheet: Sheet::empty(),
            patterns: Vec::new(),
            globals: HashMap::new(),
            functions: HashMap::new(),
            spaces: Vec::new(),
            formats: HashMap::new(),
        }
    }

    fn take(&mut self, file: &File, top: Top) -> Result<()> {
        let unit = Unit::new(self.names, file);
        unit.at(top.id, self.take_one(file, top))
    }

    fn take_one(&mut self, file: &File, top: Top) -> Result<()> {
        let id = top.id;
        let unit = Unit::new(self.names, file);
        match kind(self.names, file, id) {
            Some("simplified") => self.simplified(file, top)?,
            Some("template") => self.template(file, top)?,
            Some(kind @ ("variable" | "param")) => {
                let name = unit.name_of(id, "name")?;
                let parameter = match kind {
                    "param" if name.uri == Atom::EMPTY => {
                        self.names.atoms.text(name.local).to_owned()
                    }
                    "param" => {
                        let atoms = &self.names.atoms;
                        format!("{{{}}}{}", atoms.text(name.uri), atoms.text(name.local))
                    }
                    _ => String::new(),
                };
                let value = unit.binding(id)?;
                let (file, line) = (file.name.clone(), file.doc.line(id));
                let global = Global { name, parameter, value, slots: unit.slots(), file, line };
                if let Some(place) = self.names.globals.get(&name) {
                    self.globals.insert(*place, global);
                }
            }
            Some("func:function") => {
                let name = unit.name_of(id, "name")?;
                let params = params(self.names, file, id)?;
                let body = unit.body(id)?;
                let function = OwnFunction { name, slots: unit.slots(), params, body };
                if let Some((place, _)) = self.names.functions.get(&name) {
                    self.functions.insert(*place, function);
                }
            }
            Some("key") => {
                let name = unit.name_of(id, "name")?;
                let missing = || Error::new("attribute \"match\" is missing");
                let pattern = unit.pattern_of(id, "match")?.ok_or_else(missing)?;
                let key = Key { pattern, value: unit.expr_of(id, "use")? };
                self.sheet.keys.entry(name).or_default().push(key);
            }
            Some("attribute-set") => {
                let name = unit.name_of(id, "name")?;
                let used = unit.attribute(id, "use-attribute-sets").unwrap_or_default();
                let sets = unit.names_in(id, used)?;
                let body = unit.body(id)?;
                let set = AttributeSet { sets, slots: unit.slots(), body };
                self.sheet.sets.entry(name).or_default().push(set);
            }
            Some(kind @ ("strip-space" | "preserve-space")) => {
                self.spaces(&unit, file, top, kind == "strip-space")?;
            }
            Some("output") => self.output(&unit, id)?,
            Some("decimal-format") => self.decimal_format(&unit, top)?,
            Some("namespace-alias") | None => {}
            Some(other) => {
                // A stylesheet of a later version may have what this one has not (section 2.5).
                let version = file.doc.plain_attribute(&self.names.atoms, file.root, "version");
                let later =
                    version.and_then(|v| v.trim().parse::<f64>().ok()).is_some_and(|v| v > 1.0);
                if !later {
                    return fault(format!("xsl:{other} stands where it may not"));
                }
            }
        }
        Ok(())
    }

    /// A literal element that is a stylesheet: the template of the root (section 2.3).
    fn simplified(&mut self, file: &File, top: Top) -> Result<()> {
        let unit = Unit::new(self.names, file);
        let (name, line) = (file.name.clone(), file.doc.line(top.id));
        let body = vec![Instruction { what: unit.literal(top.id)?, file: name, line }];
        let template =
            Template { slots: unit.slots(), body, precedence: top.precedence, lowest: top.lowest };
        let place = self.sheet.templates.len() as u32;
        self.sheet.templates.push(template);
        let pattern = parse_pattern("/", &unit.here(top.id))?;
        self.patterns.push((Name::default(), top.precedence, None, place, pattern));
        Ok(())
    }

    fn template(&mut self, file: &File, top: Top) -> Result<()> {
        let unit = Unit::new(self.names, file);
        let pattern = unit.pattern_of(top.id, "match")?;
        if pattern.is_none() && unit.attribute(top.id, "name").is_none() {
            return fault("xsl:template has neither \"match\" nor \"name\"");
        }
        let priority = match unit.attribute(top.id, "priority") {
            None => None,
            Some(text) => match crate::value::text_number(text) {
                number if number.is_nan() => return fault(format!("\"{text}\" is no priority")),
                number => Some(number),
            },
        };
        let mode = unit.mode(top.id)?;
        let body = unit.body(top.id)?;
        let place = self.sheet.templates.len() as u32;
        let (precedence, lowest) = (top.precedence, top.lowest);
        self.sheet.templates.push(Template { slots: unit.slots(), body, precedence, lowest });
        if let Some(pattern) = pattern {
            self.patterns.push((mode, precedence, priority, place, pattern));
        }
        Ok(())
    }

    fn spaces(&mut self, unit: &Unit, file: &File, top: Top, strips: bool) -> Result<()> {
        let elements = unit.attribute(top.id, "elements");
        let Some(elements) = elements else { return fault("attribute \"elements\" is missing") };
        for word in elements.split_ascii_whitespace() {
            let (priority, test) = if word == "*" {
                (-0.5, Test::Any)
            } else if let Some(prefix) = word.strip_suffix(":*") {
                let atoms = &self.names.atoms;
                match file.doc.uri_of(atoms, top.id, prefix) {
                    Some(uri) => (-0.25, Test::Namespace(atoms.get(uri))),
                    None => return fault(format!("unknown prefix \"{prefix}\" of \"{word}\"")),
                }
            } else {
                (0.0, Test::Name(unit.qname(top.id, word)?))
            };
            self.spaces.push((top.precedence, priority, test, strips));
        }
        Ok(())
    }

    fn output(&mut self, unit: &Unit, id: Id) -> Result<()> {
        let output = &mut self.sheet.output;
        let text = |local| unit.attribute(id, local).map(str::to_owned);
        if let Some(method) = unit.attribute(id, "method") {
            output.method = Some(match method {
                "xml" => Method::Xml,
                "html" => Method::Html,
                "text" => Method::Text,
                "xhtml" => Method::Xhtml,
                other => return fault(format!("unknown output method \"{other}\"")),
            });
        }
        for (field, local) in [
            (&mut output.version, "version"),
            (&mut output.encoding, "encoding"),
            (&mut output.doctype_public, "doctype-public"),
            (&mut output.doctype_system, "doctype-system"),
            (&mut output.media_type, "media-type"),
        ] {
            *field = text(local).or_else(|| field.take());
        }
        for (field, local) in [
            (&mut output.omit_xml_declaration, "omit-xml-declaration"),
            (&mut output.standalone, "standalone"),
            (&mut output.indent, "indent"),
        ] {
            if unit.attribute(id, local).is_some() {
                *field = Some(unit.is_yes(id, local)?);
            }
        }
        // An encoding that nobody knows is told now, not with the first response.
        output.charset()?;
        if let Some(elements) = unit.attribute(id, "cdata-section-elements") {
            // Unlike other names, they may be in the default namespace.
            for word in elements.split_ascii_whitespace() {
                output.cdata.push(unit.element_name(id, word)?);
            }
        }
        Ok(())
    }

    fn decimal_format(&mut self, unit: &Unit, top: Top) -> Result<()> {
        let id = top.id;
        let name = match unit.attribute(id, "name") {
            Some(name) => unit.qname(id, name)?,
            None => Name::default(),
        };
        let mut format = DecimalFormat::default();
        for (field, local) in [
            (&mut format.decimal_separator, "decimal-separator"),
            (&mut format.grouping_separator, "grouping-separator"),
            (&mut format.minus_sign, "minus-sign"),
            (&mut format.percent, "percent"),
            (&mut format.per_mille, "per-mille"),
            (&mut format.zero_digit, "zero-digit"),
            (&mut format.digit, "digit"),
            (&mut format.pattern_separator, "pattern-separator"),
        ] {
            let Some(text) = unit.attribute(id, local) else { continue };
            let mut chars = text.chars();
            match (chars.next(), chars.next()) {
                (Some(c), None) => *field = c,
                _ => return fault(format!("\"{local}\" is one character")),
            }
        }
        for (field, local) in [(&mut format.infinity, "infinity"), (&mut format.nan, "NaN")] {
            if let Some(text) = unit.attribute(id, local) {
                text.clone_into(field);
            }
        }
        let before = self.formats.insert(name, top.precedence);
        if before == Some(top.precedence) && self.sheet.formats.get(&name) != Some(&format) {
            return fault("a second xsl:decimal-format of that name says something else");
        }
        self.sheet.formats.insert(name, format);
        Ok(())
    }

    fn finish(mut self) -> Result<Sheet> {
        // Without prejudice to precedence, the last of the highest priority is the best.
        let mut rules: Vec<(u32, f64, Name, Rule)> = Vec::new();
        for (mode, precedence, stated, template, pattern) in self.patterns {
            for alternative in pattern.alternatives {
                let priority = stated.unwrap_or(alternative.priority);
                let namespaces = pattern.namespaces.clone();
                let rule = Rule { template, alternative, namespaces, precedence, rank: 0 };
                rules.push((precedence, priority, mode, rule));
            }
        }
        rules.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let sheet = &mut self.sheet;
        for (rank, (_, _, mode, rule)) in (0..).zip(rules) {
            sheet.modes.entry(mode).or_default().add(Rule { rank, ..rule });
        }
        sheet.modes.values_mut().for_each(Mode::finish);
        self.spaces.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        sheet.spaces = self.spaces.into_iter().map(|(_, _, test, strips)| (test, strips)).collect();
        let in_order = |len: usize| 0..len as u32;
        let globals = in_order(self.globals.len());
        sheet.globals = globals.filter_map(|place| self.globals.remove(&place)).collect();
        let functions = in_order(self.functions.len());
        sheet.functions = functions.filter_map(|place| self.functions.remove(&place)).collect();
        for sets in sheet.sets.values() {
            let bodies = sets.iter().flat_map(|set| &set.body);
            for instruction in bodies {
                if !matches!(instruction.what, Instr::Attribute(_)) {
                    let e = Error::new("xsl:attribute-set has something else than xsl:attribute");
                    return Err(e.or_at(&instruction.file, instruction.line));
                }
            }
        }
        Ok(self.sheet)
    }
}
