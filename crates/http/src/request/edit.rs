//! Changes to the fields of a request's head, for modules that set or clear them.

use http_wire::h1::{Field, FieldId, Span};
use http_wire::uri::validate_host;

use super::Request;

/// One change.
#[derive(Clone, Copy, Debug)]
pub struct FieldEdit<'a> {
    /// The name, or with `is_prefix` the beginning of names.
    pub name: &'a [u8],
    /// See `name`; of use where fields are cleared.
    pub is_prefix: bool,
    /// The value; empty: the fields are cleared.
    pub value: &'a [u8],
    /// A field that is not there stays away.
    pub replace_only: bool,
}

impl Request {
    /// Sets a field of the request: the first of its name gets the value, others go. Variables,
    /// handlers and upstreams see the result, `$host` included. The server stays the one chosen by
    /// the client's host, and the framing of the connection and of the body that of the client's
    /// fields.
    pub fn edit_header(&mut self, edit: FieldEdit<'_>) {
        let is = |name: &[u8]| match edit.is_prefix {
            true => base::ascii::starts_with_ignore_case(name, edit.name),
            false => base::ascii::eq_ignore_case(name, edit.name),
        };
        let text = self.head_bytes();
        let named = |f: &Field| !f.dropped && is(f.name.of(text));
        let found = self.head.fields.iter().any(named);
        if !found && (edit.value.is_empty() || edit.replace_only) {
            return;
        }
        let mut left: Vec<Field> = Vec::with_capacity(self.head.fields.len() + 1);
        let mut place = None;
        for field in &self.head.fields {
            if !named(field) {
                left.push(*field);
            } else if place.is_none() {
                place = Some(left.len());
            }
        }
        if edit.value.is_empty() {
            self.head.fields.replace(left);
            if is(b"host") {
                self.set_host(b"");
            }
            return;
        }
        let field = self.append_field(edit.name, edit.value);
        // The index of fields is a u16.
        if left.len() < usize::from(u16::MAX) {
            left.insert(place.unwrap_or(left.len()), field);
        }
        self.head.fields.replace(left);
        if field.id == FieldId::Host {
            self.set_host(edit.value);
        }
    }

    /// Adds the text of a field to the head's; spans of other fields stay valid.
    fn append_field(&mut self, name: &[u8], value: &[u8]) -> Field {
        if self.target.edited_head.is_empty() {
            let text = self.client.channel.head_only().to_vec();
            self.target.edited_head = text;
        }
        let mut span = |text: &[u8]| {
            let start = self.target.edited_head.len();
            http_wire::h1::write_value(&mut self.target.edited_head, text);
            Span { start: start as u32, end: self.target.edited_head.len() as u32 }
        };
        let (name_span, value) = (span(name), span(value));
        Field {
            name: name_span,
            value,
            id: FieldId::lookup(name),
            invalid: false,
            dropped: false,
            ignored: false,
        }
    }

    /// Takes the host, for `$host`, out of a field's value. One that is no host is taken as it is.
    fn set_host(&mut self, value: &[u8]) {
        let host = validate_host(value);
        let name = host.map_or(value, |host| &value[..host.name_len]);
        self.target.host.clear();
        self.target.host.extend_from_slice(name);
        self.target.host.make_ascii_lowercase();
        self.target.host_port = host.map_or(0, |host| host.port);
    }
}
