//! Connections to an authority, whose answers are held back as a test wants.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use testkit::pebble::Pebble;
use testkit::{Scripted, wait_until};

#[derive(Default)]
struct State {
    /// Connections are passed on; else they wait.
    is_open: bool,
    /// The requests that the authority had got before.
    asked_before: usize,
    /// The path of the request whose answer does not reach its client, and the number among those
    /// with this path, from 1.
    held: Option<(&'static str, usize)>,
    /// It has come from the authority.
    has_come: bool,
}

#[derive(Default)]
struct Shared(Mutex<State>, Condvar);

impl Shared {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.1.notify_all();
        changed
    }

    fn wait_while(&self, not_yet: impl FnMut(&mut State) -> bool) {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.1.wait_while(state, not_yet));
    }
}

/// A server between the acme process and the authority. Each request has a connection of its own,
/// so an answer that is held is a state of the order: the authority has done what it was asked for,
/// and its client does not know.
pub struct Gateway {
    pub port: u16,
    pebble: Arc<Pebble>,
    shared: Arc<Shared>,
}

impl Gateway {
    /// Starts it before an authority; closed.
    pub fn start(pebble: &Arc<Pebble>) -> Gateway {
        let shared = Arc::new(Shared::default());
        // The threads of connections outlive the test, and the authority must not.
        let (own, port, authority) = (shared.clone(), pebble.port(), Arc::downgrade(pebble));
        // A connection that fails is one that the authority does not answer, as for its clients.
        let server = Scripted::start(move |client, _| drop(relay(client, port, &authority, &own)));
        Gateway { port: server.port, pebble: pebble.clone(), shared }
    }

    /// Lets no connection through until it is opened, and holds the answer to the request of this
    /// path that comes as the `number`th from now on.
    pub fn close(&self, path: &'static str, number: usize) {
        let asked_before = self.pebble.asked().len();
        let held = Some((path, number));
        self.shared.with(|state| *state = State { asked_before, held, ..State::default() });
    }

    /// Lets connections through.
    pub fn open(&self) {
        self.shared.with(|state| state.is_open = true);
    }

    /// Waits until the answer is held, and the authority has looked at the challenges that it was
    /// asked to look at: it does so behind its answer, and one that finds nobody fails the order.
    pub fn wait(&self) {
        wait_until("an answer to hold", || self.shared.with(|state| state.has_come));
        wait_until("the challenges to be looked at", || {
            let asked = self.pebble.asked();
            self.pebble.validations() == asked.iter().filter(|path| *path == "/chalZ/").count()
        });
    }

    /// Holds no answer any more.
    pub fn go_on(&self) {
        self.shared.with(|state| state.held = None);
    }
}

fn relay(
    mut client: TcpStream,
    port: u16,
    pebble: &Weak<Pebble>,
    shared: &Shared,
) -> io::Result<()> {
    shared.wait_while(|state| !state.is_open);
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    // The client's bytes behind the authority's first ones, those of the handshake, are the end of
    // the handshake and its request; what comes then is the answer.
    let (is_met, has_asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    let (met, asked) = (is_met.clone(), has_asked.clone());
    std::thread::spawn(move || {
        let mut page = [0; 16 << 10];
        while let Ok(n @ 1..) = from.read(&mut page) {
            asked.store(met.load(Ordering::SeqCst), Ordering::SeqCst);
            if to.write_all(&page[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut page, mut answer) = ([0; 16 << 10], Vec::new());
    while let Ok(n @ 1..) = server.read(&mut page) {
        is_met.store(true, Ordering::SeqCst);
        if has_asked.load(Ordering::SeqCst) {
            answer.extend_from_slice(&page[..n]);
        } else {
            client.write_all(&page[..n])?;
        }
    }
    // The authority has ended the connection: the last of its requests is this one's.
    if is_held(pebble, shared) {
        shared.with(|state| state.has_come = true);
        shared.wait_while(|state| state.held.is_some());
    }
    // Its client may be dead.
    client.write_all(&answer)?;
    client.shutdown(Shutdown::Both)
}

fn is_held(pebble: &Weak<Pebble>, shared: &Shared) -> bool {
    let (held, asked_before) =
        shared.with(|state| (state.held.filter(|_| !state.has_come), state.asked_before));
    let Some((path, number)) = held else { return false };
    let Some(pebble) = pebble.upgrade() else { return false };
    let asked = pebble.asked().split_off(asked_before);
    asked.last().is_some_and(|last| last == path)
        && asked.iter().filter(|one| *one == path).count() == number
}
