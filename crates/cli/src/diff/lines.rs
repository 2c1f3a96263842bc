//! The difference of two texts by lines: Myers's algorithm (An O(ND) Difference Algorithm, 1986).

/// The most lines that may differ for the shortest script to be sought. Beyond, all lines between
/// the common beginning and the common end count as changed.
const EDITS_MAX: usize = 2000;
/// The lines around a change that are shown.
const CONTEXT: usize = 3;

/// A line of the difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Edit {
    Keep,
    Remove,
    Add,
}

/// The difference as hunks of a unified diff; empty when the texts are the same.
pub(crate) fn unified(old: &[&str], new: &[&str]) -> String {
    let edits = edits(old, new);
    let mut out = String::new();
    let (mut at, mut i, mut j) = (0, 0, 0);
    while at < edits.len() {
        let Some(next) = edits[at..].iter().position(|e| *e != Edit::Keep) else { break };
        let skipped = next.saturating_sub(CONTEXT);
        (at, i, j) = (at + skipped, i + skipped, j + skipped);
        let len = hunk_len(&edits[at..]);
        let hunk = &edits[at..at + len];
        let count = |not: Edit| hunk.iter().filter(|e| **e != not).count();
        let (of_old, of_new) = (count(Edit::Add), count(Edit::Remove));
        // An empty range is named by the line before it.
        let start = |at: usize, len: usize| at + usize::from(len > 0);
        let (from, to) = (start(i, of_old), start(j, of_new));
        out.push_str(&format!("@@ -{from},{of_old} +{to},{of_new} @@\n"));
        for edit in hunk {
            let (mark, line) = match edit {
                Edit::Keep => (' ', old[i]),
                Edit::Remove => ('-', old[i]),
                Edit::Add => ('+', new[j]),
            };
            i += usize::from(*edit != Edit::Add);
            j += usize::from(*edit != Edit::Remove);
            out.push_str(&format!("{mark}{line}\n"));
        }
        at += len;
    }
    out
}

/// The length of a hunk: up to a stretch of kept lines that is too long for two contexts.
fn hunk_len(edits: &[Edit]) -> usize {
    let mut end = 0;
    for (at, edit) in edits.iter().enumerate() {
        if *edit != Edit::Keep {
            end = at + 1;
        } else if end > 0 && at - end >= 2 * CONTEXT {
            break;
        }
    }
    (end + CONTEXT).min(edits.len())
}

fn edits(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(new).take_while(same).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let mut out = vec![Edit::Keep; head];
    match shortest(old, new) {
        Some(middle) => out.extend(middle),
        None => {
            out.extend(std::iter::repeat_n(Edit::Remove, old.len()));
            out.extend(std::iter::repeat_n(Edit::Add, new.len()));
        }
    }
    out.extend(std::iter::repeat_n(Edit::Keep, tail));
    // Within a change, removed lines go first.
    for change in out.split_mut(|edit| *edit == Edit::Keep) {
        change.sort_by_key(|edit| *edit == Edit::Add);
    }
    out
}

/// The shortest script, unless it is too long to be sought.
fn shortest(old: &[&str], new: &[&str]) -> Option<Vec<Edit>> {
    // rounds[d][k + d] is how far into `old` d edits lead on the diagonal k = x - y; those that
    // cannot be reached are at -1.
    let (n, m) = (old.len() as isize, new.len() as isize);
    let mut rounds: Vec<Vec<isize>> = Vec::new();
    for d in 0..=(old.len() + new.len()).min(EDITS_MAX) {
        let mut round = vec![-1; 2 * d + 1];
        for step in 0..=d {
            let k = 2 * step as isize - d as isize;
            let mut x = start(&rounds, d, k)?.0;
            while x < n && x - k < m && old[x as usize] == new[(x - k) as usize] {
                x += 1;
            }
            round[(k + d as isize) as usize] = x;
            if x == n && x - k == m {
                rounds.push(round);
                return walk_back(&rounds, n, m);
            }
        }
        rounds.push(round);
    }
    None
}

