//! Sessions of IMAP, POP3 and SMTP through the whole server: with an authentication server, which
//! is a location of the same server, and mail servers of this file.

use crate::mail_server::MailServer;
use testkit::{Conn, Driver, Site, Weir, built_binary, each_driver};

/// A server with an authentication server that lets everybody in with the password "secret" or
/// "wrong", to the mail server of `port`.
fn site(driver: Driver, port: u16, mail: &str) -> Site {
    let site = Site::new(built_binary(), driver).allow("while in http auth state");
    site.allow("upstream sent invalid response").config(&format!(
        "worker_processes 1; events {{ }}
         http {{ log_format asked '$http_auth_method|$http_auth_user|$http_auth_pass|\
         $http_auth_salt|$http_auth_protocol|$http_auth_login_attempt|$http_client_ip|\
         $http_client_host|$http_auth_smtp_helo|$http_auth_smtp_from|$http_auth_smtp_to|$http_x';
         access_log logs/access.log asked;
         map $http_auth_pass$http_auth_method $verdict {{ default 'Bad login'; ~^secret|^wrong OK;
             ~^untagged OK; ~external|none OK; ~cram|apop OK; }}
         map $http_auth_login_attempt $wait {{ default 0; 1 1; }}
         map $http_auth_method $password {{ default ''; ~cram|apop|external secret; }}
         server {{ listen 127.0.0.1:%PORT0%;
             location /auth {{
                 add_header Auth-Status $verdict; add_header Auth-Server 127.0.0.1;
                 add_header Auth-Port {port}; add_header Auth-Wait $wait;
                 add_header Auth-Pass $password; return 204; }}
             location /nothing {{ return 204; }} }} }}
         mail {{ auth_http http://127.0.0.1:%PORT0%/auth; server_name mail.example;
         proxy_pass_error_message on; {mail} }}"
    ))
}

/// One server of mail at port 1.
fn server(driver: Driver, port: u16, settings: &str) -> Weir {
    site(driver, port, &format!("server {{ listen 127.0.0.1:%PORT1%; {settings} }}")).start()
}

/// A client that talks in lines.
struct Talk(Conn);

impl Talk {
    fn new(weir: &Weir) -> Talk {
        Talk(Conn::tcp(weir.port(1)))
    }

    /// The next line of the server.
    fn hears(&mut self, expected: &str) {
        let line = self.0.read_until(b"\r\n");
        assert_eq!(String::from_utf8_lossy(&line).trim_end(), expected);
    }

    fn says(&mut self, line: &str, expected: &str) {
        self.0.send(format!("{line}\r\n"));
        self.hears(expected);
    }
}

#[test]
fn a_client_of_imap_gets_to_its_server() {
    each_driver(|driver| {
        let backend = MailServer::imap();
        let weir =
            server(driver, backend.port, "protocol imap; imap_auth plain login cram-md5 external;");
        let mut c = Talk::new(&weir);
        c.hears("* OK IMAP4 ready");
        c.says("a CAPABILITY", "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS AUTH=PLAIN AUTH=LOGIN AUTH=CRAM-MD5 AUTH=EXTERNAL");
        c.hears("a OK completed");
        c.says("b LOGIN", "b BAD invalid command");
        c.says("c LOGIN \"me \\\"x\" bad", "c NO Bad login");
        // What follows a command that may log in is the mail server's, unless that failed.
        c.0.send("d NOOP\r\na1 LOGIN {2}\r\n");
        c.hears("d OK completed");
        c.hears("+ OK");
        c.0.send("me {6}\r\n");
        c.hears("+ OK");
        c.0.send("secret\r\ne NOOP\r\n");
        c.hears("a1 OK logged in");
        c.hears("e OK noop of the server");
        c.0.send("f LOGOUT\r\n");
        assert!(c.0.is_closed());
        assert_eq!(backend.heard(), ["a1 LOGIN {2}", "me {6}", "secret", "e NOOP", "f LOGOUT"]);
        let asked = weir.wait_for_lines("access.log", 2);
        assert_eq!(
            asked,
            "plain|me%20\\x22x|bad|-|imap|1|127.0.0.1|-|-|-|-|-\n\
             plain|me|secret|-|imap|2|127.0.0.1|-|-|-|-|-\n"
        );
    });
}

#[test]
fn the_mail_server_may_refuse() {
    each_driver(|driver| {
        let backend = MailServer::imap();
        let weir = server(driver, backend.port, "protocol imap;");
        let mut c = Talk::new(&weir);
        c.hears("* OK IMAP4 ready");
        c.says("a1 LOGIN me wrong", "a1 NO the mail server says no");
        assert!(c.0.is_closed());
        let mut c = Talk::new(&weir);
        c.hears("* OK IMAP4 ready");
        c.says("a1 LOGIN me untagged", "* CAPABILITY X");
        c.hears("a1 OK in");
        weir.wait_for_log("error.log", "upstream sent invalid response: \"a1 NO the mail server says no\" while reading response from upstream, client: 127.0.0.1, server: ");
        let hidden = server(driver, backend.port, "protocol imap; proxy_pass_error_message off;");
        let mut c = Talk::new(&hidden);
        c.hears("* OK IMAP4 ready");
        c.says("a1 LOGIN me wrong", "* BAD internal server error");
        assert!(c.0.is_closed());
    });
}

