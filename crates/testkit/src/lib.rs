//! End-to-end tests over real sockets with the real binary. Development only.
//!
//! ```no_run
//! # let binary = "weir"; // in a test of the package `weir`: testkit::built_binary()
//! testkit::each_driver(|driver| {
//!     let weir = testkit::Site::new(binary, driver)
//!         .file("html/a.txt", b"hello")
//!         .http("server { listen 127.0.0.1:%PORT0%; root html; }")
//!         .start();
//!     assert_eq!(weir.get("/a.txt").body, b"hello");
//! });
//! ```
//!
//! A [`Site`] is a folder of its own with a configuration; [`Weir`] is the server running on it.
//! Dropping it stops the server and fails the test if the error log holds an alert or worse, if
//! anything panicked, or if a process was left behind.
//!
//! Standard library only, but for system calls that it lacks, for TLS and keys, for header blocks
//! of HTTP/2, and for QUIC.
//! Everything here may panic: that is how a test fails.

#![forbid(unsafe_code)]
#![allow(clippy::panic)]

mod any_certificate;
mod backend;
mod binary;
pub mod certificates;
mod client;
pub mod collector;
mod daemon;
mod dovecot;
mod drivers;
mod folder;
mod group;
pub mod h2;
pub mod h3;
mod json;
mod maria;
pub mod mmdb;
mod notices;
pub mod openssl;
mod pair;
pub mod pebble;
mod peer;
mod ports;
mod procfs;
mod program;
pub mod rng;
mod scripted;
mod site;
mod stalling;
mod turns;
pub mod udp;
pub mod udp_relay;
mod weir;
mod weir_logs;

pub use any_certificate::{AnyCertificate, AnySignature};
pub use backend::Backend;
pub use binary::built_binary;
pub use client::{Conn, Response};
pub use collector::Collector;
pub use daemon::{Daemon, is_alive};
pub use dovecot::Dovecot;
pub use drivers::{Driver, each_driver, each_site, on_all_drivers, site_on_all_drivers};
pub use folder::Folder;
pub use json::Json;
pub use maria::Maria;
pub use pair::Pair;
pub use peer::Peer;
pub use ports::{Port, bind_datagrams, listen};
pub use program::{copy_program, write_script};
pub use scripted::{Scripted, is_acknowledged, listener, read_until};
pub use site::Site;
pub use stalling::StallingFolder;
pub use turns::{Seen, Sleep, Turns};
pub use weir::{Weir, signal};

/// The limit of every wait in a test. Generous: test machines are busy.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Checks that an `http` block is refused with each of these texts in the place of its `*`, and
/// with a message that has the text beside it.
pub fn refused(http: &str, cases: &[(&str, &str)]) {
    for (text, message) in cases {
        let site = Site::new(built_binary(), Driver::usual());
        site.http(&http.replacen('*', text, 1)).is_refused(message);
    }
}

/// Tries until `probe` returns something; panics after [`PATIENCE`], naming `what`.
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let began = std::time::Instant::now();
    // Many probes read the kernel's tables, and what is waited for may need the core.
    let mut pause = std::time::Duration::from_millis(1);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(std::time::Duration::from_millis(16));
    }
}

/// Waits until `met` is true; panics after [`PATIENCE`], naming `what`.
pub fn wait_until(what: &str, mut met: impl FnMut() -> bool) {
    wait_for(what, || met().then_some(()));
}

/// The answer to the key of a request for WebSocket (RFC 6455 section 4.2.2).
pub fn websocket_accept(key: &str) -> String {
    use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    // Base64 of 20 bytes: six groups, and two bytes that are padded.
    let mut bytes = digest.as_ref().to_vec();
    bytes.push(0);
    let groups = bytes.chunks(3).map(|b| u32::from_be_bytes([0, b[0], b[1], b[2]]));
    let digit = |group: u32, n: u32| char::from(DIGITS[(group >> (18 - 6 * n) & 63) as usize]);
    let mut accept: String = groups.flat_map(|g| (0..4).map(move |n| digit(g, n))).collect();
    accept.replace_range(27.., "=");
    accept
}

/// Bytes in which a wrong offset shows: the content of a test's file. Each `seed` has its own.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i / 7 + seed) % 251) as u8).collect()
}
