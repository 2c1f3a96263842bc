//! `weir migrate [FILE]`: a report on a configuration of nginx, or on the output of `nginx -T`, by
//! risk: what Weir refuses, documented differences that concern directives of this configuration,
//! what is better written otherwise, and directives for sign-in by known scripts. `--fix` writes
//! the changes that are certain.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::ArgMatches;
use conf::edit::{Change, Edit};
use conf::parse::{Options, parse_bytes, parse_file};
use conf::{Node, Pos, Tree, foreign, known, lint};
use server::added;
use server::directives;
use server::layout::layout;

use crate::declared::{Command, PLAIN, Run};
use crate::error::Error;
use crate::rewrite::Changed;
use crate::sign_in::{self, Written};
use crate::{fixes, line};

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
pub(crate) const COMMAND: Command = Command {
    name: "migrate",
    doc: "report what a move of a configuration from nginx to Weir changes",
    about: "For a move from nginx. Lists directives and modules that Weir lacks, with what to use \
            instead, the documented differences that concern this configuration, what is \
            better written otherwise, and directives for sign-in by scripts. --fix writes the \
            changes that are certain.",
    args: || {
        let doc = "A configuration file, or the output of nginx -T; - is standard input \
                   [default: the file that the server reads]";
        vec![
            line::file(doc),
            line::option("fix", "Write the changes that are certain, if the result loads"),
            line::option("dry-run", "With --fix: print the changes as a diff, write nothing")
                .requires("fix"),
        ]
    },
    exit: &[
        ("0", "nothing is refused"),
        ("1", "something is refused"),
        (
            "2",
            "the text cannot be read; with --fix: the result would not load, or a file cannot be \
             written; or the command line is wrong",
        ),
    ],
    examples: &[
        ("nginx -T | weir migrate -", "The configuration of the nginx on this machine."),
        ("weir migrate nginx.conf --fix --dry-run", "The changes that --fix would write."),
    ],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let file = matches.get_one::<PathBuf>("FILE").cloned();
    let file = file.unwrap_or_else(|| PathBuf::from(layout().prefix).join(layout().conf_path));
    let mut out = String::new();
    let dry = matches.get_flag("dry-run");
    let done = match matches.get_flag("fix") {
        true => fix(&file, dry).map(|text| out = text),
        false => Ok(()),
    };
    let used = match done.and_then(|()| statements(&file)) {
        Ok(used) => used,
        Err(error) => return error.report("migrate", UNREADABLE),
    };
    let Found { used, better, sign_in } = used;
    let report = Report { sign_in, ..Report::new(&used, better) };
    if !dry {
        out.push_str(&report.text(&used));
    }
    match std::io::stdout().write_all(out.as_bytes()) {
        Ok(()) if report.refused.is_empty() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// `--fix`: returns the differences, or the names of the files that were written.
fn fix(file: &Path, dry: bool) -> Result<String, Error> {
    if file == Path::new("-") {
        return Err(Error::usage("--fix needs a file, not standard input"));
    }
    let (changed, _) =
        fixes::fix(file, |tree| native(tree).into_iter().flat_map(|f| f.fix).collect())?;
    if !changed.is_empty() {
        fixes::test(file, &changed).map_err(fixes::unloadable)?;
    }
    if dry {
        return Ok(changed.iter().map(Changed::diff).collect());
    }
    fixes::write(&changed)?;
    Ok(changed.iter().map(|one| format!("fixed {}\n", one.path.display())).collect())
}

/// Rules of `weir lint` whose findings matter for a move.
const RULES: &[&str] = &["tls-protocols", "listen-http2", "removed-directive", "error-log-off"];

/// A form that Weir has a better one for.
struct Better {
    at: Pos,
    text: String,
    fix: Vec<Edit>,
    /// Weir refuses the old form.
    is_refused: bool,
}

/// The directives that are better written otherwise, with the changes where they are certain.
fn native(tree: &Tree) -> Vec<Better> {
    let found = lint::check(tree, false, None).into_iter();
    let mut all: Vec<Better> = found
        .filter(|finding| RULES.contains(&finding.rule.id))
        .map(|f| {
            let is_refused = f.rule.id == "removed-directive";
            Better { at: f.pos, text: f.message, fix: f.fix, is_refused }
        })
        .collect();
    each(&tree.nodes, &mut |node| all.extend(of_module(node, tree)));
    all
}

fn each<'n>(nodes: &'n [Node], look: &mut dyn FnMut(&'n Node)) {
    for node in nodes {
        look(node);
        if !DATA.contains(&&*node.name.lossy()) {
            each(node.children(), look);
        }
    }
}

/// The native form of a directive of another project's module, where it means the same.
fn of_module(node: &Node, tree: &Tree) -> Option<Better> {
    let at = node.name.pos.clone();
    let change = |change| vec![Edit::new(&node.name, change)];
    let better = |text: &str, fix| {
        Some(Better { at: at.clone(), text: text.to_owned(), fix, is_refused: true })
    };
    let name = node.name.lossy();
    match (&*name, &node.args[..]) {
        ("consistent_hash", [key]) => {
            let mut fix = change(Change::Replace("hash".to_owned()));
            fix.push(Edit::new(key, Change::AddWord("consistent".to_owned())));
            better("write \"hash KEY consistent\"", fix)
        }
        ("load_module", [file]) => {
            let name = added::name_of(file.bytes());
            let module = foreign::of_file(&name);
            let mut is_used = false;
            each(&tree.nodes, &mut |other| {
                is_used |= module.is_some() && foreign::of_directive(&other.name.lossy()) == module;
            });
            let goes = added::has_file(file.bytes()) || !is_used;
            let fix = if goes { change(Change::RemoveStatement) } else { Vec::new() };
            // The report has its own lines of these.
            better("", fix)
        }
        (name, _) if name.starts_with("ssl_dyn_rec_") => {
            better("leave it out", change(Change::RemoveStatement))
        }
        _ => None,
    }
}

/// What is better written otherwise, as lines of the report.
fn better(tree: &Tree) -> Vec<(Pos, String)> {
    let found = native(tree).into_iter().filter(|f| !f.is_refused && !f.text.is_empty());
    found.map(|f| (f.at, f.text)).collect()
}

/// The directives of a configuration, by name.
type Used = BTreeMap<String, Vec<Statement>>;

/// A directive where it stands.
struct Statement {
    at: Pos,
    /// Its first argument.
    argument: String,
}

/// What a configuration contains.
#[derive(Default)]
struct Found {
    used: Used,
    /// What is better written otherwise.
    better: Vec<(Pos, String)>,
    /// Sign-in by scripts.
    sign_in: Vec<Written>,
}

/// Reads a configuration with its includes, or the output of `nginx -T` (`-`: from standard input).
fn statements(file: &Path) -> Result<Found, Error> {
    let (mut found, names) = (Found::default(), directives::names());
    let mut text = Vec::new();
    if file == Path::new("-") {
        std::io::stdin()
            .read_to_end(&mut text)
            .map_err(|e| Error::usage(format!("standard input: {e}")))?;
    } else {
        text = std::fs::read(file).map_err(Error::file(&file))?;
    }
    let dump = String::from_utf8_lossy(&text);
    if !dump.lines().any(|line| line.starts_with(MARK)) && file != Path::new("-") {
        let conf_prefix = file.parent().unwrap_or(Path::new("")).to_owned();
        let options = Options { conf_prefix, ..Options::default() };
        let tree = parse_file(file, &options)?;
        add(&tree.nodes, &names, &mut found.used);
        return Ok(Found { better: better(&tree), sign_in: sign_in::written(&tree), ..found });
    }
    let options = Options { keep_includes: true, ..Options::default() };
    for (name, part) in parts(&dump) {
        let text = Bytes::copy_from_slice(part.as_bytes());
        let tree = parse_bytes(Path::new(name), text, &options)?;
        add(&tree.nodes, &names, &mut found.used);
        found.better.extend(better(&tree));
        found.sign_in.extend(sign_in::written(&tree));
    }
    Ok(found)
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

/// The findings, by risk.
struct Report {
    /// What Weir refuses, with the reason.
    refused: Vec<(String, String)>,
    /// What behaves differently: headings and texts of differences, with the directives that they
    /// concern.
    differs: Vec<(String, String, Vec<String>)>,
    /// What works and is better written otherwise, with places.
    better: Vec<(Pos, String)>,
    /// Sign-in by scripts, with the directives for it.
    sign_in: Vec<Written>,
    /// Directives that need nothing.
    same: usize,
}

impl Report {
    fn new(used: &Used, better: Vec<(Pos, String)>) -> Report {
        let names = directives::names();
        let mut refused = Vec::new();
        for name in used.keys().filter(|name| !names.contains(name.as_str())) {
            refused.push((name.clone(), reason(name)));
        }
        let mut better = better;
        for statement in used.get("load_module").into_iter().flatten() {
            let file = Path::new(&statement.argument).file_name().unwrap_or_default();
            let name = file.to_string_lossy().into_owned();
            let module = foreign::of_file(&added::name_of(name.as_bytes()));
            let is_of = |directive: &String| foreign::of_directive(directive) == module;
            let at = statement.at.clone();
            match module {
                _ if added::has_file(name.as_bytes()) => {
                    better.push((at, format!("{name} is built in: remove load_module")));
                }
                Some(module) if used.keys().any(is_of) => refused.push((name, advice(&module))),
                _ => better.push((
                    at,
                    format!("{name} is not built in, and no directive of it is used: remove it"),
                )),
            }
        }
        let concerns = |words: &HashSet<&str>| -> Vec<String> {
            used.keys().filter(|name| words.contains(name.as_str())).cloned().collect()
        };
        let found = differences(DIFFERENCES).into_iter().filter_map(|(heading, text)| {
            let of = concerns(&quoted(&text));
            (!of.is_empty()).then_some((heading, text, of))
        });
        let differs: Vec<_> = found.collect();
        let is_named = |name: &String| {
            refused.iter().any(|(of, _)| of == name)
                || differs.iter().any(|(.., of)| of.contains(name))
        };
        let same = used.iter().filter(|(name, _)| !is_named(name)).map(|(_, all)| all.len()).sum();
        Report { refused, differs, better, sign_in: Vec::new(), same }
    }

    fn text(&self, used: &Used) -> String {
        let count: usize = used.values().map(Vec::len).sum();
        let mut out = format!("{count} directives of {} names\n", used.len());
        if self.refused.is_empty() {
            out.push_str("\nNothing is refused: all directives are built in.\n");
        } else {
            out.push_str(&format!("\nRefused: {}\n", self.refused.len()));
        }
        for (name, reason) in &self.refused {
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
        if !self.differs.is_empty() {
            let count = self.differs.len();
            out.push_str(&format!(
                "\nBehaves differently: {count} documented differences name directives of this \
                 configuration\n"
            ));
        }
        for (heading, text, of) in &self.differs {
            out.push_str(&format!("\n  {heading} ({})\n", of.join(", ")));
            text.lines().for_each(|line| out.push_str(&format!("    {line}\n")));
        }
        if !self.better.is_empty() {
            let count = self.better.len();
            out.push_str(&format!("\nWorks, and is better written otherwise: {count}\n"));
        }
        for (at, text) in &self.better {
            out.push_str(&format!("  {at}: {text}\n"));
        }
        if !self.sign_in.is_empty() {
            let count = self.sign_in.len();
            out.push_str(&format!("\nSign-in by a script, which directives do here: {count}\n"));
        }
        for Written { at, of, text } in &self.sign_in {
            out.push_str(&format!("  {at}: {of}\n"));
            text.lines().for_each(|line| out.push_str(&format!("    {line}\n")));
        }
        out.push_str(&format!("\nNothing to do: {} directives\n", self.same));
        out.push_str(
            "\nweir migrate --fix writes the changes that are certain; weir -t -c FILE loads the \
             file and checks values; weir explain URL shows answers.\n",
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
