//! Texts with variables, in which groups of the last regular expression are escaped at times.

use bytes::Bytes;
use conf::template::{Template, VarId, VarNames, VarSource};
use conf::{ConfError, Word};
use http::cx::Cx;
use http::request::Request;
use http::vars::Registry;
use http_wire::uri::{Escape, escape};

/// Groups get numbers of their own, from the end, by which a [`Source`] knows them.
fn group_id(n: u8) -> VarId {
    VarId(u32::MAX - u32::from(n))
}

fn group_of(id: VarId) -> Option<usize> {
    let n = u32::MAX - id.0;
    (n <= 9).then_some(n as usize)
}

struct Names<'a>(&'a mut Registry);

impl VarNames for Names<'_> {
    fn var_id(&mut self, name: &[u8], at: &Word) -> Result<VarId, ConfError> {
        match name {
            [n @ b'1'..=b'9'] => Ok(group_id(n - b'0')),
            _ => self.0.var_id(name, at),
        }
    }

    fn capture_id(&mut self, n: u8) -> VarId {
        group_id(n)
    }
}

/// A text that is evaluated with a [`Source`].
pub(super) struct Value(Template);

impl Value {
    pub fn parse(cx: &mut Cx, word: &Word) -> Result<Value, ConfError> {
        Value::parse_slice(cx, &word.text, word, 0)
    }

    /// The same for a part of `word` that begins `offset` bytes into it.
    pub fn parse_slice(
        cx: &mut Cx,
        text: &Bytes,
        word: &Word,
        offset: usize,
    ) -> Result<Value, ConfError> {
        Template::parse_slice(text, word, offset, &mut Names(&mut cx.vars)).map(Value)
    }

    pub fn as_const(&self) -> Option<&Bytes> {
        self.0.as_const()
    }

    pub fn eval(&self, r: &mut Request, escape: bool) -> Bytes {
        self.0.eval(&mut Source { r, escape })
    }

    pub fn eval_into(&self, r: &mut Request, escape: bool, out: &mut Vec<u8>) {
        self.0.eval_into(&mut Source { r, escape }, out);
    }
}

/// The request's variables. With `escape`, groups are escaped as arguments are: what matched was
/// decoded, and goes where it would be decoded again.
struct Source<'a> {
    r: &'a mut Request,
    escape: bool,
}

impl VarSource for Source<'_> {
    fn value(&mut self, id: VarId) -> Option<Bytes> {
        if group_of(id).is_none() {
            return self.r.var(id);
        }
        let mut out = Vec::new();
        self.write(id, &mut out).then(|| Bytes::from(out))
    }

    fn write(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        let Some(n) = group_of(id) else { return self.r.write_var(id, out) };
        let Some(text) = self.r.capture(n) else { return false };
        if self.escape {
            escape(text, Escape::Args, out);
        } else {
            out.extend_from_slice(text);
        }
        true
    }
}
