//! Regular expressions that match more than they should; they are read as text.

use super::cx::{Cx, Part, named, parts};
use super::{Entry, Found, Severity, change, entry};
use crate::edit::Change;
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "origin-regex",
        Severity::Warning,
        "a check of Origin or Referer also matches other sites",
        origin,
    ),
    entry(
        "unanchored-extension",
        Severity::Warning,
        "an expression for file extensions lacks its final $",
        unanchored,
    ),
    entry(
        "unescaped-dot",
        Severity::Note,
        "the dot before a file extension is not escaped",
        unescaped_dot,
    ),
];

/// Whether a variable has what percent-encoding stood for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded {
    /// No, or nothing with line breaks.
    No,
    Path,
    /// It is a group of an expression over the path.
    Group,
}

/// Looks for where the variable at this directive comes from.
pub fn decoded(cx: &Cx<'_>, n: &Node, name: &[u8]) -> Decoded {
    origin_of(cx, n, name, 3)
}

fn origin_of(cx: &Cx<'_>, n: &Node, name: &[u8], depth: u8) -> Decoded {
    if matches!(name, b"uri" | b"document_uri") {
        return Decoded::Path;
    }
    let is_number = name.iter().all(u8::is_ascii_digit);
    // Groups of rewrite's own expression, else of the nearest one around.
    let own = (n.name == *"rewrite").then(|| n.args.first()).flatten();
    if own.is_some() && is_number {
        // nginx escapes them again, where they were.
        return Decoded::No;
    }
    let set = cx.values_set_around(name);
    if let (false, Some(depth)) = (set.is_empty(), depth.checked_sub(1)) {
        let inner = set.iter().flat_map(|value| parts(value.bytes()));
        return inner
            .filter_map(|part| match part {
                Part::Variable(inner) if inner != name => Some(origin_of(cx, n, inner, depth)),
                _ => None,
            })
            .find(|decoded| *decoded != Decoded::No)
            .unwrap_or(Decoded::No);
    }
    let around = cx.outward().filter_map(path_pattern);
    for pattern in own.into_iter().chain(around) {
        if let Some(group) = group(pattern.bytes(), name) {
            return if takes_line_feed(group) { Decoded::Group } else { Decoded::No };
        }
        if is_number {
            break;
        }
    }
    Decoded::No
}

/// The expression of a block that is matched with the decoded path.
fn path_pattern(block: &Node) -> Option<&Word> {
    let arg = |at: usize| block.args.get(at);
    match block.name.bytes() {
        b"location" if matches!(arg(0)?.bytes(), b"~" | b"~*") => arg(1),
        b"location" if arg(0)?.bytes().starts_with(b"~") => arg(0),
        b"if" if matches!(arg(0)?.bytes(), b"($uri" | b"($document_uri") => arg(2),
        _ => None,
    }
}

