//! TLS with clients of mail, from the first byte and behind STARTTLS; connections that `stream`
//! passes on, and PROXY protocol headers.

use std::net::TcpStream;
use std::sync::Arc;

use crate::mail_server::MailServer;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use testkit::certificates::KeyKind;
use testkit::{
    AnyCertificate, Conn, Driver, Pair, Site, Weir, built_binary, each_driver, wait_until,
};

/// A server whose authentication server refuses everybody, and logs what it is told.
fn start(driver: Driver, pair: &Pair, mail: &str, more: &str) -> Weir {
    let site = pair.on(Site::new(built_binary(), driver), "one");
    site.config(&format!(
        "worker_processes 1; events {{ }}
         http {{ log_format asked '$http_auth_ssl|$http_auth_ssl_verify|$http_auth_ssl_subject|\
         $http_auth_ssl_protocol|$http_client_ip|$http_proxy_protocol_addr|\
         $http_proxy_protocol_server_port';
         access_log logs/access.log asked;
         server {{ listen 127.0.0.1:%PORT0%; add_header Auth-Status no; add_header Auth-Wait 1;
             return 204; }} }}
         mail {{ auth_http http://127.0.0.1:%PORT0%/; server_name mail.example;
         ssl_certificate one.pem; ssl_certificate_key one.key; {mail} }} {more}"
    ))
    .start()
}

fn pair() -> Pair {
    Pair::own(KeyKind::P256, "one.example")
}

