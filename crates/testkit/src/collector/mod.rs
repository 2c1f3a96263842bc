//! A collector of traces and metrics (OTLP over gRPC) with a script for its answers. It reads
//! Protocol Buffers on its own, so that what the server writes is not judged by the code that wrote
//! it.

mod points;
mod records;

use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use crate::h2::{Came, Frame, Peer, Reply};
use crate::{Scripted, wait_for};

pub use points::{Point, read_request as read_metrics};
pub use records::LogRecord;

/// A collector.
pub struct Collector {
    server: Scripted,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// A call that came, whatever the answer was.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The number of its connection, from 1.
    pub connection: usize,
    /// The fields of its head.
    pub fields: Vec<(String, String)>,
    /// The attributes of the resource.
    pub resource: Vec<(String, Attribute)>,
    /// The name of the program.
    pub scope: String,
    /// The spans.
    pub spans: Vec<Span>,
    /// The points of metrics.
    pub points: Vec<Point>,
    /// The records of logs.
    pub records: Vec<LogRecord>,
    /// The message as it came.
    pub message: Vec<u8>,
}

/// A span; ids are in hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// Of the trace.
    pub trace_id: String,
    /// Its own.
    pub span_id: String,
    /// `tracestate`
    pub state: String,
    /// Of the span that caused it; may be empty.
    pub parent_id: String,
    /// Its name.
    pub name: String,
    /// The number of its kind.
    pub kind: u64,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    /// Nanoseconds since 1970.
    pub end_ns: u64,
    /// In their order.
    pub attributes: Vec<(String, Attribute)>,
    /// The code of its status.
    pub status: u64,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// `string_value`
    Text(String),
    /// `int_value`
    Number(i64),
    /// `array_value` of texts
    Texts(Vec<String>),
}

impl Span {
    /// The field `traceparent` that tells of this span, which is recorded.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace_id, self.span_id)
    }

    /// The text of an attribute.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.attribute(name)? {
            Attribute::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number of an attribute.
    pub fn number(&self, name: &str) -> Option<i64> {
        match self.attribute(name)? {
            Attribute::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// An attribute.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }
}

impl Call {
    /// The value of a field of the head.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| &**value)
    }
}

impl Collector {
    /// A collector that takes everything.
    pub fn start() -> Collector {
        Collector::answering(|_| Some(Collector::taken()))
    }

    /// A collector whose answers a closure gives, which gets the call's number, from 1. `None`
    /// leaves the call without an answer.
    pub fn answering(answer: impl Fn(usize) -> Option<Reply> + Send + Sync + 'static) -> Collector {
        Collector::scripted(move |peer, stream, call| match answer(call) {
            Some(reply) => {
                peer.reply(stream, &reply);
                true
            }
            None => true,
        })
    }

    /// A collector whose calls a closure meets, which gets the connection, the call's stream and
    /// the call's number, from 1. The connection ends where it gives false.
    pub fn scripted(
        meet: impl Fn(&mut Peer, u32, usize) -> bool + Send + Sync + 'static,
    ) -> Collector {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let all = calls.clone();
        let server = Scripted::start(move |stream: TcpStream, connection| {
            let mut peer = Peer::accept(stream, &[]);
            peer.send(&[Frame::window_update(0, 1 << 29)]);
            loop {
                match peer.came() {
                    Came::End => return,
                    Came::Whole(request) => {
                        let path = request.fields.iter().find(|(name, _)| name == ":path");
                        let path = path.map(|(_, path)| path.as_str()).unwrap_or_default();
                        let call = read_call(&request.body, path);
                        let call = Call { connection, fields: request.fields, ..call };
                        let number = {
                            let mut all = all.lock().expect("no panic");
                            all.push(call);
                            all.len()
                        };
                        if !meet(&mut peer, request.stream, number) {
                            return;
                        }
                    }
                    Came::Frame(frame) if !frame.payload.is_empty() => {
                        let len = frame.payload.len() as u32;
                        peer.send(&[Frame::window_update(frame.stream, len)]);
                    }
                    _ => {}
                }
            }
        });
        Collector { server, calls }
    }

    /// The answer of a collector that has taken the spans.
    pub fn taken() -> Reply {
        Collector::reply(b"").trailer("grpc-status", "0")
    }

    /// An answer with that message, without its status.
    pub fn reply(message: &[u8]) -> Reply {
        let mut body = vec![0];
        body.extend((message.len() as u32).to_be_bytes());
        body.extend(message);
        Reply::of(body).with("content-type", "application/grpc")
    }

    /// The answer of one that has not.
    pub fn refusal(status: u32, message: &str) -> Reply {
        let fields = [
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("grpc-status", &status.to_string()),
            ("grpc-message", message),
        ];
        let fields = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Reply { fields, ..Reply::default() }
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.server.connections()
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no panic").clone()
    }

    /// The points of metrics in the last call with some of that name.
    pub fn points(&self, name: &str) -> Vec<Point> {
        let of_name = |call: &Call| -> Vec<Point> {
            call.points.iter().filter(|point| point.name == name).cloned().collect()
        };
        let calls = self.calls();
        calls.iter().rev().map(of_name).find(|points| !points.is_empty()).unwrap_or_default()
    }

