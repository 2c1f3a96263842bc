//! The CONNECT message of MQTT clients (versions 3.1, 3.1.1 and 5.0): reads its names, and writes
//! it with others in their place.
//!
//! Source: OASIS MQTT 3.1.1, section 3.1; MQTT 5.0, section 3.1.

use std::ops::Range;

/// The type of the message, in its first byte; the four flags below it are 0.
const CONNECT: u8 = 0x10;
/// The longest form of the length behind that byte.
const LENGTH_BYTES_MAX: usize = 4;

/// Bits of the connect flags.
mod flag {
    pub(crate) const RESERVED: u8 = 0x01;
    pub(crate) const WILL: u8 = 0x04;
    pub(crate) const WILL_QOS: u8 = 0x18;
    pub(crate) const WILL_RETAIN: u8 = 0x20;
    pub const PASSWORD: u8 = 0x40;
    pub const USER: u8 = 0x80;
}

/// What the first bytes of a session are.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A message that needs this many bytes in all; as many as are known to be needed so far.
    Incomplete(usize),
    /// The whole message.
    Connect(Connect<'a>),
    /// Something else, for this reason.
    Malformed(&'static str),
}

/// A CONNECT message.
#[derive(Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The whole message.
    message: &'a [u8],
    /// The name of the client, may be empty.
    pub client_id: &'a [u8],
    /// The name of the user.
    pub username: Option<&'a [u8]>,
    /// The password, which may be any bytes.
    pub password: Option<&'a [u8]>,
    /// The position of the protocol's name, where the part begins that the length counts.
    start: usize,
    /// The position of the connect flags.
    flags: usize,
    /// What stands between the connect flags and the client's name, and between that and the names
    /// of the user: positions in the message.
    head: Range<usize>,
    will: Range<usize>,
    level: u8,
}

/// Values to write in place of a message's own.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The client's name.
    pub client_id: Option<Vec<u8>>,
    /// The user's name; an empty one takes the field away.
    pub username: Option<Vec<u8>>,
    /// The password; an empty one takes the field away.
    pub password: Option<Vec<u8>>,
}

/// The position in a message.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

const CUT: &str = "fields are longer than the message";

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], &'static str> {
        let taken = self.bytes.get(self.at..self.at.saturating_add(n)).ok_or(CUT)?;
        self.at += n;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Bytes after their length in two bytes.
    fn binary(&mut self) -> Result<&'a [u8], &'static str> {
        let len = self.take(2)?;
        self.take(usize::from(u16::from_be_bytes([len[0], len[1]])))
    }

    /// Such bytes that are text: UTF-8 without U+0000 (section 1.5.3).
    fn text(&mut self) -> Result<&'a [u8], &'static str> {
        let bytes = self.binary()?;
        match std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0')) {
            true => Ok(bytes),
            false => Err("a name is not UTF-8"),
        }
    }

    /// The properties of version 5, which are only stepped over.
    fn properties(&mut self) -> Result<(), &'static str> {
        match length(&self.bytes[self.at..]) {
            Length::Of { value, bytes } => self.take(bytes + value).map(drop),
            Length::Incomplete => Err(CUT),
            Length::Malformed => Err("the length of properties is malformed"),
        }
    }
}

/// A number of one to four bytes with seven bits each, the lowest first (section 2.2.3).
enum Length {
    Of { value: usize, bytes: usize },
    Incomplete,
    Malformed,
}

fn length(bytes: &[u8]) -> Length {
    let mut value = 0;
    for (i, byte) in bytes.iter().take(LENGTH_BYTES_MAX).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Length::Of { value, bytes: i + 1 };
        }
    }
    if bytes.len() < LENGTH_BYTES_MAX { Length::Incomplete } else { Length::Malformed }
}

/// Reads the CONNECT message at the start of a session.
pub fn connect(bytes: &[u8]) -> Parsed<'_> {
    match bytes.first() {
        None => return Parsed::Incomplete(2),
        Some(&CONNECT) => {}
        Some(_) => return Parsed::Malformed("the first message is not CONNECT"),
    }
    let (len, start) = match length(&bytes[1..]) {
        Length::Of { value, bytes } => (value, 1 + bytes),
        Length::Incomplete => return Parsed::Incomplete(bytes.len() + 1),
        Length::Malformed => return Parsed::Malformed("the length of the message is malformed"),
    };
    match bytes.get(..start + len) {
        None => Parsed::Incomplete(start + len),
        Some(message) => read(message, start).map_or_else(Parsed::Malformed, Parsed::Connect),
    }
}

