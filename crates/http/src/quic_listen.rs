//! Sockets of `listen … quic`: a client's server by its hello, and the session of its connection.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use common_modules::ssl::Established;
use common_modules::ssl::handshake::{self, Hello, NoHandshake};
use engine::Seat;
use engine::life::Active;
use engine::stats::Field;
use event::{Deadline, Fd};
use net::quic_relay::{HEAD_MAX, Inbox, Relay};
use os::SockAddr;
use quic::{Begin, Choice, Chosen, Client, Endpoint, Place, Server};
use upstream::resolver::Resolving;

use crate::answer::Answerer;
use crate::channel::conn::{Conn, Secured};
use crate::h3::Session;
use crate::http3_conf::Retry;
use crate::request::Request;
use crate::server::HttpMain;
use crate::ssl::{server_of, tls_of};

/// Handshakes under way from which on clients prove their addresses, with `quic_retry auto`.
const SHAKING_MANY: usize = 256;

/// The longest datagram.
const DATAGRAM_MAX: usize = 65_536;

/// The alerts of clients that nobody can speak with.
const PROTOCOL_VERSION: u8 = 70;
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// Serves socket `listen` of the configuration.
pub(crate) fn start(
    main: &Rc<HttpMain>,
    listen: usize,
    fd: OwnedFd,
    relay: &Rc<Relay>,
    seat: &Seat,
) -> Rc<Endpoint> {
    let listener = main.listens[listen].spec.addr.clone();
    let http3 = &main.listens[listen].address(|| None).default.http3;
    let (port, retry) = (listener.port(), http3.retry);
    let (alone, removals) = (seat.alone.clone(), seat.removals.clone());
    let place = Place { relay: relay.clone(), listener, alone, removals };
    // Without one of its own, tokens are good for the processes that read each other's ids.
    let secret = http3.host_key.as_deref().unwrap_or(relay.key().secret());
    let server = Listening { main: main.clone(), listen, port, retry };
    Endpoint::start(fd, place, secret, Box::new(server))
}

/// Takes what other processes have read, for connections of this one's.
pub(crate) async fn receive(inbox: Inbox, endpoints: Rc<[Rc<Endpoint>]>) {
    let Ok(copy) = os::fd::dup(&inbox) else { return };
    let (fd, mut buffer) = (Fd::new(copy), vec![0; HEAD_MAX + DATAGRAM_MAX]);
    loop {
        match inbox.recv(&mut buffer) {
            Ok(Some(message)) => {
                if let Some(endpoint) = receiver(&endpoints, &message.listener) {
                    endpoint.relayed(&message);
                }
            }
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if fd.readable(Deadline::NEVER).await.is_err() {
                    return;
                }
            }
            // Nobody is left who could send.
            Err(_) => return,
        }
    }
}

/// The endpoint that has the connections of an address. Where another process listens on one
/// address by now, it may be that of all addresses.
fn receiver<'a>(endpoints: &'a [Rc<Endpoint>], at: &SockAddr) -> Option<&'a Rc<Endpoint>> {
    let is_all = |own: &SockAddr| own.is_wildcard() && own.port() == at.port();
    let exact = endpoints.iter().find(|endpoint| endpoint.listener() == at);
    exact.or_else(|| endpoints.iter().find(|endpoint| is_all(endpoint.listener())))
}

/// The engine, for the clients of a socket.
struct Listening {
    main: Rc<HttpMain>,
    listen: usize,
    port: u16,
    retry: Retry,
}

impl Server for Listening {
    fn choose(&self, hello: quic::Hello<'_>, client: Client) -> Chosen {
        let main = self.main.clone();
        let local = client.local.map(|ip| SockAddr::ip(ip, self.port));
        let peer = SockAddr::from(client.remote);
        let c = Rc::new(Conn::over_quic(&main, self.listen, peer, local));
        main.stats.add(Field::Accepted, 1);
        main.stats.add(Field::Handled, 1);
        let mut hello = match &hello.0 {
            Ok(hello) => Hello::of(hello, main.asks_hello),
            Err(malformed) => Hello::malformed(Some(*malformed)),
        };
        let server = server_of(&c, hello.name.as_deref());
        let mut session = Established::new(tls_of(&c, &server).tls.clone());
        (session.server_name, session.hello) = (hello.name.take(), hello.message.take());
        let _ = c.tls.set(Rc::new(Secured { session, server }));
        Box::pin(async move {
            let choice = choose(&c, &main, &hello).await;
            let begin: Begin = Box::new(move |quic| {
                let kept = Box::new(Active::new(&main));
                Box::new(Session::new::<Answerer>(c, main, quic, (look_up, kept)))
            });
            (choice, begin)
        })
    }

    fn asks_proof(&self, under_way: usize) -> bool {
        match self.retry {
            Retry::Off => false,
            Retry::On => true,
            Retry::Auto => under_way >= SHAKING_MANY,
        }
    }

    fn has_room(&self, waiting: usize) -> bool {
        event::has_room(waiting + 1)
    }
}

/// The handshake's configuration of the server that the client named.
async fn choose(c: &Rc<Conn>, main: &Rc<HttpMain>, hello: &Hello) -> Choice {
    let server = c.server().clone();
    let (of, transport) = (tls_of(c, &server).clone(), &server.http3.transport);
    let names = of.tls.changing.as_ref().map(|changing| {
        let mut r = Request::take(c.clone(), main);
        let names = changing.names_for(&mut *r);
        Request::give_back(r);
        names
    });
    let until = Deadline::in_ms(c.head_timeout());
    let config = match handshake::config(hello, &server.tls, &of.tls, names, until).await {
        Ok(config) => config,
        Err(refused) => {
            let (alert, why) = refused.into_parts();
            return match why {
                NoHandshake::Say(level, m) => {
                    c.log(level, format_args!("{m} while SSL handshaking"));
                    Choice::refuse(alert, m, transport)
                }
                NoHandshake::Gone => Choice::refuse(alert, String::new(), transport),
            };
        }
    };
    of.tls
        .update_staples(|| of.root.confs.get::<Resolving>().cloned().unwrap_or_default().lookup());
    let alpn = server.http3.alpn();
    if alpn.is_empty() {
        return Choice::refuse(NO_APPLICATION_PROTOCOL, "HTTP/3 is off".to_owned(), transport);
    }
    match config.quic(alpn) {
        Some(config) => Choice::new(config, transport),
        None => Choice::refuse(PROTOCOL_VERSION, "TLS 1.3 is off".to_owned(), transport),
    }
}

/// Has a client's certificate looked up, where its server asks for that; its requests wait.
fn look_up(c: &Rc<Conn>, is_held: &Rc<Cell<bool>>, quic: &Rc<quic::Connection>) {
    let Some(tls) = c.tls.get() else { return };
    let of = tls_of(c, &tls.server).clone();
    if !of.tls.looks_up_clients() {
        return;
    }
    is_held.set(true);
    let (c, is_held, quic) = (c.clone(), is_held.clone(), quic.clone());
    event::spawn(async move {
        if let Some(tls) = c.tls.get() {
            let resolving = of.root.confs.get::<Resolving>().cloned().unwrap_or_default();
            let log = &of.root.core.error_log;
            Box::pin(tls.session.look_up(&resolving.lookup(), log, c.number)).await;
        }
        is_held.set(false);
        quic.touch();
    });
}
