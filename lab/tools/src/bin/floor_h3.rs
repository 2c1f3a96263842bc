//! The floor for HTTP/3: quinn-proto over one UDP socket, one thread, one epoll, a fixed response
//! for each request stream that has come to its end. It reads no frame. What waits is received
//! with `recvmmsg` first, each connection is polled once then, and one `sendmmsg` sends all that
//! the turn brought. What a server takes beyond it is its own work.
//!
//! `floor_h3 PORT CERTIFICATE KEY [NAME=VALUE...]`: files in PEM; see [`Settings`] for the names.
//! A TCP socket listens on the same port, so that it is seen when the program is up.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use bare::quic::{Peers, Work, socket};
use bare::{Outcome, h3};
use bytes::Bytes;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    Connection, Dir, Endpoint, EndpointConfig, Event, MtuDiscoveryConfig, ServerConfig,
    StreamEvent, StreamId, TransportConfig, congestion,
};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const USAGE: &str = "floor_h3 PORT CERTIFICATE KEY [NAME=VALUE...]";

fn main() -> ExitCode {
    bare::run(USAGE, |arguments| {
        let [port, certificate, key, words @ ..] = arguments else { return None };
        let settings = Settings::read(words)?;
        Some(serve(port.parse().ok()?, certificate, key, &settings))
    })
}

/// What can be changed.
struct Settings {
    /// Length of the body: `size`.
    size: usize,
    /// Datagrams of one send at most: `datagrams`.
    datagrams: usize,
    /// Whether the kernel joins what it received: `gro`.
    joins: bool,
    /// Length of a datagram at first: `mtu`.
    mtu: u16,
    /// Up to what it is searched for, 0 for not at all: `mtu-max`.
    mtu_max: u16,
    /// Bytes kept of what was written: `send-window`.
    send_window: Option<u64>,
    /// Whether streams take turns packet by packet: `fair`.
    fair: bool,
    /// Packets that the client may leave without an acknowledgement, where it allows that: `acks`.
    acks: Option<u32>,
    /// Congestion control: `cc`, of `cubic`, `reno`, `bbr` and `wide`, a window without limits.
    congestion: String,
    /// Whether datagrams are received in batches of whole turns: `turns`, or each is answered.
    turns: bool,
}

impl Settings {
    fn read(words: &[&str]) -> Option<Self> {
        let mut settings = Self {
            size: 1024,
            datagrams: bare::quic::DATAGRAMS_MAX,
            joins: true,
            mtu: 1200,
            mtu_max: 1452,
            send_window: None,
            fair: true,
            acks: None,
            congestion: "cubic".to_owned(),
            turns: true,
        };
        for word in words {
            let (name, value) = word.split_once('=')?;
            let on = value == "on";
            match name {
                "size" => settings.size = value.parse().ok()?,
                "datagrams" => settings.datagrams = value.parse().ok()?,
                "gro" => settings.joins = on,
                "mtu" => settings.mtu = value.parse().ok()?,
                "mtu-max" => settings.mtu_max = value.parse().ok()?,
                "send-window" => settings.send_window = Some(value.parse().ok()?),
                "fair" => settings.fair = on,
                "acks" => settings.acks = Some(value.parse().ok()?),
                "cc" => settings.congestion = value.to_owned(),
                "turns" => settings.turns = on,
                _ => return None,
            }
        }
        Some(settings)
    }

    fn transport(&self) -> TransportConfig {
        let mut transport = TransportConfig::default();
        // nginx's number.
        transport.max_concurrent_bidi_streams(128u32.into());
        transport.max_idle_timeout(None);
        transport.initial_mtu(self.mtu);
        transport.send_fairness(self.fair);
        transport.mtu_discovery_config((self.mtu_max > 0).then(|| {
            let mut discovery = MtuDiscoveryConfig::default();
            discovery.upper_bound(self.mtu_max);
            discovery
        }));
        if let Some(len) = self.send_window {
            transport.send_window(len);
        }
        if let Some(packets) = self.acks {
            let mut frequency = quinn_proto::AckFrequencyConfig::default();
            frequency.ack_eliciting_threshold(packets.into());
            transport.ack_frequency_config(Some(frequency));
        }
        match self.congestion.as_str() {
            "reno" => {
                let config = congestion::NewRenoConfig::default();
                transport.congestion_controller_factory(Arc::new(config));
            }
            "bbr" => {
                let config = congestion::BbrConfig::default();
                transport.congestion_controller_factory(Arc::new(config));
            }
            "wide" => {
                // Above this the pacer lets everything pass.
                let mut config = congestion::NewRenoConfig::default();
                config.initial_window(1 << 33);
                transport.congestion_controller_factory(Arc::new(config));
            }
            _ => {}
        }
        transport
    }
}

