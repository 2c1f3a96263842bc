//! <https://exslt.org/str/>: texts.

use std::borrow::Cow;
use std::rc::Rc;

use super::{function, tree, tree_of};
use crate::atoms::Atom;
use crate::error::Result;
use crate::tree::ROOT;
use crate::value::{N, Value};
use crate::xpath::functions::nodes;
use crate::xpath::{Cx, Function};

const STRINGS: &str = "http://exslt.org/strings";

pub(super) static FUNCTIONS: &[Function] = &[
    function(STRINGS, "tokenize", (1, 2), |cx, args| parts(cx, args, "\t\r\n ", tokens)),
    function(STRINGS, "split", (1, 2), |cx, args| parts(cx, args, " ", split)),
    function(STRINGS, "replace", (3, 3), replace),
    function(STRINGS, "concat", (1, 1), concat),
    function(STRINGS, "padding", (1, 2), |cx, args| {
        let characters = args.get(1).map_or(" ".into(), |arg| cx.text_of(arg));
        Ok(Value::text(&padding(cx.number_of(&args[0]), &characters)))
    }),
    function(STRINGS, "align", (2, 3), |cx, args| {
        let how = args.get(2).map_or("".into(), |arg| cx.text_of(arg));
        Ok(Value::text(&align(&cx.text_of(&args[0]), &cx.text_of(&args[1]), &how)))
    }),
    function(STRINGS, "encode-uri", (2, 3), |cx, args| {
        if !is_utf8(cx, args.get(2)) {
            return Ok(Value::text(""));
        }
        let text = cx.text_of(&args[0]);
        cx.run.fits(text.len().saturating_mul(3))?;
        Ok(Value::text(&encoded(&text, args[1].to_bool())))
    }),
    function(STRINGS, "decode-uri", (1, 2), |cx, args| {
        let is_known = is_utf8(cx, args.get(1));
        Ok(Value::text(&if is_known { decoded(&cx.text_of(&args[0])) } else { String::new() }))
    }),
];

/// The parts of a text as elements named `token`.
fn parts(
    cx: &Cx,
    args: &[Value],
    default: &str,
    of: for<'t> fn(&'t str, &'t str) -> Parts<'t>,
) -> Result<Value> {
    let text = cx.text_of(&args[0]);
    let by = args.get(1).map_or(default.into(), |arg| cx.text_of(arg));
    let parts = of(&text, &by);
    let name = cx.run.atoms.name("", "token");
    let doc = tree(cx, |out| {
        for part in parts {
            cx.run.tick()?;
            out.start(name, Atom::EMPTY)?;
            out.text(part, false)?;
            out.end();
        }
        Ok(())
    })?;
    let root = cx.run.docs.add(doc);
    let doc = cx.run.docs.doc(root);
    Ok(Value::nodes(doc.children(ROOT).map(|id| N { id, ..root }).collect()))
}

/// Parts of a text, one after another.
type Parts<'t> = Box<dyn Iterator<Item = &'t str> + 't>;

/// The characters of a text, each by itself.
fn characters(text: &str) -> Parts<'_> {
    Box::new(text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]))
}

/// What stands between any of some characters: each character where there are none.
fn tokens<'t>(text: &'t str, delimiters: &'t str) -> Parts<'t> {
    if delimiters.is_empty() {
        return characters(text);
    }
    let mut known: Vec<char> = delimiters.chars().collect();
    known.sort_unstable();
    let tokens = text.split(move |c| known.binary_search(&c).is_ok());
    Box::new(tokens.filter(|token| !token.is_empty()))
}

/// What stands between the occurrences of a text: each character where that is empty.
fn split<'t>(text: &'t str, separator: &'t str) -> Parts<'t> {
    if separator.is_empty() {
        return characters(text);
    }
    Box::new(text.split(separator).filter(|part| !part.is_empty()))
}

fn concat(cx: &Cx, args: &[Value]) -> Result<Value> {
    let mut all = String::new();
    for n in nodes(cx, &args[0])?.iter() {
        let text = cx.run.docs.value(*n);
        cx.run.fits(all.len() + text.len())?;
        all.push_str(&text);
    }
    Ok(Value::text(&all))
}

/// The most characters of [`padding`]: libexslt's bound.
const PADDING_MAX: f64 = 100_000.0;

/// So many characters, at most [`PADDING_MAX`], of a text that repeats; spaces where it is empty.
fn padding(length: f64, characters: &str) -> String {
    let characters = if characters.is_empty() { " " } else { characters };
    // What is below 1, or NaN, is nothing.
    let length = length.clamp(0.0, PADDING_MAX) as usize;
    characters.chars().cycle().take(length).collect()
}

/// A text over the characters of another, as long as that: to its left unless `how` is `right` or
/// `center`. What does not fit is cut off.
fn align(text: &str, pad: &str, how: &str) -> String {
    let (length, room) = (text.chars().count(), pad.chars().count());
    let Some(free) = room.checked_sub(length) else { return text.chars().take(room).collect() };
    let before = match how {
        "right" => free,
        "center" => free / 2,
        _ => 0,
    };
    let (left, right) = (pad.chars().take(before), pad.chars().skip(before + length));
    left.chain(text.chars()).chain(right).collect()
}

