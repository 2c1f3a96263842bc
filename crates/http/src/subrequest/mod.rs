//! Subrequests: requests that the server makes to itself while it answers one of a client.
//! `weir_module::subrequest` explains them.
//!
//! A subrequest is a [`Request`] of its own on a task of its own, with the client's header section
//! and connection. Its body goes through a [`Pipe`] to the parent, which sends only the front of
//! its queue ([`crate::filter`]), so the page's order holds whatever finishes first:
//!
//! ```text
//!  filters ─▶ queue of the parent:  bytes │ subrequest │ bytes │ subrequest
//!                                             ▲ pipe               ▲ pipe
//!             queue of the subrequest:  bytes │ subrequest …   (and so on)
//! ```

mod family;
mod out;
mod pipe;
mod queue;

use std::any::Any;
use std::future::Future;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use event::TaskId;
use http_wire::h1::{Method, Span};
use mem::{Chain, Page};

pub(crate) use family::{Family, Subrequests};
pub(crate) use out::{finish, put, start};
pub(crate) use pipe::Pipe;
pub(crate) use queue::{Queue, Queued};

use crate::channel::Channel;
use crate::module::Verdict;
use crate::output::Broken;
use crate::request::Request;

/// The depth to which subrequests may nest.
pub const DEPTH_MAX: u8 = 50;

/// Subrequests that one client's request may lead to, in all. A page that includes itself twice
/// would be a tree of as many leaves as an attacker likes.
pub(crate) const TOTAL_MAX: u32 = 65_535 - 1_000;

/// The use of a subrequest's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// It goes into the parent's body, at the place where the filter put it.
    Body,
    /// It is kept in memory, up to `subrequest_output_buffer_size`; see [`Handle::body`].
    Memory,
    /// It is dropped: only the status and the fields of the response matter.
    Head,
}

/// Runs at a subrequest's end, on the subrequest, before it is gone.
pub type AtEnd = Box<dyn FnOnce(&mut Request)>;

/// Takes the subrequest at its end, before the parent is woken.
pub type Keep = Box<dyn FnOnce(Box<Request>)>;

/// A subrequest that is to be made.
pub struct Subrequest {
    /// Its path, unescaped.
    pub uri: Bytes,
    /// Its arguments.
    pub args: Bytes,
    /// The use of its body.
    pub take: Use,
    /// It has the client's method, not GET.
    pub same_method: bool,
    /// The name of its method, in place of GET or the client's.
    pub method: Option<Bytes>,
    /// It has the client's body, where that was read.
    pub with_body: bool,
    /// Its body, in place of the client's.
    pub body: Option<Bytes>,
    /// Text in place of its body where that is empty, or where it would be an error page.
    pub instead: Option<Bytes>,
    /// It makes its content as its parent does: in the same location, by the same handler.
    pub is_clone: bool,
    /// A module asks for something that it needs itself, which is kept in memory. So a subrequest
    /// whose body is kept in memory may ask for it, too. It can have no subrequests of its own.
    pub is_aside: bool,
    /// A module's state that it begins with; see [`Request::ctx`].
    pub ctx: Option<Box<dyn Any>>,
    /// See [`AtEnd`].
    pub at_end: Option<AtEnd>,
    /// See [`Keep`].
    pub keep: Option<Keep>,
}

impl Subrequest {
    /// A subrequest for a page, as a part of the parent's body.
    pub fn new(uri: Bytes, args: Bytes) -> Subrequest {
        Subrequest {
            uri,
            args,
            take: Use::Body,
            same_method: false,
            method: None,
            with_body: true,
            body: None,
            instead: None,
            is_clone: false,
            is_aside: false,
            ctx: None,
            at_end: None,
            keep: None,
        }
    }
}

/// The state that a subrequest has beyond other requests.
pub(crate) struct Sub {
    pub pipe: Rc<Pipe>,
    /// The head of the client's request.
    pub head_text: Page,
    /// Nothing is queued here: bodies go into the pipe.
    pub output: Chain,
    /// Levels that it may still nest.
    pub depth_left: u8,
    pub take: Use,
    pub is_aside: bool,
    pub instead: Option<Bytes>,
    /// The type of the substitute for the body.
    pub parent_type: Option<Bytes>,
    /// Bytes of body so far.
    pub given: u64,
    pub at_end: Option<AtEnd>,
    pub keep: Option<Keep>,
    /// The right to fetch something for a cache, while it is not taken.
    pub fetches: Option<Box<dyn Any>>,
    /// It fetches a response for a cache while the client is served the stale one.
    pub background: bool,
    /// Keeps the worker from leaving before a subrequest ends that nobody waits for.
    #[expect(dead_code, reason = "kept for its drop")]
    pub hold: engine::life::Work,
}

/// Starts the task that answers a subrequest; a clone is in its location already.
pub(crate) type Run = fn(Box<Request>, Rc<Pipe>, bool) -> TaskId;

