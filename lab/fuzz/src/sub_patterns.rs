//! Replaced texts: the matches where a response comes in pieces.

use bytes::Bytes;
use http_modules::sub_filter::patterns::{Found, Patterns};

/// The first byte decides whether each pattern counts once, the second is the length of pieces; up
/// to an empty line each line is a pattern, and the rest is the text. A plain search finds the
/// same, however the text is cut, and no more of it is held back than a match could need.
pub fn run(data: &[u8]) {
    let Some((&[once, step], rest)) = data.split_first_chunk() else { return };
    let (once, step) = (once & 1 == 1, usize::from(step).max(1));
    let mut lines = rest.splitn(256, |byte| *byte == b'\n');
    let list: Vec<Bytes> =
        lines.by_ref().take_while(|line| !line.is_empty()).map(Bytes::copy_from_slice).collect();
    let text: Vec<u8> = lines.collect::<Vec<_>>().join(&b'\n');
    if list.is_empty() || text.len() > 4096 {
        return;
    }
    let longest = list.iter().map(Bytes::len).max().unwrap_or(0);
    let patterns = Patterns::new(list.clone()).expect("few and short patterns");
    let (mut used, mut got) = (vec![false; list.len()], Vec::new());
    let (mut at, mut end) = (0, 0);
    while end < text.len() {
        end = (end + step).min(text.len());
        let last = end == text.len();
        loop {
            match patterns.find(&text[..end], at, last, &used) {
                Found::Match { start, end, pattern } => {
                    assert!(start >= at && text[start..end] == list[pattern]);
                    got.push((start, pattern));
                    used[pattern] = once;
                    at = end;
                }
                Found::Nothing(keep) => {
                    assert!(keep >= at && keep <= end && (last || end - keep < longest));
                    at = keep;
                    break;
                }
            }
        }
    }
    assert_eq!(got, slowly(&list, &text, once));
}

fn slowly(list: &[Bytes], text: &[u8], once: bool) -> Vec<(usize, usize)> {
    let (mut used, mut all, mut at) = (vec![false; list.len()], Vec::new(), 0);
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
