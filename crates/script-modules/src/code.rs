//! The imports of a place, compiled, and idle engines that run them.

use std::cell::RefCell;
use std::rc::Rc;

use conf::ConfError;

use ::script::{Facts, Fault, Host, Import, Instance, Limits, NoHost, Program, Sources};

use crate::function::Function;
use crate::settings::Draft;

thread_local! {
    static FACTS: RefCell<Rc<Facts>> = RefCell::default();
}

/// Sets what `ngx` says in this process.
pub fn set_facts(facts: Facts) {
    FACTS.with(|known| *known.borrow_mut() = Rc::new(facts));
}

/// Compiled imports.
pub struct Code {
    program: Rc<Program>,
    /// The functions of it that directives name, while a load is watched.
    functions: RefCell<Vec<Function>>,
    /// Engines that serve nobody.
    idle: RefCell<Vec<Instance>>,
}

/// What a check of functions needs to know of a load.
#[derive(Default)]
struct Watched {
    compiled: Vec<Rc<Code>>,
    variables: Vec<Function>,
}

thread_local! {
    /// Set while a load is watched.
    static WATCHED: RefCell<Option<Watched>> = const { RefCell::new(None) };
}

/// Notes that `js_set` names a function, for [`missing_functions`].
pub(crate) fn note_variable(function: &Function) {
    WATCHED.with_borrow_mut(|watched| {
        if let Some(watched) = watched {
            watched.variables.push(function.clone());
        }
    });
}

fn has(engine: &mut Instance, function: &Function) -> bool {
    engine.has_function(&mut NoHost, &function.lossy()).unwrap_or(true)
}

/// Loads a configuration, and returns the functions that directives name and no module exports.
/// Modules run for that, outside of a server; of one that fails there, nothing is known. Nothing is
/// known either where `load` returns that the configuration does not load.
pub fn missing_functions(load: impl FnOnce() -> bool) -> Vec<Function> {
    WATCHED.set(Some(Watched::default()));
    let is_loaded = load();
    let watched = WATCHED.take().filter(|_| is_loaded);
    let Some(Watched { compiled, variables }) = watched else { return Vec::new() };
    let engines = compiled.iter().map(|code| code.make(Limits::default(), &mut NoHost));
    let mut engines: Vec<Option<Instance>> = engines.map(Result::ok).collect();
    let mut missing = Vec::new();
    for (code, engine) in compiled.iter().zip(&mut engines) {
        let Some(engine) = engine else { continue };
        let functions = code.functions.borrow();
        missing.extend(functions.iter().filter(|of| !has(engine, of)).cloned());
    }
    // A variable is computed by the imports of the place that asks for it.
    if !engines.is_empty() && engines.iter().all(Option::is_some) {
        for function in variables {
            if !engines.iter_mut().flatten().any(|engine| has(engine, &function)) {
                missing.push(function);
            }
        }
    }
    missing
}

impl Code {
    /// Finds, checks and compiles modules.
    ///
    /// # Errors
    /// A module is not found, or is no JavaScript.
    pub fn compile(draft: &Draft) -> Result<Code, ConfError> {
        let mut paths = draft.paths.clone();
        paths.push(draft.prefix.clone());
        let import = |(name, path, _): &(String, String, _)| Import {
            name: name.clone(),
            path: path.clone(),
        };
        let imports = draft.imports.iter().map(import).collect();
        let sources = Sources { imports, paths, objects: draft.objects.clone() };
        let program = Program::compile(&sources).map_err(|fault| refused(draft, &fault))?;
        let program = Rc::new(program);
        Ok(Code { program, functions: RefCell::default(), idle: RefCell::default() })
    }

    /// Notes that a directive names a function, for [`missing_functions`].
    pub fn note(self: &Rc<Self>, function: &Function) {
        WATCHED.with_borrow_mut(|watched| {
            let Some(watched) = watched else { return };
            if !watched.compiled.iter().any(|known| Rc::ptr_eq(known, self)) {
                watched.compiled.push(self.clone());
            }
            let mut functions = self.functions.borrow_mut();
            if functions.iter().all(|known| known.word.pos != function.word.pos) {
                functions.push(function.clone());
            }
        });
    }

    /// An idle engine for a request.
    pub fn idle(&self, limits: Limits) -> Option<Instance> {
        let mut idle = self.idle.borrow_mut().pop()?;
        idle.set_limits(limits);
        Some(idle)
    }

    /// A new engine, which has run its modules.
    ///
    /// # Errors
    /// A module threw when it was evaluated, or there is not enough memory.
    pub fn make(&self, limits: Limits, host: &mut dyn Host) -> Result<Instance, Fault> {
        let facts = FACTS.with(|facts| facts.borrow().clone());
        Instance::new(self.program.clone(), limits, facts, host)
    }

    /// Keeps a clean engine for another request, if there are not `max` of them.
    pub fn give(&self, instance: Instance, max: usize) {
        instance.reset_time();
        let mut idle = self.idle.borrow_mut();
        if idle.len() < max {
            idle.push(instance);
        }
    }
}

/// The error of a program that does not compile, at the import that names it.
fn refused(draft: &Draft, fault: &Fault) -> ConfError {
    let message = fault.to_string();
    let names = |path: &str| message.contains(path);
    let guilty = draft.imports.iter().find(|(_, path, _)| names(path));
    match guilty.or_else(|| draft.imports.last()) {
        Some((_, _, word)) => ConfError::at(word, message),
        None => ConfError::new(message),
    }
}
