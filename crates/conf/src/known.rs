//! Every directive of nginx 1.31.5 with its module, contexts and arguments: facts, to tell names
//! that this server does not build in from names that nobody knows.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::table::Contexts;

/// A directive of nginx.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its module, as nginx calls it.
    pub module: &'static str,
    /// The directive's name.
    pub name: &'static str,
    /// The blocks in which nginx allows it.
    pub contexts: Contexts,
    /// Its arguments: `0`, `1`, `1,2`, `1+`, `on|off`, `block 0`.
    pub args: &'static str,
}

/// A line a directive: module, name, places, arguments, tabs between; sorted by name.
const FACTS: &str = include_str!("known.tsv");

/// The directives of nginx that have this name, one for each module.
pub fn find(name: &[u8]) -> &'static [Known] {
    let index = index();
    match index.by_name.get(name) {
        Some(&(start, end)) => &index.all[start..end],
        None => &[],
    }
}

/// All directives of nginx, sorted by name.
pub fn all() -> &'static [Known] {
    &index().all
}

struct Index {
    all: Vec<Known>,
    by_name: HashMap<&'static [u8], (usize, usize)>,
}

fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(|| {
        let all: Vec<Known> = FACTS.lines().filter_map(parse_line).collect();
        let mut by_name: HashMap<_, (usize, usize)> = HashMap::with_capacity(all.len());
        for (index, known) in all.iter().enumerate() {
            by_name.entry(known.name.as_bytes()).or_insert((index, index)).1 = index + 1;
        }
        Index { all, by_name }
    })
}

fn parse_line(line: &'static str) -> Option<Known> {
    let mut fields = line.split('\t');
    let (module, name) = (fields.next()?, fields.next()?);
    let contexts = fields
        .next()?
        .split(' ')
        .try_fold(Contexts::EMPTY, |all, place| Some(all.or(Contexts::of_word(place)?)))?;
    Some(Known { module, name, contexts, args: fields.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_facts_is_understood() {
        assert_eq!(all().len(), FACTS.lines().count());
        assert!(all().len() > 700);
        assert!(all().is_sorted_by_key(|known| known.name), "found by ranges of one name");
        for known in all() {
            assert!(find(known.name.as_bytes()).iter().all(|one| one.name == known.name));
            assert_ne!(known.contexts, Contexts::EMPTY, "{}", known.name);
        }
    }

    #[test]
    fn names_are_found_with_all_their_modules() {
        let modules: Vec<_> = find(b"proxy_pass").iter().map(|known| known.module).collect();
        assert!(modules.contains(&"ngx_http_proxy_module"));
        assert!(modules.contains(&"ngx_stream_proxy_module"));
        assert!(find(b"frobnicate").is_empty());
        assert!(find(b"sendfile")[0].contexts.intersects(Contexts::IF_LOCATION));
    }
}
