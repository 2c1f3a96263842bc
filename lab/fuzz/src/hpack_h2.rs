//! HPACK against the h2 crate: its client's requests are decoded here, our responses there.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{Connection, ResponseFuture, SendRequest};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_wire::h2::hpack::{Decoder, Encoder};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

const NAMES: [&str; 12] = [
    "accept",
    "accept-encoding",
    "cache-control",
    "content-type",
    "cookie",
    "date",
    "etag",
    "server",
    "user-agent",
    "vary",
    "x-a",
    "x-some-rather-long-name-that-no-table-has",
];
const VALUES: [&str; 6] =
    ["", "gzip, deflate", "Sun, 22 Nov 2026 20:13:28 GMT", "no-cache", "x", "\"6740b1a4-400\""];
const SIZES: [u32; 8] = [0, 33, 64, 100, 300, 1000, 4096, 65536];

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Both directions of a connection in memory.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Directions>>);

#[derive(Default)]
struct Directions {
    to_client: VecDeque<u8>,
    from_client: Vec<u8>,
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context, buf: &mut ReadBuf) -> Poll<io::Result<()>> {
        let bytes = &mut self.0.lock().expect("no panic").to_client;
        let len = bytes.len().min(buf.remaining());
        if len == 0 {
            return Poll::Pending;
        }
        let taken: Vec<u8> = bytes.drain(..len).collect();
        buf.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().expect("no panic").from_client.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Nothing wakes anybody here: everything is polled in turn.
fn poll<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

struct Server {
    wire: Wire,
    client: SendRequest<Bytes>,
    connection: Connection<Wire, Bytes>,
    decoder: Decoder,
    encoder: Encoder,
    stream: u32,
}

/// The bytes choose the sizes of both tables and the fields of some exchanges.
pub fn run(data: &[u8]) {
    let mut input = data.iter().copied();
    let mut next = move || input.next();
    let size = |byte: u8| SIZES[usize::from(byte) % SIZES.len()];
    let (theirs, ours) = (size(next().unwrap_or(0)), size(next().unwrap_or(0)));
    let mut server = Server::new(theirs, ours);
    while let Some(op) = next() {
        if op < 8 {
            server.announce(size(op));
            continue;
        }
        let mut fields = Fields::new();
        for _ in 0..op & 15 {
            let name = NAMES[usize::from(next().unwrap_or(0)) % NAMES.len()];
            fields.push((name.into(), value(&mut next)));
        }
        let (requested, answered) = fields.split_at(fields.len() / 2);
        server.exchange(&format!("/{}", op >> 6), requested, u16::from(op) * 3 + 200, answered);
    }
}

/// A value that HTTP allows.
fn value(next: &mut impl FnMut() -> Option<u8>) -> Vec<u8> {
    let which = next().unwrap_or(0);
    if which < 128 {
        return VALUES[usize::from(which) % VALUES.len()].into();
    }
    let allowed = |byte: u8| if byte < b'!' || byte == 0x7f { b'0' + byte % 64 } else { byte };
    let text: Vec<u8> = (0..which & 31).map(|_| allowed(next().unwrap_or(0))).collect();
    if which & 32 != 0 { text.repeat(20) } else { text }
}

impl Server {
    /// A connection whose client announces a table of `theirs`; ours is `ours`.
    fn new(theirs: u32, ours: u32) -> Server {
        let wire = Wire::default();
        let mut builder = h2::client::Builder::new();
        builder.header_table_size(theirs).max_header_list_size(1 << 24).max_frame_size(1 << 20);
        let shaken = poll(builder.handshake(wire.clone())).expect("it waits for nobody");
        let (client, connection) = shaken.expect("nothing was read");
        let mut encoder = Encoder::new();
        encoder.set_limit(theirs as usize);
        let decoder = Decoder::new(65536);
        let mut server = Server { wire, client, connection, decoder, encoder, stream: 1 };
        server.announce(ours);
        server.send(SETTINGS, ACK, 0, &[]);
        server
    }

    /// Announces another size of our table; the client acknowledges it with its next block.
    fn announce(&mut self, size: u32) {
        let setting = [&1u16.to_be_bytes()[..], &size.to_be_bytes()[..]].concat();
        self.send(SETTINGS, 0, 0, &setting);
        self.turn();
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut wire = self.wire.0.lock().expect("no panic");
        wire.to_client.extend(&(payload.len() as u32).to_be_bytes()[1..]);
        wire.to_client.extend([kind, flags]);
        wire.to_client.extend(stream.to_be_bytes());
        wire.to_client.extend(payload);
    }

    /// Lets the client read and write what it can.
    fn turn(&mut self) {
        if let Some(end) = poll(&mut self.connection) {
            panic!("the connection ended: {end:?}");
        }
    }

    fn exchange(
        &mut self,
        path: &str,
        requested: &[(Vec<u8>, Vec<u8>)],
        code: u16,
        answered: &[(Vec<u8>, Vec<u8>)],
    ) {
        poll(std::future::poll_fn(|cx| self.client.poll_ready(cx))).expect("ready").expect("open");
        let mut request = http::Request::new(());
        *request.uri_mut() = format!("http://example.com{path}").parse().expect("valid");
        *request.headers_mut() = map(requested);
        let (response, _) = self.client.send_request(request, true).expect("a valid request");
        self.turn();
        let pseudo = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "example.com"),
            (":path", path),
        ];
        let mut expected: Fields = pseudo.map(|(name, value)| (name.into(), value.into())).into();
        expected.extend_from_slice(requested);
        let mut fields = Fields::new();
        let block = self.take_block();
        self.decoder
            .decode(&block, |name, value| fields.push((name.to_vec(), value.to_vec())))
            .expect("a valid block");
        assert_eq!(sorted(fields), sorted(expected));
        self.answer(code, answered);
        check(response, code, answered);
        self.stream += 2;
    }

    fn answer(&mut self, code: u16, fields: &[(Vec<u8>, Vec<u8>)]) {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        self.encoder.status(code, &mut block);
        for (name, value) in fields {
            self.encoder.field(name, value, &mut block);
        }
        self.send(HEADERS, END_HEADERS | END_STREAM, self.stream, &block);
        self.turn();
    }

    /// The header block among the frames that the client has written.
    fn take_block(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.wire.0.lock().expect("no panic").from_client);
        let mut rest = bytes.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap_or(&bytes);
        let mut block = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk::<9>() {
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (payload, behind) = behind.split_at(len);
            if [HEADERS, CONTINUATION].contains(&head[3]) {
                // The client neither pads nor sets priorities.
                assert_eq!(head[4] & 0x28, 0);
                block.extend_from_slice(payload);
            }
            rest = behind;
        }
        block
    }
}

fn check(response: ResponseFuture, code: u16, answered: &[(Vec<u8>, Vec<u8>)]) {
    let response = poll(response).expect("it is there").expect("a valid response");
    assert_eq!(response.status(), code);
    let fields = response.headers().iter();
    let fields = fields.map(|(name, value)| (name.as_str().into(), value.as_bytes().into()));
    assert_eq!(sorted(fields.collect()), sorted(answered.to_vec()));
}

/// Fields in an order of their own; those of one name keep theirs.
fn sorted(mut fields: Fields) -> Fields {
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    fields
}

fn map(fields: &[(Vec<u8>, Vec<u8>)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name).expect("a valid name");
        map.append(name, HeaderValue::from_bytes(value).expect("a valid value"));
    }
    map
}
