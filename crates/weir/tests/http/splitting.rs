//! Values of variables that hold line ends: they make no field, neither towards the client nor
//! towards an upstream.

use std::io::Write;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use testkit::{Driver, Scripted, Site, Weir, built_binary, each_driver, read_until};

/// A path with an encoded line break, which must not become a field.
const EVIL: &str = "a%0d%0aEvil:%20yes%0d%0a%0d%0ab";

const HTTP: &str = r#"
    default_type text/plain;
    server {
        listen 127.0.0.1:%PORT0%;
        location ~ (?s)^/field/(?<rest>.*)$ { add_header X-A $rest always; return 200 ok; }
        location ~ (?s)^/trailer/(?<rest>.*)$ { add_trailer X-T $rest always; return 200 ok; }
        location ~ (?s)^/tag/(?<rest>.*)$ { add_header ETag $rest; return 200 ok; }
        location ~ (?s)^/date/(?<rest>.*)$ { add_header Last-Modified $rest; return 200 ok; }
        location ~ (?s)^/realm/(?<rest>.*)$ { auth_basic $rest; auth_basic_user_file none; }
        location /charset/ { set $cs $uri; charset $cs; return 200 ok; }
        location /to/ { return 302 $uri; }
        location /away/ { return 302 http://h$uri; }
        location /rewritten/ { rewrite (?s)^/rewritten/(.*)$ http://h/$1 redirect; }
        location /error/ { error_page 404 =302 http://h$uri; return 404; }
        location /user/ { add_header X-U $remote_user; return 200 ok; }
        location /line/ { proxy_pass http://127.0.0.1:%BACK%$uri; }
        location /break/ { rewrite (?s)^/break/(.*)$ /x/$1?$1 break; proxy_pass http://127.0.0.1:%BACK%; }
        location /set/ { proxy_set_header X-U $uri; proxy_set_header Host $uri;
                         proxy_pass http://127.0.0.1:%BACK%/set; }
        location /method/ { proxy_method $uri; proxy_pass http://127.0.0.1:%BACK%/; }
        location /mem/ { set $memcached_key $uri; memcached_pass 127.0.0.1:%BACK%; }
        location /scgi/ { scgi_param USER $remote_user; scgi_param LAST 1;
                          scgi_pass 127.0.0.1:%BACK%; }
    }"#;

/// The upstream server: it reports the request it got.
fn site(driver: Driver) -> (Weir, Receiver<String>) {
    let (tell, told) = channel();
    let tell = Arc::new(Mutex::new(tell));
    let back = Scripted::start(move |mut s, _| {
        let ends = |b: &[u8]| b.ends_with(b"\r\n") || b.ends_with(b",");
        let Some(asked) = read_until(&mut s, ends) else { return };
        let text = String::from_utf8_lossy(&asked).into_owned();
        let answer: &[u8] = match asked.starts_with(b"get ") {
            true => b"END\r\n",
            false if asked.ends_with(b",") => b"Status: 200 OK\r\n\r\nok",
            false => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        };
        let _ = tell.lock().expect("no test panicked here").send(text);
        // The client may be gone.
        let _ = s.write_all(answer);
    });
    let http = HTTP.replace("%BACK%", &back.port.to_string());
    (Site::new(built_binary(), driver).file("none", "").http(&http).start(), told)
}

fn raw(weir: &Weir, path: &str, fields: &str) -> String {
    let bytes =
        weir.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n"));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn no_variable_makes_a_field_of_a_response() {
    each_driver(|driver| {
        let (weir, _) = site(driver);
        for (place, line) in [
            ("field", "X-A: a  Evil: yes    b"),
            ("trailer", "X-T: a  Evil: yes    b"),
            ("tag", "ETag: a  Evil: yes    b"),
            ("date", "Last-Modified: a  Evil: yes    b"),
            ("realm", "WWW-Authenticate: Basic realm=\"a  Evil: yes    b\""),
            ("charset", "Content-Type: text/plain; charset=/charset/a  Evil: yes    b"),
            ("away", "Location: http://h/away/a%0D%0AEvil: yes%0D%0A%0D%0Ab"),
            ("rewritten", "Location: http://h/a%0D%0AEvil:%20yes%0D%0A%0D%0Ab"),
            ("error", "Location: http://h/error/a%0D%0AEvil: yes%0D%0A%0D%0Ab"),
        ] {
            let text = raw(&weir, &format!("/{place}/{EVIL}"), "");
            assert!(text.contains(&format!("\r\n{line}\r\n")), "{place}: {text}");
            assert!(!text.contains("\nEvil:"), "{place}: {text}");
        }
        let text = raw(&weir, &format!("/to/{EVIL}"), "");
        assert!(text.contains("/to/a%0D%0AEvil: yes%0D%0A%0D%0Ab\r\n"), "{text}");
        // A name and password of Basic are decoded, too.
        let text = raw(&weir, "/user/", "Authorization: Basic YQ0KRXZpbDogeWVzCg==\r\n");
        assert!(!text.contains("\nEvil:"), "{text}");
        // Legal bytes stay: a tab, and UTF-8.
        let text = raw(&weir, "/field/a%09b%c3%a9", "");
        assert!(text.contains("\r\nX-A: a\tb\u{e9}\r\n"), "{text}");
    });
}

#[test]
fn no_variable_makes_a_field_of_a_request() {
    each_driver(|driver| {
        let (weir, told) = site(driver);
        let asked = |path: &str, fields: &str| {
            raw(&weir, path, fields);
            told.recv_timeout(testkit::PATIENCE).expect("a request")
        };
        for (place, line) in [
            ("line", "GET /line/a%0D%0AEvil:%20yes%0D%0A%0D%0Ab HTTP/1.1\r\n"),
            ("break", "GET /x/a%0D%0AEvil:%20yes%0D%0A%0D%0Ab?a%0D%0AEvil:%20yes%0D%0A%0D%0Ab "),
            ("set", "\r\nX-U: /set/a  Evil: yes    b\r\n"),
            ("set", "\r\nHost: /set/a  Evil: yes    b\r\n"),
            ("mem", "get /mem/a%0D%0AEvil:%20yes%0D%0A%0D%0Ab\r\n"),
        ] {
            let text = asked(&format!("/{place}/{EVIL}"), "");
            assert!(text.contains(line), "{place}: {text}");
            assert!(!text.contains("\nEvil:"), "{place}: {text}");
        }
        // `a\0LAST\02\0b:c`: a zero ends a text of SCGI.
        let text = asked("/scgi/", "Authorization: Basic YQBMQVNUADIAYjpj\r\n");
        assert!(text.contains("USER\0a LAST 2 b\0LAST\x001\0"), "{text:?}");
        // No server is asked by a method that is none.
        let text = raw(&weir, &format!("/method/{EVIL}"), "");
        assert!(text.starts_with("HTTP/1.1 500 "), "{text}");
        weir.wait_for_log("error.log", "invalid method \"/method/a\\x0D\\x0AEvil: yes");
        assert!(told.try_recv().is_err());
    });
}