/// Whether an encoding is known: others give the empty text, as the specification has it.
fn is_utf8(cx: &Cx, encoding: Option<&Value>) -> bool {
    encoding.is_none_or(|encoding| cx.text_of(encoding).eq_ignore_ascii_case("UTF-8"))
}

/// A text as a part of a URI (RFC 2396, section 2, with the brackets of RFC 2732), and its reserved
/// characters too if so wished.
fn encoded(text: &str, reserved_too: bool) -> String {
    let mut all = String::with_capacity(text.len());
    for byte in text.bytes() {
        let is_kept = match byte {
            // The last one is reserved; libexslt leaves it.
            b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' | b'@' => true,
            b';' | b'/' | b'?' | b':' | b'&' | b'=' | b'+' | b'$' | b',' | b'[' | b']' => {
                !reserved_too
            }
            _ => byte.is_ascii_alphanumeric(),
        };
        if is_kept {
            all.push(char::from(byte));
        } else {
            all.push('%');
            all.extend(
                [byte >> 4, byte & 15]
                    .map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])),
            );
        }
    }
    all
}

/// A text whose escapes are undone: up to a NUL, and nothing where the rest is no UTF-8. What is no
/// escape stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        let digit = |at: usize| behind.get(at).and_then(|b| char::from(*b).to_digit(16));
        let byte = match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                rest = &behind[2..];
                (high << 4 | low) as u8
            }
            _ => *byte,
        };
        if byte == 0 {
            break;
        }
        bytes.push(byte);
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// `replace()`: each occurrence of a text by another; with nodes, of each one's text by that of the
/// node at the same place. The longest one is taken where several are found.
///
/// The result is a fragment, where the specification has a text node: that would have to be kept
/// until the end of the run.
fn replace(cx: &Cx, args: &[Value]) -> Result<Value> {
    let text = cx.text_of(&args[0]);
    let texts = |nodes: &Rc<Vec<N>>| -> Vec<Cow<str>> {
        nodes.iter().map(|n| cx.run.docs.value(*n)).collect()
    };
    let (searched, by) = match (&args[1], &args[2]) {
        (Value::Nodes(searched), Value::Nodes(by)) => (texts(searched), texts(by)),
        (Value::Nodes(searched), by) => (texts(searched), vec![cx.text_of(by)]),
        (searched, by) => (vec![cx.text_of(searched)], vec![cx.text_of(by)]),
    };
    let replaced = match &searched[..] {
        [one] => replaced(cx, &text, one, by.first().map_or("", |by| by))?,
        all => replaced_longest(cx, &text, all, &by)?,
    };
    Ok(Value::Tree(tree_of(cx, &replaced)?))
}

/// A text with another one in place of each occurrence of a third; an empty one is found between
/// any two characters.
fn replaced(cx: &Cx, text: &str, one: &str, by: &str) -> Result<String> {
    let parts = if one.is_empty() { characters(text) } else { Box::new(text.split(one)) };
    let mut out = String::new();
    for (at, part) in parts.enumerate() {
        cx.run.tick()?;
        let by = if at == 0 { "" } else { by };
        cx.run.fits(out.len() + by.len() + part.len())?;
        out.push_str(by);
        out.push_str(part);
    }
    Ok(out)
}

/// A text with others in place of those searched: nothing where there is none at its place.
fn replaced_longest(cx: &Cx, text: &str, searched: &[Cow<str>], by: &[Cow<str>]) -> Result<String> {
    let needles = Needles::new(searched);
    let mut out = String::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (found, steps) = needles.at(rest.as_bytes());
        cx.run.ticks(steps)?;
        let (length, new) = match found {
            Some((length, which)) => (length, by.get(which).map_or("", |by| by)),
            None => {
                let length = rest.chars().next().map_or(1, char::len_utf8);
                (length, &rest[..length])
            }
        };
        cx.run.fits(out.len() + new.len())?;
        out.push_str(new);
        at += length;
    }
    Ok(out)
}

/// Texts to be found, in order, each with its place among those given. Of those that are the same,
/// the first one stays; empty ones are found nowhere.
struct Needles<'t>(Vec<(&'t [u8], usize)>);

impl<'t> Needles<'t> {
    fn new(texts: &'t [Cow<str>]) -> Self {
        let texts = texts.iter().enumerate().map(|(which, text)| (text.as_bytes(), which));
        let mut all: Vec<_> = texts.filter(|(text, _)| !text.is_empty()).collect();
        all.sort_unstable();
        all.dedup_by_key(|(text, _)| *text);
        Needles(all)
    }

