//! Exports to a collector: OTLP over gRPC, or over HTTP if the endpoint has a path.

use std::rc::{Rc, Weak};

use crate::otlp::{Resource, Signal, partial_success, request_head, retry_delay_ms};
use bytes::Bytes;
use event::{Deadline, Gate};
use http_wire::fields;
use http_wire::h1::ResponseHead;
use mem::Chain;
use os::SockAddr;
use proto::grpc::{self, Status};
use upstream::h2::{self, Mux, MuxConf, Stream, StreamEnd, Taken as Piece};
use upstream::http_client::{Body, Client, Error, Request, Timeout};
use upstream::pool::UpConn;
use upstream::ssl::Fixed;
use upstream::url;

use crate::batches::Batch;
use crate::outcome::{Failure, Retry, Taken};

/// The timeout for connecting to an address, and also for its TLS handshake, in milliseconds.
const CONNECT_MS: u64 = 5_000;

/// The timeout for an export over a connection, in milliseconds: OTLP's default.
const TIMEOUT_MS: u64 = 10_000;

/// The same as the value of `grpc-timeout`.
const TIMEOUT: &[u8] = b"10S";

/// The maximum size of response headers, and of a response body, in bytes.
const ANSWER_MAX: usize = 64 << 10;

const USER_AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"), " (OTLP)");

/// The limits of a kept connection: one call at a time, and the reserved stream of the next call,
/// which keeps the connection open.
const KEPT: MuxConf = MuxConf { streams: 2, requests: u64::MAX, time_ms: u64::MAX, timeout_ms: 0 };

/// The protocol of an endpoint, chosen by whether it has a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP/1.1, in binary Protobuf.
    Http,
}

/// A parsed `endpoint`, with everything that requests need.
pub struct Target {
    /// The endpoint as configured, for the log.
    pub shown: String,
    pub host: Bytes,
    pub port: u16,
    /// The address, unless the host is a name.
    pub addr: Option<SockAddr>,
    /// Host and port for the `:authority` or Host field.
    pub authority: Bytes,
    /// Of exports of spans over HTTP; empty for gRPC.
    pub path: Bytes,
    pub protocol: Protocol,
    pub tls: Option<Fixed>,
    pub headers: Vec<(Bytes, Bytes)>,
}

/// The client of a collector, and its kept connection.
pub struct Link {
    target: Rc<Target>,
    resource: Resource,
    /// The path of an export over HTTP.
    path: Bytes,
    /// The encoded header fields of a call.
    list: Vec<u8>,
    kept: Option<(Rc<Mux>, Stream)>,
}

impl Link {
    /// A client for the exports of a signal. Over HTTP, one for which [`Signal::path`] gives none
    /// uses the endpoint as it is.
    pub fn new(target: &Rc<Target>, resource: Resource, signal: Signal) -> Link {
        let path = match target.protocol {
            Protocol::Grpc => Bytes::from_static(signal.call()),
            Protocol::Http => signal.path(&target.path).map_or(target.path.clone(), Bytes::from),
        };
        let mut list = Vec::new();
        fields::write(&mut list, b":method", b"POST");
        let scheme: &[u8] = if target.tls.is_some() { b"https" } else { b"http" };
        fields::write(&mut list, b":scheme", scheme);
        fields::write(&mut list, b":path", &path);
        fields::write(&mut list, b":authority", &target.authority);
        fields::write(&mut list, b"te", b"trailers");
        fields::write(&mut list, b"content-type", b"application/grpc");
        fields::write(&mut list, grpc::TIMEOUT, TIMEOUT);
        fields::write(&mut list, b"user-agent", USER_AGENT.as_bytes());
        for (name, value) in &target.headers {
            fields::write(&mut list, name, value);
        }
        Link { target: target.clone(), resource, path, list, kept: None }
    }

    /// The endpoint, for the log.
    pub fn shown(&self) -> &str {
        &self.target.shown
    }

    /// Sends a batch to the collector.
    ///
    /// # Errors
    /// The collector did not accept it; see [`Failure`].
    pub async fn export(&mut self, batch: &Batch) -> Result<Taken, Failure> {
        match self.target.protocol {
            Protocol::Grpc => self.call(batch).await,
            Protocol::Http => self.post(batch).await,
        }
    }

