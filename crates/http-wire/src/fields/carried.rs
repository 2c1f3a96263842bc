//! The head of a request over HTTP/2 as a list of fields, for another process that continues with
//! the request.

use super::request::{Asked, HeadBuilder, as_upgrade};
use super::{iter, write};
use crate::h1::{FieldId, Head, Limits, TargetForm, Version};

/// The field whose value is made here: clients of HTTP/2 send none.
const KEY: &[u8] = b"sec-websocket-key";

/// Writes the fields of a head as a client would send them; `text` is what its spans point into.
/// Heads do not keep the scheme, which is `scheme`.
pub fn list(head: &Head, text: &[u8], scheme: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let is_websocket = head.connection.upgrade;
    let method = if is_websocket { b"CONNECT" } else { head.method_name.of(text) };
    write(&mut out, b":method", method);
    if head.form != TargetForm::Authority {
        write(&mut out, b":scheme", scheme);
        write(&mut out, b":path", head.target.of(text));
    }
    if let Some(host) = head.fields.iter().find(|field| field.id == FieldId::Host) {
        write(&mut out, b":authority", host.value.of(text));
    }
    if is_websocket {
        write(&mut out, b":protocol", super::websocket::NAME);
    }
    for field in &head.fields {
        match field.id {
            FieldId::Host => {}
            // They came of the protocol's name.
            FieldId::Connection | FieldId::Upgrade if is_websocket => {}
            _ => write(&mut out, field.name.of(text), field.value.of(text)),
        }
    }
    out
}

/// Makes the head of such a list; its text goes to the end of `text`, which is empty. `None` if the
/// fields make no head of a tunnel.
pub fn resume(list: &[u8], head: &mut Head, text: &mut Vec<u8>, limits: &Limits) -> Option<()> {
    let is_websocket = iter(list).any(|(name, _)| name == b":protocol");
    let mut key = None;
    let mut builder = HeadBuilder::new(head, text, limits, Version::HTTP_20);
    for (name, value) in iter(list) {
        match name {
            KEY if is_websocket => key = Some(value),
            _ => builder.field(name, value),
        }
    }
    match builder.finish(false) {
        Ok(Asked::Nothing) => {}
        Ok(Asked::WebSocket) => as_upgrade(head, text, key?),
        Ok(Asked::Unknown) | Err(_) => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::Method;

    fn made(fields: &[(&str, &str)]) -> (Head, Vec<u8>) {
        let (mut head, mut text) = (Head::default(), Vec::new());
        let limits = Limits::default();
        let mut builder = HeadBuilder::new(&mut head, &mut text, &limits, Version::HTTP_20);
        fields.iter().for_each(|(name, value)| builder.field(name.as_bytes(), value.as_bytes()));
        if builder.finish(false) == Ok(Asked::WebSocket) {
            as_upgrade(&mut head, &mut text, b"a key");
        }
        (head, text)
    }

    /// The parts of a head that others look at.
    fn parts(head: &Head, text: &[u8]) -> Vec<Vec<u8>> {
        let fields = head.fields.iter().map(|f| [f.name.of(text), b"=", f.value.of(text)].concat());
        let spans = [head.line, head.method_name, head.target, head.path, head.args];
        let spans = spans.into_iter().map(|span| span.of(text).to_vec());
        let host = head.host.map(|host| host.name.of(text).to_vec());
        spans.chain(host).chain(fields).collect()
    }

    #[test]
    fn a_head_is_made_again() {
        let websocket = [
            (":method", "CONNECT"),
            (":scheme", "https"),
            (":path", "/chat?a=1"),
            (":authority", "A.example:444"),
            (":protocol", "websocket"),
            ("sec-websocket-version", "13"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("x-empty", ""),
        ];
        let connect = [(":method", "CONNECT"), (":authority", "b:22"), ("x-a", "1")];
        for fields in [&websocket[..], &connect[..]] {
            let (head, text) = made(fields);
            let (mut again, mut text_again) = (Head::default(), Vec::new());
            let list = list(&head, &text, b"https");
            let made = resume(&list, &mut again, &mut text_again, &Limits::default());
            assert_eq!(made, Some(()));
            assert_eq!(parts(&again, &text_again), parts(&head, &text));
            assert_eq!((again.method, again.version), (head.method, head.version));
            assert_eq!(again.connection, head.connection);
            assert_eq!((again.form, again.has_body()), (head.form, head.has_body()));
        }
        assert_eq!(made(&websocket).0.method, Method::Get);
    }

    #[test]
    fn other_fields_make_no_head() {
        let made = |fields: &[(&[u8], &[u8])]| {
            let mut list = Vec::new();
            fields.iter().for_each(|(name, value)| write(&mut list, name, value));
            resume(&list, &mut Head::default(), &mut Vec::new(), &Limits::default())
        };
        assert_eq!(made(&[]), None);
        assert_eq!(made(&[(b":method", b"CONNECT")]), None);
        let mut all: Vec<(&[u8], &[u8])> = vec![
            (b":method", b"CONNECT"),
            (b":scheme", b"http"),
            (b":path", b"/"),
            (b":authority", b"a"),
            (b":protocol", b"websocket"),
        ];
        assert_eq!(made(&all), None, "without a key");
        all.push((KEY, b"k"));
        assert_eq!(made(&all), Some(()));
        all[4].1 = b"other";
        assert_eq!(made(&all), None);
    }
}
