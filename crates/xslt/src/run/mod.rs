//! Transforms documents.

mod exec;
pub(crate) mod functions;
mod keys;
mod numbering;
mod sort;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::atoms::{Atoms, Name};
use crate::error::{Error, Result};
use crate::output::{self, Method};
use crate::parse::{Parsing, parse, read_file};
use crate::sheet::Sheet;
use crate::tree::{Builder, Doc};
use crate::value::{Docs, N, Value};
use crate::xpath::{Namespaces, Scope, Var};

/// What a transformation may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The memory of all its trees and texts, in bytes.
    pub bytes_max: usize,
    /// Set by another thread when the result is not wanted any more.
    pub is_cancelled: &'a AtomicBool,
}

/// A parameter of a stylesheet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The name of the `xsl:param`; `{uri}local` where it is in a namespace.
    pub name: String,
    /// An expression, or a text.
    pub value: String,
    /// Whether it is a text.
    pub is_text: bool,
}

/// The result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transformed {
    /// The document as it is sent.
    pub body: Vec<u8>,
    /// How it is written.
    pub method: Method,
    /// What the stylesheets said by `xsl:message`, and warnings.
    pub messages: Vec<String>,
}

/// The stack that a transformation may use: templates call one another 3,000 deep, as in libxslt.
/// Few use more than some KB.
pub const STACK_BYTES: usize = 320 << 20;

/// How deep templates may call one another.
const TEMPLATES_MAX: u32 = 3000;

/// How deep bodies of instructions and parts of expressions may be nested in all: each takes some
/// KB of the stack.
const DEPTH_MAX: u32 = 5 * TEMPLATES_MAX;

/// The most messages, and their length in characters.
const MESSAGES_MAX: usize = 100;
const MESSAGE_CHARS_MAX: usize = 1000;

/// Between two looks at whether the result is wanted still: steps of evaluation.
const TICKS: u32 = 4096;

/// Transforms a document by stylesheets, one after another, and writes the result as the last one
/// says. It holds the calling thread, which needs [`STACK_BYTES`] of stack, and waits for files. An
/// error: the document cannot be read, a stylesheet fails, or one of the bounds is reached.
pub fn transform(
    document: &[u8],
    parsing: &Parsing,
    stages: &[(&Sheet, Vec<Parameter>)],
    bounds: &Bounds,
) -> std::result::Result<Transformed, Error> {
    let Some((first, _)) = stages.first() else { return Err(Error::new("no stylesheet")) };
    let mut atoms = Atoms::over(first.atoms.clone());
    let mut doc = parse(&atoms, document, None, parsing, false)?;
    let mut messages = std::mem::take(&mut doc.notes);
    let mut last = *first;
    for (sheet, parameters) in stages {
        let own = Atoms::over(sheet.atoms.clone());
        if !Arc::ptr_eq(&sheet.atoms, &last.atoms) {
            doc.renamed(&atoms, &own);
            atoms = own;
        }
        let run = Run::new(sheet, atoms, bounds, parsing.external_entities, doc)?;
        let made = run.run(parameters);
        messages.append(&mut run.messages.borrow_mut());
        doc = made.map_err(|e| with_messages(e, &messages))?;
        atoms = run.atoms;
        last = sheet;
    }
    let method = last.output.method_for(&atoms, &doc);
    let body = output::write(&last.output, &atoms, &doc, bounds.bytes_max)?;
    Ok(Transformed { body, method, messages })
}

/// An error, and what was said before: there is no result that could have it.
fn with_messages(e: Error, messages: &[String]) -> Error {
    match messages.last() {
        Some(last) if !e.message.contains(last.as_str()) => {
            Error { message: format!("{} (message before: {last})", e.message), ..e }
        }
        _ => e,
    }
}

