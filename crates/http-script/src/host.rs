//! A request as scripts see it.

use std::cell::RefCell;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use engine::vars::{NotAssigned, assign_named};
use http::request::Request;
use http::subrequest::{Subrequest, Use};
use http_wire::h1::Version;
use script_modules::fetch;
use script_modules::settings::Main;
use script_modules::shared::Dicts;
use script_modules::text::log;

use ::script::host::fetch::{FetchHost, FetchRequest, Unsent};
use ::script::host::http::{Act, Ask, HttpHost, Refusal, RequestBody, RequestId, Side, Text};
use ::script::host::shared::SharedHost;
use ::script::{Data, Host, Level as ScriptLevel, Ticket, TimerId};

use crate::fields;
use crate::script::{Caller, Decision, Reply, Script, settings};

/// A request, lent to its script for a call.
pub(crate) struct HttpCall<'a> {
    r: &'a mut Request,
    script: &'a Rc<Script>,
    dicts: Option<Dicts>,
}

impl<'a> HttpCall<'a> {
    pub fn new(r: &'a mut Request, script: &'a Rc<Script>) -> HttpCall<'a> {
        HttpCall { r, script, dicts: None }
    }

    /// Calls a function with the request of that number.
    fn on<R: Default>(&mut self, of: RequestId, f: impl FnOnce(&mut Request) -> R) -> R {
        if of == self.script.id {
            return f(self.r);
        }
        // Not borrowed meanwhile: a variable of it may run other scripts.
        let reply = self.script.replies.borrow_mut().remove(&of);
        let Some(mut reply) = reply else { return R::default() };
        let result = f(&mut reply.r);
        self.script.replies.borrow_mut().insert(of, reply);
        result
    }

    fn filters(&self) -> bool {
        matches!(self.script.caller.get(), Caller::HeaderFilter | Caller::BodyFilter)
            || self.script.filtering.is_on.get()
    }

    /// The most bytes that the script may have queued.
    fn memory_max(&self) -> usize {
        self.script.here(self.r).limits().memory_bytes
    }

    fn queue(&mut self, piece: Vec<u8>) {
        append(&mut self.script.output.queue.borrow_mut(), piece);
    }

    /// Settles the header section.
    fn send_header(&mut self) {
        if self.script.output.header_sent.replace(true) {
            return;
        }
        self.r.set_content_type();
        if self.r.out.status == 0 {
            self.r.out.status = 200;
        }
        self.r.out.unconditional = true;
    }
}

impl Host for HttpCall<'_> {
    fn log(&mut self, level: ScriptLevel, text: &str) {
        log(self.r, level, text);
    }

    fn start_timer(&mut self, timer: TimerId, after_ms: u64) {
        self.script.job.ops.start_timer(timer, after_ms);
    }

    fn stop_timer(&mut self, timer: TimerId) {
        self.script.job.ops.stop_timer(timer);
    }

    fn http(&mut self) -> Option<&mut dyn HttpHost> {
        Some(self)
    }

    fn fetch(&mut self) -> Option<&mut dyn FetchHost> {
        Some(self)
    }

    fn shared(&mut self) -> Option<&mut dyn SharedHost> {
        let dicts = self.dicts.get_or_insert_with(|| {
            let main = self.r.main.confs.listed::<Main>();
            Dicts(main.dicts.clone().into())
        });
        Some(dicts)
    }
}

impl FetchHost for HttpCall<'_> {
    fn fetch(&mut self, ticket: Ticket, request: FetchRequest) -> Result<(), Unsent> {
        let (here, gate) = (settings(self.r), self.r.main.life.gate.clone());
        fetch::start(self.r, &here, &self.script.job.ops, gate, (ticket, request))
    }
}

/// Adds a piece to others, without a copy if there are none.
fn append(to: &mut Vec<u8>, piece: Vec<u8>) {
    match to.is_empty() {
        true => *to = piece,
        false => to.extend_from_slice(&piece),
    }
}

/// The refusal of what a body filter cannot do.
fn refuse<T>(message: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Type(message))
}

