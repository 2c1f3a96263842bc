//! What a module installs: phase handlers, and the content handler of sessions.

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

/// Properties of a server that modules need.
#[derive(Clone, Debug, Default)]
pub struct ServerInfo {
    /// The name of the directive that serves its sessions; the last one if there are several.
    pub content: &'static str,
}

/// Other data of a block while it is parsed.
#[derive(Default)]
pub struct Block {
    /// The addresses of `listen`.
    pub listens: Vec<engine::addresses::ListenAddress>,
    /// The names of `server_name`.
    pub names: Vec<engine::names::ServerName>,
    /// See [`ServerInfo::content`].
    pub content: &'static str,
}

/// The result of a phase handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Continue with the next handler of the phase.
    Next,
    /// Continue with the next handler after this time, in milliseconds.
    Wait(u64),
    /// Skip the rest of the phase.
    Done,
    /// The session ends with this status.
    Status(u16),
}

/// The result of a preread handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preread {
    /// The handler has seen enough.
    Done,
    /// The handler needs more bytes.
    More,
    /// The session ends with this status.
    Status(u16),
}

/// A handler of a phase.
pub type Handler = Box<dyn Fn(&mut StreamSession) -> Verdict>;

/// A handler for every datagram of a session after the first: whether to forward it.
pub type DatagramHandler = Box<dyn Fn(&mut StreamSession) -> bool>;

/// A preread handler: gets the first bytes of a session.
pub type PrereadHandler = Box<dyn Fn(&mut StreamSession, &[u8]) -> Preread>;

/// A handler that decides nothing: of the log phase, or of [`Pipeline::resume`].
pub type LogHandler = Box<dyn Fn(&mut StreamSession)>;

/// Serves a session; resolves to its status.
pub type Served<'a> = Pin<Box<dyn Future<Output = u16> + 'a>>;

/// The content handler of a server.
pub trait Content {
    /// Serves a session.
    fn serve<'a>(&'a self, s: &'a mut StreamSession) -> Served<'a>;
}

/// The handlers of a server, by phase.
#[derive(Default)]
pub struct Pipeline {
    /// Determines the client's address.
    pub post_accept: Vec<Handler>,
    /// Applies limits.
    pub preaccess: Vec<Handler>,
    /// For sessions that another process has begun and this one goes on with: what counts sessions
    /// in progress counts these.
    pub resume: Vec<LogHandler>,
    /// Applies access rules.
    pub access: Vec<Handler>,
    /// Inspects the first bytes.
    pub preread: Vec<PrereadHandler>,
    /// The number of bytes that a handler of that phase may need, if it is more than
    /// `preread_buffer_size`.
    pub preread_max: usize,
    /// Sets variables.
    pub set: Vec<Handler>,
    /// Serves the session.
    pub content: Option<Box<dyn Content>>,
    /// The proxy, if it serves UDP sessions, which then need no task each.
    pub(crate) datagrams: Option<Rc<Proxy>>,
    /// Run for each further datagram of a UDP session.
    pub datagram: Vec<DatagramHandler>,
    /// Logs the session.
    pub log: Vec<LogHandler>,
}

/// `stream` and `server`.
pub const SS: Contexts = Contexts::STREAM.or(Contexts::STREAM_SERVER);

/// Records that directive `name` serves the sessions of its server.
pub fn set_content(cx: &mut Cx, n: &Node, name: &'static str) -> Result<(), ConfError> {
    let block = &mut cx.top().block;
    if block.content == name {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    block.content = name;
    Ok(())
}
