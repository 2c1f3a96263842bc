//! Locations that no request reaches.

use super::cx::{Cx, named};
use super::{Entry, Found, Severity, entry, locations};
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[entry(
    "unreachable-location",
    Severity::Warning,
    "another location takes all requests of this one",
    unreachable,
)];

/// A location, and how it matches.
struct Taken<'a> {
    name: &'a Word,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Exact,
    Prefix,
    /// `^~`: regular expressions are not tried.
    Final,
    /// `~`, and `~*` if it is true.
    Regex(bool),
}

fn taken(location: &Node) -> Option<Taken<'_>> {
    let taken = |name, kind| Some(Taken { name, kind });
    match (&location.args[..], location.args.first()?.bytes()) {
        ([_, name], b"=") => taken(name, Kind::Exact),
        ([_, name], b"~") => taken(name, Kind::Regex(false)),
        ([_, name], b"~*") => taken(name, Kind::Regex(true)),
        ([_, _], b"^~") => taken(locations::prefix(location)?, Kind::Final),
        _ => taken(locations::prefix(location)?, Kind::Prefix),
    }
}

fn unreachable(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"server" && n.name != *"location" {
        return;
    }
    let all: Vec<Taken<'_>> = named(n.children(), "location").filter_map(taken).collect();
    for (at, later) in all.iter().enumerate() {
        let (before, place) = (&all[..at], |other: &Taken<'_>| other.name.pos.clone());
        let name = later.name.lossy();
        if let Some(same) = before.iter().find(|earlier| is_same(earlier, later)) {
            let place = place(same);
            found.add(
                later.name,
                format_args!("\"{name}\" is already defined at {place}: remove one of the two"),
            );
        } else if let Some(wide) = before.iter().find(|earlier| holds(earlier, later)) {
            let (wide, place) = (wide.name.lossy(), place(wide));
            found.add(
                later.name,
                format_args!(
                    "\"{wide}\" at {place} matches everything that \"{name}\" matches and is tried \
                     first: put \"{name}\" before it"
                ),
            );
        } else if let Some(last) = all.iter().find(|other| hides(other, later, &all)) {
            let (last, place) = (last.name.lossy(), place(last));
            found.add(
                later.name,
                format_args!(
                    "\"^~ {last}\" at {place} skips regular expressions, so \"{name}\" is never \
                     tried: move this location into that one"
                ),
            );
        }
    }
}

fn is_same(a: &Taken<'_>, b: &Taken<'_>) -> bool {
    let kind = |kind| if kind == Kind::Final { Kind::Prefix } else { kind };
    kind(a.kind) == kind(b.kind) && a.name.bytes() == b.name.bytes()
}

/// Whether text with an expression's first part has the part as it stands.
fn is_literal(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || b"/_-".contains(b))
}

/// Whether the text has no alternatives at its outermost level: none at all, to be sure.
fn is_one(text: &[u8]) -> bool {
    !text.contains(&b'|')
}

/// Whether what follows a literal lets its last character be absent.
fn is_optional(rest: &[u8]) -> bool {
    matches!(rest.first(), Some(b'?' | b'*' | b'{'))
}

/// Whether an expression that stands before another takes all that the other would.
fn holds(earlier: &Taken<'_>, later: &Taken<'_>) -> bool {
    let (Kind::Regex(any_case), Kind::Regex(later_any)) = (earlier.kind, later.kind) else {
        return false;
    };
    let (wide, text) = (earlier.name.bytes(), later.name.bytes());
    if !is_one(text) || later_any && !any_case {
        return false;
    }
    match wide.strip_prefix(b"^") {
        Some(start) => {
            let rest = text.strip_prefix(b"^").and_then(|text| text.strip_prefix(start));
            is_literal(start) && rest.is_some_and(|rest| !is_optional(rest))
        }
        None => is_literal(wide) && has_outside(text, wide),
    }
}

/// Whether a literal is a part of an expression, outside of groups and classes, which may be
/// optional.
fn has_outside(text: &[u8], literal: &[u8]) -> bool {
    let end = text.iter().position(|b| b"([\\".contains(b)).unwrap_or(text.len());
    let plain = &text[..end];
    plain
        .windows(literal.len())
        .position(|window| window == literal)
        .is_some_and(|at| !is_optional(&text[at + literal.len()..]))
}

/// Whether a prefix with `^~` keeps every path of an expression from it.
fn hides(last: &Taken<'_>, regex: &Taken<'_>, all: &[Taken<'_>]) -> bool {
    if last.kind != Kind::Final || !matches!(regex.kind, Kind::Regex(false)) {
        return false;
    }
    let prefix = last.name.bytes();
    // A longer prefix may win over this one, and let expressions be asked.
    let longer = |other: &Taken<'_>| {
        let name = other.name.bytes();
        other.kind == Kind::Prefix && name.len() > prefix.len() && name.starts_with(prefix)
    };
    let rest = regex.name.bytes().strip_prefix(b"^").and_then(|text| text.strip_prefix(prefix));
    is_literal(prefix)
        && is_one(regex.name.bytes())
        && rest.is_some_and(|rest| !is_optional(rest))
        && !all.iter().any(longer)
}
