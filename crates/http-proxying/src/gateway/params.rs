//! `*_param`: what a gateway is told of a request, and the client's fields as `HTTP_…`.

use std::rc::Rc;

use base::ascii::eq_ignore_case;
use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::template::Template;
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::exchanges::Exchanges;
use http::request::Request;
use http_wire::h1::{Field, FieldId};
use proto::params::Notation;

use super::Parameterised;

/// One parameter.
#[derive(Clone)]
pub struct Param {
    name: Bytes,
    value: Template,
    /// Left out where its value is empty.
    if_not_empty: bool,
}

/// The parameters of one level, in order. A level that has some inherits none.
pub type List = Option<Rc<Vec<Param>>>;

/// The directive `*_param NAME VALUE [if_not_empty]` of a gateway.
pub const fn param<G: Parameterised>(name: &'static str) -> Directive<Cx> {
    let doc = "Sets a request parameter; a level with any of its own inherits none.";
    directive(name, HSL, Args::T23, "", doc, set::<G>)
}

fn set<G: Parameterised>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let if_not_empty = match n.args.get(2) {
        None => false,
        Some(w) if w.bytes() == b"if_not_empty" => true,
        Some(w) => return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
    };
    let value = cx.template_for_servers(n.arg(1)?)?;
    let param = Param { name: n.arg(0)?.text.clone(), value, if_not_empty };
    Rc::make_mut(cx.loc::<G>().common().params.get_or_insert_default()).push(param);
    Ok(())
}

/// The prefix of the names of the client's fields.
const HTTP: &[u8] = b"HTTP_";

/// A part of what is written for the parameters of a location.
enum Piece {
    /// Parameters with values of the configuration.
    Const(Vec<u8>),
    /// A parameter with a value of the request.
    Value {
        /// The name in the gateway's notation, without the value's length.
        head: Bytes,
        /// The length of the name.
        len: usize,
        value: Template,
        if_not_empty: bool,
    },
}

/// The parameters of a location, ready to be written.
pub struct Params {
    notation: Notation,
    pieces: Vec<Piece>,
    /// Fields that a parameter stands for, whatever the client sent: names behind `HTTP_`.
    own: Vec<Bytes>,
    pass_fields: bool,
}

impl Params {
    /// `defaults` are added where no parameter has their name; empty ones among them, and empty
    /// `HTTP_…` of the configuration, only keep the client's field from being passed on.
    pub fn new(
        notation: Notation,
        list: &List,
        defaults: &[(&'static str, Template)],
        pass_fields: bool,
    ) -> Params {
        let mut all = list.as_deref().cloned().unwrap_or_default();
        for (name, value) in defaults {
            if !all.iter().any(|p| eq_ignore_case(&p.name, name.as_bytes())) {
                let name = Bytes::from_static(name.as_bytes());
                all.push(Param { name, value: value.clone(), if_not_empty: true });
            }
        }
        let field = |p: &Param| p.name.starts_with(HTTP) && p.name.len() > HTTP.len();
        let own = all.iter().filter(|p| field(p)).map(|p| p.name.slice(HTTP.len()..)).collect();
        all.retain(|p| !(field(p) && p.value.as_const().is_some_and(Bytes::is_empty)));
        Params { notation, pieces: pieces(notation, all), own, pass_fields }
    }

    /// Writes all of them behind what `out` holds.
    pub fn write(&self, r: &mut Request, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Const(text) => out.extend_from_slice(text),
                Piece::Value { head, len, value, if_not_empty } => {
                    let before = out.len();
                    out.extend_from_slice(head);
                    let param = self.notation.named(*len, out);
                    value.eval_into(r, out);
                    if *if_not_empty && param.is_empty(out) {
                        out.truncate(before);
                    } else {
                        param.end(out);
                    }
                }
            }
        }
        let kept = r.upstream().is_some_and(Exchanges::is_cacheable);
        if kept {
            self.write_validators(r, self.notation, out);
        }
        if self.pass_fields {
            self.write_fields(r, self.notation, kept, out);
        }
    }

    /// Writes the conditions that validate a cached response.
    fn write_validators(&self, r: &Request, notation: Notation, out: &mut Vec<u8>) {
        let (changed, tag) = r.cached_validators();
        let changed = changed.map(base::time::format_http_date);
        let given = |name: &[u8]| self.own.iter().any(|o| o == name);
        let mut add = |name: &[u8], value: Option<&[u8]>| {
            if let Some(value) = value.filter(|_| !given(name)) {
                let param = notation.name(HTTP.len() + name.len(), out, |out| {
                    out.extend_from_slice(HTTP);
                    out.extend_from_slice(name);
                });
                out.extend_from_slice(value);
                param.end(out);
            }
        };
        add(b"IF_MODIFIED_SINCE", changed.as_ref().map(|date| &date[..]));
        add(b"IF_NONE_MATCH", tag.map(|tag| &tag[..]));
    }

