//! JSON, as far as the API reads it: one flat object.

/// A value that is no object and no list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Text(String),
    Number(u64),
    Bool(bool),
    Null,
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    is_nested: bool,
}

/// Why a text is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// It is no JSON, or no object.
    Syntax,
    /// A value is an object or a list.
    Nested,
}

/// The members of an object whose values are plain.
///
/// # Errors
/// The text is no such object.
pub(super) fn object(text: &[u8]) -> Result<Vec<(String, Value)>, Fault> {
    let mut r = Reader { text, at: 0, is_nested: false };
    members(&mut r).ok_or(if r.is_nested { Fault::Nested } else { Fault::Syntax })
}

fn members(r: &mut Reader<'_>) -> Option<Vec<(String, Value)>> {
    let mut members: Vec<(String, Value)> = Vec::new();
    r.expect(b'{')?;
    if r.peek()? == b'}' {
        r.at += 1;
    } else {
        loop {
            let name = r.string()?;
            r.expect(b':')?;
            let value = r.value()?;
            if members.iter().any(|(n, _)| *n == name) {
                return None;
            }
            members.push((name, value));
            match r.next()? {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
    }
    r.blanks();
    (r.at == r.text.len()).then_some(members)
}

impl Reader<'_> {
    fn blanks(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.blanks();
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn value(&mut self) -> Option<Value> {
        match self.peek()? {
            b'"' => return self.string().map(Value::Text),
            b'{' | b'[' => self.is_nested = true,
            _ => {}
        }
        let start = self.at;
        while self.text.get(self.at).is_some_and(|b| b.is_ascii_alphanumeric()) {
            self.at += 1;
        }
        match &self.text[start..self.at] {
            b"true" => Some(Value::Bool(true)),
            b"false" => Some(Value::Bool(false)),
            b"null" => Some(Value::Null),
            // Numbers here are counts: no sign, no fraction.
            digits => base::ascii::parse_u64(digits).map(Value::Number),
        }
    }

    fn string(&mut self) -> Option<String> {
        self.expect(b'"')?;
        let mut out = Vec::new();
        loop {
            let byte = *self.text.get(self.at)?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(out).ok(),
                b'\\' => self.escape(&mut out)?,
                0..0x20 => return None,
                _ => out.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        out.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let digits = self.text.get(self.at..self.at + 4)?;
                self.at += 4;
                let code = u32::try_from(base::ascii::parse_hex_u64(digits)?).ok()?;
                // Halves of pairs stand for nothing that the API takes.
                let c = char::from_u32(code)?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return Some(());
            }
            _ => return None,
        });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects() {
        let text = br#" { "server":"1.2.3.4:80\u0021\n", "weight" : 7,"down":true , "x":null } "#;
        let expected = [
            ("server", Value::Text("1.2.3.4:80!\n".to_owned())),
            ("weight", Value::Number(7)),
            ("down", Value::Bool(true)),
            ("x", Value::Null),
        ];
        let found = object(text).unwrap();
        assert!(found.iter().map(|(n, v)| (n.as_str(), v.clone())).eq(expected));
        assert_eq!(object(b"{}"), Ok(Vec::new()));
        assert_eq!(object(b"{\"a\":{}}"), Err(Fault::Nested));
        assert_eq!(object(b"{\"a\":[1]}"), Err(Fault::Nested));
        for bad in [
            "",
            "{",
            "[]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":-1}",
            "{\"a\":1.5}",
            "{\"a\":1}x",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\ud800\"}",
            "{a:1}",
            "{\"a\":1,\"a\":2}",
            "{\"a\":\"\n\"}",
        ] {
            assert_eq!(object(bad.as_bytes()), Err(Fault::Syntax), "{bad}");
        }
    }
}
