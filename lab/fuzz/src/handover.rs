//! Messages between workers about live connections.

use proto::handover::{Message, Word};

/// A message that is read has one form: written again, it has the same bytes. No part of it is a
/// message.
pub fn run(data: &[u8]) {
    if let Some(word) = Word::read(data) {
        // Reasons of a later version are read as one that is known.
        assert!(matches!(word, Word::Refuses(_)) || word.bytes() == data);
    }
    if let Some(words) = Word::read_all(data) {
        assert_eq!(words.len() * 2, data.len());
    }
    let Ok(message) = Message::read(data) else { return };
    let mut again = Vec::new();
    assert!(message.write(&mut again));
    assert_eq!(again, data);
    for len in 0..data.len().min(300) {
        assert!(Message::read(&data[..len]).is_err());
    }
    assert!(Message::read(&[data, b"x"].concat()).is_err());
}