    async fn call(&mut self, batch: &Batch) -> Result<Taken, Failure> {
        let kept = self.kept.take().filter(|(mux, _)| !mux.is_over());
        if let Some((mux, stream)) = kept {
            match self.converse(&stream, batch).await {
                Ok(answer) => return self.judge(&mux, &answer),
                // The collector may have closed the kept connection: try again over a new one.
                Err(Lost::Connection(_)) => {}
                Err(Lost::Call(failure)) => return Err(failure),
            }
        }
        let conn = self.connect().await?;
        let mux = h2::start(conn.sock, KEPT, Weak::new(), None, Gate::new());
        let stream = mux.open(false).ok_or_else(|| Failure::later("connection closed"))?;
        match self.converse(&stream, batch).await {
            Ok(answer) => self.judge(&mux, &answer),
            Err(Lost::Connection(failure) | Lost::Call(failure)) => Err(failure),
        }
    }

    /// Makes a gRPC call over a connection.
    async fn converse(&self, stream: &Stream, batch: &Batch) -> Result<Answer, Lost> {
        let deadline = Deadline::in_ms(TIMEOUT_MS);
        let late = |_| Lost::Call(Failure::later("collector timed out"));
        stream.begin(&self.list, false, ANSWER_MAX).map_err(|end| lost(&end))?;
        let mut body = self.message(batch);
        while !stream.is_sent() {
            match stream.try_send(&mut body, true) {
                // The response may have arrived before the stream was closed.
                Err(_) => break,
                Ok(_) if stream.is_sent() => break,
                Ok(_) => stream.writable(deadline).await.map_err(late)?,
            }
        }
        let mut head = ResponseHead::new();
        let text = loop {
            match stream.take_head(&mut head).map_err(|end| lost(&end))? {
                Some(text) if head.status >= 200 => break text,
                Some(_) => {}
                None => stream.readable(deadline).await.map_err(late)?,
            }
        };
        let mut body = Vec::new();
        loop {
            match stream.take().map_err(|end| lost(&end))? {
                Piece::Piece(piece) => {
                    body.extend_from_slice(piece.memory().unwrap_or_default());
                    if body.len() > ANSWER_MAX {
                        let m = "the collector's answer is too long";
                        return Err(Lost::Call(Failure::never(m)));
                    }
                }
                Piece::Nothing => stream.readable(deadline).await.map_err(late)?,
                Piece::End => break,
            }
        }
        Ok(Answer { head, text, body, trailers: stream.take_trailers() })
    }

    /// The request message of a call, with gRPC framing.
    fn message(&self, batch: &Batch) -> Chain {
        let head = request_head(&self.resource, batch.spans.len());
        let mut framed = grpc::message_head(head.len() + batch.spans.len()).to_vec();
        framed.extend_from_slice(&head);
        let mut body = Chain::new();
        body.push_bytes(framed.into());
        body.push_bytes(batch.spans.clone());
        body
    }

    /// Evaluates a response, and keeps the connection.
    fn judge(&mut self, mux: &Rc<Mux>, answer: &Answer) -> Result<Taken, Failure> {
        // Reserving the next call's stream keeps the connection open.
        self.kept = mux.open(false).map(|next| (mux.clone(), next));
        answer.judge()
    }

    /// Connects to the first address that accepts.
    async fn connect(&self) -> Result<UpConn, Failure> {
        let target = &self.target;
        let client = self.client();
        let mut last = Failure::later("the collector's host has no address");
        for address in self.addresses().await? {
            let done = match &target.tls {
                Some(tls) => client.connect_tls(&address, tls).await,
                None => client.connect(&address).await,
            };
            match done {
                Ok(conn) => return Ok(conn),
                Err(e) => last = Failure::later(format!("{} ({address})", describe(&e))),
            }
        }
        Err(last)
    }

    /// The addresses of the collector from the system's resolver, which blocks and so runs in a
    /// thread.
    async fn addresses(&self) -> Result<Vec<SockAddr>, Failure> {
        if let Some(addr) = &self.target.addr {
            return Ok(vec![addr.clone()]);
        }
        let (host, port) = (self.target.host.clone(), self.target.port);
        let shown = base::log::lossy(&host).into_owned();
        let asked = event::pool::default().run_short(move || url::resolve(&host, port)).await;
        match asked {
            Ok(list) if !list.is_empty() => Ok(list),
            _ => Err(Failure::later(format!("{shown} could not be resolved"))),
        }
    }

    fn client(&self) -> Client {
        Client {
            connect_ms: CONNECT_MS,
            timeout: Timeout::Exchange(TIMEOUT_MS),
            head_max: ANSWER_MAX,
            body_max: Some(ANSWER_MAX),
        }
    }

