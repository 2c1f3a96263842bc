//! The floor with TLS: one thread, one edge-triggered epoll, rustls without buffers of its own, and
//! a fixed response of 1 KB for each request head. What a server takes beyond it is its own work;
//! what the floor takes beyond the plain one is the price of TLS.
//!
//! `tls_floor PORT CERTIFICATE KEY`: files in PEM.

#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ServerConfig, SupportedProtocolVersion};

const BODY: usize = 1024;
const LISTENER: u64 = u64::MAX;
const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// The most that one turn of a connection writes: a server's first flight, or some answers.
const ROOM: usize = 64 * 1024;

type Failed = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, certificate, key] = arguments.as_slice() else {
        eprintln!("usage: tls_floor PORT CERTIFICATE KEY");
        return ExitCode::from(2);
    };
    match config(certificate, key).and_then(|config| serve(port.parse()?, Arc::new(config))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tls_floor: {e}");
            ExitCode::FAILURE
        }
    }
}

fn config(certificate: &str, key: &str) -> Result<ServerConfig, Failed> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(VERSIONS)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    Ok(config)
}

struct Connection {
    fd: OwnedFd,
    tls: UnbufferedServerConnection,
    /// The part of a record that has come.
    received: Vec<u8>,
    unsent: Vec<u8>,
}

fn serve(port: u16, config: Arc<ServerConfig>) -> Result<(), Failed> {
    let listener = listen(port)?;
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64(LISTENER);
    epoll::add(&queue, &listener, data, epoll::EventFlags::IN)?;
    let response = response();
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(512);
    let mut out = vec![0; ROOM];
    loop {
        events.clear();
        match epoll::wait(&queue, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &events {
            if event.data.u64() == LISTENER {
                accept_all(&listener, &queue, &config, &mut connections)?;
                continue;
            }
            let Some(slot) = connections.get_mut(event.data.u64() as usize) else { continue };
            let Some(connection) = slot else { continue };
            if !turn(connection, &response, &mut out) {
                *slot = None;
            }
        }
    }
}

fn listen(port: u16) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    net::bind(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    net::listen(&fd, 4096)?;
    Ok(fd)
}

fn response() -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Type: text/plain\r\n\
         Content-Length: {BODY}\r\nConnection: keep-alive\r\n\r\n"
    )
    .into_bytes();
    bytes.resize(bytes.len() + BODY, b'x');
    bytes
}

fn accept_all(
    listener: &OwnedFd,
    queue: &OwnedFd,
    config: &Arc<ServerConfig>,
    connections: &mut Vec<Option<Connection>>,
) -> Result<(), Failed> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        let fd = match net::accept_with(listener, flags) {
            Ok(fd) => fd,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        sockopt::set_tcp_nodelay(&fd, true)?;
        let index = fd.as_raw_fd() as usize;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(queue, fd.as_fd(), epoll::EventData::new_u64(index as u64), interest)?;
        if connections.len() <= index {
            connections.resize_with(index + 1, || None);
        }
        let tls = UnbufferedServerConnection::new(config.clone())?;
        let (received, unsent) = (Vec::with_capacity(4096), Vec::new());
        connections[index] = Some(Connection { fd, tls, received, unsent });
    }
}

/// Receives, works on it, sends; false when the connection is over.
fn turn(c: &mut Connection, response: &[u8], out: &mut [u8]) -> bool {
    if !c.unsent.is_empty() {
        let unsent = std::mem::take(&mut c.unsent);
        if !send(c, &unsent) {
            return false;
        }
    }
    loop {
        c.received.reserve(4096);
        match net::recv(&c.fd, spare_capacity(&mut c.received), RecvFlags::empty()) {
            Ok((_, 0)) | Err(Errno::CONNRESET | Errno::PIPE) => return false,
            Err(Errno::AGAIN) => return true,
            Err(Errno::INTR) => continue,
            Err(_) => return false,
            Ok(_) => {}
        }
        let whole = c.received.len() < c.received.capacity();
        let (written, open) = work(c, response, out);
        if written > 0 && !send(c, &out[..written]) || !open {
            return false;
        }
        if whole {
            return true;
        }
    }
}

/// Works on what was received. Gives the bytes written, and whether the connection goes on.
fn work(c: &mut Connection, response: &[u8], out: &mut [u8]) -> (usize, bool) {
    let (mut read, mut written, mut requests, mut open) = (0, 0, 0, true);
    loop {
        let UnbufferedStatus { mut discard, state } =
            c.tls.process_tls_records(&mut c.received[read..]);
        let mut more = true;
        match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                match data.encode(&mut out[written..]) {
                    Ok(len) => written += len,
                    Err(EncodeError::InsufficientSize(_) | EncodeError::AlreadyEncoded) => {
                        (more, open) = (false, false);
                    }
                }
            }
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let Ok(record) = record else { return (written, false) };
                    discard += record.discard;
                    requests += record.payload.windows(4).filter(|w| w == b"\r\n\r\n").count();
                }
            }
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                for _ in 0..std::mem::take(&mut requests) {
                    let Ok(len) = traffic.encrypt(response, &mut out[written..]) else {
                        return (written, false);
                    };
                    written += len;
                }
                more = false;
            }
            Ok(ConnectionState::BlockedHandshake) => more = false,
            _ => (more, open) = (false, false),
        }
        read += discard;
        if !more {
            break;
        }
    }
    c.received.drain(..read);
    (written, open)
}

/// Sends as much as the socket takes and keeps the rest.
fn send(c: &mut Connection, bytes: &[u8]) -> bool {
    match net::send(&c.fd, bytes, SendFlags::NOSIGNAL) {
        Ok(sent) => c.unsent.extend(&bytes[sent..]),
        Err(Errno::AGAIN) => c.unsent.extend(bytes),
        Err(_) => return false,
    }
    true
}