/// A client of TLS that offers these protocols, and may show a certificate.
fn client(alpn: &[&str], own: Option<&Pair>) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate));
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(pair) => {
            use rustls::pki_types::pem::PemObject;
            let key = PrivateKeyDer::from_pem_slice(pair.key.pem().as_bytes()).unwrap();
            let chain = vec![CertificateDer::from(pair.certificate.clone())];
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// TLS over a connection that may have been spoken on before.
fn secured(stream: TcpStream, config: &Arc<ClientConfig>) -> Conn {
    let name = ServerName::try_from("one.example").unwrap();
    let session = ClientConnection::new(config.clone(), name).unwrap();
    Conn::over(StreamOwned::new(session, stream))
}

fn connect(weir: &Weir) -> TcpStream {
    TcpStream::connect(("127.0.0.1", weir.port(1))).unwrap()
}

#[track_caller]
fn hears(c: &mut Conn, expected: &str) {
    assert_eq!(String::from_utf8_lossy(&c.read_until(b"\r\n")).trim_end(), expected);
}

#[track_caller]
fn says(c: &mut Conn, line: &str, expected: &str) {
    c.send(format!("{line}\r\n"));
    hears(c, expected);
}

#[test]
fn a_client_begins_with_tls() {
    each_driver(|driver| {
        let mail = "server { listen 127.0.0.1:%PORT1% ssl; protocol imap; }";
        let weir = start(driver, &pair(), mail, "");
        for alpn in [&[][..], &["imap"]] {
            let mut c = secured(connect(&weir), &client(alpn, None));
            hears(&mut c, "* OK IMAP4 ready");
            says(&mut c, "a STARTTLS", "a BAD invalid command");
            says(&mut c, "b LOGIN me secret", "b NO no");
        }
        let mut c = secured(connect(&weir), &client(&["h2"], None));
        assert!(c.read_some().is_err());
        // No session of TLS begins with a greeting in clear.
        let mut c = Conn::tcp(weir.port(1));
        c.send("a NOOP\r\n");
        assert!(c.is_closed());
        let asked = weir.wait_for_lines("access.log", 2);
        assert_eq!(asked, "on|-|-|TLSv1.3|127.0.0.1|-|-\n".repeat(2));
    });
}

#[test]
fn a_client_turns_to_tls() {
    each_driver(|driver| {
        let mail = "server { listen 127.0.0.1:%PORT1%; protocol smtp; starttls only; }";
        let weir = start(driver, &pair(), mail, "");
        let stream = connect(&weir);
        let mut c = Conn::over(stream.try_clone().unwrap());
        hears(&mut c, "220 mail.example ESMTP ready");
        says(&mut c, "EHLO me", "250-mail.example");
        hears(&mut c, "250 STARTTLS");
        says(&mut c, "AUTH PLAIN AG1lAHNlY3JldA==", "500 5.5.1 Invalid command");
        says(&mut c, "STARTTLS", "220 2.0.0 Start TLS");
        let mut c = secured(stream, &client(&["smtp"], None));
        // The dialogue begins anew, without a greeting.
        says(&mut c, "EHLO me", "250-mail.example");
        hears(&mut c, "250 AUTH PLAIN LOGIN");
        says(&mut c, "AUTH PLAIN AG1lAHNlY3JldA==", "535 5.7.0 no");
        weir.wait_for_log("error.log", "client login failed: \"no\" while in http auth state, client: 127.0.0.1 using starttls, server: ");
    });
}

#[test]
fn nothing_in_clear_comes_behind_starttls() {
    each_driver(|driver| {
        for (protocol, command, greeting, answer) in [
            ("smtp", "STARTTLS", "220 mail.example ESMTP ready", "220 2.0.0 Start TLS"),
            ("imap", "a STARTTLS", "* OK IMAP4 ready", "a OK completed"),
            ("pop3", "STLS", "+OK POP3 ready", "+OK"),
        ] {
            let mail =
                format!("server {{ listen 127.0.0.1:%PORT1%; protocol {protocol}; starttls on; }}");
            let weir = start(driver, &pair(), &mail, "");
            let mut c = Conn::tcp(weir.port(1));
            hears(&mut c, greeting);
            c.send(format!("{command}\r\nNOOP\r\n"));
            hears(&mut c, answer);
            assert!(c.is_closed(), "{protocol}");
            weir.wait_for_log("error.log", "client sent plaintext behind its command to begin TLS");
        }
    });
}

#[test]
fn certificates_of_clients_are_checked() {
    each_driver(|driver| {
        let (own, other) = (pair(), Pair::own(KeyKind::P256, "two.example"));
        let mail = "ssl_client_certificate one.pem;
            server { listen 127.0.0.1:%PORT1% ssl; protocol pop3; ssl_verify_client on; }";
        let weir = start(driver, &own, mail, "");
        let mut c = secured(connect(&weir), &client(&[], None));
        hears(&mut c, "-ERR No required SSL certificate");
        assert!(c.read_some().is_ok_and(|more| more.is_empty()));
        let mut c = secured(connect(&weir), &client(&[], Some(&other)));
        hears(&mut c, "-ERR SSL certificate error");
        let mut c = secured(connect(&weir), &client(&[], Some(&own)));
        hears(&mut c, "+OK POP3 ready");
        says(&mut c, "USER me", "+OK");
        says(&mut c, "PASS secret", "-ERR no");
        let asked = weir.wait_for_lines("access.log", 1);
        assert_eq!(asked, "on|SUCCESS|CN=one.example|TLSv1.3|127.0.0.1|-|-\n");
    });
}

#[test]
fn a_proxy_in_front_tells_the_client() {
    each_driver(|driver| {
        let mail = "server { listen 127.0.0.1:%PORT1% proxy_protocol; protocol pop3;
                set_real_ip_from 127.0.0.0/8; }
            server { listen 127.0.0.1:%PORT2% proxy_protocol; protocol pop3; }";
        let weir = start(driver, &pair(), mail, "");
        for n in [1, 2] {
            let mut c = Conn::tcp(weir.port(n));
            says(&mut c, "PROXY TCP4 192.0.2.7 192.0.2.8 7 8", "+OK POP3 ready");
            says(&mut c, "USER me", "+OK");
            says(&mut c, "PASS secret", "-ERR no");
        }
        let asked = weir.wait_for_lines("access.log", 2);
        assert_eq!(asked, "-|-|-|-|192.0.2.7|192.0.2.7|8\n-|-|-|-|127.0.0.1|192.0.2.7|8\n");
        let mut c = Conn::tcp(weir.port(1));
        c.send("USER me\r\n");
        assert!(c.is_closed());
        weir.wait_for_log("error.log", "while reading PROXY protocol, client: 127.0.0.1");
    });
}

#[test]
fn stream_passes_connections_on() {
    each_driver(|driver| {
        let mail = "server { listen 127.0.0.1:%PORT1% ssl; protocol pop3; }
            server { listen 127.0.0.1:%PORT2%; protocol pop3; }";
        let stream = "stream { server { listen 127.0.0.1:%PORT3%; pass 127.0.0.1:%PORT2%; }
            server { listen 127.0.0.1:%PORT4%; ssl_preread on; pass 127.0.0.1:%PORT1%; } }";
        let weir = start(driver, &pair(), mail, stream);
        let mut c = Conn::tcp(weir.port(3));
        hears(&mut c, "+OK POP3 ready");
        says(&mut c, "QUIT", "+OK");
        let stream = TcpStream::connect(("127.0.0.1", weir.port(4))).unwrap();
        let mut c = secured(stream, &client(&["pop3"], None));
        hears(&mut c, "+OK POP3 ready");
        says(&mut c, "QUIT", "+OK");
    });
}

