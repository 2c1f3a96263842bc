//! `limit_auth`: clients whose logins fail too often are refused before the authentication server
//! is asked.

use crate::mail_server::MailServer;
use testkit::{Conn, Driver, Site, Weir, built_binary, each_driver, wait_for};

/// Servers of IMAP, POP3 and SMTP at ports 1 to 3, for users with the password "secret" or "wrong";
/// the mail server of POP3 refuses the second.
fn start(driver: Driver, port: u16, limit: &str) -> Weir {
    let site = Site::new(built_binary(), driver);
    site.config(&format!(
        "worker_processes 2; events {{ }}
         http {{ log_format asked '$http_auth_pass'; access_log logs/access.log asked;
         map $http_auth_pass $verdict {{ default 'Bad login'; ~^secret|^wrong OK; }}
         server {{ listen 127.0.0.1:%PORT0%; add_header Auth-Status $verdict;
             add_header Auth-Server 127.0.0.1; add_header Auth-Port {port};
             location / {{ return 204; }}
             location /metrics {{ access_log off; prometheus; }} }} }}
         mail {{ auth_http http://127.0.0.1:%PORT0%/; server_name mail.example;
         limit_auth_zone zone=logins:64k rate=1r/m; {limit}
         server {{ listen 127.0.0.1:%PORT1% proxy_protocol; protocol imap; }}
         server {{ listen 127.0.0.1:%PORT2% proxy_protocol; protocol pop3; }}
         server {{ listen 127.0.0.1:%PORT3% proxy_protocol; protocol smtp;
             smtp_auth plain login none; }}
         set_real_ip_from 127.0.0.1; }}"
    ))
    .start()
}

/// A client with this address, which a proxy tells.
fn client(weir: &Weir, port: usize, ip: &str, greeting: &str) -> Conn {
    let mut c = Conn::tcp(weir.port(port));
    let (family, own) = if ip.contains(':') { ("TCP6", "::1") } else { ("TCP4", "192.0.2.99") };
    c.send(format!("PROXY {family} {ip} {own} 7 8\r\n"));
    hears(&mut c, greeting);
    c
}

#[track_caller]
fn hears(c: &mut Conn, expected: &str) {
    assert_eq!(String::from_utf8_lossy(&c.read_until(b"\r\n")).trim_end(), expected);
}

/// A login of POP3.
#[track_caller]
fn pop3(weir: &Weir, ip: &str, password: &str, expected: &str) {
    let mut c = client(weir, 2, ip, "+OK POP3 ready");
    c.send("USER me\r\n");
    hears(&mut c, "+OK");
    c.send(format!("PASS {password}\r\n"));
    hears(&mut c, expected);
}