impl HttpHost for HttpCall<'_> {
    fn main(&self) -> RequestId {
        self.script.id
    }

    fn is_periodic(&self) -> bool {
        self.script.caller.get() == Caller::Periodic
    }

    fn is_alive(&self, of: RequestId) -> bool {
        of == self.script.id || self.script.replies.borrow().contains_key(&of)
    }

    fn parent(&self, of: RequestId) -> Option<RequestId> {
        (of != self.script.id).then_some(self.script.id)
    }

    fn text(&mut self, of: RequestId, what: Text) -> Vec<u8> {
        self.on(of, |r| match what {
            Text::HttpVersion => match r.version() {
                Version::HTTP_09 => b"0.9".to_vec(),
                Version::HTTP_10 => b"1.0".to_vec(),
                Version::HTTP_11 => b"1.1".to_vec(),
                Version::HTTP_20 => b"2.0".to_vec(),
                Version::HTTP_30 => b"3.0".to_vec(),
                _ => Vec::new(),
            },
            Text::Method => r.method_name().to_vec(),
            Text::RemoteAddress => r.peer().host().to_string().into_bytes(),
            Text::RequestLine => r.request_line().to_vec(),
            Text::Uri => r.target.uri.clone(),
            Text::Args => r.target.args.clone(),
        })
    }

    fn is_internal(&mut self, of: RequestId) -> bool {
        self.on(of, |r| r.flags.internal)
    }

    fn status(&mut self, of: RequestId) -> u16 {
        self.on(of, |r| r.status())
    }

    fn set_status(&mut self, of: RequestId, status: i64) {
        self.on(of, |r| r.set_status(u16::try_from(status).unwrap_or(0)));
    }

    fn fields(&mut self, of: RequestId, side: Side) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.on(of, |r| match side {
            Side::In => fields::of_request(r),
            Side::Out => fields::of_response(r),
        })
    }

    fn names(&mut self, of: RequestId, side: Side) -> Vec<Vec<u8>> {
        self.on(of, |r| fields::names(r, side))
    }

    fn field(&mut self, of: RequestId, side: Side, name: &[u8]) -> Vec<Vec<u8>> {
        self.on(of, |r| fields::values(r, side, name))
    }

    fn set_field(
        &mut self,
        of: RequestId,
        name: &[u8],
        values: Vec<Vec<u8>>,
    ) -> Result<(), Refusal> {
        let is_sent = self.script.output.header_sent.get()
            && self.script.caller.get() != Caller::HeaderFilter;
        if of == self.script.id && (is_sent || self.r.flags.header_sent) {
            let name = base::log::lossy(name);
            let m = "because headers were already sent";
            self.r.log(
                Level::Warn,
                format_args!("ignored setting of response header \"{name}\" {m}"),
            );
            return Ok(());
        }
        self.on(of, |r| Some(fields::set(r, name, values))).unwrap_or(Ok(()))
    }

    fn variable(&mut self, of: RequestId, name: &[u8]) -> Option<Vec<u8>> {
        self.on(of, |r| {
            if !name.is_empty() && name.iter().all(u8::is_ascii_digit) {
                let n = std::str::from_utf8(name).ok()?.parse().ok()?;
                return r.capture(n).map(<[u8]>::to_vec);
            }
            r.var_named(name).map(|value| value.to_vec())
        })
    }

    fn set_variable(&mut self, of: RequestId, name: &[u8], value: Vec<u8>) -> Result<(), Refusal> {
        self.on(of, |r| match assign_named(r, name, value.into()) {
            Ok(()) => Some(Ok(())),
            Err(NotAssigned::Unknown) => Some(refuse("variable not found")),
            Err(NotAssigned::ReadOnly) => Some(refuse("variable is not writable")),
        })
        .unwrap_or(Ok(()))
    }

    fn variable_names(&mut self) -> Vec<String> {
        self.r.main.confs.listed::<Main>().vars.clone()
    }

    fn request_body(&mut self, of: RequestId) -> RequestBody {
        let found = match of == self.script.id {
            true => self.script.whole_body(self.r),
            false => self.on(of, |r| r.body_bytes().map(|body| body.to_vec())),
        };
        let was_read = self.on(of, |r| r.body.was_read());
        match found {
            Some(body) => RequestBody::Bytes(body),
            None if !was_read => RequestBody::Unread,
            None if self.on(of, |r| r.body.is_empty()) => RequestBody::Bytes(Vec::new()),
            None => RequestBody::Lost,
        }
    }

    fn read_body(&mut self, ticket: Ticket) {
        self.script.body_wanted.set(Some(ticket));
    }

    fn is_reading_body(&self) -> bool {
        self.script.body_wanted.get().is_some()
    }

    fn response_body(&mut self, of: RequestId) -> Option<Vec<u8>> {
        self.script.replies.borrow().get(&of).map(|reply: &Reply| reply.body.clone())
    }

    fn log(&mut self, of: RequestId, level: ScriptLevel, text: &str) {
        self.on(of, |r| log(r, level, text));
    }

    fn act(&mut self, of: RequestId, act: Act) -> Result<(), Refusal> {
        if of != self.script.id {
            return refuse("a reply cannot be answered");
        }
        match act {
            Act::Done if !self.filters() => refuse("cannot set done while not filtering"),
            Act::Done => {
                self.script.filtering.done.set(true);
                Ok(())
            }
            Act::Decline => {
                *self.script.decision.borrow_mut() = Decision::Declined;
                Ok(())
            }
            Act::Finish | Act::SendHeader if self.filters() => {
                refuse("cannot send while filtering")
            }
            Act::SendHeader => {
                self.send_header();
                Ok(())
            }
            Act::Finish => {
                self.send_header();
                self.script.output.finished.set(true);
                *self.script.decision.borrow_mut() = Decision::Responded;
                Ok(())
            }
        }
    }

    fn redirect(&mut self, of: RequestId, uri: Vec<u8>) -> Result<(), Refusal> {
        if of != self.script.id || self.r.is_subrequest() {
            return refuse("internalRedirect cannot be called from a subrequest");
        }
        if self.filters() {
            return refuse("internalRedirect cannot be called while filtering");
        }
        *self.script.decision.borrow_mut() = Decision::Redirect(uri.into());
        Ok(())
    }

    fn answer(&mut self, of: RequestId, status: u16, body: Option<Vec<u8>>) -> Result<(), Refusal> {
        if of != self.script.id {
            return refuse("a reply cannot be answered");
        }
        if self.filters() {
            return refuse("cannot return while filtering");
        }
        let Some(body) = body else {
            *self.script.decision.borrow_mut() = Decision::Status(status);
            return Ok(());
        };
        if self.script.output.header_sent.get() {
            return Err(Refusal::Internal("failed to send response"));
        }
        let r = &mut *self.r;
        r.set_status(status);
        r.out.unconditional = true;
        if matches!(status, 301 | 302 | 303 | 307 | 308) {
            r.out.location = Some(body.into());
            *self.script.decision.borrow_mut() = Decision::Status(status);
            return Ok(());
        }
        r.set_content_type();
        r.out.content_length = Some(body.len() as u64);
        self.script.output.header_sent.set(true);
        self.script.output.finished.set(true);
        *self.script.decision.borrow_mut() = Decision::Responded;
        self.queue(body);
        Ok(())
    }

    fn send(&mut self, of: RequestId, piece: Vec<u8>) -> Result<(), Refusal> {
        if of != self.script.id {
            return refuse("a reply cannot be answered");
        }
        if self.filters() {
            return refuse("cannot send while in body filter");
        }
        if self.script.output.finished.get() {
            return Err(Refusal::Internal("failed to send response"));
        }
        // Nothing goes to the client before the script waits.
        let waits = self.script.output.queue.borrow().len();
        if waits + piece.len() > self.memory_max() {
            return refuse("more data is sent than js_memory_limit allows");
        }
        self.send_header();
        self.queue(piece);
        Ok(())
    }

    fn send_buffer(
        &mut self,
        of: RequestId,
        piece: Vec<u8>,
        flush: Option<bool>,
    ) -> Result<(), Refusal> {
        if of != self.script.id || !self.filters() {
            return refuse("cannot send buffer while not filtering");
        }
        let waits = self.script.filtering.sent.borrow().len();
        if waits + piece.len() > self.memory_max() {
            return refuse("more data is sent than js_memory_limit allows");
        }
        if flush == Some(true) {
            self.r.out.flush = true;
        }
        append(&mut self.script.filtering.sent.borrow_mut(), piece);
        Ok(())
    }

    fn set_return_value(&mut self, of: RequestId, value: Data) {
        if of == self.script.id {
            *self.script.return_value.borrow_mut() = Some(value);
        }
    }

    fn may_ask(&self, of: RequestId) -> bool {
        of == self.script.id && !self.r.is_in_memory()
    }

    fn subrequest(&mut self, ask: Ask) -> Result<(), Refusal> {
        let mut path = Vec::new();
        let Ok(args) = http_wire::uri::parse_unsafe(&ask.uri, &mut path) else {
            let uri = base::log::lossy(&ask.uri);
            self.r.log(Level::Error, format_args!("unsafe URI \"{uri}\" was detected"));
            return refuse("unsafe uri");
        };
        // It goes into the request line of a server behind as it is.
        if !ask.method.is_empty() && !http_wire::h1::is_method(&ask.method) {
            return refuse("invalid method");
        }
        let args = if ask.uri[args.clone()].is_empty() {
            Bytes::from(ask.args)
        } else {
            Bytes::copy_from_slice(&ask.uri[args])
        };
        let kept = Rc::new(RefCell::new(None));
        let to = kept.clone();
        let waits = ask.ticket.is_some();
        let made = self.r.subrequest(Subrequest {
            take: if waits { Use::Memory } else { Use::Head },
            method: (!ask.method.is_empty()).then(|| ask.method.into()),
            body: ask.body.map(Bytes::from),
            keep: waits.then(|| -> http::subrequest::Keep {
                Box::new(move |r| *to.borrow_mut() = Some(r))
            }),
            ..Subrequest::new(path.into(), args)
        });
        let Ok(handle) = made else {
            return Err(Refusal::Internal("subrequest creation failed"));
        };
        match ask.ticket {
            Some(ticket) => self.script.wait_for_reply(ticket, handle, kept),
            None => handle.detach(),
        }
        Ok(())
    }
}
