//! The tables of `docs/KUBERNETES.md`, from those that the renderer itself uses.

use std::fmt::Write;

use crate::annotations::ANNOTATIONS;
use crate::keys::{KEYS, Outcome};

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Works => "works",
        Outcome::Refused => "refused, with an event",
        Outcome::NoMeaning => "no meaning here",
    }
}

/// How many of a table work, are refused, and have no meaning.
pub fn counts(outcomes: impl Iterator<Item = Outcome>) -> (usize, usize, usize) {
    let mut counts = (0, 0, 0);
    for outcome in outcomes {
        match outcome {
            Outcome::Works => counts.0 += 1,
            Outcome::Refused => counts.1 += 1,
            Outcome::NoMeaning => counts.2 += 1,
        }
    }
    counts
}

/// Both tables as Markdown.
pub fn tables() -> String {
    let mut out = String::new();
    let (works, refused, none) = counts(ANNOTATIONS.iter().map(|a| a.outcome));
    let _ = writeln!(
        out,
        "### Annotations\n\nOf {} annotations, {works} work, {refused} are refused and {none} \
         {} no meaning here.\n\n| annotation | | how, or why not |\n| --- | --- | --- |",
        ANNOTATIONS.len(),
        if none == 1 { "has" } else { "have" },
    );
    for a in ANNOTATIONS {
        let _ = writeln!(out, "| `{}` | {} | {} |", a.name, word(a.outcome), a.how);
    }
    let (works, refused, none) = counts(KEYS.iter().map(|k| k.outcome));
    let _ = writeln!(
        out,
        "\n### Keys of the ConfigMap\n\nOf {} keys, {works} work, {refused} are refused and {none} \
         have no meaning here.\n\n| key | default | | how, or why not |\n| --- | --- | --- | --- |",
        KEYS.len(),
    );
    for k in KEYS {
        let default = match k.default.len() {
            0 => String::new(),
            1..=40 => format!("`{}`", k.default),
            _ => "as ingress-nginx".to_owned(),
        };
        let _ = writeln!(out, "| `{}` | {default} | {} | {} |", k.name, word(k.outcome), k.how);
    }
    out
}
