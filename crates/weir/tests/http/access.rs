//! Access control: by address, by name and password, by either.

use std::time::{Duration, Instant};

use md5::{Digest, Md5};
use testkit::{Site, Weir, built_binary, each_driver, each_site, wait_for};

fn site(driver: testkit::Driver) -> Weir {
    let long: String = (0..5000).map(|i| format!("filler{i}:{{PLAIN}}secret{i}\n")).collect();
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .file(
            "conf/passwords",
            "# users\nplain:{PLAIN}secret\nsha:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n\
               bcrypt:$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm\nodd:$y$x\n\
               empty:\nstar:*\nbang:!\ncut:$2b$04$abcdefgh\n",
        )
        .file("conf/long", format!("{long}last:{{PLAIN}}secret"))
        .allow("crypt() failed")
        .allow("read() \"")
        .http(
            "auth_basic_user_file passwords;
             server {
                 listen 127.0.0.1:%PORT0%;
                 location /ok/ { alias html/; allow 127.0.0.0/8; deny all; }
                 location /no/ { alias html/; allow 10.0.0.0/8; allow ::1; allow unix:; deny all; }
                 location /no/inner/ { alias html/; }
                 location /user/ { alias html/; auth_basic 'the \"realm\"'; }
                 location /user/open/ { alias html/; auth_basic off; }
                 location /long/ { alias html/; auth_basic long; auth_basic_user_file long; }
                 location /file/ { alias html/; auth_basic $arg_r; auth_basic_user_file $arg_f; }
                 location /any/ { alias html/; satisfy any; deny all; auth_basic any; }
                 location /both/ { alias html/; allow all; auth_basic both; }
                 location /either/ { alias html/; satisfy any; allow 127.0.0.1; deny all;
                                     auth_basic either; }
                 location /late/ { alias html/; auth_basic late; auth_delay 500ms; }
                 location /dl/ {
                     alias html/;
                     secure_link $arg_md5,$arg_expires;
                     secure_link_md5 '$secure_link_expires $uri word';
                     if ($secure_link = '') { return 403; }
                     if ($secure_link = 0) { return 410; }
                     add_header X-Until $secure_link_expires;
                 }
                 location /p/ {
                     secure_link_secret word;
                     if ($secure_link = '') { return 403; }
                     rewrite ^ /ok/$secure_link;
                 }
                 location /except/ { alias html/; limit_except GET { deny all; } }
             }",
        )
        .start()
}

fn base64(text: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.chunks(3) {
        let mut n = [0u8; 4];
        n[1..=chunk.len()].copy_from_slice(chunk);
        let n = u32::from_be_bytes(n);
        for i in 0..=chunk.len() {
            out.push(DIGITS[(n >> (18 - 6 * i) & 63) as usize] as char);
        }
    }
    out
}

fn status(weir: &Weir, path: &str, credentials: &str) -> u16 {
    let lines = match credentials {
        "" => String::new(),
        c => format!("Authorization: Basic {}\r\n", base64(c.as_bytes())),
    };
    weir.request("GET", path, &lines).status
}

#[test]
fn by_address() {
    each_site(site, |weir| {
        assert_eq!(weir.get("/ok/a.txt").status, 200);
        assert_eq!(weir.get("/no/a.txt").status, 403);
        assert_eq!(weir.get("/no/inner/a.txt").status, 200);
        weir.wait_for_log("error.log", "access forbidden by rule, client: 127.0.0.1");
        assert_eq!(weir.request("GET", "/except/a.txt", "").status, 200);
        assert_eq!(weir.request("HEAD", "/except/a.txt", "").status, 200);
        assert_eq!(weir.request("POST", "/except/a.txt", "").status, 403);
    });
}

