//! `listen … proxy_protocol`: versions 1 and 2, broken headers, and requests behind a header.

use std::time::Duration;

use testkit::{Conn, Driver, Site, Weir, built_binary, each_site, wait_until};

fn site(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .http(
            "client_header_timeout 300ms;
             server {
                 listen 127.0.0.1:%PORT0% proxy_protocol;
                 add_header X-From $proxy_protocol_addr!$proxy_protocol_port;
                 add_header X-To $proxy_protocol_server_addr!$proxy_protocol_server_port;
                 add_header X-Tlv $proxy_protocol_tlv_alpn!$proxy_protocol_tlv_0x02;
                 add_header X-Ssl $proxy_protocol_tlv_ssl_cn!$proxy_protocol_tlv_ssl_verify;
                 add_header X-Peer $remote_addr;
             }",
        )
        .start()
}

const REQUEST: &str = "GET /a.txt HTTP/1.0\r\n\r\n";
const V1: &str = "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n";

fn v2(family: u8, addresses: &[u8], tlvs: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
    header.push(family);
    header.extend_from_slice(&((addresses.len() + tlvs.len()) as u16).to_be_bytes());
    header.extend_from_slice(addresses);
    header.extend_from_slice(tlvs);
    header
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut all = vec![kind];
    all.extend_from_slice(&(value.len() as u16).to_be_bytes());
    all.extend_from_slice(value);
    all
}

const ADDRESSES: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 22, 46];

/// Sends a header with a request behind it; the values of `X-From` and `X-To`.
fn told(weir: &Weir, header: &[u8]) -> (String, String) {
    let mut c = weir.connect();
    c.send([header, REQUEST.as_bytes()].concat());
    let r = c.response();
    assert_eq!(
        (r.status, &r.body[..], r.header("x-peer")),
        (200, &b"hello"[..], Some("127.0.0.1"))
    );
    (r.header("x-from").unwrap().to_owned(), r.header("x-to").unwrap().to_owned())
}

#[test]
fn headers_of_both_versions() {
    each_site(site, |weir| {
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(told(&weir, V1.as_bytes()), pair("192.0.2.1!123", "192.0.2.2!5678"));
        let v6 = b"PROXY TCP6 2001:Db8::1 2001:db8::2 123 5678\r\n";
        assert_eq!(told(&weir, v6), pair("2001:Db8::1!123", "2001:db8::2!5678"));
        for unknown in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN 1 2 3 4\r\n"] {
            assert_eq!(told(&weir, unknown.as_bytes()), pair("!", "!"));
        }
        let both = pair("192.0.2.1!123", "192.0.2.2!5678");
        assert_eq!(told(&weir, &v2(0x11, &ADDRESSES, b"")), both);
        let mut six = [0; 36];
        six[..2].copy_from_slice(&[0x20, 0x01]);
        six[15] = 1;
        six[31] = 2;
        assert_eq!(told(&weir, &v2(0x21, &six, b"")), pair("2001::1!", "::2!"));
    });
}

#[test]
fn type_length_values() {
    each_site(site, |weir| {
        let ssl = [&[1, 0, 0, 0, 7][..], &tlv(0x22, b"example.com")].concat();
        let tlvs = [tlv(1, b"h2"), tlv(2, b"host"), tlv(0x20, &ssl)].concat();
        let mut c = weir.connect();
        c.send([&v2(0x11, &ADDRESSES, &tlvs)[..], REQUEST.as_bytes()].concat());
        let r = c.response();
        assert_eq!(r.header("x-tlv"), Some("h2!host"));
        assert_eq!(r.header("x-ssl"), Some("example.com!7"));
    });
}

#[test]
fn a_header_may_come_in_pieces_and_alone() {
    each_site(site, |weir| {
        for header in [V1.as_bytes(), &v2(0x11, &ADDRESSES, &tlv(1, b"h2"))] {
            let mut c = weir.connect();
            for piece in [&header[..5], &header[5..20], &header[20..]] {
                c.send(piece);
                std::thread::sleep(Duration::from_millis(10));
            }
            let (first, rest) = REQUEST.split_at(4);
            c.send(first);
            c.send(rest);
            assert_eq!(c.response().header("x-from"), Some("192.0.2.1!123"));
        }
        // All requests of the connection are in the name of that client.
        let mut c = weir.connect();
        let one = "GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n";
        c.send(format!("{V1}{one}{one}"));
        c.send(one);
        assert!(c.responses(3).iter().all(|r| r.header("x-from") == Some("192.0.2.1!123")));
    });
}

#[test]
fn what_is_no_header_is_logged_and_closed_on() {
    each_site(site, |weir| {
        let refused = |bytes: &[u8], log: &str| {
            let mut c = Conn::tcp(weir.port(0));
            c.send(bytes);
            assert!(c.is_closed(), "{log}");
            weir.wait_for_log("error.log", log);
        };
        let tail = format!(
            " while reading PROXY protocol, client: 127.0.0.1, server: 127.0.0.1:{}",
            weir.port(0)
        );
        let said = |what: &str| format!("{what}{tail}");
        refused(REQUEST.as_bytes(), &said("broken header: \"GET /a.txt HTTP/1.0\""));
        refused(b"PROXY TCP4 x\r\n", &said("broken header: \"PROXY TCP4 x\""));
        refused(b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\0", &said("unknown PROXY protocol version: 1"));
        refused(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", &said("header is too large"));
        // Silent and unfinished headers have the timeout of a request's header.
        refused(b"PROXY TCP4 ", &said("client timed out (110: Connection timed out)"));
        let mut c = weir.connect();
        c.finish_sending();
        assert!(c.is_closed());
        weir.wait_for_log("error.log", &said("client closed connection"));
    });
}

#[test]
fn a_header_may_come_to_a_worker_that_leaves() {
    let site = |driver: Driver| {
        let http =
            "server { listen 127.0.0.1:%PORT0% proxy_protocol; return 200 $proxy_protocol_addr; }";
        Site::new(built_binary(), driver).http(http).start()
    };
    each_site(site, |weir| {
        let old = weir.workers()[0];
        let before = weir.open_descriptors(old);
        let mut c = weir.connect();
        wait_until("the worker has the connection", || weir.open_descriptors(old) > before);
        weir.reload();
        let title = || std::fs::read_to_string(format!("/proc/{old}/cmdline")).unwrap_or_default();
        let leaves = || title().contains("shutting down");
        wait_until("the old worker leaves", leaves);
        c.send([V1, "GET / HTTP/1.0\r\n\r\n"].concat());
        let r = c.response();
        assert_eq!((r.status, &r.body[..]), (200, &b"192.0.2.1"[..]));
        weir.wait_until_left(&[old]);
    });
}