fn read(message: &[u8], start: usize) -> Result<Connect<'_>, &'static str> {
    let mut cursor = Cursor { bytes: message, at: start };
    let name = cursor.binary()?;
    let level = cursor.byte()?;
    if !matches!((name, level), (b"MQTT", 4 | 5) | (b"MQIsdp", 3)) {
        return Err("the protocol is not MQTT 3.1, 3.1.1 or 5.0");
    }
    let flags = cursor.at;
    let bits = cursor.byte()?;
    let has = |flag: u8| bits & flag != 0;
    if has(flag::RESERVED) {
        return Err("a reserved flag is set");
    }
    if !has(flag::WILL) && has(flag::WILL_QOS | flag::WILL_RETAIN) {
        return Err("flags of a will are set without one");
    }
    if level < 5 && has(flag::PASSWORD) && !has(flag::USER) {
        return Err("there is a password without a username");
    }
    let head = cursor.at;
    cursor.take(2)?;
    if level == 5 {
        cursor.properties()?;
    }
    let head = head..cursor.at;
    let client_id = cursor.text()?;
    let will = cursor.at;
    if has(flag::WILL) {
        if level == 5 {
            cursor.properties()?;
        }
        cursor.text()?;
        cursor.binary()?;
    }
    let will = will..cursor.at;
    let username = has(flag::USER).then(|| cursor.text()).transpose()?;
    let password = has(flag::PASSWORD).then(|| cursor.binary()).transpose()?;
    if cursor.at != message.len() {
        return Err("the message is longer than its fields");
    }
    Ok(Connect { message, client_id, username, password, start, flags, head, will, level })
}

/// A value that is longer than its field can be, or than a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl Connect<'_> {
    /// The length of the message in bytes.
    pub fn message_len(&self) -> usize {
        self.message.len()
    }

    /// The message with some values changed. A password without a username gets an empty one in
    /// versions before 5.0, which have none without.
    ///
    /// # Errors
    /// A value has more than 65,535 bytes.
    pub fn with(&self, changes: &Changes) -> Result<Vec<u8>, TooLong> {
        let set = |change: &'_ Option<Vec<u8>>, own: Option<&[u8]>| match change {
            None => own.map(<[u8]>::to_vec),
            Some(value) if value.is_empty() => None,
            Some(value) => Some(value.clone()),
        };
        let client_id = changes.client_id.as_deref().unwrap_or(self.client_id);
        let mut username = set(&changes.username, self.username);
        let password = set(&changes.password, self.password);
        if password.is_some() && self.level < 5 {
            username.get_or_insert_default();
        }
        let bits = self.message[self.flags] & !(flag::USER | flag::PASSWORD)
            | if username.is_some() { flag::USER } else { 0 }
            | if password.is_some() { flag::PASSWORD } else { 0 };
        let mut rest = self.message[self.start..self.flags].to_vec();
        rest.push(bits);
        rest.extend_from_slice(&self.message[self.head.clone()]);
        put(&mut rest, client_id)?;
        rest.extend_from_slice(&self.message[self.will.clone()]);
        for value in [&username, &password].into_iter().flatten() {
            put(&mut rest, value)?;
        }
        let mut out = vec![CONNECT];
        put_length(&mut out, rest.len())?;
        out.append(&mut rest);
        Ok(out)
    }
}

fn put(out: &mut Vec<u8>, value: &[u8]) -> Result<(), TooLong> {
    let len = u16::try_from(value.len()).map_err(|_| TooLong)?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
    Ok(())
}

