//! Lists of patterns of which the first that matches counts.
//!
//! For most patterns there is a text that every match must contain ([`super::required`]), such as
//! `bad.example` for `\bbad\.example\b`. One pass over the subject finds all of these texts that
//! occur in it. A pattern whose text does not occur cannot match, so it is not tried. The others
//! are tried in the order of the list. So the time depends on the length of the subject and on the
//! few patterns that are tried, and hardly on the length of the list.

use std::cell::RefCell;
use std::collections::HashMap;

use aho_corasick::AhoCorasick;

use super::Pattern;

/// Shorter lists have no filter, because trying each pattern is as fast.
const LENGTH_MIN: usize = 4;

/// Says which patterns of a list can match a subject.
#[derive(Default)]
pub struct PatternList {
    /// `None`: all patterns are tried.
    filter: Option<Filter>,
    len: usize,
}

struct Filter {
    /// Finds all texts, in upper or lower case.
    texts: AhoCorasick,
    /// For each text, the index in `owners` of its first pattern; at the end, the length of
    /// `owners`.
    starts: Vec<u32>,
    /// The indexes of the patterns of each text, one text after the other.
    owners: Vec<u32>,
    /// One bit per pattern: it has no text, so it is always tried.
    always: Vec<u64>,
    /// The memory of a search, kept for the next one.
    memory: RefCell<Search>,
}

/// The state of a search.
#[derive(Default)]
struct Search {
    /// One bit per pattern: it may match.
    likely: Vec<u64>,
    /// One bit per text: it occurs in the subject.
    found: Vec<u64>,
}

impl PatternList {
    /// Makes the list of `patterns`. The first pattern and those without a text are compiled here,
    /// because every search tries them; the others are compiled when they are first needed.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> PatternList {
        let patterns: Vec<_> = patterns.into_iter().collect();
        let filter = if patterns.len() < LENGTH_MIN { None } else { Filter::new(&patterns) };
        for (index, pattern) in patterns.iter().enumerate() {
            if index == 0 || filter.is_none() || pattern.required().is_empty() {
                pattern.prepare();
            }
        }
        PatternList { filter, len: patterns.len() }
    }

    /// Calls `f` with the index of each pattern that may match `subject`, in the order of the list,
    /// until `f` returns a value.
    pub fn first<T>(&self, subject: &[u8], mut f: impl FnMut(usize) -> Option<T>) -> Option<T> {
        let Some(filter) = &self.filter else { return (0..self.len).find_map(f) };
        // People put the pattern first that matches most often, so it is tried before the search.
        let found = f(0);
        if found.is_some() {
            return found;
        }
        let mut search = filter.memory.take();
        filter.mark(subject, &mut search);
        if let Some(word) = search.likely.first_mut() {
            *word &= !1;
        }
        let mut found = None;
        'words: for (at, word) in search.likely.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                found = f(at * 64 + word.trailing_zeros() as usize);
                if found.is_some() {
                    break 'words;
                }
                word &= word - 1;
            }
        }
        filter.memory.replace(search);
        found
    }
}

impl Filter {
    /// Returns `None` if no pattern has a text.
    fn new(patterns: &[&Pattern]) -> Option<Filter> {
        let mut always = vec![0; patterns.len().div_ceil(64)];
        let mut known: HashMap<&[u8], usize> = HashMap::new();
        let mut texts: Vec<(&[u8], Vec<u32>)> = Vec::new();
        for (index, pattern) in patterns.iter().enumerate() {
            if pattern.required().is_empty() {
                always[index / 64] |= 1 << (index % 64);
            }
            for text in pattern.required() {
                let at = *known.entry(text).or_insert_with(|| {
                    texts.push((text, Vec::new()));
                    texts.len() - 1
                });
                texts[at].1.push(index as u32);
            }
        }
        if texts.is_empty() {
            return None;
        }
        let (mut starts, mut owners) = (vec![0], Vec::new());
        for (_, patterns) in &texts {
            owners.extend(patterns);
            starts.push(owners.len() as u32);
        }
        let texts = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(texts.iter().map(|(text, _)| text))
            .ok()?;
        Some(Filter { texts, starts, owners, always, memory: RefCell::default() })
    }

    /// Sets the bits of the patterns that have a text in `subject`, and of those without a text.
    fn mark(&self, subject: &[u8], search: &mut Search) {
        let Search { likely, found } = search;
        likely.clone_from(&self.always);
        found.clear();
        found.resize(self.starts.len().div_ceil(64), 0);
        for hit in self.texts.find_overlapping_iter(subject) {
            let text = hit.pattern().as_usize();
            let (word, bit) = (&mut found[text / 64], 1 << (text % 64));
            if *word & bit != 0 {
                continue;
            }
            *word |= bit;
            let range = self.starts[text] as usize..self.starts[text + 1] as usize;
            for &pattern in &self.owners[range] {
                likely[pattern as usize / 64] |= 1 << (pattern % 64);
            }
        }
    }
}

