//! A query with variables: a text with `?` in their places, and the variables bound to these.

use weir_module::config::VarId;
use weir_module::prelude::*;

/// A query whose variables are bound as parameters.
#[derive(Debug)]
pub struct Query {
    /// The text, with `?` for each variable.
    pub text: String,
    /// The variables, in the order of the places.
    vars: Vec<VarId>,
}

/// The lexical context of a byte of SQL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SqlContext {
    Code,
    /// In quotes of that kind.
    Quotes(u8),
    /// Behind `--` or `#`.
    Line,
    /// Behind `/*`.
    Comment,
}

impl Query {
    /// Reads the argument of `mysql_query`.
    ///
    /// # Errors
    /// A text that is not UTF-8; a variable in quotes or a comment, where nothing can be bound; a
    /// `?` beside variables.
    pub fn parse(cx: &mut Cx, word: &Word) -> Result<Query, ConfError> {
        let Ok(sql) = std::str::from_utf8(word.bytes()) else {
            return Err(ConfError::at(word, "the query is not UTF-8"));
        };
        let (text, names, has_mark) = split(sql).map_err(|name| {
            let m = format!(
                "variable \"${name}\" stands in quotes or a comment: it is bound as a parameter, \
                 write it without"
            );
            ConfError::at(word, m)
        })?;
        if has_mark && !names.is_empty() {
            return Err(ConfError::at(word, "the query has variables and a \"?\" of its own"));
        }
        let mut vars = Vec::new();
        for name in names {
            let of = Word { text: Bytes::from(format!("${{{name}}}")), ..word.clone() };
            vars.extend(cx.template(&of)?.vars());
        }
        Ok(Query { text, vars })
    }

    /// Whether something is bound.
    pub fn has_parameters(&self) -> bool {
        !self.vars.is_empty()
    }

    /// The bound parameters for a request; a variable without a value is NULL.
    pub fn parameters(&self, r: &mut Request) -> Vec<mysql::Value> {
        let value = |id: &VarId| match r.var(*id) {
            Some(bytes) => mysql::Value::Bytes(bytes.to_vec()),
            None => mysql::Value::NULL,
        };
        self.vars.iter().map(value).collect()
    }
}

/// The text with `?` for variables, their names, and whether there is a `?` of its own. The error
/// is a variable where nothing can be bound.
fn split(sql: &str) -> Result<(String, Vec<&str>, bool), &str> {
    let bytes = sql.as_bytes();
    let (mut text, mut names, mut has_mark) = (String::new(), Vec::new(), false);
    let (mut place, mut at, mut copied) = (SqlContext::Code, 0, 0);
    while let Some(&byte) = bytes.get(at) {
        if byte == b'$'
            && let Some((name, end)) = variable(sql, at)
        {
            if place != SqlContext::Code {
                return Err(name);
            }
            text.push_str(&sql[copied..at]);
            text.push('?');
            names.push(name);
            (at, copied) = (end, end);
            continue;
        }
        has_mark |= byte == b'?' && place == SqlContext::Code;
        let two = bytes.get(at..at + 2).unwrap_or_default();
        let (next, step) = match (place, byte) {
            (SqlContext::Code, b'\'' | b'"' | b'`') => (SqlContext::Quotes(byte), 1),
            (SqlContext::Code, b'#') => (SqlContext::Line, 1),
            (SqlContext::Code, _) if two == b"--" => (SqlContext::Line, 2),
            (SqlContext::Code, _) if two == b"/*" => (SqlContext::Comment, 2),
            (SqlContext::Quotes(quote), b'\\') if quote != b'`' => (place, 2),
            (SqlContext::Quotes(quote), _) if quote == byte => (SqlContext::Code, 1),
            (SqlContext::Line, b'\n') => (SqlContext::Code, 1),
            (SqlContext::Comment, _) if two == b"*/" => (SqlContext::Code, 2),
            _ => (place, 1),
        };
        (place, at) = (next, at + step);
    }
    text.push_str(&sql[copied..]);
    Ok((text, names, has_mark))
}

/// The variable that begins with the dollar at `at`, and where it ends.
fn variable(sql: &str, at: usize) -> Option<(&str, usize)> {
    let rest = &sql[at + 1..];
    let length =
        |text: &str| text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    match rest.strip_prefix('{') {
        Some(inner) => {
            let n = length(inner);
            (n > 0 && inner.as_bytes().get(n) == Some(&b'}')).then(|| (&inner[..n], at + n + 3))
        }
        None => {
            let n = length(rest);
            (n > 0).then(|| (&rest[..n], at + 1 + n))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    fn of(sql: &str) -> Result<(String, Vec<&str>), &str> {
        split(sql).map(|(text, names, _)| (text, names))
    }

    #[test]
    fn variables_become_places() {
        let (text, names) = of("select * from t where a=$arg_a and b = ${b}c or d=$d").unwrap();
        assert_eq!(text, "select * from t where a=? and b = ?c or d=?");
        assert_eq!(names, ["arg_a", "b", "d"]);
        assert_eq!(of("select 'it''s', \"a\\\"\", `x` -- y").unwrap().1, [""; 0]);
        assert_eq!(of("select '$' , $x, '5$'").unwrap().1, ["x"]);
        assert_eq!(of("select 1 -- 'quote\n, $x").unwrap().1, ["x"]);
        assert_eq!(of("select /* ' */ $x").unwrap().1, ["x"]);
        assert_eq!(of("select 'ü', $x").unwrap().0, "select 'ü', ?");
        assert_eq!(of("select ${x").unwrap().0, "select ${x");
    }

    #[test]
    fn nothing_is_bound_in_quotes() {
        for sql in [
            "select '$x'",
            "select \"a${x}\"",
            "select `$x`",
            "select 'it\\'s $x'",
            "select 'it''s $x'",
            "-- $x",
            "# $x",
            "/* $x */",
        ] {
            assert_eq!(of(sql), Err("x"), "{sql}");
        }
    }

    #[test]
    fn places_of_their_own_are_seen() {
        assert!(split("select ?").unwrap().2);
        assert!(!split("select '?' -- ?\n/* ? */").unwrap().2);
    }
}
