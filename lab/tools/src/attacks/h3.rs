//! Attacks over one connection of HTTP/3, or many: what each one sends.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use testkit::h3::{Client, Dir, Options, Quic, StreamId};

/// An attack.
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// Bytes that the client lets the server send on a stream.
    pub window: u32,
    /// Sends a batch; called until the time is over or the connection is.
    pub send: fn(&mut Attacker),
    /// It has no connection: each batch is the beginning of some.
    pub begins: bool,
}

const WINDOW: u32 = 1 << 20;
/// Streams of attacks that hold some: as many as every server allows.
const STREAMS: usize = 100;
const CANCELLED: u32 = 0x10c;

/// All of them.
pub const ATTACKS: &[Attack] = &[
    Attack { begins: true, ..attack("handshakes begun and left", Attacker::begin) },
    attack("rapid reset", |a| {
        a.streams("/1k.txt", |quic, id| {
            quic.send();
            quic.reset(id, CANCELLED);
            quic.stop(id, CANCELLED);
        });
    }),
    attack("responses stopped", |a| {
        a.streams("/1k.txt", |quic, id| {
            quic.finish(id);
            quic.stop(id, CANCELLED);
        });
    }),
    attack("responses stopped, passed on", |a| {
        a.streams("/post", |quic, id| {
            quic.finish(id);
            quic.stop(id, CANCELLED);
        });
    }),
    attack("empty streams", |a| {
        a.each_stream(|quic, id| quic.finish(id));
    }),
    attack("streams that are blocked and reset", |a| {
        a.blocked(true);
    }),
    attack("blocked streams", |a| {
        if a.batches == 0 {
            a.blocked(false);
        }
    }),
    attack("heads that never come", |a| {
        if a.batches == 0 {
            a.each_stream(|quic, id| quic.write(id, &half_a_head()));
        }
    }),
    Attack { window: 0, ..attack("window of 0, files", |a| a.hold("/1m.bin")) },
    Attack { window: 1, ..attack("window of one byte, files", |a| a.hold("/1m.bin")) },
    attack("never reads, files", |a| a.hold("/1m.bin")),
    attack("insertions into the table", |a| {
        // A capacity of 4096 first. Then `:authority` with a value.
        let one = [&[0xc0, 0x64][..], &[b'v'; 100]].concat();
        a.encoder(&one.repeat(160));
    }),
    attack("duplicates of a large entry", |a| {
        if a.batches == 0 {
            // 2,000 bytes.
            a.encoder(&[&[0xc0, 0x7f, 0xd1, 0x0e][..], &[b'v'; 2_000]].concat());
        }
        a.encoder(&[0; 4_096]);
    }),
    attack("capacities of the table", |a| a.encoder(&[0x20, 0x3f, 0xe1, 0x1f].repeat(4_096))),
    attack("frames of unknown types", |a| a.frames(&[0x21, 0].repeat(8_192))),
    attack("priorities", |a| {
        // PRIORITY_UPDATE of stream 0, "u=1", on the control stream, which is the first.
        let id = StreamId::new(quinn_proto::Side::Client, Dir::Uni, 0);
        let update = [0x80, 0x0f, 0x07, 0x00, 4, 0, b'u', b'=', b'1'];
        push(a.client.quic(), id, &update.repeat(1_000));
    }),
    attack("PING", |a| {
        for _ in 0..50 {
            a.client.quic().inner().ping();
            a.client.quic().send();
        }
    }),
];

const fn attack(name: &'static str, send: fn(&mut Attacker)) -> Attack {
    Attack { name, window: WINDOW, send, begins: false }
}

/// Most of a head that fits every server's buffers.
fn half_a_head() -> Vec<u8> {
    // A frame of 16,000 bytes, of which the last ones are missing.
    [&[1, 0x7e, 0x80, 0, 0][..], &[0x20; 15_000]].concat()
}

/// An attacker's connection.
pub struct Attacker {
    port: u16,
    client: Client,
    /// Batches so far.
    pub batches: u64,
    encoder: Option<StreamId>,
    kept: Option<StreamId>,
    /// Sockets of handshakes that were left.
    left: Vec<UdpSocket>,
}

impl Attacker {
    /// Connects.
    pub fn new(port: u16, attack: &Attack) -> Attacker {
        let options = Options { window: attack.window, ..Options::default() };
        let client = Client::with(port, &options);
        Attacker { port, client, batches: 0, encoder: None, kept: None, left: Vec::new() }
    }

    /// Sends batch after batch until the time is over or the server ends the connection: gives the
    /// code of that.
    pub fn run(&mut self, attack: &Attack, until: Instant) -> Option<String> {
        while Instant::now() < until {
            (attack.send)(self);
            self.batches += 1;
            if attack.begins {
                continue;
            }
            self.client.quic().turn();
            if let Some(lost) = self.client.quic().lost() {
                return Some(match lost {
                    quinn_proto::ConnectionError::ApplicationClosed(closed) => {
                        format!("{:#x}", closed.error_code.into_inner())
                    }
                    other => format!("{other:?}").chars().take(24).collect(),
                });
            }
        }
        None
    }

    fn begin(&mut self) {
        let mut quic = Quic::new(self.port, &Options::default());
        quic.send();
        self.left.push(quic.into_socket());
        // The ports of a batch that is old are used again.
        if self.left.len() > 1_000 {
            self.left.drain(..500);
        }
    }

    /// As many streams as may be opened now.
    fn each_stream(&mut self, mut with: impl FnMut(&mut Quic, StreamId)) {
        for _ in 0..STREAMS {
            let quic = self.client.quic();
            if quic.lost().is_some() {
                return;
            }
            let Some(id) = quic.inner().streams().open(Dir::Bi) else { return };
            with(quic, id);
        }
    }

    fn streams(&mut self, path: &str, behind: fn(&mut Quic, StreamId)) {
        let head = crate::h3::request(path, b"");
        self.each_stream(|quic, id| {
            quic.write(id, &head);
            behind(quic, id);
        });
    }

    /// Some streams at the beginning, and nothing more.
    fn hold(&mut self, path: &str) {
        if self.batches == 0 {
            self.streams(path, Quic::finish);
        }
    }

    /// Sections that need an entry which never comes.
    fn blocked(&mut self, reset: bool) {
        let mut n = 0;
        self.each_stream(|quic, id| {
            n += 1;
            if n > 15 {
                return quic.reset(id, CANCELLED);
            }
            quic.write(id, &[1, 4, 2, 0, 0x80, 0xd1]);
            if reset {
                quic.send();
                quic.reset(id, CANCELLED);
            }
        });
    }

    fn encoder(&mut self, bytes: &[u8]) {
        let quic = self.client.quic();
        let id = *self.encoder.get_or_insert_with(|| {
            let id = quic.open(Dir::Uni);
            quic.write(id, &[2, 0x3f, 0xe1, 0x1f]);
            id
        });
        push(quic, id, bytes);
    }

    fn frames(&mut self, bytes: &[u8]) {
        let quic = self.client.quic();
        let id = *self.kept.get_or_insert_with(|| quic.open(Dir::Bi));
        push(quic, id, bytes);
    }
}

/// Writes bytes as long as the connection takes them.
fn push(quic: &mut Quic, id: StreamId, mut bytes: &[u8]) {
    let began = Instant::now();
    while !bytes.is_empty() && quic.lost().is_none() && began.elapsed() < Duration::from_secs(1) {
        match quic.inner().send_stream(id).write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(quinn_proto::WriteError::Blocked) => quic.turn(),
            Err(_) => return,
        }
    }
}
