//! Requests that come in odd records.

use crate::tls::{Client, Pair};
use testkit::certificates::KeyKind;
use testkit::{Site, built_binary, each_driver, pattern};

/// The end of a head and much of its body are in one record, which no longer fits where the
/// beginning of the head is.
#[test]
fn a_head_can_end_in_a_long_record() {
    each_driver(|driver| {
        let pair = Pair::own(KeyKind::P256, "a.example");
        let weir = pair.on(Site::new(built_binary(), driver), "a");
        let weir = weir.http(
            "server { listen 127.0.0.1:%PORT0% ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
            location / { proxy_pass http://127.0.0.1:%PORT1%; } }
            server { listen 127.0.0.1:%PORT1%; location / { return 200 $content_length; } }",
        );
        let weir = weir.start();
        for len in [100, 16_000, 16_384, 40_000] {
            let mut conn = Client::of("a.example").connect(weir.port(0));
            conn.send("POST / HTTP/1.1\r\nHost: x\r\nX: ");
            let mut rest = format!("y\r\nContent-Length: {len}\r\n\r\n").into_bytes();
            rest.extend(pattern(len, 1));
            conn.send(rest);
            assert_eq!(conn.response().text(), len.to_string());
        }
    });
}