    /// The client's fields; those of one name are joined. `kept`: the response may be kept.
    fn write_fields(&self, r: &Request, notation: Notation, kept: bool, out: &mut Vec<u8>) {
        let bytes = r.head_bytes();
        let fields = &r.head.fields;
        for (i, f) in fields.iter().enumerate() {
            let name = f.name.of(bytes);
            let passed = |f: &&Field| !f.dropped;
            let same = |g: &&Field| g.id == f.id && eq_ignore_case(g.name.of(bytes), name);
            let many = f.id == FieldId::Other || r.head.fields.all(f.id).nth(1).is_some();
            if !passed(&f)
                || self.own.iter().any(|o| stands_for(o, name))
                || kept && is_of_parts(f.id)
            {
                continue;
            }
            if many && fields[..i].iter().filter(passed).any(|g| same(&g)) {
                continue;
            }
            let param = notation.name(HTTP.len() + name.len(), out, |out| {
                out.extend_from_slice(HTTP);
                out.extend(name.iter().map(|b| match b {
                    b'-' => b'_',
                    b => b.to_ascii_uppercase(),
                }));
            });
            out.extend_from_slice(f.value.of(bytes));
            if many {
                let separator: &[u8] = if f.id == FieldId::Cookie { b"; " } else { b", " };
                for g in fields[i + 1..].iter().filter(passed).filter(same) {
                    out.extend_from_slice(separator);
                    out.extend_from_slice(g.value.of(bytes));
                }
            }
            param.end(out);
        }
    }
}

/// What is written for parameters, in their order.
fn pieces(notation: Notation, list: Vec<Param>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for Param { name, value, if_not_empty } in list {
        let mut text = Vec::new();
        let param = notation.name(name.len(), &mut text, |out| out.extend_from_slice(&name));
        match value.as_const() {
            Some(value) if value.is_empty() && if_not_empty => {}
            Some(value) => {
                text.extend_from_slice(value);
                param.end(&mut text);
                match pieces.last_mut() {
                    Some(Piece::Const(before)) => before.append(&mut text),
                    _ => pieces.push(Piece::Const(text)),
                }
            }
            None => {
                let (head, len) = (text.into(), name.len());
                pieces.push(Piece::Value { head, len, value, if_not_empty });
            }
        }
    }
    pieces
}

/// Whether a field makes a response another one than the whole, which is what a cache keeps.
fn is_of_parts(id: FieldId) -> bool {
    matches!(
        id,
        FieldId::IfModifiedSince
            | FieldId::IfUnmodifiedSince
            | FieldId::IfNoneMatch
            | FieldId::IfMatch
            | FieldId::Range
            | FieldId::IfRange
    )
}

/// Whether the name of a parameter, behind `HTTP_`, is that of a field.
fn stands_for(own: &[u8], field: &[u8]) -> bool {
    own.len() == field.len()
        && own.iter().zip(field).all(|(o, f)| match f {
            b'-' => *o == b'_',
            f => f.eq_ignore_ascii_case(o),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Template {
        Template::constant(Bytes::from_static(text.as_bytes()))
    }

    fn param(name: &'static str, value: &'static str) -> Param {
        Param { name: Bytes::from_static(name.as_bytes()), value: text(value), if_not_empty: false }
    }

    fn constant(piece: &Piece) -> &[u8] {
        match piece {
            Piece::Const(text) => text,
            Piece::Value { .. } => panic!("it has a value of the request"),
        }
    }

    #[test]
    fn defaults_and_fields_that_are_replaced() {
        let list = Some(Rc::new(vec![
            param("A", ""),
            param("HTTP_X_Y", "1"),
            param("HTTP_GONE", ""),
            param("HTTP_", ""),
        ]));
        let defaults = [("HTTP_HOST", text("h")), ("a", text("no")), ("B", text(""))];
        let params = Params::new(Notation::Scgi, &list, &defaults, true);
        let written: Vec<u8> = params.pieces.iter().flat_map(constant).copied().collect();
        assert_eq!(written, b"A\0\0HTTP_X_Y\x001\0HTTP_\0\0HTTP_HOST\0h\0");
        assert_eq!(
            (params.pieces.len(), &params.own[..]),
            (1, &["X_Y", "GONE", "HOST"].map(Bytes::from)[..])
        );
        let own = Some(Rc::new(vec![param("http_host", "mine")]));
        let params = Params::new(Notation::FastCgi, &own, &[("HTTP_HOST", text("h"))], true);
        assert_eq!(constant(&params.pieces[0]), b"\x09\x04http_hostmine");
        assert_eq!((params.pieces.len(), params.own.len()), (1, 0));
    }

    #[test]
    fn names_of_fields() {
        assert!(stands_for(b"X_Y", b"x-y"));
        assert!(stands_for(b"x_y", b"X_Y"));
        assert!(!stands_for(b"X-Y", b"x-y"));
        assert!(!stands_for(b"X", b"x-y"));
    }
}
