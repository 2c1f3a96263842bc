//! Idle connections over TLS, for the load that measures their memory.

use std::io::{Error, Result};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection};

use super::{Certificate, client};
use crate::Outcome;
use crate::server::Setup;

/// The servers' certificate, and the clients' configuration.
pub struct Idle {
    certificate: Certificate,
    config: Arc<ClientConfig>,
}

impl Idle {
    /// A new certificate.
    pub fn new() -> Outcome<Idle> {
        let certificate = Certificate::new(false)?;
        let config = client::config().map_err(|e| e.to_string())?;
        Ok(Idle { certificate, config: Arc::new(config) })
    }

    /// A server's setup, and the port on which it speaks TLS.
    pub fn setup(&self) -> Outcome<(Setup, u16)> {
        super::setup(&self.certificate, super::FILES, None)
    }

    /// A connection with one answered request behind it. The client's side of the session is
    /// dropped, and the server does not learn of that.
    pub fn one(&self, port: u16) -> Result<TcpStream> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut tls =
            ClientConnection::new(self.config.clone(), client::name()).map_err(Error::other)?;
        let mut session = rustls::Stream::new(&mut tls, &mut stream);
        crate::idle::ask(&mut session)?;
        Ok(stream)
    }
}
