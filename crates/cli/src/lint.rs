//! `weir lint [FILE]`: probable faults of a configuration, as text, JSON, SARIF or commands for
//! GitHub.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;
use clap::builder::PossibleValuesParser;
use conf::lint::{Finding, Severity, check, rules};
use conf::parse::{Options, parse_file};
use server::directives;
use server::layout::layout;

use crate::declared::{Command, PLAIN, Run, print};
use crate::json::quoted;
use crate::line;

/// The exit status of a file that cannot be read.
const UNREADABLE: u8 = 2;

/// The forms of output.
pub const FORMATS: &[&str] = &["text", "json", "sarif", "github"];

/// `weir lint`
pub const COMMAND: Command = Command {
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
            line::option("rules", "List all rules"),
        ]
    },
    exit: &[
        ("0", "nothing is found"),
        ("1", "something is found"),
        ("2", "the file cannot be read, or the command line is wrong"),
    ],
    examples: &[
        ("weir lint nginx.conf", "Findings as text."),
        ("weir lint nginx.conf --format sarif > weir.sarif", "Findings for code scanners."),
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
    let conf_prefix = file.parent().map(PathBuf::from).unwrap_or_default();
    let tree = match parse_file(&file, &Options { conf_prefix, ..Options::default() }) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("weir lint: {error}");
            return ExitCode::from(UNREADABLE);
        }
    };
    let found = check(&tree, matches.get_flag("habits"), Some(&directives::names()));
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

fn list() -> String {
    let mut out = String::new();
    for rule in rules() {
        let asked = if rule.habit { " (--habits)" } else { "" };
        let severity = rule.severity.name();
        let _ = writeln!(out, "{:<26} {severity:<8} {}{asked}", rule.id, rule.summary);
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
        let (severity, id) = (f.rule.severity.name(), f.rule.id);
        let _ = writeln!(out, "{file}:{line}:{column}: {severity}: {} [{id}]", f.message);
    }
    let _ = match found.len() {
        0 => writeln!(out, "nothing found"),
        n => writeln!(out, "{n} found; \"# weir:ignore RULE reason\" silences one"),
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