#[test]
fn a_client_of_pop3_gets_to_its_server() {
    each_driver(|driver| {
        let backend = MailServer::pop3();
        let weir =
            server(driver, backend.port, "protocol pop3; pop3_auth plain apop cram-md5 external;");
        let mut c = Talk::new(&weir);
        let greeting = c.0.read_until(b"\r\n");
        let greeting = String::from_utf8(greeting).unwrap();
        assert!(
            greeting.starts_with("+OK POP3 ready <") && greeting.ends_with("@mail.example>\r\n")
        );
        let salt = greeting.trim_start_matches("+OK POP3 ready ").trim_end().to_owned();
        c.says("USER me and more", "+OK");
        c.says("PASS bad one", "-ERR Bad login");
        c.says(&format!("APOP me {}", "0".repeat(32)), "+OK PASS secret");
        c.says("LIST", "+OK LIST");
        assert_eq!(backend.heard(), ["USER me", "PASS secret", "LIST"]);
        let asked = weir.wait_for_lines("access.log", 2);
        let zeros = "0".repeat(32);
        assert_eq!(
            asked,
            format!(
                "plain|me%20and%20more|bad%20one|-|pop3|1|127.0.0.1|-|-|-|-|-\n\
                 apop|me|{zeros}|{salt}|pop3|2|127.0.0.1|-|-|-|-|-\n"
            )
        );
    });
}

#[test]
fn a_client_of_smtp_gets_to_its_server() {
    each_driver(|driver| {
        let backend = MailServer::smtp();
        let weir = server(
            driver,
            backend.port,
            "protocol smtp; smtp_auth plain login none; smtp_capabilities 8BITMIME 'SIZE 1000';
             auth_http_header X me;",
        );
        let mut c = Talk::new(&weir);
        c.hears("220 mail.example ESMTP ready");
        c.says("EHLO client.example", "250-mail.example");
        c.hears("250-8BITMIME");
        c.hears("250-SIZE 1000");
        c.hears("250 AUTH PLAIN LOGIN");
        // "me" and "secret" between zeros.
        c.says("AUTH PLAIN AG1lAHNlY3JldA==", "235 2.0.0 OK");
        c.says("MAIL FROM:<a@b>", "250 MAIL FROM:<a@b>");
        assert_eq!(
            backend.heard(),
            [
                "EHLO mail.example",
                "XCLIENT ADDR=127.0.0.1 LOGIN=me NAME=[UNAVAILABLE]",
                "EHLO client.example",
                "MAIL FROM:<a@b>",
            ]
        );
        let mut c = Talk::new(&weir);
        c.hears("220 mail.example ESMTP ready");
        c.says("RCPT TO:<a@b>", "503 5.5.1 Bad sequence of commands");
        c.says("HELO client.example", "250 mail.example");
        c.0.send("MAIL FROM:<a@b> SIZE=7\r\nRCPT TO:<no@b>\r\nRCPT TO:<c@d>\r\n");
        c.hears("250 2.0.0 OK");
        c.hears("550 nobody");
        c.hears("250 RCPT TO:<c@d>");
        let asked = weir.wait_for_lines("access.log", 2);
        assert_eq!(
            asked,
            "plain|me|secret|-|smtp|1|127.0.0.1|[UNAVAILABLE]|-|-|-|me\n\
             none|||-|smtp|1|127.0.0.1|[UNAVAILABLE]|client.example|MAIL FROM:<a@b> SIZE=7|\
             RCPT TO:<no@b>|me\n"
        );
    });
}

#[test]
fn clients_that_speak_first_are_refused() {
    each_driver(|driver| {
        let weir = server(driver, 1, "protocol smtp; smtp_greeting_delay 300ms;");
        let mut c = Talk::new(&weir);
        c.says("HELO a", "503 5.5.0 Improper use of SMTP command pipelining");
        assert!(c.0.is_closed());
        let mut c = Talk::new(&weir);
        c.hears("220 mail.example ESMTP ready");
        weir.wait_for_log("error.log", "client was rejected before greeting: \"HELO a__\"");
    });
}

#[test]
fn an_authentication_server_without_an_answer_fails_the_session() {
    each_driver(|driver| {
        let weir = server(driver, 1, "protocol pop3; auth_http 127.0.0.1:%PORT0%/nothing;");
        let mut c = Talk::new(&weir);
        c.hears("+OK POP3 ready");
        c.says("USER me", "+OK");
        c.says("PASS secret", "-ERR internal server error");
        assert!(c.0.is_closed());
        weir.wait_for_log("error.log", "did not send server or port while in http auth state, client: 127.0.0.1, server: 127.0.0.1:");
        // Nobody listens at port 1.
        let weir = server(driver, 1, "protocol pop3; auth_http 127.0.0.1:1/;");
        let mut c = Talk::new(&weir);
        c.hears("+OK POP3 ready");
        c.says("USER me", "+OK");
        c.says("PASS secret", "-ERR internal server error");
        weir.wait_for_log(
            "error.log",
            "connect() to 127.0.0.1:1 failed (111: Connection refused) while in http auth state",
        );
    });
}

