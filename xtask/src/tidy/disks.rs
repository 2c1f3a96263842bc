//! Calls that may wait for a disk, in the crates that serve: each of them stands in a function that
//! is known to run in a thread, to read memory only, or to run at the start. So none gets into a
//! handler unnoticed.

use crate::rust_source::Source;

/// The crates with code on the event loop.
const CRATES: &[&str] = &[
    "crates/files/src/",
    "crates/upstream/src/",
    "crates/cache/src/",
    "crates/http/src/",
    "crates/http-upstream/src/",
    "crates/http-identity/src/",
    "crates/http-proxying/src/",
    "crates/http-observe/src/",
    "crates/http-modules/src/",
    "crates/http-files/src/",
    "crates/stream/src/",
    "crates/stream-modules/src/",
];

/// Prefixes of calls that may wait. Types and constants of these modules do not.
const CALLS: &[&str] = &[
    "std::fs::",
    "fs::",
    "File::open",
    "File::create",
    "os::append::",
    "os::file::",
    "os::probe::",
    "probe::",
    "DirBuilder",
];

/// Exceptions: types, and questions about memory.
const HARMLESS: &[&str] = &[
    "os::file::FileMeta",
    "os::file::FileKind",
    "os::file::OpenAt",
    "os::file::is_direct",
    "os::probe::Probes",
    "os::probe::page_size",
    "probe::Probes",
    "probe::page_size",
    "std::fs::Permissions",
    "std::fs::DirEntry",
    "std::os::unix::fs::",
    "os::unix::fs::",
    "unix::fs::",
];

/// The functions that may call them, with the reason.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    (
        "http-upstream/src/caching/sharing.rs",
        &["write", "cursor"],
        "in the shared state process: a thread, the start",
    ),
    (
        "http-upstream/src/caching/waiting.rs",
        &["is_empty", "open", "replace"],
        "in the shared state process, each second at most; in a thread",
    ),
    ("files/src/question.rs", &[], "asks memory, or runs in a thread, or `aio` is off"),
    ("files/src/nonblocking.rs", &[], "asks memory"),
    ("files/src/page_cache.rs", &[], "asks memory"),
    ("files/src/links.rs", &[], "called by a question"),
    ("files/src/moving.rs", &[], "in a thread"),
    ("files/src/temp_file.rs", &[], "in a thread, or at the start"),
    (
        "files/src/reading.rs",
        &["into_cache", "read_retried", "piece", "piece_now"],
        "in a thread, or of bytes in memory, or `aio` is off",
    ),
    ("http/src/files.rs", &["find_real_root", "real_root"], "in a thread"),
    ("http/src/channel/files.rs", &["failed"], "only asks for a path"),
    ("http/src/http3_conf.rs", &["read_key"], "at the start"),
    ("upstream/src/names.rs", &["system"], "at the start"),
    ("upstream/src/state_file.rs", &["write"], "in a thread"),
    ("cache/src/store/unfinished.rs", &[], "in a thread, or `aio` is off"),
    ("cache/src/store/renewal.rs", &["rewrite_header"], "in a thread, or `aio` is off"),
    ("cache/src/store/removal.rs", &["delete"], "in a thread, or `aio` is off"),
    ("cache/src/growing.rs", &["open", "header_of"], "in a thread, or `aio` is off"),
    (
        "cache/src/loader.rs",
        &["take", "folder", "is_left_behind", "files"],
        "in a thread of the loader",
    ),
    ("cache/src/manager.rs", &["is_low"], "in a thread of the manager"),
    ("cache/src/index/mod.rs", &[], "in a thread of the manager or the loader"),
    ("cache/src/index/source.rs", &[], "in a thread of the manager or the loader"),
    ("cache/src/index/start.rs", &[], "in a thread of the loader"),
    ("cache/src/index/journal.rs", &[], "in a thread of the manager"),
    ("cache/src/index/merge.rs", &[], "in a thread of the manager"),
    ("cache/src/index/search.rs", &[], "in a thread of the manager"),
    ("cache/src/unindexed.rs", &["header_of"], "in a thread of the manager"),
    ("cache/src/instance.rs", &["block", "settle"], "at the start of a process; in a thread"),
    ("http/src/core_vars/process.rs", &["new"], "/dev/urandom, once"),
    ("http-identity/src/auth_jwt/keys.rs", &["read"], "at load, or by Request::on_disk"),
    ("http-identity/src/auth_oidc/directives.rs", &["client_secret_file"], "at load"),
    ("http-identity/src/auth_ldap/directives.rs", &["hashed"], "at load"),
    ("http-identity/src/auth_basic/verified.rs", &["draw"], "/dev/urandom, once"),
    ("http-modules/src/geoip2.rs", &["read", "refresh"], "at the start, and in a thread"),
    ("upstream/src/names.rs", &["system"], "at the start"),
    ("upstream/src/state_file.rs", &["write"], "a file of state, in a thread"),
    ("http-upstream/src/spill.rs", &["write"], "in a thread"),
    ("http-identity/src/auth_basic/mod.rs", &["find"], "in a thread"),
    ("http-modules/src/dav/mod.rs", &["mkcol", "put", "delete"], "in a thread"),
    ("http-modules/src/dav/copy_move.rs", &["carry_out", "folder"], "in a thread"),
    ("http-modules/src/dav/tree.rs", &[], "in a thread"),
    ("common-modules/src/log/path_log.rs", &["append", "is_at"], "in a thread"),
];

