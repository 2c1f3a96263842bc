//! Files of certificates and keys: read again when they change, and gone from memory when they are
//! read.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::memory_search::count_in_memory;
use crate::tls::{Client, Pair};
use testkit::certificates::{KeyKind, der};
use testkit::{Driver, Site, built_binary, each_driver};

const SERVER: &str = "server { listen 127.0.0.1:%PORT0% ssl; ssl_certificate a.pem;
    ssl_certificate_key a.key; }\n";

/// Writes into a file that is there already, and keeps the time of its last change.
fn renew(path: &Path, text: &str) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    renew_at(path, text, before);
}

fn renew_at(path: &Path, text: &str, at: SystemTime) {
    fs::write(path, text).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_modified(at).unwrap();
}

#[test]
fn a_certificate_that_is_renewed_with_its_old_time_is_read() {
    each_driver(|driver| {
        let first = Pair::own(KeyKind::P256, "a.example");
        let site = first.on(Site::new(built_binary(), driver), "a");
        let weir = site.http(SERVER).start();
        let shown = || Client::of("a.example").try_connect(weir.port(0)).unwrap().1.certificate;
        assert_eq!(shown(), first.certificate);
        let conf = weir.prefix().join("conf");
        // Both keep their times, and one alone does.
        for keeps_both in [true, false] {
            let next = Pair::own(KeyKind::P256, "a.example");
            renew(&conf.join("a.pem"), &der::pem("CERTIFICATE", &next.certificate));
            match keeps_both {
                true => renew(&conf.join("a.key"), &next.key.pem()),
                false => fs::write(conf.join("a.key"), next.key.pem()).unwrap(),
            }
            let workers = weir.workers();
            weir.reload();
            weir.wait_until_left(&workers);
            assert_eq!(shown(), next.certificate);
        }
    });
}

/// The private number of a key on P-256.
fn scalar(pem: &str) -> Vec<u8> {
    let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let mut der = Vec::new();
    assert!(base::base64::decode(base64.as_bytes(), &mut der));
    // In PKCS#8 it is an octet string of 32 bytes.
    let at = memchr::memmem::find(&der, &[4, 32]).unwrap() + 2;
    der[at..at + 32].to_vec()
}

#[test]
fn of_a_key_its_number_alone_is_in_memory_and_once() {
    let pair = Pair::own(KeyKind::P256, "a.example");
    let site = pair.on(Site::new(built_binary(), Driver::usual()), "a");
    let servers: String = (0..5)
        .map(|n| SERVER.replace("ssl;", &format!("ssl; server_name s{n}.example;")))
        .collect();
    let weir = site.http(&servers).start();
    let pem = pair.key.pem();
    let (line, number) = (pem.lines().nth(1).unwrap(), scalar(&pem));
    let mut reversed = number.clone();
    reversed.reverse();
    let look = || {
        for pid in [weir.pid(), weir.workers()[0]] {
            assert_eq!(count_in_memory(pid, line.as_bytes()), 0, "the text in {pid}");
            assert_eq!(count_in_memory(pid, &number), 0, "DER in {pid}");
            // The library has numbers from their least digit on.
            assert_eq!(count_in_memory(pid, &reversed), 1, "the number in {pid}");
        }
    };
    look();
    let workers = weir.workers();
    weir.reload();
    weir.wait_until_left(&workers);
    look();
}
