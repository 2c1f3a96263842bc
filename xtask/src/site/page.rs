//! A page: Markdown to HTML, with the pages of the site next to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// The first page of the site.
const FIRST: &str = "docs/START.md";

const STYLE: &str = include_str!("style.css");

/// A heading of a page.
struct Heading {
    level: HeadingLevel,
    title: String,
    /// The name that links give it.
    id: String,
    /// The event that begins it.
    start: usize,
}

/// A parser of the project's Markdown: with tables.
pub fn parser(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// Whether a link leads to another site.
pub fn is_foreign(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

/// The names of a page's headings, which links can have after `#`.
pub fn anchors(text: &str) -> BTreeSet<String> {
    let events: Vec<Event<'_>> = parser(text).collect();
    headings(&events).into_iter().map(|heading| heading.id).collect()
}

/// The name of the `count`th repetition of a heading, as the forges of code make it.
pub fn numbered(slug: &str, count: usize) -> String {
    if count == 0 { slug.to_owned() } else { format!("{slug}-{count}") }
}

/// The path of a link of the page `path`, from the project's root; `None` if it leaves the project.
/// An empty link is the page itself.
pub fn beside(path: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(path.to_owned());
    }
    let link = link.split('#').next().unwrap_or_default();
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(parts.pop()?),
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// The site's name of a file: all are in one folder.
pub fn file_name(path: &str) -> String {
    if path == FIRST {
        return "index.html".to_owned();
    }
    let name = path.strip_prefix("docs/").unwrap_or(path).replace('/', "-");
    match name.strip_suffix(".md") {
        Some(stem) => format!("{stem}.html"),
        None => name,
    }
}

/// The whole page at `path`: its text, and the list of pages, in which its own is marked and
/// followed by its sections.
pub fn whole(path: &str, text: &str, contents: &str) -> String {
    let events: Vec<Event<'_>> = parser(text).collect();
    let headings = headings(&events);
    let title = headings.first().map_or("Weir", |heading| &heading.title);
    let title = match title {
        "Weir" => title.to_owned(),
        other => format!("{} – Weir", escaped(other)),
    };
    let own = format!("<a href=\"{}\">", file_name(path));
    let nav = match contents.split_once(&own).and_then(|(before, after)| {
        let (name, after) = after.split_once("</a>")?;
        Some(format!(
            "{before}<a href=\"{}\" aria-current=\"page\">{name}</a>{}{after}",
            file_name(path),
            sections(&headings)
        ))
    }) {
        Some(marked) => marked,
        None => contents.to_owned(),
    };
    let body = rendered(path, text);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head>\n<body>\n\
         <header><a href=\"index.html\">Weir</a> <a href=\"#pages\">All pages</a></header>\n\
         <main>{body}</main>\n<nav id=\"pages\" aria-label=\"All pages\">{nav}</nav>\n\
         </body></html>\n"
    )
}

/// The sections of a page as a list for the navigation.
fn sections(headings: &[Heading]) -> String {
    let item = |heading: &Heading| {
        format!("<li><a href=\"#{}\">{}</a></li>", heading.id, escaped(&heading.title))
    };
    let items: String =
        headings.iter().filter(|it| it.level == HeadingLevel::H2).map(item).collect();
    if items.is_empty() { items } else { format!("<ul>{items}</ul>") }
}

/// Markdown at `path` as HTML: links to other pages lead to theirs, headings have names, and a
/// table has a box in which it scrolls where it is too wide.
pub fn rendered(path: &str, text: &str) -> String {
    let mut events: Vec<Event<'_>> = parser(text).collect();
    for heading in headings(&events) {
        if let Event::Start(Tag::Heading { id, .. }) = &mut events[heading.start] {
            *id = Some(CowStr::from(heading.id));
        }
    }
    let mut boxed = Vec::with_capacity(events.len());
    for mut event in events {
        if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = &mut event {
            *dest_url = CowStr::from(target(path, dest_url));
        }
        let is_table = matches!(event, Event::Start(Tag::Table(_)));
        let ends_table = matches!(event, Event::End(TagEnd::Table));
        if is_table {
            boxed.push(Event::Html(CowStr::from("<div class=\"table\" tabindex=\"0\">")));
        }
        boxed.push(event);
        if ends_table {
            boxed.push(Event::Html(CowStr::from("</div>\n")));
        }
    }
    let mut out = String::new();
    html::push_html(&mut out, boxed.into_iter());
    // Code scrolls, too, and the keyboard reaches parts that scroll. An empty header of a table is
    // a plain cell, because a header without a text says nothing to those who hear it.
    out.replace("<pre>", "<pre tabindex=\"0\">").replace("<th></th>", "<td></td>")
}

/// The headings among a page's events, in order.
fn headings(events: &[Event<'_>]) -> Vec<Heading> {
    let mut found: Vec<Heading> = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut open = None;
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => open = Some((at, *level, String::new())),
            Event::End(TagEnd::Heading(_)) => {
                if let Some((start, level, title)) = open.take() {
                    let slug = slug(&title);
                    let count = seen.entry(slug.clone()).or_default();
                    let id = numbered(&slug, *count);
                    *count += 1;
                    found.push(Heading { level, title, id, start });
                }
            }
            Event::Text(part) | Event::Code(part) => {
                if let Some((_, _, title)) = &mut open {
                    title.push_str(part);
                }
            }
            _ => {}
        }
    }
    found
}

