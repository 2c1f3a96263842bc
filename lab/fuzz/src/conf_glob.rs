//! File name patterns: against a matcher that tries everything.

use conf::glob::matches;

/// The first line is the pattern, the rest the name.
pub fn run(data: &[u8]) {
    let mut halves = data.splitn(2, |byte| *byte == b'\n');
    let (Some(pattern), Some(name)) = (halves.next(), halves.next()) else {
        return;
    };
    let matched = matches(pattern, name);
    // Sets and escapes are left to the unit tests; stars and question marks have an easy oracle.
    if pattern.iter().any(|byte| b"[\\".contains(byte)) {
        return;
    }
    let hidden = name.first() == Some(&b'.') && pattern.first() != Some(&b'.');
    assert_eq!(matched, !hidden && slow(pattern, name));
}

/// The ends of the name that each head of the pattern can match, all at once.
fn slow(pattern: &[u8], name: &[u8]) -> bool {
    let mut ends = vec![false; name.len() + 1];
    ends[0] = true;
    for &part in pattern {
        ends = (0..=name.len())
            .map(|end| match part {
                b'*' => ends[..=end].contains(&true),
                b'?' => end > 0 && ends[end - 1],
                part => end > 0 && ends[end - 1] && name[end - 1] == part,
            })
            .collect();
    }
    ends[name.len()]
}
