//! What a module installs: phase handlers, and the content handler of sessions.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use conf::table::Contexts;
use conf::{ConfError, Node};

use crate::proxy::choice::Choice;
use crate::proxy::resumed::Resumed;
use crate::session::StreamSession;
use crate::udp::client::Client;
use crate::udp::relay::{Pause, Relay};

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
pub(crate) type DatagramHandler = Box<dyn Fn(&mut StreamSession) -> bool>;

/// A preread handler: gets the first bytes of a session.
pub(crate) type PrereadHandler = Box<dyn Fn(&mut StreamSession, &[u8]) -> Preread>;

/// A handler that decides nothing: of the log phase, or of [`Pipeline::resume`].
pub(crate) type LogHandler = Box<dyn Fn(&mut StreamSession)>;

/// A handler of a phase that may wait: the phase continues by its verdict.
pub trait WaitingHandler {
    /// Decides about a session.
    fn run<'a>(&'a self, s: &'a mut StreamSession) -> Deciding<'a>;
}

/// The verdict of a [`WaitingHandler`].
pub type Deciding<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// The way that bytes take through the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// Bytes that a filter sends. Over UDP, pieces up to one with `flush` are one datagram.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    /// The bytes.
    pub bytes: Bytes,
    /// The piece is not held back.
    pub flush: bool,
}

/// What a filter sends, each way in order.
#[derive(Default)]
pub struct Sent {
    /// To the server.
    pub up: Vec<Piece>,
    /// To the client.
    pub down: Vec<Piece>,
}

impl Sent {
    /// The pieces of one way.
    pub fn way(&mut self, way: Way) -> &mut Vec<Piece> {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.up.is_empty() && self.down.is_empty()
    }
}

/// Changes the bytes of one session that the proxy relays, both ways. Over UDP it gets datagrams.
pub trait BytesFilter {
    /// Takes bytes on their way and adds what is to be sent. `last`: nothing follows them.
    ///
    /// # Errors
    /// The session ends with this status.
    fn filter(
        &mut self,
        s: &mut StreamSession,
        way: Way,
        piece: Piece,
        last: bool,
        sent: &mut Sent,
    ) -> Result<(), u16>;

    /// Whether it may send something although nothing comes: see [`BytesFilter::go_on`].
    fn is_waiting(&self) -> bool;

    /// Resolves when it has gone on with something that it waited for, after which `sent` may have
    /// something. May be dropped at any time.
    ///
    /// # Errors
    /// The session ends with this status.
    fn go_on<'a>(&'a mut self, s: &'a mut StreamSession, sent: &'a mut Sent) -> GoingOn<'a>;
}

/// See [`BytesFilter::go_on`].
pub type GoingOn<'a> = Pin<Box<dyn Future<Output = Result<(), u16>> + 'a>>;

/// Makes the filter of a session.
pub(crate) type MakeFilter = Box<dyn Fn(&mut StreamSession) -> Box<dyn BytesFilter>>;

/// Serves a session; resolves to its status.
pub type Served<'a> = Pin<Box<dyn Future<Output = u16> + 'a>>;

/// The content handler of a server.
pub trait Content {
    /// Serves a session.
    fn serve<'a>(&'a self, s: &'a mut StreamSession) -> Served<'a>;
}

/// The choice of a server for a UDP session, in progress; fails with the session's status.
pub(crate) type Choosing<'a> = Pin<Box<dyn Future<Output = Result<Choice, u16>> + 'a>>;

/// A proxy, for sessions that it does not serve as a [`Content`]: UDP sessions without a task,
/// whose turns the worker's table runs, and TCP sessions that another process has begun.
pub(crate) trait TasklessProxy {
    /// Chooses the server of a UDP session.
    fn choose<'a>(&'a self, s: &'a mut StreamSession) -> Choosing<'a>;

    /// Creates the relay of a UDP session, whose first datagram was already read.
    fn relay(&self, s: StreamSession, choice: Choice) -> Relay;

    /// The maximum number of further datagrams in a session (`proxy_requests`), if limited.
    fn further_datagrams(&self) -> Option<u64>;

    /// Runs a turn of a relay. `came`: the server's socket may be readable.
    ///
    /// # Errors
    /// The session has ended with this status.
    fn turn(&self, relay: &mut Relay, client: &Rc<Client>, came: bool) -> Result<Pause, u16>;

    /// `proxy_buffer_size`.
    fn buffer_size(&self) -> usize;

    /// Serves a TCP session that another process has begun.
    fn resume<'a>(&'a self, s: &'a mut StreamSession, resumed: Resumed) -> Served<'a>;
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
    /// Run in the access phase before `access`; may wait.
    pub first_access: Vec<Box<dyn WaitingHandler>>,
    /// Applies access rules.
    pub access: Vec<Handler>,
    /// Run in the preread phase before `preread`; may wait, and read
    /// ([`crate::phases::receive_more`]).
    pub first_preread: Vec<Box<dyn WaitingHandler>>,
    /// Inspects the first bytes.
    pub preread: Vec<PrereadHandler>,
    /// The number of bytes that a handler of that phase may need, if it is more than
    /// `preread_buffer_size`.
    pub preread_max: usize,
    /// Sets variables.
    pub set: Vec<Handler>,
    /// Serves the session.
    pub content: Option<Box<dyn Content>>,
    /// Makes the filter of each session that the proxy serves.
    pub filter: Option<MakeFilter>,
    /// The proxy, if it serves UDP sessions, which then need no task each.
    pub(crate) datagrams: Option<Rc<dyn TasklessProxy>>,
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
