//! Links of the documentation: each leads to a page, a heading or a file of the project, and each
//! page of `docs/` stands in the table of contents.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, Tag};

use super::page;
use super::{CONTENTS, Page};
use crate::workspace::Workspace;

/// A link of a page.
struct Link {
    /// The line that it begins in.
    line: usize,
    /// The target as written, `../README.md#try-it`.
    target: String,
}

/// The files that pages link to, apart from pages; or the broken links, as `file:line: reason`.
pub fn check(ws: &Workspace, pages: &[Page]) -> Result<BTreeSet<String>, Vec<String>> {
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|page| (page.path.as_str(), page::anchors(&page.text))).collect();
    let mut findings = Vec::new();
    let mut files = BTreeSet::new();
    for page in pages {
        for link in links(&page.text) {
            let (path, part) = match link.target.split_once('#') {
                Some((path, part)) => (path, Some(part)),
                None => (link.target.as_str(), None),
            };
            let reason = match page::beside(&page.path, path) {
                None => Some(format!("{path} is outside of the project")),
                Some(file) => match anchors.get(file.as_str()) {
                    Some(names) => part
                        .filter(|part| !names.contains(*part))
                        .map(|part| format!("{file} has no heading #{part}")),
                    None if ws.root().join(&file).is_file() => {
                        files.insert(file);
                        None
                    }
                    None if ws.root().join(&file).is_dir() => {
                        Some(format!("{file} is a folder: link to a file of it"))
                    }
                    None => Some(format!("there is no file {file}")),
                },
            };
            findings.extend(reason.map(|why| format!("{}:{}: {why}", page.path, link.line)));
        }
    }
    findings.extend(unlisted(pages));
    if findings.is_empty() { Ok(files) } else { Err(findings) }
}

/// The pages of `docs/` that the table of contents does not list.
fn unlisted(pages: &[Page]) -> Vec<String> {
    let contents = pages.iter().find(|page| page.path == CONTENTS);
    let listed: BTreeSet<String> = contents
        .iter()
        .flat_map(|page| links(&page.text))
        .filter_map(|link| page::beside(CONTENTS, &link.target))
        .collect();
    let is_missing = |page: &&Page| {
        page.path.starts_with("docs/")
            && page.path != CONTENTS
            && !page.made
            && !listed.contains(&page.path)
    };
    let missing = pages.iter().filter(is_missing);
    missing.map(|page| format!("{}:1: the page is not in {CONTENTS}", page.path)).collect()
}

/// The links and images of a page, apart from those to other sites.
fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (event, range) in page::parser(text).into_offset_iter() {
        let target = match &event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => dest_url,
            _ => continue,
        };
        if !page::is_foreign(target) {
            let line = text[..range.start].matches('\n').count() + 1;
            found.push(Link { line, target: target.to_string() });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(pages: &[(&str, &str)]) -> Result<BTreeSet<String>, Vec<String>> {
        let page = |(path, text): &(&str, &str)| Page::new(path, text);
        check(&Workspace::here(), &pages.iter().map(page).collect::<Vec<_>>())
    }

    fn findings(pages: &[(&str, &str)]) -> Vec<String> {
        checked(pages).expect_err("no finding")
    }

    #[test]
    fn a_link_to_a_missing_file_is_found_with_its_line() {
        let text = "# A\n\nOne [b](B.md) and\n[c](docs/C.md),\n![d](d.svg)\n";
        assert_eq!(
            findings(&[("A.md", text), ("B.md", "# B\n")]),
            ["A.md:4: there is no file docs/C.md", "A.md:5: there is no file d.svg"]
        );
    }

    #[test]
    fn a_link_to_a_missing_heading_is_found() {
        let text = "# A\n\n[here](#part-two-1), [there](../B.md#b), [no](../B.md#c), [no](#d)\n\n\
                    ## Part `two`\n\n## Part two\n";
        let contents = (CONTENTS, "- [A](A.md)\n");
        assert_eq!(
            findings(&[("docs/A.md", text), ("B.md", "# B\n\n`#c`\n"), contents]),
            ["docs/A.md:3: B.md has no heading #c", "docs/A.md:3: docs/A.md has no heading #d"]
        );
    }

    #[test]
    fn a_link_to_a_place_outside_is_found() {
        let text = "# A\n\n[a](../../other/B.md), [b](/etc/hosts)\n";
        assert_eq!(
            findings(&[("docs/A.md", text), (CONTENTS, "[A](A.md)\n")]),
            [
                "docs/A.md:3: ../../other/B.md is outside of the project",
                "docs/A.md:3: /etc/hosts is outside of the project"
            ]
        );
    }

    #[test]
    fn a_link_to_a_folder_is_found() {
        assert_eq!(
            findings(&[("A.md", "[a](docs)\n")]),
            ["A.md:1: docs is a folder: link to a file of it"]
        );
    }

    #[test]
    fn a_page_that_the_contents_do_not_list_is_found() {
        let pages = [("docs/A.md", "# A\n"), ("docs/B.md", "# B\n"), ("C.md", "# C\n")];
        let contents = (CONTENTS, "- [A](A.md#a)\n- B.md\n");
        let all = [&pages[..], &[contents]].concat();
        assert_eq!(findings(&all)[0], format!("docs/B.md:1: the page is not in {CONTENTS}"));
    }

    #[test]
    fn code_and_other_sites_are_no_links_and_files_are_returned() {
        let text = "`[a](b)`, [x](https://a.example/b), [m](mailto:a@b.example)\n\n    [c](d)\n\n\
                    [licence](LICENSE-MIT)\n";
        assert_eq!(checked(&[("A.md", text)]), Ok(BTreeSet::from(["LICENSE-MIT".to_owned()])));
    }
}
