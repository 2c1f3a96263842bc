//! What a module is: one static table with its directives, variables, configuration types and the
//! function that installs its handlers into a location's pipeline.
//!
//! A module never appears in the engine by name. The engine walks the ordered list of tables three
//! times at load: to apply directives, to merge configuration, to install handlers. At run time
//! only what was installed is there.

use std::any::{Any, TypeId};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use conf::{ConfError, table::Directive};

use crate::cx::Cx;
use crate::location::LocationInfo;
use crate::request::Request;
use crate::server::HttpMain;
use crate::vars::VarDef;

/// One module: everything the engine knows about it.
pub struct Module {
    /// The module's short name, as nginx's documentation has it without `ngx_http_` and `_module`.
    pub name: &'static str,
    /// Its directives; see [`Directive`].
    pub directives: &'static [Directive<Cx>],
    /// Variables that exist from the start (those that directives define are added by setters).
    pub variables: &'static [VarDef],
    /// The configuration types whose creation and merging belong to this module.
    pub confs: &'static [ConfType],
    /// Runs once after all directives were applied and before merging.
    pub init: Option<Init>,
    /// Puts handlers and filters of this module into a location's pipeline; called once a location.
    pub install: Option<Install>,
    /// Runs once in each worker when it begins to serve.
    pub start: Option<Start>,
    /// Adds the module's section, under its name, to the object that `stub_status json` answers
    /// with. What it shows of all workers lies in shared memory.
    pub status: Option<crate::status::Section>,
    /// Directives whose arguments are for nobody's eyes: `-T` and messages show `***` in their
    /// place.
    pub secrets: &'static [&'static str],
    /// Whether the module is not the project's own: then it is watched for holding up the event
    /// loop. Set by [`Module::added`].
    pub added: bool,
}

/// See [`Module::init`].
pub type Init = fn(&mut Cx) -> Result<(), ConfError>;

/// See [`Module::install`].
pub type Install = fn(&LocView, &mut Pipeline) -> Result<(), ConfError>;

/// See [`Module::start`].
pub type Start = fn(&Rc<HttpMain>, &net::engine::Seat);

impl Module {
    /// An empty table, for `Module { name: "x", ..Module::EMPTY }`.
    pub const EMPTY: Module = Module {
        name: "",
        directives: &[],
        variables: &[],
        confs: &[],
        init: None,
        install: None,
        start: None,
        status: None,
        secrets: &[],
        added: false,
    };

    /// The same table for a module from outside the project.
    pub const fn added(&self) -> Module {
        let Module { name, directives, variables, confs, init, .. } = *self;
        let Module { install, start, status, secrets, .. } = *self;
        let added = true;
        Module { name, directives, variables, confs, init, install, start, status, secrets, added }
    }
}

/// Where a configuration value lives and how it inherits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Once, for the whole `http` block; never merged.
    Main,
    /// `http` and `server`.
    Server,
    /// `http`, `server`, `location` and what nests in them.
    Location,
}

/// A module's configuration at one level.
///
/// A level in which no directive of the module stands has no value of its own: it shares its
/// parent's, so `merge` runs only where something was set (and once at the `http` level, against
/// the default).
pub trait Conf: Default + 'static {
    /// Fills what this level left unset from the enclosing level.
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError>;
}

type MergeFn = fn(&mut dyn Any, &dyn Any) -> Result<(), ConfError>;

/// A configuration type as the engine handles it: by type id, created and merged through pointers.
pub struct ConfType {
    /// At which levels it lives.
    pub scope: Scope,
    pub(crate) id: fn() -> TypeId,
    pub(crate) create: fn() -> Rc<dyn Any>,
    pub(crate) merge: MergeFn,
}

fn create_of<T: Conf>() -> Rc<dyn Any> {
    Rc::new(T::default())
}

fn merge_of<T: Conf>(own: &mut dyn Any, prev: &dyn Any) -> Result<(), ConfError> {
    match (own.downcast_mut::<T>(), prev.downcast_ref::<T>()) {
        (Some(own), Some(prev)) => own.merge(prev),
        _ => Ok(()),
    }
}

impl ConfType {
    /// The entry of `T` for [`Module::confs`].
    pub const fn of<T: Conf>(scope: Scope) -> ConfType {
        ConfType { scope, id: TypeId::of::<T>, create: create_of::<T>, merge: merge_of::<T> }
    }
}

/// The resolved configuration values of one level, found by type.
#[derive(Clone, Default)]
pub struct ConfSet(pub(crate) Rc<[(TypeId, Rc<dyn Any>)]>);

