//! Reading text and files: nginx's syntax, its messages, and refusals.

#![allow(clippy::panic, reason = "the lint's exception for tests does not reach their helpers")]

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_conf as conf;

use conf::parse::{Options, parse_bytes, parse_file, parse_params};
use conf::{ConfError, Node, Tree};

fn parse(text: &str) -> Result<Tree, ConfError> {
    let text = Bytes::copy_from_slice(text.as_bytes());
    parse_bytes(Path::new("t.conf"), text, &Options::default())
}

/// One line for a tree: `name arg (quoted); name { ... }`, each word in brackets.
fn show(nodes: &[Node]) -> String {
    let mut out = String::new();
    for node in nodes {
        out.push_str(&node.name.lossy());
        for arg in &node.args {
            let (open, close) = if arg.quoted { ('<', '>') } else { ('[', ']') };
            out.push_str(&format!(" {open}{}{close}", arg.lossy()));
        }
        match &node.block {
            Some(block) => out.push_str(&format!(" {{ {} }} ", show(block))),
            None => out.push_str("; "),
        }
    }
    out.trim_end().to_owned()
}

#[track_caller]
fn reads(text: &str, shown: &str) {
    match parse(text) {
        Ok(tree) => assert_eq!(show(&tree.nodes), shown, "{text:?}"),
        Err(error) => panic!("{text:?}: {error}"),
    }
}

#[track_caller]
fn fails(text: &str, message: &str) -> ConfError {
    match parse(text) {
        Ok(tree) => panic!("{text:?} reads as {}", show(&tree.nodes)),
        Err(error) => {
            assert_eq!(error.to_string(), format!("{message} in t.conf:1"), "{text:?}");
            error
        }
    }
}

#[test]
fn words_and_blocks() {
    reads("", "");
    reads(" \t\r\n # all comment", "");
    reads("a;", "a;");
    reads("a b c;", "a [b] [c];");
    reads("a\n\tb\r\n;c;", "a [b]; c;");
    reads("a{b c;}d;", "a { b [c]; } d;");
    reads("a b{}", "a [b] {  }");
    reads("a;# b;\nc;", "a; c;");
    reads("a # b;\n c;", "a [c];");
    reads("a b#c;", "a [b#c];");
    reads("a b};", "a [b}];");
    reads("a (b);", "a [(b)];");
}

