//! `proxy_ssl starttls`: TLS with mail servers that begins by a command.

use crate::mail_server::MailServer;
use testkit::certificates::KeyKind;
use testkit::{Conn, Driver, Pair, Site, Weir, built_binary, each_driver};

/// Servers of IMAP, POP3 and SMTP at ports 1 to 3, which begin TLS with those of `ports`.
fn start(driver: Driver, ports: [&str; 3], more: &str) -> Weir {
    let [imap, pop3, smtp] = ports;
    let site = Pair::own(KeyKind::P256, "one.example").on(Site::new(built_binary(), driver), "one");
    site.config(&format!(
        "worker_processes 1; events {{ }}
         http {{ map $http_auth_protocol $port {{ imap {imap}; pop3 {pop3}; smtp {smtp}; }}
         server {{ listen 127.0.0.1:%PORT0%; add_header Auth-Status OK;
             add_header Auth-Server 127.0.0.1; add_header Auth-Port $port; return 204; }} }}
         mail {{ auth_http http://127.0.0.1:%PORT0%/; server_name mail.example;
         proxy_pass_error_message on; proxy_smtp_auth on; xclient off;
         proxy_ssl starttls; proxy_ssl_verify on; proxy_ssl_trusted_certificate one.pem;
         proxy_ssl_name one.example;
         server {{ listen 127.0.0.1:%PORT1%; protocol imap; }}
         server {{ listen 127.0.0.1:%PORT2%; protocol pop3; }}
         server {{ listen 127.0.0.1:%PORT3%; protocol smtp; }} {more} }}"
    ))
    .start()
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

/// Logs in by each protocol; the last answers are these, and the connections are given.
#[track_caller]
fn log_in(weir: &Weir, expected: [&str; 3]) -> [Conn; 3] {
    let mut imap = Conn::tcp(weir.port(1));
    hears(&mut imap, "* OK IMAP4 ready");
    says(&mut imap, "a1 LOGIN me secret", expected[0]);
    let mut pop3 = Conn::tcp(weir.port(2));
    hears(&mut pop3, "+OK POP3 ready");
    says(&mut pop3, "USER me", "+OK");
    says(&mut pop3, "PASS secret", expected[1]);
    let mut smtp = Conn::tcp(weir.port(3));
    hears(&mut smtp, "220 mail.example ESMTP ready");
    says(&mut smtp, "HELO me", "250 mail.example");
    says(&mut smtp, "AUTH PLAIN AG1lAHNlY3JldA==", expected[2]);
    [imap, pop3, smtp]
}

const ERRORS: [&str; 3] = [
    "* BAD internal server error",
    "-ERR internal server error",
    "451 4.3.2 Internal server error",
];

#[test]
fn servers_are_spoken_to_under_tls() {
    each_driver(|driver| {
        // Servers that let nobody in without TLS are weir's own, before those that remember.
        let (imap, pop3, smtp) = (MailServer::imap(), MailServer::pop3(), MailServer::smtp());
        let own = "starttls only; proxy_ssl off; auth_http http://127.0.0.1:%PORT7%/;
            ssl_certificate one.pem; ssl_certificate_key one.key;";
        let more = format!(
            "server {{ listen 127.0.0.1:%PORT4%; protocol imap; {own} }}
             server {{ listen 127.0.0.1:%PORT5%; protocol pop3; {own} }}
             server {{ listen 127.0.0.1:%PORT6%; protocol smtp; {own} }}"
        );
        let authority = Site::new(built_binary(), driver)
            .http(&format!(
                "map $http_auth_protocol $port {{ imap {}; pop3 {}; smtp {}; }}
                 server {{ listen 127.0.0.1:%PORT0%; add_header Auth-Status OK;
                     add_header Auth-Server 127.0.0.1; add_header Auth-Port $port;
                     return 204; }}",
                imap.port, pop3.port, smtp.port
            ))
            .start();
        let more = more.replace("%PORT7%", &authority.port(0).to_string());
        let weir = start(driver, ["%PORT4%", "%PORT5%", "%PORT6%"], &more);
        let [mut c, ..] = log_in(&weir, ["a1 OK logged in", "+OK PASS secret", "235 2.0.0 OK"]);
        says(&mut c, "b NOOP", "b OK noop of the server");
        assert_eq!(imap.heard(), ["a1 LOGIN {2}", "me {6}", "secret", "b NOOP"]);
        assert_eq!(pop3.heard(), ["USER me", "PASS secret"]);
        assert_eq!(smtp.heard(), ["EHLO mail.example", "AUTH PLAIN AG1lAHNlY3JldA=="]);
    });
}

/// A mail server that answers the command to begin TLS with `answer` behind the tag.
fn server(greeting: &'static str, answer: &'static str) -> MailServer {
    MailServer::start(greeting, move |line| {
        Some(match line {
            line if line.ends_with("STARTTLS") || line == "STLS" => {
                let tag = line.strip_suffix("STARTTLS").unwrap_or_default();
                format!("{tag}{answer}")
            }
            line if line.starts_with("EHLO") => "250-mx\r\n250 STARTTLS\r\n".to_owned(),
            line => format!("250 wrong {line}\r\n"),
        })
    })
}

fn asked(servers: &[MailServer; 3]) {
    let heard = servers.each_ref().map(MailServer::heard);
    assert_eq!(heard[0], ["starttls STARTTLS"]);
    assert_eq!(heard[1], ["STLS"]);
    assert_eq!(heard[2], ["EHLO mail.example", "STARTTLS"]);
}

fn ports(servers: &[MailServer; 3]) -> [String; 3] {
    servers.each_ref().map(|server| server.port.to_string())
}

#[test]
fn nothing_in_clear_comes_behind_the_answer() {
    each_driver(|driver| {
        let servers = [
            server("* OK ready\r\n", "OK go\r\n* OK injected\r\n"),
            server("+OK ready\r\n", "+OK go\r\n+OK injected\r\n"),
            server("220 ready\r\n", "220 go\r\n250 injected\r\n"),
        ];
        let ports = ports(&servers);
        let weir = start(driver, ports.each_ref().map(String::as_str), "");
        for mut c in log_in(&weir, ERRORS) {
            assert!(c.is_closed());
        }
        asked(&servers);
        let m = "upstream sent plaintext behind its answer to the command to begin TLS";
        let log = weir.stop_and_read("error.log");
        assert_eq!(log.matches(m).count(), 3, "{log}");
    });
}

#[test]
fn a_server_without_tls_gets_no_password() {
    each_driver(|driver| {
        let servers = [
            server("* OK ready\r\n", "BAD no\r\n"),
            server("+OK ready\r\n", "-ERR no\r\n"),
            server("220 ready\r\n", "502 no\r\n"),
        ];
        let ports = ports(&servers);
        let weir = start(driver, ports.each_ref().map(String::as_str), "");
        for mut c in log_in(&weir, ERRORS) {
            assert!(c.is_closed());
        }
        asked(&servers);
        let log = weir.stop_and_read("error.log");
        assert_eq!(log.matches("upstream sent invalid response: ").count(), 3, "{log}");
    });
}

#[test]
fn the_certificate_is_verified() {
    each_driver(|driver| {
        let own = "starttls only; proxy_ssl off; ssl_certificate one.pem;
            ssl_certificate_key one.key;";
        let more = format!(
            "server {{ listen 127.0.0.1:%PORT4%; protocol pop3; {own} }}
             server {{ listen 127.0.0.1:%PORT5%; protocol pop3; proxy_ssl_name two.example; }}"
        );
        let weir = start(driver, ["1", "%PORT4%", "1"], &more);
        let mut c = Conn::tcp(weir.port(5));
        hears(&mut c, "+OK POP3 ready");
        says(&mut c, "USER me", "+OK");
        says(&mut c, "PASS secret", "-ERR internal server error");
        let log = weir.stop_and_read("error.log");
        assert_eq!(log.matches("does not match \"two.example\"").count(), 1, "{log}");
    });
}

#[test]
fn what_is_wrong_is_refused() {
    let site = Site::new(built_binary(), Driver::usual());
    let mail = "events { } mail { proxy_ssl sometimes; }";
    site.config(mail).is_refused("invalid value \"sometimes\"");
}
