//! Regular expressions: against the other engine, which has a translation of its own.

use std::path::Path;

use conf::pattern::Pattern;
use conf::{Pos, Word};

/// The first line is the pattern, the rest the subject.
pub fn run(data: &[u8]) {
    let mut halves = data.splitn(2, |byte| *byte == b'\n');
    let (Some(text), Some(subject)) = (halves.next(), halves.next()) else {
        return;
    };
    // A long compilation happens once, at load; here it only costs time.
    if text.len() > 64 || subject.len() > 256 {
        return;
    }
    let Some(pattern) = compile(text) else { return };
    assert!(pattern.names().all(|(group, _)| group >= 1 && group <= pattern.groups()));
    let mut spans = Vec::new();
    let Ok(found) = pattern.find(subject, &mut spans) else { return };
    assert_eq!(pattern.is_match(subject), Ok(found));
    if found {
        assert_eq!(spans.len(), pattern.groups() + 1);
        for (start, end) in spans.into_iter().flatten() {
            assert!(start <= end && end as usize <= subject.len());
        }
    }
    // An empty look-ahead always holds, and asks for the engine that knows such things. The engines
    // see bytes above ASCII alike but for properties, and the end before a line feed but in groups.
    if !subject.is_ascii() || subject.contains(&b'\n') || text.starts_with(b"(*") {
        return;
    }
    if let Some(other) = compile(&[b"(?=)", text].concat())
        && let Ok(other_found) = other.is_match(subject)
    {
        assert_eq!(found, other_found, "the engines differ");
        assert_eq!(pattern.groups(), other.groups());
    }
}

fn compile(text: &[u8]) -> Option<Pattern> {
    let pos = Pos { file: Path::new("fuzz").into(), line: 1, column: 1 };
    let word = Word { text: bytes::Bytes::copy_from_slice(text), pos, quoted: false };
    Pattern::compile(&word, text, false).ok()
}