fn put_length(out: &mut Vec<u8>, mut len: usize) -> Result<(), TooLong> {
    if len >> (7 * LENGTH_BYTES_MAX) != 0 {
        return Err(TooLong);
    }
    while len > 0x7f {
        out.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of version 3.1.1 with a will, a user and a password.
    const FULL: &[u8] =
        b"\x10\x25\0\x04MQTT\x04\xc6\0\x3c\0\x02id\0\x04will\0\x03bye\0\x04user\0\x04pass";
    /// One of version 5.0 with properties and nothing else.
    const FIVE: &[u8] = b"\x10\x15\0\x04MQTT\x05\x02\0\x0a\x05\x11\0\0\0\x05\0\x03abc";

    fn read(bytes: &[u8]) -> Connect<'_> {
        match connect(bytes) {
            Parsed::Connect(connect) => connect,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_of_clients_and_users() {
        let full = read(FULL);
        assert_eq!(full.client_id, b"id");
        assert_eq!((full.username, full.password), (Some(&b"user"[..]), Some(&b"pass"[..])));
        let five = read(FIVE);
        assert_eq!((five.client_id, five.username, five.password), (&b"abc"[..], None, None));
        let old = b"\x10\x0e\0\x06MQIsdp\x03\0\0\x3c\0\0";
        assert_eq!(read(old).client_id, b"");
        // What follows the message is not part of it.
        let more = [FIVE, b"\x30\x01x"].concat();
        assert_eq!(read(&more).message_len(), FIVE.len());
    }

    #[test]
    fn a_message_comes_in_pieces() {
        for message in [FULL, FIVE] {
            for n in 0..message.len() {
                let Parsed::Incomplete(needed) = connect(&message[..n]) else { panic!("{n}") };
                assert!(needed > n && needed <= message.len(), "{n}: {needed}");
            }
        }
    }

    #[test]
    fn what_is_no_connect() {
        let changed = |at: usize, to: u8| {
            let mut message = FULL.to_vec();
            message[at] = to;
            message
        };
        let reason = |bytes: &[u8]| match connect(bytes) {
            Parsed::Malformed(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(b"GET / HTTP/1.1\r\n"), "the first message is not CONNECT");
        assert_eq!(reason(b"\x10\x80\x80\x80\x80\x01"), "the length of the message is malformed");
        let protocol = "the protocol is not MQTT 3.1, 3.1.1 or 5.0";
        assert_eq!(reason(&changed(8, 6)), protocol);
        assert_eq!(reason(&changed(4, b'm')), protocol);
        assert_eq!(reason(&changed(9, 0xc7)), "a reserved flag is set");
        assert_eq!(reason(&changed(9, 0xe2)), "flags of a will are set without one");
        assert_eq!(reason(&changed(9, 0x46)), "there is a password without a username");
        assert_eq!(reason(&changed(9, 0x86)), "the message is longer than its fields");
        assert_eq!(reason(&changed(13, 0xff)), CUT);
        assert_eq!(reason(&changed(14, 0xff)), "a name is not UTF-8");
        assert_eq!(reason(&changed(14, 0)), "a name is not UTF-8");
        assert_eq!(reason(b"\x10\0"), CUT);
    }

    #[test]
    fn values_are_changed() {
        let changes = |id: Option<&str>, user: Option<&str>, password: Option<&str>| {
            let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
            Changes { client_id: bytes(id), username: bytes(user), password: bytes(password) }
        };
        for message in [FULL, FIVE] {
            assert_eq!(read(message).with(&Changes::default()).unwrap(), message);
        }
        let all = changes(Some("new"), Some("me"), Some("secret"));
        for message in [FULL, FIVE] {
            let out = read(message).with(&all).unwrap();
            let new = read(&out);
            assert_eq!(new.client_id, b"new");
            assert_eq!((new.username, new.password), (Some(&b"me"[..]), Some(&b"secret"[..])));
        }
        let out = read(FULL).with(&changes(Some(""), Some(""), Some(""))).unwrap();
        let new = read(&out);
        assert_eq!((new.client_id, new.username, new.password), (&b""[..], None, None));
        // Version 5.0 has passwords without users, the older ones do not.
        let password = changes(None, Some(""), Some("p"));
        assert_eq!(read(&read(FULL).with(&password).unwrap()).username, Some(&b""[..]));
        assert_eq!(read(&read(FIVE).with(&password).unwrap()).username, None);
        // A longer length takes another byte.
        let long = changes(Some(&"x".repeat(200)), None, None);
        assert_eq!(read(&read(FIVE).with(&long).unwrap()).client_id.len(), 200);
        let longest = changes(Some(&"x".repeat(65_536)), None, None);
        assert_eq!(read(FIVE).with(&longest), Err(TooLong));
    }
}
