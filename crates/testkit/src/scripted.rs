//! A server with a closure for its connections.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::PATIENCE;

/// The server; its threads end with the test's process.
pub struct Scripted {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    connections: Arc<AtomicUsize>,
}

impl Scripted {
    /// Starts it. `script` gets each connection and its number, from 1; the connection ends with
    /// it.
    pub fn start(script: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Self {
        let (listener, port) = listener();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, script) = (connections.clone(), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that has gone away before it was accepted.
                let Ok(stream) = stream else { continue };
                let number = count.fetch_add(1, Ordering::Relaxed) + 1;
                let script = script.clone();
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
                std::thread::spawn(move || script(stream, number));
            }
        });
        Self { port, connections }
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A socket that listens on 127.0.0.1, and its port.
pub fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a test's socket");
    let port = listener.local_addr().expect("a test's socket").port();
    (listener, port)
}

/// Reads until `enough` accepts the bytes; returns all of them, or nothing where the peer ended
/// before.
pub fn read_until(stream: &mut TcpStream, enough: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    while !enough(&all) {
        let mut page = [0; 16384];
        match stream.read(&mut page) {
            Ok(0) | Err(_) => return None,
            Ok(n) => all.extend_from_slice(&page[..n]),
        }
    }
    Some(all)
}

/// Whether the other side's kernel has all that was written to a connection.
pub fn is_acknowledged(stream: &TcpStream) -> bool {
    let sent = os::socket::tcp_sent(stream).expect("Linux since 4.19");
    sent.acked >= sent.written
}
