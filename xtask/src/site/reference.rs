//! A page for each directive, from the tables of `docs/directives.md` and the examples.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::examples::{Example, Excerpt};

/// The example that is shown where no other has a directive.
const LAST: &str = "obsolete.conf";

/// A row of the tables.
struct Entry<'a> {
    module: &'a str,
    name: &'a str,
    arguments: String,
    default: String,
    contexts: Vec<String>,
    doc: String,
}

/// The pages of all directives as Markdown, by name.
pub fn pages(tables: &str, examples: &[Example]) -> BTreeMap<String, String> {
    let entries = entries(tables);
    let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut names: BTreeMap<&str, Vec<&Entry<'_>>> = BTreeMap::new();
    for entry in &entries {
        modules.entry(entry.module).or_default().push(entry.name);
        names.entry(entry.name).or_default().push(entry);
    }
    let page = |(name, entries): (&str, Vec<&Entry<'_>>)| {
        let mut text = format!("# `{name}`\n");
        for entry in &entries {
            let of_module = modules.get(entry.module).map_or(&[][..], Vec::as_slice);
            text.push_str(&section(entry, entries.len() > 1, of_module, examples));
        }
        text.push_str("\n[All directives](directives.md)\n");
        (name.to_owned(), text)
    };
    names.into_iter().map(page).collect()
}

/// The tables with links to the pages. Each row has an anchor: `directive-gzip`, and
/// `directive-gzip-1` for the second row of that name.
pub fn linked(tables: &str) -> String {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut text = String::new();
    for line in tables.lines() {
        if let Some(name) = row_name(line) {
            let count = seen.entry(name).or_default();
            let anchor = super::page::numbered(&format!("directive-{name}"), *count);
            *count += 1;
            let rest = &line[name.len() + 4..];
            let _ = write!(text, "| <a id=\"{anchor}\"></a>[`{name}`](directive-{name}.md){rest}");
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

/// The directive that a row of a table is about.
fn row_name(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split_once("` |").map(|(name, _)| name)
}

fn entries(tables: &str) -> Vec<Entry<'_>> {
    let mut module = "";
    let mut all = Vec::new();
    for line in tables.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            module = title;
        }
        let Some(name) = row_name(line) else { continue };
        // A bar inside of a cell is written `\|`.
        let line = line.replace("\\|", "\0");
        let cell = |n| line.split('|').nth(n).unwrap_or_default().trim().replace('\0', "|");
        let contexts = cell(4).split(", ").map(str::to_owned).collect();
        let (arguments, default, doc) = (cell(2), cell(3), cell(5));
        all.push(Entry { module, name, arguments, default, contexts, doc });
    }
    all
}

fn section(entry: &Entry<'_>, titled: bool, of_module: &[&str], examples: &[Example]) -> String {
    let Entry { module, arguments, default, contexts, doc, .. } = entry;
    let contexts = contexts.join(", ");
    let mut text = String::new();
    if titled {
        let _ = write!(text, "\n## In {contexts}\n");
    }
    let arguments = told(arguments);
    let _ = write!(
        text,
        "\n{doc}\n\n| module | arguments | default | contexts |\n| --- | --- | --- | --- |\n\
         | [{module}](directives.md#{module}) | {arguments} | {} | {contexts} |\n",
        default.replace('|', "\\|")
    );
    let contexts: Vec<&str> = entry.contexts.iter().map(String::as_str).collect();
    let parts = examples.iter().filter_map(|example| {
        let part = example.excerpt(entry.name, &contexts)?;
        Some((example, part))
    });
    // The example that is most about the module; of several, the first.
    let fits = |(example, part): &(&Example, Excerpt)| {
        (example.name != LAST, part.is_whole, example.count(of_module))
    };
    let best = parts.rev().max_by_key(fits);
    if let Some((Example { name, .. }, Excerpt { text: part, .. })) = best {
        let _ = write!(text, "\n```nginx\n{part}```\n\nFrom [{name}](examples/{name}).\n");
    }
    text
}

/// The number of arguments in words.
fn told(arguments: &str) -> String {
    let (counts, block) = match arguments.strip_prefix("block ") {
        Some(counts) => (counts, true),
        None => (arguments, false),
    };
    let counts = match counts.strip_suffix('+') {
        _ if counts == "on|off" => "`on` or `off`".to_owned(),
        Some(least) => format!("{least} or more"),
        None if counts == "0" => "none".to_owned(),
        None => match counts.rsplit_once(',') {
            Some((first, last)) => format!("{} or {last}", first.replace(',', ", ")),
            None => counts.to_owned(),
        },
    };
    if block { format!("{counts}, and a block") } else { counts }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "# Directives\n\n## gzip\n\n\
        | directive | arguments | default | contexts | what it does |\n\
        | --- | --- | --- | --- | --- |\n\
        | `gzip` | on\\|off | `off` | http, server | A \\| b. |\n\
        | `gzip_types` | 1+ | `a` | http | C. |\n\n\
        ## of\n\n| `gzip` | block 0,1 |  | stream | D. |\n";

    #[test]
    fn a_directive_of_two_modules_has_one_page() {
        let example = |name, text| Example::new(name, text);
        let examples = [
            example("a.conf", "http {\n    gzip off;\n}\n"),
            example("obsolete.conf", "http {\n    gzip off;\n    gzip on;\n    gzip_types x;\n}\n"),
            example("b.conf", "http {\n    gzip on;\n    gzip_types x;\n}\n"),
        ];
        let pages = pages(TABLES, &examples);
        assert_eq!(pages.len(), 2);
        let page = &pages["gzip"];
        for part in [
            "# `gzip`\n\n## In http, server\n\nA | b.\n",
            "| [gzip](directives.md#gzip) | `on` or `off` | `off` | http, server |\n",
            "```nginx\nhttp {\n    gzip on;\n    gzip_types x;\n}\n```\n\nFrom [b.conf]",
            "## In stream\n\nD.\n",
            "| 0 or 1, and a block |  | stream |\n",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(pages["gzip_types"].starts_with("# `gzip_types`\n\nC.\n"));
    }

    #[test]
    fn tables_lead_to_pages() {
        let text = linked(TABLES);
        for part in [
            "\n| <a id=\"directive-gzip_types\"></a>[`gzip_types`](directive-gzip_types.md) | 1+ |",
            "<a id=\"directive-gzip\"></a>[`gzip`](directive-gzip.md) | on",
            "<a id=\"directive-gzip-1\"></a>[`gzip`](directive-gzip.md) | block",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(text.matches("](").count(), 3);
    }
}
