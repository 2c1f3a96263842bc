//! One directive: its options and fields.

use bytes::Bytes;
use conf::template::Template;
use conf::{ConfError, Node, Word};
use http::cx::Cx;

/// The directives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `more_set_headers`
    Set,
    /// `more_clear_headers`
    Clear,
    /// `more_set_input_headers`
    SetInput,
    /// `more_clear_input_headers`
    ClearInput,
}

impl Kind {
    /// Whether it changes requests.
    pub fn is_input(self) -> bool {
        matches!(self, Kind::SetInput | Kind::ClearInput)
    }

    fn clears(self) -> bool {
        matches!(self, Kind::Clear | Kind::ClearInput)
    }

    /// The options, by letter, and whether they take a value.
    fn option(self, letter: &[u8]) -> Option<bool> {
        match letter {
            b"t" => Some(true),
            b"s" if !self.is_input() => Some(true),
            b"a" if self == Kind::Set => Some(false),
            b"r" if self == Kind::SetInput => Some(false),
            _ => None,
        }
    }
}

/// A field to set or to clear.
pub struct Field {
    pub name: Bytes,
    /// It is the beginning of names (`X-*`).
    pub is_prefix: bool,
    /// The value; where it is empty, the field is cleared.
    pub value: Template,
}

/// One directive.
#[derive(Default)]
pub struct Line {
    /// Content types; empty: all.
    pub types: Vec<Bytes>,
    /// Statuses; empty: all.
    pub statuses: Vec<u16>,
    /// `-a`: fields are added to those that are there.
    pub append: bool,
    /// `-r`: only fields that are there are set.
    pub replace_only: bool,
    /// The fields, in order.
    pub fields: Vec<Field>,
}

impl Line {
    /// Reads a directive.
    ///
    /// # Errors
    /// An option is unknown or lacks its value, a status is no number, or a name no field's.
    pub fn parse(cx: &mut Cx, n: &Node, kind: Kind) -> Result<Line, ConfError> {
        let mut line = Line::default();
        let mut words = n.args.iter();
        while let Some(word) = words.next() {
            let Some(letter) = word.bytes().strip_prefix(b"-") else {
                line.fields.push(field(cx, n, kind, word)?);
                continue;
            };
            let bad = |what: &str| {
                let name = n.name.lossy();
                ConfError::at(word, format!("{what} \"{}\" in \"{name}\"", word.lossy()))
            };
            let takes_value = kind.option(letter).ok_or_else(|| bad("unknown option"))?;
            let value = match takes_value {
                true => Some(words.next().ok_or_else(|| bad("a value is missing behind"))?),
                false => None,
            };
            match (letter, value) {
                (b"t", Some(list)) => line.types.extend(items(list).map(Bytes::copy_from_slice)),
                (_, Some(list)) => {
                    for item in items(list) {
                        line.statuses.push(status(list, item)?);
                    }
                }
                (b"a", None) => line.append = true,
                (_, None) => line.replace_only = true,
            }
        }
        match line.fields.is_empty() {
            true => Err(ConfError::directive(n, "names no field")),
            false => Ok(line),
        }
    }

    /// Whether a content type is on the list; its parameters do not count.
    pub(crate) fn has_type(&self, of: &[u8]) -> bool {
        let media = of.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        self.types.iter().any(|t| base::ascii::eq_ignore_case(t, media))
    }
}

/// The items of a list with spaces between.
fn items(list: &Word) -> impl Iterator<Item = &[u8]> {
    list.bytes().split(u8::is_ascii_whitespace).filter(|item| !item.is_empty())
}

fn status(list: &Word, item: &[u8]) -> Result<u16, ConfError> {
    let number = base::ascii::parse_u64(item).and_then(|n| u16::try_from(n).ok());
    number.filter(|n| (100..1000).contains(n)).ok_or_else(|| {
        let item = base::log::lossy(item);
        ConfError::at(list, format!("invalid status \"{item}\""))
    })
}

/// `Name: value`, `Name:` or `Name`.
fn field(cx: &mut Cx, n: &Node, kind: Kind, word: &Word) -> Result<Field, ConfError> {
    let text = word.bytes();
    let (name, value) = match text.iter().position(|&b| b == b':') {
        Some(at) => (&text[..at], text[at + 1..].trim_ascii_start()),
        None => (text, &b""[..]),
    };
    let name = name.trim_ascii();
    let (name, is_prefix) = match name.strip_suffix(b"*") {
        Some(beginning) if kind.clears() => (beginning, true),
        _ => (name, false),
    };
    let valid = name.iter().all(|&b| b.is_ascii_alphanumeric() || b"!#%&'+-.^_`|~".contains(&b));
    if !valid || (name.is_empty() && !is_prefix) {
        let message = format!("invalid field name \"{}\"", base::log::lossy(text));
        return Err(ConfError::at(word, message));
    }
    if kind.clears() && !value.is_empty() {
        let name = n.name.lossy();
        conf::warn(word, format_args!("\"{name}\" clears the field, whatever its value"));
    }
    let value = match kind.clears() {
        true => Template::constant(Bytes::new()),
        false => cx.template(&Word { text: word.text.slice_ref(value), ..word.clone() })?,
    };
    Ok(Field { name: Bytes::copy_from_slice(name), is_prefix, value })
}