#[test]
fn only_plain_logins_bring_a_password() {
    each_driver(|driver| {
        let backend = MailServer::pop3();
        let weir = Site::new(built_binary(), driver)
            .config(&format!(
                "events {{ }} http {{ server {{ listen 127.0.0.1:%PORT0%;
                     add_header Auth-Status OK; add_header Auth-Server 127.0.0.1;
                     add_header Auth-Port {}; return 204; }} }}
                 mail {{ auth_http 127.0.0.1:%PORT0%; server {{ listen 127.0.0.1:%PORT1%;
                     protocol pop3; pop3_auth plain external cram-md5; server_name m; }} }}",
                backend.port
            ))
            .start();
        let talk = || {
            let mut c = Talk::new(&weir);
            assert!(c.0.read_until(b"\r\n").starts_with(b"+OK POP3 ready <"));
            c
        };
        let mut c = talk();
        c.says("AUTH EXTERNAL bWU=", "-ERR internal server error");
        assert!(c.0.is_closed());
        let mut c = talk();
        c.0.send("AUTH CRAM-MD5\r\n");
        assert!(c.0.read_until(b"\r\n").starts_with(b"+ "));
        // "me" and 32 zeros.
        c.says("bWUgMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA=", "-ERR internal server error");
        weir.wait_for_log("error.log", "did not send password while in http auth state");
        talk().says("AUTH PLAIN AG1lAHNlY3JldA==", "+OK PASS secret");
        assert_eq!(backend.heard(), ["USER me", "PASS secret"]);
    });
}

#[test]
fn too_many_errors_end_the_session() {
    each_driver(|driver| {
        let weir = server(driver, 1, "protocol smtp; max_errors 2; smtp_client_buffer 64;");
        let mut c = Talk::new(&weir);
        c.hears("220 mail.example ESMTP ready");
        c.says("A", "500 5.5.1 Invalid command");
        c.says("B", "500 5.5.1 Invalid command");
        assert!(c.0.is_closed());
        let mut c = Talk::new(&weir);
        c.hears("220 mail.example ESMTP ready");
        c.0.send(format!("HELO {}", "x".repeat(100)));
        c.hears("500 5.5.1 Invalid command");
        assert!(c.0.is_closed());
        weir.wait_for_log("error.log", "client sent too many invalid commands");
        weir.wait_for_log("error.log", "client sent too long command \"HELO xxx");
    });
}

#[test]
fn reloads_leave_sessions_to_their_end() {
    each_driver(|driver| {
        let backend = MailServer::pop3();
        let weir = server(driver, backend.port, "protocol pop3;");
        let mut c = Talk::new(&weir);
        c.hears("+OK POP3 ready");
        c.says("USER me", "+OK");
        let mut logged_in = Talk::new(&weir);
        logged_in.hears("+OK POP3 ready");
        logged_in.says("USER me", "+OK");
        logged_in.says("PASS secret", "+OK PASS secret");
        let old = weir.workers();
        weir.reload();
        c.says("PASS secret", "+OK PASS secret");
        logged_in.says("STAT", "+OK STAT");
        drop((c, logged_in));
        weir.wait_until_left(&old);
    });
}

/// The same connection to the mail server serves the client in all workers, without another login.
#[test]
fn a_session_that_is_logged_in_outlives_its_worker() {
    each_driver(|driver| {
        let backend = MailServer::imap();
        let weir = server(driver, backend.port, "protocol imap;");
        let mut c = Talk::new(&weir);
        c.hears("* OK IMAP4 ready");
        c.says("a1 LOGIN me secret", "a1 OK logged in");
        for round in 0..3 {
            let old = weir.workers();
            weir.reload();
            weir.wait_until_left(&old);
            c.says(&format!("e{round} NOOP"), &format!("e{round} OK noop of the server"));
        }
        c.0.send("f LOGOUT\r\n");
        assert!(c.0.is_closed());
        let heard =
            ["a1 LOGIN {2}", "me {6}", "secret", "e0 NOOP", "e1 NOOP", "e2 NOOP", "f LOGOUT"];
        assert_eq!(backend.heard(), heard);
        let asked = weir.wait_for_lines("access.log", 1);
        assert_eq!(asked.lines().count(), 1, "{asked}");
    });
}

#[test]
fn handover_off_keeps_a_session_in_its_worker() {
    let backend = MailServer::imap();
    let weir = server(Driver::usual(), backend.port, "protocol imap; handover off;");
    let mut c = Talk::new(&weir);
    c.hears("* OK IMAP4 ready");
    c.says("a1 LOGIN me secret", "a1 OK logged in");
    let old = weir.workers();
    weir.reload();
    c.says("e NOOP", "e OK noop of the server");
    assert!(old.iter().any(|pid| testkit::is_alive(*pid)));
    c.0.send("f LOGOUT\r\n");
    assert!(c.0.is_closed());
    weir.wait_until_left(&old);
}