    async fn post(&self, batch: &Batch) -> Result<Taken, Failure> {
        let target = &self.target;
        let body = [&request_head(&self.resource, batch.spans.len())[..], &batch.spans].concat();
        let mut fields: Vec<(&str, &[u8])> = vec![
            ("User-Agent", USER_AGENT.as_bytes()),
            ("Content-Type", b"application/x-protobuf"),
        ];
        let given = target.headers.iter();
        fields.extend(given.filter_map(|(n, v)| Some((std::str::from_utf8(n).ok()?, &v[..]))));
        let request = Request {
            method: "POST",
            target: &self.path,
            host: &target.authority,
            fields: &fields,
            body: Some(&body),
            keeps_connection: false,
        };
        let conn = self.connect().await?;
        let exchanged = self.client().exchange(conn, &request.to_message()).await;
        let (response, _) = exchanged.map_err(|e| Failure::later(describe(&e)))?;
        let status = response.head.status;
        if status == 200 {
            return match &response.body {
                Body::Whole(bytes) => Ok(partial_success(bytes)),
                Body::Part(..) => Ok(None),
            };
        }
        let message = format!("status {status}");
        let after = response
            .head
            .fields
            .iter()
            .find(|field| field.name.of(&response.text).eq_ignore_ascii_case(b"retry-after"));
        let after = after.and_then(|field| base::ascii::parse_u64(field.value.of(&response.text)));
        let retry = match (status, after) {
            (429 | 502..=504, Some(secs)) => Retry::After(secs.saturating_mul(1000)),
            (429 | 502..=504, None) => Retry::Later,
            _ => Retry::Never,
        };
        Err(Failure { message, retry })
    }
}

fn describe(e: &Error) -> String {
    match e.is_timeout() {
        true => "collector timed out".to_owned(),
        false => e.to_string(),
    }
}

/// A call that ended without a response.
enum Lost {
    /// The connection ended, or the stream was refused before processing, so a retry is safe.
    Connection(Failure),
    Call(Failure),
}

fn lost(end: &StreamEnd) -> Lost {
    match end {
        StreamEnd::Refused(_) | StreamEnd::Unsent | StreamEnd::Closed => {
            Lost::Connection(Failure::later("collector closed connection"))
        }
        StreamEnd::Broken(errno) => {
            let e = std::io::Error::from_raw_os_error(*errno);
            let e = base::log::os_error(&e);
            Lost::Connection(Failure::later(format!("connection to collector broke {e}")))
        }
        StreamEnd::Reset(code) => {
            let code = code.0;
            Lost::Call(Failure::later(format!("collector rejected the call with error {code}")))
        }
        StreamEnd::Malformed(m) | StreamEnd::Fault(m) => Lost::Call(Failure::later(m.clone())),
        StreamEnd::Late => Lost::Call(Failure::later("collector timed out")),
    }
}

/// The response to a call.
struct Answer {
    head: ResponseHead,
    text: Bytes,
    body: Vec<u8>,
    trailers: Vec<(Bytes, Bytes)>,
}

impl Answer {
    /// A trailer field; in a response without a body (Trailers-Only) it is among the headers.
    fn field(&self, name: &[u8]) -> Option<&[u8]> {
        let behind = self.trailers.iter().find(|(n, _)| n == name).map(|(_, value)| &value[..]);
        let in_head = || {
            let field = self.head.fields.iter().find(|f| f.name.of(&self.text) == name)?;
            Some(field.value.of(&self.text))
        };
        behind.or_else(in_head)
    }

    fn judge(&self) -> Result<Taken, Failure> {
        let status = self.head.status;
        let Some(code) = self.field(b"grpc-status").and_then(base::ascii::parse_u64) else {
            let message = match status {
                200 => "no grpc-status in the collector's answer".to_owned(),
                _ => format!("status {status}"),
            };
            let retry = match status {
                429 | 502..=504 => Retry::Later,
                _ => Retry::Never,
            };
            return Err(Failure { message, retry });
        };
        if code == Status::OK {
            return Ok(grpc::message(&self.body).and_then(partial_success));
        }
        let said = self.field(b"grpc-message").unwrap_or_default();
        let said = grpc::decode_message(said);
        let message = format!("grpc-status {code}: {}", base::log::lossy(&said));
        let details = self.field(b"grpc-status-details-bin").and_then(grpc::decode_binary);
        let delay = details.as_deref().and_then(retry_delay_ms);
        // OTLP's list of retryable codes; RESOURCE_EXHAUSTED only if the collector says when it
        // recovers.
        let retry = match (code, delay) {
            (Status::RESOURCE_EXHAUSTED | Status::UNAVAILABLE, Some(ms)) => Retry::After(ms),
            (
                Status::CANCELLED
                | Status::DEADLINE_EXCEEDED
                | Status::ABORTED
                | Status::OUT_OF_RANGE
                | Status::UNAVAILABLE
                | Status::DATA_LOSS,
                _,
            ) => Retry::Later,
            _ => Retry::Never,
        };
        Err(Failure { message, retry })
    }
}
