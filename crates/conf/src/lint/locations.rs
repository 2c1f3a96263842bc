//! Locations: what they take, and what their blocks do.

use super::cx::{Cx, Part, has, named, parts};
use super::{Entry, Found, Severity, entry, patterns};
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "alias-traversal",
        Severity::Error,
        "a location without a slash at its end lets paths escape from its alias",
        alias,
    ),
    entry(
        "alias-slash",
        Severity::Warning,
        "the slash at a location's end is missing at its alias's",
        alias_slash,
    ),
    entry(
        "try-files-and-pass",
        Severity::Warning,
        "files that try_files finds are asked for from the server behind",
        try_files_and_pass,
    ),
    entry(
        "if-in-location",
        Severity::Warning,
        "settings in an if of a location, which replace the location's own",
        if_settings,
    ),
    entry(
        "if-try-files",
        Severity::Warning,
        "an if takes try_files away from the requests that meet it",
        if_try_files,
    ),
    entry("if-file", Severity::Note, "an if asks for a file where try_files would", if_file),
    entry(
        "return-before-access",
        Severity::Warning,
        "return answers before access rules are asked",
        return_before_access,
    ),
    entry(
        "allow-without-deny",
        Severity::Warning,
        "allow without deny keeps nobody out",
        allow_without_deny,
    ),
    entry(
        "php-without-try-files",
        Severity::Warning,
        "paths of files that do not exist reach PHP",
        php,
    ),
    entry(
        "prefix-like-regex",
        Severity::Warning,
        "a location without ~ is written as a regular expression",
        prefix_like_regex,
    ),
    entry(
        "root-in-location",
        Severity::Note,
        "root stands in \"location /\" and not in its server",
        root_in_location,
    ),
];

/// The name of a location that is a prefix (with or without `^~`).
pub(super) fn prefix(location: &Node) -> Option<&Word> {
    if location.name != *"location" {
        return None;
    }
    match (&location.args[..], location.args.first()?.bytes()) {
        ([name], text) if !text.starts_with(b"@") && !text.starts_with(b"~") => {
            (!text.starts_with(b"=")).then_some(name)
        }
        ([_, name], b"^~") => Some(name),
        _ => None,
    }
}

/// Whether every request of the location goes to a server that is not told of files: no path is
/// made of its alias. FastCGI and its kin hand over names of files.
fn passes_on(location: &Node) -> bool {
    let has = |name| has(location.children(), name);
    (has("proxy_pass") || has("grpc_pass")) && !has("try_files")
}

fn alias(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"alias" {
        return;
    }
    let Some(location) = cx.outward().find(|block| block.name == *"location") else { return };
    let (Some(name), Some(path)) = (prefix(location), n.args.first()) else { return };
    if name.bytes().ends_with(b"/") || passes_on(location) {
        return;
    }
    let (name, path_text) = (name.lossy(), path.lossy());
    let message = match path.bytes().ends_with(b"/") {
        true => format!(
            "\"{name}../x\" leaves \"{path_text}\" for the folder above: end both with a slash"
        ),
        false => format!(
            "\"{name}x\" is looked for as \"{path_text}x\", outside of the folder: end both with a \
             slash"
        ),
    };
    found.add(path, message);
}

fn alias_slash(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(location) = cx.block().filter(|_| n.name == *"alias") else { return };
    let (Some(name), Some(path)) = (prefix(location), n.args.first()) else { return };
    let (text, path_text) = (name.bytes(), path.bytes());
    if passes_on(location) || path_text.contains(&b'$') {
        return;
    }
    if text.ends_with(b"/") && !path_text.ends_with(b"/") {
        let (name, path_text) = (name.lossy(), path.lossy());
        found.add(
            path,
            format_args!("\"{name}x\" is looked for as \"{path_text}x\": end both with a slash"),
        );
    }
}

fn try_files_and_pass(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"location" || !has(n.children(), "proxy_pass") {
        return;
    }
    let Some(tried) = named(n.children(), "try_files").next() else { return };
    // With a status at its end it keeps other paths from the server.
    if tried.args.last().is_some_and(|last| !last.bytes().starts_with(b"=")) {
        found.add(
            &tried.name,
            "a file that is found is passed on as well: move \"proxy_pass\" to a location of its \
             own, and name that last (\"@backend\")",
        );
    }
}

/// Directives that do in an `if` what they look like.
const SOUND_IN_IF: &[&[u8]] = &[
    b"return",
    b"rewrite",
    b"set",
    b"break",
    b"rewrite_log",
    b"access_log",
    b"limit_rate",
    b"limit_rate_after",
    b"more_set_headers",
    b"more_clear_headers",
    b"more_set_input_headers",
    b"more_clear_input_headers",
];

fn if_settings(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let in_location = cx.block().is_some_and(|block| block.name == *"location");
    if n.name != *"if" || !in_location {
        return;
    }
    let children = n.children();
    let setting = children.iter().find(|child| !SOUND_IN_IF.contains(&child.name.bytes()));
    if let Some(setting) = setting {
        let name = setting.name.lossy();
        found.add(
            &n.name,
            format_args!(
                "a request that meets this has the configuration of the \"if\" and not that of its \
                 location, of which \"{name}\" here and other handlers may be missing: use a \
                 \"map\", or a location"
            ),
        );
    }
}

