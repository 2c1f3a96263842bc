//! The habits that a machine can check, so that reviews need not.
//!
//! Sizes have a ratchet: `xtask/ratchet.txt` lists files and functions over the limit, with a
//! reason. Its figures may only fall: a file or function that grew past its entry is a finding, and
//! so is an entry higher than the truth. `cargo xtask tidy --fix` lowers it, and wraps long
//! comments.

mod crate_sizes;
mod disks;
mod engine;
mod hot_path;
mod ratchet;
mod wrap;

use crate::Findings;
use crate::rust_source::Source;
use crate::workspace::Workspace;
use ratchet::{Measured, Ratchet};

/// Lines of a file outside its tests; above, it needs an entry in the ratchet.
const FILE_LINES: usize = 650;
/// Lines of a file outside its tests, and of its tests, without exception.
const FILE_LINES_EVER: usize = 1200;
/// Lines of a function.
const FUNCTION_LINES: usize = 70;
/// Lines of a test, which is often a long list of cases.
const TEST_LINES: usize = 120;
/// Characters of a line.
const COLUMNS: usize = 100;

/// The crates that may hold `unsafe`; `script` in its file `raw.rs` alone, because compiled modules
/// and the bytes of buffers cannot be had from the library otherwise.
const UNSAFE_ISLANDS: &[&str] = &["os", "shm", "event", "script"];

/// Words that mark something unfinished, spelt so that this file does not hold them.
const LEFTOVERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Paths that mean something on one machine alone.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/root", "/.")];

/// Checks every file; `--fix` first mends long comments and high ratchets.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let one = |e: String| vec![e];
    let fix = args.iter().any(|a| a == "--fix");
    let mut findings = Vec::new();
    let mut sizes = Vec::new();
    let mut crates = crate_sizes::Sizes::new();
    for path in ws.files().map_err(one)? {
        if !is_text(&path) {
            continue;
        }
        let mut text = ws.read(&path).map_err(one)?;
        if fix && path.ends_with(".rs") && text.lines().any(|l| l.chars().count() > COLUMNS) {
            text = wrap::wrap(&text, &Source::new(&text));
            ws.write(&path, &text).map_err(one)?;
        }
        check_text(&path, &text, &mut findings);
        if path.ends_with(".rs") {
            let source = Source::new(&text);
            check_rust(&path, &text, &source, &mut findings);
            disks::check(&path, &source, &mut findings);
            crate_sizes::measure(&path, &text, &mut crates);
            measure(&path, &text, &source, &mut sizes, &mut findings);
        }
    }
    let mut ratchet = Ratchet::read(ws).map_err(one)?;
    if fix {
        ratchet.lower(&sizes);
        ratchet.write(ws).map_err(one)?;
    }
    findings.extend(ratchet.check(&sizes));
    findings.extend(ratchet.check_history(ws));
    findings.extend(crate_sizes::check(&crates));
    findings.extend(hot_path::check(ws));
    findings.extend(engine::check(ws));
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn is_text(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((_, extension)) => matches!(
            extension,
            "rs" | "toml"
                | "md"
                | "sh"
                | "conf"
                | "lua"
                | "txt"
                | "yml"
                | "html"
                | "css"
                | "service"
        ),
        None => matches!(name, "x" | "run"),
    }
}

/// Whether a file holds tests and nothing else.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
        || path.split('/').any(|part| part == "tests" || part == "benches")
}

/// The crate a file belongs to, by folder name.
fn crate_of(path: &str) -> &str {
    path.strip_prefix("crates/").unwrap_or(path).split('/').next().unwrap_or(path)
}

/// The rules for every text.
fn check_text(path: &str, text: &str, findings: &mut Vec<String>) {
    let mut say = |line: usize, what: &str| findings.push(format!("{path}:{line}: {what}"));
    let limit_columns = path.ends_with(".rs") || path == "x";
    // Bytes that a test sends or expects are easier to read in one piece.
    let in_one_piece = |line: &str| is_test_file(path) && !line.trim_start().starts_with("//");
    for (number, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line)) {
        if line.ends_with([' ', '\t', '\r']) {
            say(number, "white space at the end of the line");
        }
        if limit_columns && line.chars().count() > COLUMNS && !in_one_piece(line) {
            say(number, "over 100 columns");
        }
        for word in LEFTOVERS.iter().filter(|word| has_word(line, word)) {
            say(number, &format!("\"{word}\": finish it, or write down why it is so"));
        }
        for part in MACHINE_PATHS.iter().filter(|part| line.contains(**part)) {
            say(number, &format!("\"{part}\" is a path of one machine"));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        say(text.lines().count(), "no line break at the end of the file");
    }
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let touches = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !touches(line[..at].chars().next_back()) && !touches(line[at + word.len()..].chars().next())
    })
}

/// The rules for Rust.
fn check_rust(path: &str, text: &str, source: &Source, findings: &mut Vec<String>) {
    let mut say = |line: usize, what: &str| findings.push(format!("{path}:{line}: {what}"));
    let is_root = ["/src/lib.rs", "/src/main.rs"].iter().any(|root| path.ends_with(root));
    if is_root
        && !UNSAFE_ISLANDS.contains(&crate_of(path))
        && !source.code.contains("#![forbid(unsafe_code)]")
    {
        say(1, "no #![forbid(unsafe_code)]");
    }
    let lines: Vec<&str> = source.comments.lines().collect();
    let code: Vec<&str> = source.code.lines().collect();
    for at in source.words("unsafe") {
        let line = source.line_of(at);
        if source.code[at + 6..].trim_start().starts_with(['{', 'i']) {
            // `unsafe { … }` and `unsafe impl`.
            if !has_note(&code, &lines, line, "SAFETY:") {
                say(line, "no SAFETY note above this unsafe");
            }
        } else if code[line - 1].trim_start().starts_with("pub")
            && is_unsafe_function(&source.code[at + 6..])
            && !has_note(&code, &lines, line, "# Safety")
        {
            say(line, "no \"# Safety\" section above this unsafe function");
        }
    }
    if is_test_file(path) {
        return;
    }
    let unwraps = source.code.match_indices(".unwrap()");
    for (at, _) in unwraps.filter(|&(at, _)| !source.in_tests(at)) {
        say(source.line_of(at), "unwrap() outside tests: expect(\"why it cannot fail\") or handle");
    }
    // `expect("")` has no message; the argument is a literal, so look in the text itself.
    let empty = concat!(".expect(\"", "\")");
    for (at, _) in text.match_indices(empty).filter(|&(at, _)| !source.in_tests(at)) {
        say(source.line_of(at), "expect without a reason");
    }
}

