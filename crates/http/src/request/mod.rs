//! A request: its head and body, its position in the phases, and its response in the making.
//!
//! Requests are boxes recycled per worker: a connection takes one when bytes arrive and gives it
//! back when it goes idle, so that a parked connection owns none.

pub mod body;
mod client;
mod edit;
mod state;
mod target;
mod traced;
mod upstream;
mod work;

pub use client::ClientSide;
pub use edit::FieldEdit;
pub use engine::account::Account;
pub(crate) use engine::account::{Counted, PhaseTimes};
pub use state::State;
pub(crate) use target::MAX_URI_CHANGES;
pub use target::Target;
pub(crate) use work::Work;

use std::fmt;
use std::rc::Rc;
use std::thread::LocalKey;

use base::log::{Context, Fields, Level, Log, debug};
use bytes::Bytes;
use engine::flooders;
use http_wire::h1::{FieldId, Head, Method, Version};
use mem::FreeList;
use os::SockAddr;

use crate::channel::Channel;
use crate::channel::conn::Conn;
use crate::output::Response;
use crate::server::location::Location;
use crate::server::{HttpMain, Server};
use body::ReqBody;

/// How far a request has come, and the statuses that hold on its way; all false or 0 at its start.
#[derive(Default, Clone, Copy, Debug)]
pub struct Flags {
    /// Came from inside the server: `internal` locations are open to it.
    pub internal: bool,
    /// A rewrite changed the URI; the location must be found anew.
    pub uri_changed: bool,
    /// The URI is the one that the location was found for: it begins with the location's name,
    /// which `alias` and passed requests cut off. No longer so after `rewrite … break`.
    pub valid_location: bool,
    /// The URI is the one that the client sent, so that it may be passed on as it was written.
    pub valid_unparsed_uri: bool,
    /// The location just entered is a named one: the phases go on at its rewriting.
    pub(crate) named: bool,
    /// An error page is being served: errors in it are not answered by `error_page` again.
    pub error_page: bool,
    /// Only the head of the response is sent (HEAD, 204, 304).
    pub header_only: bool,
    /// The head of the response is in the output.
    pub header_sent: bool,
    /// The response was sent whole.
    pub complete: bool,
    /// A file that the response was made of could not be read.
    pub(crate) unreadable: bool,
    /// It counts as a request, and the log phase has not begun.
    pub(crate) unlogged: bool,
    /// Another process goes on with it, and logs it.
    pub(crate) moved: bool,
    /// It was answered, and goes through the phases once more for the handlers' side effects.
    pub post_action: bool,
    /// Refused before it had a path; [`Target::uri`] is `/` then.
    pub without_uri: bool,
    /// `alias` of a location with a regular expression names a folder, not a file: `try_files`
    /// found the file below it that the URI now names.
    pub uri_below_alias: bool,
    /// The folder that `root` names is there: a file below it was opened.
    pub root_tested: bool,
    /// The status of a refusal in the access phase, while `satisfy any` still asks others; or 0.
    pub(crate) access_code: u16,
    /// The status to send whatever the handler that makes the body says; 0 is none.
    pub(crate) err_status: u16,
}

/// A request from its head to the end of its response, and what modules know of it.
pub struct Request {
    /// The connection, and the way to the client.
    pub client: ClientSide,
    /// The whole `http` configuration.
    pub main: Rc<HttpMain>,
    /// The virtual server.
    pub server: Rc<Server>,
    /// The location whose configuration holds now.
    pub loc: Rc<Location>,
    /// The parsed head: spans into [`Request::head_bytes`].
    pub head: Head,
    /// Method, path, arguments and host as they hold now.
    pub target: Target,
    /// What happened to the request.
    pub flags: Flags,
    /// The request's body.
    pub body: ReqBody,
    /// The response in the making.
    pub out: Response,
    /// The state of variables and modules.
    pub state: State,
    /// Its start, times and bytes sent, for logs and counters.
    pub account: Account,
    /// Files, subrequests and upstreams that work for it.
    pub(crate) work: Work,
}

