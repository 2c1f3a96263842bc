//! The form of fields on their way to servers: lines of HTTP/1, or a list for HTTP/2.

use http_wire::fields as list;
use http_wire::h1;

/// A field that was begun, by its place and its value's.
pub(super) struct BegunField {
    from: usize,
    pub value: usize,
}

/// The form of fields on their way to a server. A field without a value is none, and what a
/// variable holds ends no line. Servers of HTTP/2 refuse a request because of one field with a
/// defect: it is left out there, and the defect is returned.
pub(super) trait Form {
    /// Begins a field; `name` has a colon and a space behind it.
    fn begin(name: &[u8], out: &mut Vec<u8>) -> BegunField;
    fn end(field: &BegunField, out: &mut Vec<u8>) -> Option<&'static str>;
    /// A field of the client's, whose name is bare.
    fn whole(name: &[u8], value: &[u8], out: &mut Vec<u8>) -> Option<&'static str>;
}

/// Lines of HTTP/1.
pub(super) struct Text;

impl Form for Text {
    fn begin(name: &[u8], out: &mut Vec<u8>) -> BegunField {
        let from = out.len();
        out.extend_from_slice(name);
        BegunField { from, value: out.len() }
    }

    fn end(field: &BegunField, out: &mut Vec<u8>) -> Option<&'static str> {
        if out.len() == field.value {
            out.truncate(field.from);
        } else {
            h1::sanitize_value(&mut out[field.value..]);
            out.extend_from_slice(b"\r\n");
        }
        None
    }

    fn whole(name: &[u8], value: &[u8], out: &mut Vec<u8>) -> Option<&'static str> {
        h1::write_field(out, name, value);
        None
    }
}

/// A list for HTTP/2.
pub(super) struct List;

impl Form for List {
    fn begin(name: &[u8], out: &mut Vec<u8>) -> BegunField {
        let bare = name.len().saturating_sub(2);
        let from = list::begin(out, &name[..bare]);
        BegunField { from, value: out.len() }
    }

    fn end(field: &BegunField, out: &mut Vec<u8>) -> Option<&'static str> {
        let value = &mut out[field.value..];
        h1::sanitize_value(value);
        let defect = match list::name_of(&out[..field.value], field.from) {
            // A pseudo-header field.
            [b':', ..] => None,
            name => list::defect(name, &out[field.value..]),
        };
        if out.len() == field.value || defect.is_some() {
            list::cancel(out, field.from);
        } else {
            list::end(out, field.from);
        }
        defect
    }

    fn whole(name: &[u8], value: &[u8], out: &mut Vec<u8>) -> Option<&'static str> {
        let defect = list::defect(name, value);
        if defect.is_none() {
            list::write(out, name, value);
        }
        defect
    }
}
