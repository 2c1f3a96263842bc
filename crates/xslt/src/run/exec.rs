//! Executes instructions.

use std::rc::Rc;

use super::{Run, TEMPLATES_MAX, deeper};
use crate::atoms::{Atom, Name};
use crate::error::{Error, Result};
use crate::sheet::{
    Apply, Avt, Binding, Body, Constructed, ForEach, Instr, Instruction, Literal, WithParams,
};
use crate::tree::{Builder, Kind, ROOT};
use crate::value::{N, Value};
use crate::xpath::{Cx, Namespaces, XPath, is_ncname};

/// The variables of a template that runs.
pub(super) struct Frame {
    locals: Vec<Option<Value>>,
    /// What was passed to it.
    params: Vec<(Name, Value)>,
    /// The template and the mode that the current node was matched by (XSLT, section 5.6).
    rule: Option<(u32, Name)>,
    /// The result of a function (`func:result`).
    result: Option<Value>,
}

impl Frame {
    pub(super) fn new(slots: u32, params: Vec<(Name, Value)>) -> Self {
        Frame { locals: vec![None; slots as usize], params, rule: None, result: None }
    }

    fn set(&mut self, slot: u32, value: Value) {
        if let Some(local) = self.locals.get_mut(slot as usize) {
            *local = Some(value);
        }
    }
}

/// The current node and its place in the current node list.
#[derive(Clone, Copy)]
pub(super) struct Focus {
    pub(super) node: N,
    position: usize,
    size: usize,
}

impl Focus {
    /// A node that is the only one of its list.
    pub(super) fn alone(node: N) -> Self {
        Focus { node, position: 1, size: 1 }
    }
}

static NO_NAMESPACES: Namespaces = Vec::new();