impl ConfSet {
    /// The value of type `T`; `None` only where no module registered it.
    pub fn get<T: 'static>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.0.iter().find(|(i, _)| *i == id).and_then(|(_, v)| v.downcast_ref())
    }

    /// The same as a counted pointer, for handlers that keep their configuration.
    pub fn get_rc<T: 'static>(&self) -> Option<Rc<T>> {
        let id = TypeId::of::<T>();
        let (_, v) = self.0.iter().find(|(i, _)| *i == id)?;
        v.clone().downcast().ok()
    }
}

/// What [`Module::install`] sees of the location it installs into.
pub struct LocView<'a> {
    /// Name, kind and flags of the location.
    pub info: &'a LocationInfo,
    pub(crate) confs: &'a ConfSet,
    /// Types that a directive set in this very block.
    pub(crate) own: &'a [TypeId],
    /// For `if` and `limit_except`: the same of the block around.
    pub(crate) around: &'a [TypeId],
}

impl LocView<'_> {
    /// The merged configuration of type `T` that holds in this location, whatever its scope.
    ///
    /// # Panics
    /// If no module lists `T` in its `confs`: a mistake in the module's table, found by any test.
    #[allow(clippy::panic)]
    pub fn conf<T: 'static>(&self) -> Rc<T> {
        match self.confs.get_rc() {
            Some(c) => c,
            None => panic!("{} is in no module's table", std::any::type_name::<T>()),
        }
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

/// What a handler decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Not mine: the next handler of the phase goes on.
    Next,
    /// Access phase: allowed by this handler (see `satisfy`). Elsewhere: the phase is over.
    Ok,
    /// Answer with this status: through `error_page`, else with a built-in page.
    Status(u16),
    /// The response is prepared in `r.out`: send it.
    Done,
    /// The location was changed by a redirect inside the server; the phases begin anew.
    Redirected,
    /// Close the connection without an answer (status 444).
    Close,
}

/// A handler's answer: at once, or after waiting for something.
pub enum Step<'a> {
    /// Decided; the usual case, which costs no allocation.
    Now(Verdict),
    /// A future that decides, polled by the request's task.
    Wait(Pin<Box<dyn Future<Output = Verdict> + 'a>>),
}

impl From<Verdict> for Step<'_> {
    fn from(v: Verdict) -> Self {
        Step::Now(v)
    }
}

/// One handler of one phase, with its compiled configuration inside.
pub trait PhaseHandler {
    /// Looks at the request and decides.
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a>;
}

impl<F: Fn(&mut Request) -> Verdict> PhaseHandler for F {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        Step::Now(self(r))
    }
}

/// A filter over the response's status and headers, run once a response in the order of
/// installation.
///
/// A filter that changes the body either edits `r.out.body` in place, or pushes a
/// [`BodyFilter`](crate::output::BodyFilter) to `r.body_filters`, in the order of the pipeline.
pub trait HeaderFilter {
    /// Edits `r.out`. A `Status` verdict replaces the response by a special one.
    fn run(&self, r: &mut Request) -> Verdict;

    /// Whether it is for the responses of subrequests too: those have no head, so only what works
    /// on bodies is.
    fn in_subrequests(&self) -> bool {
        false
    }
}

impl<F: Fn(&mut Request) -> Verdict> HeaderFilter for F {
    fn run(&self, r: &mut Request) -> Verdict {
        self(r)
    }
}

/// What runs for requests in one location, compiled at load.
#[derive(Default)]
pub struct Pipeline {
    /// Before anything else; taken from the server's own level.
    pub post_read: Vec<Box<dyn PhaseHandler>>,
    /// Rewriting at server level, before a location is chosen.
    pub server_rewrite: Vec<Box<dyn PhaseHandler>>,
    /// Rewriting inside the location.
    pub rewrite: Vec<Box<dyn PhaseHandler>>,
    /// Limits on rates and connections.
    pub preaccess: Vec<Box<dyn PhaseHandler>>,
    /// Who may; combined by `satisfy`.
    pub access: Vec<Box<dyn PhaseHandler>>,
    /// Before the content: `try_files`, `mirror`.
    pub precontent: Vec<Box<dyn PhaseHandler>>,
    /// The one handler that a directive of this location named (`stub_status`, `proxy_pass`): it
    /// alone makes the content.
    pub content_handler: Option<Box<dyn PhaseHandler>>,
    /// Handlers tried in order where there is no such handler (`index`, `autoindex`, static files).
    pub content: Vec<Box<dyn PhaseHandler>>,
    /// After the response has gone.
    pub log: Vec<Box<dyn PhaseHandler>>,
    /// A request that lacks only the slash at the end of this location's name is redirected to it
    /// (for modules that pass requests on).
    pub auto_redirect: bool,
    /// The directive here whose handler `if` blocks of this location do without, which surprises:
    /// where one enters such a block, it is warned of.
    pub not_in_if: Option<&'static str>,
    /// Header filters in the order in which they run.
    pub header_filters: Vec<Box<dyn HeaderFilter>>,
}