/// A run of a stylesheet.
pub(crate) struct Run<'r> {
    pub(crate) docs: Docs,
    pub(crate) atoms: Atoms,
    pub(crate) sheet: &'r Sheet,
    bounds: Bounds<'r>,
    external_entities: bool,
    source: N,
    /// The memory that trees may still take, in bytes.
    left: Rc<Cell<usize>>,
    ticks: Cell<u32>,
    depth: Cell<u32>,
    templates: Cell<u32>,
    globals: Vec<OnceCell<Value>>,
    /// The globals that are being evaluated.
    busy: RefCell<Vec<u32>>,
    parameters: RefCell<HashMap<String, Value>>,
    keys: RefCell<HashMap<(Name, u32), Rc<keys::Index>>>,
    documents: RefCell<HashMap<PathBuf, Option<N>>>,
    messages: RefCell<Vec<String>>,
}

/// A level of nesting, until it is dropped.
pub(crate) struct Deeper<'a>(&'a Cell<u32>);

impl Drop for Deeper<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

fn deeper(depth: &Cell<u32>, most: u32) -> Result<Deeper<'_>> {
    if depth.get() == most {
        return Err(Error::new("templates call one another too deep: does a recursion not end?"));
    }
    depth.set(depth.get() + 1);
    Ok(Deeper(depth))
}

impl<'r> Run<'r> {
    /// Prepares a run over a source document.
    pub(crate) fn new(
        sheet: &'r Sheet,
        atoms: Atoms,
        bounds: &Bounds<'r>,
        external_entities: bool,
        source: Doc,
    ) -> Result<Self> {
        let docs = Docs::default();
        let left = Rc::new(Cell::new(bounds.bytes_max));
        let mut source = stripped(sheet, &atoms, source);
        source.charge(&left);
        let source = docs.add(Rc::new(source));
        Ok(Run {
            docs,
            atoms,
            sheet,
            bounds: *bounds,
            external_entities,
            source,
            left,
            ticks: Cell::new(0),
            depth: Cell::new(0),
            templates: Cell::new(0),
            globals: sheet.globals.iter().map(|_| OnceCell::new()).collect(),
            busy: RefCell::default(),
            parameters: RefCell::default(),
            keys: RefCell::default(),
            documents: RefCell::default(),
            messages: RefCell::default(),
        })
    }

    /// Runs the stylesheet.
    fn run(&self, parameters: &[Parameter]) -> Result<Doc> {
        for parameter in parameters {
            let value = if parameter.is_text {
                Value::text(&parameter.value)
            } else {
                self.value_of(&parameter.value).map_err(|e| {
                    Error::new(format!("parameter \"{}\": {}", parameter.name, e.message))
                })?
            };
            self.parameters.borrow_mut().insert(parameter.name.clone(), value);
        }
        let mut out = self.builder();
        self.apply(self.source, Name::default(), (1, 1), Vec::new(), &mut out)?;
        Ok(out.finish())
    }

    /// The value of an expression at the root of the source document. It may use no names of the
    /// stylesheet.
    pub(crate) fn value_of(&self, expression: &str) -> Result<Value> {
        let frame = exec::Frame::new(0, Vec::new());
        let cx = self.cx(&frame, exec::Focus::alone(self.source));
        let scope = NoNames { atoms: &self.atoms, file: self.sheet.file.clone() };
        crate::xpath::parse(expression, &scope)?.eval(&cx)
    }