#[test]
fn servers_are_spoken_to_under_tls() {
    each_driver(|driver| {
        let backend = MailServer::pop3();
        let authority = "http { server { listen 127.0.0.1:%PORT0% ssl; ssl_certificate one.pem;
            ssl_certificate_key one.key; add_header Auth-Status OK;
            add_header Auth-Server 127.0.0.1; add_header Auth-Port %PORT4%; return 204; } }";
        let stream = format!(
            "stream {{ ssl_certificate one.pem; ssl_certificate_key one.key;
             server {{ listen 127.0.0.1:%PORT4% ssl proxy_protocol;
             proxy_pass 127.0.0.1:{}; }} }}",
            backend.port
        );
        let mail = "mail { auth_http https://127.0.0.1:%PORT0%/;
            auth_http_ssl_verify on; auth_http_ssl_trusted_certificate one.pem;
            auth_http_ssl_name one.example;
            proxy_ssl on; proxy_ssl_verify on; proxy_ssl_trusted_certificate one.pem;
            proxy_ssl_name one.example; proxy_protocol on;
            server { listen 127.0.0.1:%PORT1%; protocol pop3; }
            server { listen 127.0.0.1:%PORT2%; protocol pop3; proxy_ssl_name two.example; }
            server { listen 127.0.0.1:%PORT3%; protocol pop3;
                auth_http_ssl_name two.example; } }";
        let site = pair().on(Site::new(built_binary(), driver), "one");
        let weir = site
            .config(&format!("worker_processes 1; events {{ }} {authority} {stream} {mail}"))
            .start();
        let talk = |n: usize, answer: &str| {
            let mut c = Conn::tcp(weir.port(n));
            hears(&mut c, "+OK POP3 ready");
            says(&mut c, "USER me", "+OK");
            says(&mut c, "PASS secret", answer);
        };
        talk(1, "+OK PASS secret");
        assert_eq!(backend.heard(), ["USER me", "PASS secret"]);
        for n in [2, 3] {
            talk(n, "-ERR internal server error");
        }
        let told = || weir.log("error.log").matches("does not match \"two.example\"").count();
        wait_until("both servers are told of", || told() == 2);
    });
}

#[test]
fn what_is_wrong_is_refused() {
    let cases = [
        (
            "server { listen 127.0.0.1:%PORT1%; protocol imap; }",
            "no \"auth_http\" is defined for server in",
        ),
        (
            "auth_http 127.0.0.1; server { listen 127.0.0.1:%PORT1%; }",
            "unknown mail protocol for server in",
        ),
        (
            "auth_http 127.0.0.1; server { protocol imap; }",
            "no \"listen\" is defined for server in",
        ),
        (
            "auth_http 127.0.0.1; server { listen 127.0.0.1:%PORT1%; protocol http; }",
            "unknown protocol \"http\" in",
        ),
        (
            "auth_http 127.0.0.1; server { listen 127.0.0.1:%PORT1%; protocol imap; }
             server { listen 127.0.0.1:%PORT1%; protocol pop3; }",
            "duplicate \"127.0.0.1:",
        ),
        (
            "auth_http 127.0.0.1; server { listen 127.0.0.1:%PORT1% ssl; protocol imap; }",
            "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in",
        ),
        (
            "auth_http 127.0.0.1; server { listen 127.0.0.1:%PORT1%; protocol imap; starttls on; }",
            "no \"ssl_certificate\" is defined for the \"starttls\" directive",
        ),
        (
            "auth_http https://127.0.0.1; auth_http_ssl_verify on;
             server { listen 127.0.0.1:%PORT1%; protocol imap; }",
            "no auth_http_ssl_trusted_certificate for auth_http_ssl_verify",
        ),
        (
            "auth_http 127.0.0.1; proxy_ssl on; proxy_ssl_verify on;
             server { listen 127.0.0.1:%PORT1%; protocol imap; }",
            "no proxy_ssl_trusted_certificate for proxy_ssl_verify",
        ),
        ("auth_http 127.0.0.1:x;", "invalid port in auth_http \"127.0.0.1:x\""),
        ("imap_auth apop;", "invalid value \"apop\""),
        ("auth_http_header X 'a\nb';", "control characters cannot stand in a field"),
        ("server { listen 127.0.0.1:%PORT1% udp; }", "invalid parameter \"udp\""),
    ];
    for (mail, message) in cases {
        let site = Site::new(built_binary(), Driver::usual());
        site.config(&format!("events {{ }} mail {{ {mail} }}")).is_refused(message);
    }
}
