//! LDAP: the messages of a server, URLs, and the text of filters.

use proto::ldap::response::parse;
use proto::ldap::{Filter, MESSAGE_MAX, Parsed, Url, escape, request};

/// Every beginning of a message needs more bytes, up to those of the whole, or gives the result of
/// the whole. A value that is escaped in the text of a filter is that value, whatever bytes it has,
/// and no other filter. Requests of any values are one message.
pub fn run(data: &[u8]) {
    let whole = parse(data);
    for len in 0..data.len().min(300) {
        match parse(&data[..len]) {
            Parsed::Incomplete(needed) => {
                assert!(needed > len && needed <= MESSAGE_MAX + 6);
                if let Parsed::Message(len, _) = &whole {
                    assert!(needed <= *len);
                }
            }
            part => assert_eq!(part, whole, "at {len}"),
        }
    }
    if let Parsed::Message(len, _) = whole {
        assert!(len <= data.len());
    }
    let text = format!("(&(uid={})(a=b))", escape(data));
    let both = Filter::equals(b"uid", data).and(&Filter::equals(b"a", b"b"));
    assert_eq!(Filter::parse(text.as_bytes()), Ok(both));
    for filter in [
        Filter::parse(data),
        Url::parse(data).map(|url| url.filter).map_or(Err(""), |filter| filter.ok_or("")),
    ] {
        // Its binary form is one element: a server reads one filter, however it was written.
        let Ok(filter) = filter else { continue };
        assert_eq!(element(filter.bytes()), Some(filter.bytes().len()));
    }
    let (name, password) = data.split_at(data.len() / 2);
    match request::bind(7, name, password) {
        Some(message) => assert_eq!(element(&message), Some(message.len())),
        None => assert!(password.is_empty() && !name.is_empty()),
    }
}

/// The length of the element at the beginning.
fn element(bytes: &[u8]) -> Option<usize> {
    let first = usize::from(*bytes.get(1)?);
    if first < 0x80 {
        return Some(2 + first);
    }
    let more = first & 0x7f;
    let len = bytes.get(2..2 + more)?;
    Some(2 + more + len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)))
}
