//! The parts that a module installs: handlers of phases, and the content of sessions.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use conf::table::Contexts;
use conf::{ConfError, Node};

use crate::proxy::Proxy;
use crate::session::StreamSession;

/// The table of a module.
pub type Module = engine::Module<StreamSession>;
/// The ordered list of modules.
pub type Modules = engine::module::Modules<StreamSession>;
/// The state while directives are applied.
pub type Cx = engine::Cx<StreamSession>;
/// A server, as a module sees it.
pub type View<'a> = engine::module::View<'a, StreamSession>;
/// A variable.
pub type VarDef = engine::vars::VarDef<StreamSession>;

/// The facts of a server that modules ask for.
#[derive(Clone, Debug, Default)]
pub struct ServerInfo {
    /// The directive that serves its sessions; of several, the last.
    pub content: &'static str,
}

/// The rest of a block while it is read.
#[derive(Default)]
pub struct Block {
    /// Its addresses.
    pub listens: Vec<engine::addresses::ListenAddress>,
    /// Its names.
    pub names: Vec<engine::names::ServerName>,
    /// See [`ServerInfo::content`].
    pub content: &'static str,
}

/// A handler's verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The next handler of the phase.
    Next,
    /// The next handler of the phase, after so many milliseconds.
    Wait(u64),
    /// The next phase.
    Done,
    /// The session ends with this status.
    Status(u16),
}

/// The verdict of a handler that looks at the first bytes of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preread {
    /// It has seen enough.
    Done,
    /// More bytes are needed.
    More,
    /// The session ends with this status.
    Status(u16),
}

/// A handler of a phase.
pub type Handler = Box<dyn Fn(&mut StreamSession) -> Verdict>;

/// A handler of a session's further datagrams: says whether one may go on to the server.
pub type DatagramHandler = Box<dyn Fn(&mut StreamSession) -> bool>;

/// A handler that looks at the first bytes of a session.
pub type PrereadHandler = Box<dyn Fn(&mut StreamSession, &[u8]) -> Preread>;

/// A handler that logs a session.
pub type LogHandler = Box<dyn Fn(&mut StreamSession)>;

/// A future that serves a session; gives its status.
pub type Served<'a> = Pin<Box<dyn Future<Output = u16> + 'a>>;

/// Serves sessions.
pub trait Content {
    /// Serves one.
    fn serve<'a>(&'a self, s: &'a mut StreamSession) -> Served<'a>;
}

/// The handlers of a server.
#[derive(Default)]
pub struct Pipeline {
    /// The client's address is found.
    pub post_accept: Vec<Handler>,
    /// Limits.
    pub preaccess: Vec<Handler>,
    /// Access rules.
    pub access: Vec<Handler>,
    /// The first bytes are looked at.
    pub preread: Vec<PrereadHandler>,
    /// Variables are set.
    pub set: Vec<Handler>,
    /// The session is served.
    pub content: Option<Box<dyn Content>>,
    /// Sessions of datagrams are served by the proxy without a task for each.
    pub(crate) datagrams: Option<Rc<Proxy>>,
    /// Further datagrams of a session arrive.
    pub datagram: Vec<DatagramHandler>,
    /// The session is logged.
    pub log: Vec<LogHandler>,
}

/// `stream` and `server`.
pub const SS: Contexts = Contexts::STREAM.or(Contexts::STREAM_SERVER);

/// Notes that a directive serves the sessions of its server.
pub fn set_content(cx: &mut Cx, n: &Node, name: &'static str) -> Result<(), ConfError> {
    let block = &mut cx.top().block;
    if block.content == name {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    block.content = name;
    Ok(())
}
