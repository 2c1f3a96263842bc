//! The network between a server and the engine: a relay that can fail.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use rig::Outcome;

/// The state of the network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Connections are ended, new ones, too.
    Refused,
    /// Nothing arrives, and nobody hears why.
    Silent,
    /// Answers come three seconds late.
    Slow,
    /// Answers are of another protocol.
    Garbage,
}

const SLOW: Duration = Duration::from_secs(3);

/// How often a relay looks whether the state has changed.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Shared {
    way: AtomicU8,
    to: AtomicU16,
    /// Connections of another epoch end.
    epoch: AtomicU64,
}

impl Shared {
    fn is(&self, way: Way) -> bool {
        self.way.load(Ordering::SeqCst) == way as u8
    }
}

/// A relay.
pub(crate) struct Relay {
    pub port: u16,
    shared: Arc<Shared>,
}

impl Relay {
    /// A relay to that port.
    pub fn start(to: u16) -> Outcome<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let shared = Arc::new(Shared::default());
        shared.to.store(to, Ordering::SeqCst);
        let of_thread = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if !of_thread.is(Way::Refused) {
                    let shared = of_thread.clone();
                    std::thread::spawn(move || drop(serve(client, &shared)));
                }
            }
        });
        Ok(Relay { port, shared })
    }

    pub fn set(&self, way: Way) {
        self.shared.way.store(way as u8, Ordering::SeqCst);
        if way == Way::Refused {
            self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// From now on, connections lead to another port.
    pub fn lead_to(&self, port: u16) {
        self.shared.to.store(port, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

fn serve(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let epoch = shared.epoch.load(Ordering::SeqCst);
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.to.load(Ordering::SeqCst)));
    let Ok(server) = server else {
        return client.shutdown(Shutdown::Both);
    };
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
    }
    let (from, to, of_thread) = (client.try_clone()?, server.try_clone()?, shared.clone());
    std::thread::spawn(move || drop(carry(&from, &to, &of_thread, epoch, false)));
    carry(&server, &client, shared, epoch, true)
}

/// Carries bytes until an end closes or the epoch is over.
fn carry(
    mut from: &TcpStream,
    mut to: &TcpStream,
    shared: &Shared,
    epoch: u64,
    is_answer: bool,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let is_over = || shared.epoch.load(Ordering::SeqCst) != epoch;
    loop {
        let read = from.read(&mut buffer);
        if is_over() || matches!(read, Ok(0)) {
            break;
        }
        let len = match read {
            Ok(len) => len,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        if is_answer && shared.is(Way::Slow) {
            std::thread::sleep(SLOW);
        }
        // As with packets that are sent again, bytes arrive once the network works.
        while shared.is(Way::Silent) && !is_over() {
            std::thread::sleep(LOOK);
        }
        let bytes = match is_answer && shared.is(Way::Garbage) {
            true => &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            false => &buffer[..len],
        };
        if is_over() || to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    to.shutdown(Shutdown::Both)
}
