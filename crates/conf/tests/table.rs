//! Directives against their table, and errors as people see them.

#![allow(
    clippy::unwrap_used,
    reason = "the lint's exception for tests does not reach their helpers"
)]

use std::path::Path;

use bytes::Bytes;
use weir_conf as conf;

use conf::parse::{Options, parse_bytes, parse_params};
use conf::table::{Args, Contexts, Directive, Table};
use conf::{ConfError, Node, Tree};

#[derive(Default)]
struct Seen(Vec<String>);

fn seen(cx: &mut Seen, node: &Node) -> Result<(), ConfError> {
    cx.0.push(node.name.lossy().into_owned());
    if node.args.first().is_some_and(|arg| *arg == *"bad") {
        return Err(ConfError::argument(node, 0, "invalid value"));
    }
    Ok(())
}

const fn directive(name: &'static str, contexts: Contexts, args: Args) -> Directive<Seen> {
    Directive { name, contexts, args, default: "", doc: "", set: seen }
}

static DIRECTIVES: [Directive<Seen>; 9] = [
    directive("daemon", Contexts::MAIN, Args::FLAG),
    directive("http", Contexts::MAIN, Args::BLOCK.or(Args::NONE)),
    directive("sendfile", Contexts::HTTP_SERVER_LOCATION_IF, Args::FLAG),
    directive("root", Contexts::MAIN.or(Contexts::HTTP), Args::T1),
    directive("root", Contexts::SERVER, Args::T2),
    directive("any", Contexts::ANY, Args::ANY),
    directive("one", Contexts::ANY, Args::ONE_MORE),
    directive("two", Contexts::ANY, Args::TWO_MORE),
    directive("some", Contexts::ANY, Args::T13),
];

fn table() -> Table<Seen> {
    Table::new(DIRECTIVES.iter()).with_elsewhere([("weir_status", Contexts::LOCATION)].into_iter())
}

fn read(text: &str) -> Tree {
    let text = Bytes::copy_from_slice(text.as_bytes());
    let options = Options { keep_broken: true, ..Options::default() };
    parse_bytes(Path::new("t.conf"), text, &options).unwrap()
}

fn apply(text: &str, here: Contexts) -> Result<Vec<String>, ConfError> {
    let mut cx = Seen::default();
    table().apply(&mut cx, &read(text).nodes, here).map(|()| cx.0)
}

#[track_caller]
fn fails(text: &str, here: Contexts, message: &str) -> ConfError {
    let error = apply(text, here).unwrap_err();
    assert_eq!(error.to_string(), format!("{message} in t.conf:1"));
    error
}

#[test]
fn directives_are_set_in_order() {
    assert_eq!(
        apply("any; daemon on; root x;", Contexts::MAIN).unwrap(),
        ["any", "daemon", "root"]
    );
    assert_eq!(apply("http { }", Contexts::MAIN).unwrap(), ["http"]);
}

#[test]
fn place_decides_between_directives_of_one_name() {
    assert!(apply("root x;", Contexts::HTTP).is_ok());
    assert!(apply("root x y;", Contexts::SERVER).is_ok());
    let wrong = "invalid number of arguments in \"root\" directive";
    fails("root x y;", Contexts::HTTP, wrong);
    fails("root x;", Contexts::SERVER, wrong);
    fails("root x;", Contexts::EVENTS, "\"root\" directive is not allowed here");
}

#[test]
fn counts_of_arguments() {
    for (text, fits) in [
        ("any;", true),
        ("any 1 2 3 4 5 6 7 8 9;", true),
        ("one;", false),
        ("one 1 2 3 4 5 6 7 8 9;", true),
        ("two 1;", false),
        ("two 1 2;", true),
        ("some;", false),
        ("some 1;", true),
        ("some 1 2;", false),
        ("some 1 2 3;", true),
        ("some 1 2 3 4 5 6 7 8;", false),
        ("daemon;", false),
        ("daemon on off;", false),
    ] {
        assert_eq!(apply(text, Contexts::MAIN).is_ok(), fits, "{text}");
    }
}

#[test]
fn blocks_and_semicolons() {
    fails("http;", Contexts::MAIN, "directive \"http\" has no opening \"{\"");
    fails("daemon { }", Contexts::MAIN, "directive \"daemon\" is not terminated by \";\"");
    // nginx looks at the end before it counts.
    fails("http x;", Contexts::MAIN, "directive \"http\" has no opening \"{\"");
    fails("http x {}", Contexts::MAIN, "invalid number of arguments in \"http\" directive");
}

#[test]
fn names_that_are_not_in_the_table() {
    let error = fails("sendfiel on;", Contexts::HTTP, "unknown directive \"sendfiel\"");
    assert_eq!(error.help.as_deref(), Some("did you mean \"sendfile\"?"));
    // Only directives of the context are suggested.
    let error = fails("sendfiel on;", Contexts::MAIN, "unknown directive \"sendfiel\"");
    assert_eq!(error.help, None);
    let error = fails("inclde x;", Contexts::MAIN, "unknown directive \"inclde\"");
    assert_eq!(error.help.as_deref(), Some("did you mean \"include\"?"));
    let error = fails("frobnicate;", Contexts::HTTP, "unknown directive \"frobnicate\"");
    assert_eq!(error.help, None);
    fails(
        "perl_require x;",
        Contexts::HTTP,
        "directive \"perl_require\" of nginx's ngx_http_perl_module \
         is not supported by this version of weir: use map and rewrite, or a module in Rust \
         (weir build)",
    );
    fails(
        "auth_http x;",
        Contexts::MAIL,
        "directive \"auth_http\" of nginx's ngx_mail_auth_http_module \
         is not supported by this version of weir",
    );
    let error = fails(
        "perl_require x;",
        Contexts::SERVER,
        "\"perl_require\" directive is not allowed here",
    );
    assert_eq!(error.help.as_deref(), Some("it may stand in: http"));
    fails("daemon on;", Contexts::HTTP, "\"daemon\" directive is not allowed here");
    let error =
        fails("weir_status;", Contexts::HTTP, "\"weir_status\" directive is not allowed here");
    assert_eq!(error.help.as_deref(), Some("it may stand in: location"));
}