#[test]
fn by_links_that_end() {
    each_site(site, |weir| {
        let link = |until: u64, path: &str, word: &str| {
            let hash = base64(&Md5::digest(format!("{until} {path} {word}")));
            let hash = hash.trim_end_matches('=').replace('+', "-").replace('/', "_");
            format!("{path}?md5={hash}&expires={until}")
        };
        let good = weir.get(&link(4_102_444_800, "/dl/a.txt", "word"));
        assert_eq!((good.status, good.text().as_str()), (200, "hello"));
        assert_eq!(good.header("X-Until"), Some("4102444800"));
        let late = link(4_102_444_800, "/dl/a.txt", "word").replace("=41", "=42");
        for (path, want) in [
            (link(1_000_000_000, "/dl/a.txt", "word"), 410),
            (link(4_102_444_800, "/dl/a.txt", "guess"), 403),
            (late, 403),
            ("/dl/a.txt".to_owned(), 403),
            ("/dl/a.txt?md5=x&expires=4102444800".to_owned(), 403),
        ] {
            assert_eq!(weir.get(&path).status, want, "{path}");
        }
    });
}

#[test]
fn by_links_with_a_secret() {
    each_site(site, |weir| {
        let link = |file: &str, word: &str| {
            let hash = Md5::digest(format!("{file}{word}"));
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("/p/{hash}/{file}")
        };
        assert_eq!(weir.get(&link("a.txt", "word")).text(), "hello");
        for path in [link("a.txt", "guess"), link("a.txt", "word") + "t", "/p/a.txt".to_owned()] {
            assert_eq!(weir.get(&path).status, 403, "{path}");
        }
    });
}

#[test]
fn by_name_and_password() {
    each_site(site, |weir| {
        let asked = weir.get("/user/a.txt");
        assert_eq!(asked.status, 401);
        assert_eq!(asked.header("www-authenticate"), Some("Basic realm=\"the \\\"realm\\\"\""));
        for (credentials, want) in [
            ("plain:secret", 200),
            ("plain:secre", 401),
            ("plain:", 401),
            ("sha:password", 200),
            ("bcrypt:password", 200),
            ("bcrypt:password", 200),
            ("bcrypt:Password", 401),
            ("nobody:secret", 401),
            ("# users:x", 401),
            // No password is right for these: a form that nobody knows, and users who are locked
            // out.
            ("odd:x", 401),
            ("empty:", 401),
            ("empty:x", 401),
            ("star:*", 401),
            ("bang:!", 401),
            ("cut:password", 401),
        ] {
            assert_eq!(status(&weir, "/user/a.txt", credentials), want, "{credentials}");
        }
        weir.wait_for_log("error.log", "user \"plain\": password mismatch");
        weir.wait_for_log("error.log", "user \"nobody\" was not found in \"");
        let m = "no user/password was provided for basic authentication";
        weir.wait_for_log("error.log", m);
        assert_eq!(status(&weir, "/user/open/a.txt", ""), 200);
        assert_eq!(status(&weir, "/long/a.txt", "last:secret"), 200);
        assert_eq!(status(&weir, "/long/a.txt", "filler4321:secret4321"), 200);
        assert_eq!(status(&weir, "/long/a.txt", "filler4321:secret432"), 401);
        assert_eq!(status(&weir, "/file/a.txt?r=off", ""), 200);
        assert_eq!(status(&weir, "/file/a.txt?r=x&f=passwords", "plain:secret"), 200);
        assert_eq!(status(&weir, "/file/a.txt?r=x&f=nope", "plain:secret"), 403);
        assert_eq!(status(&weir, "/file/a.txt?r=x", "plain:secret"), 500);
        // A new password holds at once.
        weir.write("conf/passwords", "plain:{PLAIN}other\n");
        assert_eq!(status(&weir, "/user/a.txt", "plain:secret"), 401);
        assert_eq!(status(&weir, "/user/a.txt", "plain:other"), 200);
        assert_eq!(status(&weir, "/user/a.txt", "bcrypt:password"), 401);
    });
}

