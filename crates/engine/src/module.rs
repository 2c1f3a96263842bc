//! A module: one static table with its directives, variables, configuration types and the
//! function that installs its handlers into a place's pipeline.
//!
//! A module never appears in an engine by name. The engine walks the ordered list of tables three
//! times at load: to apply directives, to merge configuration, to install handlers. At run time
//! only what was installed is there.

use std::any::TypeId;
use std::io;
use std::rc::Rc;

use conf::ConfError;
use conf::table::{Directive, Table};

use crate::cx::Cx;
use crate::lifecycle::{Help, Helper, Seat};
use crate::session::Session;
use crate::settings::{Conf, ConfSet, ConfType, Scope};
use crate::status::Section;
use crate::vars::VarDef;

/// The ordered list of an engine's modules, the core's first.
pub type Modules<S> = &'static [&'static Module<S>];

/// All directives of the modules, for applying and for the reference page.
pub fn table<S: Session>(modules: Modules<S>) -> Table<Cx<S>> {
    Table::new(modules.iter().flat_map(|m| m.directives))
}

/// One module: everything the engine knows about it.
pub struct Module<S: Session> {
    /// The module's short name, as nginx's documentation has it without `ngx_http_` and `_module`.
    pub name: &'static str,
    /// Its directives; see [`Directive`].
    pub directives: &'static [Directive<Cx<S>>],
    /// Variables that exist from the start (those that directives define are added by setters).
    pub variables: &'static [VarDef<S>],
    /// The configuration types whose creation and merging belong to this module.
    pub confs: &'static [ConfType],
    /// Runs once after all directives were applied and before merging.
    pub init: Option<Init<S>>,
    /// Puts handlers and filters of this module into a place's pipeline; called once a place.
    pub install: Option<Install<S>>,
    /// Runs once in each worker when it begins to serve.
    pub start: Option<Start<S>>,
    /// Work for processes beside the workers.
    pub helps: &'static [Helping<S>],
    /// Adds the module's section, under its name, to the object that `stub_status json` answers
    /// with. Its counts of all workers lie in shared memory.
    pub status: Option<Section<S>>,
    /// Directives whose arguments are secret: `-T` and messages show `***` in their place.
    pub secrets: &'static [&'static str],
    /// Set for a module that is not the project's own: it is watched for holding up the event loop.
    /// Set by [`Module::added`].
    pub added: bool,
}

/// See [`Module::init`].
pub(crate) type Init<S> = fn(&mut Cx<S>) -> Result<(), ConfError>;

/// See [`Module::install`].
pub type Install<S> = fn(&View<'_, S>, &mut <S as Session>::Pipeline) -> Result<(), ConfError>;

/// See [`Module::start`]. An error ends the worker.
pub type Start<S> = fn(&Rc<<S as Session>::Main>, &Seat) -> io::Result<()>;

/// The work of a module in a process beside the workers.
pub struct Helping<S: Session> {
    /// The process.
    pub helper: Helper,
    /// In the master: whether there is something to do.
    pub wants: fn(&S::Main) -> bool,
    /// See [`crate::Engine::prepare_help`].
    pub prepare: fn(&S::Main),
    /// See [`crate::Engine::help`].
    pub run: fn(&Rc<S::Main>, &Seat) -> Help,
}

impl<S: Session> Module<S> {
    /// An empty table, for `Module { name: "x", ..Module::EMPTY }`.
    pub const EMPTY: Module<S> = Module {
        name: "",
        directives: &[],
        variables: &[],
        confs: &[],
        init: None,
        install: None,
        start: None,
        helps: &[],
        status: None,
        secrets: &[],
        added: false,
    };

    /// The table of a module of the usual kind: its settings `C` live in locations, and `install`
    /// makes handlers and filters of them.
    pub const fn of<C: Conf>(
        name: &'static str,
        directives: &'static [Directive<Cx<S>>],
        install: Install<S>,
    ) -> Module<S> {
        Module { install: Some(install), ..Module::with_conf::<C>(name, directives) }
    }

    /// The table of a module whose settings `C` live in locations, and that installs nothing:
    /// others ask for the settings.
    pub const fn with_conf<C: Conf>(
        name: &'static str,
        directives: &'static [Directive<Cx<S>>],
    ) -> Module<S> {
        let confs = const { &[ConfType::of::<C>(Scope::Location)] };
        Module { name, directives, confs, ..Module::EMPTY }
    }

    /// The same table for a module from outside the project.
    pub const fn added(&self) -> Module<S> {
        let Module { name, directives, variables, confs, init, .. } = *self;
        let Module { install, start, helps, status, secrets, .. } = *self;
        Module {
            name,
            directives,
            variables,
            confs,
            init,
            install,
            start,
            helps,
            status,
            secrets,
            added: true,
        }
    }
}

/// The place that [`Module::install`] installs into.
pub struct View<'a, S: Session> {
    /// Name, kind and flags of the place.
    pub info: &'a S::Place,
    /// The merged configuration that holds there.
    pub confs: &'a ConfSet,
    /// The types that a directive set in this very block.
    pub own: &'a [TypeId],
    /// For a block whose handlers go on with those of the block around (`if`, `limit_except`): the
    /// same of that block.
    pub around: &'a [TypeId],
}

impl<S: Session> View<'_, S> {
    /// The merged configuration of type `T` that holds in this place, whatever its scope.
    ///
    /// # Panics
    /// If no module lists `T` in its `confs`: a mistake in the module's table, found by any test.
    pub fn conf<T: 'static>(&self) -> Rc<T> {
        self.confs.listed()
    }

    /// Whether a directive in this very block set something of `T`: content handlers are not
    /// inherited by nested locations.
    pub fn set_here<T: 'static>(&self) -> bool {
        self.own.contains(&TypeId::of::<T>())
    }

    /// The same, and true as well inside `if` and `limit_except` of a location that did, for
    /// handlers that go on working there (`proxy_pass`).
    pub fn set_here_or_around<T: 'static>(&self) -> bool {
        self.set_here::<T>() || self.around.contains(&TypeId::of::<T>())
    }
}
