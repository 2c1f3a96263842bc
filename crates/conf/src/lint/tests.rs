//! Faults that are found, and settings that look alike and are none.

use std::path::Path;

use bytes::Bytes;

use super::{Severity, check, rules};
use crate::parse::{Options, parse_bytes};

/// The findings of a configuration: `rule:line`.
fn found(text: &str) -> Vec<String> {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let tree = parse_bytes(Path::new("f"), bytes, &Options::default()).expect("it is well-formed");
    check(&tree, false, None).iter().map(|f| format!("{}:{}", f.rule.id, f.pos.line)).collect()
}

/// Each text, in a server, has this finding and no other.
#[track_caller]
fn finds(rule: &str, texts: &[&str]) {
    for text in texts {
        let all = found(&format!("http {{ server {{\n{text}\n}} }}"));
        assert!(all.len() == 1 && all[0].starts_with(&format!("{rule}:")), "{text}: {all:?}");
    }
}

/// No text, in a server, has any finding.
#[track_caller]
fn silent(texts: &[&str]) {
    for text in texts {
        let all = found(&format!("http {{ server {{\n{text}\n}} }}"));
        assert_eq!(all, Vec::<String>::new(), "{text}");
    }
}

#[test]
fn rules_have_names_of_their_own() {
    let mut ids: Vec<_> = rules().map(|rule| rule.id).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    for rule in rules() {
        let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        assert!(rule.id.bytes().all(is_name), "{}", rule.id);
        assert!(!rule.summary.is_empty() && !rule.summary.ends_with('.'), "{}", rule.id);
    }
    assert!(Severity::Note < Severity::Error);
    let page = include_str!("../../../../docs/LINT.md");
    for rule in rules() {
        let severity = if rule.habit { "habit" } else { rule.severity.name() };
        let line = format!("| `{}` | {severity} | {} |\n", rule.id, rule.summary);
        assert!(page.contains(&line), "docs/LINT.md lacks {line}");
    }
}

#[test]
fn fields_of_heads() {
    finds(
        "add-header-redefinition",
        &[
            "add_header X-Frame-Options DENY; location / { add_header B 2; }",
            "add_header Cache-Control x; location / { location /a { add_header B 2; } }",
        ],
    );
    finds(
        "set-header-redefinition",
        &[
            "proxy_set_header A 1; location / { proxy_pass http://b; proxy_set_header B 2; }",
            "grpc_set_header A 1; location / { grpc_pass b; grpc_set_header B 2; }",
        ],
    );
    finds(
        "param-redefinition",
        &[
            "fastcgi_param A a; location / { fastcgi_param B b; }",
            "uwsgi_param A a; location / { uwsgi_param B b; }",
            "scgi_param A a; location / { scgi_param B b; }",
        ],
    );
    finds(
        "list-redefinition",
        &[
            "error_page 404 /4.html; location / { error_page 500 502 =200 /5.html; }",
            "error_page 404 500 /e.html; location / { error_page 404 /4.html; }",
            "limit_req zone=a burst=2; location / { limit_req burst=2 zone=b; }",
            "limit_conn a 1; location / { limit_conn b 1; }",
            "proxy_hide_header A; location / { proxy_hide_header B; }",
        ],
    );
    silent(&[
        "fastcgi_param A a; location / { fastcgi_param a x; fastcgi_param B b; }",
        "error_page 404 =200 /a.html; location / { error_page 404 405 /b.html; }",
        "limit_req zone=a burst=2; location / { limit_req burst=5 zone=a; }",
        "error_page 404 /4.html; location / { expires 1d; }",
    ]);
    silent(&[
        "add_header X-Frame-Options a; location / { expires 1d; }",
        "add_header X-Own a; location / { add_header B 2; }",
        "add_header X-Frame-Options 1; location / { add_header x-frame-options 2; add_header B 3; }",
        "add_header Pragma 1; location / { add_header_inherit merge; add_header B 2; }",
        "add_header_inherit merge; add_header Pragma 1; location / { add_header B 2; }",
        "proxy_set_header A 1; location / { proxy_pass http://b; proxy_set_header A 2; }",
    ]);
    finds(
        "add-header-content-type",
        &[
            "add_header Content-Type text/plain;",
            "location /a { add_header content-type a/b always; }",
        ],
    );
    silent(&[
        "location = /a { add_header Content-Type text/plain; return 204; }",
        "location /a { default_type ''; add_header Content-Type text/plain; }",
        "location /a { proxy_hide_header Content-Type; add_header Content-Type text/plain; }",
        "add_header Content-Types text/plain;",
    ]);
    finds("add-header-multiline", &["add_header A \"b;\n c;\";", "more_set_headers \"A: b\n c\";"]);
    finds(
        "host-spoofing",
        &[
            "location / { proxy_pass http://b; proxy_set_header Host $http_host; }",
            "location / { proxy_pass http://b; proxy_set_header host \"$arg_host:80\"; }",
        ],
    );
    silent(&[
        "location / { proxy_pass http://b; proxy_set_header Host $host; }",
        "location / { proxy_pass http://b; proxy_set_header Host $proxy_host; }",
        "location / { proxy_pass http://b; proxy_set_header X-Host $http_host; }",
    ]);
    finds("valid-referers-none", &["valid_referers none example.com;"]);
    silent(&["valid_referers server_names example.com;"]);
    finds(
        "redirect-host",
        &[
            "return 301 https://$host$request_uri;",
            "server_name _; rewrite ^ https://$http_host/ permanent;",
        ],
    );
    silent(&[
        "server_name a.example; return 301 https://$host$request_uri;",
        "return 301 https://a.example$request_uri;",
    ]);
}

