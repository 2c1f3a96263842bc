//! The filter in the engine, over a real socket.

use weir_content_digest::MODULE;
use weir_module::testing::serve;

const SERVER: &str = "content_digest on; location / { return 200 \"hello\"; } \
                      location /off { content_digest off; return 200 \"hello\"; }";

#[test]
fn the_digest_follows_the_body() {
    let ran = serve(&MODULE, SERVER, &["/", "/off"]);
    assert_eq!(ran.answers[0].text(), "hello");
    assert_eq!(ran.answers[0].header("Trailer"), Some("Content-Digest"));
    // printf hello | openssl dgst -sha256 -binary | base64
    let digest = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
    assert_eq!(ran.answers[0].trailer("Content-Digest"), Some(digest));
    assert_eq!(ran.answers[1].text(), "hello");
    assert_eq!(ran.answers[1].header("Trailer"), None);
}

#[test]
fn clients_that_know_no_trailers_get_none() {
    let ran = serve(&MODULE, SERVER, &["GET / HTTP/1.0\r\n\r\n"]);
    assert_eq!(ran.answers[0].text(), "hello");
    assert_eq!(ran.answers[0].header("Trailer"), None);
}