fn if_try_files(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(location) = cx.block().filter(|block| block.name == *"location") else { return };
    if n.name != *"if" || !has(location.children(), "try_files") {
        return;
    }
    let children = n.children();
    let ends = children.iter().any(|child| match child.name.bytes() {
        b"return" => true,
        b"rewrite" => child.args.get(2).is_some_and(|flag| flag.bytes() != b"break"),
        _ => false,
    });
    // `if-in-location` tells of settings.
    let sets = children.iter().any(|child| !SOUND_IN_IF.contains(&child.name.bytes()));
    if !ends && !sets {
        found.add(
            &n.name,
            "nginx does not try files for requests that meet this (weir does if the \"if\" has no \
             settings): use a \"map\", or move the \"if\" to the server",
        );
    }
}

fn if_file(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let words: Vec<&[u8]> = n.args.iter().map(Word::bytes).collect();
    let asks = |word: &[u8]| {
        matches!(word.strip_prefix(b"("), Some(b"-f" | b"!-f" | b"-e" | b"!-e" | b"-d" | b"!-d"))
    };
    let of_request = words.get(1).is_some_and(|word| {
        word.strip_suffix(b")").unwrap_or(word).ends_with(b"$request_filename")
    });
    let acts = n.children().iter().any(|c| matches!(c.name.bytes(), b"rewrite" | b"proxy_pass"));
    if n.name == *"if" && words.first().is_some_and(|word| asks(word)) && of_request && acts {
        found.add(&n.name, "\"try_files\" asks for files, and keeps the location's settings");
    }
}

fn return_before_access(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"location" && n.name != *"server" {
        return;
    }
    let rules = ["allow", "deny", "auth_basic", "auth_request"];
    let off = |c: &Node| c.args.first().is_some_and(|w| matches!(w.bytes(), b"off" | b"all"));
    let rule = n
        .children()
        .iter()
        .find(|c| rules.iter().any(|rule| c.name == **rule) && !(c.name == *"allow" || off(c)));
    let rule = rule.or_else(|| named(n.children(), "deny").next());
    let answer = named(n.children(), "return").next();
    if let (Some(rule), Some(answer)) = (rule, answer) {
        let rule = rule.name.lossy();
        found.add(
            &answer.name,
            format_args!("\"return\" answers everybody: \"{rule}\" beside it is never asked"),
        );
    }
}

fn allow_without_deny(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let first = |block: &Node| {
        let siblings = block.children();
        named(siblings, "allow").next().is_some_and(|first| std::ptr::eq(first, n))
    };
    let Some(block) = cx.block().filter(|block| n.name == *"allow" && first(block)) else { return };
    let is_all = |n: &Node| n.args.first().is_some_and(|word| word.bytes() == b"all");
    let all = named(block.children(), "allow").any(is_all);
    if !all && !has(block.children(), "deny") {
        found.add(&n.name, "all others are let in as well: add \"deny all\"");
    }
}

fn php(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if !patterns::is_for_php(n) {
        return;
    }
    let asks_for_file = |block: &Node| {
        block.children().iter().any(|child| {
            let file =
                |word: &Word| word.bytes().starts_with(b"(!-") || word.bytes().starts_with(b"(-");
            child.name == *"try_files"
                || child.name == *"if" && child.args.first().is_some_and(file)
        })
    };
    let internal = has(n.children(), "internal");
    if asks_for_file(n) || internal || cx.around("location").is_some_and(asks_for_file) {
        return;
    }
    // The same program runs whatever the path is.
    let script = named(n.children(), "fastcgi_param")
        .filter(|param| param.args.first().is_some_and(|name| *name == *"SCRIPT_FILENAME"))
        .last();
    if script.and_then(|param| param.args.get(1)).is_some_and(|path| is_constant(path.bytes())) {
        return;
    }
    // An expression that names one file hands no other one over.
    let pattern = n.args.last().map_or(&b""[..], Word::bytes);
    let names_files =
        pattern.starts_with(b"^") && !pattern.contains(&b'*') && !pattern.contains(&b'+');
    if !names_files {
        found.add(
            &n.name,
            "a path whose file does not exist is handed over, which may run another file \
             (/image.jpg/x.php): add \"try_files $fastcgi_script_name =404\"",
        );
    }
}

/// Whether a path has no variables but those that are the same for every request.
fn is_constant(path: &[u8]) -> bool {
    parts(path).iter().all(|part| match part {
        Part::Variable(name) => matches!(*name, b"document_root" | b"realpath_root"),
        Part::Text(_) => true,
    })
}

fn prefix_like_regex(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(name) = prefix(n) else { return };
    let text = name.bytes();
    let odd = text.ends_with(b"$")
        || text.starts_with(b"^")
        || text.windows(2).any(|w| w == b"\\." || w == b".*" || w == b"\\d");
    if odd {
        let text = name.lossy();
        found.add(
            name,
            format_args!(
                "\"{text}\" is taken as it stands: \"~\" before it makes it an expression"
            ),
        );
    }
}

fn root_in_location(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"server" || has(n.children(), "root") {
        return;
    }
    let locations: Vec<&Node> = named(n.children(), "location").collect();
    let slash = locations.iter().find(|l| prefix(l).is_some_and(|name| name.bytes() == b"/"));
    let Some(root) = slash.and_then(|l| named(l.children(), "root").next()) else { return };
    let serves_files = |l: &&&Node| {
        let children = l.children();
        !children.iter().any(|c| {
            c.name.bytes().ends_with(b"_pass")
                || matches!(c.name.bytes(), b"root" | b"alias" | b"return" | b"rewrite" | b"deny")
                || c.name.bytes().starts_with(b"stub_status")
        }) && !children.is_empty()
    };
    if let Some(without) = locations.iter().find(serves_files) {
        let args: Vec<String> = without.args.iter().map(|w| w.lossy().into_owned()).collect();
        found.add(
            &root.name,
            format_args!(
                "\"location {}\" does not have this root: set it in the server",
                args.join(" ")
            ),
        );
    }
}
