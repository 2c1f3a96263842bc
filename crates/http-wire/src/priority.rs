//! The priority of a response in HTTP/2 and HTTP/3: the `Priority` field and the value of
//! PRIORITY_UPDATE frames (RFC 9218), a dictionary of structured fields (RFC 9651).

/// The parameters that somebody gave (RFC 9218 section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parameters {
    /// From 0, the most urgent, to 7.
    pub urgency: Option<u8>,
    /// The response is of use in parts.
    pub incremental: Option<bool>,
}

impl Parameters {
    /// The parameters in a field's value. Unknown ones, and values that they cannot have, are as if
    /// they were not there. `None`: it is no dictionary, and to be ignored as a whole.
    pub fn parse(value: &[u8]) -> Option<Parameters> {
        Parameters::default().and(value)
    }

    /// The parameters of a field, all of its lines together. `None`: there is no line, or the field
    /// is to be ignored.
    pub fn of_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Parameters> {
        let mut lines = lines.peekable();
        lines.peek()?;
        lines.try_fold(Parameters::default(), Parameters::and)
    }

    /// With those of a further line of the same field: where both have one, the last counts.
    pub fn and(mut self, value: &[u8]) -> Option<Parameters> {
        let mut text = Text(value);
        text.skip(b" ");
        while !text.0.is_empty() {
            let key = text.key()?;
            let value = match text.take(b'=') {
                true => text.member()?,
                false => Value::Flag(true),
            };
            text.parameters()?;
            match (key, value) {
                (b"u", Value::Number(n)) => self.urgency = u8::try_from(n).ok().filter(|n| *n < 8),
                (b"u", _) => self.urgency = None,
                (b"i", Value::Flag(flag)) => self.incremental = Some(flag),
                (b"i", _) => self.incremental = None,
                _ => {}
            }
            text.skip(b" \t");
            if text.0.is_empty() {
                break;
            }
            if !text.take(b',') {
                return None;
            }
            text.skip(b" \t");
            if text.0.is_empty() {
                // A comma with nothing behind it.
                return None;
            }
        }
        Some(self)
    }

    /// These, and others where nothing is given here.
    pub fn or(self, other: Parameters) -> Parameters {
        Parameters {
            urgency: self.urgency.or(other.urgency),
            incremental: self.incremental.or(other.incremental),
        }
    }
}

/// The value of a member, as far as it matters here.
enum Value {
    Number(i64),
    Flag(bool),
    Other,
}