/// A subrequest that runs. Dropped, it is cancelled.
pub struct Handle {
    pipe: Rc<Pipe>,
    task: TaskId,
    detached: bool,
}

impl Handle {
    /// Waits for its end. It ends only when somebody takes its body: see
    /// [`FilterStep::Include`](crate::output::FilterStep::Include).
    pub fn ended(&self) -> impl Future<Output = Result<(), Broken>> + use<> {
        let pipe = self.pipe.clone();
        async move { pipe.ended().await }
    }

    /// The status of its response, once it has ended.
    pub fn status(&self) -> u16 {
        self.pipe.status.get()
    }

    /// Its body, where it was kept in memory.
    pub fn body(&self) -> Chain {
        self.pipe.take()
    }

    /// Lets it go on by itself.
    pub fn detach(mut self) {
        self.detached = true;
    }

    pub(crate) fn pipe(&self) -> &Rc<Pipe> {
        &self.pipe
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.detached && self.pipe.result().is_none() {
            event::task::cancel(self.task);
        }
    }
}

/// The subrequest was refused. The first refusal of each kind in a client's request is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It would be nested too deep, or within a part that is kept in memory.
    Nested,
    /// The client's request had [`TOTAL_MAX`] subrequests: its response should end here.
    Exhausted,
}

/// Bits of [`Family::is_first`].
const CYCLE: u8 = 1;
const IN_MEMORY: u8 = 2;
const TOO_MANY: u8 = 4;

impl Request {
    /// Whether this is a subrequest.
    pub fn is_subrequest(&self) -> bool {
        matches!(self.client.channel, Channel::Subrequest(_))
    }

    /// Whether this is a subrequest whose body is kept in memory: it can have none of its own.
    pub fn is_in_memory(&self) -> bool {
        self.sub().is_some_and(|s| s.take == Use::Memory)
    }

    /// Whether this is a subrequest for what a module needs itself; see [`Subrequest::is_aside`].
    pub fn is_aside(&self) -> bool {
        self.sub().is_some_and(|s| s.is_aside)
    }

    fn sub(&self) -> Option<&Sub> {
        match &self.client.channel {
            Channel::Subrequest(sub) => Some(sub),
            _ => None,
        }
    }

    pub(crate) fn sub_mut(&mut self) -> Option<&mut Sub> {
        match &mut self.client.channel {
            Channel::Subrequest(sub) => Some(sub),
            _ => None,
        }
    }

    /// Starts a subrequest.
    ///
    /// # Errors
    /// There are too many of them, or too deep.
    pub fn subrequest(&mut self, ask: Subrequest) -> Result<Handle, Refused> {
        self.subrequest_with(ask, |_| ())
    }

    fn subrequest_with(
        &mut self,
        ask: Subrequest,
        prepare: impl FnOnce(&mut Request),
    ) -> Result<Handle, Refused> {
        let depth_left = self.sub().map_or(DEPTH_MAX, |s| s.depth_left);
        if depth_left == 0 {
            self.log_refusal(CYCLE, "subrequests cycle while processing", &ask.uri);
            return Err(Refused::Nested);
        }
        if self.sub().is_some_and(|s| s.take == Use::Memory && (s.is_aside || !ask.is_aside)) {
            self.log_refusal(IN_MEMORY, "nested in-memory subrequest", &ask.uri);
            return Err(Refused::Nested);
        }
        let main_charset = (!self.is_subrequest()).then(|| self.out.charset.clone());
        let family = self.work.subrequests.family().clone();
        if let Some(charset) = main_charset {
            family.set_charset(charset);
        }
        if !family.admit() {
            self.log_refusal(TOO_MANY, "too many subrequests while processing", &ask.uri);
            return Err(Refused::Exhausted);
        }
        let pipe = Rc::new(Pipe::new(family.clone()));
        let is_clone = ask.is_clone;
        let mut child = self.child(ask, pipe.clone(), depth_left - 1);
        if is_clone {
            child.enter(self.loc.clone());
        }
        prepare(&mut child);
        let task = (self.main.run_subrequest)(child, pipe.clone(), is_clone);
        Ok(Handle { pipe, task, detached: false })
    }

    fn log_refusal(&mut self, reason: u8, message: &str, uri: &[u8]) {
        if self.work.subrequests.family().is_first(reason) {
            let level = if reason == TOO_MANY { Level::Crit } else { Level::Error };
            self.log(level, format_args!("{message} \"{}\"", base::log::lossy(uri)));
        }
    }

