//! `weir lint [FILE]`: probable faults of a configuration, as text, JSON, SARIF or commands for
//! GitHub.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgMatches;
use clap::builder::PossibleValuesParser;
use conf::Tree;
#[cfg(feature = "script")]
use conf::lint::SCRIPT_FUNCTION;
use conf::lint::{FIXABLE, Finding, Severity, check, check_with, rules};
use conf::parse::{Options, parse_file};
use server::layout::layout;
use server::{directives, paint};

use crate::declared::{Command, PLAIN, Run, print};
use crate::fixes;
use crate::json::quoted;
use crate::line;

/// The exit status of a file that cannot be read.
const UNREADABLE: u8 = 2;

/// The forms of output.
pub(crate) const FORMATS: &[&str] = &["text", "json", "sarif", "github"];

/// `weir lint`
pub(crate) const COMMAND: Command = Command {
    name: "lint",
    doc: "find probable errors in a configuration",
    about: "For reviews and CI: finds settings that load but rarely do what they seem to do, for \
            example a location that lets clients escape from its alias.",
    args: || {
        let format = line::valued("format", "NAME", "The form of the output [default: text]");
        vec![
            line::file("The configuration file [default: the one that the server reads]"),
            line::option("habits", "Also report common habits that some teams forbid"),
            format.value_parser(PossibleValuesParser::new(FORMATS)),
            line::option("fix", "Write the changes that are safe, if the result loads")
                .conflicts_with_all(["format", "rules"]),
            line::option("dry-run", "With --fix: print the changes as a diff, write nothing")
                .requires("fix"),
            line::option("rules", "List all rules"),
        ]
    },
    exit: &[
        ("0", "nothing is found; with --fix: nothing is left"),
        ("1", "something is found; with --fix: something is left"),
        (
            "2",
            "the file cannot be read; with --fix: the result would not load, or a file cannot be \
             written; or the command line is wrong",
        ),
    ],
    examples: &[
        ("weir lint nginx.conf", "Findings as text."),
        ("weir lint nginx.conf --format sarif > weir.sarif", "Findings for code scanners."),
        ("weir lint nginx.conf --fix --dry-run", "The changes that --fix would write."),
    ],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    if matches.get_flag("rules") {
        return print(&list());
    }
    let file = matches.get_one::<PathBuf>("FILE").cloned();
    let file = file.unwrap_or_else(|| PathBuf::from(layout().prefix).join(layout().conf_path));
    if matches.get_flag("fix") {
        return fix(&file, matches.get_flag("habits"), matches.get_flag("dry-run"));
    }
    let conf_prefix = file.parent().map(PathBuf::from).unwrap_or_default();
    let tree = match parse_file(&file, &Options { conf_prefix, ..Options::default() }) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("weir lint: {error}");
            return ExitCode::from(UNREADABLE);
        }
    };
    let (habits, names) = (matches.get_flag("habits"), directives::names());
    let found = check_with(&tree, habits, Some(&names), missing_functions(&file, &tree));
    let text = match matches.get_one::<String>("format").map(String::as_str) {
        Some("json") => json(&found),
        Some("sarif") => sarif(&found),
        Some("github") => found.iter().map(github).collect(),
        _ => text(&found),
    };
    match print(&text) {
        ExitCode::SUCCESS if found.is_empty() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The functions of scripts that directives name and no module exports. The configuration is loaded
/// for that, so there are none where it does not load.
#[cfg(feature = "script")]
fn missing_functions(file: &Path, tree: &Tree) -> Vec<Finding> {
    fn imports(nodes: &[conf::Node]) -> bool {
        nodes.iter().any(|node| node.name == *"js_import" || imports(node.children()))
    }
    if !imports(&tree.nodes) {
        return Vec::new();
    }
    let load = || fixes::test(file, &[]).is_ok();
    let missing = script_modules::code::missing_functions(load);
    let same = |a: &Path, b: &Path| a.canonicalize().ok() == b.canonicalize().ok();
    let finding = |function: script_modules::Function| {
        let (name, directive) = (function.lossy(), function.counts.directive);
        let mut pos = function.word.pos;
        // The load has named the file by its whole path.
        if let Some(file) = tree.files.iter().find(|file| same(&file.path, &pos.file)) {
            pos.file = file.path.clone();
        }
        let m = format!("{directive}: no module exports \"{name}\"; requests fail that need it");
        Finding { rule: SCRIPT_FUNCTION, pos, message: m, fix: Vec::new() }
    };
    missing.into_iter().map(finding).collect()
}

/// Without scripts there are no functions.
#[cfg(not(feature = "script"))]
fn missing_functions(_: &Path, _: &Tree) -> Vec<Finding> {
    Vec::new()
}

/// `--fix`: writes the changes that rules are certain of, and reports the findings that are left.
fn fix(file: &Path, habits: bool, dry: bool) -> ExitCode {
    let find = |tree: &Tree| check(tree, habits, Some(&directives::names()));
    let edits = |tree: &Tree| find(tree).into_iter().flat_map(|finding| finding.fix).collect();
    let outcome = fixes::fix(file, edits).and_then(|(changed, tree)| {
        if !changed.is_empty() {
            fixes::test(file, &changed).map_err(fixes::unloadable)?;
        }
        if !dry {
            fixes::write(&changed)?;
        }
        Ok((changed, find(&tree)))
    });
    let (changed, left) = match outcome {
        Ok(done) => done,
        Err(error) => return error.report("lint", UNREADABLE),
    };
    let mut out = String::new();
    for one in &changed {
        match dry {
            true => out.push_str(&one.diff()),
            false => out.push_str(&format!("fixed {}\n", one.path.display())),
        }
    }
    if !dry || changed.is_empty() {
        out.push_str(&text(&left));
    }
    match print(&out) {
        ExitCode::SUCCESS if left.is_empty() && (changed.is_empty() || !dry) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn list() -> String {
    let mut out = String::new();
    for rule in rules() {
        let fixed = if FIXABLE.contains(&rule.id) { " (--fix)" } else { "" };
        let asked = if rule.habit { " (--habits)" } else { "" };
        let severity = rule.severity.name();
        let _ = writeln!(out, "{:<26} {severity:<8} {}{asked}{fixed}", rule.id, rule.summary);
    }
    out
}

fn place(f: &Finding) -> (String, u32, u32) {
    (f.pos.file.display().to_string(), f.pos.line, f.pos.column)
}

fn text(found: &[Finding]) -> String {
    let mut out = String::new();
    for f in found {
        let (file, line, column) = place(f);
        let (severity, id) = (f.rule.severity, f.rule.id);
        let severity = match paint::stdout() && severity != Severity::Note {
            true => paint::severity(severity == Severity::Error, severity.name()),
            false => severity.name().to_owned(),
        };
        let _ = writeln!(out, "{file}:{line}:{column}: {severity}: {} [{id}]", f.message);
    }
    let fixable = found.iter().filter(|f| !f.fix.is_empty()).count();
    let _ = match (found.len(), fixable) {
        (0, _) => writeln!(out, "nothing found"),
        (n, 0) => writeln!(out, "{n} found; \"# weir:ignore RULE reason\" silences one"),
        (n, fixable) => writeln!(
            out,
            "{n} found; \"# weir:ignore RULE reason\" silences one; --fix ends {fixable} of them"
        ),
    };
    out
}

fn json(found: &[Finding]) -> String {
    let items = found.iter().map(|f| {
        let (file, line, column) = place(f);
        format!(
            "{{\"rule\":{},\"severity\":{},\"file\":{},\"line\":{line},\"column\":{column},\
             \"message\":{}}}",
            quoted(f.rule.id),
            quoted(f.rule.severity.name()),
            quoted(&file),
            quoted(&f.message)
        )
    });
    format!("[{}]\n", items.collect::<Vec<_>>().join(","))
}

/// SARIF 2.1.0.
fn sarif(found: &[Finding]) -> String {
    let rules = rules().map(|rule| {
        format!(
            "{{\"id\":{},\"shortDescription\":{{\"text\":{}}},\
             \"defaultConfiguration\":{{\"level\":{}}}}}",
            quoted(rule.id),
            quoted(rule.summary),
            quoted(rule.severity.name())
        )
    });
    let results = found.iter().map(|f| {
        let (file, line, column) = place(f);
        format!(
            "{{\"ruleId\":{},\"level\":{},\"message\":{{\"text\":{}}},\"locations\":[{{\
             \"physicalLocation\":{{\"artifactLocation\":{{\"uri\":{}}},\"region\":{{\
             \"startLine\":{line},\"startColumn\":{}}}}}}}]}}",
            quoted(f.rule.id),
            quoted(f.rule.severity.name()),
            quoted(&f.message),
            quoted(&uri(&file)),
            column.max(1)
        )
    });
    format!(
        "{{\"$schema\":\"https://json.schemastore.org/sarif-2.1.0.json\",\"version\":\"2.1.0\",\
         \"runs\":[{{\"tool\":{{\"driver\":{{\"name\":\"weir lint\",\"version\":{},\
         \"rules\":[{}]}}}},\"results\":[{}]}}]}}\n",
        quoted(server::VERSION),
        rules.collect::<Vec<_>>().join(","),
        results.collect::<Vec<_>>().join(",")
    )
}

/// A path as a URI: absolute ones have the scheme, others are relative.
fn uri(path: &str) -> String {
    let mut out = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// A workflow command of GitHub's.
fn github(f: &Finding) -> String {
    let (file, line, column) = place(f);
    let level = match f.rule.severity {
        Severity::Note => "notice",
        severity => severity.name(),
    };
    let message = escaped(&f.message, "");
    let (file, id) = (escaped(&file, ":,"), f.rule.id);
    format!("::{level} file={file},line={line},col={column},title=weir lint {id}::{message}\n")
}

fn escaped(text: &str, more: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '%' | '\r' | '\n' => {
                let _ = write!(out, "%{:02X}", u32::from(c));
            }
            c if more.contains(c) => {
                let _ = write!(out, "%{:02X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn asked(args: &[&str]) -> Result<ArgMatches, clap::Error> {
        COMMAND.parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_typed() {
        let a = asked(&["a.conf", "--format", "sarif"]).unwrap();
        assert_eq!(a.get_one::<PathBuf>("FILE"), Some(&"a.conf".into()));
        let format = |a: ArgMatches| a.get_one::<String>("format").cloned();
        assert_eq!(format(a).as_deref(), Some("sarif"));
        assert_eq!(format(asked(&["--format=json"]).unwrap()).as_deref(), Some("json"));
        assert!(asked(&["--rules"]).unwrap().get_flag("rules"));
        assert!(asked(&["--habits", "a"]).unwrap().get_flag("habits"));
        for wrong in [&["--format", "xml"][..], &["--format"], &["a", "b"], &["--all"]] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn texts_for_machines() {
        assert_eq!(uri("/a b/ü"), "file:///a%20b/%C3%BC");
        assert_eq!(uri("a.conf"), "a.conf");
        assert_eq!(escaped("a:b\n100%", ":,"), "a%3Ab%0A100%25");
    }
}