    /// The records of logs so far.
    pub fn records(&self) -> Vec<LogRecord> {
        self.calls().into_iter().flat_map(|call| call.records).collect()
    }

    /// The spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.calls().into_iter().flat_map(|call| call.spans).collect()
    }

    /// Waits until so many spans have come, and gives all.
    pub fn wait_for_spans(&self, count: usize) -> Vec<Span> {
        wait_for(&format!("{count} spans"), || {
            let spans = self.spans();
            (spans.len() >= count).then_some(spans)
        })
    }

    /// Waits until so many calls have come, and gives all.
    pub fn wait_for_calls(&self, count: usize) -> Vec<Call> {
        wait_for(&format!("{count} calls"), || {
            let calls = self.calls();
            (calls.len() >= count).then_some(calls)
        })
    }
}

/// A field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            Field::Number(number) => panic!("{number} where bytes belong"),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Field::Number(number) => *number,
            Field::Bytes(bytes) => panic!("{bytes:?} where a number belongs"),
        }
    }

    fn text(&self) -> String {
        // Collectors refuse other text, and all that came with it.
        String::from_utf8(self.bytes().to_vec()).expect("UTF-8")
    }

    fn hex(&self) -> String {
        self.bytes().iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// The fields of a message with their numbers.
fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(rest: &mut &[u8]) -> u64 {
        let len = rest.iter().position(|b| b & 0x80 == 0).expect("the end of a number") + 1;
        assert!(len <= 10);
        let (bytes, later) = rest.split_at(len);
        *rest = later;
        bytes.iter().rev().fold(0, |number, b| number << 7 | u64::from(b & 0x7f))
    }
    let mut all = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut message)),
            1 => {
                let (bytes, rest) = message.split_at(8);
                message = rest;
                Field::Number(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
            }
            2 => {
                let len = varint(&mut message) as usize;
                let (bytes, rest) = message.split_at(len);
                message = rest;
                Field::Bytes(bytes)
            }
            kind => panic!("a field of kind {kind}"),
        };
        all.push((tag >> 3, field));
    }
    all
}

fn read_call(body: &[u8], path: &str) -> Call {
    let (head, message) = body.split_at(5);
    assert_eq!(head[0], 0, "not compressed");
    assert_eq!(u32::from_be_bytes(head[1..].try_into().expect("four")) as usize, message.len());
    match path {
        _ if path.contains(".metrics.") => points::read_request(message),
        _ if path.contains(".logs.") => records::read_request(message),
        _ => read_request(message),
    }
}

/// Reads an `ExportTraceServiceRequest`.
///
/// # Panics
/// It is malformed.
pub fn read_request(message: &[u8]) -> Call {
    read_resources(message, read_scope)
}

/// Reads the resources of a message of any signal; `scope` reads what is below one.
fn read_resources(message: &[u8], scope: impl Fn(&[u8], &mut Call)) -> Call {
    let mut call = Call { message: message.to_vec(), ..Call::default() };
    for (number, field) in fields(message) {
        assert_eq!(number, 1, "resource_spans");
        for (number, field) in fields(field.bytes()) {
            match number {
                1 => call.resource = fields(field.bytes()).iter().map(attribute_of).collect(),
                2 => scope(field.bytes(), &mut call),
                number => panic!("field {number} of ResourceSpans"),
            }
        }
    }
    call
}

fn read_scope(message: &[u8], call: &mut Call) {
    for (number, field) in fields(message) {
        match number {
            1 => call.scope = fields(field.bytes())[0].1.text(),
            2 => call.spans.push(read_span(field.bytes())),
            number => panic!("field {number} of ScopeSpans"),
        }
    }
}

fn read_span(message: &[u8]) -> Span {
    let mut span = Span::default();
    for entry in fields(message) {
        let field = &entry.1;
        match entry.0 {
            1 => span.trace_id = field.hex(),
            2 => span.span_id = field.hex(),
            3 => span.state = field.text(),
            4 => span.parent_id = field.hex(),
            5 => span.name = field.text(),
            6 => span.kind = field.number(),
            7 => span.start_ns = field.number(),
            8 => span.end_ns = field.number(),
            9 => span.attributes.push(attribute_of(&entry)),
            15 => {
                let status = fields(field.bytes());
                span.status = status.iter().find(|(n, _)| *n == 3).map_or(0, |(_, f)| f.number());
            }
            number => panic!("field {number} of Span"),
        }
    }
    span
}

fn attribute_of((_, field): &(u64, Field<'_>)) -> (String, Attribute) {
    let pair = fields(field.bytes());
    assert_eq!(pair.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2]);
    let value = fields(pair[1].1.bytes());
    let value = match &value[..] {
        [(1, text)] => Attribute::Text(text.text()),
        [(3, number)] => Attribute::Number(number.number().cast_signed()),
        [(5, array)] => {
            let values = fields(array.bytes());
            Attribute::Texts(values.iter().map(|(_, v)| fields(v.bytes())[0].1.text()).collect())
        }
        _ => panic!("an attribute of another type"),
    };
    (pair[0].1.text(), value)
}
