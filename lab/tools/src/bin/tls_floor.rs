//! The floor with TLS: one thread, one edge-triggered epoll, rustls without buffers of its own, and
//! a fixed response of 1 KB for each request head. What a server takes beyond it is its own work;
//! what the floor takes beyond the plain one is the price of TLS.
//!
//! `tls_floor PORT CERTIFICATE KEY`: files in PEM.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;

use bare::tls::{self, ROOM, Tls};
use bare::{Bare, Connections, Outcome};
use rustix::buffer::spare_capacity;
use rustls::ServerConfig;

const BODY: usize = 1024;

fn main() -> ExitCode {
    bare::run("tls_floor PORT CERTIFICATE KEY", |arguments| {
        let &[port, certificate, key] = arguments else { return None };
        let port = port.parse().ok()?;
        let mut response = bare::head(BODY as u64, true);
        response.resize(response.len() + BODY, b'x');
        Some(tls::config(certificate, key).and_then(|config| {
            bare::serve(port, &mut TlsFloor { config, response, out: vec![0; ROOM] })
        }))
    })
}

struct TlsFloor {
    config: Arc<ServerConfig>,
    response: Vec<u8>,
    out: Vec<u8>,
}

impl Bare for TlsFloor {
    type Own = Tls;

    fn accepted(&mut self, client: OwnedFd, all: &mut Connections<Tls>) -> Outcome {
        all.add(client, Tls::new(&self.config)?)?;
        Ok(())
    }

    fn readable(&mut self, index: usize, all: &mut Connections<Tls>) -> bool {
        all.get(index).is_some_and(|c| {
            loop {
                c.own.received.reserve(4096);
                let room = c.own.received.capacity() - c.own.received.len();
                let Some(came) = bare::receive(&c.fd, spare_capacity(&mut c.own.received)) else {
                    return false;
                };
                if came == 0 {
                    return true;
                }
                let requests = Cell::new(0);
                let take = |record: &[u8]| {
                    let heads = record.windows(4).filter(|w| w == b"\r\n\r\n").count();
                    requests.set(requests.get() + heads);
                };
                let (written, open) = c.own.work(&mut self.out, take, |traffic, out| {
                    let answer = |written, _| {
                        let len = traffic.encrypt(&self.response, &mut out[written..]).ok()?;
                        Some(written + len)
                    };
                    (0..requests.get()).try_fold(0, answer)
                });
                if written > 0 && !c.send(&self.out[..written]) || !open {
                    return false;
                }
                if came < room {
                    return true;
                }
            }
        })
    }
}
