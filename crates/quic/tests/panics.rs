//! A panic about one connection costs that connection alone.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use event::{DriverKind, Gate, Loop};
use net::quic_id::Key;
use net::quic_relay::Relay;
use os::SockAddr;
use quinn_proto::ConnectionError;
use testkit::h3::{Options, Quic};
use tls::certified::Certified;
use tls::{Info, ServerConfig, ServerOptions};
use weir_quic::{
    Begin, Choice, Chosen, Client, Connection, Dir, Ended, Endpoint, Hello, Place, Read, Server,
    Session, Settings, StreamId, Transport,
};

/// Sends back what comes, and panics when it is asked to.
struct Echo(Rc<Connection>);

impl Session for Echo {
    fn early(&mut self, _: Info) {}

    fn established(&mut self, _: Info) {}

    fn moved(&mut self, _: SocketAddr) {}

    fn opened(&mut self, dir: Dir) {
        while let Some(id) = self.0.accept(dir) {
            self.readable(id);
        }
    }

    fn readable(&mut self, id: StreamId) {
        while let Read::Data(bytes) = self.0.read(id, 1000) {
            assert_ne!(&bytes[..], b"panic", "as asked");
            self.0.write(id, &mut [bytes]).unwrap();
        }
    }

    fn writable(&mut self, _: StreamId) {}

    fn stopped(&mut self, _: StreamId, _: u64) {}

    fn finished(&mut self, _: StreamId) {}

    fn turn(&mut self) -> bool {
        false
    }

    fn ended(&mut self, _: &Ended) {}
}

struct Echoes {
    config: ServerConfig,
    transport: Transport,
}

impl Server for Echoes {
    fn choose(&self, _: Hello<'_>, _: Client) -> Chosen {
        let choice = Choice::new(self.config.quic(&[b"h3"]).unwrap(), &self.transport);
        let begin: Begin = Box::new(|quic| Box::new(Echo(quic.clone())));
        Box::pin(std::future::ready((choice, begin)))
    }

    fn asks_proof(&self, _: usize) -> bool {
        false
    }

    /// One that was lost leaves its room to another.
    fn has_room(&self, open: usize) -> bool {
        open < 2
    }
}

fn serve(driver: DriverKind, socket: UdpSocket, stop: Arc<AtomicBool>) {
    let mut event_loop = Loop::new(event::Options { driver, ..Default::default() }).unwrap();
    let body = async move {
        let alone = Gate::new();
        alone.close();
        let listener = SockAddr::from(socket.local_addr().unwrap());
        let place = Place {
            relay: Rc::new(Relay::alone(Rc::new(Key::random()))),
            listener,
            alone,
            removals: Default::default(),
        };
        let chain = vec![include_bytes!("../../tls/tests/certificates/one.der").to_vec()];
        let key = include_bytes!("../../tls/tests/certificates/one.key");
        let certificates = vec![Certified::new(chain, key).unwrap()];
        let options = ServerOptions { certificates, ..ServerOptions::default() };
        let config = ServerConfig::new(options).unwrap();
        let server = Echoes { config, transport: Transport::new(&Settings::default()) };
        let _endpoint = Endpoint::start(socket.into(), place, &[7; 32], Box::new(server));
        event::testing::until(|| stop.load(Ordering::Relaxed)).await;
    };
    event_loop.block_on(body).unwrap();
}

/// Sends a text on a new stream, and has it back.
fn echoes(c: &mut Quic, text: &[u8]) {
    let id = c.open(Dir::Bi);
    c.write(id, text);
    let back = c.until("nothing comes back", |c| c.read(id).unwrap());
    assert_eq!(back, text);
}

#[test]
fn a_panic_costs_one_connection() {
    for driver in event::testing::real_drivers() {
        eprintln!("driver: {}", driver.name());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let server = thread::spawn(move || serve(driver, socket, stopped));

        let mut other = Quic::new(port, &Options::default());
        echoes(&mut other, b"before");
        for _ in 0..3 {
            let mut c = Quic::new(port, &Options::default());
            echoes(&mut c, b"a text");
            let id = c.open(Dir::Bi);
            c.write(id, b"panic");
            c.until("nobody tells of the end", |c| c.lost().cloned());
            assert_eq!(c.lost(), Some(&ConnectionError::Reset));
        }
        echoes(&mut other, b"after");

        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
    }
}