#[test]
fn by_either() {
    each_site(site, |weir| {
        assert_eq!(status(&weir, "/any/a.txt", ""), 401);
        let granted = weir.request(
            "GET",
            "/any/a.txt",
            &format!("Authorization: Basic {}\r\n", base64(b"plain:secret")),
        );
        assert_eq!((granted.status, granted.header("www-authenticate")), (200, None));
        assert_eq!(status(&weir, "/either/a.txt", ""), 200);
        assert_eq!(status(&weir, "/both/a.txt", ""), 401);
        assert_eq!(status(&weir, "/both/a.txt", "plain:secret"), 200);
    });
}

#[test]
fn refusals_take_their_time() {
    each_site(site, |weir| {
        let began = Instant::now();
        assert_eq!(status(&weir, "/late/a.txt", "plain:wrong"), 401);
        assert!(began.elapsed() >= Duration::from_millis(495));
        // The right password overtakes a wrong one that was sent before it.
        let wrong = base64(b"plain:wrong");
        wait_for("an answer ahead of the refusal", || {
            let mut refused = weir.connect();
            refused.send(format!(
                "GET /late/a.txt HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {wrong}\r\n\r\n"
            ));
            assert_eq!(status(&weir, "/late/a.txt", "plain:secret"), 200);
            refused.is_silent_for(Duration::from_millis(1)).then_some(())
        });
    });
}

#[test]
fn by_the_address_that_a_proxy_tells() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .file("html/a.txt", "hello")
            .http(
                "add_header X-Is '$remote_addr $remote_port $realip_remote_addr';
                 set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8;
                 server {
                     listen 127.0.0.1:%PORT0%;
                     location /own/ { alias html/; real_ip_header X-Client; }
                     location /list/ { alias html/; real_ip_header X-Forwarded-For;
                                       allow 192.0.2.0/24; deny all; }
                     location /all/ { alias html/; real_ip_header X-Forwarded-For;
                                      real_ip_recursive on; }
                 }
                 server {
                     listen 127.0.0.1:%PORT1% proxy_protocol;
                     real_ip_header proxy_protocol;
                 }",
            )
            .start();
        let is = |path: &str, lines: &str| {
            let r = weir.request("GET", path, lines);
            (r.status, r.header("x-is").unwrap_or("").to_owned())
        };
        let told = |addr: &str| (200, format!("{addr} 127.0.0.1"));
        assert_eq!(is("/a.txt", "X-Real-IP: 192.0.2.1\r\n"), told("192.0.2.1 "));
        assert_eq!(is("/a.txt", "X-Real-IP: [2001:db8::1]:80\r\n"), told("2001:db8::1 80"));
        assert_eq!(is("/own/a.txt", "x-client: 192.0.2.1:8\r\n"), told("192.0.2.1 8"));
        assert_eq!(is("/list/a.txt", "X-Forwarded-For: 1.1.1.1, 192.0.2.7\r\n").0, 200);
        assert_eq!(is("/list/a.txt", "X-Forwarded-For: 192.0.2.7, 1.1.1.1\r\n").0, 403);
        let list = "X-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nX-Forwarded-For: 10.1.1.1\r\n";
        assert_eq!(is("/all/a.txt", list), told("2.2.2.2 "));
        for (path, lines) in [
            ("/a.txt", ""),
            ("/a.txt", "X-Real-IP: somebody\r\n"),
            ("/own/a.txt", "X-Forwarded-For: 192.0.2.1\r\n"),
        ] {
            assert!(is(path, lines).1.starts_with("127.0.0.1 "), "{path} {lines}");
        }
        let mut c = testkit::Conn::tcp(weir.port(1));
        c.send("PROXY TCP4 192.0.2.9 192.0.2.8 1234 80\r\n");
        c.send("GET /a.txt HTTP/1.0\r\n\r\n");
        assert_eq!(c.response().header("x-is"), Some("192.0.2.9 1234 127.0.0.1"));
    });
}
