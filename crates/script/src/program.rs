//! Scripts as the master has them: found, checked and compiled, with no engine left.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Ctx, Error, Exception, Module, Runtime};

use crate::builtin;
use crate::exports;
use crate::fault::{Fault, FaultKind};
use crate::late;
use crate::raw::{self, Bytecode};

/// An import of the configuration: `js_import NAME from PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The name under which directives reach the module.
    pub name: String,
    /// The path as written, absolute or relative.
    pub path: String,
}

/// Where modules come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The imports, in the order of the configuration.
    pub imports: Vec<Import>,
    /// Folders in which relative paths are looked up, in order: `js_path`, then the prefix.
    pub paths: Vec<PathBuf>,
    /// Constants of all scripts: the name, and the value as JSON.
    pub objects: Vec<(String, String)>,
}

/// Compiled modules. Plain data: it survives a fork, and any thread may have it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(crate) imports: Vec<(String, String)>,
    pub(crate) objects: Vec<(String, String)>,
    pub(crate) modules: BTreeMap<String, Bytecode>,
    pub(crate) links: BTreeMap<(String, String), String>,
    /// What no text names: bits of `late.rs`.
    pub(crate) late: u32,
}

/// What the loader finds while a program is compiled.
#[derive(Default)]
struct Found {
    program: Program,
    paths: Vec<PathBuf>,
    named: u32,
}

struct Files(Rc<RefCell<Found>>);

impl Program {
    /// Reads, checks and compiles everything that the sources import.
    ///
    /// # Errors
    /// The first text that is no JavaScript, or the first import that names no file.
    pub fn compile(sources: &Sources) -> Result<Program, Fault> {
        let memory = |e: Error| Fault::new(FaultKind::Memory, e.to_string());
        let runtime = Runtime::new().map_err(memory)?;
        let found =
            Rc::new(RefCell::new(Found { paths: sources.paths.clone(), ..Found::default() }));
        runtime.set_loader(Files(found.clone()), Files(found.clone()));
        let context = crate::instance::context(&runtime).map_err(memory)?;
        for (name, text) in &sources.objects {
            let parsed = context.with(|ctx| {
                let value = ctx.json_parse(text.as_str());
                value.map(drop).map_err(|e| Fault::caught(&ctx, FaultKind::Load, &e))
            });
            parsed.map_err(|mut fault| {
                fault.message = format!("global value \"{name}\": {}", fault.message);
                fault
            })?;
            found.borrow_mut().program.objects.push((name.clone(), text.clone()));
        }
        for import in &sources.imports {
            let path = find(&sources.paths, "", &import.path).ok_or_else(|| {
                Fault::new(FaultKind::Load, format!("Cannot find module \"{}\"", import.path))
            })?;
            if !found.borrow().program.modules.contains_key(&path) {
                context.with(|ctx| {
                    // A module of one import: the loader below compiles what it names.
                    let text = format!("import * as module from {:?};", path);
                    raw::check(&ctx, "", &text)
                        .map_err(|e| Fault::caught(&ctx, FaultKind::Load, &e))
                })?;
            }
            found.borrow_mut().program.imports.push((import.name.clone(), path));
        }
        drop(context);
        drop(runtime);
        let found = found.take();
        Ok(Program { late: !found.named, ..found.program })
    }
}

impl Resolver for Files {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<String> {
        if builtin::is(name) {
            return Ok(name.to_owned());
        }
        let mut found = self.0.borrow_mut();
        let path = find(&found.paths, base, name).ok_or_else(|| {
            Exception::throw_reference(ctx, &format!("Cannot find module \"{name}\""))
        })?;
        found.program.links.insert((base.to_owned(), name.to_owned()), path.clone());
        Ok(path)
    }
}

impl Loader for Files {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<Module<'js, Declared>> {
        if let Some(module) = builtin::declare(ctx, name)? {
            return Ok(module);
        }
        let mut text = std::fs::read(name).map_err(|e| {
            Exception::throw_reference(ctx, &format!("Cannot load module \"{name}\": {e}"))
        })?;
        // The line of an interpreter stays a line, so that positions are right.
        if text.starts_with(b"#!") {
            text[..2].copy_from_slice(b"//");
        }
        if let Some(moved) = std::str::from_utf8(&text).ok().and_then(exports::moved_to_end) {
            text = moved.into_bytes();
        }
        let named = late::named_in(&text);
        let module = Module::declare(ctx.clone(), name, text)?;
        let bytecode = Bytecode::of(&module)?;
        self.0.borrow_mut().named |= named;
        self.0.borrow_mut().program.modules.insert(name.to_owned(), bytecode);
        Ok(module)
    }
}

/// The file that an import names: next to the importing file, then in each folder.
fn find(paths: &[PathBuf], base: &str, name: &str) -> Option<String> {
    let of = |folder: &Path| {
        let path = folder.join(name).canonicalize().ok()?;
        path.is_file().then(|| path.to_string_lossy().into_owned())
    };
    if Path::new(name).is_absolute() {
        return of(Path::new("/"));
    }
    let beside = Path::new(base).parent().filter(|_| !base.is_empty());
    beside.and_then(of).or_else(|| paths.iter().find_map(|folder| of(folder)))
}
