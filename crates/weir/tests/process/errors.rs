//! The errors that `-t` reports: all independent ones, the places of missing `;`, byte order marks.

use crate::common::{outcome, site};

/// The messages of `-t`, without the paths of files.
fn messages(main: &str, http: &str, args: &[&str]) -> (Option<i32>, Vec<String>) {
    let site = site(1, main, http);
    let (code, text) = outcome(&site.run(args));
    let folder = site.prefix().join("conf/");
    let text = text.replace(&*folder.to_string_lossy(), "");
    (code, text.lines().map(str::to_owned).collect())
}

/// Numbers of lines count from that of the text in `http`.
const FIRST: usize = 5;

#[test]
fn independent_errors_are_reported_at_once() {
    let http = "server { servr_name a; }\nserver { gzip maybe; root /a; }\n\
                server { location / { prxoy_pass b; index x; } listen; }";
    let (code, lines) = messages("", http, &["-t"]);
    assert_eq!(code, Some(1));
    let want = [
        format!("weir: [emerg] unknown directive \"servr_name\" in weir.conf:{FIRST}"),
        format!(
            "weir: [emerg] invalid value \"maybe\" in \"gzip\" directive, it must be \"on\" or \
             \"off\" in weir.conf:{}",
            FIRST + 1
        ),
        format!("weir: [emerg] unknown directive \"prxoy_pass\" in weir.conf:{}", FIRST + 2),
        format!(
            "weir: [emerg] invalid number of arguments in \"listen\" directive in weir.conf:{}",
            FIRST + 2
        ),
        "weir: configuration file weir.conf test failed".to_owned(),
    ];
    assert_eq!(lines, want);
    // A start reports the first one.
    let (code, lines) = messages("", http, &[]);
    assert_eq!((code, lines), (Some(1), vec![want[0].clone()]));
}

#[test]
fn errors_of_all_levels_keep_the_order_of_the_text() {
    let (_, lines) =
        messages("unknown_a;", "unknown_b;\n}\nunknown_c;\nstream { unknown_d;", &["-t"]);
    let names: Vec<&str> = lines.iter().filter_map(|line| line.split('"').nth(1)).collect();
    assert_eq!(names, ["unknown_a", "unknown_b", "unknown_c", "unknown_d"]);
    // A syntax error is the last, because nothing is known of what follows.
    let (_, lines) = messages("", "unknown_b;\nserver { unknown_c; listen 1", &["-t"]);
    assert!(lines[0].contains("unknown_b") && lines[1].contains("unknown_c"), "{lines:?}");
    assert!(lines[2].contains("unexpected \"}\" in weir.conf:"), "{lines:?}");
    assert_eq!(lines.len(), 5, "{lines:?}");
}

#[test]
fn consequences_are_left_out() {
    let http = "unknown on;\ngzip maybe;";
    let (_, lines) = messages("", http, &["-t"]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    let http = "log_format main escape=x '$uri';\naccess_log /dev/null main;\n\
                upstream u { servr 127.0.0.1; }\nserver { location / { proxy_pass http://u; } }\n\
                map $host $x { default $nothing; }\nserver { listen; if ($x) { return 403; } }";
    let (_, lines) = messages("", http, &["-t"]);
    let at: Vec<&str> = lines.iter().filter_map(|line| line.rsplit(':').next()).collect();
    let of = |line: usize| (FIRST + line).to_string();
    assert_eq!(at[..3], [of(0), of(2), of(5)], "{lines:?}");
    assert_eq!(lines.len(), 4, "{lines:?}");
}

#[test]
fn the_list_of_errors_ends() {
    let http: String = (0..30).map(|n| format!("wrong_{n};\n")).collect();
    let (_, lines) = messages("", &http, &["-t"]);
    assert_eq!(lines.len(), 22, "{lines:?}");
    assert_eq!(lines[20], "weir: [emerg] 10 more errors are not shown");
}

#[test]
fn a_missing_semicolon_is_named_with_its_line() {
    let cases = [
        // The text, the line of nginx's message, the word that lacks its semicolon, its line.
        ("root /a\nindex b;", 0, "/a", 0),
        ("gzip on\n\n# c\nroot b;", 0, "on", 0),
        ("server { listen 80\n  server_name a; }", 1, "80", 0),
        ("server { root /a\n  location / { } }", 0, "/a", 0),
        ("server { listen 80; root '/a\n/b'\n  index c; }", 0, "/a\\x0A/b", 1),
        ("server {\n  listen 80\n}", 2, "80", 1),
        ("server {\n  root /a\n  index b\n}", 3, "/a", 1),
    ];
    for (text, line, word, missing) in cases {
        let (_, lines) = messages("", text, &["-t"]);
        let (line, missing) = (FIRST + line, FIRST + missing);
        assert!(lines[0].ends_with(&format!(" in weir.conf:{line}")), "{text}: {lines:?}");
        let all = lines.join("\n");
        let cause =
            format!("weir: [emerg] \";\" is missing after \"{word}\" in weir.conf:{missing}");
        assert!(all.contains(&cause), "{text}: {lines:?}");
    }
    // An argument in a line of its own is no directive.
    let (_, lines) = messages("", "gzip\n  on\n  off;", &["-t"]);
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn a_byte_order_mark_is_named() {
    let site = site(1, "", "include bom.conf;");
    let site = site.file("conf/bom.conf", b"\xEF\xBB\xBFgzip on;\n");
    let (code, text) = outcome(&site.run(&["-t"]));
    assert_eq!(code, Some(1));
    assert!(text.contains("[emerg] the file begins with a byte order mark"), "{text}");
    assert!(text.contains("conf/bom.conf:1\n"), "{text}");
}
