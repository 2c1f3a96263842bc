//! A scripted server: a test decides about each frame, or answers requests by a closure.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use super::fields::Decoder;
use super::{Fields, Frame, PREFACE, Wire, block, flag, kind};
use crate::{PATIENCE, Scripted};

/// A client's connection, at the server's end. What the client sends is decoded; SETTINGS and PING
/// are acknowledged.
pub struct Peer {
    wire: Wire,
    received: Vec<u8>,
    decoder: Decoder,
    /// Requests whose end did not come yet.
    begun: BTreeMap<u32, Request>,
}

/// A request as it was received.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Its stream.
    pub stream: u32,
    /// Its fields, pseudo-fields among them.
    pub fields: Fields,
    /// Its body as far as it came.
    pub body: Vec<u8>,
    /// Nothing follows.
    pub ended: bool,
    /// The DATA frames that it came in.
    pub frames: usize,
}

impl Request {
    /// The value of the first field of a name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| &**value)
    }

    /// Its `:path`.
    pub fn path(&self) -> &str {
        self.field(":path").unwrap_or_default()
    }
}

/// The next thing that a client sent.
#[derive(Debug)]
pub enum Came {
    /// A request whose head has come; the body may follow.
    Head(Request),
    /// A request whose end has come.
    Whole(Request),
    /// Any other frame.
    Frame(Frame),
    /// The end of the connection.
    End,
}

/// A response.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// `:status`, and fields.
    pub fields: Vec<(String, String)>,
    /// The body; none where there is nothing.
    pub body: Vec<u8>,
    /// Fields behind it.
    pub trailers: Vec<(String, String)>,
}

impl Reply {
    /// A response with this body.
    pub fn of(body: impl Into<Vec<u8>>) -> Reply {
        let fields = vec![(":status".to_owned(), "200".to_owned())];
        Reply { fields, body: body.into(), trailers: Vec::new() }
    }

    /// With one more field.
    pub fn with(mut self, name: &str, value: &str) -> Reply {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With one more field behind the body.
    pub fn trailer(mut self, name: &str, value: &str) -> Reply {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Its frames.
    pub fn frames(&self, stream: u32) -> Vec<Frame> {
        let last = self.body.is_empty() && self.trailers.is_empty();
        let mut frames = vec![Frame::headers(stream, block(&self.fields), last)];
        let mut parts = self.body.chunks(16_384).peekable();
        while let Some(part) = parts.next() {
            let end = parts.peek().is_none() && self.trailers.is_empty();
            frames.push(Frame::data(stream, part, end));
        }
        if !self.trailers.is_empty() {
            frames.push(Frame::headers(stream, block(&self.trailers), true));
        }
        frames
    }
}

impl Peer {
    /// Takes a connection: reads the preface, and sends these parameters.
    ///
    /// # Panics
    /// Where the client begins with anything else.
    pub fn accept(stream: TcpStream, settings: &[(u16, u32)]) -> Peer {
        let copy = stream.try_clone().expect("share the socket");
        let mut peer = Peer {
            wire: Wire::over(stream, copy),
            received: Vec::new(),
            decoder: Decoder::new(),
            begun: BTreeMap::new(),
        };
        while peer.received.len() < PREFACE.len() {
            assert!(peer.read(), "no preface: {:?}", peer.received);
        }
        let preface: Vec<u8> = peer.received.drain(..PREFACE.len()).collect();
        assert_eq!(preface, PREFACE);
        peer.send(&[Frame::settings(settings)]);
        peer
    }

    fn read(&mut self) -> bool {
        match self.wire.read(Instant::now() + PATIENCE) {
            Ok(bytes) => {
                self.received.extend_from_slice(&bytes);
                true
            }
            Err(_) => false,
        }
    }

    /// Sends frames in one write. A client that is gone is not told.
    pub fn send(&mut self, frames: &[Frame]) {
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        let _ = self.wire.send(bytes);
    }

    /// Answers a request.
    pub fn reply(&mut self, stream: u32, reply: &Reply) {
        self.send(&reply.frames(stream));
    }

    /// The next frame that tells something.
    ///
    /// # Panics
    /// Where a header block cannot be decoded.
    pub fn came(&mut self) -> Came {
        loop {
            let Some(frame) = Frame::take(&mut self.received) else {
                if !self.read() {
                    return Came::End;
                }
                continue;
            };
            match frame.kind {
                kind::SETTINGS if !frame.has(flag::ACK) => self.send(&[Frame::settings_ack()]),
                kind::PING if !frame.has(flag::ACK) => {
                    self.send(&[Frame { flags: flag::ACK, ..frame }]);
                }
                kind::SETTINGS | kind::PING => {}
                kind::HEADERS => return self.head(frame),
                kind::DATA => {
                    let data = frame.content().expect("padding fits").to_vec();
                    let ended = frame.has(flag::END_STREAM);
                    let Some(request) = self.begun.get_mut(&frame.stream) else {
                        return Came::Frame(frame);
                    };
                    request.body.extend_from_slice(&data);
                    request.frames += 1;
                    if ended {
                        let request = self.begun.remove(&frame.stream).unwrap_or_default();
                        return Came::Whole(Request { ended, ..request });
                    }
                    return Came::Frame(frame);
                }
                _ => return Came::Frame(frame),
            }
        }
    }

    fn head(&mut self, frame: Frame) -> Came {
        let mut encoded = frame.content().expect("padding fits").to_vec();
        let mut is_whole = frame.has(flag::END_HEADERS);
        while !is_whole {
            let Some(more) = Frame::take(&mut self.received) else {
                if !self.read() {
                    return Came::End;
                }
                continue;
            };
            assert_eq!((more.kind, more.stream), (kind::CONTINUATION, frame.stream));
            encoded.extend_from_slice(&more.payload);
            is_whole = more.has(flag::END_HEADERS);
        }
        let fields = self.decoder.decode(&encoded).expect("the client's header block");
        let ended = frame.has(flag::END_STREAM);
        let request = Request { stream: frame.stream, fields, ended, ..Request::default() };
        if ended {
            return Came::Whole(request);
        }
        self.begun.insert(frame.stream, request.clone());
        Came::Head(request)
    }

    /// The next request that is whole; `None` at the connection's end.
    pub fn request(&mut self) -> Option<Request> {
        loop {
            match self.came() {
                Came::Whole(request) => return Some(request),
                Came::End => return None,
                Came::Head(_) | Came::Frame(_) => {}
            }
        }
    }

    /// Waits for a frame of a type; `None` at the connection's end.
    pub fn frame(&mut self, kind: u8) -> Option<Frame> {
        loop {
            match self.came() {
                Came::Frame(frame) if frame.kind == kind => return Some(frame),
                Came::End => return None,
                _ => {}
            }
        }
    }
}

/// Starts a server that announces `settings`, and meets all that its clients send by a closure,
/// which gets the number of the connection as well.
pub fn scripted(
    settings: &'static [(u16, u32)],
    meet: impl Fn(&mut Peer, Came, usize) + Send + Sync + 'static,
) -> Scripted {
    Scripted::start(move |stream, number| {
        let mut peer = Peer::accept(stream, settings);
        loop {
            match peer.came() {
                Came::End => return,
                came => meet(&mut peer, came, number),
            }
        }
    })
}

/// Starts a server that answers each whole request by a closure, which gets the number of the
/// connection as well.
pub fn origin(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Scripted {
    let answer = Arc::new(answer);
    Scripted::start(move |stream, number| {
        let mut peer = Peer::accept(stream, &[]);
        while let Some(request) = peer.request() {
            peer.reply(request.stream, &answer(&request, number));
        }
    })
}
