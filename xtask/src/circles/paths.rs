//! The paths in a file's code that begin at the crate's root: `crate::a::b`, `super::a` where it
//! climbs that far, and each branch of `use crate::{a, b::{c, d}}`.
//!
//! A reader of tokens, no compiler: it knows nothing of types, and needs no more than the first
//! names of a path.

use std::ops::Range;

use crate::rust_source::{Source, is_name_byte};

/// One path, cut off behind the names that decide which module it leads to.
#[derive(Debug, PartialEq)]
pub struct Named {
    /// The modules that surround the path, from the root: those of the file, then inline ones.
    pub within: Vec<String>,
    /// The path from the root: `["a", "b"]` for `crate::a::b`. `*` and `self` stay as they are.
    pub path: Vec<String>,
    /// The line, from 1.
    pub line: usize,
}

/// Every path of the file that is absolute within the crate. `file` is the file's own module.
/// In the root's file the paths of `use` count as well, which begin with a module's name there.
pub fn named(source: &Source, file: &[String]) -> Vec<Named> {
    let inline = inline_modules(source);
    let mut found = Vec::new();
    let mut add = |at: usize, start: Vec<String>, tree: usize| {
        let within = within(file, &inline, at);
        let mut paths = Vec::new();
        branches(source.code.as_bytes(), tree, start, &mut paths);
        let named = paths.into_iter().map(|(path, from)| Named {
            within: within.clone(),
            path,
            line: source.line_of(from),
        });
        found.extend(named);
    };
    let code = source.code.as_bytes();
    for at in source.words("crate").filter(|&at| !source.in_tests(at)) {
        // `pub(in crate::a)` says who may see an item, and uses nothing.
        let visibility = source.code[..at].trim_end().ends_with("(in");
        if let Some(tree) = separator(code, at + 5).filter(|_| !visibility) {
            add(at, Vec::new(), tree);
        }
    }
    for at in source.words("super").filter(|&at| !source.in_tests(at)) {
        // `super::super::a` is one path, read at its first word.
        if source.code[..at].trim_end().ends_with("super::") {
            continue;
        }
        let mut start = within(file, &inline, at);
        let (mut end, mut climbs) = (at + 5, 1);
        while let Some(next) = separator(code, end).filter(|&n| word(code, n) == "super") {
            (end, climbs) = (next + 5, climbs + 1);
        }
        start.truncate(start.len().saturating_sub(climbs));
        if let Some(tree) = separator(code, end) {
            add(at, start, tree);
        }
    }
    for at in source.words("use").filter(|&at| !source.in_tests(at)) {
        let tree = skip_space(code, at + 3);
        let first = word(code, tree);
        if within(file, &inline, at).is_empty() && !matches!(first, "crate" | "super") {
            add(at, Vec::new(), tree);
        }
    }
    found
}

/// The names and bodies of `mod name { … }` in the file.
fn inline_modules(source: &Source) -> Vec<(String, Range<usize>)> {
    let code = source.code.as_bytes();
    let mut found = Vec::new();
    for at in source.words("mod") {
        let name = word(code, skip_space(code, at + 3));
        if !name.is_empty()
            && let Some(body) = source.item_body(at)
        {
            found.push((name.to_string(), body));
        }
    }
    found
}

fn within(file: &[String], inline: &[(String, Range<usize>)], at: usize) -> Vec<String> {
    let around = inline.iter().filter(|(_, body)| body.contains(&at));
    file.iter().cloned().chain(around.map(|(name, _)| name.clone())).collect()
}

/// Walks a tree of `use` from `at`, and gives each branch with the place where it begins.
fn branches(code: &[u8], at: usize, start: Vec<String>, found: &mut Vec<(Vec<String>, usize)>) {
    let mut path = start;
    let mut here = skip_space(code, at);
    let begins = here;
    loop {
        match code.get(here) {
            Some(b'{') => {
                for branch in group(code, here) {
                    branches(code, branch, path.clone(), found);
                }
                return;
            }
            Some(b'*') => path.push("*".to_string()),
            _ => {
                let name = word(code, here);
                if name.is_empty() {
                    return;
                }
                // The root's `use self::a` and `use crate::{self}` begin where they are.
                if name != "self" && name != "crate" {
                    path.push(name.to_string());
                }
                if let Some(next) = separator(code, here + name.len()) {
                    here = next;
                    continue;
                }
            }
        }
        found.push((path, begins));
        return;
    }
}

/// Where each branch of the group that opens at `open` begins.
fn group(code: &[u8], open: usize) -> Vec<usize> {
    let (mut found, mut depth) = (vec![open + 1], 0usize);
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 1 => found.push(at + 1),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Where the path goes on behind `::`, if it does.
fn separator(code: &[u8], at: usize) -> Option<usize> {
    let at = skip_space(code, at);
    code[at..].starts_with(b"::").then(|| skip_space(code, at + 2))
}

fn skip_space(code: &[u8], at: usize) -> usize {
    at + code[at..].iter().take_while(|b| b.is_ascii_whitespace()).count()
}

fn word(code: &[u8], at: usize) -> &str {
    let len = code[at..].iter().take_while(|&&b| is_name_byte(b)).count();
    std::str::from_utf8(&code[at..at + len]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Source, named};

    fn paths(file: &[&str], text: &str) -> Vec<String> {
        let file: Vec<String> = file.iter().map(|s| s.to_string()).collect();
        let found = named(&Source::new(text), &file);
        found.into_iter().map(|n| format!("{}:{}", n.line, n.path.join("::"))).collect()
    }

    #[test]
    fn groups_are_opened() {
        let text = "use crate::{a, b::{c,\n d::*}, e as f};\nfn g() -> crate::h::I { x }\n";
        assert_eq!(paths(&["m"], text), ["1:a", "1:b::c", "2:b::d::*", "2:e", "3:h::I"]);
    }

    #[test]
    fn super_climbs_from_where_it_stands() {
        let text = "use super::a;\nuse super::super::b::C;\nmod inner { use super::super::d; }\n";
        assert_eq!(paths(&["m", "n"], text), ["1:m::a", "2:b::C", "3:m::d"]);
    }

    #[test]
    fn visibility_comments_texts_and_tests_use_nothing() {
        let text = "/// [`crate::a`]\npub(in crate::b) fn f() { \"crate::c\"; }\n\
                    pub(crate) struct S;\n#[cfg(test)]\nuse crate::d;\n\
                    #[cfg(test)]\nmod tests { use crate::e; use super::super::f; }\n";
        assert!(paths(&["m"], text).is_empty());
    }

    #[test]
    fn the_root_uses_modules_by_their_names() {
        let text = "mod a;\npub use a::{B, c::D};\npub mod m { pub use crate::e::F; use g::H; }\n";
        assert_eq!(paths(&[], text), ["3:e::F", "2:a::B", "2:a::c::D"]);
    }
}