/// Where the d-th edit leads on a diagonal, and whether it adds a line.
fn start(rounds: &[Vec<isize>], d: usize, k: isize) -> Option<(isize, bool)> {
    let Some(before) = d.checked_sub(1) else { return Some((0, false)) };
    let reached = |k: isize| {
        let at = usize::try_from(k + before as isize).ok()?;
        rounds.get(before)?.get(at).copied().filter(|x| *x >= 0)
    };
    let (removed, added) = (reached(k - 1).map(|x| x + 1), reached(k + 1));
    match (removed, added) {
        (Some(removed), Some(added)) if added > removed => Some((added, true)),
        (Some(removed), _) => Some((removed, false)),
        (None, Some(added)) => Some((added, true)),
        (None, None) => None,
    }
}

fn walk_back(rounds: &[Vec<isize>], n: isize, m: isize) -> Option<Vec<Edit>> {
    let (mut x, mut y) = (n, m);
    let mut out = Vec::new();
    for d in (0..rounds.len()).rev() {
        let k = x - y;
        let (from, adds) = start(rounds, d, k)?;
        for _ in from..x {
            out.push(Edit::Keep);
        }
        if d > 0 {
            out.push(if adds { Edit::Add } else { Edit::Remove });
            x = if adds { from } else { from - 1 };
            y = from - k - isize::from(adds);
        }
    }
    out.reverse();
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(old: &str, new: &str) -> String {
        let lines = |text: &'static str| text.lines().collect::<Vec<_>>();
        let leak = |text: &str| lines(String::leak(text.to_owned()));
        unified(&leak(old), &leak(new))
    }

    #[test]
    fn hunks_are_unified() {
        assert_eq!(diff("a\nb\n", "a\nb\n"), "");
        assert_eq!(diff("", "a\n"), "@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(diff("a\nb\nc\n", "a\nx\nc\n"), "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n");
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n";
        let new = old.replace("2\n3", "3").replace("11\n", "11\nx\n");
        let want = "@@ -1,5 +1,4 @@\n 1\n-2\n 3\n 4\n 5\n@@ -9,4 +8,5 @@\n 9\n 10\n 11\n+x\n 12\n";
        assert_eq!(diff(old, &new), want);
    }

    #[test]
    fn scripts_lead_from_one_text_to_the_other() {
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let mut text = || -> Vec<&str> {
                (0..random(12)).map(|_| ["a", "b", "c"][random(3) as usize]).collect()
            };
            let (old, new) = (text(), text());
            let (mut i, mut j, mut kept) = (0, 0, 0);
            for edit in edits(&old, &new) {
                if edit == Edit::Keep {
                    assert_eq!(old[i], new[j]);
                    kept += 1;
                }
                i += usize::from(edit != Edit::Add);
                j += usize::from(edit != Edit::Remove);
            }
            assert_eq!((i, j), (old.len(), new.len()), "{old:?} {new:?}");
            assert_eq!(kept, longest_common(&old, &new), "{old:?} {new:?}");
        }
    }

    fn longest_common(old: &[&str], new: &[&str]) -> usize {
        let mut table = vec![vec![0; new.len() + 1]; old.len() + 1];
        for i in 0..old.len() {
            for j in 0..new.len() {
                table[i + 1][j + 1] = if old[i] == new[j] {
                    table[i][j] + 1
                } else {
                    table[i][j + 1].max(table[i + 1][j])
                };
            }
        }
        table[old.len()][new.len()]
    }

    #[test]
    fn texts_with_nothing_in_common_are_replaced() {
        let old: Vec<String> = (0..3000).map(|n| format!("a{n}")).collect();
        let new: Vec<String> = (0..3000).map(|n| format!("b{n}")).collect();
        let refs = |lines: &'static [String]| lines.iter().map(String::as_str).collect::<Vec<_>>();
        let text = unified(&refs(old.leak()), &refs(new.leak()));
        assert!(text.starts_with("@@ -1,3000 +1,3000 @@\n-a0\n"));
    }
}