impl std::fmt::Debug for PatternList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts = self.filter.as_ref().map_or(0, |filter| filter.starts.len() - 1);
        write!(f, "{} patterns with {texts} texts", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, the same in each run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as usize % n
        }

        fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
            of[self.below(of.len())]
        }

        /// A pattern made of pieces that are right one behind the other.
        fn pattern(&mut self, depth: usize) -> String {
            let pieces = [
                "a",
                "b",
                "A",
                "foo",
                "Bar",
                "x.y",
                r"\.",
                "/",
                r"\d",
                "[ab]",
                "[^a]",
                r"\bfoo",
                ".*",
                "a?",
                "b+",
                "(?i)",
                "é",
                "(?:ab){2}",
                "^",
                "$",
                "[A-Z]",
                "(?=a)",
                r"\w{2,3}",
            ];
            let mut text = String::new();
            for _ in 0..=self.below(4) {
                if depth > 0 && self.below(4) == 0 {
                    let (left, right) = (self.pattern(depth - 1), self.pattern(depth - 1));
                    let open = self.one(&["(", "(?:"]);
                    let close = self.one(&[")", ")?", ")+", ")*"]);
                    text += &format!("{open}{left}|{right}{close}");
                } else {
                    text += self.one(&pieces);
                }
            }
            text
        }

        fn subject(&mut self) -> String {
            let pieces =
                ["a", "b", "ab", "foo", "FOO", "bar", "xzy", ".", "/", "7", "\n", "é", "É", "_"];
            (0..self.below(9)).map(|_| self.one(&pieces)).collect()
        }
    }

    fn likely(list: &PatternList, subject: &str) -> Vec<usize> {
        let mut all = Vec::new();
        list.first(subject.as_bytes(), |index| {
            all.push(index);
            None::<()>
        });
        all
    }

    fn list(patterns: &[&str]) -> (PatternList, Vec<Pattern>) {
        let read = |text: &&str| Pattern::read(text.as_bytes(), false).unwrap();
        let patterns: Vec<_> = patterns.iter().map(read).collect();
        (PatternList::new(&patterns), patterns)
    }

    fn is_compiled(pattern: &Pattern) -> bool {
        pattern.engine.get().is_some()
    }

    #[test]
    fn a_list_finds_what_each_of_its_patterns_finds() {
        let mut numbers = Numbers(7);
        let (mut matches, mut passed_over) = (0, 0);
        for _ in 0..25 {
            let patterns: Vec<_> = (0..LENGTH_MIN + numbers.below(80))
                .filter_map(|_| {
                    let (text, caseless) = (numbers.pattern(2), numbers.below(2) == 0);
                    Pattern::read(text.as_bytes(), caseless).ok()
                })
                .collect();
            let list = PatternList::new(&patterns);
            for _ in 0..20 {
                let subject = numbers.subject();
                let likely = likely(&list, &subject);
                assert!(likely.is_sorted());
                for (index, pattern) in patterns.iter().enumerate() {
                    if pattern.is_match(subject.as_bytes()) == Ok(false) {
                        passed_over += usize::from(!likely.contains(&index));
                        continue;
                    }
                    matches += 1;
                    assert!(likely.contains(&index), "{pattern:?} matches {subject:?}");
                }
            }
        }
        assert!(matches > 1_000 && passed_over > 1_000, "{matches} {passed_over}");
    }

    #[test]
    fn patterns_are_compiled_when_they_are_needed() {
        let (list, patterns) = list(&["foo", "bar", r"\d+[a-z]*", "[a-z]{3}", "baz", "(?=x)y"]);
        let compiled = || patterns.iter().map(is_compiled).collect::<Vec<_>>();
        assert_eq!(compiled(), [true, false, false, true, false, true]);
        assert_eq!(likely(&list, "a FOO, baz"), [0, 3, 4, 5]);
        assert_eq!(likely(&list, "x1"), [0, 2, 3, 5], "the first one is always tried");
        assert_eq!(compiled(), [true, false, false, true, false, true]);
        assert_eq!(patterns[4].is_match(b"baz"), Ok(true));
        assert!(is_compiled(&patterns[4]));
    }

    #[test]
    fn what_may_be_too_large_is_compiled_when_it_is_read() {
        let large = Pattern::read(b"foo(?:a{50}b{50}){50}", false).unwrap();
        assert!(is_compiled(&large));
        assert!(Pattern::read(b"(?:(?:a{200}){200}){200}", false).is_err());
    }

    #[test]
    fn short_lists_are_tried_one_by_one() {
        let (list, patterns) = list(&["foo", "bar", "baz"]);
        assert_eq!(likely(&list, "x"), [0, 1, 2]);
        assert!(patterns.iter().all(is_compiled));
        assert_eq!(likely(&PatternList::default(), "x"), []);
    }

    #[test]
    fn a_search_may_ask_the_list_again() {
        let (list, _) = list(&["foo", "bar", "baz", "qux"]);
        let found = list.first(b"foo baz", |index| {
            assert_eq!(likely(&list, "bar qux"), [0, 1, 3]);
            (index == 2).then_some(index)
        });
        assert_eq!(found, Some(2));
    }
}
