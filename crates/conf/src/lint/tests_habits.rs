//! Habits: found where they are asked for.

use std::path::Path;

use bytes::Bytes;

use super::check;
use crate::parse::{Options, parse_bytes};

/// The habits of a whole configuration that has none but those of the text, which stands in
/// `http`.
fn found(text: &str) -> Vec<String> {
    let text = format!(
        "error_log /e; http {{ gzip off; client_max_body_size 1m; server_tokens off;\n{text}\n}}"
    );
    all(&text)
}

fn all(text: &str) -> Vec<String> {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let tree = parse_bytes(Path::new("f"), bytes, &Options::default()).expect("it is well-formed");
    let asked = check(&tree, true, None);
    assert!(check(&tree, false, None).iter().all(|f| !f.rule.habit), "{text}");
    asked.iter().map(|f| format!("{}:{}", f.rule.id, f.pos.line)).collect()
}

#[test]
fn settings_left_to_the_default() {
    let bare = "http {\nserver { listen 80; } }";
    let names = ["body-size-default", "error-log-default", "gzip-default", "server-tokens"];
    assert_eq!(all(bare), names.map(|name| format!("{name}:1")));
    assert_eq!(found("server { listen 80; }"), Vec::<String>::new());
    assert_eq!(all("server { listen 80; }"), Vec::<String>::new(), "a part tells nothing");
}

#[test]
fn settings_that_some_forbid() {
    let server = |text: &str| found(&format!("server {{ {text} }}"));
    assert_eq!(server("server_tokens on;"), ["server-tokens:2"]);
    assert_eq!(server("location / { autoindex on; }"), ["autoindex:2"]);
    assert_eq!(server("location / { root /a; }"), ["server-root:2"]);
    assert_eq!(server("root /b; location / { root /a; }"), Vec::<String>::new());
    assert_eq!(found("map $host $a { b c; }"), ["map-default:2"]);
    assert_eq!(found("map $host $a { default x; b c; }"), Vec::<String>::new());
}

#[test]
fn servers_behind() {
    let pass = |url: &str| {
        found(&format!(
            "upstream b {{ server 127.0.0.1; }}\n\
             server {{ location /x/ {{ proxy_pass {url}; proxy_set_header Host $host; }} }}"
        ))
    };
    assert_eq!(pass("http://b"), Vec::<String>::new());
    assert_eq!(pass("http://127.0.0.1:80"), Vec::<String>::new());
    assert_eq!(pass("http://b/y/"), ["proxy-pass-uri:3"]);
    assert_eq!(pass("http://c.example"), ["resolved-once:3"]);
    assert_eq!(pass("http://localhost:80"), ["resolved-once:3"]);
    assert_eq!(found("upstream b { server c.example; }"), ["resolved-once:2"]);
    assert_eq!(
        found("upstream b { zone b 64k; server c.example resolve; server unix:/s; }"),
        Vec::<String>::new()
    );
    let host = |around: &str, own: &str| {
        found(&format!(
            "{around}\nserver {{ location / {{ proxy_pass http://127.0.0.1; {own} }} }}"
        ))
    };
    assert_eq!(host("", ""), ["proxy-host:3"]);
    assert_eq!(host("proxy_set_header Host $host;", ""), Vec::<String>::new());
    assert_eq!(host("", "proxy_set_header host a.example;"), Vec::<String>::new());
}
