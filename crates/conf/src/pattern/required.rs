//! Required texts of a pattern: every match contains at least one of them. For example, every match
//! of `\bfoo\.(com|net)\b` contains `foo.com` or `foo.net`, so a subject with neither need not be
//! tried. A list of patterns searches for the required texts of all its patterns in one pass.

use regex_syntax::hir::{Class, Hir, HirKind};

/// Maximum number of texts for a part of a pattern. If a part has more, a smaller part of the
/// pattern gives the texts, or none does.
const TEXTS_MAX: usize = 64;

/// A character class with more members than this has no texts.
const CLASS_MAX: usize = 16;

/// Longer texts are cut to this many bytes, which are enough to rule out most subjects.
const LENGTH_MAX: usize = 32;

/// The texts of a part of a pattern.
struct Part {
    /// All texts that the part matches, in lower case, where they are few.
    exact: Option<Vec<Vec<u8>>>,
    /// Each match contains at least one of these texts; if there are none, nothing is known.
    required: Vec<Vec<u8>>,
}

/// The texts of which a match of `hir` contains one, with ASCII letters in lower case: a subject
/// has to be searched without regard to case. Empty where there are none, or too many.
pub(super) fn required(hir: &Hir) -> Vec<Vec<u8>> {
    let part = part(hir);
    let mut best = part.required;
    offer(&mut best, part.exact.as_deref());
    shortest_only(best)
}

fn part(hir: &Hir) -> Part {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Part::of(vec![Vec::new()]),
        HirKind::Literal(text) => Part::of(vec![text.0.to_ascii_lowercase()]),
        HirKind::Class(class) => Part { exact: members(class), required: Vec::new() },
        HirKind::Capture(capture) => part(&capture.sub),
        HirKind::Repetition(repetition) => {
            let sub = part(&repetition.sub);
            match (repetition.min, repetition.max) {
                (0, Some(1)) => Part {
                    exact: sub.exact.map(|mut texts| {
                        texts.push(Vec::new());
                        texts
                    }),
                    required: Vec::new(),
                },
                (0, _) => Part { exact: None, required: Vec::new() },
                (1, Some(1)) => sub,
                _ => {
                    let mut required = sub.required;
                    offer(&mut required, sub.exact.as_deref());
                    Part { exact: None, required }
                }
            }
        }
        HirKind::Concat(parts) => concat(parts),
        HirKind::Alternation(parts) => alternation(parts),
    }
}

impl Part {
    fn of(texts: Vec<Vec<u8>>) -> Part {
        Part { exact: Some(texts), required: Vec::new() }
    }
}

/// The members of a class as texts, where they are few.
fn members(class: &Class) -> Option<Vec<Vec<u8>>> {
    let mut texts: Vec<Vec<u8>> = Vec::new();
    match class {
        Class::Bytes(class) => {
            for range in class.ranges() {
                for byte in range.start()..=range.end() {
                    add(&mut texts, vec![byte.to_ascii_lowercase()])?;
                }
            }
        }
        Class::Unicode(class) => {
            for range in class.ranges() {
                for c in range.start()..=range.end() {
                    let text = c.to_string().into_bytes();
                    add(&mut texts, text.to_ascii_lowercase())?;
                }
            }
        }
    }
    Some(texts)
}

fn add(texts: &mut Vec<Vec<u8>>, text: Vec<u8>) -> Option<()> {
    if !texts.contains(&text) {
        texts.push(text);
    }
    (texts.len() <= CLASS_MAX).then_some(())
}

fn concat(parts: &[Hir]) -> Part {
    let mut required = Vec::new();
    let mut together = vec![Vec::new()];
    let mut whole = true;
    for hir in parts {
        let part = part(hir);
        offer(&mut required, Some(&part.required));
        let Some(exact) = part.exact else {
            offer(&mut required, Some(&together));
            together = vec![Vec::new()];
            whole = false;
            continue;
        };
        if together.len() * exact.len() > TEXTS_MAX {
            offer(&mut required, Some(&together));
            together = exact;
            whole = false;
            continue;
        }
        let follow = |text: &Vec<u8>| {
            let text = text.clone();
            exact.iter().map(move |more| [&text[..], more].concat())
        };
        together = together.iter().flat_map(follow).collect();
    }
    if whole {
        return Part { exact: Some(together), required };
    }
    offer(&mut required, Some(&together));
    Part { exact: None, required }
}

fn alternation(parts: &[Hir]) -> Part {
    let (mut exact, mut required) = (Some(Vec::new()), Some(Vec::new()));
    for hir in parts {
        let part = part(hir);
        let mut best = part.required;
        offer(&mut best, part.exact.as_deref());
        gather(&mut exact, part.exact.unwrap_or_default());
        gather(&mut required, best);
    }
    Part { exact, required: required.unwrap_or_default() }
}

