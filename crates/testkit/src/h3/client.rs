//! Requests and responses.

use std::collections::HashMap;

use http_wire::h3::message::{Event, Reader};
use http_wire::h3::settings::Settings;
use http_wire::h3::{Role, control, frame, stream};
use http_wire::qpack::{Decoded, Decoder, Encoder, Limits};
use quinn_proto::{Dir, StreamId};

use super::quic::{Options, Quic};

/// A response, or as much of it as came.
#[derive(Debug, Default)]
pub struct Response {
    /// The status; 0 where none came.
    pub status: u16,
    /// The fields of the head, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The statuses of interim responses before it.
    pub interim: Vec<u16>,
    /// The body.
    pub body: Vec<u8>,
    /// The fields behind the body.
    pub trailers: Vec<(String, String)>,
    /// The stream was reset, with this code.
    pub reset: Option<u64>,
    /// Its end came.
    pub is_whole: bool,
}

impl Response {
    /// A field of the head.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| &value[..])
    }

    /// Whether nothing more comes.
    pub fn is_over(&self) -> bool {
        self.is_whole || self.reset.is_some()
    }
}

/// A client.
pub struct Client {
    quic: Quic,
    name: String,
    encoder: Encoder,
    decoder: Decoder,
    readers: HashMap<StreamId, (Reader, Vec<u8>, Response)>,
    theirs: HashMap<StreamId, (Option<u64>, stream::Reader, control::Reader)>,
    /// The own control stream is open.
    has_control: bool,
    /// The GOAWAY that came.
    pub goaway: Option<u64>,
    /// The server's settings.
    pub settings: Option<Settings>,
    /// Bytes of the server's stream for the peer of its QPACK decoder.
    pub decoder_instructions: Vec<u8>,
}

impl Client {
    /// Connects to a port of the loopback.
    ///
    /// # Panics
    /// The handshake fails.
    pub fn connect(port: u16, name: &str) -> Client {
        Client::with(port, &Options { name: name.to_owned(), ..Options::default() })
    }

    /// The same with options.
    ///
    /// # Panics
    /// The handshake fails.
    pub fn with(port: u16, options: &Options) -> Client {
        let mut client = Client::start(port, options);
        client.quic.until("no connection", |quic| {
            assert!(quic.lost().is_none(), "{:?}", quic.lost());
            quic.is_connected().then_some(())
        });
        client.is_open();
        client
    }

    /// Begins to connect: requests may be made once [`Client::is_open`] says so.
    pub fn start(port: u16, options: &Options) -> Client {
        let quic = Quic::new(port, options);
        let limits = Limits {
            table_capacity: 0,
            blocked_streams: 0,
            blocked_bytes: 0,
            section: 1 << 20,
            text: 0,
        };
        Client {
            quic,
            name: options.name.clone(),
            encoder: Encoder::new(),
            decoder: Decoder::new(limits),
            readers: HashMap::new(),
            theirs: HashMap::new(),
            has_control: false,
            goaway: None,
            settings: None,
            decoder_instructions: Vec::new(),
        }
    }

    /// Whether requests may be made: the handshake is at its end, or early data may be sent.
    pub fn is_open(&mut self) -> bool {
        let may = self.quic.is_connected() || self.quic.inner().has_0rtt();
        if may && !std::mem::replace(&mut self.has_control, true) {
            let id = self.quic.open(Dir::Uni);
            let mut preface = Vec::new();
            Settings::default().write_preface(&mut preface);
            self.quic.write(id, &preface);
        }
        may
    }

    /// Begins anew, as the server has not taken the early data: nothing is left of its requests.
    pub fn begin_again(&mut self) {
        self.readers.clear();
        self.has_control = false;
        self.is_open();
    }

    /// The connection below.
    pub fn quic(&mut self) -> &mut Quic {
        &mut self.quic
    }

    /// The connection below, which goes on without its protocol.
    pub fn into_quic(self) -> Quic {
        self.quic
    }

    /// A HEADERS frame.
    pub fn section(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        let at = frame::begin_section(&mut out);
        self.encoder.begin(&mut out);
        for (name, value) in fields {
            self.encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
        }
        frame::end_section(&mut out, at);
        out
    }

    /// Begins a request; its body, if there is one, is still to be sent.
    pub fn begin(&mut self, fields: &[(&str, &str)]) -> StreamId {
        let section = self.section(fields);
        let id = self.quic.open(Dir::Bi);
        self.quic.write(id, &section);
        let reader = Reader::new(Role::Client, 1 << 20);
        self.readers.insert(id, (reader, Vec::new(), Response::default()));
        id
    }

    /// The same with the usual fields, and with those given.
    pub fn begin_with(&mut self, method: &str, path: &str, more: &[(&str, &str)]) -> StreamId {
        let name = self.name.clone();
        let usual =
            [(":method", method), (":scheme", "https"), (":authority", &name[..]), (":path", path)];
        let all: Vec<_> = usual.into_iter().chain(more.iter().copied()).collect();
        self.begin(&all)
    }

    /// A DATA frame.
    pub fn data(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        frame::write_head(&mut out, frame::kind::DATA, body.len() as u64);
        out.extend_from_slice(body);
        out
    }

    /// Sends a part of a request's body.
    pub fn send(&mut self, id: StreamId, body: &[u8]) {
        self.quic.write(id, &Client::data(body));
    }

    /// Gives a request up, whatever of it is under way, with a code.
    pub fn give_up(&mut self, id: StreamId, code: u32) {
        self.readers.remove(&id);
        self.quic.reset(id, code);
        self.quic.stop(id, code);
    }

    /// As much of a response as came.
    pub fn so_far(&self, id: StreamId) -> Option<&Response> {
        self.readers.get(&id).map(|entry| &entry.2)
    }