/// The zone's counters: logins that were let through, that failed, and that were refused, or would
/// have been.
fn counted(weir: &Weir) -> [u64; 4] {
    let text = weir.get("/metrics").text();
    ["passed", "failed", "rejected", "rejected_dry_run"].map(|name| {
        let start = format!("weir_limit_auth_{name}_total{{zone=\"logins\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.expect(&text).parse().unwrap()
    })
}

const TOO_MANY: &str = "Too many failed logins, try again later";

#[test]
fn too_many_failures_are_refused_unasked() {
    each_driver(|driver| {
        let backend = MailServer::pop3();
        let weir = start(driver, backend.port, "limit_auth zone=logins burst=2;");
        let (refused, good) = (format!("-ERR [SYS/TEMP] {TOO_MANY}"), "+OK PASS secret");
        // Good logins do not count, wherever a bad one is found out.
        (0..4).for_each(|_| pop3(&weir, "192.0.2.1", "secret", good));
        pop3(&weir, "192.0.2.1", "bad", "-ERR Bad login");
        pop3(&weir, "192.0.2.1", "wrong", "-ERR internal server error");
        pop3(&weir, "192.0.2.1", "secret", good);
        pop3(&weir, "192.0.2.1", "bad", "-ERR Bad login");
        pop3(&weir, "192.0.2.1", "secret", &refused);
        pop3(&weir, "192.0.2.2", "secret", good);
        // The other protocols count in the same zone, and have words of their own.
        let mut c = client(&weir, 1, "192.0.2.1", "* OK IMAP4 ready");
        c.send("a1 LOGIN me secret\r\n");
        hears(&mut c, &format!("a1 NO [UNAVAILABLE] {TOO_MANY}"));
        assert!(c.is_closed());
        let mut c = client(&weir, 3, "192.0.2.1", "220 mail.example ESMTP ready");
        c.send("HELO me\r\n");
        hears(&mut c, "250 mail.example");
        c.send("AUTH PLAIN AG1lAHNlY3JldA==\r\n");
        hears(&mut c, &format!("421 4.7.0 {TOO_MANY}"));
        assert!(c.is_closed());
        // A mail is no login.
        let mut c = client(&weir, 3, "192.0.2.1", "220 mail.example ESMTP ready");
        for (line, answer) in [("HELO me", "250 mail.example"), ("MAIL FROM:<a@b>", "250 2.0.0 OK")]
        {
            c.send(format!("{line}\r\n"));
            hears(&mut c, answer);
        }
        c.send("RCPT TO:<c@d>\r\n");
        hears(&mut c, "535 5.7.0 Bad login");
        assert_eq!(weir.wait_for_lines("access.log", 10).lines().count(), 10);
        let log = weir.wait_for_log("error.log", "limiting logins");
        assert!(log.contains("[error]"), "{log}");
        assert!(log.contains("by zone \"logins\" while in http auth state, client: 192.0.2.1"));
        // A line in each worker at the most.
        assert!(weir.error_log().matches("limiting logins").count() <= 2);
        assert_eq!(counted(&weir), [9, 3, 3, 0]);
    });
}

#[test]
fn failures_count_for_a_block_of_ipv6_and_outlive_a_reload() {
    each_driver(|driver| {
        let backend = MailServer::pop3();
        let weir = start(driver, backend.port, "limit_auth zone=logins burst=1;");
        pop3(&weir, "2001:db8::1", "bad", "-ERR Bad login");
        pop3(&weir, "2001:db8::2", "bad", "-ERR Bad login");
        weir.reload();
        // A worker that leaves takes no PROXY protocol header any more.
        wait_for("the old workers to leave", || (weir.workers().len() == 2).then_some(()));
        pop3(&weir, "2001:db8::3", "secret", &format!("-ERR [SYS/TEMP] {TOO_MANY}"));
        pop3(&weir, "2001:db8:0:1::1", "secret", "+OK PASS secret");
    });
}

#[test]
fn a_dry_run_refuses_nobody() {
    each_driver(|driver| {
        let backend = MailServer::pop3();
        let limit = "limit_auth zone=logins burst=1; limit_auth_dry_run on;
            limit_auth_log_level warn;";
        let weir = start(driver, backend.port, limit);
        (0..3).for_each(|_| pop3(&weir, "192.0.2.1", "bad", "-ERR Bad login"));
        pop3(&weir, "192.0.2.1", "secret", "+OK PASS secret");
        let log = weir.wait_for_log("error.log", "limiting logins, dry run, excess: ");
        assert!(log.contains("[warn]"), "{log}");
        assert_eq!(counted(&weir), [2, 2, 0, 2]);
    });
}

#[test]
fn what_is_wrong_is_refused() {
    let cases = [
        ("limit_auth zone=one;", "zero size shared memory zone \"one\""),
        ("limit_auth burst=5;", "\"limit_auth\" must have \"zone\" parameter"),
        ("limit_auth zone=one burst=x;", "invalid burst value \"burst=x\""),
        ("limit_auth zone=one off;", "invalid parameter \"off\""),
        ("limit_auth zone=one; limit_auth off;", "\"limit_auth\" directive is duplicate"),
        ("limit_auth_zone zone=one:1m;", "invalid number of arguments in \"limit_auth_zone\""),
        ("limit_auth_zone zone=one:1m zone=one:1m;", "must have \"rate\" parameter"),
        ("limit_auth_zone zone=one:1m rate=0r/m;", "invalid rate \"rate=0r/m\""),
        ("limit_auth_zone zone=one:1k rate=5r/m;", "zone \"zone=one:1k\" is too small"),
        (
            "limit_auth_zone zone=one:1m rate=5r/m; limit_auth_zone zone=one:1m rate=5r/m;",
            "limit_auth_zone \"one\" is already bound to key \"client address\"",
        ),
        ("server { limit_auth_zone zone=one:1m rate=5r/m; }", "is not allowed here"),
    ];
    for (mail, message) in cases {
        let site = Site::new(built_binary(), Driver::usual());
        site.config(&format!("events {{ }} mail {{ {mail} }}")).is_refused(message);
    }
}
