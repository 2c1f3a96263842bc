//! The sizes of crates: a larger room hides its seams, so it is cut along them.

use std::collections::BTreeMap;

/// Lines of a crate's sources, with the tests among them.
const LINES: usize = 20_000;

/// Crates above that, each with its limit in thousands of lines and the reason. A figure follows
/// the truth down, and never up: one that could be lower is a finding, too.
const LARGER: &[(&str, usize, &str)] =
    &[("crates/http", 22, "three wire protocols side by side on one engine")];

/// Lines by crate.
pub type Sizes = BTreeMap<String, usize>;

/// Adds a file to its crate, if it is one of a crate's sources.
pub fn measure(path: &str, text: &str, sizes: &mut Sizes) {
    if let Some((of, _)) = path.split_once("/src/") {
        *sizes.entry(of.to_owned()).or_default() += text.lines().count();
    }
}

/// Crates over their limits, and limits that could be lower.
pub fn check(sizes: &Sizes) -> Vec<String> {
    judged(sizes, LARGER)
}

fn judged(sizes: &Sizes, larger: &[(&str, usize, &str)]) -> Vec<String> {
    let mut findings = Vec::new();
    for (of, &lines) in sizes {
        let listed = larger.iter().find(|(name, ..)| name == of);
        let limit = listed.map_or(LINES, |&(_, thousands, _)| thousands * 1000);
        if lines > limit {
            findings.push(format!(
                "{of}/src: {lines} lines, allowed {limit}: cut it where the least is used across"
            ));
        } else if listed.is_some() && (lines + 1000 <= limit || limit <= LINES) {
            findings.push(format!(
                "xtask/src/tidy/crate_sizes.rs: {of} is down to {lines} lines: lower its figure \
                 (none is needed up to {LINES})"
            ));
        }
    }
    let gone = larger.iter().filter(|(name, ..)| !sizes.contains_key(*name));
    findings.extend(gone.map(|(name, ..)| format!("LARGER: there is no crate {name}")));
    findings
}

#[cfg(test)]
mod tests {
    use super::{LINES, Sizes, judged, measure};

    fn of(lines: usize) -> Sizes {
        let mut sizes = Sizes::new();
        measure("crates/x/src/lib.rs", &"a\n".repeat(lines - 1), &mut sizes);
        measure("crates/x/src/a/b.rs", "a\n", &mut sizes);
        measure("crates/x/tests/c.rs", "a\n", &mut sizes);
        sizes
    }

    #[test]
    fn a_crate_keeps_to_its_limit() {
        assert!(judged(&of(LINES), &[]).is_empty());
        assert_eq!(judged(&of(LINES + 1), &[]).len(), 1);
    }

    #[test]
    fn figures_follow_the_truth_down_and_never_up() {
        let allowed = |lines, thousands| judged(&of(lines), &[("crates/x", thousands, "why")]);
        assert!(allowed(23_500, 24).is_empty());
        assert_eq!(allowed(24_001, 24).len(), 1);
        assert_eq!(allowed(23_000, 24).len(), 1);
        assert_eq!(allowed(LINES, LINES / 1000).len(), 1);
        assert_eq!(judged(&of(1000), &[("crates/y", 24, "why")]).len(), 1);
    }
}
