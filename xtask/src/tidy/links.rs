//! Links of the documentation: each leads to a file, and each page stands in the table of contents.

use std::path::{Component, Path, PathBuf};

use crate::workspace::Workspace;

const CONTENTS: &str = "docs/SUMMARY.md";

/// Checks the pages among the texts.
pub fn check(ws: &Workspace, texts: &[(String, String)]) -> Vec<String> {
    let mut findings = Vec::new();
    let contents = texts.iter().find(|(path, _)| path == CONTENTS).map(|(_, text)| text.as_str());
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (number, line) in text.lines().enumerate() {
            for target in targets(line) {
                let file = beside(path, target);
                if !ws.root().join(&file).exists() {
                    let number = number + 1;
                    findings.push(format!("{path}:{number}: nothing is at {}", file.display()));
                }
            }
        }
        let page = path.strip_prefix("docs/").filter(|_| path != CONTENTS);
        if let (Some(page), Some(contents)) = (page, contents)
            && !contents.contains(&format!("({page})"))
        {
            findings.push(format!("{path}: the page is not in {CONTENTS}"));
        }
    }
    findings
}

/// The files that a line links to: `](FILE)`, `](FILE#PART)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links
        .map(|link| link.split('#').next().unwrap_or_default())
        .filter(|link| !link.is_empty() && !link.contains("://") && !link.starts_with("mailto:"))
}

/// A path relative to the folder of a file, without `..`.
fn beside(path: &str, link: &str) -> PathBuf {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let mut whole = PathBuf::new();
    for part in folder.join(link).components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            part => whole.push(part),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_line() {
        let of = |line: &'static str| targets(line).collect::<Vec<_>>();
        assert_eq!(of("see [A](A.md), [B](../B.md#part) and [c](#d)"), ["A.md", "../B.md"]);
        assert_eq!(of("[x](https://a.example/b) a](b"), ["b"]);
        assert_eq!(beside("docs/A.md", "../B.md"), Path::new("B.md"));
        assert_eq!(beside("README.md", "docs/A.md"), Path::new("docs/A.md"));
    }
}
