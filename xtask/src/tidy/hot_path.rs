//! `docs/HOT_PATH.md` names functions and their files: each of them has to be there.

use crate::rust_source::Source;
use crate::workspace::Workspace;

const PAGE: &str = "docs/HOT_PATH.md";

/// The functions that the page names and the code does not have.
pub fn check(ws: &Workspace) -> Vec<String> {
    let Ok(page) = ws.read(PAGE) else { return vec![format!("{PAGE}: cannot be read")] };
    let named: Vec<_> = page.lines().filter_map(named).collect();
    if named.is_empty() {
        return vec![format!("{PAGE}: names no functions")];
    }
    let missing = named.iter().filter(|(file, function)| {
        let text = ws.read(file).unwrap_or_default();
        !Source::new(&text).functions().iter().any(|f| f.name == *function)
    });
    missing.map(|(file, function)| format!("{PAGE}: no {function} in {file}")).collect()
}

/// The file and the function of a table's row that begins with two names in backquotes.
fn named(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    let mut name = || cells.next()?.strip_prefix('`')?.strip_suffix('`');
    Some((name()?, name()?))
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn rows_with_two_names_count() {
        assert_eq!(named("| `a/b.rs` | `run` | what it does |"), Some(("a/b.rs", "run")));
        assert_eq!(named("| where | function | what |"), None);
        assert_eq!(named("| --- | --- | --- |"), None);
        assert_eq!(named("text"), None);
    }
}
