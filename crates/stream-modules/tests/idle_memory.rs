//! The user memory of an idle session, over TCP and UDP. The test is alone in its process, since it
//! counts all of the heap.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::sleep;
use std::time::Duration;

use base::log::Level;
use bytes::Bytes;
use engine::{Engine, LoadEnv, Seat};
use event::{Gate, ListenOpts, Listener, Loop, Options};
use stream::engine::StreamEngine;

/// Sessions that are held; with their sockets to servers just under a power of two, so that the
/// room tables have grown for more is not counted.
const COUNT: usize = 500;

/// The most that a session may take, with the heap's own; 850 bytes are needed.
const TCP_MAX: usize = 896;

/// The same over UDP, where 466 are needed.
const UDP_MAX: usize = 496;

/// The longest wait of a client or a server.
const PATIENCE: Duration = Duration::from_secs(10);

/// An engine that serves one server's configuration over the socket `fd`.
fn serve(server: &str, fd: OwnedFd) -> StreamEngine {
    let text = Bytes::from(format!("stream {{ server {{ {server} }} }}"));
    let tree = conf::parse::parse_bytes(Path::new("test.conf"), text, &Default::default()).unwrap();
    let (log, _) = base::log::capture(Level::Error);
    base::log::set_default(log.clone());
    let env = LoadEnv::alone(&std::env::temp_dir(), log.clone()).unwrap();
    let main = match stream::build::build(&tree.nodes[0], env, weir_stream_modules::MODULES) {
        Ok(main) => main,
        Err(e) => panic!("{e}"),
    };
    let engine = StreamEngine::new(main);
    let (debug_connections, alone) = (Rc::from([]), Gate::new());
    let seat = Seat {
        index: 0,
        slot: 0,
        log,
        debug_connections,
        alone,
        relay: None,
        moves: None,
        removals: Default::default(),
    };
    seat.alone.close();
    engine.start(&seat, vec![Listener::new(fd, ListenOpts::default())]).unwrap();
    engine
}

/// A connection with a question answered on it; `servers` are the other ends of such connections.
fn ask_tcp(port: u16, behind: &TcpListener, servers: &mut Vec<TcpStream>) -> TcpStream {
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"question").unwrap();
    let (mut server, _) = behind.accept().unwrap();
    let mut page = [0; 8];
    server.read_exact(&mut page).unwrap();
    server.write_all(&page).unwrap();
    servers.push(server);
    client.read_exact(&mut page).unwrap();
    client
}

/// The same over UDP.
fn ask_udp(port: u16, behind: &UdpSocket) -> UdpSocket {
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    client.send(b"question").unwrap();
    let mut page = [0; 8];
    let (n, from) = behind.recv_from(&mut page).unwrap();
    behind.send_to(&page[..n], from).unwrap();
    client.recv(&mut page).unwrap();
    client
}

/// The bytes that each of many sessions takes, each of which `ask` begins. Runs the loop meanwhile.
fn each<T>(event_loop: &mut Loop, mut ask: impl FnMut() -> T + Send) -> usize {
    let (done, finished) = mpsc::channel();
    std::thread::scope(|scope| {
        let counting = scope.spawn(move || {
            let mut held = Vec::with_capacity(COUNT + 8);
            // Buffers that sessions share, and lists of free ones, have grown with the first.
            held.extend((0..8).map(|_| ask()));
            // The worker goes back to waiting once it has answered somebody.
            let pause = || sleep(Duration::from_millis(100));
            pause();
            let before = os::memory::in_use();
            held.extend((0..COUNT).map(|_| ask()));
            pause();
            let each = (os::memory::in_use() - before) / COUNT;
            done.send(()).unwrap();
            each
        });
        // The loop turns at least when a session ends; all end with the thread.
        event_loop.run_until(|| finished.try_recv().is_ok()).unwrap();
        counting.join().unwrap()
    })
}

#[test]
fn idle_sessions_are_small() {
    os::limits::set(os::limits::Limit::NoFile, 4096).unwrap();
    let options = Options { connections: 4096, ..Options::default() };
    let mut event_loop = Loop::new(options).unwrap();

    let behind = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = behind.local_addr().unwrap();
    let front = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    front.set_nonblocking(true).unwrap();
    let port = front.local_addr().unwrap().port();
    let conf = format!("listen 127.0.0.1:{port}; proxy_pass {to};");
    let engine = serve(&conf, front.into());
    let mut servers = Vec::with_capacity(COUNT + 8);
    let bytes = each(&mut event_loop, || ask_tcp(port, &behind, &mut servers));
    println!("{bytes} bytes a session over TCP");
    assert!((300..=TCP_MAX).contains(&bytes), "{bytes} bytes a session over TCP");
    drop((engine, servers));

    let behind = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    behind.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = behind.local_addr().unwrap();
    let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    front.set_nonblocking(true).unwrap();
    let port = front.local_addr().unwrap().port();
    let conf = format!("listen 127.0.0.1:{port} udp; proxy_pass {to};");
    let _engine = serve(&conf, front.into());
    let bytes = each(&mut event_loop, || ask_udp(port, &behind));
    println!("{bytes} bytes a session over UDP");
    assert!((300..=UDP_MAX).contains(&bytes), "{bytes} bytes a session over UDP");
}
