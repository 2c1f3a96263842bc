//! The engine knows no module: nothing in `crates/http` and `crates/http-upstream` names one of
//! the modules' crates, so that a module can be taken out, or one from outside be put in, and the
//! engine stays as it is.
//!
//! A name counts in each way to write it, `sub_filter` as well as `SubFilter` and `sub_filter_max`,
//! as an identifier and within a string. Comments and tests may speak of modules.

use crate::rust_source::Source;
use crate::workspace::Workspace;

const ENGINE: &[&str] = &["crates/http/src/", "crates/http-upstream/src/"];
const MODULES: &[&str] = &[
    "crates/http-identity/src/",
    "crates/http-files/src/",
    "crates/http-modules/src/",
    "crates/http-observe/src/",
    "crates/http-proxying/src/",
];

/// Names that are also words of the engine's own, with the reason. They may be identifiers, and
/// parts of longer strings; a string that is nothing but the name is a finding all the same.
const ORDINARY: &[(&str, &str)] = &[
    ("access", "a phase"),
    ("api", "the word, in texts"),
    ("charset", "a part of Content-Type"),
    ("gateway", "what a proxy is to HTTP: statuses 502 and 504"),
    ("headers", "what a message begins with"),
    ("index", "a place in a list"),
    ("internal_redirect", "another URI within the server: error_page, X-Accel-Redirect"),
    ("limits", "the process's, and those of sizes"),
    ("log", "the error log, and a phase"),
    ("map", "what is done to a value, and a path's place on the disk"),
    ("mp4", "a media type"),
    ("not_modified", "a status"),
    ("proxy", "the PROXY protocol"),
    ("range", "a part of a file"),
    ("ready", "sockets, futures and the loop"),
    ("referer", "a field of requests"),
    ("rewrite", "a phase"),
    ("shared_state", "a process of the server"),
    ("slice", "a part of a buffer"),
    ("static", "a word of the language"),
    ("sub", "a subrequest's part, and subtraction"),
    ("tunnel", "what an upgraded connection becomes"),
];

/// The modules' names that stand in the engine, and unused entries of the list above.
pub fn check(ws: &Workspace) -> Vec<String> {
    let read = || -> Result<_, String> {
        let (mut names, mut engine) = (Vec::new(), Vec::new());
        for path in ws.files()?.into_iter().filter(|path| path.ends_with(".rs")) {
            if MODULES.iter().any(|folder| path.starts_with(folder)) {
                names.extend(names_in(&path, &ws.read(&path)?));
            } else if is_of_engine(&path) && !super::is_test_file(&path) {
                engine.push((ws.read(&path)?, path));
            }
        }
        Ok((names, engine))
    };
    let (mut names, engine) = match read() {
        Ok(read) => read,
        Err(e) => return vec![e],
    };
    names.sort();
    names.dedup();
    let idle = ORDINARY.iter().filter(|(word, _)| !names.iter().any(|name| name == word));
    let mut findings: Vec<_> = idle
        .map(|(word, _)| format!("xtask/src/tidy/engine.rs: \"{word}\" is no module's name"))
        .collect();
    if names.is_empty() || engine.is_empty() {
        findings.push(format!(
            "{} or {}: nothing there to compare",
            MODULES.join(", "),
            ENGINE.join(", ")
        ));
    }
    for (text, path) in &engine {
        findings.extend(check_text(path, text, &names));
    }
    findings
}

fn is_of_engine(path: &str) -> bool {
    ENGINE.iter().any(|folder| path.starts_with(folder))
}

/// The names of modules that a file holds: those declared in the crate's root, and those in tables
/// of modules.
fn names_in(path: &str, text: &str) -> Vec<String> {
    let source = Source::new(text);
    let rest = |at: usize, behind: &str| text[at..].strip_prefix(behind).map(str::trim_start);
    let mut names = Vec::new();
    for word in ["Module", "module"] {
        for at in source.words(word).filter(|&at| !source.in_tests(at)) {
            let written = rest(at, "Module {").and_then(|t| t.strip_prefix("name: \""));
            let made = rest(at, "Module::of::<").or_else(|| rest(at, "module::<"));
            let made = made.and_then(|t| t.split_once(">(")).map(|(_, t)| t.trim_start());
            let name = written.or_else(|| made.and_then(|t| t.strip_prefix('"')));
            names.extend(name.and_then(|t| t.split('"').next()));
        }
    }
    if path.ends_with("/src/lib.rs") {
        for at in source.words("mod").filter(|&at| !source.in_tests(at)) {
            let name = rest(at, "mod ").and_then(|t| t.split_once(';')).map(|(name, _)| name);
            names.extend(name.filter(|name| name.bytes().all(|b| is_name_byte(&b))));
        }
    }
    names.into_iter().map(str::to_owned).collect()
}

