//! Bodies of HTML forms: `application/x-www-form-urlencoded` and `multipart/form-data` (RFC 7578).

/// A field of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub value: Value,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// A file, by the name that the client gave it. The content is not kept.
    File(String),
}

/// RFC 2046 section 5.1.1 limits a boundary to 70 bytes; some clients have longer ones.
const BOUNDARY_MAX: usize = 200;
/// Fields in the header of a part.
const PART_FIELDS_MAX: usize = 32;
/// One line of it, bytes.
const PART_LINE_MAX: usize = 4096;
/// All of it, bytes.
const PART_HEADER_MAX: usize = 16384;

/// Reads a form of at most `max` fields, by the value of the request's `Content-Type`.
///
/// # Errors
/// What is wrong with it.
pub fn parse(media: Option<&[u8]>, body: &[u8], max: usize) -> Result<Vec<Entry>, &'static str> {
    let media = media.filter(|m| !m.is_empty()).ok_or("request content type is required")?;
    let mut form = Form { entries: Vec::new(), max };
    match content_type(media)? {
        None => form.url_encoded(body)?,
        Some(boundary) => form.multipart(body, &boundary)?,
    }
    Ok(form.entries)
}

/// The boundary of a multipart form; none for the other kind.
fn content_type(value: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let end = value.iter().position(|b| *b == b';').unwrap_or(value.len());
    let (media, mut rest) = (trim(&value[..end]), &value[end..]);
    let is_multipart = media.eq_ignore_ascii_case(b"multipart/form-data");
    if !is_multipart && !media.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
        return Err("unsupported content type");
    }
    let mut boundary = None;
    while let Some((first, behind)) = rest.split_first() {
        if *first != b';' {
            return Err("malformed content type");
        }
        let (name, value, behind) = parameter(behind)?;
        if name.eq_ignore_ascii_case(b"boundary") {
            if boundary.is_some() {
                return Err("duplicate boundary parameter");
            }
            if value.is_empty() || value.len() > BOUNDARY_MAX {
                return Err("invalid multipart boundary");
            }
            boundary = Some(value);
        }
        rest = skip(behind);
    }
    match boundary {
        None if is_multipart => Err("multipart boundary is required"),
        boundary => Ok(boundary.filter(|_| is_multipart)),
    }
}

/// A parameter's name, its value, and the rest behind it.
type Parameter<'a> = (&'a [u8], Vec<u8>, &'a [u8]);

/// Reads `name=value` or `name="quoted value"`.
fn parameter(text: &[u8]) -> Result<Parameter<'_>, &'static str> {
    let text = skip(text);
    let is_end = |b: &u8| matches!(b, b'=' | b';' | b' ' | b'\t');
    let (name, rest) = text.split_at(text.iter().position(is_end).unwrap_or(text.len()));
    let rest = skip(rest).strip_prefix(b"=").filter(|_| !name.is_empty());
    let rest = skip(rest.ok_or("malformed parameter")?);
    let Some(mut quoted) = rest.strip_prefix(b"\"") else {
        let is_end = |b: &u8| matches!(b, b';' | b' ' | b'\t');
        let (value, rest) = rest.split_at(rest.iter().position(is_end).unwrap_or(rest.len()));
        if value.is_empty() {
            return Err("empty parameter value");
        }
        return Ok((name, value.to_vec(), rest));
    };
    let mut value = Vec::new();
    loop {
        match quoted {
            [] => return Err("unterminated quoted parameter"),
            [b'"', rest @ ..] => return Ok((name, value, rest)),
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
                value.push(*byte);
                quoted = rest;
            }
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn skip(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|b| is_blank(**b)).count()..]
}

