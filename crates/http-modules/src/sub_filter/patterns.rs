//! Looking for many patterns at once, in text that may not be whole yet.
//!
//! Patterns and text are in lower case here. Of the matches the one counts that begins first, and
//! of those that begin there the one whose pattern was written first. A match that would be
//! another if more text came is not decided before: what is found does not depend on where the
//! text was cut.

use aho_corasick::packed::{self, Searcher};
use aho_corasick::{AhoCorasick, Input, MatchKind};
use bytes::Bytes;
use conf::ConfError;

/// The result of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// `text[start..end]` is the pattern of that number.
    Match {
        /// Its beginning.
        start: usize,
        /// Its end.
        end: usize,
        /// Its index.
        pattern: usize,
    },
    /// Nothing begins before here; what follows may be the beginning of a match.
    Nothing(usize),
}

/// The method of the search.
enum Engine {
    /// Vector instructions on the first bytes of all patterns.
    Packed(Box<Searcher>),
    /// An automaton, for what the other cannot do: many patterns, or an old CPU.
    Automaton(AhoCorasick),
}

/// Patterns, made ready.
pub struct Patterns {
    list: Vec<Bytes>,
    engine: Engine,
    /// The patterns by their first byte, each in order.
    by_first: Vec<Vec<u8>>,
    longest: usize,
}

impl Patterns {
    /// Makes patterns ready; they are in lower case, none is empty, and there are 255 at most.
    ///
    /// # Errors
    /// They take too much memory.
    pub fn new(list: Vec<Bytes>) -> Result<Patterns, ConfError> {
        let packed = packed::Config::new()
            .match_kind(packed::MatchKind::LeftmostFirst)
            .builder()
            .extend(&list)
            .build();
        let engine = match packed {
            Some(searcher) => Engine::Packed(Box::new(searcher)),
            None => {
                let mut builder = AhoCorasick::builder();
                let built = builder.match_kind(MatchKind::LeftmostFirst).build(&list);
                let fail = |e| ConfError::new(format!("cannot search for the patterns: {e}"));
                Engine::Automaton(built.map_err(fail)?)
            }
        };
        let mut by_first = vec![Vec::new(); 256];
        for (n, pattern) in list.iter().enumerate().take(256) {
            if let Some(first) = pattern.first() {
                by_first[usize::from(*first)].push(n as u8);
            }
        }
        let longest = list.iter().map(Bytes::len).max().unwrap_or(0);
        Ok(Patterns { list, engine, by_first, longest })
    }

    /// The patterns.
    pub fn list(&self) -> &[Bytes] {
        &self.list
    }

    /// Looks for a match that begins at `from` or behind. `last`: no more text comes. Patterns that
    /// are `used` up are passed over.
    pub fn find(&self, text: &[u8], from: usize, last: bool, used: &[bool]) -> Found {
        let mut at = from;
        loop {
            let Some((start, end, first)) = self.next(text, at) else {
                let open = if last { None } else { self.open(text, at, text.len(), 0, used) };
                return Found::Nothing(open.unwrap_or(text.len()));
            };
            let pattern = if is_used(used, first) {
                self.starting_at(text, start).find(|&n| !is_used(used, n))
            } else {
                Some(first)
            };
            if !last {
                let below = pattern.unwrap_or(usize::MAX);
                if let Some(open) = self.open(text, at, start, below, used) {
                    return Found::Nothing(open);
                }
            }
            match pattern {
                Some(n) if n == first => return Found::Match { start, end, pattern: n },
                Some(n) => {
                    return Found::Match { start, end: start + self.list[n].len(), pattern: n };
                }
                None => at = start + 1,
            }
        }
    }

    fn next(&self, text: &[u8], at: usize) -> Option<(usize, usize, usize)> {
        let found = match &self.engine {
            Engine::Packed(searcher) => {
                searcher.find_in(text, aho_corasick::Span { start: at, end: text.len() })
            }
            Engine::Automaton(automaton) => automaton.find(Input::new(text).range(at..)),
        };
        found.map(|m| (m.start(), m.end(), m.pattern().as_usize()))
    }

    /// The patterns that begin with this byte.
    fn beginning(&self, byte: u8) -> impl Iterator<Item = usize> + '_ {
        self.by_first[usize::from(byte)].iter().map(|&n| usize::from(n))
    }

    /// The patterns that stand at a place, in order.
    fn starting_at(&self, text: &[u8], at: usize) -> impl Iterator<Item = usize> {
        let text = &text[at..];
        self.beginning(text[0]).filter(|&n| text.starts_with(&self.list[n]))
    }

    /// The first place from `from` on, up to `to` and itself, where a pattern begins whose rest may
    /// come. At `to` only patterns before the one of number `below` count.
    fn open(
        &self,
        text: &[u8],
        from: usize,
        to: usize,
        below: usize,
        used: &[bool],
    ) -> Option<usize> {
        // A match that begins before has its end in the text, if at all.
        let near_end = (text.len() + 1).saturating_sub(self.longest);
        (from.max(near_end)..text.len().min(to + 1)).find(|&at| {
            let rest = &text[at..];
            self.beginning(rest[0]).any(|n| {
                let pattern = &self.list[n];
                (at < to || n < below)
                    && pattern.len() > rest.len()
                    && pattern.starts_with(rest)
                    && !is_used(used, n)
            })
        })
    }
}

