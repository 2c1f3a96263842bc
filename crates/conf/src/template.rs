//! Text with variables: `"$scheme://${host}$1"`, compiled at load and evaluated per request.
//!
//! A text without variables is a constant, which costs a request a reference count and no memory; a
//! text of one variable costs no more than the variable.

use std::cell::Cell;

use bytes::Bytes;

use crate::{ConfError, Word};

/// A variable, numbered by the owner of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VarId(pub u32);

/// Numbers the variables that a template names.
pub trait VarNames {
    /// The number of `$name`. The name is not empty and consists of letters, digits and `_`.
    ///
    /// # Errors
    ///
    /// A name that is impossible there. A name that may yet be defined further down is no error
    /// here: nginx checks at the end of the block.
    fn var_id(&mut self, name: &[u8], at: &Word) -> Result<VarId, ConfError>;

    /// The number of `$1` to `$9`, the groups of the last regular expression that matched.
    fn capture_id(&mut self, group: u8) -> VarId;
}

/// Gives variables their values.
pub trait VarSource {
    /// The value; `None` when the variable has none, which reads as empty.
    fn value(&mut self, id: VarId) -> Option<Bytes>;

    /// Appends the value to `out`; `false` when the variable has none. For sources that can write
    /// some values without making `Bytes` of them first.
    fn write(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        match self.value(id) {
            Some(value) => {
                out.extend_from_slice(&value);
                true
            }
            None => false,
        }
    }
}

/// A part of a text.
#[derive(Clone, Debug)]
pub enum Part {
    /// Literal text.
    Text(Bytes),
    /// The value of a variable.
    Var(VarId),
}

/// A compiled text.
#[derive(Clone, Debug)]
pub struct Template(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Const(Bytes),
    Var(VarId),
    Parts(Box<[Part]>),
}

thread_local! {
    /// Where texts of several parts grow. Taken out while in use: the value of a variable may come
    /// from another template.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A scratch buffer larger than this is freed.
const SCRATCH_BYTES_MAX: usize = 16 * 1024;

impl Template {
    /// A text without variables.
    pub const fn constant(text: Bytes) -> Template {
        Template(Kind::Const(text))
    }

    /// Compiles an argument.
    ///
    /// # Errors
    ///
    /// `invalid variable name` for a `$` without a name, `the closing bracket in "name" variable is
    /// missing`, and those of `names`.
    pub fn parse(word: &Word, names: &mut dyn VarNames) -> Result<Template, ConfError> {
        Template::parse_slice(&word.text, word, 0, names)
    }

    /// Compiles `text`, a part of an argument that begins `offset` bytes into `word`.
    ///
    /// # Errors
    ///
    /// As [`parse`](Template::parse).
    pub fn parse_slice(
        text: &Bytes,
        word: &Word,
        offset: usize,
        names: &mut dyn VarNames,
    ) -> Result<Template, ConfError> {
        let Some(first) = memchr::memchr(b'$', text) else {
            return Ok(Template::constant(text.clone()));
        };
        let mut parts = Vec::new();
        let mut at = first;
        let mut literal = 0;
        loop {
            if literal < at {
                parts.push(Part::Text(text.slice(literal..at)));
            }
            let (len, name) = variable(&text[at..])
                .map_err(|(len, message)| ConfError::within(word, offset + at, len, message))?;
            parts.push(Part::Var(match name {
                Name::Group(group) => names.capture_id(group),
                Name::Named(name) => names.var_id(name, word)?,
            }));
            literal = at + len;
            match memchr::memchr(b'$', &text[literal..]) {
                Some(next) => at = literal + next,
                None => break,
            }
        }
        if literal < text.len() {
            parts.push(Part::Text(text.slice(literal..)));
        }
        Ok(match parts[..] {
            [Part::Var(id)] => Template(Kind::Var(id)),
            _ => Template(Kind::Parts(parts.into())),
        })
    }

    /// The text, if it has no variables.
    #[inline]
    pub fn as_const(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Const(text) => Some(text),
            _ => None,
        }
    }

    /// Its variables, in order, as often as they stand there.
    pub fn vars(&self) -> impl Iterator<Item = VarId> {
        let (one, parts): (_, &[Part]) = match &self.0 {
            Kind::Const(_) => (None, &[]),
            Kind::Var(id) => (Some(*id), &[]),
            Kind::Parts(parts) => (None, parts),
        };
        one.into_iter().chain(parts.iter().filter_map(|part| match part {
            Part::Var(id) => Some(*id),
            Part::Text(_) => None,
        }))
    }

    /// Its text for one request. Allocates only when there is more than one part.
    #[inline]
    pub fn eval(&self, source: &mut (impl VarSource + ?Sized)) -> Bytes {
        match &self.0 {
            Kind::Const(text) => text.clone(),
            Kind::Var(id) => source.value(*id).unwrap_or_default(),
            Kind::Parts(parts) => {
                let mut scratch = SCRATCH.take();
                scratch.clear();
                append(parts, source, &mut scratch);
                let text = Bytes::copy_from_slice(&scratch);
                if scratch.capacity() <= SCRATCH_BYTES_MAX {
                    SCRATCH.set(scratch);
                }
                text
            }
        }
    }

    /// Appends its text for one request to `out`.
    #[inline]
    pub fn eval_into(&self, source: &mut (impl VarSource + ?Sized), out: &mut Vec<u8>) {
        match &self.0 {
            Kind::Const(text) => out.extend_from_slice(text),
            Kind::Var(id) => drop(source.write(*id, out)),
            Kind::Parts(parts) => append(parts, source, out),
        }
    }
}

