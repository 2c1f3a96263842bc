//! The explanation as text and as JSON.

use std::collections::HashSet;

use base::json::Object;
use conf::Pos;
use http::explain::{Place, Step, Tried};
use http::server::location::LocKind;

use super::Story;
use super::effect::{self, Effect};
use super::question::NO_HOST;

/// The name of a place as written in the configuration.
fn name(place: &Place) -> String {
    let Place { kind, name, .. } = place;
    match kind {
        LocKind::Server => "the server itself, no location".to_owned(),
        LocKind::Exact => format!("location = {name}"),
        LocKind::Prefix | LocKind::Named => format!("location {name}"),
        LocKind::PrefixNoRegex => format!("location ^~ {name}"),
        LocKind::Regex if place.caseless => format!("location ~* {name}"),
        LocKind::Regex => format!("location ~ {name}"),
        LocKind::If => format!("an \"if\" block of location {name}"),
        LocKind::LimitExcept => format!("\"limit_except\" of location {name}"),
    }
}

fn kind(place: &Place) -> &'static str {
    match place.kind {
        LocKind::Server => "server",
        LocKind::Exact => "exact",
        LocKind::Prefix => "prefix",
        LocKind::PrefixNoRegex => "prefix-no-regex",
        LocKind::Regex => "regex",
        LocKind::Named => "named",
        LocKind::If => "if",
        LocKind::LimitExcept => "limit-except",
    }
}

fn tried(how: Tried) -> &'static str {
    match how {
        Tried::Exact => "is equal to the URI",
        Tried::Prefix => "is a prefix of the URI",
        Tried::Slash => "is equal to the URI with a slash added: a redirect",
        Tried::Matches => "the regular expression matches",
        Tried::Differs => "the regular expression does not match",
    }
}

/// Why the search ended with a location.
fn why_location(place: &Place) -> Option<&'static str> {
    match place.kind {
        LocKind::Exact => Some("an exact match ends the search"),
        LocKind::Prefix => Some("the longest prefix, and no regular expression matches"),
        LocKind::PrefixNoRegex => Some("the longest prefix, and ^~ skips regular expressions"),
        LocKind::Regex => Some("the first regular expression that matches wins over prefixes"),
        _ => None,
    }
}

/// Why the server answers.
fn why_server(host: Option<&str>, named: bool, has_names: bool) -> String {
    match (host, named) {
        _ if !has_names => "the only server at this address".to_owned(),
        (Some(host), true) => format!("its server_name matches \"{host}\""),
        (Some(host), false) => {
            format!("the default server of the address, because no server_name matches \"{host}\"")
        }
        (None, _) => {
            "the default server of the address, because the request names no host".to_owned()
        }
    }
}

/// The explanation for people.
pub(crate) fn text(story: &Story) -> String {
    let q = &story.question;
    let mut out = format!("{} {}\n\n", q.method, q.url());
    let mut put = |label: &str, text: &str| {
        out.push_str(&format!("{label:<10} {text}\n"));
    };
    if let Some(logged) = &story.logged {
        let status = logged.status.as_deref().unwrap_or("unknown");
        put("logged", &format!("status {status}, by the format \"{}\"", logged.format));
        if q.host == NO_HOST {
            put("", "(the line names no host: a URL after it chooses another server)");
        }
    }
    put("client", &format!("{}", q.from.host()));
    let chosen = &story.chosen;
    put("listen", &chosen.address);
    if !chosen.others.is_empty() {
        put("", &format!("(--to chooses another one: {})", chosen.others.join(", ")));
    }
    let mut indent = HashSet::new();
    for noted in &story.steps {
        let inside = if noted.inside { "| " } else { "" };
        if noted.inside && indent.insert(()) {
            put("", "| steps of a subrequest");
        }
        let (label, line) = step(story, &noted.step);
        put(label, &format!("{inside}{line}"));
    }
    if let Some(passed) = story.passed() {
        put("upstream", &format!("{}{}", passed.scheme, passed.to));
        if let Some(block) = effect::upstream(&story.tree, &passed.to).filter(|_| passed.is_group) {
            put("", &format!("{} at {}", effect::line(block), block.name.pos));
            put("", &format!("balancing: {}", effect::method(block)));
            for server in block.children().iter().filter(|node| node.name == *"server") {
                put("", &effect::line(server));
            }
        }
        put("request", format!("{} {}", passed.method, passed.uri).trim_end());
        for line in passed.head.iter().flat_map(|head| head.lines()).filter(|l| !l.is_empty()) {
            put("", line);
        }
        match &passed.cache {
            Some((cache, key)) => put("cache", &format!("{cache}, key \"{key}\"")),
            None => put("cache", "none"),
        }
    }
    if let Some(head) = &story.answer {
        for (at, line) in head.lines().enumerate() {
            put(if at == 0 { "answer" } else { "" }, line);
        }
    }
    if let Some(place) = story.place() {
        out.push_str("\nin effect\n");
        for Effect { node, hides } in effect::effects(&story.tree, &place.at) {
            out.push_str(&format!("  {}; ({})\n", effect::line(node), node.name.pos));
            for hidden in hides {
                let (line, at) = (effect::line(hidden), &hidden.name.pos);
                out.push_str(&format!("      overrides {line}; ({at})\n"));
            }
        }
    }
    out
}

