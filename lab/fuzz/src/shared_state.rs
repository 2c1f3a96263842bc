//! Answers of an engine that may be anything.

use std::cell::RefCell;
use std::rc::Rc;

use fleet::purges::{Cursor, Purge, PurgePart, Purges};
use fleet::{Answer, Node, Part, Status};

/// Reads an answer off the bytes: a letter for its kind, then its content.
fn answer(data: &mut &[u8], depth: usize) -> Answer {
    let mut byte = || {
        let (first, rest) = data.split_first()?;
        *data = rest;
        Some(*first)
    };
    let Some(kind) = byte() else { return Answer::Nil };
    let len = usize::from(byte().unwrap_or(0));
    let bytes = |data: &mut &[u8]| {
        let (text, rest) = data.split_at(len.min(data.len()));
        *data = rest;
        text.to_vec()
    };
    match kind % 5 {
        0 => Answer::Nil,
        1 => {
            let mut number = [0; 8];
            let text = bytes(data);
            let len = text.len().min(8);
            number[..len].copy_from_slice(&text[..len]);
            Answer::Int(i64::from_le_bytes(number))
        }
        2 => Answer::Bytes(bytes(data)),
        3 if depth < 4 => Answer::List((0..len % 16).map(|_| answer(data, depth + 1)).collect()),
        _ => Answer::Error(String::from_utf8_lossy(&bytes(data)).into_owned()),
    }
}

#[derive(Default)]
struct Cache(RefCell<Vec<Purge>>);

impl Purges for Cache {
    fn peek(&self, _: usize, out: &mut Vec<Purge>) {
        out.push(Purge::all());
    }

    fn sent(&self) {}

    fn cursor(&self) -> Option<Cursor> {
        Some(Cursor::default())
    }

    fn perform(&self, purges: Vec<Purge>, cursor: Cursor) {
        assert_eq!(Cursor::from_text(&cursor.to_text()), Some(cursor));
        self.0.borrow_mut().extend(purges);
    }
}

pub fn run(data: &[u8]) {
    let mut rest = data;
    let one = answer(&mut rest, 0);
    if let Some(pull) = fleet::pull(&one) {
        assert!(pull.reached.is_some() || pull.records.is_empty());
    }
    if let Some(outcomes) = fleet::pushed(&one, [&b"a"[..], b"b"].into_iter()) {
        assert_eq!(outcomes.len(), 2);
    }
    fleet::strict::outcome(Some(&one));
    if let Some(outcome) = fleet::folder::outcome(&one) {
        let text = outcome.cursor.to_text();
        assert_eq!(fleet::folder::Cursor::from_text(&text), Some(outcome.cursor));
        assert!(outcome.files.iter().all(|(name, _)| !name.contains('/')));
    }
    let part: Rc<dyn Part> = Rc::new(PurgePart::new("c", Cache::default()));
    let status = Rc::new(Status::new().expect("memory"));
    let mut node =
        Node::new(fleet::model::settings(), status, vec![part], ("n".to_owned(), "host"));
    for now_ms in 1..4 {
        let count = node.begin(now_ms * 1000).len();
        let answers = (0..count).map(|_| answer(&mut rest, 0)).collect();
        node.end(now_ms * 1000 + 1, 1, Ok(answers));
        assert!(node.lines().iter().all(|(_, line)| !line.contains(['\n', '\r'])));
    }
}
