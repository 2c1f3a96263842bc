//! `weir migrate [FILE]`: a configuration of nginx, or the output of `nginx -T`, seen with this
//! server's eyes: directives and modules that are missing, and documented differences that concern
//! directives of this very configuration.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::ArgMatches;
use conf::parse::{Options, parse_bytes, parse_file};
use conf::{Node, Pos, foreign, known};
use server::added;
use server::directives;
use server::layout::layout;

use crate::declared::{Command, PLAIN, Run};
use crate::line;

/// The documented differences, the one list of them.
const DIFFERENCES: &str = include_str!("../../../docs/DIFFERENCES.md");
/// The exit status of a text that cannot be read.
const UNREADABLE: u8 = 2;
/// Places of a directive that are shown.
const PLACES_MAX: usize = 3;
/// Blocks with data, whose lines are no directives.
const DATA: &[&str] = &["types", "map", "geo", "geoip2", "split_clients", "charset_map", "match"];
/// The beginning of a file in the output of `nginx -T`.
const MARK: &str = "# configuration file ";

/// `weir migrate`
pub const COMMAND: Command = Command {
    name: "migrate",
    doc: "report what a move of a configuration from nginx to Weir changes",
    about: "For a move from nginx. Lists directives and modules that Weir lacks, with what to use \
            instead, and the documented differences that concern this configuration.",
    args: || {
        let doc = "A configuration file, or the output of nginx -T; - is standard input \
                   [default: the file that the server reads]";
        vec![line::file(doc)]
    },
    exit: &[
        ("0", "nothing is missing"),
        ("1", "something is missing"),
        ("2", "the text cannot be read, or the command line is wrong"),
    ],
    examples: &[("nginx -T | weir migrate -", "The configuration of the nginx on this machine.")],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let file = matches.get_one::<PathBuf>("FILE").cloned();
    let file = file.unwrap_or_else(|| PathBuf::from(layout().prefix).join(layout().conf_path));
    let used = match statements(&file) {
        Ok(used) => used,
        Err(message) => {
            eprintln!("weir migrate: {message}");
            return ExitCode::from(UNREADABLE);
        }
    };
    let report = Report::new(&used);
    match std::io::stdout().write_all(report.text(&used).as_bytes()) {
        Ok(()) if report.missing.is_empty() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The directives of a configuration, by name.
type Used = BTreeMap<String, Vec<Statement>>;

/// A directive where it stands.
struct Statement {
    at: Pos,
    /// Its first argument.
    argument: String,
}

/// Reads a configuration with its includes, or the output of `nginx -T` (`-`: from standard input).
fn statements(file: &Path) -> Result<Used, String> {
    let (mut used, names) = (Used::new(), directives::names());
    let mut text = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut text).map_err(|e| format!("standard input: {e}"))?;
    } else {
        text = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let dump = String::from_utf8_lossy(&text);
    if !dump.lines().any(|line| line.starts_with(MARK)) && file != Path::new("-") {
        let conf_prefix = file.parent().unwrap_or(Path::new("")).to_owned();
        let options = Options { conf_prefix, ..Options::default() };
        let tree = parse_file(file, &options).map_err(|e| e.to_string())?;
        add(&tree.nodes, &names, &mut used);
        return Ok(used);
    }
    let options = Options { keep_includes: true, ..Options::default() };
    for (name, part) in parts(&dump) {
        let text = Bytes::copy_from_slice(part.as_bytes());
        let tree = parse_bytes(Path::new(name), text, &options).map_err(|e| e.to_string())?;
        add(&tree.nodes, &names, &mut used);
    }
    Ok(used)
}

/// The files in the output of `nginx -T`; a text without their marks is one file.
fn parts(dump: &str) -> Vec<(&str, &str)> {
    let name = |line: &'_ str| line.trim_end().trim_end_matches(':').len();
    let mut starts: Vec<usize> = dump.match_indices(MARK).map(|(at, _)| at).collect();
    starts.retain(|&at| at == 0 || dump.as_bytes()[at - 1] == b'\n');
    if starts.is_empty() {
        return vec![("standard input", dump)];
    }
    let ends = starts.iter().skip(1).copied().chain([dump.len()]);
    let files = starts.iter().zip(ends).map(|(&start, end)| {
        let part = &dump[start + MARK.len()..end];
        let (head, text) = part.split_once('\n').unwrap_or((part, ""));
        (&head[..name(head)], text)
    });
    files.collect()
}

fn add(nodes: &[Node], names: &HashSet<&str>, used: &mut Used) {
    for node in nodes {
        let name = node.name.lossy().into_owned();
        let argument = node.args.first().map(|arg| arg.lossy().into_owned()).unwrap_or_default();
        let statement = Statement { at: node.name.pos.clone(), argument };
        // The blocks of unknown directives may hold anything: programs, say.
        let is_known = names.contains(name.as_str()) || !known::find(name.as_bytes()).is_empty();
        let has_directives = is_known && !DATA.contains(&name.as_str());
        used.entry(name).or_default().push(statement);
        if has_directives {
            add(node.children(), names, used);
        }
    }
}

/// The findings.
struct Report {
    /// Directives that are missing, with the reason.
    missing: Vec<(String, String)>,
    /// Modules that `load_module` names and that are built in.
    built_in: Vec<String>,
    /// Modules that `load_module` names, that are not built in, and of which no directive is used.
    unused: Vec<String>,
    /// Headings and texts of differences, with the directives that they concern.
    differences: Vec<(String, String, Vec<String>)>,
}

impl Report {
    fn new(used: &Used) -> Report {
        let names = directives::names();
        let mut missing = Vec::new();
        for name in used.keys().filter(|name| !names.contains(name.as_str())) {
            missing.push((name.clone(), reason(name)));
        }
        let (mut built_in, mut unused) = (Vec::new(), Vec::new());
        for statement in used.get("load_module").into_iter().flatten() {
            let file = Path::new(&statement.argument).file_name().unwrap_or_default();
            let name = file.to_string_lossy().into_owned();
            let module = foreign::of_file(&added::name_of(name.as_bytes()));
            let is_of = |directive: &String| foreign::of_directive(directive) == module;
            match module {
                _ if added::has_file(name.as_bytes()) => built_in.push(name),
                Some(module) if used.keys().any(is_of) => missing.push((name, advice(&module))),
                _ => unused.push(name),
            }
        }
        let concerns = |words: &HashSet<&str>| -> Vec<String> {
            used.keys().filter(|name| words.contains(name.as_str())).cloned().collect()
        };
        let found = differences(DIFFERENCES).into_iter().filter_map(|(heading, text)| {
            let of = concerns(&quoted(&text));
            (!of.is_empty()).then_some((heading, text, of))
        });
        Report { missing, built_in, unused, differences: found.collect() }
    }

    fn text(&self, used: &Used) -> String {
        let count: usize = used.values().map(Vec::len).sum();
        let mut out = format!("{count} directives of {} names\n", used.len());
        match self.missing.len() {
            0 => out.push_str("\nAll of them are built in.\n"),
            n => out.push_str(&format!("\n{n} missing:\n")),
        }
        for (name, reason) in &self.missing {
            out.push_str(&format!("  {name}: {reason}\n"));
            let places = used.get(name).into_iter().flatten();
            for statement in places.clone().take(PLACES_MAX) {
                out.push_str(&format!("      {}\n", statement.at));
            }
            let more = places.count().saturating_sub(PLACES_MAX);
            if more > 0 {
                out.push_str(&format!("      and {more} more\n"));
            }
        }
        if !self.built_in.is_empty() {
            let list = self.built_in.join(", ");
            out.push_str(&format!("\nload_module of these: built in: {list}\n"));
        }
        if !self.unused.is_empty() {
            let list = self.unused.join(", ");
            out.push_str(&format!("\nload_module of these: not built in, and not used: {list}\n"));
        }
        if !self.differences.is_empty() {
            out.push_str("\nDocumented differences that name directives of this configuration:\n");
        }
        for (heading, text, of) in &self.differences {
            out.push_str(&format!("\n  {heading} ({})\n", of.join(", ")));
            text.lines().for_each(|line| out.push_str(&format!("    {line}\n")));
        }
        out.push_str(
            "\nweir -t -c FILE loads it and checks values; weir explain URL shows answers.\n",
        );
        out
    }
}

fn advice(module: &foreign::Foreign) -> String {
    format!("of {}, which is not built in; {}", module.name, module.advice)
}

/// Why a directive is missing.
fn reason(name: &str) -> String {
    if let Some(module) = foreign::of_directive(name) {
        return advice(&module);
    }
    match known::find(name.as_bytes()).first() {
        Some(known) => format!("of nginx's {}, which is not built in", known.module),
        None => "unknown to nginx 1.31 and to this server".to_owned(),
    }
}

/// The entries of the list of differences: their heading, their text without marks of lists.
fn differences(text: &str) -> Vec<(String, String)> {
    let (mut heading, mut all) = ("", Vec::<(String, String)>::new());
    let mut open = false;
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            (heading, open) = (title, false);
        } else if let Some(first) = line.strip_prefix("- ") {
            all.push((heading.to_owned(), first.to_owned()));
            open = true;
        } else if let (true, Some(more)) = (open, line.strip_prefix("  ")) {
            if let Some((_, text)) = all.last_mut() {
                text.push('\n');
                text.push_str(more);
            }
        } else {
            open = false;
        }
    }
    all
}

/// The words at the beginning of what stands between backquotes.
fn quoted(text: &str) -> HashSet<&str> {
    let inside = text.split('`').skip(1).step_by(2);
    inside.filter_map(|code| code.split([' ', ';', '=']).next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_nginx_is_cut_into_its_files() {
        let dump = "# configuration file /a:\nuser x;\n\n# configuration file /b:\ngzip on;\n";
        let want = vec![("/a", "user x;\n\n"), ("/b", "gzip on;\n")];
        assert_eq!(parts(dump), want);
        assert_eq!(parts("gzip on;"), vec![("standard input", "gzip on;")]);
    }

    #[test]
    fn differences_have_their_directives() {
        let text = "## One\n\n- Of `gzip on` and\n  `ssl_ciphers`.\n\nText `root`.\n- Of `x`.\n";
        let all = differences(text);
        assert_eq!(all[0], ("One".to_owned(), "Of `gzip on` and\n`ssl_ciphers`.".to_owned()));
        assert_eq!(quoted(&all[0].1), HashSet::from(["gzip", "ssl_ciphers"]));
        assert_eq!(all.len(), 2);
        assert!(differences(DIFFERENCES).len() > 50);
    }
}
