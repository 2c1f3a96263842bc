//! Variables of a request's token. Claims are those of a token that was checked: where nothing has
//! checked it yet, reading one does, so that no claim of a forged token is ever a value.
//! Members of the header are what the client sent, because keys may be chosen by them.

use std::rc::Rc;

use bytes::Bytes;
use conf::{ConfError, Node};
use http::cx::Cx;
use http::request::Request;
use http::vars::VarDef;
use jose::KeySet;
use serde_json::{Map, Value};

use super::check::{self, Accepted, Outcome};
use super::{JwtConf, TokenType, known};
use crate::limit_auth::{self, Proof};

pub(super) static VARIABLES: &[VarDef] = &[
    VarDef::prefix("jwt_header_", |r, name, out| {
        header(r).is_some_and(|header| write(member(&header, name), out))
    }),
    VarDef::prefix("jwt_claim_", |r, name, out| {
        accepted(r).is_some_and(|token| write(member(&token.claims, name), out))
    }),
    VarDef::new("jwt_payload", |r, out| match accepted(r).as_deref() {
        Some(Accepted { payload: Some(payload), .. }) => {
            out.extend_from_slice(payload);
            true
        }
        _ => false,
    }),
];

/// `auth_jwt_claim_set`.
pub(super) fn claim_set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let names = names(n)?;
    let value = Rc::new(move |r: &mut Request| {
        let token = accepted(r)?;
        text(find(&token.claims, &names))
    });
    cx.vars.define_value(n.arg(0)?, true, value)?;
    Ok(())
}

/// `auth_jwt_header_set`.
pub(super) fn header_set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let names = names(n)?;
    let value = Rc::new(move |r: &mut Request| text(find(&header(r)?, &names)));
    cx.vars.define_value(n.arg(0)?, true, value)?;
    Ok(())
}

fn names(n: &Node) -> Result<Vec<String>, ConfError> {
    let names = n.args[1..].iter().map(|word| match std::str::from_utf8(word.bytes()) {
        Ok(name) => Ok(name.to_owned()),
        Err(_) => Err(ConfError::at(word, "a name of JSON has to be UTF-8")),
    });
    names.collect()
}

/// The header of the location's token, unless the token was refused.
fn header(r: &mut Request) -> Option<Map<String, Value>> {
    let loc = r.loc.clone();
    let conf = loc.confs.get::<JwtConf>().filter(|conf| conf.is_on())?;
    if matches!(check::outcome(r), Outcome::Refused) {
        return None;
    }
    let token = check::token(r, conf)?;
    jose::parse_header(&token, jose::Limits::default()).ok()
}

/// The location's token, if it is accepted. Before the access phase, only signed tokens can be
/// checked, with keys that need not be read.
fn accepted(r: &mut Request) -> Option<Rc<Accepted>> {
    match check::outcome(r) {
        Outcome::Accepted(token) => return Some(token.clone()),
        Outcome::Refused => return None,
        Outcome::Unknown => {}
    }
    let loc = r.loc.clone();
    let conf = loc.confs.get::<JwtConf>()?;
    if conf.reads_session() {
        let session = crate::auth_oidc::session(r)?;
        let token = Rc::new(Accepted { claims: session.claims.clone(), payload: None });
        *check::outcome(r) = Outcome::Accepted(token.clone());
        return Some(token);
    }
    if !conf.is_on() {
        return None;
    }
    let has_files_alone = !conf.files().is_empty() && conf.requests().is_empty();
    if conf.token_type() != TokenType::Signed || !has_files_alone {
        return None;
    }
    let sets: Option<Vec<_>> = conf.files().iter().map(|file| file.fixed()).collect();
    let keys = KeySet::merged(&sets?).ok()?;
    if check::is_costly(conf.token_type(), &keys) {
        return None;
    }
    let token = check::token(r, conf)?;
    limit_auth::admit(r, Proof::Token).ok()?;
    let leeway_s = conf.leeway_s.unwrap_or(0);
    let result = known::check(&token, &keys, TokenType::Signed, leeway_s);
    let (outcome, token) = match result {
        Ok(token) => (Outcome::Accepted(token.clone()), Some(token)),
        Err(e) => {
            // The access phase, if the request gets there, responds to a failure that is too many.
            let _ = check::is_guess(e).then(|| limit_auth::failed(r, Proof::Token));
            (Outcome::Refused, None)
        }
    };
    *check::outcome(r) = outcome;
    token
}

/// A member by the name of a variable. Those are in lower case, so that a member whose name has
/// others is found if it is the only one.
pub(crate) fn member<'a>(of: &'a Map<String, Value>, name: &[u8]) -> Option<&'a Value> {
    let name = std::str::from_utf8(name).ok()?;
    if let Some(value) = of.get(name) {
        return Some(value);
    }
    let mut similar = of.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    match (similar.next(), similar.next()) {
        (Some((_, value)), None) => Some(value),
        _ => None,
    }
}

fn find<'a>(of: &'a Map<String, Value>, names: &[String]) -> Option<&'a Value> {
    let (first, rest) = names.split_first()?;
    rest.iter().try_fold(of.get(first)?, |value, name| value.as_object()?.get(name))
}

fn text(value: Option<&Value>) -> Option<Bytes> {
    let mut out = Vec::new();
    write(value, &mut out).then(|| Bytes::from(out))
}

/// A string as it is, a list with commas, anything else as JSON. Null is no value.
pub(crate) fn write(value: Option<&Value>, out: &mut Vec<u8>) -> bool {
    match value {
        None | Some(Value::Null) => return false,
        Some(Value::String(text)) => out.extend_from_slice(text.as_bytes()),
        Some(Value::Array(values)) => {
            for (i, value) in values.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                match value {
                    Value::String(text) => out.extend_from_slice(text.as_bytes()),
                    other => out.extend_from_slice(other.to_string().as_bytes()),
                }
            }
        }
        Some(other) => out.extend_from_slice(other.to_string().as_bytes()),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{find, member, text};
    use serde_json::{Map, Value, json};

    fn claims() -> Map<String, Value> {
        let claims = json!({
            "sub": "a", "Name": "b", "x": 1, "X": 2, "aud": ["p", "q", 3], "n": 1.5, "no": null,
            "yes": true, "info": {"job title": "c", "deep": {"er": ["d"]}}, "a.b": "e",
        });
        claims.as_object().unwrap().clone()
    }

    #[test]
    fn members_by_the_names_of_variables() {
        let claims = claims();
        let of = |name: &str| {
            text(member(&claims, name.as_bytes())).map(|t| String::from_utf8(t.to_vec()).unwrap())
        };
        for (name, value) in [
            ("sub", "a"),
            ("name", "b"),
            ("x", "1"),
            ("aud", "p,q,3"),
            ("n", "1.5"),
            ("yes", "true"),
        ] {
            assert_eq!(of(name).as_deref(), Some(value), "{name}");
        }
        for name in ["no", "none", ""] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn members_by_paths() {
        let of = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            text(find(&claims(), &names)).map(|t| String::from_utf8(t.to_vec()).unwrap())
        };
        assert_eq!(of(&["info", "job title"]).as_deref(), Some("c"));
        assert_eq!(of(&["info", "deep", "er"]).as_deref(), Some("d"));
        assert_eq!(of(&["a.b"]).as_deref(), Some("e"));
        assert_eq!(of(&["name"]), None);
        assert_eq!(of(&["sub", "x"]), None);
    }
}