    /// The response to a request that is over, for which nobody has to wait.
    pub fn take_over(&mut self, id: StreamId) -> Option<Response> {
        self.readers.get(&id).filter(|(_, _, response)| response.is_over())?;
        self.readers.remove(&id).map(|entry| entry.2)
    }

    /// A whole request.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let id = self.begin_with(method, path, fields);
        if !body.is_empty() {
            self.send(id, body);
        }
        self.quic.finish(id);
        self.response(id)
    }

    /// GET.
    pub fn get(&mut self, path: &str) -> Response {
        self.request("GET", path, &[], b"")
    }

    /// Several at once; the responses in their order.
    pub fn get_all(&mut self, paths: &[&str]) -> Vec<Response> {
        let mut ids = Vec::new();
        for path in paths {
            let id = self.begin_with("GET", path, &[]);
            self.quic.finish(id);
            ids.push(id);
        }
        ids.into_iter().map(|id| self.response(id)).collect()
    }

    /// The response to a request, as soon as it is whole.
    ///
    /// # Panics
    /// It does not come in time.
    pub fn response(&mut self, id: StreamId) -> Response {
        let began = std::time::Instant::now();
        loop {
            self.look();
            let entry = self.readers.get_mut(&id).expect("a request of this client's");
            if entry.2.is_over() || self.quic.lost().is_some() {
                return self.readers.remove(&id).map(|entry| entry.2).unwrap_or_default();
            }
            let response = &self.readers[&id].2;
            assert!(began.elapsed() < crate::PATIENCE, "no whole response: {response:?}");
            self.quic.turn();
        }
    }

    /// As much of a response as is there when `done` says so.
    ///
    /// # Panics
    /// It does not in time.
    pub fn response_until(&mut self, id: StreamId, done: impl Fn(&Response) -> bool) {
        let began = std::time::Instant::now();
        while !done(&self.readers[&id].2) {
            let response = &self.readers[&id].2;
            assert!(began.elapsed() < crate::PATIENCE, "no such response: {response:?}");
            self.quic.turn();
            self.look();
        }
    }

    /// Takes what came on all streams.
    pub fn look(&mut self) {
        while let Some(id) = self.quic.inner().streams().accept(Dir::Uni) {
            let readers = (None, stream::Reader::default(), control::Reader::new(Role::Client));
            self.theirs.insert(id, readers);
        }
        let ids: Vec<_> = self.theirs.keys().copied().collect();
        for id in ids {
            while let Ok(Some(bytes)) = self.quic.read(id) {
                if bytes.is_empty() {
                    break;
                }
                self.take_control(id, &bytes);
            }
        }
        let ids: Vec<_> = self.readers.keys().copied().collect();
        for id in ids {
            loop {
                let read = self.quic.read(id);
                let Some((_, _, response)) = self.readers.get_mut(&id) else { break };
                match read {
                    Ok(None) => break,
                    Ok(Some(bytes)) if bytes.is_empty() => {
                        response.is_whole = true;
                        break;
                    }
                    Ok(Some(bytes)) => self.take(id, &bytes),
                    Err(code) => {
                        response.reset = Some(code);
                        break;
                    }
                }
            }
        }
    }

    fn take_control(&mut self, id: StreamId, bytes: &[u8]) {
        let Some((kind, begin, reader)) = self.theirs.get_mut(&id) else { return };
        let mut rest = bytes;
        if kind.is_none() {
            let (used, number) = begin.next(rest);
            *kind = number;
            rest = &rest[used..];
        }
        if *kind == Some(3) {
            self.decoder_instructions.extend_from_slice(rest);
        }
        while !rest.is_empty() && *kind == Some(0) {
            let (used, event) = reader.next(rest).expect("frames that may come");
            match event {
                control::Event::GoAway(id) => self.goaway = Some(id),
                control::Event::Settings(settings) => self.settings = Some(settings),
                _ => {}
            }
            rest = &rest[used..];
        }
    }

    fn take(&mut self, id: StreamId, bytes: &[u8]) {
        let Some((reader, _, response)) = self.readers.get_mut(&id) else { return };
        let mut rest = bytes;
        while !rest.is_empty() {
            let (used, event) = reader.next(rest).expect("frames that may come");
            let mut fields = Vec::new();
            let mut field = |name: &[u8], value: &[u8]| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                fields.push((text(name), text(value)));
            };
            let mut data = 0;
            let (mut is_head, mut is_end) = (false, false);
            match event {
                Event::Head(section) => {
                    let decoded = self.decoder.decode(id.into(), section, &mut field);
                    assert_eq!(decoded, Ok(Decoded::Whole));
                    is_head = true;
                }
                Event::Trailers(section) => {
                    let decoded = self.decoder.decode(id.into(), section, &mut field);
                    assert_eq!(decoded, Ok(Decoded::Whole));
                    is_end = true;
                }
                Event::Data(n) => data = n,
                Event::More | Event::Nothing | Event::Excess => {}
            }
            rest = &rest[used..];
            response.body.extend_from_slice(&rest[..data]);
            rest = &rest[data..];
            for (name, value) in fields.iter().skip(usize::from(is_head)) {
                if let Err(what) = crate::h2::judge::is_sound(name, value) {
                    panic!("the server sent {what}");
                }
            }
            if is_end {
                response.trailers = fields;
            } else if is_head {
                let (name, status) = fields.remove(0);
                assert_eq!(name, ":status");
                response.status = status.parse().expect("a status");
                if response.status < 200 {
                    response.interim.push(response.status);
                    reader.interim();
                } else {
                    response.headers = fields;
                }
            }
        }
    }
}
