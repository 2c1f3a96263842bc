//! Connections with 64 bytes each.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bare::{Bare, Connections};

use super::Done;
use crate::Outcome;
use crate::stream::mixed::{mix, quiet_port};

/// Clients.
pub const THREADS: u64 = 12;
/// Addresses at which Weir listens, and the backend: connections between two addresses and to one
/// port are as many as there are ports, and each is taken for a while after its end.
const ADDRESSES: u64 = 8;
/// The limit of an answer.
const LIMIT: Duration = Duration::from_secs(30);
const LEN: usize = 64;

/// A thread that sends what comes back with all bits inverted.
pub struct Backend {
    /// Its port on each of the addresses.
    pub port: u16,
    over: Arc<AtomicBool>,
}

impl Backend {
    /// One that listens.
    pub fn new() -> Outcome<Self> {
        let port = quiet_port()?;
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        let listeners: Vec<OwnedFd> = (0..ADDRESSES)
            .map(|n| bare::listen(SocketAddrV4::new(address(n), port)))
            .collect::<rustix::io::Result<_>>()
            .map_err(|e| format!("a backend's port: {e}"))?;
        std::thread::spawn(move || {
            let mut echo = Echo(Vec::with_capacity(4096));
            if let Err(e) = bare::serve_at(&listeners, &mut echo, Some(&stop)) {
                println!("the backend of connections ended: {e}");
            }
        });
        Ok(Self { port, over })
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn address(n: u64) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 2 + (n % ADDRESSES) as u8)
}

/// Sends bytes back inverted.
struct Echo(Vec<u8>);

impl Bare for Echo {
    type Own = ();

    fn accepted(&mut self, client: OwnedFd, all: &mut Connections<()>) -> bare::Outcome {
        all.add(client, ())?;
        Ok(())
    }

    fn readable(&mut self, index: usize, all: &mut Connections<()>) -> bool {
        let Some(c) = all.get(index) else { return false };
        loop {
            self.0.clear();
            match c.receive(&mut self.0) {
                None => return false,
                Some(0) => return true,
                Some(_) => self.0.iter_mut().for_each(|b| *b = !*b),
            }
            if !c.send(&self.0) {
                return false;
            }
        }
    }
}

/// A client, until all connections are over.
pub fn client(port: u16, seed: u64, number: u64, done: &Done) {
    for n in 0.. {
        if done.take(1) == 0 {
            return;
        }
        let counter = match connection(SocketAddrV4::new(address(number + n), port), seed ^ n) {
            Ok(true) => &done.answered,
            Ok(false) => &done.wrong,
            Err(e) => {
                done.tell(|| format!("a connection: {e}"));
                &done.lost
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        done.sessions.fetch_add(1, Ordering::Relaxed);
    }
}

/// Connects, has 64 bytes sent back, closes; gives whether they are the right ones.
fn connection(to: SocketAddrV4, place: u64) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut bytes = [0; LEN];
    for (n, part) in (0..).zip(bytes.chunks_mut(8)) {
        part.copy_from_slice(&mix(place ^ n << 56).to_le_bytes());
    }
    stream.write_all(&bytes)?;
    let mut answer = [0; LEN + 1];
    let mut len = 0;
    while len < LEN {
        match stream.read(&mut answer[len..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => len += more,
        }
    }
    Ok(len == LEN && bytes.iter().zip(&answer).all(|(a, b)| *a == !*b))
}
