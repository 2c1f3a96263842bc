//! Idle sessions of `stream`, for the load that measures their memory.

use std::io::{Error, Read, Result, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::Outcome;
use crate::helper::Helper;
use crate::idle::Held;
use crate::options::Options;
use crate::server::{Setup, free_port, new_folder};
use crate::tls::Certificate;

/// The backend, and whether sessions are of datagrams.
pub struct Idle {
    behind: Helper,
    certificate: Certificate,
    udp: bool,
}

impl Idle {
    /// Over TCP, or UDP.
    pub fn new(options: &Options, udp: bool) -> Outcome<Idle> {
        let port = free_port()?;
        let mut arguments = vec![port.to_string()];
        arguments.extend(udp.then(|| "udp".to_string()));
        let behind = Helper::start(1, &options.floor, &arguments, port, new_folder()?)?;
        Ok(Idle { behind, certificate: Certificate::new(false)?, udp })
    }

    /// A server's setup, and the port of the sessions where it is not the usual one. A session is
    /// two connections.
    pub fn setup(&self, sessions: usize) -> Outcome<(Setup, Option<u16>)> {
        let port = self.behind.port;
        let (setup, ports) = super::setup(&self.certificate, port, port)?;
        // A tenth more: from 95 % on weir makes room.
        Ok((Setup { connections: sessions * 22 / 10, ..setup }, self.udp.then_some(ports.udp)))
    }

    /// A session with one answered request behind it.
    pub fn one(&self, port: u16) -> Result<Held> {
        let (timeout, mut buffer) = (Some(Duration::from_secs(10)), [0; 2048]);
        if self.udp {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect((Ipv4Addr::LOCALHOST, port))?;
            socket.set_read_timeout(timeout)?;
            socket.send(&[b'x'; 64])?;
            socket.recv(&mut buffer)?;
            return Ok(Held::Udp(socket));
        }
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(timeout)?;
        stream.write_all(b"GET /1k HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut len = 0;
        // A head and 1 KB.
        while len < 1100 {
            match stream.read(&mut buffer)? {
                0 => return Err(Error::other("closed instead of answered")),
                more => len += more,
            }
        }
        Ok(Held::Tcp(stream))
    }
}
