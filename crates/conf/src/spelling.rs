//! Suggestions for misspelt words.

/// No slip of the finger is longer; the bound keeps the search cheap.
const LEN_MAX: usize = 64;

/// The candidate nearest to `wrong`, if one is near: a third of the letters may be off, one at
/// least. Of equally near ones the first wins.
pub(crate) fn closest<'a>(
    wrong: &[u8],
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    if wrong.is_empty() || wrong.len() > LEN_MAX {
        return None;
    }
    let mut wrong = wrong.to_vec();
    // People write `client-max-body-size` and `ServerName`.
    wrong.iter_mut().for_each(|byte| {
        *byte = if *byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    });
    let mut best = None;
    let mut bound = (wrong.len() / 3).max(1);
    for candidate in candidates {
        if candidate.len() > LEN_MAX || candidate.len().abs_diff(wrong.len()) > bound {
            continue;
        }
        let distance = distance(&wrong, candidate.as_bytes());
        if distance < bound || distance == bound && best.is_none() {
            bound = distance;
            best = Some(candidate);
        }
    }
    best
}

/// The number of letters to insert, delete, replace or swap with a neighbour that turns `a` into
/// `b` (optimal string alignment). Both are at most [`LEN_MAX`] long.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut rows = [[0usize; LEN_MAX + 1]; 3];
    for (j, cell) in rows[1].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        let [before_last, last, row] = &mut rows;
        row[0] = i;
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before_last[j - 2] + 1);
            }
            row[j] = least;
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 5] = ["server", "server_name", "sendfile", "root", "listen"];

    #[test]
    fn distances() {
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"abc", b""), 3);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!(distance(b"root", b"rot"), 1);
        assert_eq!(distance(b"ab", b"ba"), 1);
        assert_eq!(distance(b"same", b"same"), 0);
    }

    #[test]
    fn slips_find_their_word_and_strangers_do_not() {
        let find = |wrong: &str| closest(wrong.as_bytes(), NAMES.into_iter());
        assert_eq!(find("sever"), Some("server"));
        assert_eq!(find("server-name"), Some("server_name"));
        assert_eq!(find("ServerName"), Some("server_name"));
        assert_eq!(find("rooot"), Some("root"));
        assert_eq!(find("lsiten"), Some("listen"));
        assert_eq!(find("frobnicate"), None);
        assert_eq!(find(""), None);
        assert_eq!(find(&"x".repeat(1000)), None);
    }
}
