//! `cargo xtask site`: checks the links of the documentation, and writes it as pages of HTML, with
//! the table of contents next to each, and a page for each directive.

mod examples;
mod links;
mod page;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};

use crate::Findings;
use crate::workspace::Workspace;
use examples::Example;

/// The table of contents, which orders the pages.
const CONTENTS: &str = "docs/SUMMARY.md";
/// The tables of directives, which each have a page of their own.
const TABLES: &str = "docs/directives.md";
/// The folder of example configurations.
const EXAMPLES: &str = "docs/examples/";

/// A page of the site.
pub struct Page {
    /// Its file, from the project's root.
    path: String,
    /// Its Markdown.
    text: String,
    /// Made from the tables: there is no such file.
    made: bool,
}

impl Page {
    fn new(path: &str, text: &str) -> Page {
        Page { path: path.to_owned(), text: text.to_owned(), made: false }
    }
}

/// Writes the site to `target/site`, or to the folder named, if all links are right.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let out = match args {
        [] => ws.root().join("target/site"),
        [folder] => PathBuf::from(folder),
        _ => return Err(vec!["usage: cargo xtask site [FOLDER]".to_owned()]),
    };
    let pages = pages(ws).map_err(|e| vec![e])?;
    let files = links::check(ws, &pages)?;
    write(ws, &out, &pages, files.iter().map(String::as_str)).map_err(|e| vec![e])
}

/// Every page of the project, and the page of each directive.
fn pages(ws: &Workspace) -> Result<Vec<Page>, String> {
    let files = ws.files()?;
    let mut pages = Vec::new();
    for path in files.iter().filter(|path| path.ends_with(".md")) {
        let text = ws.read(path)?;
        let text = if path == TABLES { reference::linked(&text) } else { text };
        pages.push(Page::new(path, &text));
    }
    let is_example = |path: &&String| path.starts_with(EXAMPLES) && path.ends_with(".conf");
    let read = |path: &String| {
        let name = path.strip_prefix(EXAMPLES).unwrap_or(path);
        Ok(Example::new(name, &ws.read(path)?))
    };
    let examples = files.iter().filter(is_example).map(read).collect::<Result<Vec<_>, String>>()?;
    for (directive, text) in reference::pages(&ws.read(TABLES)?, &examples) {
        pages.push(Page { path: format!("docs/directive-{directive}.md"), text, made: true });
    }
    Ok(pages)
}

/// Writes the pages and the files that they link to.
fn write<'a>(
    ws: &Workspace,
    out: &Path,
    pages: &[Page],
    files: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    let contents = page::rendered(CONTENTS, &ws.read(CONTENTS)?);
    fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    for Page { path, text, .. } in pages {
        let file = out.join(page::file_name(path));
        fs::write(&file, page::whole(path, text, &contents))
            .map_err(|e| format!("{}: {e}", file.display()))?;
    }
    for path in files {
        let file = out.join(page::file_name(path));
        fs::copy(ws.root().join(path), &file).map_err(|e| format!("{path}: {e}"))?;
    }
    println!("{}", out.join("index.html").display());
    Ok(())
}
