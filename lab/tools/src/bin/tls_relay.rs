//! The floor of passing bytes on where TLS ends: as `relay`, but its clients speak TLS 1.3. rustls
//! shakes hands; behind that, records are opened and sealed where they were received, with the
//! connection's keys and no further protocol: a record of the client's that is no data ends it. A
//! side costs one wait, one `recv`, one `send`, and the cipher.
//!
//! `tls_relay PORT BACKEND CERTIFICATE KEY`: ports of the loopback, files in PEM.

#![forbid(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use bare::tls::{self, HEAD, ROOM, Records, Tls};
use bare::{Bare, Connections, Outcome};
use rustls::ServerConfig;

/// The content of a record at most.
const CONTENT: usize = 16 * 1024;

fn main() -> ExitCode {
    bare::run("tls_relay PORT BACKEND CERTIFICATE KEY", |arguments| {
        let &[port, backend, certificate, key] = arguments else { return None };
        let (port, backend) = (port.parse().ok()?, backend.parse().ok()?);
        Some(tls::config(certificate, key).and_then(|config| {
            let page = Vec::with_capacity(2 * CONTENT);
            bare::serve(port, &mut TlsRelay { backend, config, page, out: vec![0; ROOM] })
        }))
    })
}

/// One end of a pair.
struct End {
    other: usize,
    side: Side,
}

enum Side {
    Handshake(Box<Tls>),
    /// The client's records, and the part of one that has come.
    Client(Box<(Records, Records)>, Vec<u8>),
    Backend,
}

struct TlsRelay {
    backend: u16,
    config: Arc<ServerConfig>,
    page: Vec<u8>,
    /// What goes out to a client.
    out: Vec<u8>,
}

impl Bare for TlsRelay {
    type Own = End;

    fn accepted(&mut self, client: OwnedFd, all: &mut Connections<End>) -> Outcome {
        let Ok(upstream) = bare::connect(self.backend) else { return Ok(()) };
        let (a, b) = (client.as_raw_fd() as usize, upstream.as_raw_fd() as usize);
        let side = Side::Handshake(Box::new(Tls::new(&self.config)?));
        all.add(client, End { other: b, side })?;
        all.add(upstream, End { other: a, side: Side::Backend })?;
        Ok(())
    }

    fn readable(&mut self, index: usize, all: &mut Connections<End>) -> bool {
        let Some(end) = all.get(index) else { return false };
        let other = end.own.other;
        let alive = match end.own.side {
            Side::Handshake(_) => self.shake_hands(index, all),
            Side::Client(..) => self.decrypt(index, all),
            Side::Backend => self.encrypt(index, all),
        };
        if alive.is_none() {
            all.close(other);
        }
        alive.is_some()
    }
}

impl TlsRelay {
    fn shake_hands(&mut self, index: usize, all: &mut Connections<End>) -> Option<()> {
        let client = all.get(index)?;
        let Side::Handshake(mut tls) = std::mem::replace(&mut client.own.side, Side::Backend)
        else {
            return None;
        };
        tls.received.reserve(CONTENT);
        client.receive(&mut tls.received)?;
        self.page.clear();
        let (page, mut done) = (&mut self.page, false);
        let take = |record: &[u8]| page.extend_from_slice(record);
        let (written, open) = tls.work(&mut self.out, take, |_, _| {
            done = true;
            Some(0)
        });
        if !open || !client.send(&self.out[..written]) {
            return None;
        }
        if !done {
            client.own.side = Side::Handshake(tls);
            return Some(());
        }
        let (records, received) = tls.into_records()?;
        client.own.side = Side::Client(Box::new(records), received);
        let other = client.own.other;
        (page.is_empty() || all.get(other)?.send(page)).then_some(())?;
        // Behind the handshake there may be more already.
        self.decrypt(index, all)
    }

    /// Receives records, and sends their contents to the backend.
    fn decrypt(&mut self, index: usize, all: &mut Connections<End>) -> Option<()> {
        loop {
            let client = all.get(index)?;
            self.page.clear();
            let Side::Client(_, part) = &mut client.own.side else { return None };
            self.page.append(part);
            let room = self.page.capacity() - self.page.len();
            let came = client.receive(&mut self.page)?;
            let Side::Client(records, part) = &mut client.own.side else { return None };
            let (read, content) = records.0.open_all(&mut self.page)?;
            part.extend_from_slice(&self.page[read..]);
            let other = client.own.other;
            if content > 0 && !all.get(other)?.send(&self.page[..content]) {
                return None;
            }
            // Less than there was room for: that was all.
            if came < room {
                return Some(());
            }
        }
    }

    /// Receives from the backend, and sends it to the client as a record.
    fn encrypt(&mut self, index: usize, all: &mut Connections<End>) -> Option<()> {
        loop {
            let backend = all.get(index)?;
            let other = backend.own.other;
            let came = bare::receive(&backend.fd, &mut self.out[HEAD..HEAD + CONTENT])?;
            if came == 0 {
                return Some(());
            }
            let client = all.get(other)?;
            let Side::Client(records, _) = &mut client.own.side else { return None };
            let record = records.1.seal(&mut self.out, came)?;
            if !client.send(record) {
                return None;
            }
            if came < CONTENT {
                return Some(());
            }
        }
    }
}
