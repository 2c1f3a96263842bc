//! The tokens of expressions (XPath, section 3.7).

use crate::error::{Error, Result};

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token<'a> {
    Number(f64),
    Text(&'a str),
    /// `prefix:local`, or `local`.
    Name(&'a str, &'a str),
    /// `prefix:*`
    AnyOf(&'a str),
    /// `$name`
    Variable(&'a str, &'a str),
    /// An operator, punctuation, or `*` as a name.
    Sign(&'static str),
    /// An operator that is a word or `*`.
    Operator(&'static str),
}

/// The most tokens of an expression.
const TOKENS_MAX: usize = 20_000;

/// Signs, the longer ones first.
const SIGNS: &[&str] = &[
    "::", "//", "..", "!=", "<=", ">=", "(", ")", "[", "]", ".", "@", ",", "/", "|", "+", "-", "=",
    "<", ">", "*",
];

const WORDS: &[&str] = &["and", "or", "mod", "div"];

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric()
        || matches!(c, '_' | '-' | '.' | '\u{b7}')
        || matches!(c, '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// Whether a text is a name without a colon.
pub(crate) fn is_ncname(text: &str) -> bool {
    text.chars().next().is_some_and(is_name_start) && text.chars().all(is_name)
}

/// The name at the beginning of a text.
fn name(text: &str) -> Option<&str> {
    text.chars().next().filter(|c| is_name_start(*c))?;
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    Some(&text[..end])
}

/// A name that may have a prefix: prefix, local part, and what is behind it.
fn qname(text: &str) -> Option<(&str, &str, &str)> {
    let first = name(text)?;
    let rest = &text[first.len()..];
    let second = rest.strip_prefix(':').filter(|rest| !rest.starts_with(':')).and_then(name);
    match second {
        Some(second) => Some((first, second, &rest[1 + second.len()..])),
        None => Some(("", first, rest)),
    }
}

/// The tokens of an expression.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        if rest.is_empty() {
            return Ok(tokens);
        }
        let (token, left) = token(rest, tokens.last())
            .ok_or_else(|| Error::new(format!("\"{text}\" is no expression: at \"{rest}\"")))?;
        if tokens.len() == TOKENS_MAX {
            return Err(Error::new(format!("an expression has more than {TOKENS_MAX} tokens")));
        }
        tokens.push(token);
        rest = left;
    }
}

/// Whether a `*` or a name behind a token is an operator.
fn is_operator_next(before: Option<&Token>) -> bool {
    match before {
        None | Some(Token::Operator(_)) => false,
        Some(Token::Sign(sign)) => matches!(*sign, ")" | "]" | "." | ".." | "*"),
        Some(_) => true,
    }
}

fn token<'a>(text: &'a str, before: Option<&Token>) -> Option<(Token<'a>, &'a str)> {
    let first = text.chars().next()?;
    if matches!(first, '"' | '\'') {
        let end = text[1..].find(first)?;
        return Some((Token::Text(&text[1..=end]), &text[end + 2..]));
    }
    let after = text[first.len_utf8()..].chars().next();
    if first.is_ascii_digit() || first == '.' && after.is_some_and(|c| c.is_ascii_digit()) {
        let whole = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let part = match text[whole..].strip_prefix('.') {
            Some(part) => 1 + part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len()),
            None => 0,
        };
        let (number, rest) = text.split_at(whole + part);
        return Some((Token::Number(crate::value::text_number(number)), rest));
    }
    if first == '$' {
        let (prefix, local, rest) = qname(text[1..].trim_start())?;
        return Some((Token::Variable(prefix, local), rest));
    }
    if is_operator_next(before) {
        if let Some(rest) = text.strip_prefix('*') {
            return Some((Token::Operator("*"), rest));
        }
        if let Some(word) = name(text) {
            let word = WORDS.iter().find(|known| **known == word)?;
            return Some((Token::Operator(word), &text[word.len()..]));
        }
    }
    if let Some(first) = name(text)
        && let Some(rest) = text[first.len()..].strip_prefix(":*")
    {
        return Some((Token::AnyOf(first), rest));
    }
    if let Some((prefix, local, rest)) = qname(text) {
        return Some((Token::Name(prefix, local), rest));
    }
    let sign = SIGNS.iter().find(|sign| text.starts_with(**sign))?;
    let rest = &text[sign.len()..];
    let is_operator =
        matches!(*sign, "/" | "//" | "|" | "+" | "-" | "=" | "!=" | "<" | "<=" | ">" | ">=");
    Some((if is_operator { Token::Operator(sign) } else { Token::Sign(sign) }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_stars_are_names_or_operators() {
        use Token::{AnyOf, Name, Number, Operator, Sign, Text, Variable};
        for (text, want) in [
            ("* * *", vec![Sign("*"), Operator("*"), Sign("*")]),
            ("div div div", vec![Name("", "div"), Operator("div"), Name("", "div")]),
            ("a-b - c", vec![Name("", "a-b"), Operator("-"), Name("", "c")]),
            ("$a:b*2", vec![Variable("a", "b"), Operator("*"), Number(2.0)]),
            ("x:*/@*", vec![AnyOf("x"), Operator("/"), Sign("@"), Sign("*")]),
            ("child::a:b", vec![Name("", "child"), Sign("::"), Name("a", "b")]),
            (".5+'a\"'", vec![Number(0.5), Operator("+"), Text("a\"")]),
            ("1.", vec![Number(1.0)]),
            ("..", vec![Sign("..")]),
        ] {
            assert_eq!(tokens(text).unwrap(), want, "{text}");
        }
        for text in ["'a", "a #", "a b", "$", "1 a"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}