/// The inside of a group, by its number or name.
fn group<'p>(pattern: &'p [u8], name: &[u8]) -> Option<&'p [u8]> {
    let wanted: Option<usize> = std::str::from_utf8(name).ok()?.parse().ok();
    let (mut number, mut at) = (0, 0);
    let mut open: Vec<Option<usize>> = Vec::new();
    while at < pattern.len() {
        match pattern[at] {
            b'\\' => at += 1,
            b'[' => at = class_end(pattern, at),
            b'(' => {
                let inside = &pattern[at + 1..];
                let label = label(inside);
                let captures = !inside.starts_with(b"?") || label.is_some();
                number += usize::from(captures);
                let hit = captures && (wanted == Some(number) || label == Some(name));
                open.push(hit.then_some(at + 1));
            }
            b')' => {
                if let Some(Some(start)) = open.pop() {
                    return pattern.get(start..at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The name of a group that begins so: `?<name>`, `?P<name>`.
fn label(inside: &[u8]) -> Option<&[u8]> {
    let rest = inside.strip_prefix(b"?P<").or_else(|| inside.strip_prefix(b"?<"))?;
    let end = rest.iter().position(|&b| b == b'>')?;
    let name = &rest[..end];
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    (!name.is_empty() && name.iter().all(is_name)).then_some(name)
}

/// The place of the bracket that ends a class.
fn class_end(pattern: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    if pattern.get(at) == Some(&b'^') {
        at += 1;
    }
    if pattern.get(at) == Some(&b']') {
        at += 1;
    }
    while at < pattern.len() && pattern[at] != b']' {
        at += if pattern[at] == b'\\' { 2 } else { 1 };
    }
    at
}

/// Whether text that matches may have a line feed in it: a dot stands for none.
fn takes_line_feed(pattern: &[u8]) -> bool {
    let mut at = 0;
    while at < pattern.len() {
        match pattern[at] {
            b'\\' => {
                if matches!(pattern.get(at + 1), Some(b's' | b'W' | b'D' | b'n' | b'r' | b'R')) {
                    return true;
                }
                at += 1;
            }
            b'[' => {
                let end = class_end(pattern, at).min(pattern.len());
                let class = &pattern[at + 1..end];
                if (class.first() == Some(&b'^')) != names_line_feed(class) {
                    return true;
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    false
}

/// Whether the members of a class, as they are written, have a line feed among them.
fn names_line_feed(class: &[u8]) -> bool {
    let mut at = 0;
    while at < class.len() {
        if class[at] == b'\\' {
            if matches!(class.get(at + 1), Some(b's' | b'W' | b'D' | b'n' | b'R' | b'v')) {
                return true;
            }
            at += 1;
        }
        at += 1;
    }
    has(class, b"\\x0a") || has(class, b"[:space:") || has(class, b"[:cntrl:")
}

/// Whether the part stands in the text, in any case.
fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

fn origin(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let variable = n.args.first().map_or(&b""[..], Word::bytes);
    let is_origin = variable == b"($http_origin";
    if n.name != *"if" || !(is_origin || variable == b"($http_referer") {
        return;
    }
    let operator = n.args.get(1).map_or(&b""[..], Word::bytes);
    let Some(pattern) = n.args.get(2).filter(|_| operator.contains(&b'~')) else { return };
    if !operator.starts_with(b"!") && refuses(n) {
        // A list of sites that are kept out: the more it matches, the better.
        return;
    }
    // The parenthesis of `if` is a part of the last word, where nothing is quoted.
    let text = match pattern.quoted {
        true => pattern.bytes(),
        false => pattern.bytes().strip_suffix(b")").unwrap_or(pattern.bytes()),
    };
    let mut faults = Vec::new();
    for branch in branches(text) {
        if !branch.starts_with(b"^") {
            faults.push("it can match anywhere (start it with \"^\")");
        }
        if !host_ends(branch) {
            faults.push("a longer host matches, too (end it with \"$\" or \"/\")");
        }
    }
    if bare_dot(text) {
        faults.push("its dot matches any character (write \"\\.\")");
    }
    if has(host_part(text), b".*") {
        faults.push("its \".*\" matches any host and path");
    }
    faults.dedup();
    if !faults.is_empty() {
        let faults = faults.join(", ");
        found.add(pattern, format_args!("this expression also matches other sites: {faults}"));
    }
}

/// Whether a block answers with an error.
fn refuses(block: &Node) -> bool {
    named(block.children(), "return").any(|answer| {
        let status = answer.args.first().map_or(&b""[..], Word::bytes);
        matches!(status, [b'4' | b'5', b'0'..=b'9', b'0'..=b'9'])
    })
}

/// The alternatives of an expression, those in groups apart.
fn branches(pattern: &[u8]) -> Vec<&[u8]> {
    let (mut all, mut depth, mut start, mut at) = (Vec::new(), 0u32, 0, 0);
    while at < pattern.len() {
        match pattern[at] {
            b'\\' => at += 1,
            b'[' => at = class_end(pattern, at),
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => {
                all.push(&pattern[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    all.push(&pattern[start.min(pattern.len())..]);
    all
}

/// The text behind the scheme.
fn behind_scheme(pattern: &[u8]) -> &[u8] {
    for scheme in [&b":\\/\\/"[..], b"://"] {
        if let Some(at) = pattern.windows(scheme.len()).position(|w| w == scheme) {
            return &pattern[at + scheme.len()..];
        }
    }
    pattern
}

/// The part of an expression that the host is compared with: up to the slash behind it.
fn host_part(pattern: &[u8]) -> &[u8] {
    let rest = behind_scheme(pattern);
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'/' => break,
            b'\\' if rest.get(at + 1) == Some(&b'/') => break,
            b'\\' => at += 1,
            b'[' => at = class_end(rest, at),
            _ => {}
        }
        at += 1;
    }
    &rest[..at.min(rest.len())]
}

/// Whether the host is followed by a slash, or by the end.
fn host_ends(branch: &[u8]) -> bool {
    let rest = behind_scheme(branch);
    host_part(branch).len() < rest.len()
        || rest.ends_with(b"$")
        || has(rest, b"|$)")
        || has(rest, b"($|")
}

/// Whether the group of a location around can hold no dot, colon or slash, as far as its text
/// tells.
pub(crate) fn is_narrow_group(cx: &Cx<'_>, name: &[u8]) -> bool {
    let group = cx.outward().filter_map(path_pattern).find_map(|p| group(p.bytes(), name));
    group.is_some_and(|group| {
        let inside = group.strip_prefix(b"?").and_then(|g| g.split(|&b| b == b'>').nth(1));
        let text = inside.unwrap_or(group);
        !text.iter().any(|b| b".:/^".contains(b))
            && !["\\S", "\\W", "\\D"]
                .iter()
                .any(|wide| text.windows(2).any(|window| window == wide.as_bytes()))
    })
}

/// Whether an expression of a location around has a group of that name.
pub fn is_group(cx: &Cx<'_>, name: &[u8]) -> bool {
    cx.outward().filter_map(path_pattern).any(|p| group(p.bytes(), name).is_some())
}

/// A dot between letters, which stands for any character.
fn bare_dot(pattern: &[u8]) -> bool {
    let letter = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    (1..pattern.len())
        .any(|at| pattern[at] == b'.' && letter(pattern.get(at - 1)) && letter(pattern.get(at + 1)))
}

/// The expression of a location.
fn of_location(n: &Node) -> Option<&Word> {
    path_pattern(n).filter(|_| n.name == *"location")
}

/// Whether the text is `php` or `(a|b|c)` and nothing more: an extension without its end.
fn is_extension(text: &[u8]) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"|()?:".contains(b);
    !text.is_empty() && text.iter().all(plain) && text.iter().any(u8::is_ascii_alphabetic)
}

fn unanchored(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(pattern) = of_location(n) else { return };
    let text = pattern.bytes();
    let Some(dot) = text.windows(2).rposition(|w| w == b"\\.") else { return };
    let extension = &text[dot + 2..];
    // `/\.git` and `/\.ht` are hidden files, and take all below them.
    let is_hidden = dot > 0 && matches!(text[dot - 1], b'/' | b'^');
    let passes = n.children().iter().any(|child| child.name.bytes().ends_with(b"_pass"));
    if is_extension(extension) && !is_hidden && passes {
        let shown = String::from_utf8_lossy(extension);
        found.add(
            pattern,
            format_args!("\"\\.{shown}\" also matches in the middle of a path: end it with \"$\""),
        );
    }
}

fn unescaped_dot(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(pattern) = of_location(n) else { return };
    let text = pattern.bytes();
    let Some(before_end) = text.strip_suffix(b"$") else { return };
    let Some(dot) = before_end.iter().rposition(|&b| b == b'.') else { return };
    let escaped = dot > 0 && matches!(text[dot - 1], b'\\' | b'[');
    if !escaped && is_extension(&before_end[dot + 1..]) {
        let shown = String::from_utf8_lossy(&text[dot..]);
        // With quotes or backslashes the text of the file differs from that of the word.
        let plain = !pattern.quoted && !text.contains(&b'\\');
        let fixed = [&text[..dot], b"\\", &text[dot..]].concat();
        let fix = match String::from_utf8(fixed) {
            Ok(fixed) if plain => change(pattern, Change::Replace(fixed)),
            _ => Vec::new(),
        };
        found.add_with(
            pattern,
            fix,
            format_args!("the dot of \"{shown}\" matches any character: write \"\\.\""),
        );
    }
}

/// Whether the location's expression is one for PHP's files.
pub(crate) fn is_for_php(n: &Node) -> bool {
    of_location(n).is_some_and(|pattern| has(pattern.bytes(), b"php"))
        && named(n.children(), "fastcgi_pass").next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_what_they_take() {
        let of = |pattern: &'static str, name: &str| {
            group(pattern.as_bytes(), name.as_bytes()).map(|g| String::from_utf8_lossy(g))
        };
        assert_eq!(of("^/(a)(b(c))(?:d)(?<n>e)", "3").as_deref(), Some("c"));
        assert_eq!(of("^/(a)(b(c))(?:d)(?<n>e)", "4").as_deref(), Some("?<n>e"));
        assert_eq!(of("(?P<n>[)(])", "n").as_deref(), Some("?P<n>[)(]"));
        assert_eq!(of(r"\((a)", "1").as_deref(), Some("a"));
        assert_eq!(of("(a)", "2"), None);
        for (pattern, takes) in [
            ("[^/]*", true),
            (".*", false),
            ("[a-z]+", false),
            (r"\s", true),
            (r"[^/\s]+", false),
            (r"[^\n]", false),
            (r"[\s/]", true),
            (r"\w+", false),
            (r"[^\W]", false),
            (r"[\d-]+", false),
            (r"[\w-]+", false),
            (r"[\w\d.-]+", false),
            (r"[\\n]", false),
            (r"[^\w-]+", true),
            (r"[^\d]+", true),
            (r"[\D-]", true),
            (r"[^\D]", false),
            (r"[[:space:]]", true),
            (r"[a\x0A]", true),
        ] {
            assert_eq!(takes_line_feed(pattern.as_bytes()), takes, "{pattern}");
        }
    }
}