fn is_used(used: &[bool], n: usize) -> bool {
    used.get(n).copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(list: &[&'static str]) -> Patterns {
        Patterns::new(list.iter().map(|p| Bytes::from_static(p.as_bytes())).collect()).unwrap()
    }

    fn found(start: usize, end: usize, pattern: usize) -> Found {
        Found::Match { start, end, pattern }
    }

    #[test]
    fn the_first_and_of_these_the_one_written_first() {
        let p = patterns(&["bcd", "abcdef", "ab", "abc"]);
        assert_eq!(p.find(b"xxabcdef", 0, true, &[]), found(2, 8, 1));
        assert_eq!(p.find(b"xxabcd", 0, true, &[]), found(2, 4, 2));
        assert_eq!(p.find(b"xxabcd", 4, true, &[]), Found::Nothing(6));
        assert_eq!(p.find(b"xxabcd", 3, true, &[]), found(3, 6, 0));
    }

    #[test]
    fn what_may_be_another_match_waits() {
        let p = patterns(&["bcd", "abcdef", "ab", "abc"]);
        assert_eq!(p.find(b"xxabcd", 0, false, &[]), Found::Nothing(2));
        assert_eq!(p.find(b"xxabcdx", 0, false, &[]), found(2, 4, 2));
        assert_eq!(p.find(b"xxabcdef", 0, false, &[]), found(2, 8, 1));
        assert_eq!(p.find(b"xxbc", 0, false, &[]), Found::Nothing(2));
        assert_eq!(p.find(b"xx", 0, false, &[]), Found::Nothing(2));
        assert_eq!(p.find(b"", 0, false, &[]), Found::Nothing(0));
        // A later pattern that would be longer changes nothing.
        assert_eq!(patterns(&["ab", "abc"]).find(b"ab", 0, false, &[]), found(0, 2, 0));
    }

    #[test]
    fn used_patterns_are_passed_over() {
        let p = patterns(&["ab", "abc", "c"]);
        assert_eq!(p.find(b"xabc", 0, true, &[true, false, false]), found(1, 4, 1));
        assert_eq!(p.find(b"xab", 0, false, &[true, false, false]), Found::Nothing(1));
        assert_eq!(p.find(b"xabc", 0, true, &[true, true, false]), found(3, 4, 2));
        assert_eq!(p.find(b"xabab", 0, false, &[true, true, false]), Found::Nothing(5));
    }

    /// The matches of a plain search.
    fn slowly(list: &[Bytes], text: &[u8], used: &mut [bool], once: bool) -> Vec<(usize, usize)> {
        let (mut at, mut all) = (0, Vec::new());
        while at < text.len() {
            let here = (0..list.len()).find(|&n| !used[n] && text[at..].starts_with(&list[n]));
            at += match here {
                Some(n) => {
                    all.push((at, n));
                    used[n] = once;
                    list[n].len()
                }
                None => 1,
            };
        }
        all
    }

    #[test]
    fn many_texts_in_pieces_as_a_plain_search_has_them() {
        let mut n = 7u32;
        let mut next = |max: u32| {
            n = n.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            (n >> 16) % max
        };
        for round in 0..3000 {
            let mut word = |max: u32| -> Bytes {
                (0..=next(max)).map(|_| b"abc"[next(3) as usize]).collect::<Vec<_>>().into()
            };
            let mut list: Vec<Bytes> = (0..1 + round % 5).map(|_| word(6)).collect();
            if round % 10 == 0 {
                list.extend((0..200).map(|_| word(9)));
            }
            let text = word(80);
            let once = round % 2 == 0;
            let p = Patterns::new(list.clone()).unwrap();
            let want = slowly(&list, &text, &mut vec![false; list.len()], once);
            for step in [1, 2, 3, 7, 100] {
                let (mut used, mut got) = (vec![false; list.len()], Vec::new());
                let (mut at, mut end) = (0, 0);
                while end < text.len() {
                    end = (end + step).min(text.len());
                    while let Found::Match { start, end: behind, pattern } =
                        p.find(&text[..end], at, end == text.len(), &used)
                    {
                        got.push((start, pattern));
                        used[pattern] = once;
                        at = behind;
                    }
                    if let Found::Nothing(keep) = p.find(&text[..end], at, false, &used) {
                        assert!(keep >= at && end - keep < p.longest);
                        at = keep;
                    }
                }
                assert_eq!(got, want, "{list:?} {text:?} {step}");
            }
        }
    }
}