fn trim(text: &[u8]) -> &[u8] {
    let text = skip(text);
    &text[..text.len() - text.iter().rev().take_while(|b| is_blank(**b)).count()]
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Form {
    entries: Vec<Entry>,
    max: usize,
}

impl Form {
    fn add(&mut self, name: &[u8], value: Value) -> Result<(), &'static str> {
        if self.entries.len() >= self.max {
            return Err("maxKeys limit exceeded");
        }
        self.entries.push(Entry { name: string(name), value });
        Ok(())
    }

    fn url_encoded(&mut self, body: &[u8]) -> Result<(), &'static str> {
        for part in body.split(|b| *b == b'&').filter(|part| !part.is_empty()) {
            let equals = part.iter().position(|b| *b == b'=');
            let (name, value) = match equals {
                Some(at) => (&part[..at], &part[at + 1..]),
                None => (part, &[][..]),
            };
            let value = Value::Text(string(&decode(value)?));
            self.add(&decode(name)?, value)?;
        }
        Ok(())
    }

    fn multipart(&mut self, body: &[u8], boundary: &[u8]) -> Result<(), &'static str> {
        let opening = [b"--", boundary].concat();
        let start = find(body, &opening).ok_or("malformed multipart body")?;
        let mut rest = &body[start + opening.len()..];
        let delimiter = [b"\r\n--", boundary].concat();
        loop {
            if rest.starts_with(b"--") {
                return Ok(());
            }
            rest = rest.strip_prefix(b"\r\n").ok_or("malformed multipart boundary")?;
            let len = find(rest, b"\r\n\r\n").ok_or("missing multipart header separator")?;
            if len > PART_HEADER_MAX {
                return Err("multipart headers are too large");
            }
            let (name, file) = part_header(&rest[..len])?;
            rest = &rest[len + 4..];
            let end = find(rest, &delimiter).ok_or("truncated multipart body")?;
            let value = match file {
                Some(file) => Value::File(string(&file)),
                None => Value::Text(string(&rest[..end])),
            };
            self.add(&name, value)?;
            rest = &rest[end + delimiter.len()..];
        }
    }
}

/// Name and file name of a part.
type Disposition = (Vec<u8>, Option<Vec<u8>>);

fn part_header(header: &[u8]) -> Result<Disposition, &'static str> {
    let (mut found, mut rest, mut count) = (None, header, 0);
    while !rest.is_empty() {
        let end = find(rest, b"\r\n").unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 2..).unwrap_or_default();
        count += 1;
        if line.len() > PART_LINE_MAX {
            return Err("multipart header line is too long");
        }
        if count > PART_FIELDS_MAX {
            return Err("too many multipart headers");
        }
        let colon = line.iter().position(|b| *b == b':').ok_or("malformed multipart header")?;
        if line[..colon].eq_ignore_ascii_case(b"Content-Disposition") {
            if found.is_some() {
                return Err("duplicate Content-Disposition header");
            }
            found = Some(disposition(trim(&line[colon + 1..]))?);
        }
    }
    found.ok_or("missing Content-Disposition header")
}

fn disposition(value: &[u8]) -> Result<Disposition, &'static str> {
    let end = value.iter().position(|b| *b == b';').unwrap_or(value.len());
    if !value[..end].eq_ignore_ascii_case(b"form-data") {
        return Err("unsupported disposition type");
    }
    let (mut rest, mut name, mut file) = (&value[end..], None, None);
    while let Some((first, behind)) = rest.split_first() {
        if *first != b';' {
            return Err("malformed Content-Disposition");
        }
        let (parameter, value, behind) = parameter(behind)?;
        if parameter.eq_ignore_ascii_case(b"name") {
            if name.replace(value).is_some() {
                return Err("duplicate name parameter");
            }
        } else if parameter.eq_ignore_ascii_case(b"filename") && file.replace(value).is_some() {
            return Err("duplicate filename parameter");
        }
        rest = skip(behind);
    }
    Ok((name.ok_or("multipart field name is required")?, file))
}

fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, pattern)
}

