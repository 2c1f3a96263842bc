//! `cargo xtask site`: the documentation as pages of HTML, with the table of contents beside each,
//! and a page for each directive.

mod examples;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use crate::Findings;
use crate::workspace::Workspace;
use examples::Example;

/// The table of contents, which orders the pages.
const CONTENTS: &str = "docs/SUMMARY.md";
/// The tables of directives, which each have a page of their own.
const TABLES: &str = "docs/directives.md";
/// The folder of example configurations.
const EXAMPLES: &str = "docs/examples/";
/// Pages outside of `docs/`.
const OTHERS: &[&str] =
    &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];

/// Files that pages lead to.
const FILES: &[&str] = &[
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "docs/processes.svg",
    "docs/request.svg",
    "packaging/weir.service",
    "packaging/weir.socket",
];

/// Wide parts (code, tables) scroll inside themselves, and the list of pages is below on phones.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1a1d21;--page:#fff;--soft:#f2f4f7;--line:#c9ced6;\
--link:#0b57d0}@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--page:#101317;\
--soft:#1b2027;--line:#3a424d;--link:#8ab4f8}}body{display:flex;margin:0;\
font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--page)}a{\
color:var(--link)}nav{flex:0 0 15em;padding:1em;border-right:1px solid var(--line)}\
nav h1,nav h2{font-size:1em;margin:1em 0 .2em}nav ul{padding-left:1em;margin:0;\
list-style:none}nav a{text-decoration:none;display:block;padding:.15em 0}main{padding:1em 2em;\
max-width:60em;min-width:0;flex:1;overflow-wrap:anywhere}pre,.wide{overflow:auto;\
overflow-wrap:normal}pre{padding:.7em;background:var(--soft);border-radius:.3em}table{\
border-collapse:collapse}td,th{border:1px solid var(--line);padding:.25em .6em;\
text-align:left;vertical-align:top}img{max-width:100%}@media(max-width:50em){body{\
flex-direction:column}main{order:-1;padding:.5em 1em}nav{flex:none;border:0;\
border-top:1px solid var(--line)}td{min-width:6em}}";

/// Writes the site to `target/site`, or to the folder named.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let out = match args {
        [] => ws.root().join("target/site"),
        [folder] => PathBuf::from(folder),
        _ => return Err(vec!["usage: cargo xtask site [FOLDER]".to_owned()]),
    };
    written(ws, &out).map_err(|e| vec![e])
}

fn written(ws: &Workspace, out: &Path) -> Result<(), String> {
    let files = ws.files()?;
    let is_page = |path: &&String| path.starts_with("docs/") && path.ends_with(".md");
    let pages = files.iter().filter(is_page).map(String::as_str);
    let contents = rendered(&ws.read(CONTENTS)?);
    fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    for path in OTHERS.iter().copied().chain(pages) {
        let text = ws.read(path)?;
        let text = if path == TABLES { reference::linked(&text) } else { text };
        put(out, &name(path), &whole(&text, &contents))?;
    }
    let confs: Vec<&str> =
        files.iter().map(String::as_str).filter(|path| path.starts_with(EXAMPLES)).collect();
    let is_conf = |path: &&&str| path.ends_with(".conf");
    let read = |path: &&str| Ok(Example::new(&name(path), &ws.read(path)?));
    let examples = confs.iter().filter(is_conf).map(read).collect::<Result<Vec<_>, String>>()?;
    for (directive, text) in reference::pages(&ws.read(TABLES)?, &examples) {
        put(out, &format!("directive-{directive}.html"), &whole(&text, &contents))?;
    }
    for path in FILES.iter().chain(&confs) {
        let file = out.join(name(path));
        fs::copy(ws.root().join(path), &file).map_err(|e| format!("{path}: {e}"))?;
    }
    println!("{}", out.join("index.html").display());
    Ok(())
}

fn put(out: &Path, name: &str, text: &str) -> Result<(), String> {
    let file = out.join(name);
    fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
}

/// The file of a page: `README.md` is the first one.
fn name(path: &str) -> String {
    let page = path.rsplit('/').next().unwrap_or(path);
    match page.strip_suffix(".md") {
        Some("README") => "index.html".to_owned(),
        Some(stem) => format!("{stem}.html"),
        None => page.to_owned(),
    }
}

fn whole(text: &str, contents: &str) -> String {
    let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("Weir");
    let title = title.replace('`', "").replace('&', "&amp;").replace('<', "&lt;");
    let body = rendered(text);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head>\n<body><nav>{contents}</nav>\n<main>{body}</main></body>\
         </html>\n"
    )
}

/// A page's text as HTML: links to other pages lead to theirs, headings have names.
fn rendered(text: &str) -> String {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let mut heading = None;
    for at in 0..events.len() {
        match &events[at] {
            Event::Start(Tag::Heading { .. }) => heading = Some((at, String::new())),
            Event::End(TagEnd::Heading(_)) => {
                if let Some((start, title)) = heading.take()
                    && let Event::Start(Tag::Heading { id, .. }) = &mut events[start]
                {
                    *id = Some(CowStr::from(slug(&title)));
                }
            }
            Event::Text(part) | Event::Code(part) => {
                if let Some((_, title)) = &mut heading {
                    title.push_str(part);
                }
            }
            _ => {}
        }
        if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) =
            &mut events[at]
        {
            *dest_url = CowStr::from(target(dest_url));
        }
    }
    let mut out = String::new();
    html::push_html(&mut out, events.into_iter());
    reachable(&out)
}

/// Makes parts that scroll reachable by the keyboard, and empty cells of headers plain ones,
/// because a header without a text says nothing to those who hear it.
fn reachable(html: &str) -> String {
    html.replace("<pre>", "<pre tabindex=\"0\">")
        .replace("<table>", "<div class=\"wide\" tabindex=\"0\"><table>")
        .replace("</table>", "</table></div>")
        .replace("<th></th>", "<td></td>")
}

/// The name of a heading, as the forges of code make it.
fn slug(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// A link of the site.
fn target(link: &str) -> String {
    if link.contains("://") || link.starts_with('#') {
        return link.to_owned();
    }
    let (path, part) = link.split_once('#').map_or((link, None), |(path, part)| (path, Some(part)));
    let part = part.map(|part| format!("#{part}")).unwrap_or_default();
    name(path) + &part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages() {
        assert_eq!(target("docs/ACME.md#directives"), "ACME.html#directives");
        assert_eq!(target("../README.md"), "index.html");
        assert_eq!(target("https://a.example/b.md"), "https://a.example/b.md");
        assert_eq!(target("#a"), "#a");
    }

    #[test]
    fn pages_are_rendered() {
        let text = "# A & `b`\n\n| | x |\n| --- | --- |\n| [C](C.md) | ![D](../docs/d.svg) |\n";
        let page = whole(&format!("{text}\n    code\n"), "<ul></ul>");
        for part in [
            "<title>A &amp; b</title>",
            "<h1 id=\"a--b\">A &amp; <code>b</code></h1>",
            "<td><a href=\"C.html\">C</a></td>",
            "<nav><ul></ul></nav>",
            "<div class=\"wide\" tabindex=\"0\"><table>",
            "<td></td><th>x</th>",
            "<img src=\"d.svg\" alt=\"D\" />",
            "<pre tabindex=\"0\"><code>code",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
