//! The parts that a module of HTTP is made of: its table, and the handlers and filters that it
//! installs into a location's [`Pipeline`].

use std::any::Any;
use std::future::Future;
use std::pin::Pin;

pub use engine::settings::{Conf, ConfSet, ConfType, Scope};

use crate::request::Request;
pub use crate::trace::Dry;

/// A module of HTTP.
pub type Module = engine::Module<Request>;

/// The ordered list of modules, the core's first.
pub type Modules = engine::module::Modules<Request>;

/// The location that a module installs its handlers into.
pub type LocView<'a> = engine::module::View<'a, Request>;

/// See [`engine::Module::install`].
pub type Install = engine::module::Install<Request>;

/// See [`engine::Module::start`].
pub type Start = engine::module::Start<Request>;

/// A handler's decision.
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

    /// Its fate when a request is only explained (`weir explain`).
    fn dry(&self) -> Dry {
        Dry::Usual
    }
}

impl<F: Fn(&mut Request) -> Verdict> PhaseHandler for F {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        Step::Now(self(r))
    }
}

/// A filter over a response's status and headers, run once, in the order of installation.
///
/// A filter that changes the body either edits `r.out.body` in place, or pushes a
/// [`BodyFilter`](crate::output::BodyFilter) to `r.out.filters`, in the order of the pipeline.
pub trait HeaderFilter {
    /// What the response waits for before `run`, if anything.
    fn wait(&self, _: &Request) -> Option<Wait> {
        None
    }

    /// Edits `r.out`. A `Status` verdict replaces the response by a special one.
    fn run(&self, r: &mut Request) -> Verdict;

    /// Says whether it is for the responses of subrequests too: they have no head, so only a filter
    /// that works on bodies is.
    fn in_subrequests(&self) -> bool {
        false
    }
}

impl<F: Fn(&mut Request) -> Verdict> HeaderFilter for F {
    fn run(&self, r: &mut Request) -> Verdict {
        self(r)
    }
}

/// See [`HeaderFilter::wait`].
pub type Wait = Pin<Box<dyn Future<Output = ()>>>;

/// See [`Pipeline::resume`].
pub(crate) type Resume = Box<dyn Fn(&mut Request)>;

/// The handlers and filters of one location, compiled at load.
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
    /// For requests that another process has begun and this one goes on with: what counts requests
    /// in progress counts these.
    pub resume: Vec<Resume>,
    /// Access control; combined by `satisfy`.
    pub access: Vec<Box<dyn PhaseHandler>>,
    /// Before the content: `try_files`, `mirror`.
    pub precontent: Vec<Box<dyn PhaseHandler>>,
    /// The one handler that a directive of this location named (`stub_status`, `proxy_pass`): it
    /// alone makes the content.
    pub content_handler: Option<Box<dyn PhaseHandler>>,
    /// It tells how the server is, and so answers under overload, too.
    pub answers_always: bool,
    /// Handlers tried in order where there is no such handler (`index`, `autoindex`, static files).
    pub content: Vec<Box<dyn PhaseHandler>>,
    /// After the response has gone.
    pub log: Vec<Box<dyn PhaseHandler>>,
    /// A request that lacks only the slash at the end of this location's name is redirected to it
    /// (for modules that pass requests on).
    pub auto_redirect: bool,
    /// The directive here whose handler `if` blocks of this location do not have, which surprises:
    /// where one enters such a block, it is warned of.
    pub not_in_if: Option<&'static str>,
    /// Header filters in the order in which they run.
    pub header_filters: Vec<Box<dyn HeaderFilter>>,
    /// The states of modules that the fetch of a response behind a client's back begins with.
    pub background_states: Vec<BackgroundState>,
}

/// Gives the state of a module for a fetch behind the back of this request's client.
pub(crate) type BackgroundState = fn(&Request) -> Option<Box<dyn Any>>;
