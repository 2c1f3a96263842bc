//! The tokens of completions: the kind of the operation, and its socket or slot.
//!
//! ```text
//!    63      56 55             32 31                  0
//!   | kind     | generation      | place               |
//! ```

use crate::state::socks::SockKey;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Token {
    /// No task waits for it.
    Ignored,
    Mailbox,
    Ticker,
    Recv,
    PollRead,
    PollWrite,
    PollClosed,
    Accept,
    /// The send or read of a slot.
    Flight,
    Close,
}

const KINDS: [Token; 10] = [
    Token::Ignored,
    Token::Mailbox,
    Token::Ticker,
    Token::Recv,
    Token::PollRead,
    Token::PollWrite,
    Token::PollClosed,
    Token::Accept,
    Token::Flight,
    Token::Close,
];

/// The part of a generation that a token has room for. It comes round after millions of sockets
/// in one place, and completions do not stay away for that long.
const GENERATION: u32 = 0xff_ffff;

pub(super) fn of_sock(kind: Token, key: SockKey) -> u64 {
    (kind as u64) << 56 | u64::from(key.generation & GENERATION) << 32 | u64::from(key.index)
}

/// `place` is a slot, or nothing.
pub(super) fn plain(kind: Token, place: u32) -> u64 {
    (kind as u64) << 56 | u64::from(place)
}

pub(super) fn kind(token: u64) -> Token {
    KINDS.get((token >> 56) as usize).copied().unwrap_or(Token::Ignored)
}

pub(super) fn place(token: u64) -> u32 {
    token as u32
}

/// Whether the token was made for `key`.
pub(super) fn is_of(token: u64, key: SockKey) -> bool {
    (token >> 32) as u32 & GENERATION == key.generation & GENERATION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_what_they_were_made_for() {
        let key = SockKey { index: u32::MAX - 1, generation: 0xabcd_ef01 };
        for (number, named) in KINDS.into_iter().enumerate() {
            let token = of_sock(named, key);
            assert_eq!((named as usize, kind(token), place(token)), (number, named, key.index));
            assert!(is_of(token, key));
            assert!(!is_of(token, SockKey { generation: key.generation + 1, ..key }));
        }
        let flight = plain(Token::Flight, 7);
        assert_eq!((kind(flight), place(flight)), (Token::Flight, 7));
        assert_eq!(kind(u64::MAX), Token::Ignored);
    }
}