fn step(story: &Story, step: &Step) -> (&'static str, String) {
    match step {
        Step::Server { at, name, host, named } => {
            let why = why_server(host.as_deref(), *named, story.chosen.has_names);
            ("server", format!("\"{name}\" at {at}: {why}"))
        }
        Step::Uri(uri) => ("uri", uri.clone()),
        Step::Tried(how, place) => {
            ("", format!("{} at {}: {}", name(place), place.at, tried(*how)))
        }
        Step::Entered(place) => {
            let why = why_location(place).map_or_else(String::new, |why| format!(": {why}"));
            ("location", format!("{} at {}{why}", name(place), place.at))
        }
        Step::Status(status) => ("status", status.to_string()),
        Step::Log(level, text) => ("log", format!("[{level}] {text}")),
        Step::Called(directive, function) => {
            ("script", format!("{directive}: {function} would be called"))
        }
        Step::File(by, path, found) => ("file", format!("{by}: {path} {found}")),
        Step::Passed(passed) => ("proxied to", format!("{}{}", passed.scheme, passed.to)),
        Step::Content => ("content", "a handler of this location makes the response".to_owned()),
    }
}

fn position(o: &mut Object<'_>, at: &Pos) {
    o.text("file", at.file.to_string_lossy().as_bytes());
    o.number("line", u64::from(at.line));
}

fn place_object(o: &mut Object<'_>, place: &Place) {
    o.text("kind", kind(place).as_bytes());
    o.text("name", place.name.as_bytes());
    position(o, &place.at);
    if place.kind == LocKind::Regex {
        o.flag("caseless", place.caseless);
    }
}

/// The explanation for programs.
pub(crate) fn json(story: &Story) -> Vec<u8> {
    let mut out = Vec::new();
    let q = &story.question;
    Object::write(&mut out, |o| {
        o.text("url", q.url().as_bytes());
        o.text("method", q.method.as_bytes());
        if let Some(logged) = &story.logged {
            o.object("logged", |o| {
                o.text("format", logged.format.as_bytes());
                if let Some(status) = &logged.status {
                    o.text("status", status.as_bytes());
                }
            });
        }
        o.text("client", q.from.host().to_string().as_bytes());
        o.text("listen", story.chosen.address.as_bytes());
        o.list("steps", story.steps.iter(), |o, noted| {
            o.flag("subrequest", noted.inside);
            step_object(o, story, &noted.step);
        });
        if let Some(place) = story.place() {
            o.object("location", |o| place_object(o, place));
        }
        if let Some(passed) = story.passed() {
            o.object("upstream", |o| {
                o.text("to", passed.to.as_bytes());
                o.text("scheme", passed.scheme.as_bytes());
                o.text("method", passed.method.as_bytes());
                o.text("uri", passed.uri.as_bytes());
                if let Some(block) = effect::upstream(&story.tree, &passed.to) {
                    o.text("balancing", effect::method(block).as_bytes());
                }
                if let Some((cache, key)) = &passed.cache {
                    o.text("cache", cache.as_bytes());
                    o.text("cache_key", key.as_bytes());
                }
            });
        }
        if let Some(head) = &story.answer {
            let lines: Vec<&[u8]> = head.lines().map(str::as_bytes).collect();
            o.texts("answer", lines.into_iter());
        }
        let effects = story.place().map(|place| effect::effects(&story.tree, &place.at));
        o.list("directives", effects.iter().flatten(), |o, Effect { node, hides }| {
            directive(o, node);
            o.list("hides", hides.iter(), |o, node| directive(o, node));
        });
    });
    out.push(b'\n');
    out
}

fn directive(o: &mut Object<'_>, node: &conf::Node) {
    o.text("directive", node.name.bytes());
    let words = effect::words(node);
    o.texts("args", words.iter().map(String::as_bytes));
    position(o, &node.name.pos);
}

fn step_object(o: &mut Object<'_>, story: &Story, step: &Step) {
    match step {
        Step::Server { at, name, host, named } => {
            o.text("step", b"server");
            o.text("name", name.as_bytes());
            position(o, at);
            let why = why_server(host.as_deref(), *named, story.chosen.has_names);
            o.text("why", why.as_bytes());
        }
        Step::Uri(uri) => {
            o.text("step", b"uri");
            o.text("uri", uri.as_bytes());
        }
        Step::Tried(how, place) => {
            o.text("step", b"tried");
            place_object(o, place);
            o.text("why", tried(*how).as_bytes());
        }
        Step::Entered(place) => {
            o.text("step", b"entered");
            place_object(o, place);
            if let Some(why) = why_location(place) {
                o.text("why", why.as_bytes());
            }
        }
        Step::Status(status) => {
            o.text("step", b"status");
            o.number("status", u64::from(*status));
        }
        Step::Log(level, text) => {
            o.text("step", b"log");
            o.text("level", level.name().as_bytes());
            o.text("message", text.as_bytes());
        }
        Step::Called(directive, function) => {
            o.text("step", b"script");
            o.text("directive", directive.as_bytes());
            o.text("function", function.as_bytes());
        }
        Step::File(by, path, found) => {
            o.text("step", b"file");
            o.text("directive", by.as_bytes());
            o.text("path", path.as_bytes());
            o.text("found", found.as_bytes());
        }
        Step::Passed(passed) => {
            o.text("step", b"passed");
            o.text("to", passed.to.as_bytes());
        }
        Step::Content => o.text("step", b"content"),
    }
}
