//! `geo` over real connections.

use testkit::{Conn, Site, built_binary, each_driver, refused};

const GEO: &str = r#"
geo $client { default none; 127.0.0.0/8 loopback; 255.255.255.255 unix; }
geo $arg_ip $network {
    default none;
    10.0.0.0/8 ten;
    10.1.0.0/16 ten-one;
    2001:db8::/32 six;
    include more.conf;
    delete 10.0.0.0/8;
}
geo $arg_ip $range {
    ranges;
    default none;
    10.0.0.0-10.0.0.255 whole;
    10.0.0.10-10.0.0.20 part;
}
geo $proxied {
    default none;
    proxy 127.0.0.1;
    192.0.2.0/24 test;
    127.0.0.0/8 proxy;
}
geo $deep {
    proxy_recursive;
    default none;
    proxy 127.0.0.1;
    192.0.2.0/24 test;
    127.0.0.0/8 proxy;
}
geo $arg_ip $fresh { volatile; 10.0.0.1 one; 10.0.0.2 two; }
server {
    listen 127.0.0.1:%PORT0%;
    listen unix:%PREFIX%/socket;
    location /client { return 200 $client; }
    location /network { return 200 $network; }
    location /range { return 200 $range; }
    location /proxied { return 200 "$proxied $deep"; }
    location /fresh {
        set $a $fresh;
        set $args ip=10.0.0.2;
        return 200 "$a $fresh";
    }
}
"#;

#[test]
fn addresses() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .file("conf/more.conf", b"192.0.2.0/24 included;")
            .http(GEO)
            .start();
        for (uri, want) in [
            ("/client", "loopback"),
            ("/network?ip=10.0.0.1", "none"),
            ("/network?ip=10.1.0.1", "ten-one"),
            ("/network?ip=2001:db8::1", "six"),
            ("/network?ip=::ffff:10.1.2.3", "ten-one"),
            ("/network?ip=192.0.2.9", "included"),
            ("/network?ip=nonsense", "none"),
            ("/network", "none"),
            ("/range?ip=10.0.0.9", "whole"),
            ("/range?ip=10.0.0.10", "part"),
            ("/range?ip=10.0.0.21", "whole"),
            ("/range?ip=10.0.1.0", "none"),
            ("/range?ip=::1", "none"),
            ("/fresh?ip=10.0.0.1", "one two"),
        ] {
            assert_eq!(weir.get(uri).text(), want, "{uri}");
        }
        for (fields, want) in [
            ("", "proxy proxy"),
            ("X-Forwarded-For: 192.0.2.1\r\n", "test test"),
            ("X-Forwarded-For: 192.0.2.1, 127.0.0.1\r\n", "proxy test"),
            ("X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 127.0.0.1\r\n", "proxy test"),
            ("X-Forwarded-For: 192.0.2.1, 198.51.100.1\r\n", "none none"),
            ("X-Forwarded-For: 192.0.2.1, nobody\r\n", "proxy proxy"),
        ] {
            assert_eq!(weir.request("GET", "/proxied", fields).text(), want, "{fields}");
        }
        let mut unix = Conn::unix(&weir.prefix().join("socket"));
        unix.send("GET /client HTTP/1.0\r\n\r\n");
        let answer = String::from_utf8(unix.read_to_end()).unwrap();
        assert!(answer.ends_with("\r\n\r\nunix"), "{answer}");
    });
}

#[test]
fn what_is_wrong_is_told() {
    refused(
        "*",
        &[
            ("geo x {}", "invalid variable name \"x\""),
            ("geo x $y {}", "invalid variable name \"x\""),
            ("geo $uri {}", "the duplicate \"uri\" variable"),
            ("geo $nope $x {}", "unknown \"nope\" variable"),
            ("geo $x { 10.0.0.0/33 a; }", "invalid network \"10.0.0.0/33\""),
            ("geo $x { ranges; 10.0.0.2-10.0.0.1 a; }", "invalid range \"10.0.0.2-10.0.0.1\""),
        ],
    );
}
