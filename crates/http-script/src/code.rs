//! The imports of a location, compiled, and idle engines that run them.

use std::cell::RefCell;
use std::rc::Rc;

use conf::ConfError;

use ::script::{Facts, Fault, Host, Import, Instance, Limits, Program, Sources};

use crate::settings::Draft;

thread_local! {
    static FACTS: RefCell<Rc<Facts>> = RefCell::default();
}

/// Sets what `ngx` says in this process.
pub(crate) fn set_facts(facts: Facts) {
    FACTS.with(|known| *known.borrow_mut() = Rc::new(facts));
}

/// Compiled imports.
pub(crate) struct Code {
    program: Rc<Program>,
    /// Engines that serve nobody, each with the limits that it was made with.
    idle: RefCell<Vec<(Limits, Instance)>>,
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
        Ok(Code { program: Rc::new(program), idle: RefCell::default() })
    }

    /// An engine for a request: an idle one, or a new one.
    ///
    /// # Errors
    /// A module threw when it was evaluated, or there is not enough memory.
    pub fn take(&self, limits: Limits, host: &mut dyn Host) -> Result<Instance, Fault> {
        let mut idle = self.idle.borrow_mut();
        if let Some(at) = idle.iter().rposition(|(made_with, _)| *made_with == limits) {
            return Ok(idle.swap_remove(at).1);
        }
        drop(idle);
        let facts = FACTS.with(|facts| facts.borrow().clone());
        Instance::new(self.program.clone(), limits, facts, host)
    }

    /// Keeps a clean engine for another request, if there are not `max` of them.
    pub fn give(&self, limits: Limits, instance: Instance, max: usize) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < max {
            idle.push((limits, instance));
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