thread_local! {
    static FREE: FreeList<Box<Request>> = const { FreeList::new(FREE_MAX) };
    /// The same for requests over HTTP/2, whose channels differ.
    static FREE_STREAMS: FreeList<Box<Request>> = const { FreeList::new(FREE_MAX) };
    /// The same for requests over HTTP/3.
    static FREE_QUIC: FreeList<Box<Request>> = const { FreeList::new(FREE_MAX) };
}

/// Recycled requests that a worker keeps, of each kind.
const FREE_MAX: usize = 64;

impl Request {
    /// A request for `c`, recycled if there is one. Its channel is an HTTP/1 stream.
    pub(crate) fn take(c: Rc<Conn>, main: &Rc<HttpMain>) -> Box<Request> {
        Request::made_of(&FREE, c, main, Channel::default)
    }

    /// The same with a stream of HTTP/2 as its channel, which is to be begun.
    pub(crate) fn take_stream(c: Rc<Conn>, main: &Rc<HttpMain>) -> Box<Request> {
        Request::made_of(&FREE_STREAMS, c, main, Channel::stream)
    }

    /// The same with a stream of HTTP/3.
    pub(crate) fn take_quic(c: Rc<Conn>, main: &Rc<HttpMain>) -> Box<Request> {
        Request::made_of(&FREE_QUIC, c, main, Channel::quic_stream)
    }

    /// A request of the server's own in a location, without a client: for the variables and the
    /// settings there. Its phases are not run, and it has no response.
    pub fn without_client(
        main: &Rc<HttpMain>,
        server: &Rc<Server>,
        location: &Rc<Location>,
    ) -> Option<Box<Request>> {
        let listen = main.listens.first()?;
        let c = Rc::new(Conn::nobody(main, listen.address(|| None)));
        let mut r = Request::take(c, main);
        r.server.clone_from(server);
        r.target.uri.push(b'/');
        r.flags.internal = true;
        r.account.start();
        r.loc.clone_from(location);
        Some(r)
    }

    /// Ends such a request.
    pub fn end_without_client(mut self: Box<Self>) {
        self.call_endings();
        self.give_back();
    }

    #[inline]
    fn made_of(
        free: &'static LocalKey<FreeList<Box<Request>>>,
        c: Rc<Conn>,
        main: &Rc<HttpMain>,
        channel: fn() -> Channel,
    ) -> Box<Request> {
        let server = c.server().clone();
        let loc = server.root.clone();
        match free.with(FreeList::take) {
            Some(mut r) => {
                r.client.conn = Some(c);
                if !Rc::ptr_eq(&r.main, main) {
                    r.main.clone_from(main);
                }
                r.server = server;
                r.loc = loc;
                r
            }
            None => Box::new(Request {
                client: ClientSide::new(c, channel()),
                main: main.clone(),
                server,
                loc,
                head: Head::new(),
                target: Target::new(),
                flags: Flags::default(),
                body: ReqBody::default(),
                out: Response::default(),
                state: State::default(),
                account: Account::default(),
                work: Work::new(),
            }),
        }
    }

    /// Gives the box back for reuse.
    pub(crate) fn give_back(mut self: Box<Self>) {
        self.reset();
        self.client.channel.release();
        self.client.conn = None;
        let free = match self.client.channel {
            Channel::Http2(_) => &FREE_STREAMS,
            Channel::Http3(_) => &FREE_QUIC,
            Channel::Http1(_) | Channel::Subrequest(_) => &FREE,
        };
        let _full = free.with(|free| free.give(self));
    }

    /// Frees the recycled requests that had no use since the last call. Returns their number.
    pub(crate) fn trim_recycled() -> usize {
        [&FREE, &FREE_STREAMS, &FREE_QUIC].iter().map(|free| free.with(FreeList::trim)).sum()
    }