/// Adds the calls of `path` outside such functions.
pub fn check(path: &str, source: &Source, findings: &mut Vec<String>) {
    if !CRATES.iter().any(|folder| path.starts_with(folder)) || path.ends_with("/tests.rs") {
        return;
    }
    let allowed = ALLOWED.iter().find(|(file, ..)| path.strip_prefix("crates/") == Some(file));
    let allowed = allowed.map(|(_, functions, _)| *functions);
    if allowed == Some(&[]) {
        return;
    }
    let functions = source.functions();
    let mut last_line = 0;
    for (at, call) in calls(&source.code) {
        let line = source.line_of(at);
        let text = source.code[..at].rsplit('\n').next().unwrap_or_default();
        if source.in_tests(at) || line == last_line || text.trim_start().starts_with("use ") {
            continue;
        }
        let within = |f: &&crate::rust_source::Function| f.line <= line && line < f.line + f.lines;
        let name = functions.iter().rfind(within).map_or("", |f| f.name.as_str());
        if !allowed.is_some_and(|functions| functions.contains(&name)) {
            last_line = line;
            findings.push(format!(
                "{path}:{line}: {call} in {name}() may wait for a disk: go through the crate files \
                 or Request::on_disk, and name the function in xtask/src/tidy/disks.rs"
            ));
        }
    }
}

/// The calls in a text, by where they begin.
fn calls(code: &str) -> Vec<(usize, &'static str)> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    for call in CALLS {
        for (at, _) in code.match_indices(call) {
            // A longer name, or a path that another pattern begins earlier.
            let begins =
                !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            if begins && !HARMLESS.iter().any(|name| code[at..].starts_with(name)) {
                found.push((at, call));
            }
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(path, &Source::new(text), &mut findings);
        findings.len()
    }

    #[test]
    fn calls_in_handlers_are_found() {
        let text = "use std::fs::File;\nfn handle() {\n    let m = std::fs::metadata(p);\n}\n";
        assert_eq!(found("crates/http-modules/src/x.rs", text), 1);
        assert_eq!(found("crates/os/src/x.rs", text), 0);
        let text = "fn handle(m: &os::file::FileMeta) {\n    os::file::stat(p);\n}\n";
        assert_eq!(found("crates/http/src/x.rs", text), 1);
        assert_eq!(found("crates/files/src/moving.rs", text), 0);
        let text =
            "fn find() {\n    os::file::read_at(f);\n}\nfn run() {\n    os::file::open(f);\n}\n";
        assert_eq!(found("crates/http-identity/src/auth_basic/mod.rs", text), 1);
        let text = "#[cfg(test)]\nmod tests {\n    fn a() { std::fs::read(p); }\n}\n";
        assert_eq!(found("crates/http/src/x.rs", text), 0);
    }
}
