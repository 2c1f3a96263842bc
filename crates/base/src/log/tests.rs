use super::*;

fn after_time(text: &str) -> &str {
    &text[19..]
}

#[test]
fn a_line_has_nginx_s_form() {
    set_ids(12, 34);
    let (log, lines) = capture(Level::Error);
    crate::log!(log, Level::Error, Some(7), "upstream {} failed", "a");
    crate::log!(log, Level::Emerg, None, "x");
    crate::log!(log, Level::Warn, None, "not wanted");
    let text = lines.take();
    let mut parts = text.lines();
    let first = parts.next().unwrap();
    assert_eq!(first[..19].len(), "2026/11/20 09:53:24".len());
    assert_eq!(after_time(first), " [error] 12#34: *7 upstream a failed");
    assert_eq!(after_time(parts.next().unwrap()), " [emerg] 12#34: x");
    assert_eq!(parts.next(), None);
}

#[test]
fn arguments_are_not_evaluated_for_a_level_nobody_wants() {
    let (log, _lines) = capture(Level::Warn);
    let count = Cell::new(0);
    let touch = || count.replace(count.get() + 1);
    crate::log!(log, Level::Info, None, "{}", touch());
    crate::debug!(log, debug::HTTP, None, "{}", touch());
    assert_eq!(count.get(), 0);
    crate::log!(log, Level::Warn, None, "{}", touch());
    assert_eq!(count.get(), 1);
}

#[test]
fn long_lines_are_cut_and_keep_their_line_feed() {
    let (log, lines) = capture(Level::Info);
    crate::log!(log, Level::Info, None, "{}", "x".repeat(5000));
    let text = lines.take();
    assert_eq!(text.len(), LINE_BYTES_MAX);
    assert!(text.ends_with("x\n"));
}

#[test]
fn errors_show_number_and_text() {
    let missing = io::Error::from_raw_os_error(2);
    assert_eq!(os_error(&missing).to_string(), "(2: No such file or directory)");
    assert_eq!(os_error(&io::Error::other("own")).to_string(), "(own)");
}

#[test]
fn each_sink_has_its_own_level_and_debug_parts() {
    let part = Rc::new(Sunk { debug_mask: debug::HTTP, ..Sunk::at(Level::Debug) });
    let grave = Rc::new(MemorySink::new(Level::Crit));
    let log = Log::new(vec![part.clone(), grave.clone()]);
    crate::debug!(log, debug::EVENT, None, "event");
    crate::debug!(log, debug::HTTP, None, "http");
    crate::log!(log, Level::Crit, None, "crit");
    let (part_text, grave_text) = (part.lines.take(), grave.take());
    assert!(!part_text.contains("event") && part_text.contains("http"));
    assert!(part_text.contains("crit"));
    assert_eq!(grave_text.lines().count(), 1);
    crate::debug!(log.debugging(), debug::EVENT, None, "forced");
    assert!(grave.take().contains("forced"));
}

#[test]
fn bare_sinks_get_level_and_message_alone() {
    let bare = Rc::new(Sunk { form: Form::Bare, ..Sunk::at(Level::Warn) });
    crate::log!(Log::new(vec![bare.clone()]), Level::Emerg, Some(3), "no {}", "way");
    assert_eq!(bare.lines.take(), "[emerg] no way\n");
}

/// A sink of its own kind.
struct Sunk {
    lines: MemorySink,
    debug_mask: u32,
    form: Form,
}

impl Sunk {
    fn at(level: Level) -> Sunk {
        Sunk { lines: MemorySink::new(level), debug_mask: debug::ALL, form: Form::Text }
    }
}

impl Sink for Sunk {
    fn write_line(&self, level: Level, line: &[u8]) {
        self.lines.write_line(level, line);
    }
    fn level(&self) -> Level {
        self.lines.level()
    }
    fn debug_mask(&self) -> u32 {
        self.debug_mask
    }
    fn form(&self) -> Form {
        self.form
    }
}

