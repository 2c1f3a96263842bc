//! The text of a configuration for other people's eyes.

use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;

use crate::lexer::{End, Lexer};

/// The replacement of a secret.
const INSTEAD: &[u8] = b"***";

/// The text of a file without the arguments of the directives named in `secrets`. The rest,
/// comments and blanks included, stays. Text that is no configuration ends the search, and nothing
/// of it behind the name of a secret is shown.
pub fn redact(text: &Bytes, secrets: &[&str]) -> Bytes {
    if secrets.is_empty() {
        return text.clone();
    }
    let file: Rc<Path> = Path::new("").into();
    let mut lexer = Lexer::new(file, text.clone());
    let mut words = Vec::new();
    let (mut out, mut copied) = (Vec::with_capacity(text.len()), 0);
    loop {
        let end = lexer.statement(&mut words);
        let secret = words.first().is_some_and(|name| secrets.iter().any(|s| name == *s));
        if secret {
            // A statement without an end may hold the secret all the same.
            let to = match end {
                Ok(End::Semicolon | End::Open) => lexer.at() - 1,
                _ => text.len(),
            };
            if let Some(first) = words.get(1) {
                let from = lexer.offset_of(&first.pos);
                out.extend_from_slice(&text[copied..from]);
                out.extend_from_slice(INSTEAD);
                copied = to;
            } else if end.is_err() {
                out.extend_from_slice(&text[copied..lexer.offset_of(&words[0].pos)]);
                out.extend_from_slice(INSTEAD);
                copied = to;
            }
        }
        match end {
            Ok(End::Eof) | Err(_) => break,
            Ok(_) => {}
        }
    }
    out.extend_from_slice(&text[copied..]);
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &'static str) -> String {
        let shown = redact(&Bytes::from_static(text.as_bytes()), &["mysql_pass", "key"]);
        String::from_utf8(shown.to_vec()).unwrap()
    }

    #[test]
    fn arguments_of_secrets_are_not_shown_and_all_else_is() {
        assert_eq!(
            of("a b; # mysql_pass is below\nserver {\n\tmysql_pass  \"se;c\\\"ret\"  ;\n}\n"),
            "a b; # mysql_pass is below\nserver {\n\tmysql_pass  ***;\n}\n"
        );
        assert_eq!(of("key a\n b # c\n 'd';x y;key z;"), "key ***;x y;key ***;");
        assert_eq!(of("a mysql_pass b;"), "a mysql_pass b;");
        assert_eq!(of("mysql_pass;"), "mysql_pass;");
        assert_eq!(of("key a { b c; }"), "key ***{ b c; }");
    }

    #[test]
    fn a_broken_end_gives_nothing_away() {
        assert_eq!(of("x y; mysql_pass secret"), "x y; ***");
        assert_eq!(of("x y; mysql_pass \"secret"), "x y; ***");
        assert_eq!(of("x y; mysql_pass secret }"), "x y; mysql_pass ***");
    }
}