/// The rest of a value.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn skip(&mut self, bytes: &[u8]) {
        while let [first, rest @ ..] = self.0
            && bytes.contains(first)
        {
            self.0 = rest;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn one(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The bytes as long as they are of a kind.
    fn run(&mut self, is: impl Fn(&u8) -> bool) -> &'a [u8] {
        let n = self.0.iter().position(|b| !is(b)).unwrap_or(self.0.len());
        let (run, rest) = self.0.split_at(n);
        self.0 = rest;
        run
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let is_first = |b: &u8| b.is_ascii_lowercase() || *b == b'*';
        self.0.first().filter(|b| is_first(b))?;
        Some(self.run(|b| is_first(b) || b.is_ascii_digit() || b"_-.".contains(b)))
    }

    /// An item, or a list of items in parentheses, without the parameters behind it.
    fn member(&mut self) -> Option<Value> {
        if !self.take(b'(') {
            return self.item();
        }
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn item(&mut self) -> Option<Value> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => {
                self.one();
                self.string()
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                const MORE: &[u8] = b"!#$%&'*+-.^_`|~:/";
                self.run(|b| b.is_ascii_alphanumeric() || MORE.contains(b));
                Some(Value::Other)
            }
            b':' => {
                self.one();
                self.run(|b| b.is_ascii_alphanumeric() || b"+/=".contains(b));
                self.take(b':').then_some(Value::Other)
            }
            b'?' => {
                self.one();
                match self.one()? {
                    b'0' => Some(Value::Flag(false)),
                    b'1' => Some(Value::Flag(true)),
                    _ => None,
                }
            }
            b'@' => {
                self.one();
                match self.number()? {
                    Value::Number(_) => Some(Value::Other),
                    _ => None,
                }
            }
            b'%' => {
                self.one();
                self.take(b'"').then_some(())?;
                self.display_string()
            }
            _ => None,
        }
    }

    /// An integer of 15 digits at most, or a decimal of 12 and 3.
    fn number(&mut self) -> Option<Value> {
        let negative = self.take(b'-');
        let digits = self.run(u8::is_ascii_digit);
        if digits.is_empty() || digits.len() > 15 {
            return None;
        }
        if self.take(b'.') {
            let fraction = self.run(u8::is_ascii_digit).len();
            return (digits.len() <= 12 && (1..=3).contains(&fraction)).then_some(Value::Other);
        }
        let number = digits.iter().fold(0_i64, |n, digit| n * 10 + i64::from(digit - b'0'));
        Some(Value::Number(if negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Value> {
        loop {
            match self.one()? {
                b'"' => return Some(Value::Other),
                b'\\' => {
                    self.one().filter(|b| matches!(b, b'"' | b'\\'))?;
                }
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }

    fn display_string(&mut self) -> Option<Value> {
        loop {
            match self.one()? {
                b'"' => return Some(Value::Other),
                b'%' => {
                    for _ in 0..2 {
                        self.one().filter(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))?;
                    }
                }
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Option<(Option<u8>, Option<bool>)> {
        Parameters::parse(value.as_bytes()).map(|p| (p.urgency, p.incremental))
    }

    #[test]
    fn parameters_are_read() {
        assert_eq!(parsed(""), Some((None, None)));
        assert_eq!(parsed("u=0"), Some((Some(0), None)));
        assert_eq!(parsed("  u=7 ,\ti "), Some((Some(7), Some(true))));
        assert_eq!(parsed("i=?0, u=3"), Some((Some(3), Some(false))));
        assert_eq!(parsed("u=1, u=2"), Some((Some(2), None)), "the last counts");
        assert_eq!(parsed("u=1;why=\"a, u=5\";x, i;y=?0"), Some((Some(1), Some(true))));
    }

    #[test]
    fn what_is_unknown_or_out_of_range_is_ignored() {
        assert_eq!(parsed("u=8"), Some((None, None)));
        assert_eq!(parsed("u=-1, i"), Some((None, Some(true))));
        assert_eq!(parsed("u=3.0"), Some((None, None)));
        assert_eq!(parsed("u, i=1"), Some((None, None)));
        assert_eq!(parsed("u=\"1\", i=yes"), Some((None, None)));
        assert_eq!(parsed("u=?1, i=(?1)"), Some((None, None)));
        assert_eq!(parsed("u=5, u=a"), Some((None, None)));
        assert_eq!(parsed("uu=1, u-i=2, *=3, u=4"), Some((Some(4), None)));
        let all = "a=1.5, b=\"\\\"\\\\\", c=to/ken:x, d=:aGk=:, e=@1659578233, f=%\"f%c3%bc\", \
                   g=(1 \"b\";q=?0 c);z, h=?0, u=6";
        assert_eq!(parsed(all), Some((Some(6), None)));
    }

    #[test]
    fn what_is_no_dictionary_is_refused() {
        let wrong = [
            ",",
            "u=",
            "u=1,",
            "u=1,,i",
            "u =1",
            "u= 1",
            "U=1",
            "u=1 i",
            "=1",
            "i=?2",
            "i=?",
            "u=1;",
            "u=1;=",
            "u=1234567890123456",
            "u=1.",
            "u=1.2345",
            "u=-",
            "a=\"x",
            "a=\"\\n\"",
            "a=:b",
            "a=(1",
            "a=(1\"b\")",
            "a=@1.5",
            "a=%x",
            "a=%\"%C3\"",
            "\tu=1",
            "u=1\n",
            "a=\"\u{e9}\"",
        ];
        for value in wrong {
            assert_eq!(parsed(value), None, "{value:?}");
        }
    }

    #[test]
    fn lines_go_together() {
        let first = Parameters::parse(b"u=1, i").unwrap();
        let both = first.and(b"u=4, x").unwrap();
        assert_eq!(both, Parameters { urgency: Some(4), incremental: Some(true) });
        assert_eq!(first.and(b"u=4, X"), None);
        let of = |lines: &[&[u8]]| Parameters::of_lines(lines.iter().copied());
        assert_eq!(of(&[b"u=1, i", b"u=4, x"]), Some(both));
        assert_eq!((of(&[]), of(&[b"u=1", b"X"])), (None, None));
    }

    #[test]
    fn a_server_overrides_what_it_names() {
        let client = Parameters::parse(b"u=5, i").unwrap();
        let server = Parameters::parse(b"u=1").unwrap();
        let merged = Parameters { urgency: Some(1), incremental: Some(true) };
        assert_eq!(server.or(client), merged);
    }
}
