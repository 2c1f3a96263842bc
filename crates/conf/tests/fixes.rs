//! The changes that `weir lint --fix` writes: what they make of a text, rule by rule.

use std::path::Path;

use bytes::Bytes;
use weir_conf::edit::{apply, replacements};
use weir_conf::lint::{FIXABLE, check};
use weir_conf::parse::{Options, parse_bytes};
use weir_conf::tokens::Tokens;

/// The text after the changes for findings of a rule.
fn fixed(rule: &str, text: &str) -> String {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let tree = parse_bytes(Path::new("f"), bytes.clone(), &Options::default()).expect("it is read");
    let found = check(&tree, true, None).into_iter().filter(|finding| finding.rule.id == rule);
    let edits: Vec<_> = found.flat_map(|finding| finding.fix).collect();
    let tokens = Tokens::new(Path::new("f"), bytes).expect("it is read");
    let new = apply(&tokens.text, &replacements(&tokens, &edits));
    String::from_utf8(new).expect("it is text")
}

/// Each rule with changes: a text in a server, and what it becomes.
const CASES: &[(&str, &str, &str)] = &[
    ("tls-protocols", "ssl_protocols SSLv3 TLSv1.2  TLSv1;", "ssl_protocols TLSv1.2;"),
    ("tls-protocols", "ssl_protocols TLSv1;", "ssl_protocols TLSv1;"),
    ("error-log-off", "error_log 'off'; # x", "error_log /dev/null crit; # x"),
    ("error-log-off", "error_log off info;", "error_log /dev/null info;"),
    ("unescaped-dot", "location ~ .css$ { }", "location ~ \\.css$ { }"),
    // The text of a word in quotes is not that of the file.
    ("unescaped-dot", "location ~ \".css$\" { }", "location ~ \".css$\" { }"),
    ("listen-http2", "listen 1 ssl http2;", "listen 1 ssl;\nhttp2 on;"),
    (
        "listen-http2",
        "listen 1 http2; # a\nlisten 2 http2;\nroot b;",
        "listen 1; # a\nlisten 2;\nhttp2 on;\nroot b;",
    ),
    ("listen-http2", "listen 1 http2; http2 on;", "listen 1; http2 on;"),
    ("listen-http2", "listen 1 http2; http2 off;", "listen 1 http2; http2 off;"),
    ("duplicate-directive", "root /a;\nroot /a; # b\nindex c;", "root /a;\n # b\nindex c;"),
    ("duplicate-directive", "root /a; root /b;", "root /a; root /b;"),
    ("removed-directive", "listen 1;\nssl off;\n", "listen 1;\n"),
    ("removed-directive", "listen 1; listen 2 ssl; ssl on;", "listen 1 ssl; listen 2 ssl;"),
    ("removed-directive", "ssl on;", "ssl on;"),
    ("removed-directive", "satisfy_any on; spdy_chunk_size 1k;", "satisfy any;"),
    ("ignore", "root a; # weir:ignore ssrf b\n", "root a;\n"),
    ("ignore", "# a note # weir:ignore ssrf b\n", "# a note # weir:ignore ssrf b\n"),
    ("server-tokens", "server_tokens on;", "server_tokens off;"),
];

#[test]
fn changes_are_those_of_their_rules() {
    for (rule, old, new) in CASES {
        let around = |text: &str| format!("http {{ server_tokens off; server {{\n{text}\n}} }}");
        assert_eq!(fixed(rule, &around(old)), around(new), "{rule}");
    }
    let old =
        "http { server { listen 80; server_name a; } server { listen *:80; server_name b; } }";
    let new = old.replacen("listen 80", "listen 80 default_server", 1);
    assert_eq!(fixed("implicit-default-server", old), new);
    let old = "http {\n  map $a $b {\n    # c\n    x y;\n  }\n}\n";
    let new = old.replace("$b {", "$b {\n    default \"\";");
    assert_eq!(fixed("map-default", old), new);
    // HTTP/2 of one `listen` holds for all servers of the address.
    let old = "http { server { listen 1 http2; } server { listen 1; } }";
    assert_eq!(fixed("listen-http2", old), old);
    let tested = |rule: &&&str| {
        ["implicit-default-server", "map-default"].contains(*rule)
            || CASES.iter().any(|(of, old, new)| of == *rule && old != new)
    };
    let missing: Vec<_> = FIXABLE.iter().filter(|rule| !tested(rule)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
