//! The questions of a health check over HTTP/2: a request, or gRPC's health call.

use std::rc::{Rc, Weak};

use ::upstream::h2::{self, MuxConf, StreamEnd, Taken};
use ::upstream::health::Failure;
use ::upstream::pool::UpConn;
use bytes::Bytes;
use event::{Deadline, Gate};
use http_wire::fields;
use http_wire::h1::ResponseHead;
use mem::Chain;
use proto::grpc;

use super::matching::Matching;
use super::probe::ANSWER_MAX;

/// A question, and the judgement of its answer.
pub(super) struct Question {
    list: Vec<u8>,
    body: Vec<u8>,
    wanted: Wanted,
    timeout_ms: u64,
}

/// The answer of a healthy server.
enum Wanted {
    /// As a `match` block says.
    Response(Rc<Matching>),
    /// `grpc-status` with that code, or, without one, a service that serves.
    Call(Option<u64>),
}

struct Answer {
    head: ResponseHead,
    text: Bytes,
    body: Vec<u8>,
    trailers: Vec<(Bytes, Bytes)>,
}

/// The server that is asked.
pub(super) struct Server<'a> {
    /// Its name, for `:authority`.
    pub name: &'a [u8],
    /// It is spoken to under TLS.
    pub tls: bool,
    /// For all of the exchange, milliseconds.
    pub timeout_ms: u64,
}

impl Question {
    pub fn request(uri: &[u8], server: &Server<'_>, matching: Rc<Matching>) -> Question {
        Question::new(b"GET", uri, server, Vec::new(), Wanted::Response(matching))
    }

    pub fn call(service: &[u8], status: Option<u64>, server: &Server<'_>) -> Question {
        let body = grpc::health_request(service);
        Question::new(b"POST", grpc::HEALTH_PATH, server, body, Wanted::Call(status))
    }

    fn new(
        method: &[u8],
        path: &[u8],
        server: &Server<'_>,
        body: Vec<u8>,
        wanted: Wanted,
    ) -> Question {
        let mut list = Vec::new();
        fields::write(&mut list, b":method", method);
        fields::write(&mut list, b":scheme", if server.tls { b"https" } else { b"http" });
        fields::write(&mut list, b":path", path);
        fields::write(&mut list, b":authority", server.name);
        fields::write(&mut list, b"user-agent", b"weir (health check)");
        if matches!(wanted, Wanted::Call(_)) {
            fields::write(&mut list, b"content-type", b"application/grpc");
            fields::write(&mut list, b"te", b"trailers");
        }
        Question { list, body, wanted, timeout_ms: server.timeout_ms }
    }

    /// Asks over a connection, which ends with that.
    pub async fn ask(&self, conn: UpConn) -> Result<(), Failure> {
        let deadline = Deadline::in_ms(self.timeout_ms);
        let answer = self.converse(conn, deadline).await?;
        match &self.wanted {
            Wanted::Response(matching) => {
                matching.check(&answer.head, &answer.text, &answer.body).map_err(str::to_owned)
            }
            Wanted::Call(status) => answer.judge(*status),
        }
    }

    async fn converse(&self, conn: UpConn, deadline: Deadline) -> Result<Answer, Failure> {
        let timed_out = |_| "timed out".to_owned();
        let mux = h2::start(conn.sock, MuxConf::ONCE, Weak::new(), None, Gate::new());
        let stream = mux.open(true).ok_or("connection closed")?;
        stream.begin(&self.list, self.body.is_empty(), ANSWER_MAX).map_err(|e| told(&e))?;
        if !self.body.is_empty() {
            let mut body = Chain::new();
            body.push_bytes(Bytes::copy_from_slice(&self.body));
            // A question is shorter than every server's window.
            stream.try_send(&mut body, true).map_err(|e| e.to_string())?;
        }
        let mut head = ResponseHead::new();
        let text = loop {
            match stream.take_head(&mut head).map_err(|e| told(&e))? {
                Some(text) if head.status >= 200 => break text,
                Some(_) => {}
                None => stream.readable(deadline).await.map_err(timed_out)?,
            }
        };
        let mut body = Vec::new();
        loop {
            match stream.take().map_err(|e| told(&e))? {
                Taken::Piece(piece) => {
                    body.extend_from_slice(piece.memory().unwrap_or_default());
                    if body.len() > ANSWER_MAX {
                        return Err("the answer is too long".to_owned());
                    }
                }
                Taken::Nothing => stream.readable(deadline).await.map_err(timed_out)?,
                Taken::End => {
                    let trailers = stream.take_trailers();
                    return Ok(Answer { head, text, body, trailers });
                }
            }
        }
    }
}

impl Answer {
    /// Judges the answer to a call.
    fn judge(&self, wanted: Option<u64>) -> Result<(), Failure> {
        if self.head.status != 200 {
            return Err(format!("status {}", self.head.status));
        }
        let in_head = self.head.fields.iter().find(|f| f.name.of(&self.text) == b"grpc-status");
        let in_head = in_head.map(|f| f.value.of(&self.text));
        let behind = self.trailers.iter().find(|(name, _)| name == "grpc-status");
        let code = in_head.or(behind.map(|(_, value)| &value[..]));
        let code = code.and_then(base::ascii::parse_u64).ok_or("no grpc-status in the answer")?;
        match wanted {
            Some(wanted) if wanted == code => Ok(()),
            None if code == 0 => match grpc::health_status(&self.body) {
                Some(grpc::SERVING) => Ok(()),
                Some(status) => Err(format!("serving status {status}")),
                None => Err("the answer is not of grpc.health.v1".to_owned()),
            },
            _ => Err(format!("grpc-status {code}")),
        }
    }
}

fn told(end: &StreamEnd) -> Failure {
    match end {
        StreamEnd::Refused(code) | StreamEnd::Reset(code) => {
            format!("the server rejected the request with error {}", code.0)
        }
        StreamEnd::Malformed(m) | StreamEnd::Fault(m) => m.clone(),
        StreamEnd::Unsent | StreamEnd::Closed => "the server closed the connection".to_owned(),
        StreamEnd::Late => "no answer in time".to_owned(),
        StreamEnd::Broken(errno) => {
            base::log::os_error(&std::io::Error::from_raw_os_error(*errno)).to_string()
        }
    }
}