#[test]
fn lines_that_a_client_ends() {
    finds(
        "http-splitting",
        &[
            "return 301 https://a.example$uri;",
            "server_name a; location / { return 302 $document_uri/; }",
            "location ~ /p/([^/]*)/ { add_header X $1; }",
            "location ~ /p/(?<x>[^/]*)/ { add_header X $x; }",
            "rewrite ^/(?<x>\\s+)/a https://a.example/$x permanent;",
            "location ~ /(a|b)/(\\W*)$ { set $p $2; proxy_pass http://127.0.0.1/$p; }",
            "location / { proxy_pass http://127.0.0.1$uri; }",
            "location / { proxy_pass http://b; proxy_set_header X ${uri}; }",
        ],
    );
    silent(&[
        "return 301 https://a.example$request_uri;",
        "return 200 $uri;",
        "location ~ /p/([a-z]*)/ { add_header X $1; }",
        "location ~ /p/([^/\\s]*)/ { add_header X $1; }",
        "location ~ /p/(.*) { add_header X $1; }",
        "rewrite ^/([^/]*)/a /b/$1 last;",
        "rewrite ^/(\\s+)/a https://a.example/$1 permanent;",
        "location ~ /(a|b)/(\\W*)$ { set $p $1; proxy_pass http://127.0.0.1/$p; }",
        "location ~ /p/([^/]*)/(\\d+) { add_header X $2; }",
        "location / { proxy_pass http://b; }",
        "set $uri2 a; add_header X $uri2;",
    ]);
}

