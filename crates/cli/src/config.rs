//! `weir config --json [FILE]`: a configuration as JSON, in the form of crossplane's `parse`. The
//! arguments of directives with secrets are starred.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;
use clap::builder::ValueParser;
use conf::files::{Fault, File, Statement, read};
use server::added;
use server::layout::layout;

use crate::declared::{Command, PLAIN, Run};
use crate::json::quoted;
use crate::line;

/// `weir config`
pub(crate) const COMMAND: Command = Command {
    name: "config",
    doc: "print a configuration and its includes as JSON",
    about: "For programs that read or change configurations. The form is that of crossplane \
            parse; arguments with secrets are ***, comments are left out.",
    args: || {
        let json = line::option("json", "JSON: required, there is no other form yet");
        let c = line::valued("c", "FILE", "The same as FILE, as other commands have it");
        vec![
            line::file("The configuration file [default: the one that the server reads]"),
            json.required(true),
            c.value_parser(ValueParser::path_buf()).conflicts_with("FILE"),
        ]
    },
    exit: &[("0", "success"), ("1", "a file cannot be read or parsed; the output names it")],
    examples: &[("weir config --json /etc/nginx/nginx.conf", "This file and its includes.")],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let file = matches.get_one::<PathBuf>("FILE").or_else(|| matches.get_one("c")).cloned();
    let file = file.unwrap_or_else(|| PathBuf::from(layout().prefix).join(layout().conf_path));
    let files = read(&file);
    let failed = files.iter().any(|file| !file.faults.is_empty());
    let secrets = added::secrets();
    let text = payload(&files, &secrets);
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) if !failed => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn status(failed: bool) -> &'static str {
    if failed { "\"failed\"" } else { "\"ok\"" }
}

fn payload(files: &[File], secrets: &[&str]) -> String {
    let name = |file: &File| quoted(&file.path.to_string_lossy());
    let faults = files.iter().flat_map(|file| file.faults.iter().map(move |f| (file, f)));
    let errors = list(faults.map(|(file, f)| format!("{{\"file\":{},{}}}", name(file), fault(f))));
    let config = list(files.iter().map(|file| {
        format!(
            "{{\"file\":{},\"status\":{},\"errors\":{},\"parsed\":{}}}",
            name(file),
            status(!file.faults.is_empty()),
            list(file.faults.iter().map(|f| format!("{{{}}}", fault(f)))),
            list(file.statements.iter().map(|s| statement(s, secrets)))
        )
    }));
    let failed = files.iter().any(|file| !file.faults.is_empty());
    format!("{{\"status\":{},\"errors\":{errors},\"config\":{config}}}\n", status(failed))
}

fn fault(f: &Fault) -> String {
    let line = f.line.map_or("null".to_owned(), |line| line.to_string());
    format!("\"error\":{},\"line\":{line}", quoted(&f.message))
}

fn statement(s: &Statement, secrets: &[&str]) -> String {
    let args = match secrets.contains(&s.directive.as_str()) {
        true => "[\"***\"]".to_owned(),
        false => list(s.args.iter().map(|arg| quoted(arg))),
    };
    let name = quoted(&s.directive);
    let mut out = format!("{{\"directive\":{name},\"line\":{},\"args\":{args}", s.line);
    if let Some(includes) = &s.includes {
        out.push_str(&format!(",\"includes\":{}", list(includes.iter().map(usize::to_string))));
    }
    if let Some(block) = &s.block {
        let block = list(block.iter().map(|s| statement(s, secrets)));
        out.push_str(&format!(",\"block\":{block}"));
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_crossplane_s() {
        let arg = |text: &str| vec![text.to_owned()];
        let inner =
            Statement { directive: "a".into(), line: 2, args: arg("x\"y"), ..Default::default() };
        let include = Statement {
            directive: "include".into(),
            line: 3,
            args: arg("b"),
            includes: Some(vec![1]),
            block: None,
        };
        let secret =
            Statement { directive: "key".into(), line: 4, args: arg("k"), ..Default::default() };
        let block = Some(vec![inner, include, secret]);
        let http = Statement { directive: "http".into(), line: 1, block, ..Default::default() };
        let one = File { path: "m".into(), faults: vec![], statements: vec![http] };
        let faults = vec![Fault { message: "bad".into(), line: Some(7) }];
        let two = File { path: "b".into(), faults, statements: vec![] };
        let text = payload(&[one, two], &["key"]);
        let want = concat!(
            r#"{"status":"failed","errors":[{"file":"b","error":"bad","line":7}],"#,
            r#""config":[{"file":"m","status":"ok","errors":[],"#,
            r#""parsed":[{"directive":"http","line":1,"args":[],"block":[{"directive":"a","#,
            r#""line":2,"args":["x\"y"]},{"directive":"include","line":3,"args":["b"],"#,
            r#""includes":[1]},{"directive":"key","line":4,"args":["***"]}]}]},{"file":"b","#,
            r#""status":"failed","errors":[{"error":"bad","line":7}],"parsed":[]}]}"#,
        );
        assert_eq!(text.trim_end(), want);
    }
}