#[test]
fn quotes_and_escapes() {
    reads("a \"b c\" 'd;e';", "a <b c> <d;e>;");
    reads("a \"\" '';", "a <> <>;");
    reads("a \"it's\" 'say \"x\"';", "a <it's> <say \"x\">;");
    reads(r#"a "x\"y" 'x\'y' x\"y;"#, "a <x\"y> <x'y> [x\"y];");
    reads(r"a x\ y x\;y x\{y;", r"a [x\ y] [x\;y] [x\{y];");
    reads(r"a \t\r\n\\ \d\.\$;", "a [\t\r\n\\] [\\d\\.\\$];");
    reads(r"a \\n;", r"a [\n];");
    reads(r#"a "\\";"#, r"a <\>;");
    reads("a \"b\nc\";", "a <b\nc>;");
    reads("a b\"c d\"e;", "a [b\"c] [d\"e];");
    reads("if (\"a\") {}", "if [(\"a\")] {  }");
    reads("if ($x = \"a\"){}", "if [($x] [=] <a> [)] {  }");
    reads("\"a\" b;", "a [b];");
    reads("a \"b\"{}", "a <b> {  }");
    reads("a \"b\";", "a <b>;");
}

#[test]
fn braces_of_variables_belong_to_the_word() {
    reads("a ${b}c;", "a [${b}c];");
    reads("a x${b}${c};", "a [x${b}${c}];");
    reads("a $b{c;}", "a [$b] { c; }");
    reads("a ${{b};", "a [${{b}];");
    reads("a \"${b}\";", "a <${b}>;");
    reads(r"a \${b;}", r"a [\$] { b; }");
}

#[test]
fn programs_in_lua_are_one_word() {
    reads(
        "a_by_lua_block { x = {1} } set_by_lua_block $r{return 1}b;",
        "a_by_lua_block < x = {1} >; set_by_lua_block [$r] <return 1>; b;",
    );
    for program in [
        "s = '}' .. \"\\\"}\"",
        "x = 1 -- a } here, and it's no string\n",
        "--[==[ } ]] } ]==] y()",
        "s = [[ } ' ]] t[a[1]] = [=[}]=]",
        "\n a - b; #t\n",
    ] {
        let text = format!("l {{ c_by_lua_block {{{program}}} b; }}");
        reads(&text, &format!("l {{ c_by_lua_block <{program}>; b; }}"));
    }
    let tree = parse("a_by_lua_block {\n\n'\n' }\nb;").expect("it reads");
    assert_eq!(tree.nodes[1].name.pos.line, 5);
    reads("upstream a_by_lua_block { b; }", "upstream [a_by_lua_block] { b; }");
    let message = "unexpected end of file, expecting \"}\"";
    fails("a_by_lua_block { '\0' }", "unexpected NUL byte");
    for text in ["a_by_lua_block { {}", "a_by_lua_block { '}", "a_by_lua_block { [[}"] {
        let help = fails(text, message).help;
        assert_eq!(help.as_deref(), Some("the block \"a_by_lua_block\" in line 1 is not closed"));
    }
}

#[test]
fn misplaced_signs() {
    fails(";", "unexpected \";\"");
    fails("a;;", "unexpected \";\"");
    fails("{", "unexpected \"{\"");
    fails("a;}", "unexpected \"}\"");
    fails("a }", "unexpected \"}\"");
    fails("a {b }", "unexpected \"}\"");
    fails("a \"b\"c;", "unexpected \"c\"");
    fails("a \"b\"'c';", "unexpected \"'\"");
    fails("a \"b\"}", "unexpected \"}\"");
    fails("a \"b\"#c", "unexpected \"#\"");
    fails("a \"b\"é;", "unexpected \"é\"");
    fails("a \"b\"\u{1b};", "unexpected \"\\x1b\"");
    fails("a b\0c;", "unexpected NUL byte");
    fails("a \"b\0c\";", "unexpected NUL byte");
    fails("a b\\\0;", "unexpected NUL byte");
    fails("\0", "unexpected NUL byte");
}

#[test]
fn texts_that_end_too_early() {
    let statement = "unexpected end of file, expecting \";\" or \"}\"";
    fails("a", statement);
    fails("a b", statement);
    fails("a b ", statement);
    fails("a \"b", statement);
    fails("a \"b\"", statement);
    fails("a \"b\\\"", statement);
    fails("a b\\", statement);
    fails("a 'b;}", statement);
    fails("a { b", statement);
    fails("a {", "unexpected end of file, expecting \"}\"");
    fails("a { b;", "unexpected end of file, expecting \"}\"");
}

#[test]
fn the_end_of_a_file_is_on_its_last_line() {
    let error = parse("a {\nb;\n\n").unwrap_err();
    assert_eq!(error.to_string(), "unexpected end of file, expecting \"}\" in t.conf:4");
    assert_eq!(error.help.as_deref(), Some("the block \"a\" in line 1 is not closed"));
    let error = parse("a;\nb \"c;\n\nd e;").unwrap_err();
    assert_eq!(error.to_string(), "unexpected end of file, expecting \";\" or \"}\" in t.conf:4");
    assert_eq!(error.help.as_deref(), Some("the quote that opens in line 2 is not closed"));
    let error = parse("http {\n  listen 80\n}\n").unwrap_err();
    assert_eq!(error.to_string(), "unexpected \"}\" in t.conf:3");
    assert_eq!(
        error.help.as_deref(),
        Some("the directive \"listen\" in line 2 is not ended by \";\"")
    );
}

#[test]
fn positions_count_lines_and_columns_from_one() {
    let tree = parse("a;\n  bb \"c\nd\" e\\\nf g;\n").unwrap();
    let node = &tree.nodes[1];
    let words = std::iter::once(&node.name).chain(&node.args);
    let places: Vec<_> = words.map(|word| (word.pos.line, word.pos.column)).collect();
    assert_eq!(places, [(2, 3), (2, 6), (3, 4), (4, 3)]);
    assert_eq!(node.name.pos.to_string(), "t.conf:2");
}

#[test]
fn words_share_the_file_s_memory() {
    let text = Bytes::from_static(b"name plain \"quoted\" esc\\\\aped;");
    let tree = parse_bytes(Path::new("t"), text.clone(), &Options::default()).unwrap();
    let inside = |word: &conf::Word| text.as_ptr_range().contains(&word.text.as_ptr());
    let node = &tree.nodes[0];
    assert!(inside(&node.name) && inside(&node.args[0]) && inside(&node.args[1]));
    assert!(!inside(&node.args[2]));
}

#[test]
fn long_words() {
    let fitting = "x".repeat(4095);
    reads(&format!("a {fitting};"), &format!("a [{fitting}];"));
    reads(&format!("a \"{fitting}\";"), &format!("a <{fitting}>;"));
    let long = "x".repeat(4096);
    fails(&format!("a {long};"), "too long parameter \"xxxxxxxxxx...\" started");
    let missing =
        |quote| format!("too long parameter, probably missing terminating \"{quote}\" character");
    fails(&format!("a \"{long}\";"), &missing('"'));
    fails(&format!("a '{}';", "\\'".repeat(2048)), &missing('\''));
    // nginx's line is the one where the word began.
    fails(&format!("a \"{}\";", "x\n".repeat(5000)), &missing('"'));
    fails(&format!("a {long}"), "unexpected end of file, expecting \";\" or \"}\"");
    // Comments and blanks are not words.
    reads(&format!("a; # {long}\n{}b;", " ".repeat(10_000)), "a; b;");
    fails(&"x".repeat(10 << 20), "too long parameter \"xxxxxxxxxx...\" started");
    let multibyte = "é".repeat(4096);
    assert!(parse(&format!("a x{multibyte};")).is_err());
}

#[test]
fn blocks_are_nested_to_a_limit() {
    let nested = |depth| format!("{}{}", "a {".repeat(depth), "}".repeat(depth));
    assert!(parse(&nested(128)).is_ok());
    fails(&nested(129), "blocks are nested more than 128 deep");
    fails(&"a {".repeat(100_000), "blocks are nested more than 128 deep");
}

#[test]
fn parameters_of_the_command_line() {
    let params = |text: &str| {
        let tree = parse_params(text.as_bytes(), &Options::default());
        tree.map(|tree| show(&tree.nodes)).map_err(|error| error.to_string())
    };
    assert_eq!(params("daemon off; pid /x;").unwrap(), "daemon [off]; pid [/x];");
    assert_eq!(params("").unwrap(), "");
    for (text, message) in [
        ("daemon off", "unexpected end of parameter, expecting \";\""),
        ("daemon \"off", "unexpected end of parameter, expecting \";\""),
        ("events {}", "block directives are not supported in -g option"),
        ("a;}", "unexpected \"}\""),
        ("\n;", "unexpected \";\""),
    ] {
        assert_eq!(params(text).unwrap_err(), format!("{message} in command line"), "{text}");
    }
    let long = "x".repeat(5000);
    assert_eq!(params(&format!("a {long};")).unwrap(), format!("a [{long}];"));
}

#[test]
fn what_stands_before_a_fault_can_be_kept() {
    let options = Options { keep_broken: true, ..Options::default() };
    let text = Bytes::from_static(b"a;\nb {\n c { d;\n");
    let tree = parse_bytes(Path::new("t"), text, &options).unwrap();
    assert_eq!(tree.nodes.len(), 2);
    let inner = &tree.nodes[1].children()[0];
    assert_eq!(inner.name, *"c");
    let [d, end] = inner.children() else { panic!("{inner:?}") };
    assert!(d.broken.is_none());
    let error = end.broken.as_ref().expect("the fault stands at the end");
    assert_eq!(error.to_string(), "unexpected end of file, expecting \"}\" in t:4");
    assert!(inner.entries().any(|entry| entry.is_err()));
}

#[test]
fn entries_of_a_block_of_data_are_no_blocks() {
    let tree = parse("types { text/html html htm; }").unwrap();
    let entries: Vec<_> = tree.nodes[0].entries().map(|entry| entry.unwrap().args.len()).collect();
    assert_eq!(entries, [2]);
    let tree = parse("types { text/html { html; } }").unwrap();
    let errors: Vec<_> = tree.nodes[0].entries().map(|entry| entry.unwrap_err()).collect();
    assert_eq!(errors[0].to_string(), "unexpected \"{\" in t.conf:1");
}

/// A directory of files that goes away again.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, files: &[(&str, &str)]) -> Files {
        let top = std::env::temp_dir().join(format!("weir-conf-{name}-{}", std::process::id()));
        for (name, text) in files {
            let path = top.join(name);
            fs::create_dir_all(path.parent().expect("joined")).expect("temporary directory");
            fs::write(path, text).expect("temporary file");
        }
        Files(top)
    }

    fn read(&self, options: Options) -> Result<Tree, String> {
        let options = Options { conf_prefix: self.0.clone(), ..options };
        parse_file(&self.0.join("nginx.conf"), &options)
            .map_err(|error| error.to_string().replace(self.0.to_str().unwrap_or("?"), "TOP"))
    }

    fn show(&self) -> Result<String, String> {
        self.read(Options::default()).map(|tree| show(&tree.nodes))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_are_included_in_place() {
    let files = Files::new(
        "include",
        &[
            ("nginx.conf", "a; http { include conf.d/*.conf; b; include 'one'; } include none*;"),
            ("conf.d/2.conf", "two;"),
            ("conf.d/1.conf", "one { include one; }"),
            ("conf.d/.hidden.conf", "hidden;"),
            ("one", "x y;"),
        ],
    );
    let tree = files.read(Options::default()).unwrap();
    assert_eq!(show(&tree.nodes), "a; http { one { x [y]; } two; b; x [y]; }");
    let names: Vec<_> =
        tree.files.iter().map(|file| file.path.strip_prefix(&files.0).unwrap()).collect();
    assert_eq!(
        names,
        ["nginx.conf", "conf.d/1.conf", "one", "conf.d/2.conf"].map(Path::new),
        "each once, in the order of first use"
    );
    assert_eq!(tree.nodes[1].children()[1].name.pos.file.as_ref(), files.0.join("conf.d/2.conf"));
}

#[test]
fn includes_that_fail() {
    for (name, main, other, message) in [
        (
            "missing",
            "a;\ninclude missing.conf;",
            "",
            "open() \"TOP/missing.conf\" failed (2: No such file or directory) in TOP/nginx.conf:2",
        ),
        (
            "directory",
            "include sub;",
            "",
            "pread() \"TOP/sub\" failed (21: Is a directory) in TOP/nginx.conf:1",
        ),
        (
            "matched directory",
            "include su*;",
            "",
            "pread() \"TOP/sub\" failed (21: Is a directory) in TOP/nginx.conf:1",
        ),
        (
            "device",
            "include /dev/zero;",
            "",
            "\"/dev/zero\" is not a regular file in TOP/nginx.conf:1",
        ),
        (
            "itself",
            "include nginx.conf;",
            "",
            "\"TOP/nginx.conf\" includes itself in TOP/nginx.conf:1",
        ),
        (
            "circle",
            "include sub/other;",
            "x { include nginx.con[f]; }",
            "\"TOP/nginx.conf\" includes itself in TOP/sub/other:1",
        ),
        ("brace", "a { include sub/other;", "b; }", "unexpected \"}\" in TOP/sub/other:1"),
        (
            "open block",
            "a { include sub/other; }",
            "b { c;",
            "unexpected end of file, expecting \"}\" in TOP/sub/other:1",
        ),
        (
            "no argument",
            "include;",
            "",
            "invalid number of arguments in \"include\" directive in TOP/nginx.conf:1",
        ),
        (
            "two arguments",
            "include a b;",
            "",
            "invalid number of arguments in \"include\" directive in TOP/nginx.conf:1",
        ),
        (
            "block",
            "include a { }",
            "",
            "directive \"include\" is not terminated by \";\" in TOP/nginx.conf:1",
        ),
    ] {
        let files =
            Files::new(&name.replace(' ', "-"), &[("nginx.conf", main), ("sub/other", other)]);
        assert_eq!(files.show().unwrap_err(), message, "{name}");
    }
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let files = Files::new("socket", &[("nginx.conf", "include socket;")]);
    let _listener = UnixListener::bind(files.0.join("socket")).unwrap();
    assert_eq!(
        files.show().unwrap_err(),
        "\"TOP/socket\" is not a regular file in TOP/nginx.conf:1"
    );
    let missing = parse_file(&files.0.join("no.conf"), &Options::default()).unwrap_err();
    assert_eq!(missing.pos, None);
    let message = missing.to_string().replace(files.0.to_str().unwrap(), "TOP");
    assert_eq!(message, "open() \"TOP/no.conf\" failed (2: No such file or directory)");
    assert!(parse_file(Path::new("/dev/null"), &Options::default()).unwrap().nodes.is_empty());
}

#[test]
fn files_that_multiply_meet_a_limit() {
    // Each file includes the next one twice: 2^30 in the end.
    let texts: Vec<_> = (0..30)
        .map(|n| (format!("f{n}"), format!("include f{}; include f{};", n + 1, n + 1)))
        .chain([("nginx.conf".to_owned(), "include f0;".to_owned()), ("f30".into(), "a;".into())])
        .collect();
    let texts: Vec<_> = texts.iter().map(|(name, text)| (&name[..], &text[..])).collect();
    let files = Files::new("multiply", &texts);
    let few = Options { max_files: 200, ..Options::default() };
    assert!(files.read(few).unwrap_err().starts_with("more than 200 files are included in TOP/f"));
    let shallow = Options { max_depth: 10, ..Options::default() };
    assert_eq!(
        files.read(shallow).unwrap_err(),
        "includes are nested more than 10 deep in TOP/f8:1"
    );
    let small = Options { max_bytes: 1000, ..Options::default() };
    assert!(files.read(small).unwrap_err().starts_with("configuration is larger than 1000 bytes"));
}

#[test]
fn many_matches_meet_a_limit() {
    let files = Files::new(
        "matches",
        &[("nginx.conf", "include d/*;"), ("d/1", "a;"), ("d/2", "b;"), ("d/3", "c;")],
    );
    let options = |max_files| Options { max_files, ..Options::default() };
    assert!(files.read(options(4)).is_ok());
    assert_eq!(
        files.read(options(3)).unwrap_err(),
        "more than 3 files are included in TOP/nginx.conf:1"
    );
}

#[test]
fn parameters_may_include() {
    let files = Files::new("params", &[("p.conf", "a { b; }")]);
    let options = Options { conf_prefix: files.0.clone(), ..Options::default() };
    let tree = parse_params(b"include p.conf; c;", &options).unwrap();
    assert_eq!(show(&tree.nodes), "a { b; } c;");
    let error = parse_params(b"include q.conf;", &options).unwrap_err();
    assert!(error.to_string().ends_with("(2: No such file or directory) in command line"));
}

/// The processor time of this thread so far, in nanoseconds: what else the machine does is not in
/// it (the first field of schedstat, kernel documentation "scheduler/sched-stats").
fn processor_time() -> Option<u64> {
    let counts = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    counts.split(' ').next()?.parse().ok()
}

/// Four times the text costs far less than sixteen times as much, which a quadratic algorithm
/// would cost.
#[test]
fn time_grows_with_the_length_of_the_text() {
    let server = "server { listen 80; server_name a.example b.example; root /srv/www;\n\
                  location / { try_files $uri $uri/ =404; }\n\
                  location /api { proxy_pass http://b; } }\n";
    let took = |servers: usize| {
        let text = Bytes::from(server.repeat(servers));
        let one = || {
            let began = processor_time().unwrap();
            let tree = parse_bytes(Path::new("t"), text.clone(), &Options::default()).unwrap();
            assert_eq!(tree.nodes.len(), servers);
            processor_time().unwrap() - began
        };
        (0..4).map(|_| one()).min().unwrap()
    };
    let (few, many) = (took(2_500), took(10_000));
    assert!(many < 10 * few, "{few} ns, {many} ns");
}