#[test]
fn locations() {
    finds(
        "alias-traversal",
        &[
            "location /files { alias /srv/files/; }",
            "location ^~ /files { alias /srv/files/; }",
            "location /files { alias /srv/files; }",
            "location / { location /files { alias /srv/files/; } }",
            "location /files { alias /srv/files/; try_files $uri =404; proxy_pass http://b; }",
            "location /files { alias /srv/files/; fastcgi_pass b; }",
        ],
    );
    silent(&[
        "location /files/ { alias /srv/files/; }",
        "location = /files { alias /srv/files/index.html; }",
        "location ~ ^/files(.*)$ { alias /srv/files/$1; }",
        "location /files { alias /srv/files/; proxy_pass http://b; }",
        "location @files { root /srv/files; }",
    ]);
    finds("alias-slash", &["location /files/ { alias /srv/files; }"]);
    silent(&[
        "location /files/ { alias /srv/$host; }",
        "location ~ /files/ { alias /srv/files; }",
        "location = /files/ { alias /srv/index.html; }",
        "location /files/ { alias /srv/files; grpc_pass b; }",
    ]);
    finds(
        "try-files-and-pass",
        &[
            "location / { try_files $uri /index.html; proxy_pass http://b; }",
            "location / { try_files $uri @b; proxy_pass http://b; }",
        ],
    );
    silent(&[
        "location / { try_files $uri =404; proxy_pass http://b; }",
        "location / { try_files $uri @b; } location @b { proxy_pass http://b; }",
    ]);
    finds(
        "if-in-location",
        &[
            "location / { if ($arg_a) { add_header A a; } }",
            "location / { if ($arg_a) { expires 1d; } if ($arg_b) { return 204; } }",
        ],
    );
    silent(&[
        "location / { if ($arg_a) { return 204; } }",
        "location / { if ($arg_a) { set $a 1; rewrite ^ /b last; } }",
        "if ($arg_a) { return 204; }",
    ]);
    finds(
        "if-try-files",
        &[
            "location / { try_files $uri /a; if ($arg_x) { } }",
            "location / { if ($arg_x) { set $y 1; } try_files $uri /a; }",
            "location / { try_files $uri /a; if ($arg_x) { rewrite ^ /x break; } }",
        ],
    );
    silent(&[
        "location / { try_files $uri /a; if ($arg_x) { return 403; } }",
        "location / { try_files $uri /a; if ($arg_x) { rewrite ^ /x last; } }",
        "if ($arg_x) { set $y 1; } location / { try_files $uri /a; }",
        "location / { if ($arg_x) { set $y 1; } }",
    ]);
    finds("if-in-location", &["location / { try_files $uri /a; if ($arg_x) { expires 1d; } }"]);
    finds("if-file", &["if (!-f $request_filename) { rewrite ^ /index.php last; }"]);
    silent(&[
        "if (-f $document_root/down.html) { return 503; }",
        "if (!-f $request_filename) { return 404; }",
    ]);
    finds(
        "return-before-access",
        &[
            "location / { deny all; return 200 x; }",
            "location / { auth_basic x; auth_basic_user_file f; return 200 x; }",
        ],
    );
    silent(&["location / { deny all; }", "location / { auth_basic off; return 200 x; }"]);
    finds("allow-without-deny", &["location / { allow 10.0.0.0/8; allow 127.0.0.1; }"]);
    silent(&[
        "location / { allow 10.0.0.0/8; deny all; }",
        "location / { allow all; }",
        "location / { allow 10.0.0.0/8; allow all; }",
    ]);
    finds(
        "php-without-try-files",
        &[
            "location ~ \\.php$ { fastcgi_pass unix:/php; }",
            "location / { location ~ \\.php$ { fastcgi_pass unix:/php; } }",
            "location ~ \\.php$ { fastcgi_pass unix:/php;
             fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }",
        ],
    );
    silent(&[
        "location ~ \\.php$ { try_files $uri =404; fastcgi_pass unix:/php; }",
        "location ~ \\.php$ { if (!-f $document_root$fastcgi_script_name) { return 404; } \
         fastcgi_pass unix:/php; }",
        "location ~ ^/index\\.php$ { fastcgi_pass unix:/php; }",
        "location ~ \\.php$ { fastcgi_pass unix:/php;
         fastcgi_param SCRIPT_FILENAME $document_root/index.php; }",
        "location ~ \\.php$ { fastcgi_param SCRIPT_FILENAME /a.php; fastcgi_pass unix:/php; }",
        "location ~ \\.php$ { deny all; }",
    ]);
    finds(
        "prefix-like-regex",
        &["location /a\\.php { }", "location ^/a { }", "location /a.*b { }"],
    );
    silent(&["location /a.php { }", "location ~ /a\\.php { }", "location /a$ab { }"]);
    finds("root-in-location", &["location / { root /srv; } location /a/ { expires 1d; }"]);
    silent(&[
        "root /srv; location / { root /srv2; } location /a/ { expires 1d; }",
        "location / { root /srv; } location /a/ { proxy_pass http://b; }",
        "location / { root /srv; }",
    ]);
}

