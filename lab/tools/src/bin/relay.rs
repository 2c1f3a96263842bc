//! The floor of passing bytes on: each connection gets one of its own to the backend, and bytes
//! received on either are sent on the other with one `recv` and one `send`. It knows no protocol,
//! has no timers and no log: a proxy cannot be cheaper with these calls, and its further cost is
//! its own work.
//!
//! `relay PORT BACKEND`: both are ports of the loopback.

#![forbid(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitCode;

use bare::{Bare, Connections, Outcome};

fn main() -> ExitCode {
    bare::run("relay PORT BACKEND", |arguments| {
        let &[port, backend] = arguments else { return None };
        let (port, backend) = (port.parse().ok()?, backend.parse().ok()?);
        Some(bare::serve(port, &mut Relay { backend, page: Vec::with_capacity(16 * 1024) }))
    })
}

struct Relay {
    backend: u16,
    page: Vec<u8>,
}

impl Bare for Relay {
    /// The other end of the pair.
    type Own = usize;

    fn accepted(&mut self, client: OwnedFd, all: &mut Connections<usize>) -> Outcome {
        let Ok(upstream) = bare::connect(self.backend) else { return Ok(()) };
        let (a, b) = (client.as_raw_fd() as usize, upstream.as_raw_fd() as usize);
        all.add(client, b)?;
        all.add(upstream, a)?;
        Ok(())
    }

    fn readable(&mut self, index: usize, all: &mut Connections<usize>) -> bool {
        let Some(other) = all.get(index).map(|c| c.own) else { return false };
        let alive = self.copy(index, other, all).is_some();
        if !alive {
            all.close(other);
        }
        alive
    }
}

impl Relay {
    fn copy(&mut self, from: usize, to: usize, all: &mut Connections<usize>) -> Option<()> {
        loop {
            self.page.clear();
            let came = all.get(from)?.receive(&mut self.page)?;
            if came > 0 && !all.get(to)?.send(&self.page) {
                return None;
            }
            // Less than there was room for: that was all.
            if came < self.page.capacity() {
                return Some(());
            }
        }
    }
}