    /// Frees the recycled requests of this thread, which keep the loaded block of their last use.
    pub(crate) fn forget_recycled() {
        for free in [&FREE, &FREE_STREAMS, &FREE_QUIC] {
            let _ = free.try_with(FreeList::clear);
        }
    }

    /// Clears the state of one request; the channel keeps its buffers.
    pub(crate) fn reset(&mut self) {
        self.client.reset();
        self.target.reset();
        self.flags = Flags::default();
        self.body.reset();
        self.out.reset();
        self.state.clear();
        self.account.reset();
        self.work.reset();
    }

    /// Before a long wait: has the request's memory prefetched when it goes on.
    pub fn foresee(&self) {
        use event::task::foresee;
        foresee(self);
        foresee(self.head_bytes());
        foresee(&**self.c());
        if let Some(exchanges) = &self.work.exchanges {
            foresee(&**exchanges);
        }
    }

    /// The connection.
    pub fn c(&self) -> &Rc<Conn> {
        self.client.conn()
    }

    /// The value of a request header field that the parser knows.
    pub fn header(&self, id: FieldId) -> Option<&[u8]> {
        self.head.value(id, self.head_bytes())
    }

    /// All request header fields: names as sent, values trimmed; dropped ones are left out.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let buf = self.head_bytes();
        let fields = self.head.fields.iter().filter(|f| !f.dropped);
        fields.map(move |f| (f.name.of(buf), f.value.of(buf)))
    }

    /// The first request header field of a name, in any case.
    pub fn header_named(&self, name: &[u8]) -> Option<&[u8]> {
        self.headers().find(|(n, _)| base::ascii::eq_ignore_case(n, name)).map(|(_, v)| v)
    }

    /// The bytes that spans of [`Request::head`] point into.
    #[inline]
    pub fn head_bytes(&self) -> &[u8] {
        if self.target.edited_head.is_empty() {
            self.client.channel.head_text()
        } else {
            &self.target.edited_head
        }
    }

    /// Whether the connection is kept for other requests after the response.
    pub fn keeps_connection(&self) -> bool {
        self.client.channel.keeps_connection()
    }

    /// Whether the client speaks TLS.
    pub fn is_secured(&self) -> bool {
        self.c().tls.get().is_some() || self.is_traced() && self.c().listen.ssl
    }

    /// Whether output waits to be sent to the client: this response's, or one's before it.
    pub fn has_output(&self) -> bool {
        !self.client.channel.queued().is_empty()
    }

    /// Has the connection end with this response.
    pub fn close_connection(&mut self) {
        self.client.channel.close_connection();
    }

    /// The request line as sent.
    pub fn request_line(&self) -> &[u8] {
        self.head.line.of(self.head_bytes())
    }

    /// Path and arguments as sent (`$request_uri`).
    pub fn unparsed_uri(&self) -> &[u8] {
        self.head.target.of(self.head_bytes())
    }

    /// The method's name as sent, or GET where an internal redirect made it that. Empty where the
    /// request line was not understood.
    pub fn method_name(&self) -> &[u8] {
        if self.target.method == self.head.method {
            self.head.method_name.of(self.head_bytes())
        } else {
            self.target.method.name().as_bytes()
        }
    }

    /// The version of the request.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// Says whether the method is one of these.
    pub fn method_is(&self, methods: &[Method]) -> bool {
        methods.contains(&self.target.method)
    }

    /// The client's address: the one `realip` found, else the connection's.
    pub fn peer(&self) -> &SockAddr {
        self.client.address()
    }

    /// The extension of the URI.
    pub fn extension(&self) -> &[u8] {
        self.target.extension()
    }

    /// Whether the client is one of the old MSIE, which misread compressed responses.
    pub fn is_msie6(&self) -> bool {
        self.header(FieldId::UserAgent).is_some_and(http_wire::user_agent::is_msie6)
    }

    /// Sets the response's type by the URI's extension, or to the default, if it has none yet.
    pub fn set_content_type(&mut self) {
        if self.out.content_type.is_none() {
            let core = &self.loc.core;
            let media = core.types.get(self.extension()).unwrap_or(&core.default_type).clone();
            self.out.content_type = (!media.is_empty()).then_some(media);
        }
    }

    /// Evaluates a template.
    pub fn eval(&mut self, t: &conf::template::Template) -> Bytes {
        t.eval(self)
    }

    /// The error log of the location.
    pub fn error_log(&self) -> &Log {
        &self.loc.core.error_log
    }

    /// Whether a message of that level would be written.
    pub fn logs(&self, level: Level) -> bool {
        self.c().log_enabled(self.error_log(), level) || self.is_traced()
    }

    /// Writes to the error log with the request's context behind the message.
    #[cold]
    pub fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        if self.note_log(level, message) {
            return;
        }
        if self.logs(level) && self.gets_line(level) {
            self.c().log_write(self.error_log(), level, message, self);
        }
    }

    /// Whether a line about the request is logged: a client that was cut off for a flood gets few.
    fn gets_line(&self, level: Level) -> bool {
        level < Level::Error
            || !self.client.channel.is_stream()
            || self.is_traced()
            || flooders::gets_line(self.c().client_ip())
    }

    /// The same with the error of a system call: `open() "x" failed (2: No such file …)`.
    #[cold]
    pub fn log_os(&self, level: Level, what: fmt::Arguments<'_>, e: &std::io::Error) {
        self.log(level, format_args!("{what} failed {}", base::log::os_error(e)));
    }

    /// Writes a line for debugging (`error_log … debug`, `debug_connection`), without the request's
    /// context, as nginx does.
    #[inline]
    pub fn debug(&self, message: fmt::Arguments<'_>) {
        let (c, log) = (self.c(), self.error_log());
        if c.debug.get() {
            log.debugging().write_debug(debug::HTTP, Some(c.number), message);
        } else if log.debug_enabled(debug::HTTP) {
            log.write_debug(debug::HTTP, Some(c.number), message);
        }
    }

    /// Bytes of head and body as they came over the wire.
    pub fn length(&self) -> u64 {
        // Empty lines before a request do not count.
        let before = if self.head.version < Version::HTTP_20 { self.head.line.start } else { 0 };
        self.client.channel.head_len().saturating_sub(before as usize) as u64 + self.body.received()
    }

    /// The status for logging: the response's, or the one that the request ended with.
    pub fn status(&self) -> u16 {
        if self.flags.err_status == 0 { self.out.status } else { self.flags.err_status }
    }
}

