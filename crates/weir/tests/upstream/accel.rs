//! `X-Accel-Redirect` to files: they are answered as if the client had asked for them.

use std::io::{Read, Write};

use testkit::{Site, built_binary, each_driver};

#[test]
fn conditions_hold_for_the_file() {
    each_driver(|driver| {
        let mut site = Site::new(built_binary(), driver).file("html/file.txt", b"text\n").http(
            "server { listen 127.0.0.1:%PORT0%; root html; \
             location /to { proxy_pass http://127.0.0.1:%PORT1%; } }",
        );
        let listener = testkit::listen(site.port(1));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let answer = "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /file.txt\r\n\
                              Content-Length: 0\r\nConnection: close\r\n\r\n";
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).and_then(|_| stream.write_all(answer.as_bytes()));
            }
        });
        let weir = site.start();
        let whole = weir.get("/to");
        assert_eq!(whole.text(), "text\n");
        let tag = whole.header("ETag").unwrap_or_default().to_owned();
        let same = weir.request("GET", "/to", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(same.status, 304);
        let other = weir.request("GET", "/to", "If-Match: \"other\"\r\n");
        assert_eq!(other.status, 412);
    });
}
