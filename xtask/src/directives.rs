//! `docs/directives.md`, made from the binary's own tables, beside nginx's.
//!
//! The binary prints its tables (`weir dump-directives`); `crates/conf/src/known.tsv` holds
//! nginx's. A directive with fewer contexts or argument counts than nginx's is a finding: such a
//! file would not load here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::workspace::Workspace;
use crate::{Findings, run};

const PAGE: &str = "docs/directives.md";
const FACTS: &str = "crates/conf/src/known.tsv";
const FOREIGN_FACTS: &str = "crates/conf/src/foreign.tsv";

/// Modules of nginx that only other operating systems or languages have a use for.
const FOREIGN: &[&str] = &[
    "ngx_devpoll_module",
    "ngx_eventport_module",
    "ngx_http_degradation_module",
    "ngx_http_perl_module",
    "ngx_iocp_module",
    "ngx_kqueue_module",
];

/// Places from the outside in, as the page lists them.
const CONTEXTS: &[&str] = &[
    "any",
    "main",
    "events",
    "http",
    "server",
    "if-in-server",
    "location",
    "if-in-location",
    "limit_except",
    "upstream",
    "acme_issuer",
    "otel_exporter",
    "oidc_provider",
    "stream",
    "stream-server",
    "stream-upstream",
    "mail",
    "mail-server",
];

/// A directive of either side.
struct Directive<'a> {
    name: &'a str,
    module: &'a str,
    contexts: BTreeSet<&'a str>,
    args: &'a str,
    default: &'a str,
    doc: &'a str,
}

impl Directive<'_> {
    fn meets(&self, other: &Self) -> bool {
        let any = |d: &Self| d.contexts.contains("any");
        self.name == other.name
            && (any(self) || any(other) || !self.contexts.is_disjoint(&other.contexts))
    }

    fn is_block(&self) -> bool {
        self.args.starts_with("block")
    }

    /// Whether it takes `count` arguments; a flag takes one.
    fn takes(&self, count: usize) -> bool {
        let counts = self.args.trim_start_matches("block").trim();
        // `0 1` and `0 1,2` are two spellings of one directive in different places.
        counts.split([',', ' ']).any(|one| match one {
            "on|off" => count == 1,
            _ => match one.strip_suffix('+') {
                Some(least) => least.parse().is_ok_and(|least: usize| count >= least),
                None => one.parse().is_ok_and(|exactly: usize| count == exactly),
            },
        })
    }
}

/// Writes the page, or with `--check` compares it.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let one = |e: String| vec![e];
    let build = ["run", "--quiet", "--bin", "weir", "--", "dump-directives"];
    let dump = run::output(ws, "cargo", &build).map_err(one)?;
    let facts = ws.read(FACTS).map_err(one)?;
    let ours = parse_dump(&dump)?;
    let theirs = parse_facts(&facts);
    let findings = narrower(&ours, &theirs);
    let foreign = ws.read(FOREIGN_FACTS).map_err(one)?;
    let text = page(&ours, &theirs) + &elsewhere(&foreign);
    if args.iter().any(|a| a == "--check") {
        if ws.read(PAGE).unwrap_or_default() != text {
            return Err(vec![format!("{PAGE} is stale: cargo xtask directives")]);
        }
    } else {
        ws.write(PAGE, &text).map_err(one)?;
        println!("{}", coverage(&ours, &theirs));
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn parse_dump(dump: &str) -> Result<Vec<Directive<'_>>, Vec<String>> {
    let parse = |line| parse_line(line).ok_or_else(|| vec![format!("not six fields: {line:?}")]);
    dump.lines().map(parse).collect()
}

fn parse_line(line: &str) -> Option<Directive<'_>> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, contexts, args, default, doc, module] = *fields.as_slice() else { return None };
    Some(Directive { name, module, contexts: contexts.split(' ').collect(), args, default, doc })
}

fn parse_facts(facts: &str) -> Vec<Directive<'_>> {
    facts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let (module, name) = (fields.next()?, fields.next()?);
            let (contexts, args) = (fields.next()?.split(' ').collect(), fields.next()?);
            Some(Directive { name, module, contexts, args, default: "", doc: "" })
        })
        .filter(|known| !FOREIGN.contains(&known.module))
        .collect()
}

/// Forms that nginx takes and ours refuses.
fn narrower(ours: &[Directive<'_>], theirs: &[Directive<'_>]) -> Vec<String> {
    let mut findings = Vec::new();
    for theirs in theirs {
        let same: Vec<_> = ours.iter().filter(|ours| ours.meets(theirs)).collect();
        if same.is_empty() {
            continue;
        }
        let name = theirs.name;
        for context in &theirs.contexts {
            let here: Vec<_> = same
                .iter()
                .filter(|d| d.contexts.contains(context) || d.contexts.contains("any"))
                .collect();
            if here.is_empty() {
                findings.push(format!("{name}: nginx takes it in {context}"));
                continue;
            }
            // Several spellings of nginx's differ by place; only a plain one can be compared.
            let plain = !theirs.args.contains(' ') || theirs.is_block();
            let refused =
                |&count: &usize| theirs.takes(count) && !here.iter().any(|d| d.takes(count));
            if let Some(count) = (0..=8).find(|count| plain && refused(count)) {
                findings.push(format!("{name}: nginx takes {count} argument(s) in {context}"));
            }
        }
    }
    findings.dedup();
    findings
}

