//! h2spec against every real server: in the clear and over TLS, for a small page, one of 270 KB and
//! one that is passed on; with its strict cases, too.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{Scratch, setup};
use crate::Outcome;
use crate::helper::Helper;
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, free_port, new_folder};
use crate::tls::Certificate;

const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec@latest";
const PAGES: [&str; 3] = ["/1k.txt", "/270k.bin", "/passed/1k"];

/// A run's figures.
struct Run {
    tls: bool,
    page: &'static str,
    strict: bool,
    /// Tests, and those that passed, were left out and failed.
    counts: [u32; 4],
    failed: Vec<String>,
}

/// Runs it; fails when a test fails on weir.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let program = installed()?;
    let certificate = Certificate::new(false)?;
    let port = free_port()?;
    let arguments = [port.to_string()];
    let backend = Helper::start(1, &options.floor, &arguments, port, new_folder()?)?;
    let names = ["server", "over", "page", "cases", "tests", "passed", "left out", "failed"];
    let mut rows = vec![row(names)];
    let mut notes = Vec::new();
    let mut wrong = false;
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        let runs = all(options, kind, &program, &certificate, backend.port)?;
        let mut failed: BTreeMap<&str, usize> = BTreeMap::new();
        for run in &runs {
            let [tests, passed, skipped, failures] = run.counts.map(|n| n.to_string());
            let over = if run.tls { "TLS" } else { "TCP" };
            let cases = if run.strict { "strict" } else { "usual" };
            rows.push(row([
                kind.name(),
                over,
                run.page,
                cases,
                &tests,
                &passed,
                &skipped,
                &failures,
            ]));
            run.failed.iter().for_each(|name| *failed.entry(name).or_default() += 1);
            wrong |= kind != Kind::Nginx && run.counts[3] > 0;
        }
        for (name, times) in failed {
            notes.push(format!("{}, {times} of {} runs: {name}", kind.name(), runs.len()));
        }
    }
    report::table(&rows);
    notes.iter().for_each(|note| println!("{note}"));
    if wrong { Err("not all tests pass".to_string()) } else { Ok(()) }
}

/// The program, built by Go's own command where it is not there yet.
fn installed() -> Outcome<PathBuf> {
    let folder = env::temp_dir().join("weir-bench-h2spec");
    let program = folder.join("h2spec");
    if program.exists() {
        return Ok(program);
    }
    let usual = Path::new("/usr/local/go/bin/go");
    let go = if usual.exists() { usual } else { Path::new("go") };
    println!("building h2spec: go install {PACKAGE}");
    let output = Command::new(go).args(["install", PACKAGE]).env("GOBIN", &folder).output();
    let output = output.map_err(|e| format!("no Go (Debian: apt-get install golang): {e}"))?;
    match output.status.success() {
        true => Ok(program),
        false => Err(format!("go install: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// All runs against a server, at once: they wait most of the time.
fn all(
    options: &Options,
    kind: Kind,
    program: &Path,
    certificate: &Certificate,
    backend: u16,
) -> Outcome<Vec<Run>> {
    let (setup, ports) = setup(kind, certificate, backend)?;
    let (server, _) = Server::start(options, kind, &setup)?;
    let page = server.root().join("270k.bin");
    fs::write(&page, vec![b'x'; 270 << 10]).map_err(|e| format!("{}: {e}", page.display()))?;
    let scratch = Scratch(new_folder()?);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (n, page) in PAGES.iter().enumerate() {
            for (tls, strict) in [(false, false), (false, true), (true, false), (true, true)] {
                let port = if tls { ports.tls } else { ports.clear };
                let report = scratch.0.join(format!("{n}-{tls}-{strict}.xml"));
                running.push(scope.spawn(move || one(program, port, tls, page, strict, &report)));
            }
        }
        let ended = running.into_iter().map(|run| run.join().map_err(|_| "a thread panicked"));
        ended.map(|run| run?).collect()
    })
}

fn one(
    program: &Path,
    port: u16,
    tls: bool,
    page: &'static str,
    strict: bool,
    report: &Path,
) -> Outcome<Run> {
    let mut command = Command::new(program);
    command.args(["-p", &port.to_string(), "-P", page]).arg("-j").arg(report);
    if tls {
        command.args(["-t", "-k"]);
    }
    if strict {
        command.arg("-S");
    }
    let Output { stdout, stderr, .. } = command.output().map_err(|e| format!("h2spec: {e}"))?;
    let (text, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    let counts = counts(&text).ok_or_else(|| format!("h2spec on {page}: {text}{errors}"))?;
    let failed = failures(&fs::read_to_string(report).unwrap_or_default());
    Ok(Run { tls, page, strict, counts, failed })
}

/// The last line: `146 tests, 119 passed, 0 skipped, 27 failed`.
fn counts(text: &str) -> Option<[u32; 4]> {
    let line = text.lines().rev().find(|line| line.contains(" tests, "))?;
    let mut numbers = line.split(", ").map(|part| part.split(' ').next()?.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??, numbers.next()??])
}

/// The cases with a failure in a report in JUnit's form, with their sections.
fn failures(report: &str) -> Vec<String> {
    let cases = report.split("<testcase ").skip(1);
    let failed = cases.filter(|case| {
        let (case, _) = case.split_once("</testcase>").unwrap_or((case, ""));
        case.contains("<failure") || case.contains("<error")
    });
    let attribute = |case: &str, name: &str| {
        let (_, rest) = case.split_once(&format!("{name}=\""))?;
        let (value, _) = rest.split_once('"')?;
        Some(value.replace("&#34;", "\"").replace("&quot;", "\"").replace("&amp;", "&"))
    };
    failed
        .filter_map(|case| {
            Some(format!("{}: {}", attribute(case, "package")?, attribute(case, "classname")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{counts, failures};

    #[test]
    fn totals_and_failures_are_read() {
        let text = "Finished in 2.1 seconds\n146 tests, 119 passed, 1 skipped, 26 failed\n";
        assert_eq!(counts(text), Some([146, 119, 1, 26]));
        assert_eq!(counts("Error: dial"), None);
        let report = r#"<testsuite name="a" failures="1">
            <testcase package="http2/6.1" classname="Sends a" time="0.1"></testcase>
            <testcase package="http2/8.1" classname="Sends &#34;b&#34;" time="2"><failure>x
            </failure></testcase></testsuite>"#;
        assert_eq!(failures(report), ["http2/8.1: Sends \"b\""]);
    }
}