/// `unsafe fn NAME` or `unsafe extern "C" fn NAME`, not the type `unsafe fn(…)`.
fn is_unsafe_function(after: &str) -> bool {
    let head = after.split(['(', '{', ';']).next().unwrap_or_default();
    let mut words = head.split_whitespace().skip_while(|w| *w != "fn").skip(1);
    words.next().is_some()
}

/// Whether the comment on `line` (from 1) or right above its statement holds `note`. Lines that
/// belong to the same statement, attributes and other comments may lie between.
fn has_note(code: &[&str], comments: &[&str], line: usize, note: &str) -> bool {
    let holds = |index: usize| comments.get(index).is_some_and(|c| c.contains(note));
    let mut index = line - 1;
    if holds(index) {
        return true;
    }
    while let Some(above) = index.checked_sub(1) {
        if holds(above) {
            return true;
        }
        let text = code[above].trim();
        let comment = !comments[above].trim().is_empty();
        let ends_statement = text.ends_with([';', '{', '}', ',']) && !text.starts_with("#[");
        if ends_statement || (text.is_empty() && !comment) {
            return false;
        }
        index = above;
    }
    false
}

/// Measures a file and its functions; sizes over the limits go to the ratchet.
fn measure(
    path: &str,
    text: &str,
    source: &Source,
    sizes: &mut Vec<Measured>,
    findings: &mut Vec<String>,
) {
    let all = text.lines().count();
    let tests = if is_test_file(path) { all } else { source.test_lines() };
    for (part, lines) in [("", all - tests), (" of tests", tests)] {
        if lines > FILE_LINES_EVER {
            findings.push(format!("{path}: {lines} lines{part}: split it"));
        }
    }
    if all - tests > FILE_LINES {
        let what = path.to_string();
        sizes.push(Measured { what, line: 1, lines: all - tests, limit: FILE_LINES });
    }
    for function in source.functions() {
        let test = is_test_file(path) || source.in_tests(function.at);
        let limit = if test { TEST_LINES } else { FUNCTION_LINES };
        if function.lines > limit {
            let what = format!("{path}::{}", function.name);
            let (line, lines) = (function.line, function.lines);
            sizes.push(Measured { what, line, lines, limit });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, check_rust, check_text};

    fn rust(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check_rust(path, text, &Source::new(text), &mut findings);
        findings
    }

    #[test]
    fn an_unsafe_block_needs_its_note() {
        let path = "crates/os/src/x.rs";
        assert_eq!(rust(path, "fn a() {\n    unsafe { b() }\n}\n").len(), 1);
        assert_eq!(
            rust(path, "fn a() {\n    // SAFETY: b is fine\n    unsafe { b() }\n}\n").len(),
            0
        );
        let split = "fn a() {\n    // SAFETY: b is fine\n    let x =\n        unsafe { b() };\n}\n";
        assert_eq!(rust(path, split).len(), 0);
        let far = "fn a() {\n    // SAFETY: b is fine\n    c();\n    unsafe { b() }\n}\n";
        assert_eq!(rust(path, far).len(), 1);
    }

    #[test]
    fn an_unsafe_function_needs_its_section() {
        let path = "crates/os/src/x.rs";
        assert_eq!(rust(path, "pub unsafe fn a() {}\n").len(), 1);
        assert_eq!(rust(path, "/// # Safety\n/// x\n#[inline]\npub unsafe fn a() {}\n").len(), 0);
        assert_eq!(rust(path, "pub type F = unsafe fn(u8);\n").len(), 0);
        // The trait documents the contract of its methods.
        assert_eq!(rust(path, "unsafe fn alloc(&self) {}\n").len(), 0);
    }

    #[test]
    fn roots_forbid_unsafe_outside_the_islands() {
        assert_eq!(rust("crates/conf/src/lib.rs", "mod x;\n").len(), 1);
        assert_eq!(rust("crates/os/src/lib.rs", "mod x;\n").len(), 0);
        assert_eq!(rust("crates/conf/src/lib.rs", "#![forbid(unsafe_code)]\n").len(), 0);
    }

    #[test]
    fn unwrap_is_for_tests() {
        let text = "/// a.unwrap()\nfn a() { b().unwrap() }\n#[test]\nfn t() { b().unwrap() }\n";
        assert_eq!(rust("crates/conf/src/x.rs", text).len(), 1);
        assert_eq!(rust("crates/conf/tests/x.rs", text).len(), 0);
    }

    #[test]
    fn texts_are_clean() {
        let mut findings = Vec::new();
        let leftover = concat!("// TO", "DO later");
        let text = format!("a \n{}\n{leftover}\nTO{}_LIST", "x".repeat(101), "DO");
        check_text("crates/conf/src/x.rs", &text, &mut findings);
        assert_eq!(findings.len(), 4, "{findings:?}");
    }
}