impl Run<'_> {
    /// The context of expressions.
    pub(super) fn cx<'a>(&'a self, frame: &'a Frame, focus: Focus) -> Cx<'a> {
        Cx {
            run: self,
            node: focus.node,
            position: focus.position,
            size: focus.size,
            current: focus.node,
            locals: &frame.locals,
            namespaces: &NO_NAMESPACES,
            file: &self.sheet.file,
        }
    }

    /// Executes instructions.
    fn exec(
        &self,
        body: &[Instruction],
        frame: &mut Frame,
        focus: Focus,
        out: &mut Builder,
    ) -> Result<()> {
        let _deeper = self.deeper()?;
        for instruction in body {
            self.tick()?;
            let done = self.one(&instruction.what, frame, focus, out);
            done.map_err(|e| e.or_at(&instruction.file, instruction.line))?;
            if frame.result.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn one(&self, instr: &Instr, frame: &mut Frame, focus: Focus, out: &mut Builder) -> Result<()> {
        match instr {
            Instr::Text { text, raw } => out.text(text, *raw),
            Instr::ValueOf { select, raw } => select.write(&self.cx(frame, focus), *raw, out),
            Instr::Literal(literal) => self.literal(literal, frame, focus, out),
            Instr::Element(element) => self.element(element, frame, focus, out),
            Instr::Attribute(attribute) => self.attribute(attribute, frame, focus, out),
            Instr::Comment(body) => self.comment(body, frame, focus, out),
            Instr::Pi { name, body } => self.pi(name, body, frame, focus, out),
            Instr::Copy { sets, body } => self.copy(sets, body, frame, focus, out),
            Instr::CopyOf(select) => {
                let value = select.eval(&self.cx(frame, focus))?;
                self.copy_of(&value, out)
            }
            Instr::Apply(apply) => self.apply_templates(apply, frame, focus, out),
            Instr::Call { template, params } => {
                let params = self.params(params, frame, focus)?;
                let rule = frame.rule;
                self.template(*template, rule, focus, params, out)
            }
            Instr::ApplyImports => self.apply_imports(frame, focus, out),
            Instr::ForEach(each) => self.for_each(each, frame, focus, out),
            Instr::If { test, body } => {
                if test.bool(&self.cx(frame, focus))? {
                    self.exec(body, frame, focus, out)?;
                }
                Ok(())
            }
            Instr::Choose { whens, otherwise } => {
                let body = self.chosen(whens, otherwise, frame, focus)?;
                self.exec(body, frame, focus, out)
            }
            Instr::Variable { slot, value } => {
                let value = self.bound(value, frame, focus)?;
                frame.set(*slot, value);
                Ok(())
            }
            Instr::Param { name, slot, default } => {
                let value = self.passed_or(*name, default, frame, focus)?;
                frame.set(*slot, value);
                Ok(())
            }
            Instr::Number(numbering) => {
                let text = self.number(numbering, &self.cx(frame, focus))?;
                out.text(&text, false)
            }
            Instr::Message { body, terminate } => self.said(body, *terminate, frame, focus),
            Instr::Result(value) => {
                frame.result = Some(self.bound(value, frame, focus)?);
                Ok(())
            }
            Instr::Fallback(body) => self.exec(body, frame, focus, out),
            Instr::Fault(message) => Err(Error::new(message)),
        }
    }

    /// The body of the first condition of `xsl:choose` that holds.
    fn chosen<'b>(
        &self,
        whens: &'b [(XPath, Body)],
        otherwise: &'b Body,
        frame: &Frame,
        focus: Focus,
    ) -> Result<&'b Body> {
        for (test, body) in whens {
            if test.bool(&self.cx(frame, focus))? {
                return Ok(body);
            }
        }
        Ok(otherwise)
    }

    /// The value of a parameter that was passed, or its default.
    fn passed_or(
        &self,
        name: Name,
        default: &Binding,
        frame: &mut Frame,
        focus: Focus,
    ) -> Result<Value> {
        match frame.params.iter().find(|(passed, _)| *passed == name) {
            Some((_, value)) => Ok(value.clone()),
            None => self.bound(default, frame, focus),
        }
    }

    fn comment(
        &self,
        body: &Body,
        frame: &mut Frame,
        focus: Focus,
        out: &mut Builder,
    ) -> Result<()> {
        // Two hyphens would end it (section 7.4).
        let text = self.text_of(body, frame, focus)?;
        let mut text = text.replace("--", "- -").replace("--", "- -");
        if text.ends_with('-') {
            text.push(' ');
        }
        out.comment(&text)
    }

    fn pi(
        &self,
        name: &Avt,
        body: &Body,
        frame: &mut Frame,
        focus: Focus,
        out: &mut Builder,
    ) -> Result<()> {
        let name = name.eval(&self.cx(frame, focus))?;
        if !is_ncname(&name) || name.eq_ignore_ascii_case("xml") {
            let m = format!("\"{name}\" is no name of a processing instruction");
            return Err(Error::new(m));
        }
        let text = self.text_of(body, frame, focus)?;
        out.pi(&name, text.replace("?>", "? >").trim_start())
    }

    /// `xsl:message`
    fn said(&self, body: &Body, ends: bool, frame: &mut Frame, focus: Focus) -> Result<()> {
        let text = self.text_of(body, frame, focus)?;
        self.message(text.trim());
        if ends {
            let m = format!("the stylesheet ended the transformation: {}", text.trim());
            return Err(Error::new(m));
        }
        Ok(())
    }

    /// The value of a variable.
    pub(super) fn bound(
        &self,
        binding: &Binding,
        frame: &mut Frame,
        focus: Focus,
    ) -> Result<Value> {
        match binding {
            Binding::Select(select) => select.eval(&self.cx(frame, focus)),
            Binding::Nothing => Ok(Value::text("")),
            Binding::Body(body) => {
                let mut out = self.builder();
                self.exec(body, frame, focus, &mut out)?;
                Ok(Value::Tree(self.finished(out)))
            }
        }
    }

    /// The text that instructions make: of attributes, comments and the like.
    fn text_of(&self, body: &Body, frame: &mut Frame, focus: Focus) -> Result<String> {
        if let [Instruction { what: Instr::Text { text, .. }, .. }] = body.as_slice() {
            return Ok(text.to_string());
        }
        let mut out = self.builder();
        self.exec(body, frame, focus, &mut out)?;
        Ok(out.finish().value(ROOT).into_owned())
    }

    fn params(
        &self,
        params: &WithParams,
        frame: &mut Frame,
        focus: Focus,
    ) -> Result<Vec<(Name, Value)>> {
        let mut values = Vec::with_capacity(params.len());
        for (name, binding) in params {
            values.push((*name, self.bound(binding, frame, focus)?));
        }
        Ok(values)
    }

    fn literal(
        &self,
        literal: &Literal,
        frame: &mut Frame,
        focus: Focus,
        out: &mut Builder,
    ) -> Result<()> {
        out.start(literal.name, literal.prefix)?;
        for (prefix, uri) in &literal.namespaces {
            out.namespace(*prefix, *uri)?;
        }
        self.attribute_sets(&literal.sets, focus, out)?;
        for (name, prefix, value) in &literal.attributes {
            let value = value.eval(&self.cx(frame, focus))?;
            out.attribute(*name, *prefix, &value)?;
        }
        self.exec(&literal.body, frame, focus, out)?;
        out.end();
        Ok(())
    }

    /// The name that `xsl:element` or `xsl:attribute` gives: name and prefix.
    fn constructed_name(
        &self,
        of: &Constructed,
        cx: &Cx,
        is_attribute: bool,
    ) -> Result<(Name, Atom)> {
        let text = of.name.eval(cx)?;
        let (prefix, local) = text.split_once(':').unwrap_or(("", &text));
        if !is_ncname(local) || !(is_ncname(prefix) || prefix.is_empty() && !text.starts_with(':'))
        {
            return Err(Error::new(format!("\"{text}\" is no name of an element or attribute")));
        }
        if is_attribute && of.namespace.is_none() && &*text == "xmlns" {
            return Err(Error::new("an attribute cannot be named \"xmlns\""));
        }
        let uri = match &of.namespace {
            Some(namespace) => self.atoms.get(&namespace.eval(cx)?),
            None if prefix == "xml" => self.atoms.get(crate::XML),
            None if prefix.is_empty() && is_attribute => Atom::EMPTY,
            None => {
                let declared = of.scope.iter().find(|(known, _)| known == prefix);
                match declared {
                    Some((_, uri)) => *uri,
                    None if prefix.is_empty() => Atom::EMPTY,
                    None => return Err(Error::new(format!("unknown prefix of \"{text}\""))),
                }
            }
        };
        // A prefix without a namespace is none, and the reserved one declares nothing.
        let is_plain = uri == Atom::EMPTY || prefix == "xmlns";
        let prefix = if is_plain { Atom::EMPTY } else { self.atoms.get(prefix) };
        Ok((Name { uri, local: self.atoms.get(local) }, prefix))
    }

    fn element(
        &self,
        element: &Constructed,
        frame: &mut Frame,
        focus: Focus,
        out: &mut Builder,
    ) -> Result<()> {
        let (name, prefix) = self.constructed_name(element, &self.cx(frame, focus), false)?;
        out.start(name, prefix)?;
        self.attribute_sets(&element.sets, focus, out)?;
        self.exec(&element.body, frame, focus, out)?;
        out.end();
        Ok(())
    }

    fn attribute(
        &self,
        attribute: &Constructed,
        frame: &mut Frame,
        focus: Focus,
        out: &mut Builder,
    ) -> Result<()> {
        let (name, prefix) = self.constructed_name(attribute, &self.cx(frame, focus), true)?;
        let value = self.text_of(&attribute.body, frame, focus)?;
        self.add_attribute(name, prefix, &value, out)
    }

    /// Adds an attribute; one that comes too late is left out and said (section 7.1.3).
    fn add_attribute(
        &self,
        name: Name,
        prefix: Atom,
        value: &str,
        out: &mut Builder,
    ) -> Result<()> {
        if out.takes_attributes() {
            return out.attribute(name, prefix, value);
        }
        let name = self.atoms.text(name.local);
        self.message(&format!(
            "attribute \"{name}\" is left out: its element has children already"
        ));
        Ok(())
    }

    /// Adds what attribute sets have (section 7.1.4).
    fn attribute_sets(&self, names: &[Name], focus: Focus, out: &mut Builder) -> Result<()> {
        for name in names {
            let Some(sets) = self.sheet.sets.get(name) else {
                let name = self.atoms.text(name.local);
                return Err(Error::new(format!("no xsl:attribute-set is named \"{name}\"")));
            };
            let _deeper = self.deeper()?;
            for set in sets {
                self.attribute_sets(&set.sets, focus, out)?;
                // They see the variables of the stylesheet alone.
                let mut own = Frame::new(set.slots, Vec::new());
                self.exec(&set.body, &mut own, focus, out)?;
            }
        }
        Ok(())
    }

    /// `xsl:copy` (section 7.5)
    fn copy(
        &self,
        sets: &[Name],
        body: &Body,
        frame: &mut Frame,
        focus: Focus,
        out: &mut Builder,
    ) -> Result<()> {
        let doc = self.docs.doc(focus.node).clone();
        let node = doc.node(focus.node.id);
        match node.kind {
            Kind::Root => self.exec(body, frame, focus, out),
            Kind::Element => {
                out.start(node.name, node.prefix)?;
                for declared in doc.in_scope(focus.node.id) {
                    let uri = self.atoms.get(doc.own_value(declared));
                    out.namespace(doc.node(declared).name.local, uri)?;
                }
                self.attribute_sets(sets, focus, out)?;
                self.exec(body, frame, focus, out)?;
                out.end();
                Ok(())
            }
            _ => self.copy_node(focus.node, out),
        }
    }

    fn copy_node(&self, n: N, out: &mut Builder) -> Result<()> {
        let doc = self.docs.doc(n);
        let node = doc.node(n.id);
        self.ticks(node.end - n.id)?;
        match node.kind {
            Kind::Attribute => self.add_attribute(node.name, node.prefix, doc.own_value(n.id), out),
            _ => out.copy(doc, n.id),
        }
    }

    fn copy_of(&self, value: &Value, out: &mut Builder) -> Result<()> {
        match value {
            Value::Nodes(nodes) => nodes.iter().try_for_each(|n| self.copy_node(*n, out)),
            Value::Tree(doc) => out.copy(doc, ROOT),
            value => out.text(&value.to_text(&self.docs), false),
        }
    }

    fn for_each(
        &self,
        each: &ForEach,
        frame: &mut Frame,
        focus: Focus,
        out: &mut Builder,
    ) -> Result<()> {
        let nodes = each.select.nodes(&self.cx(frame, focus))?;
        let nodes = self.sorted(nodes, &each.sorts, frame, focus)?;
        // Within it, no template rule is the current one.
        let rule = frame.rule.take();
        for (at, node) in nodes.iter().enumerate() {
            let focus = Focus { node: *node, position: at + 1, size: nodes.len() };
            self.exec(&each.body, frame, focus, out)?;
            if frame.result.is_some() {
                break;
            }
        }
        frame.rule = rule;
        Ok(())
    }

    fn apply_templates(
        &self,
        apply: &Apply,
        frame: &mut Frame,
        focus: Focus,
        out: &mut Builder,
    ) -> Result<()> {
        let nodes = match &apply.select {
            Some(select) => select.nodes(&self.cx(frame, focus))?,
            None => Rc::new(self.children(focus.node)),
        };
        let nodes = self.sorted(nodes, &apply.sorts, frame, focus)?;
        let params = self.params(&apply.params, frame, focus)?;
        for (at, node) in nodes.iter().enumerate() {
            let place = (at + 1, nodes.len());
            self.apply(*node, apply.mode, place, params.clone(), out)?;
        }
        Ok(())
    }

    fn children(&self, n: N) -> Vec<N> {
        self.docs.doc(n).children(n.id).map(|id| N { id, ..n }).collect()
    }

    /// Applies the best template to a node; `place` is its position and the number of nodes.
    pub(super) fn apply(
        &self,
        node: N,
        mode: Name,
        place: (usize, usize),
        params: Vec<(Name, Value)>,
        out: &mut Builder,
    ) -> Result<()> {
        let focus = Focus { node, position: place.0, size: place.1 };
        self.apply_among(focus, mode, 0..u32::MAX, params, out)
    }

    /// Applies the best template of a range of precedences.
    fn apply_among(
        &self,
        focus: Focus,
        mode: Name,
        precedences: std::ops::Range<u32>,
        params: Vec<(Name, Value)>,
        out: &mut Builder,
    ) -> Result<()> {
        let rule = {
            let frame = Frame::new(0, Vec::new());
            let cx = self.cx(&frame, Focus::alone(focus.node));
            match self.sheet.modes.get(&mode) {
                Some(of_mode) => of_mode.find(&cx, focus.node, precedences)?.map(|r| r.template),
                None => None,
            }
        };
        match rule {
            Some(place) => self.template(place, Some((place, mode)), focus, params, out),
            None => self.built_in(focus.node, mode, params, out),
        }
    }

    /// Runs a template.
    fn template(
        &self,
        place: u32,
        rule: Option<(u32, Name)>,
        focus: Focus,
        params: Vec<(Name, Value)>,
        out: &mut Builder,
    ) -> Result<()> {
        let Some(template) = self.sheet.templates.get(place as usize) else {
            return Err(Error::new("a template is not there"));
        };
        let _deeper = deeper(&self.templates, TEMPLATES_MAX)?;
        let mut frame = Frame::new(template.slots, params);
        frame.rule = rule;
        self.exec(&template.body, &mut frame, focus, out)
    }

    /// The built-in templates (section 5.8). They hand parameters on, as those of libxslt do, and
    /// those of XSLT 2.0.
    fn built_in(
        &self,
        n: N,
        mode: Name,
        params: Vec<(Name, Value)>,
        out: &mut Builder,
    ) -> Result<()> {
        let doc = self.docs.doc(n);
        match doc.node(n.id).kind {
            Kind::Root | Kind::Element => {
                let _deeper = self.deeper()?;
                let children = self.children(n);
                for (at, child) in children.iter().enumerate() {
                    self.apply(*child, mode, (at + 1, children.len()), params.clone(), out)?;
                }
                Ok(())
            }
            Kind::Text | Kind::RawText | Kind::Attribute => out.text(doc.own_value(n.id), false),
            _ => Ok(()),
        }
    }

    /// `xsl:apply-imports` (section 5.6)
    fn apply_imports(&self, frame: &mut Frame, focus: Focus, out: &mut Builder) -> Result<()> {
        let found = frame.rule.and_then(|(place, mode)| {
            self.sheet.templates.get(place as usize).map(|template| (template, mode))
        });
        let Some((template, mode)) = found else {
            return Err(Error::new("xsl:apply-imports where no template was matched"));
        };
        let precedences = template.lowest..template.precedence;
        self.apply_among(focus, mode, precedences, Vec::new(), out)
    }

    /// Calls a function of the stylesheet.
    pub(crate) fn own_function(&self, cx: &Cx, place: u32, args: Vec<Value>) -> Result<Value> {
        let Some(function) = self.sheet.functions.get(place as usize) else {
            return Err(Error::new("a function is not there"));
        };
        let _deeper = deeper(&self.templates, TEMPLATES_MAX)?;
        let params = function.params.iter().copied().zip(args).collect();
        let mut frame = Frame::new(function.slots, params);
        let focus = Focus { node: cx.node, position: cx.position, size: cx.size };
        let mut nowhere = self.builder();
        self.exec(&function.body, &mut frame, focus, &mut nowhere)?;
        Ok(frame.result.unwrap_or_else(|| Value::text("")))
    }
}