fn append(parts: &[Part], source: &mut (impl VarSource + ?Sized), out: &mut Vec<u8>) {
    for part in parts {
        match part {
            Part::Text(text) => out.extend_from_slice(text),
            Part::Var(id) => drop(source.write(*id, out)),
        }
    }
}

enum Name<'a> {
    Group(u8),
    Named(&'a [u8]),
}

/// Reads the variable at the `$` that begins `text`: its length and name, or the length of the
/// faulty part and the error.
fn variable(text: &[u8]) -> Result<(usize, Name<'_>), (usize, String)> {
    let (open, bracket) = match text.get(1) {
        Some(group @ b'1'..=b'9') => return Ok((2, Name::Group(group - b'0'))),
        Some(b'{') => (2, true),
        _ => (1, false),
    };
    let rest = &text[open..];
    let len = rest
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
        .unwrap_or(rest.len());
    let name = &rest[..len];
    let invalid = (open + len, "invalid variable name".to_owned());
    if bracket {
        if rest.is_empty() {
            return Err(invalid);
        }
        if rest.get(len) != Some(&b'}') {
            let name = String::from_utf8_lossy(name);
            let message = format!("the closing bracket in \"{name}\" variable is missing");
            return Err((open + len, message));
        }
    }
    if name.is_empty() {
        return Err(invalid);
    }
    Ok((open + len + usize::from(bracket), Name::Named(name)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Pos;

    struct Vars(Vec<String>);

    impl VarNames for Vars {
        fn var_id(&mut self, name: &[u8], at: &Word) -> Result<VarId, ConfError> {
            let name = String::from_utf8_lossy(name).into_owned();
            if name == "refused" {
                return Err(ConfError::at(at, "refused"));
            }
            self.0.push(name);
            Ok(VarId(self.0.len() as u32 - 1))
        }

        fn capture_id(&mut self, group: u8) -> VarId {
            VarId(100 + u32::from(group))
        }
    }

    impl VarSource for Vars {
        fn value(&mut self, id: VarId) -> Option<Bytes> {
            match id.0 {
                group @ 100.. => Some(Bytes::from(format!("<group {}>", group - 100))),
                id => match &self.0[id as usize][..] {
                    "nothing" => None,
                    "nested" => Some(Bytes::from(eval("a${x}b"))),
                    name => Some(Bytes::from(format!("<{name}>"))),
                },
            }
        }
    }

    fn word(text: &str) -> Word {
        let pos = Pos { file: Path::new("t").into(), line: 1, column: 5 };
        Word { text: Bytes::copy_from_slice(text.as_bytes()), pos, quoted: false }
    }

    fn eval(text: &str) -> String {
        let mut vars = Vars(Vec::new());
        let template = Template::parse(&word(text), &mut vars).unwrap();
        let mut out = b"+".to_vec();
        template.eval_into(&mut vars, &mut out);
        let value = template.eval(&mut vars);
        assert_eq!(&out[1..], value);
        String::from_utf8(value.to_vec()).unwrap()
    }

    #[test]
    fn texts_with_variables() {
        assert_eq!(eval(""), "");
        assert_eq!(eval("plain"), "plain");
        assert_eq!(eval("$uri"), "<uri>");
        assert_eq!(eval("$uri$args"), "<uri><args>");
        assert_eq!(eval("a${uri}b"), "a<uri>b");
        assert_eq!(eval("$uri-x"), "<uri>-x");
        assert_eq!(eval("$http_X9-$nothing."), "<http_X9>-.");
        assert_eq!(eval("$1x$10"), "<group 1>x<group 1>0");
        assert_eq!(eval("$0"), "<0>");
        assert_eq!(eval("é$uri"), "é<uri>");
        assert_eq!(eval("${1}"), "<1>");
    }

    #[test]
    fn a_value_may_come_from_another_template() {
        assert_eq!(eval("[$nested]"), "[a<x>b]");
    }

    #[test]
    fn a_constant_shares_its_memory() {
        let word = word("constant");
        let template = Template::parse(&word, &mut Vars(Vec::new())).unwrap();
        assert_eq!(template.as_const().map(|text| text.as_ptr()), Some(word.text.as_ptr()));
        let value = template.eval(&mut Vars(Vec::new()));
        assert_eq!(value.as_ptr(), word.text.as_ptr());
    }

    #[test]
    fn variables_are_listed() {
        let mut names = Vars(Vec::new());
        let template = Template::parse(&word("a$b$c$1"), &mut names).unwrap();
        assert_eq!(template.vars().collect::<Vec<_>>(), [VarId(0), VarId(1), VarId(101)]);
        assert_eq!(Template::parse(&word("$x"), &mut names).unwrap().vars().count(), 1);
        assert_eq!(Template::constant(Bytes::new()).vars().count(), 0);
    }

    #[test]
    fn broken_variables() {
        let message = |text: &str| {
            let error = Template::parse(&word(text), &mut Vars(Vec::new())).unwrap_err();
            (error.to_string(), error.pos.unwrap().column)
        };
        let invalid = "invalid variable name in t:1".to_owned();
        assert_eq!(message("$"), (invalid.clone(), 5));
        assert_eq!(message("ab$"), (invalid.clone(), 7));
        assert_eq!(message("a$-"), (invalid.clone(), 6));
        assert_eq!(message("$$"), (invalid.clone(), 5));
        assert_eq!(message("${}"), (invalid.clone(), 5));
        assert_eq!(message("x${"), (invalid, 6));
        let missing = "the closing bracket in \"ab\" variable is missing in t:1".to_owned();
        assert_eq!(message("${ab"), (missing.clone(), 5));
        assert_eq!(message("${ab-}"), (missing, 5));
        assert_eq!(message("$refused").0, "refused in t:1");
    }
}