#[test]
fn a_misplaced_directive_comes_before_a_later_syntax_error() {
    fails("frobnicate; http {", Contexts::MAIN, "unknown directive \"frobnicate\"");
    fails("any; }", Contexts::MAIN, "unexpected \"}\"");
}

#[test]
fn the_terminal_shows_the_line_and_the_place() {
    let show = |text: &str, here| {
        let tree = read(text);
        let error = table().apply(&mut Seen::default(), &tree.nodes, here).unwrap_err();
        error.render_terminal(&tree.files)
    };
    assert_eq!(
        show("any;\n\tsendfiel on;\n", Contexts::HTTP),
        "unknown directive \"sendfiel\" in t.conf:2\n\
         \x20 2 |     sendfiel on;\n\
         \x20   |     ^^^^^^^^\n\
         \x20 help: did you mean \"sendfile\"?\n"
    );
    assert_eq!(
        show("one \"é\" bad;\none  bad;", Contexts::HTTP),
        "\"one\" directive invalid value in t.conf:2\n\
         \x20 2 | one  bad;\n\
         \x20   |      ^^^\n"
    );
    // The column counts characters, and control sequences are not passed on.
    assert_eq!(
        show("any \"é\u{1b}[31m\u{202e}\"; x;", Contexts::HTTP),
        "unknown directive \"x\" in t.conf:1\n\
         \x20 1 | any \"é\u{fffd}[31m\u{fffd}\"; x;\n\
         \x20   |                ^\n"
    );
    assert_eq!(
        show("any;\n}\n", Contexts::HTTP),
        "unexpected \"}\" in t.conf:2\n\x20 2 | }\n\x20   | ^\n"
    );
    // The end of a file has no place in its line.
    let text = Bytes::from_static(b"http {");
    let error = parse_bytes(Path::new("t.conf"), text, &Options::default()).unwrap_err();
    assert_eq!(
        error.render_terminal(&[]),
        "unexpected end of file, expecting \"}\" in t.conf:1\n\
         \x20 1 | http {\n\
         \x20 help: the block \"http\" in line 1 is not closed\n"
    );
}

#[test]
fn a_long_line_is_cut_around_the_place() {
    let text = format!("{}x;{}", "any; ".repeat(1000), "any; ".repeat(1000));
    let tree = read(&text);
    let error = table().apply(&mut Seen::default(), &tree.nodes, Contexts::HTTP).unwrap_err();
    let shown = error.render_terminal(&tree.files);
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[1].len() < 130 && lines[1].starts_with("  1 | ...") && lines[1].ends_with("..."));
    let caret = lines[2].find('^').unwrap();
    assert_eq!(&lines[1][caret..=caret], "x");
    let long = format!("{} on;", "y".repeat(3000));
    let tree = read(&long);
    let error = table().apply(&mut Seen::default(), &tree.nodes, Contexts::HTTP).unwrap_err();
    assert!(error.render_terminal(&tree.files).lines().skip(1).all(|line| line.len() < 130));
}

#[test]
fn a_name_that_is_a_whole_file_is_cut_in_messages() {
    let tree = read("a;");
    let error = ConfError::at(&tree.nodes[0].name, format!("x{}", "é".repeat(1000)));
    let message = error.to_string();
    assert!(message.len() < 1050 && message.ends_with("é in t.conf:1"), "{message}");
    let text = Bytes::from(format!("{} {{", "é".repeat(1000)));
    let error = parse_bytes(Path::new("t.conf"), text, &Options::default()).unwrap_err();
    assert!(error.help.as_ref().unwrap().len() < 150);
    let error = ConfError::new("a \u{1b}[31m \n b");
    assert_eq!(error.render_terminal(&[]), "a \u{fffd}[31m \u{fffd} b\n");
}

#[test]
fn a_message_on_a_place_that_is_not_there_shows_no_line() {
    let tree = parse_params(b"frobnicate x;", &Options::default()).unwrap();
    let error = table().apply(&mut Seen::default(), &tree.nodes, Contexts::MAIN).unwrap_err();
    assert_eq!(
        error.render_terminal(&tree.files),
        "unknown directive \"frobnicate\" in command line\n"
    );
    let mut far = error;
    far.pos = Some(conf::Pos { file: Path::new("t.conf").into(), line: 9, column: 99 });
    far.len = u32::MAX;
    assert!(!far.render_terminal(&read("a;").files).contains('^'));
    far.line_text = Some(Bytes::from_static(b"short"));
    assert_eq!(
        far.render_terminal(&[]),
        "unknown directive \"frobnicate\" in t.conf:9\n  9 | short\n    |      ^\n"
    );
}

#[test]
fn the_table_lists_what_it_has() {
    let names: Vec<_> = table().directives().iter().map(|one| one.name).collect();
    assert!(names.is_sorted());
    assert_eq!(table().find(b"root").len(), 2);
    assert!(table().find(b"roo").is_empty());
    let places: Vec<_> = Contexts::HTTP_SERVER_LOCATION.names().collect();
    assert_eq!(places, ["http", "server", "location"]);
}
