//! Idle connections of HTTP/2, for the load that measures their memory.

use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection};

use super::prompt_setup;
use crate::Outcome;
use crate::server::{Kind, Setup};
use crate::tls::{Certificate, client as tls_client};
use testkit::h2::scan::{self as client, Scan};

/// Requests on each connection before it is idle.
const REQUESTS: u32 = 10;

/// The servers' certificate, and the clients' configuration.
pub struct Idle {
    certificate: Certificate,
    /// None in the clear.
    config: Option<Arc<ClientConfig>>,
}

impl Idle {
    /// In the clear, or over TLS.
    pub fn new(tls: bool) -> Outcome<Idle> {
        let config = |mut config: ClientConfig| {
            config.alpn_protocols = vec![b"h2".to_vec()];
            Arc::new(config)
        };
        let config = match tls {
            true => Some(tls_client::config().map(config).map_err(|e| e.to_string())?),
            false => None,
        };
        Ok(Idle { certificate: Certificate::new(false)?, config })
    }

    /// A server's setup, and the port on which it speaks HTTP/2.
    pub fn setup(&self, kind: Kind) -> Outcome<(Setup, u16)> {
        let (setup, ports) = prompt_setup(kind, &self.certificate, 9)?;
        Ok((setup, if self.config.is_some() { ports.tls } else { ports.clear }))
    }

    /// A connection with answered requests behind it. Over TLS the client's side of the session is
    /// dropped, and the server does not learn of that.
    pub fn one(&self, port: u16) -> Result<TcpStream> {
        let mut stream = client::connect(port)?;
        match &self.config {
            None => ask(&mut stream)?,
            Some(config) => {
                let tls = ClientConnection::new(config.clone(), tls_client::name());
                let mut tls = tls.map_err(Error::other)?;
                ask(&mut rustls::Stream::new(&mut tls, &mut stream))?;
            }
        }
        Ok(stream)
    }
}

fn ask(stream: &mut (impl Read + Write)) -> Result<()> {
    stream.write_all(&client::start(&[]))?;
    let mut scan = Scan::default();
    for n in 0..REQUESTS {
        client::ask(stream, &mut scan, 2 * n + 1, "/1k.txt")?;
    }
    Ok(())
}