/// `, client: …, server: …, request: "…", host: "…"`, as nginx ends its messages.
impl Context for Request {
    fn tell(&self, fields: &mut Fields<'_>) {
        let text = base::log::lossy;
        fields.plain("client", format_args!("{}", self.peer().host()));
        fields.plain("server", format_args!("{}", text(&self.server.name)));
        let line = self.request_line();
        if !line.is_empty() {
            fields.quoted("request", format_args!("{}", text(line)));
        }
        if self.is_subrequest() {
            fields.quoted("subrequest", format_args!("{}", text(&self.target.uri)));
        }
        if let Some(exchanges) = &self.work.exchanges {
            exchanges.tell(fields);
        }
        for (name, id) in [("host", FieldId::Host), ("referrer", FieldId::Referer)] {
            self.header(id).iter().for_each(|h| fields.quoted(name, format_args!("{}", text(h))));
        }
        if let Some(tags) = self.shared_if_any::<base::log::Tags>() {
            tags.tell(fields);
        }
    }
}

impl engine::Client for Request {
    fn address(&self) -> &SockAddr {
        self.peer()
    }

    fn eval(&mut self, template: &conf::template::Template) -> Bytes {
        Request::eval(self, template)
    }

    fn logs(&self, level: Level) -> bool {
        Request::logs(self, level)
    }

    fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        Request::log(self, level, message);
    }
}