fn decode(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = behind.get(..2).and_then(|two| std::str::from_utf8(two).ok());
                let digits = digits.filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
                let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
                rest = behind.get(2..).unwrap_or_default();
                byte.ok_or("malformed percent escape")?
            }
            byte => byte,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{Entry, Value, parse};

    fn shown(result: Result<Vec<Entry>, &'static str>) -> String {
        let entries = match result {
            Ok(entries) => entries,
            Err(message) => return message.to_owned(),
        };
        let shown = entries.into_iter().map(|e| match e.value {
            Value::Text(text) => format!("{}={text}", e.name),
            Value::File(name) => format!("{}@{name}", e.name),
        });
        shown.collect::<Vec<_>>().join("&")
    }

    #[test]
    fn url_encoded_forms() {
        for (body, result) in [
            ("a=1&a=2&empty=&=blank&space=one+two", "a=1&a=2&empty=&=blank&space=one two"),
            ("", ""),
            ("&baz=fuz&&muz&", "baz=fuz&muz="),
            ("==x", "==x"),
            ("%41=%2a", "A=*"),
            ("a=%", "malformed percent escape"),
            ("a=%4", "malformed percent escape"),
            ("a=%+4", "malformed percent escape"),
        ] {
            let media = b"application/x-www-form-urlencoded ; charset=utf-8";
            assert_eq!(shown(parse(Some(media), body.as_bytes(), 8)), result, "{body}");
        }
        let media = b"application/x-www-form-urlencoded";
        assert_eq!(shown(parse(Some(media), b"a&b", 1)), "maxKeys limit exceeded");
    }

    #[test]
    fn multipart_forms() {
        let part = |header: &str, body: &str| format!("--X\r\n{header}\r\n\r\n{body}\r\n");
        let text = part("Content-Disposition: form-data; name=\"a\\\"b\"", "1\r\n--Y")
            + &part("content-disposition: form-data; name=f; filename=\"x.txt\"  ", "data")
            + "--X--";
        let media = b"multipart/form-data; boundary=X";
        assert_eq!(shown(parse(Some(media), text.as_bytes(), 8)), "a\"b=1\r\n--Y&f@x.txt");
        assert_eq!(shown(parse(Some(media), b"--X--", 8)), "");
        for (body, message) in [
            ("-".to_owned(), "malformed multipart body"),
            ("--Xjunk".to_owned(), "malformed multipart boundary"),
            ("--X\r\nA: b".to_owned(), "missing multipart header separator"),
            (part("A: b", "") + "--X--", "missing Content-Disposition header"),
            (part("no colon", "") + "--X--", "malformed multipart header"),
            (part("Content-Disposition: form-data; name=a", "x"), "truncated multipart body"),
            (part("Content-Disposition: form-data; name=a x", ""), "malformed Content-Disposition"),
            (part("Content-Disposition: file; name=a", ""), "unsupported disposition type"),
            (part("Content-Disposition: form-data", ""), "multipart field name is required"),
            (part(&"A: b\r\n".repeat(33), ""), "too many multipart headers"),
            (part(&format!("A: {}", "b".repeat(5000)), ""), "multipart header line is too long"),
            (part(&format!("A: {}", "b".repeat(17000)), ""), "multipart headers are too large"),
        ] {
            assert_eq!(shown(parse(Some(media), body.as_bytes(), 8)), message, "{body}");
        }
    }

    #[test]
    fn content_types() {
        for (media, message) in [
            ("", "request content type is required"),
            ("text/plain", "unsupported content type"),
            ("multipart/form-data", "multipart boundary is required"),
            ("multipart/form-data; boundary=\"\"", "invalid multipart boundary"),
            ("multipart/form-data; boundary=a; Boundary=b", "duplicate boundary parameter"),
            ("multipart/form-data; boundary=a b", "malformed content type"),
            ("multipart/form-data; boundary=\"a\\\"", "unterminated quoted parameter"),
            ("multipart/form-data; =x", "malformed parameter"),
            ("multipart/form-data; boundary=", "empty parameter value"),
        ] {
            assert_eq!(shown(parse(Some(media.as_bytes()), b"", 8)), message, "{media}");
        }
        assert_eq!(shown(parse(None, b"", 8)), "request content type is required");
    }
}