#[test]
fn locations_that_nothing_reaches() {
    finds(
        "unreachable-location",
        &[
            "location /a { deny all; } location /a { deny all; }",
            "location /a { deny all; } location ^~ /a { deny all; }",
            "location = /a { deny all; } location = /a { deny all; }",
            "location ~ /a { deny all; } location ~ /a/b { deny all; }",
            "location ~* /a { deny all; } location ~ ^/x/a { deny all; }",
            "location ~ ^/a { deny all; } location ~ ^/a/[bc]? { deny all; }",
            "location ^~ /a { deny all; } location ~ ^/a/.+x$ { deny all; }",
        ],
    );
    silent(&[
        "location /a { deny all; } location = /a { deny all; }",
        "location ~ /a { deny all; } location ~* /a/b { deny all; }",
        "location ~ /a/b { deny all; } location ~ /a { deny all; }",
        "location ~ /a { deny all; } location ~ /a? { deny all; }",
        "location ~ /a { deny all; } location ~ /a/b|/c { deny all; }",
        "location ~ /a { deny all; } location ~ x(/a)? { deny all; }",
        "location ~ ^/a { deny all; } location ~ /a/b { deny all; }",
        "location ^~ /a { deny all; } location ~ x$ { deny all; }",
        "location ^~ /a { deny all; } location /a/b { deny all; } location ~ ^/a/b { deny all; }",
        "location /a { deny all; } location ~ ^/a/.+x$ { deny all; }",
    ]);
}

#[test]
fn groups_of_maps() {
    let with = |map: &str, location: &str| {
        found(&format!("http {{ map $host $m {{ {map} }}\nserver {{ {location} }} }}"))
    };
    let map = "default a; ~^(.+)\\.b$ $1;";
    let none = Vec::<String>::new();
    let both = "location ~ ^/(.*)$ { add_header A $m; add_header B $1; }";
    assert_eq!(with(map, both), ["map-groups:2"]);
    for fine in [
        "location ~ ^/(?<x>.*)$ { add_header A $m; add_header B $x; }",
        "location ~ ^/(.*)$ { set $y $1; add_header A $m; }",
        "location ~ ^/(.*)$ { add_header B $1; }",
        "location / { add_header A $m; }",
    ] {
        assert_eq!(with(map, fine), none, "{fine}");
    }
    assert_eq!(with("default a; ~^(?<n>.+)\\.b$ $n; ~\\(x 1;", both), none);
}

#[test]
fn blocks_and_forms() {
    finds(
        "misplaced-block",
        &[
            "server { listen 80; }",
            "location / { upstream a { server 127.0.0.1; } }",
            "events { }",
            "location / { http { } }",
        ],
    );
    assert_eq!(found("http { location / { deny all; } }"), ["misplaced-block:1"]);
    finds("duplicate-directive", &["root /a; root /b;", "location / { expires 1d; expires 2d; }"]);
    assert_eq!(found("daemon on;\nuser a;\ndaemon off;"), ["duplicate-directive:3"]);
    silent(&["root /a; location / { root /b; }", "index a; index b;"]);
    finds("missing-semicolon", &["access_log off\nexpires 1d;", "root /a\nallow all;"]);
    silent(&[
        "index a\nindex b;",
        "server_name a\nroot b;",
        "add_header A\n\"root\" always;",
        "proxy_cache_use_stale error\ntimeout updating;",
        "access_log\n/a main;",
    ]);
    finds("listen-http2", &["listen 443 ssl http2;"]);
    silent(&["listen 443 ssl; http2 on;", "listen http2;"]);
    finds("removed-directive", &["ssl on;", "limit_zone a b 1m;"]);
}

#[test]
fn protocols_and_ciphers() {
    finds("tls-protocols", &["ssl_protocols TLSv1.1 TLSv1.2;", "proxy_ssl_protocols SSLv3;"]);
    silent(&["ssl_protocols TLSv1.2 TLSv1.3;"]);
    finds(
        "tls-ciphers",
        &[
            "ssl_ciphers RC4-SHA:!aNULL;",
            "ssl_ciphers HIGH:!MD5;",
            "ssl_ciphers ALL;",
            "proxy_ssl_ciphers DES-CBC3-SHA;",
        ],
    );
    silent(&[
        "ssl_ciphers HIGH:!aNULL:!MD5;",
        "ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256:!aNULL:!RC4;",
        "ssl_ciphers ALL:!aNULL:!EXPORT:-RC4;",
        "ssl_ciphers DEFAULT:RC4-SHA:!RC4;",
    ]);
}