fn coverage(ours: &[Directive<'_>], theirs: &[Directive<'_>]) -> String {
    let built_in = theirs.iter().filter(|t| ours.iter().any(|o| o.meets(t))).count();
    format!("{built_in} of nginx 1.31's {} directives are built in", theirs.len())
}

fn page(ours: &[Directive<'_>], theirs: &[Directive<'_>]) -> String {
    let mut modules: BTreeMap<&str, Vec<&Directive<'_>>> = BTreeMap::new();
    for directive in ours {
        modules.entry(directive.module).or_default().push(directive);
    }
    let mut text = format!(
        "# Directives\n\n\
         Made by `cargo xtask directives` from the tables in the binary; do not edit.\n\n\
         {}.\n",
        coverage(ours, theirs)
    );
    for (module, mut directives) in modules {
        directives.sort_by_key(|d| d.name);
        let _ = write!(
            text,
            "\n## {module}\n\n| directive | arguments | default | contexts | what it does |\n\
             | --- | --- | --- | --- | --- |\n"
        );
        for d in directives {
            let contexts: Vec<&str> =
                CONTEXTS.iter().copied().filter(|c| d.contexts.contains(c)).collect();
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} |",
                d.name,
                cell(d.args),
                if d.default.is_empty() { String::new() } else { format!("`{}`", cell(d.default)) },
                contexts.join(", "),
                cell(d.doc)
            );
        }
    }
    text.push_str(&missing(ours, theirs));
    text
}

/// Directives of nginx that weir lacks, by nginx's module.
fn missing(ours: &[Directive<'_>], theirs: &[Directive<'_>]) -> String {
    let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for known in theirs.iter().filter(|t| !ours.iter().any(|o| o.meets(t))) {
        modules.entry(known.module).or_default().push(known.name);
    }
    if modules.is_empty() {
        return String::new();
    }
    let mut text = "\n## Not built in yet\n\n\
                    Names that nginx 1.31 knows; a file that uses one is refused with a message \
                    that says so.\n\n"
        .to_string();
    for (module, names) in modules {
        let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        let _ = writeln!(text, "- {module}: {}", names.join(", "));
    }
    text
}

/// Directives of other projects' modules, with what to use instead.
fn elsewhere(facts: &str) -> String {
    let mut text = "\n## Of other modules\n\n\
                    Directives that are not nginx's; a file that uses one is refused with a \
                    message that names the module and what to use instead.\n\n\
                    | module | directives | instead |\n| --- | --- | --- |\n"
        .to_string();
    for line in facts.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, _, directives, advice] = *fields.as_slice() else { continue };
        let directives: Vec<String> = directives.split(' ').map(|d| format!("`{d}`")).collect();
        let _ = writeln!(text, "| {} | {} | {} |", cell(name), directives.join(", "), cell(advice));
    }
    text
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::{coverage, elsewhere, missing, narrower, page, parse_dump, parse_facts};

    const FACTS: &str = "core\troot\thttp server location if-in-location\t1\n\
                         core\tgzip\thttp\ton|off\nother\tlisten\tserver\t1+\n\
                         stream\tlisten\tstream-server\t1+\nngx_kqueue_module\tk\tevents\t1\n";

    #[test]
    fn what_is_missing_is_told_by_place() {
        let (ours, theirs) =
            (parse_dump("listen\tserver\t1+\t*:80\tSets.\tcore").unwrap(), parse_facts(FACTS));
        assert_eq!(coverage(&ours, &theirs), "1 of nginx 1.31's 4 directives are built in");
        let text = missing(&ours, &theirs);
        assert!(text.contains("- core: `root`, `gzip`\n- stream: `listen`\n"), "{text}");
    }

    #[test]
    fn what_is_narrower_is_found() {
        let theirs = parse_facts(FACTS);
        let findings = |dump: &str| narrower(&parse_dump(dump).unwrap(), &theirs);
        assert_eq!(findings("root\thttp server location\t1\t\tX.\tcore").len(), 1);
        assert_eq!(findings("gzip\thttp\t1,2\t\tX.\tcore").len(), 0);
        assert_eq!(findings("listen\tserver\t1,2\t\tX.\tcore").len(), 1);
    }

    #[test]
    fn bars_do_not_break_the_table() {
        let ours = parse_dump("gzip\thttp\ton|off\ton\tA | b.\tgzip").unwrap();
        let text = page(&ours, &parse_facts(FACTS));
        assert!(text.contains("| `gzip` | on\\|off | `on` | http | A \\| b. |"), "{text}");
    }

    #[test]
    fn other_modules_are_listed() {
        let text = elsewhere("a\tfile\tx x_*\tuse y | z\nodd\n");
        assert!(text.ends_with("| --- |\n| a | `x`, `x_*` | use y \\| z |\n"), "{text}");
    }

    #[test]
    fn a_bad_dump_is_named() {
        assert!(parse_dump("gzip\thttp").is_err());
    }
}