/// The name of a heading, as the forges of code make it.
fn slug(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// A link of the page at `path`, as the site has it.
fn target(path: &str, link: &str) -> String {
    if is_foreign(link) || link.starts_with('#') {
        return link.to_owned();
    }
    let part = link.split_once('#').map(|(_, part)| format!("#{part}")).unwrap_or_default();
    file_name(&beside(path, link).unwrap_or_default()) + &part
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages() {
        assert_eq!(target("README.md", "docs/ACME.md#directives"), "ACME.html#directives");
        assert_eq!(target("README.md", "docs/START.md#a"), "index.html#a");
        assert_eq!(target("docs/A.md", "../README.md"), "README.html");
        assert_eq!(target("docs/A.md", "../lab/bench/README.md#a"), "lab-bench-README.html#a");
        assert_eq!(target("docs/A.md", "examples/main.conf"), "examples-main.conf");
        assert_eq!(target("docs/A.md", "https://a.example/b.md"), "https://a.example/b.md");
        assert_eq!(target("docs/A.md", "#a"), "#a");
    }

    #[test]
    fn a_page_has_the_list_with_its_own_sections() {
        let text = "# A & `b`\n\n| | x |\n| --- | --- |\n| [C](C.md) | ![D](../docs/d.svg) |\n\n\
                    ## Part <1>\n\n## Part 1\n\n    code\n";
        let list = rendered(super::super::CONTENTS, "- [C](C.md)\n- [A](A.md)\n");
        let page = whole("docs/A.md", text, &list);
        for part in [
            "<title>A &amp; b – Weir</title>",
            "<h1 id=\"a--b\">A &amp; <code>b</code></h1>",
            "<div class=\"table\" tabindex=\"0\"><table>",
            "<td></td><th>x</th>",
            "<td><a href=\"C.html\">C</a></td>",
            "<img src=\"d.svg\" alt=\"D\" />",
            "<pre tabindex=\"0\"><code>code",
            "</table>\n</div>",
            "<h2 id=\"part-1\">",
            "<h2 id=\"part-1-1\">",
            "<li><a href=\"C.html\">C</a></li>",
            "<li><a href=\"A.html\" aria-current=\"page\">A</a><ul><li><a href=\"#part-1\">",
            "<li><a href=\"#part-1-1\">Part 1</a></li></ul></li>",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }

    #[test]
    fn a_page_needs_no_other_site_and_no_script() {
        let page = whole("docs/A.md", "# A\n", "");
        assert!(!page.contains("//") && !page.contains("<script"), "{page}");
    }
}