#[test]
fn expressions() {
    finds(
        "origin-regex",
        &[
            "if ($http_origin ~* \"https?://a\\.example$\") { return 204; }",
            "if ($http_origin ~ ^https://a\\.example) { return 204; }",
            "if ($http_origin !~ \"^https://a.example$\") { return 403; }",
            "if ($http_referer !~ \"a\\.example\") { return 403; }",
            "if ($http_referer !~ \"^https://a\\.example\") { return 403; }",
            "if ($http_referer !~ \"^https://.*a\\.example/\") { return 403; }",
            "if ($http_referer !~ \"^https://a\\.example/|b\\.example/\") { return 403; }",
            "if ($http_referer ~ \"a\\.example\") { set $x 1; }",
        ],
    );
    silent(&[
        "if ($http_origin ~ \"^https://a\\.example$\") { return 204; }",
        "if ($http_origin ~ ^https://(a|b)\\.example$) { return 204; }",
        "if ($http_referer ~ \"^https://a\\.example/\") { return 204; }",
        "if ($http_origin = https://a.example) { return 204; }",
        "if ($http_origin !~ '^https?:\\/\\/a\\.example\\/') { return 403; }",
        "if ($http_referer !~ '^https?://([^/]+\\.)?a\\.example/') { return 403; }",
        // Lists of sites that are kept out.
        "if ($http_referer ~* (spam|casino)) { return 403; }",
        "if ($http_referer ~ \"a\\.example\") { return 444; }",
        "if ($http_user_agent ~ bot) { return 403; }",
    ]);
    finds("unanchored-extension", &["location ~ \\.(cgi|pl) { uwsgi_pass b; }"]);
    silent(&["location ~ \\.(cgi|pl)$ { uwsgi_pass b; }", "location ~ /\\.ht { deny all; }"]);
    finds("unescaped-dot", &["location ~ .(css|js)$ { expires 1d; }", "location ~* ^.*.pdf$ { }"]);
    silent(&["location ~ \\.(css|js)$ { }", "location ~ [.]css$ { }", "location ~ /a$ { }"]);
}

#[test]
fn passing_on() {
    finds(
        "ssrf",
        &[
            "resolver 127.0.0.1; location ~ /p/(.*) { proxy_pass http://$1; }",
            "resolver 127.0.0.1; location / { proxy_pass $arg_url; }",
            "resolver 127.0.0.1; location / { proxy_pass http://a$arg_x.b.example; }",
            "resolver 127.0.0.1; location / { proxy_pass $http_x_scheme://b.example; }",
            "resolver 127.0.0.1; location ~ /(?<to>.*) { proxy_pass http://some$to; }",
            "resolver 127.0.0.1; location / { proxy_pass http://$http_x_to/; }",
            "resolver 127.0.0.1; location / { set $to $arg_to; proxy_pass http://$to/; }",
        ],
    );
    silent(&[
        "resolver 127.0.0.1; location ~ /p/(.*) { internal; proxy_pass http://$1; }",
        "resolver 127.0.0.1; location ~ /p/([a-z]+) { proxy_pass http://$1.internal.example; }",
        "location / { proxy_pass http://127.0.0.1$request_uri; }",
        "location / { set $to http://127.0.0.1$request_uri; proxy_pass $to; }",
        "location ~ /(\\d+)/ { proxy_pass http://127.0.0.1:$1; }",
        "resolver 127.0.0.1; location / { set $to b.example; proxy_pass http://$to/; }",
    ]);
    finds(
        "proxy-pass-resolver",
        &[
            "location / { set $b b.example; proxy_pass http://$b; }",
            "location / { proxy_pass http://b.example$request_uri; }",
            "location / { proxy_pass http://$server_name; }",
        ],
    );
    silent(&[
        "location / { set $b 127.0.0.1:80; proxy_pass http://$b; }",
        "location / { set $b unix:/s; proxy_pass http://$b; }",
        "location / { proxy_pass http://127.0.0.1:80$request_uri; }",
        "location / { proxy_pass http://b.example; }",
        "resolver 127.0.0.1; location / { proxy_pass http://$server_name; }",
    ]);
    let group = "http { upstream b { server 127.0.0.1; } map $host $to { default b; }\n\
                 server { location / { proxy_pass http://$to; } } }";
    assert_eq!(found(group), Vec::<String>::new());
    finds(
        "proxy-pass-slash",
        &[
            "location /api { proxy_pass http://b/; }",
            "location /api/ { proxy_pass http://b/base; }",
        ],
    );
    silent(&[
        "location /api/ { proxy_pass http://b/; }",
        "location /api { proxy_pass http://b; }",
        "location /api { proxy_pass http://b/api; }",
        "location = /api { proxy_pass http://b/; }",
        "location /api/ { proxy_pass http://b/search?q=; }",
        "location ~ /api { proxy_pass http://b; }",
    ]);
}