/// Adds the texts of one branch; a branch without any ends the gathering, as too many do.
fn gather(all: &mut Option<Vec<Vec<u8>>>, texts: Vec<Vec<u8>>) {
    let Some(list) = all else { return };
    if texts.is_empty() || list.len() + texts.len() > TEXTS_MAX {
        *all = None;
    } else {
        list.extend(texts);
    }
}

/// Takes `texts` in place of `best` where they tell more: their shortest is longer, or they are
/// fewer. Texts with an empty one among them tell nothing.
fn offer(best: &mut Vec<Vec<u8>>, texts: Option<&[Vec<u8>]>) {
    let shortest = |texts: &[Vec<u8>]| texts.iter().map(Vec::len).min().unwrap_or(0);
    let Some(texts) = texts else { return };
    let (new, old) = (shortest(texts), shortest(best));
    if new > old || new == old && new > 0 && texts.len() < best.len() {
        *best = texts.to_vec();
    }
}

/// Leaves out texts that contain another one, whose search finds them too.
fn shortest_only(mut texts: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    texts.iter_mut().for_each(|text| text.truncate(LENGTH_MAX));
    texts.sort_by_key(Vec::len);
    let mut kept: Vec<Vec<u8>> = Vec::with_capacity(texts.len());
    for text in texts {
        if !kept.iter().any(|short| memchr::memmem::find(&text, short).is_some()) {
            kept.push(text);
        }
    }
    kept
}

/// The parts of a compiled pattern, roughly: those with repetitions of repetitions may be too large
/// to compile, which has to be known when the configuration is read.
pub(super) fn weight(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(text) => text.0.len() as u64,
        HirKind::Class(Class::Bytes(class)) => class.ranges().len() as u64,
        // A range of characters is up to a few sequences of four bytes.
        HirKind::Class(Class::Unicode(class)) => class.ranges().len() as u64 * 8,
        HirKind::Capture(capture) => 2 + weight(&capture.sub),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            weight(&repetition.sub).saturating_mul(times.into()).saturating_add(1)
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(1, |sum: u64, part| sum.saturating_add(weight(part)))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pattern::Pattern;

    #[track_caller]
    fn required(pattern: &str) -> Vec<String> {
        let pattern = Pattern::new(pattern.as_bytes(), true).unwrap();
        let text = |text: &Vec<u8>| String::from_utf8_lossy(text).into_owned();
        let mut texts: Vec<_> = pattern.required().iter().map(text).collect();
        texts.sort();
        texts
    }

    #[test]
    fn the_longest_text_is_taken() {
        assert_eq!(required(r"\bFoo\.bar\b"), ["foo.bar"]);
        assert_eq!(required("^/old7/(.*)$"), ["/old7/"]);
        assert_eq!(required(r"^/p7x/(\d+)$"), ["/p7x/"]);
        assert_eq!(required(r"ab\d+abc[xy]?defg"), ["abcdefg", "abcxdefg", "abcydefg"]);
        assert_eq!(required("a[0-9a-z]{2}abc[0-9a-z]?defg"), ["defg"]);
        assert_eq!(required("(abc)+d"), ["abc"]);
        assert_eq!(required("(?:abc){2,3}"), ["abc"]);
        assert_eq!(required("é"), ["é"]);
        assert_eq!(required("(*UTF)é"), ["É", "é"]);
        let long = "x".repeat(99);
        assert_eq!(required(&long), [&long[..32]]);
    }

    #[test]
    fn branches_are_all_looked_for() {
        assert_eq!(required(r"\.(ext7|abc7)$"), [".abc7", ".ext7"]);
        assert_eq!(required("a[bc]d?e"), ["abde", "abe", "acde", "ace"]);
        assert_eq!(required("^(?:foo.*|.*bar)$"), ["bar", "foo"]);
        assert_eq!(required("ab|abc|b"), ["b"], "the shorter ones are in the longer ones");
        let four = "(?:a|b|c|d)";
        let want = ["axyz", "bxyz", "cxyz", "dxyz"];
        assert_eq!(required(&format!("{four}{four}{four}{four}xyz")), want, "as many as fit");
    }

    #[test]
    fn what_may_match_without_a_text_has_none() {
        for pattern in ["", "^$", "a*", "a?", "[^a]", "a|.*", "foo|", "(foo)*", "(?!a)bc"] {
            assert_eq!(required(pattern), [""; 0], "{pattern}");
        }
    }
}