    fn child(&mut self, ask: Subrequest, pipe: Rc<Pipe>, depth_left: u8) -> Box<Request> {
        let text = match self.target.edited_head.is_empty() {
            true => self.client.channel.head_only(),
            false => &self.target.edited_head,
        };
        let method = ask.method.as_deref().unwrap_or_default();
        let mut head_text = Page::get(text.len() + method.len());
        head_text.extend_from_slice(text);
        let method_span =
            Span { start: text.len() as u32, end: (text.len() + method.len()) as u32 };
        head_text.extend_from_slice(method);
        let channel = Channel::Subrequest(Box::new(Sub {
            pipe,
            head_text,
            output: Chain::new(),
            depth_left,
            take: ask.take,
            is_aside: ask.is_aside,
            instead: ask.instead,
            parent_type: self.out.content_type.clone(),
            given: 0,
            at_end: ask.at_end,
            keep: ask.keep,
            fetches: None,
            background: false,
            hold: self.main.life.work(),
        }));
        let mut r = Request::take(self.c().clone(), &self.main);
        r.client.channel = channel;
        r.server.clone_from(&self.server);
        r.loc.clone_from(&self.server.root);
        r.head.clone_from(&self.head);
        r.head.content_length = None;
        r.head.chunked = false;
        r.head.expect_continue = false;
        if let Some(bytes) = ask.body {
            let mut body = Chain::new();
            body.push_bytes(bytes);
            r.head.content_length = Some(body.len());
            r.body.is_shared(body);
        } else if ask.with_body && self.body.was_read() {
            let body = self.body_chain();
            r.head.content_length = Some(body.len());
            r.body.is_shared(body);
        }
        r.target.method = if ask.same_method { self.target.method } else { Method::Get };
        if let Some(name) = &ask.method {
            r.head.method_name = method_span;
            r.head.method = Method::lookup(name);
            r.target.method = r.head.method;
        }
        r.target.uri.extend_from_slice(&ask.uri);
        r.target.args.extend_from_slice(&ask.args);
        r.target.host.extend_from_slice(&self.target.host);
        r.target.host_port = self.target.host_port;
        r.client.real_peer.clone_from(&self.client.real_peer);
        r.state.values = self.state.values.share();
        r.flags.internal = true;
        r.flags.valid_location = true;
        let has_head_method = ask.method.is_some() && r.target.method == Method::Head;
        r.flags.header_only = ask.take == Use::Head || has_head_method;
        r.work.subrequests.family = self.work.subrequests.family.clone();
        r.state.ctx.extend(ask.ctx);
        r.account.start();
        r
    }

    /// Fetches the stale response that answers this request anew, in a subrequest that nobody waits
    /// for. False where that cannot be.
    pub fn background_update(&mut self, hold: Box<dyn Any>) -> bool {
        let (uri, args) =
            (Bytes::copy_from_slice(&self.target.uri), Bytes::copy_from_slice(&self.target.args));
        let ask = Subrequest {
            take: Use::Head,
            same_method: true,
            is_clone: true,
            ..Subrequest::new(uri, args)
        };
        let (captures, flags) = (self.state.captures.clone(), self.flags);
        let states = &self.loc.pipeline.background_states;
        let states: Vec<_> = states.iter().filter_map(|state| state(self)).collect();
        let made = self.subrequest_with(ask, |child| {
            child.state.ctx.extend(states);
            child.state.captures = captures;
            child.flags.valid_location = flags.valid_location;
            child.flags.valid_unparsed_uri = flags.valid_unparsed_uri;
            if let Some(sub) = child.sub_mut() {
                sub.fetches = Some(hold);
                sub.background = true;
            }
        });
        made.map(Handle::detach).is_ok()
    }

    /// Whether this is such a subrequest.
    pub fn is_background(&self) -> bool {
        self.sub().is_some_and(|s| s.background)
    }

    /// The right to fetch a cache's key, where this request was given it.
    pub fn adopted_hold<T: 'static>(&mut self) -> Option<T> {
        self.sub_mut()?.fetches.take()?.downcast().ok().map(|hold| *hold)
    }

    /// Prepares the substitute for a subrequest's body as its response, if there is one.
    pub(crate) fn stands_in(&mut self) -> bool {
        let Some(sub) = self.sub_mut() else { return false };
        let Some(instead) = sub.instead.take() else { return false };
        let like = sub.parent_type.clone();
        self.out.clear_entity();
        self.out.filters.clear();
        self.flags.err_status = 0;
        self.respond(200, Bytes::new(), instead);
        self.out.content_type = like;
        self.out.unconditional = true;
        true
    }

    /// Waits for a subrequest's end, but not longer than the client does.
    ///
    /// # Errors
    /// The verdict that ends this request: the client is gone (499 in logs).
    pub async fn await_subrequest(&mut self, handle: &Handle) -> Result<(), Verdict> {
        match event::race(handle.ended(), self.client_gone()).await {
            // A failure of it shows in its status.
            event::Either::First(_) => Ok(()),
            event::Either::Second(()) => {
                self.log(Level::Info, format_args!("client prematurely closed connection"));
                self.flags.err_status = crate::status_line::CLIENT_CLOSED;
                Err(Verdict::Close)
            }
        }
    }
}