#[test]
fn servers() {
    let http = |servers: &str| found(&format!("http {{\n{servers}\n}}"));
    let two = "server { listen 80; server_name a; }\nserver { server_name b; }";
    assert_eq!(http(two), ["implicit-default-server:2"]);
    for fine in [
        "server { listen 80 default_server; server_name a; }\nserver { server_name b; }",
        "server { listen 80; server_name _; }\nserver { server_name b; }",
        "server { listen 80; server_name a; }\nserver { listen 81; server_name b; }",
        "server { server_name a; }",
        "server { listen 443 ssl; listen 443 quic; server_name a; }",
    ] {
        assert_eq!(http(fine), Vec::<String>::new(), "{fine}");
    }
    let events = |limit: u32| {
        format!("worker_rlimit_nofile {limit};\nevents {{\nworker_connections 1024; }}")
    };
    assert_eq!(found(&events(512)), ["worker-connections:3"]);
    assert_eq!(found(&events(4096)), Vec::<String>::new());
    assert_eq!(found("events { worker_connections 1024; }"), Vec::<String>::new());
    finds("error-log-off", &["error_log off;"]);
    silent(&["error_log /dev/null crit;", "access_log off;"]);
}

#[test]
fn comments_ignore_findings() {
    let server = |line: &str| found(&format!("http {{ server {{\n{line}\n}} }}"));
    let none = Vec::<String>::new();
    assert_eq!(server("error_log off; # weir:ignore error-log-off it is wanted"), none);
    assert_eq!(server("# weir:ignore error-log-off it is wanted\nerror_log off;"), none);
    assert_eq!(
        server("# weir:ignore ssrf another rule\nerror_log off;"),
        ["ignore:2", "error-log-off:3"]
    );
    assert_eq!(server("# weir:ignore ssrf nothing is there\n"), ["ignore:2"]);
    assert_eq!(server("# weir:ignore autoindex only habits are"), none);
    assert_eq!(server("error_log off; # weir:ignore error-log-off"), ["ignore:2"]);
    assert_eq!(server("# weir:ignore no-such x\n"), ["ignore:2"]);
    let apart = "# weir:ignore error-log-off two lines above\n\nerror_log off;";
    assert_eq!(server(apart), ["ignore:2", "error-log-off:4"]);
    // Text is no comment.
    assert_eq!(server("return 200 \"weir:ignore x\";"), none);
}

#[test]
fn odd_texts_are_borne() {
    for text in [
        "location { }",
        "if { }",
        "listen;",
        "proxy_pass;",
        "alias;",
        "return;",
        "rewrite a;",
        "location ~ ( { return 301 $1; }",
        "location ~ [ { add_header A $1; }",
        "location ~ \\ { add_header A $1; proxy_pass http://${; }",
        "proxy_pass $; proxy_pass ${a; proxy_pass http://;",
        "set $a $a; proxy_pass http://$a;",
        "set $a $b; set $b $a; proxy_pass http://$a;",
        "location ~ (?P< { add_header A $1; }",
    ] {
        let _ = found(&format!("http {{ server {{\n{text}\n}} }}"));
    }
}

