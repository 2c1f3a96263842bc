//! Datagrams: sockets of clients, and a server that answers.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::PATIENCE;

/// A socket of 127.0.0.1 whose reads time out after [`PATIENCE`].
pub fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a test's socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    socket
}

/// The port of a socket.
pub fn port(socket: &UdpSocket) -> u16 {
    socket.local_addr().expect("a bound socket has an address").port()
}

/// A socket that sends to this port of 127.0.0.1, and receives from there alone.
pub fn client(port: u16) -> UdpSocket {
    let socket = socket();
    socket.connect(("127.0.0.1", port)).expect("an address for datagrams");
    socket
}

/// The next datagram, and its sender.
pub fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut page = vec![0; 65536];
    let (n, from) = socket.recv_from(&mut page).expect("a datagram");
    page.truncate(n);
    (page, from)
}

/// The next datagram after this one is sent.
pub fn ask(socket: &UdpSocket, bytes: &[u8]) -> Vec<u8> {
    socket.send(bytes).expect("send a datagram");
    receive(socket).0
}

/// A server that answers each datagram with itself, behind a mark. It ends when it is dropped.
pub struct Echo {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    peers: Arc<Mutex<Vec<SocketAddr>>>,
    ends: Arc<AtomicBool>,
}

impl Echo {
    /// Starts it; each datagram gets so many answers.
    pub fn start(mark: &'static str, answers: usize) -> Self {
        let socket = socket();
        // The thread looks now and then whether it should end.
        let pause = Some(Duration::from_millis(50));
        socket.set_read_timeout(pause).expect("a socket takes a timeout");
        let port = port(&socket);
        let (peers, ends) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (all, end) = (peers.clone(), ends.clone());
        std::thread::spawn(move || {
            let mut page = vec![0; 65536];
            while !end.load(Ordering::Relaxed) {
                let Ok((n, from)) = socket.recv_from(&mut page) else { continue };
                all.lock().unwrap_or_else(PoisonError::into_inner).push(from);
                for _ in 0..answers {
                    // A client may have gone.
                    let _ = socket.send_to(&[mark.as_bytes(), &page[..n]].concat(), from);
                }
            }
        });
        Self { port, peers, ends }
    }

    /// The sender of each datagram so far.
    pub fn peers(&self) -> Vec<SocketAddr> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}