    /// A tree in the making, with what is left of the memory.
    pub(crate) fn builder(&self) -> Builder<'_> {
        Builder::new(&self.atoms, true, self.left.get())
    }

    /// A tree that was made.
    pub(crate) fn finished(&self, out: Builder) -> Rc<Doc> {
        let mut doc = out.finish();
        doc.charge(&self.left);
        Rc::new(doc)
    }

    /// Counts a step; an error where the result is not wanted any more.
    pub(crate) fn tick(&self) -> Result<()> {
        self.ticks(1)
    }

    /// Counts some steps.
    pub(crate) fn ticks(&self, steps: u32) -> Result<()> {
        let ticks = self.ticks.get().saturating_add(steps);
        self.ticks.set(ticks);
        if ticks >= TICKS {
            self.ticks.set(0);
            if self.bounds.is_cancelled.load(Ordering::Relaxed) {
                return Err(Error::new("the transformation was given up"));
            }
        }
        Ok(())
    }

    /// An error for a text that is too long.
    pub(crate) fn fits(&self, bytes: usize) -> Result<()> {
        if bytes > self.bounds.bytes_max {
            return Err(Error::new("a text needs more memory than it may have"));
        }
        Ok(())
    }

    /// Goes a level deeper; an error where there are too many.
    pub(crate) fn deeper(&self) -> Result<Deeper<'_>> {
        deeper(&self.depth, DEPTH_MAX)
    }

    /// The value of a global variable, which is evaluated when it is first asked for.
    pub(crate) fn global(&self, place: u32) -> Result<Value> {
        let (Some(global), Some(cell)) =
            (self.sheet.globals.get(place as usize), self.globals.get(place as usize))
        else {
            return Err(Error::new("a variable is not there"));
        };
        if let Some(value) = cell.get() {
            return Ok(value.clone());
        }
        let passed = self.parameters.borrow().get(&global.parameter).cloned();
        if let Some(value) = passed.filter(|_| !global.parameter.is_empty()) {
            return Ok(cell.get_or_init(|| value).clone());
        }
        if self.busy.borrow().contains(&place) {
            let e = Error::new("the value of a variable depends on itself");
            return Err(e.or_at(&global.file, global.line));
        }
        self.busy.borrow_mut().push(place);
        let mut frame = exec::Frame::new(global.slots, Vec::new());
        let value = self.bound(&global.value, &mut frame, exec::Focus::alone(self.source));
        self.busy.borrow_mut().pop();
        let value = value.map_err(|e| e.or_at(&global.file, global.line))?;
        Ok(cell.get_or_init(|| value).clone())
    }

    /// Notes a message for the log.
    pub(crate) fn message(&self, message: &str) {
        let mut messages = self.messages.borrow_mut();
        if messages.len() < MESSAGES_MAX {
            messages.push(message.chars().take(MESSAGE_CHARS_MAX).collect());
        }
    }

    /// The root of a document in a file; `None` where it cannot be read, which is said.
    fn document(&self, path: PathBuf) -> Option<N> {
        if let Some(known) = self.documents.borrow().get(&path) {
            return *known;
        }
        let name = path.display().to_string();
        let parsing = Parsing {
            entities: None,
            external_entities: self.external_entities,
            bytes_max: self.left.get(),
        };
        let read = read_file(&path, self.left.get()).map_err(|e| e.to_string());
        let doc = read.and_then(|bytes| {
            let doc = parse(&self.atoms, &bytes, Some(&name), &parsing, false);
            doc.map_err(|e| e.to_string())
        });
        let root = match doc {
            Ok(mut doc) => {
                doc.notes.drain(..).for_each(|note| self.message(&note));
                let mut doc = stripped(self.sheet, &self.atoms, doc);
                doc.charge(&self.left);
                Some(self.docs.add(Rc::new(doc)))
            }
            Err(why) => {
                self.message(&format!("document(\"{name}\") failed: {why}"));
                None
            }
        };
        self.documents.borrow_mut().insert(path, root);
        root
    }
}

/// A source document without the white space that the stylesheet strips.
fn stripped(sheet: &Sheet, atoms: &Atoms, doc: Doc) -> Doc {
    if sheet.spaces.iter().any(|(_, strips)| *strips) {
        doc.stripped(atoms, &|element| sheet.strips(element))
    } else {
        doc
    }
}

/// The names that a parameter's expression knows: none of its own.
struct NoNames<'a> {
    atoms: &'a Atoms,
    file: Arc<str>,
}

impl Scope for NoNames<'_> {
    fn atoms(&self) -> &Atoms {
        self.atoms
    }

    fn namespaces(&self) -> Arc<Namespaces> {
        Arc::default()
    }

    fn variable(&self, _: Name) -> Option<Var> {
        None
    }

    fn own_function(&self, _: Name) -> Option<(u32, usize)> {
        None
    }

    fn file(&self) -> Arc<str> {
        self.file.clone()
    }
}

#[cfg(test)]
mod tests;