    /// The longest one that a text begins with, as its length and place, and the number of bytes
    /// that were looked at. Each byte leaves a part of the list.
    fn at(&self, text: &[u8]) -> (Option<(usize, usize)>, u32) {
        let mut left = &self.0[..];
        let mut found = None;
        for (depth, byte) in text.iter().enumerate() {
            let from = left.partition_point(|(needle, _)| needle.get(depth) < Some(byte));
            let to = left.partition_point(|(needle, _)| needle.get(depth) <= Some(byte));
            left = &left[from..to];
            match left.first() {
                None => return (found, depth as u32 + 1),
                // The shortest one with this beginning comes first.
                Some((needle, which)) if needle.len() == depth + 1 => {
                    found = Some((depth + 1, *which));
                }
                Some(_) => {}
            }
        }
        (found, text.len() as u32 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_parts() {
        type Of = for<'t> fn(&'t str, &'t str) -> Parts<'t>;
        let cases: &[(Of, &str, &str, &[&str])] = &[
            (tokens, "a b  c", "\t\r\n ", &["a", "b", "c"]),
            (tokens, "a\tb\nc\rd e", "\t\r\n ", &["a", "b", "c", "d", "e"]),
            (tokens, "a,b;c", ",;", &["a", "b", "c"]),
            (tokens, "aé b", "", &["a", "é", " ", "b"]),
            (tokens, ",a,,b,", ",", &["a", "b"]),
            (tokens, "xéyàz", "àé", &["x", "y", "z"]),
            (tokens, "", "", &[]),
            (tokens, "", "x", &[]),
            (split, "a, b, c", ", ", &["a", "b", "c"]),
            (split, "a--b-c", "--", &["a", "b-c"]),
            (split, ",a,,b,", ",", &["a", "b"]),
            (split, "aéb", "", &["a", "é", "b"]),
            (split, "xxxx", "xx", &[]),
            (split, "xxx", "xx", &["x"]),
            (split, "", "", &[]),
        ];
        for (of, text, by, want) in cases {
            assert_eq!(of(text, by).collect::<Vec<_>>(), *want, "{text:?} {by:?}");
        }
    }

    #[test]
    fn paddings() {
        for (length, characters, want) in [
            (5.0, " ", "     "),
            (5.0, "ab", "ababa"),
            (3.0, "abcdef", "abc"),
            (5.0, "", "     "),
            (-3.0, "a", ""),
            (0.9, "a", ""),
            (2.7, "a", "aa"),
            (f64::NAN, "a", ""),
            (f64::NEG_INFINITY, "a", ""),
            (4.0, "éab", "éabé"),
        ] {
            assert_eq!(padding(length, characters), want, "{length} {characters}");
        }
        assert_eq!(padding(1e9, "é").chars().count(), 100_000);
        assert_eq!(padding(f64::INFINITY, "").len(), 100_000);
    }

    #[test]
    fn alignments() {
        for (text, pad, how, want) in [
            ("abc", "-----", "", "abc--"),
            ("abc", "-----", "right", "--abc"),
            ("abc", "-----", "center", "-abc-"),
            ("ab", "-----", "center", "-ab--"),
            ("abc", "-----", "RIGHT", "abc--"),
            ("abcdef", "----", "center", "abcd"),
            ("abcdef", "----", "right", "abcd"),
            ("é", "+++++", "right", "++++é"),
            ("é", "éàüöß", "center", "éàéöß"),
            ("12", "abcdef", "right", "abcd12"),
            ("", "abc", "", "abc"),
            ("abc", "", "", ""),
        ] {
            assert_eq!(align(text, pad, how), want, "{text} {pad} {how}");
        }
    }

    #[test]
    fn parts_of_uris() {
        let text = "a b/c?d=é&f#[]%41%";
        assert_eq!(encoded(text, true), "a%20b%2Fc%3Fd%3D%C3%A9%26f%23%5B%5D%2541%25");
        assert_eq!(encoded(text, false), "a%20b/c?d=%C3%A9&f%23[]%2541%25");
        let text = "-_.!~*'()@:+$,;{}|\\^`<>";
        assert_eq!(encoded(text, true), "-_.!~*'()@%3A%2B%24%2C%3B%7B%7D%7C%5C%5E%60%3C%3E");
        assert_eq!(encoded(text, false), "-_.!~*'()@:+$,;%7B%7D%7C%5C%5E%60%3C%3E");
        for (text, want) in [
            ("a%20b%C3%A9", "a bé"),
            ("a%c3%a9", "aé"),
            ("a%E9", ""),
            ("a%zz%4", "a%zz%4"),
            ("%é%", "%é%"),
            ("a+b", "a+b"),
            ("a%00b", "a"),
            ("%00a", ""),
            ("", ""),
        ] {
            assert_eq!(decoded(text), want, "{text}");
        }
    }

    #[test]
    fn the_longest_needle() {
        let texts = ["ab", "abc", "b", "", "abc", "é"].map(Cow::from);
        let needles = Needles::new(&texts);
        for (text, want) in [
            ("abcd", Some((3, 1))),
            ("abd", Some((2, 0))),
            ("ab", Some((2, 0))),
            ("ac", None),
            ("bc", Some((1, 2))),
            ("éa", Some((2, 5))),
            ("è", None),
            ("", None),
        ] {
            assert_eq!(needles.at(text.as_bytes()).0, want, "{text}");
        }
    }
}