fn check_text(path: &str, text: &str, names: &[String]) -> Vec<String> {
    let source = Source::new(text);
    let bytes = text.as_bytes();
    let mut findings = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let len = bytes[at..].iter().take_while(|b| is_name_byte(b)).count();
        let in_comment = source.comments.as_bytes()[at] != b' ';
        if len > 0 && !in_comment && !source.in_tests(at) {
            let quoted = at > 0 && bytes[at - 1] == b'"' && bytes.get(at + len) == Some(&b'"');
            let parts = parts(&text[at..at + len]);
            let named = names.iter().find(|name| {
                let ordinary = ORDINARY.iter().any(|(word, _)| word == name);
                let wanted: Vec<_> = name.split('_').collect();
                match ordinary {
                    true => quoted && parts == wanted,
                    false => parts.windows(wanted.len()).any(|window| window == wanted),
                }
            });
            if let Some(name) = named {
                let (line, word) = (source.line_of(at), &text[at..at + len]);
                findings.push(format!(
                    "{path}:{line}: \"{word}\" names the module \"{name}\", which the engine must \
                     not know; if it means something else, say so in xtask/src/tidy/engine.rs"
                ));
            }
        }
        at += len.max(1);
    }
    findings
}

fn is_name_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}

/// The words of a name in small letters: `sub`, `filter`, `max` of `SubFilterMax` and
/// `sub_filter_max`.
fn parts(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for piece in name.split('_').filter(|piece| !piece.is_empty()) {
        let mut before_is_upper = false;
        for (i, c) in piece.chars().enumerate() {
            if i == 0 || c.is_ascii_uppercase() && !before_is_upper {
                parts.push(String::new());
            }
            if let Some(last) = parts.last_mut() {
                last.push(c.to_ascii_lowercase());
            }
            before_is_upper = c.is_ascii_uppercase();
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::{check_text, names_in, parts};

    fn findings(text: &str) -> usize {
        let names = ["gzip", "sub_filter", "log", "mp4"].map(str::to_owned);
        check_text("crates/http/src/x.rs", text, &names).len()
    }

    #[test]
    fn names_of_modules_are_found() {
        for text in [
            "fn gzip() {}",
            "struct GzipConf;",
            "const GZIP: u8 = 1;",
            "x.set_gzip_on()",
            "use http_modules::sub_filter;",
            "struct SubFilterState;",
            "if m.name == \"gzip\" {}",
            "if m.name == b\"sub_filter\" {}",
            "let m = \"the gzip module\";",
            "let m = r#\"gzip_static\"#;",
            "if m.name == \"log\" {}",
        ] {
            assert_eq!(findings(text), 1, "{text}");
        }
    }

    #[test]
    fn words_comments_and_tests_are_not() {
        for text in [
            "// gzip\n/// `sub_filter`\nfn a() { /* gzip */ }",
            "use base::log::Level; fn log_it() { log(\"a log\") }",
            "\"video/mp4\"",
            "fn sub() { filter() } struct Gzipped; let unzip = zip;",
            "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { gzip(\"gzip\") } }",
            "let sub = filter;",
        ] {
            assert_eq!(findings(text), 0, "{text}");
        }
    }

    #[test]
    fn the_names_come_from_the_modules() {
        let table = "pub static MODULE: Module = Module {\n    name: \"upstream_hc\",\n};";
        assert_eq!(names_in("crates/http-proxying/src/health/mod.rs", table), ["upstream_hc"]);
        for made in
            ["Module::of::<SubConf>(\"sub\", D, install)", "pass::module::<Pass<C>>(\"sub\")"]
        {
            assert_eq!(names_in("crates/http-modules/src/x.rs", made), ["sub"], "{made}");
        }
        let root = "pub mod access;\nmod behind;\n// mod not;\n#[cfg(test)]\nmod tests { }\n";
        assert_eq!(names_in("crates/http-modules/src/lib.rs", root), ["access", "behind"]);
        assert_eq!(names_in("crates/http-modules/src/x/mod.rs", root), [""; 0]);
    }

    #[test]
    fn words_of_a_name() {
        assert_eq!(parts("SubFilterMax"), ["sub", "filter", "max"]);
        assert_eq!(parts("SUB_FILTER"), ["sub", "filter"]);
        assert_eq!(parts("_sub_filter2"), ["sub", "filter2"]);
        assert_eq!(parts("Mp4"), ["mp4"]);
    }
}
