//! Text as a configuration that is formatted: the same tokens before and after, and nothing to do
//! twice; then changed at each of its words.

use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use conf::Pos;
use conf::edit::{Change, Edit, apply, replacements};
use conf::format::{format, same};
use conf::tokens::Tokens;

/// Formats `data`, if it is a configuration.
pub fn run(data: &[u8]) {
    let name: Rc<Path> = Path::new("fuzz.conf").into();
    let text = Bytes::copy_from_slice(data);
    let Ok(tokens) = Tokens::new(&name, text.clone()) else {
        assert!(format(&name, &text).is_err());
        return;
    };
    let new = Bytes::from(format(&name, &text).expect("what is read can be formatted"));
    let again = Tokens::new(&name, new.clone()).expect("the formatted text can be read");
    assert!(same(&tokens, &again));
    assert_eq!(format(&name, &new).expect("it was formatted before"), new);
    let lines = data.split(|byte| *byte == b'\n').count();
    for (at, line) in (1_u32..).zip(0..lines.min(20)) {
        let column = u32::try_from(line % 7 + 1).unwrap_or(1);
        let pos = Pos { file: name.clone(), line: at, column };
        for change in [
            Change::Replace("x".to_owned()),
            Change::RemoveWord,
            Change::AddWord("x".to_owned()),
            Change::AddStatements(vec!["x;".to_owned()]),
            Change::AddFirst("x;".to_owned()),
            Change::RemoveStatement,
            Change::RemoveComment,
        ] {
            let edit = Edit { pos: pos.clone(), change };
            apply(&tokens.text, &replacements(&tokens, &[edit]));
        }
    }
}