/// Every text with a piece cut off or out, or a byte changed, is borne.
#[test]
fn broken_texts_are_borne() {
    let whole = "upstream b { server a; } map $host $m { default b; ~x $1; }\n\
        server { listen 80 default_server; server_name _; root /a; return 301 https://$host$uri;\n\
        location ~ ^/(?<x>[^/]*)/(a|\\W+)\\.php { fastcgi_pass $x:80; add_header A $1$2${x}; }\n\
        location /a { alias /b/; allow 1.1.1.1; if ($http_origin ~ '^https?://(a|b)[^/]+\\.c/') { \
        set $v http://$arg_a/; } proxy_pass $v; proxy_set_header Host $http_host; }\n\
        if (!-f $request_filename) { rewrite ^(.*)$ /x?$1 last; } error_log off; } # weir:ignore x\n";
    let options = Options { keep_broken: true, max_files: 0, ..Options::default() };
    let look = |text: Vec<u8>| {
        let name = Path::new("f");
        if let Ok(tree) = parse_bytes(name, Bytes::from(text), &options) {
            let _ = check(&tree, true, None);
        }
    };
    for at in 0..whole.len() {
        look(whole.as_bytes()[..at].to_vec());
        look([&whole.as_bytes()[..at], &whole.as_bytes()[(at + 5).min(whole.len())..]].concat());
        for byte in *b"[(\\$|{}\"' ;\n" {
            let mut text = whole.as_bytes().to_vec();
            text[at] = byte;
            look(text);
        }
    }
}

#[test]
fn names_that_nobody_has() {
    let of = |text: &str| {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        let tree = parse_bytes(Path::new("f"), bytes, &Options::default()).expect("well-formed");
        let names = std::collections::HashSet::from(["own_directive", "own_block"]);
        let found = check(&tree, false, Some(&names));
        let unknown = found.iter().filter(|f| f.rule.id == "unknown-directive");
        unknown.map(|f| f.pos.line).collect::<Vec<_>>()
    };
    assert_eq!(of("http {\nproxy_psas x;\nserver {\nnonsense { a 1; }\n} }"), [2, 4]);
    assert_eq!(of("own_directive 1; own_block {\nfoo 1;\n}"), [2]);
    assert_eq!(of("http { lua_x 1; map $a $b { x y; } types { a/b c; } }"), []);
    assert_eq!(of("http { content_by_lua_block { ngx.say(1) } geoip2 f { $x y; } }"), [1]);
    assert_eq!(of("foo 1; # weir:ignore unknown-directive of a module that is added"), []);
}

