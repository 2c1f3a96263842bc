//! Clients of Python's library at a real mail server, Dovecot: TLS, logins of every kind, a letter
//! that is stored and read.

use std::process::Command;

use testkit::certificates::KeyKind;
use testkit::{Dovecot, Pair, Site, built_binary, each_driver};

/// Plain and under TLS, right and wrong: each line is the result of a step.
const CLIENT: &str = r#"
import imaplib, poplib, ssl, sys
imap, imaps, pop3, pop3s = [int(port) for port in sys.argv[1:]]
tls = ssl._create_unverified_context()
letter = b'Subject: hello\r\n\r\n' + b'0123456789\r\n' * 30000

i = imaplib.IMAP4('127.0.0.1', imap)
i.starttls(tls)
print(i.login('me', 'secret')[0], i.create('box')[0], i.append('box', '', None, letter)[0])
i.select('box')
print(i.fetch('1', '(RFC822)')[1][0][1] == letter, i.logout()[0])

i = imaplib.IMAP4_SSL('127.0.0.1', imaps, ssl_context=tls)
try:
    i.login('me', 'wrong')
except imaplib.IMAP4.error as e:
    print(e.args[0])
print(i.authenticate('PLAIN', lambda _: b'\0"me\\\0secret')[0], i.list()[0], i.logout()[0])

p = poplib.POP3('127.0.0.1', pop3)
p.stls(tls)
p.user('me')
print(p.pass_('secret')[:3], p.stat()[0], p.quit()[:3])
p = poplib.POP3_SSL('127.0.0.1', pop3s, context=tls)
p.user('me')
try:
    p.pass_('wrong')
except poplib.error_proto as e:
    print(e.args[0])
"#;

#[test]
fn clients_read_their_mail() {
    let dovecot = Dovecot::start();
    each_driver(|driver| {
        let pair = Pair::own(KeyKind::P256, "one.example");
        let site = pair.on(Site::new(built_binary(), driver), "one");
        let (imap, pop3) = (dovecot.imap(), dovecot.pop3());
        let weir = site
            .config(&format!(
                "worker_processes 2; events {{ }}
                 http {{ map $http_auth_protocol $port {{ imap {imap}; pop3 {pop3}; }}
                 map $http_auth_pass $verdict {{ default 'Not you'; secret OK; }}
                 server {{ listen 127.0.0.1:%PORT0%; add_header Auth-Status $verdict;
                     add_header Auth-Server 127.0.0.1; add_header Auth-Port $port;
                     add_header Auth-Wait 1; add_header Auth-User {name}; return 204; }} }}
                 mail {{ auth_http 127.0.0.1:%PORT0%; ssl_certificate one.pem;
                 ssl_certificate_key one.key;
                 server {{ listen 127.0.0.1:%PORT1%; protocol imap; starttls only; }}
                 server {{ listen 127.0.0.1:%PORT2% ssl; protocol imap; }}
                 server {{ listen 127.0.0.1:%PORT3%; protocol pop3; starttls only; }}
                 server {{ listen 127.0.0.1:%PORT4% ssl; protocol pop3; }} }}",
                name = driver.name()
            ))
            .start();
        let ports = (1..=4).map(|n| weir.port(n).to_string());
        let out =
            Command::new("/usr/bin/python3").args(["-c", CLIENT]).args(ports).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        assert_eq!(
            said,
            "OK OK OK\nTrue BYE\nb'Not you'\nOK OK BYE\nb'+OK' 0 b'+OK'\nb'-ERR Not you'\n",
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    });
}
