//! Idle connections of HTTP/3, for the load that measures their memory.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use testkit::h3::Client;

use super::setup;
use crate::Outcome;
use crate::server::{Kind, Setup};
use crate::tls::Certificate;

/// Requests on each connection before it is idle.
const REQUESTS: u32 = 10;
/// The time for what a server sends behind them: confirmations, and probes of the path.
const SETTLES: Duration = Duration::from_millis(60);

/// The servers' certificate.
pub struct Idle(Certificate);

impl Idle {
    /// A new certificate.
    pub fn new() -> Outcome<Idle> {
        Certificate::new(false).map(Idle)
    }

    /// A server's setup, and the port on which it speaks HTTP/3.
    pub fn setup(&self, kind: Kind) -> Outcome<(Setup, u16)> {
        setup(&self.0, 9, kind != Kind::Nginx)
    }

    /// The socket of a connection with answered requests behind it. The client's side of the
    /// connection is dropped, and the server does not learn of that.
    pub fn one(&self, port: u16) -> UdpSocket {
        let mut client = Client::connect(port, "localhost");
        for _ in 0..REQUESTS {
            let response = client.get("/fixed");
            assert_eq!((response.status, response.body.len()), (200, 1024));
        }
        let began = Instant::now();
        while began.elapsed() < SETTLES {
            client.quic().turn();
        }
        client.into_quic().into_socket()
    }
}
