//! Locations: which requests they match, and what their blocks do.

use super::cx::{Cx, Part, has, named, parts};
use super::{Entry, Found, Severity, entry, patterns};
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "alias-traversal",
        Severity::Error,
        "a location without a final slash lets clients leave its alias folder",
        alias,
    ),
    entry(
        "alias-slash",
        Severity::Warning,
        "the location ends in a slash and its alias does not",
        alias_slash,
    ),
    entry(
        "try-files-and-pass",
        Severity::Warning,
        "files that try_files finds are requested from the upstream",
        try_files_and_pass,
    ),
    entry(
        "if-in-location",
        Severity::Warning,
        "an if replaces the configuration of its location",
        if_settings,
    ),
    entry(
        "if-try-files",
        Severity::Warning,
        "an if disables try_files for the requests that match it",
        if_try_files,
    ),
    entry("if-file", Severity::Note, "an if checks for a file; try_files does it better", if_file),
    entry(
        "return-before-access",
        Severity::Warning,
        "return answers before the access rules are checked",
        return_before_access,
    ),
    entry(
        "allow-without-deny",
        Severity::Warning,
        "allow without deny refuses nobody",
        allow_without_deny,
    ),
    entry(
        "php-without-try-files",
        Severity::Warning,
        "PHP gets paths whose file does not exist",
        php,
    ),
    entry(
        "prefix-like-regex",
        Severity::Warning,
        "a location looks like a regular expression but lacks ~",
        prefix_like_regex,
    ),
    entry(
        "root-in-location",
        Severity::Note,
        "root is set in \"location /\" instead of in its server",
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

/// Whether every request of the location goes to an upstream that gets no file name, so that the
/// alias is never used. FastCGI, uwsgi and SCGI do send file names.
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
            "\"{name}../x\" reads files from the folder above \"{path_text}\": end both with \
             a slash"
        ),
        false => format!(
            "\"{name}x\" reads \"{path_text}x\", which is outside of the folder: end both with a \
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
        found.add(path, format_args!("\"{name}x\" reads \"{path_text}x\": end both with a slash"));
    }
}

fn try_files_and_pass(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"location" || !has(n.children(), "proxy_pass") {
        return;
    }
    let Some(tried) = named(n.children(), "try_files").next() else { return };
    // With a status as its last argument, `try_files` limits the upstream to existing files on
    // purpose.
    if tried.args.last().is_some_and(|last| !last.bytes().starts_with(b"=")) {
        found.add(
            &tried.name,
            "requests for files that exist are proxied, too: move \"proxy_pass\" to a named \
             location, and make that the last argument (\"@backend\")",
        );
    }
}

/// Directives that work in an `if` as expected.
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
                "a request that matches this \"if\" has the configuration of the \"if\" alone, \
                 without the location's \"try_files\" and the settings of other matching \"if\" \
                 blocks: instead of setting \"{name}\" here, use a \"map\" or another location"
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
    // `if-in-location` reports settings.
    let sets = children.iter().any(|child| !SOUND_IN_IF.contains(&child.name.bytes()));
    if !ends && !sets {
        found.add(
            &n.name,
            "nginx ignores \"try_files\" for requests that match this \"if\" (Weir does not if the \
             \"if\" has no settings): use a \"map\", or move the \"if\" to the server block",
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
        found.add(
            &n.name,
            "use \"try_files\": it checks for files and keeps the settings of the location",
        );
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
            format_args!(
                "\"return\" runs before \"{rule}\" and so answers everybody: move it to a named \
                 location, and go there with \"try_files\""
            ),
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
        found.add(&n.name, "all other clients are allowed, too: add \"deny all\"");
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
    // A constant SCRIPT_FILENAME runs the same program for every path.
    let script = named(n.children(), "fastcgi_param")
        .filter(|param| param.args.first().is_some_and(|name| *name == *"SCRIPT_FILENAME"))
        .last();
    if script.and_then(|param| param.args.get(1)).is_some_and(|path| is_constant(path.bytes())) {
        return;
    }
    // An expression that matches one file gives PHP no other one.
    let pattern = n.args.last().map_or(&b""[..], Word::bytes);
    let names_files =
        pattern.starts_with(b"^") && !pattern.contains(&b'*') && !pattern.contains(&b'+');
    if !names_files {
        found.add(
            &n.name,
            "PHP gets paths whose file does not exist and may run another file instead, for \
             example an upload (/image.jpg/x.php): add \"try_files $fastcgi_script_name =404\"",
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
                "\"{text}\" is a literal prefix: write \"~\" before it for a regular expression"
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
                "\"location {}\" has no root: set this one in the server block",
                args.join(" ")
            ),
        );
    }
}