struct About(&'static str);

impl Context for About {
    fn tell(&self, fields: &mut Fields<'_>) {
        fields.plain("client", format_args!("::1"));
        fields.plain("server", format_args!(""));
        fields.quoted("request", format_args!("{}", self.0));
        fields.quoted("host", format_args!("h"));
    }
}

/// The part behind the time, in one line of each form.
fn both_forms(write: impl Fn(&Log)) -> (String, String) {
    let text = Rc::new(MemorySink::new(Level::Info));
    let json = Rc::new(Sunk { form: Form::Json, ..Sunk::at(Level::Info) });
    set_ids(12, 34);
    write(&Log::new(vec![json.clone(), text.clone()]));
    let (text, json) = (text.take(), json.lines.take());
    let (time, rest) = json.strip_prefix("{\"time\":\"").unwrap().split_at(29);
    assert_eq!(time[..10].replace('-', "/"), text[..10]);
    assert_eq!(time[11..19], text[11..19]);
    assert!(time.is_ascii() && matches!(time.as_bytes()[23], b'+' | b'-'), "{time}");
    assert_eq!(&time[19..20], ".");
    (after_time(&text).to_owned(), rest.to_owned())
}

#[test]
fn json_has_the_fields_of_the_text() {
    crate::time::pin(1000, 784_111_777_000);
    let (text, json) = both_forms(|log| {
        let m = format_args!("a \"b\" \u{1}\n{}", lossy(b"\xff"));
        log.write_about(Level::Error, Some(7), m, &About("GET \\ \"é\""));
    });
    crate::time::unpin();
    let want = " [error] 12#34: *7 a \"b\" \\x01\\x0A\u{fffd}, client: ::1, server: , \
                request: \"GET \\ \"é\"\", host: \"h\"\n";
    assert_eq!(text, want);
    let want = r#"","level":"error","pid":12,"tid":34,"connection":7,"#.to_owned()
        + r#""message":"a \"b\" \u0001\n"#
        + "\u{fffd}"
        + r#"","client":"::1","server":"","request":"GET \\ \"é\"","host":"h"}"#
        + "\n";
    assert_eq!(json, want);
    let (_, json) = both_forms(|log| crate::log!(log, Level::Info, None, ""));
    assert_eq!(json, "\",\"level\":\"info\",\"pid\":12,\"tid\":34,\"message\":\"\"}\n");
}

/// The object with the names of NGINX Plus, behind its time.
fn plus(write: impl Fn(&Log)) -> String {
    let sink = Rc::new(Sunk { form: Form::PlusJson, ..Sunk::at(Level::Info) });
    set_ids(12, 34);
    write(&Log::new(vec![sink.clone()]));
    let line = sink.lines.take();
    let (_, rest) = line.split_once("\"timestamp\":\"").unwrap();
    rest[29..].to_owned()
}

#[test]
fn json_of_nginx_plus_has_the_system_s_error_apart() {
    let message = "open() \"/a (2: No such file or directory) b\" failed \
                   (13: Permission denied) while reading";
    let line = plus(|log| {
        log.write_about(Level::Error, Some(7), format_args!("{message}"), &About("GET"));
    });
    let want = r#"","pid":12,"tid":34,"cnum":7,"#.to_owned()
        + r#""msg":"open() \"/a (2: No such file or directory) b\" failed while reading","#
        + r#""client":"::1","server":"","request":"GET","host":"h","errno":13,"#
        + r#""errtext":"Permission denied"}"#
        + "\n";
    assert_eq!(line, want);
    // Not the system's text, and no number.
    for message in
        ["a (13: Perhaps)", "a (x: Permission denied)", "a (", "a (13: Permission denied"]
    {
        let line = plus(|log| crate::log!(log, Level::Info, None, "{message}"));
        assert_eq!(line, format!("\",\"pid\":12,\"tid\":34,\"msg\":\"{message}\"}}\n"));
    }
    let line = plus(|log| crate::log!(log, Level::Info, None, "{}", "m".repeat(3000)));
    assert!(line.ends_with("mm\",\"truncated\":1}\n"), "{line}");
}

#[test]
fn tags_are_fields_of_their_own() {
    let tags = Tags::default();
    tags.set(vec![("id".into(), b"a\n".to_vec()), ("b\"c".into(), b"\xff".to_vec())]);
    let (text, json) = both_forms(|log| {
        log.write_about(Level::Error, None, format_args!("m"), &tags);
    });
    assert_eq!(text, " [error] 12#34: m, id: \"a\\x0A\", b\"c: \"\u{fffd}\"\n");
    assert!(
        json.ends_with("\"message\":\"m\",\"id\":\"a\\n\",\"b\\\"c\":\"\u{fffd}\"}\n"),
        "{json}"
    );
}

#[test]
fn json_is_whole_where_the_text_is_cut() {
    let cut = |message: &str, request: &'static str| {
        both_forms(|log| {
            log.write_about(Level::Info, None, format_args!("{message}"), &About(request));
        })
        .1
    };
    // Within the message: no fields. Within a character of a value: the others are gone.
    let json = cut(&"m".repeat(3000), "r");
    assert!(json.ends_with("mmm\"}\n"), "{json}");
    let mut counts = [0; 5];
    for pad in 1890..2013 {
        let json = cut(&"m".repeat(pad), "éééééééééé");
        let (_, json) = json.split_once("\"message\":\"m").unwrap();
        let json = json.strip_suffix("\"}\n").unwrap().trim_start_matches('m');
        let whole = "\",\"client\":\"::1\",\"server\":\"\",\"request\":\"éééééééééé\",\"host\":\"h";
        let (got, half) = (json.trim_end_matches('\u{fffd}'), json.ends_with('\u{fffd}'));
        assert!(whole.starts_with(got), "{json}");
        assert!(!half || got.ends_with(['é', '"']), "{json}");
        counts[json.matches("\":\"").count()] += 1;
    }
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    // A line of characters that all need escapes.
    let json = cut(&"\u{1}".repeat(3000), "");
    assert!(json.ends_with("\\u0001\"}\n") && json.len() < 6 * LINE_BYTES_MAX);
}

#[test]
fn the_default_log_can_be_replaced() {
    let (log, lines) = capture(Level::Notice);
    set_default(log);
    crate::log!(default(), Level::Notice, None, "here");
    assert!(lines.take().contains("here"));
}

#[test]
fn level_names_round_trip() {
    assert_eq!(Level::from_name(b"crit"), Some(Level::Crit));
    assert_eq!(Level::from_name(b"stderr"), None);
    assert_eq!(debug::from_name(b"debug_stream"), Some(debug::STREAM));
}