#[test]
fn tokens_and_sign_in() {
    finds("jwt-for-others", &["location / { auth_jwt x; auth_jwt_key_file k; }"]);
    silent(&[
        "auth_jwt_require $ours; location / { auth_jwt x; auth_jwt_key_file k; }",
        "location / { auth_jwt off token=$oidc_id_token; }",
    ]);
    let keys = |pass: &str| {
        format!(
            "location / {{ auth_jwt x; auth_jwt_require $a; auth_jwt_key_request /k?x; }}\n\
             location = /k {{ internal; proxy_pass {pass}; }}"
        )
    };
    finds("keys-over-http", &[&keys("http://192.0.2.1/jwks")]);
    silent(&[&keys("https://192.0.2.1/jwks"), &keys("http://127.0.0.1:8080/jwks")]);
    finds(
        "oidc-satisfy-any",
        &["satisfy any; location / { auth_oidc p; auth_request /a; proxy_pass http://127.0.0.1; }"],
    );
    silent(&[
        "satisfy any; location / { auth_oidc p; allow 192.0.2.0/24; deny all; }",
        "satisfy any; location / { auth_oidc off; auth_request /a; }",
        "location / { auth_oidc p; auth_request /a; }",
    ]);
    let server = |more: &str, inside: &str| {
        found(&format!("http {{ oidc_provider p {{ {more} }} server {{\n{inside}\n}} }}"))
    };
    let absent = ["oidc-callback:2"];
    assert_eq!(server("", "location /app/ { auth_oidc p; }"), absent);
    assert_eq!(server("", "location / { } location /app/ { auth_oidc p; }"), absent);
    assert_eq!(
        server("redirect_uri https://a.test/cb;", "location /app/ { auth_oidc p; }"),
        absent
    );
    for (more, inside) in [
        ("", "location / { auth_oidc p; }"),
        ("", "auth_oidc p; location /app/ { auth_oidc p; }"),
        ("", "location /app/ { auth_oidc p; } location = /oidc_callback { auth_oidc p; }"),
        ("", "location ~ ^/(app|oidc) { auth_oidc p; }"),
        ("redirect_uri /app/cb;", "location /app/ { auth_oidc p; }"),
        ("redirect_uri https://a.test/app/cb;", "location /app/ { auth_oidc p; }"),
        ("", "location /app/ { auth_oidc $by; }"),
        ("", "location /app/ { auth_oidc off; }"),
    ] {
        assert_eq!(server(more, inside), [""; 0], "{more} {inside}");
    }
    for variable in ["oidc_access_token", "http_authorization", "cookie_NGX_OIDC_SESSION"] {
        let text = format!("http {{ log_format x '$uri ${variable}'; }}");
        assert_eq!(found(&text), ["token-in-log:1"], "{variable}");
    }
    assert_eq!(found("http { log_format x '$oidc_claim_sub $cookie_lang'; }"), [""; 0]);
}

#[test]
fn directories() {
    let found = |settings: &str| found(&format!("http {{ ldap_server a {{ {settings} }} }}"));
    let bound = "binddn cn=x; binddn_passwd y;";
    let url = |url: &str| format!("url {url}/dc=x?uid?sub; {bound}");
    let none = [""; 0];
    assert_eq!(found(&url("ldap://192.0.2.1")), ["ldap-plaintext:1"]);
    assert_eq!(found(&url("ldap://127.0.0.1:389")), none);
    assert_eq!(found(&(url("ldap://192.0.2.1") + "starttls on;")), ["ldap-unchecked:1"]);
    assert_eq!(found(&url("LDAPS://192.0.2.1")), ["ldap-unchecked:1"]);
    assert_eq!(found(&(url("ldaps://192.0.2.1") + "ssl_check_cert on;")), none);
    let sub = "url ldap://localhost/dc=x?uid?sub; binddn cn=x;";
    assert_eq!(found(sub), ["ldap-password:1"]);
    assert_eq!(found(&format!("{sub} binddn_passwd '';")), ["ldap-password:1"]);
    assert_eq!(found("url ldap://localhost/dc=x?uid?sub;"), none);
    assert_eq!(found("url ldap://localhost/dc=x?uid;"), ["ldap-scope:1"]);
    assert_eq!(found("url ldap://localhost/dc=x?uid?base?(a=b);"), ["ldap-scope:1"]);
    assert_eq!(found("url ldap://localhost; require valid_user uid=$remote_user,dc=x;"), none);
}

#[test]
fn shared_state() {
    let found = |url: &str, zone: &str| found(&format!("{url}\nhttp {{ {zone} }}"));
    let zone = "limit_req_zone $a zone=a:1m rate=1r/s sync;";
    let none = [""; 0];
    assert_eq!(found("shared_state redis://127.0.0.1 prefix=a;", zone), none);
    assert_eq!(found("shared_state redis://127.0.0.1;", zone), ["shared-state-prefix:1"]);
    assert_eq!(found("", zone), ["sync-alone:2"]);
    assert_eq!(found("", "limit_req_zone $a zone=a:1m rate=1r/s;"), none);
    let password = ["shared-state-password:1"];
    assert_eq!(found("shared_state redis://u:p@10.0.0.1/2 prefix=a;", zone), password);
    assert_eq!(found("shared_state redis://u:p@127.0.0.1,b:1 prefix=a;", zone), password);
    assert_eq!(found("shared_state rediss://u:p@10.0.0.1 prefix=a;", zone), none);
    assert_eq!(found("shared_state redis://u:p@localhost:1 prefix=a;", zone), none);
}
