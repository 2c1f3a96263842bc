//! TLS with clients and servers, and TLS that is passed through by name. The client is a server of
//! the same configuration, which passes plain bytes on under TLS.

use crate::stream_site::securing;
use testkit::certificates::KeyKind;
use testkit::{Conn, Driver, Pair, Site, Weir, built_binary, each_site};

fn start(driver: Driver) -> Weir {
    let mut site = Site::new(built_binary(), driver);
    for name in ["one", "two"] {
        site = Pair::own(KeyKind::P256, &format!("{name}.example")).on(site, name);
    }
    let answer = "return '$server_name $ssl_server_name $ssl_protocol $ssl_alpn_protocol';";
    let server = |name: &str, more: &str| {
        format!(
            "server {{ listen 127.0.0.1:%PORT0% ssl; server_name {name}.example;
             ssl_certificate {name}.pem; ssl_certificate_key {name}.key; {answer} {more} }}"
        )
    };
    let verify = "proxy_ssl_verify on; proxy_ssl_trusted_certificate";
    let blocks = [
        server("one", ""),
        server("two", "ssl_alpn x y; ssl_handshake_threads on;"),
        securing(1, 0, "one", &format!("{verify} one.pem;")),
        securing(2, 0, "two", "proxy_ssl_alpn y;"),
        securing(3, 0, "two", &format!("{verify} one.pem;")),
        securing(4, 0, "two", "proxy_ssl_alpn z;"),
        securing(8, 0, "two", "set $p x; proxy_ssl_alpn $p $empty; set $empty '';"),
        // TLS passed through to a server that its name stands for.
        "map $ssl_preread_server_name $to { one.example 127.0.0.1:%PORT0%; default 127.0.0.1:1; }
         log_format hello '$ssl_preread_server_name $ssl_preread_protocol $ssl_preread_alpn_protocols \
         $bytes_received';
         server { listen 127.0.0.1:%PORT5%; ssl_preread on; proxy_pass $to;
         access_log logs/hello.log hello; }"
            .to_owned(),
        securing(6, 5, "one", ""),
        securing(7, 5, "two", "proxy_ssl_alpn a b;"),
    ];
    let log = "log_format status '$status'; access_log logs/access.log status;";
    site.stream(&[log, &blocks.concat()].concat()).start()
}

fn ask(weir: &Weir, at: usize) -> String {
    String::from_utf8(Conn::tcp(weir.port(at)).read_to_end()).unwrap()
}

#[test]
fn servers_are_chosen_by_name_and_verified() {
    each_site(start, |weir| {
        assert_eq!(ask(&weir, 1), "one.example one.example TLSv1.3 ");
        assert_eq!(ask(&weir, 2), "two.example two.example TLSv1.3 y");
        assert_eq!(ask(&weir, 8), "two.example two.example TLSv1.3 x", "by a variable");
        assert_eq!(ask(&weir, 3), "", "the certificate is another one's");
        weir.wait_for_log("error.log", "upstream SSL certificate verify error");
        assert_eq!(ask(&weir, 4), "", "no protocol in common");
        weir.wait_for_log("access.log", "500");
        let mut plain = Conn::tcp(weir.port(0));
        plain.send("GET / HTTP/1.0\r\n\r\n");
        assert!(plain.is_closed());
        weir.wait_for_log("error.log", "wrong version number");
    });
}

#[test]
fn tls_is_passed_through_by_name() {
    each_site(start, |weir| {
        assert_eq!(ask(&weir, 6), "one.example one.example TLSv1.3 ");
        weir.wait_for_log("hello.log", "one.example TLSv1.3  ");
        assert_eq!(ask(&weir, 7), "", "no server of that name");
        weir.wait_for_log("hello.log", "two.example TLSv1.3 a,b ");
    });
}
