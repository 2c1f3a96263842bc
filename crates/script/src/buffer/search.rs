//! `indexOf`, `lastIndexOf` and `includes` of `Buffer`.

use rquickjs::{Object, Result, Value};

use super::length;
use crate::codec::Encoding;
use crate::native::{self, Call, to_i64, to_u32};
use crate::raw;
use crate::value::text;

/// Adds the methods to the prototype.
pub fn install(prototype: &Object<'_>) -> Result<()> {
    native::methods(
        prototype,
        &[
            ("includes", 3, |c| {
                let found = find(c, false)?.is_some();
                c.bool(found)
            }),
            ("indexOf", 3, |c| {
                let at = find(c, false)?;
                c.number(at.map_or(-1.0, |at| at as f64))
            }),
            ("lastIndexOf", 3, |c| {
                let at = find(c, true)?;
                c.number(at.map_or(-1.0, |at| at as f64))
            }),
        ],
    )
}

/// Where the first argument is, from the position of the second on; the last one at or before it
/// if `last`.
fn find<'js>(call: &Call<'_, 'js>, last: bool) -> Result<Option<usize>> {
    let this = call.this();
    let length = length(&this)? as i64;
    let (value, mut encoding) = (call.arg(0), call.arg(2));
    let mut from = if last { length - 1 } else { 0 };
    if value.is_string() && call.arg(1).is_string() {
        encoding = call.arg(1);
    } else if !call.arg(1).is_undefined() {
        from = to_i64(&call.arg(1))?;
        from = if from >= 0 { from.min(length) } else { length.saturating_add(from).max(0) };
    }
    let needle = needle(call, &value, &encoding)?;
    Ok(search(&raw::bytes(&this).unwrap_or_default(), &needle, from as usize, last))
}

fn needle<'js>(call: &Call<'_, 'js>, value: &Value<'js>, encoding: &Value<'js>) -> Result<Vec<u8>> {
    if value.is_number() {
        return Ok(vec![to_u32(value)? as u8]);
    }
    if value.is_string() {
        return Ok(Encoding::of(encoding)?.decode(&text(value)?));
    }
    raw::bytes(value)
        .ok_or_else(|| call.type_error("\"value\" argument is not a string or Buffer-like object"))
}

fn search(bytes: &[u8], needle: &[u8], from: usize, last: bool) -> Option<usize> {
    if last {
        let end = from.saturating_add(needle.len()).min(bytes.len());
        return memchr::memmem::rfind(&bytes[..end], needle);
    }
    let at = memchr::memmem::find(bytes.get(from..)?, needle)?;
    Some(from + at)
}

#[cfg(test)]
mod tests {
    use super::search;

    #[test]
    fn both_directions() {
        assert_eq!(search(b"abcabc", b"bc", 0, false), Some(1));
        assert_eq!(search(b"abcabc", b"bc", 2, false), Some(4));
        assert_eq!(search(b"abcabc", b"bc", 9, false), None);
        assert_eq!(search(b"abcabc", b"bc", 5, true), Some(4));
        assert_eq!(search(b"abcabc", b"bc", 3, true), Some(1));
        assert_eq!(search(b"abcabc", b"bc", 0, true), None);
        assert_eq!(search(b"", b"a", 0, true), None);
    }
}