fn tls(certificate: &str, key: &str) -> Outcome<QuicServerConfig> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    config.alpn_protocols = vec![b"h3".to_vec()];
    Ok(config.try_into()?)
}

fn serve(port: u16, certificate: &str, key: &str, settings: &Settings) -> Outcome {
    let mut config = ServerConfig::with_crypto(Arc::new(tls(certificate, key)?));
    config.transport_config(Arc::new(settings.transport()));
    let endpoint = EndpointConfig::default();
    let endpoint = Endpoint::new(Arc::new(endpoint), Some(Arc::new(config)), true, None);
    let fd = socket(port, settings.joins)?;
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&queue, &fd, EventData::new_u64(0), EventFlags::IN)?;
    let response = Bytes::from(h3::response(&vec![b'x'; settings.size]));
    let mut peers = Peers::new(endpoint, settings.datagrams, Floor { response })?;
    if !settings.turns {
        peers.one_at_a_time();
    }
    let _up = bare::listen(std::net::SocketAddrV4::new([127, 0, 0, 1].into(), port))?;
    let mut events = Vec::with_capacity(1);
    loop {
        let pause = peers.pause(Instant::now()).map(Timespec::try_from).transpose()?;
        events.clear();
        match epoll::wait(&queue, spare_capacity(&mut events), pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let now = Instant::now();
        if !events.is_empty() {
            peers.receive(&fd, now)?;
        }
        peers.expire(now);
        peers.poll(Some(&fd), now);
    }
}

struct Floor {
    response: Bytes,
}

/// Responses that the windows did not take, and how much of them is left.
#[derive(Default)]
struct Own {
    greeted: bool,
    waiting: Vec<(StreamId, Bytes)>,
}

impl Work for Floor {
    type Own = Own;

    fn accepted(&mut self) -> Option<Own> {
        Some(Own::default())
    }

    fn event(&mut self, c: &mut Connection, own: &mut Own, event: Event, _: Instant) {
        match event {
            Event::Connected if !own.greeted => {
                own.greeted = true;
                if let Some(id) = c.streams().open(Dir::Uni) {
                    let _ = c.send_stream(id).write(h3::CONTROL);
                }
            }
            Event::Stream(StreamEvent::Opened { dir }) => {
                while let Some(id) = c.streams().accept(dir) {
                    self.read(c, own, id);
                }
            }
            Event::Stream(StreamEvent::Readable { id }) => self.read(c, own, id),
            Event::Stream(StreamEvent::Writable { id }) => {
                if let Some(at) = own.waiting.iter().position(|(waiting, _)| *waiting == id) {
                    let (_, rest) = own.waiting.swap_remove(at);
                    write(c, own, id, rest);
                }
            }
            _ => {}
        }
    }

    fn socket(_: &Own) -> Option<&std::os::fd::OwnedFd> {
        None
    }
}

impl Floor {
    /// Reads what has come, and answers at the end.
    fn read(&mut self, c: &mut Connection, own: &mut Own, id: StreamId) {
        let mut stream = c.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return };
        let over = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let _ = chunks.finalize();
        if over && id.dir() == Dir::Bi {
            write(c, own, id, self.response.clone());
        }
    }
}

fn write(c: &mut Connection, own: &mut Own, id: StreamId, bytes: Bytes) {
    let mut rest = [bytes];
    while !rest[0].is_empty() {
        match c.send_stream(id).write_chunks(&mut rest) {
            Ok(_) => {}
            Err(quinn_proto::WriteError::Blocked) => {
                let [rest] = rest;
                own.waiting.push((id, rest));
                return;
            }
            Err(_) => return,
        }
    }
    let _ = c.send_stream(id).finish();
}
