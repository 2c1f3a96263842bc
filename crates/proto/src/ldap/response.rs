//! Messages of servers.

use super::MESSAGE_MAX;
use super::ber::{self, Reader, tag};

/// The first bytes of a connection's input.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A message that needs this many bytes in all, as far as is known.
    Incomplete(usize),
    /// A message with its length.
    Message(usize, Message<'a>),
    /// No message of LDAP, for this reason.
    Malformed(&'static str),
}

/// A message of an LDAP server (RFC 4511 section 4.1.1).
#[derive(Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The number of the request that it responds to; 0 if it is unsolicited.
    pub id: u32,
    /// Its content.
    pub operation: Operation<'a>,
}

/// The content of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The result of a bind.
    Bind(Outcome<'a>),
    /// An entry was found; its name.
    Entry(&'a [u8]),
    /// A part of the search is up to another server.
    Reference,
    /// The end of a search.
    SearchDone(Outcome<'a>),
    /// The result of an extended operation, with its object identifier, or a notice.
    Extended(Outcome<'a>, Option<&'a [u8]>),
    /// An intermediate response.
    Intermediate,
}

/// A result (RFC 4511 section 4.1.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The result code; 0 is success.
    pub code: u32,
    /// The server's words.
    pub text: &'a [u8],
}

/// Result codes that decide something.
pub mod code {
    /// The operation succeeded.
    pub const SUCCESS: u32 = 0;
    /// A search has more results than it may have.
    pub const SIZE_LIMIT_EXCEEDED: u32 = 4;
    /// Another server is to be asked.
    pub const REFERRAL: u32 = 10;
    /// The entry does not exist.
    pub const NO_SUCH_OBJECT: u32 = 32;
    /// The name of an entry is none.
    pub const INVALID_DN_SYNTAX: u32 = 34;
    /// The password is wrong.
    pub const INVALID_CREDENTIALS: u32 = 49;
}

impl Outcome<'_> {
    /// Whether the server is at fault, or overloaded, so that the result says nothing about the
    /// request.
    pub fn is_of_server(&self) -> bool {
        // operationsError, protocolError, timeLimitExceeded, adminLimitExceeded,
        // unavailableCriticalExtension, confidentialityRequired, busy, unavailable, loopDetect,
        // other.
        matches!(self.code, 1..=3 | 11..=13 | 51 | 52 | 54 | 80)
    }

    /// The name of the code in RFC 4511, section 4.1.9.
    pub fn name(&self) -> &'static str {
        match self.code {
            0 => "success",
            1 => "operationsError",
            2 => "protocolError",
            3 => "timeLimitExceeded",
            4 => "sizeLimitExceeded",
            7 => "authMethodNotSupported",
            8 => "strongerAuthRequired",
            10 => "referral",
            11 => "adminLimitExceeded",
            12 => "unavailableCriticalExtension",
            13 => "confidentialityRequired",
            16 => "noSuchAttribute",
            17 => "undefinedAttributeType",
            18 => "inappropriateMatching",
            19 => "constraintViolation",
            21 => "invalidAttributeSyntax",
            32 => "noSuchObject",
            34 => "invalidDNSyntax",
            48 => "inappropriateAuthentication",
            49 => "invalidCredentials",
            50 => "insufficientAccessRights",
            51 => "busy",
            52 => "unavailable",
            53 => "unwillingToPerform",
            54 => "loopDetect",
            80 => "other",
            _ => "an unknown code",
        }
    }
}

/// Reads the first message of a connection's input.
pub fn parse(data: &[u8]) -> Parsed<'_> {
    match try_parse(data) {
        Ok(parsed) => parsed,
        Err(why) => Parsed::Malformed(why),
    }
}

fn try_parse(data: &[u8]) -> Result<Parsed<'_>, &'static str> {
    if data.first().is_some_and(|first| *first != tag::SEQUENCE) {
        return Err("it does not begin as a message");
    }
    let Some(header) = ber::header(data)? else { return Ok(Parsed::Incomplete(data.len() + 1)) };
    if header.content > MESSAGE_MAX {
        return Err("the message is too long");
    }
    let len = header.len + header.content;
    let Some(content) = data.get(header.len..len) else { return Ok(Parsed::Incomplete(len)) };
    Ok(Parsed::Message(len, message(content)?))
}

fn message(content: &[u8]) -> Result<Message<'_>, &'static str> {
    let mut reader = Reader(content);
    let id = reader.number(tag::INTEGER)?;
    let (operation, content) = reader.any()?;
    // Controls, and what later versions add.
    reader.skip_rest()?;
    let mut reader = Reader(content);
    let operation = match operation {
        0x61 => Operation::Bind(outcome(&mut reader)?),
        0x64 => Operation::Entry(entry(&mut reader)?),
        0x65 => Operation::SearchDone(outcome(&mut reader)?),
        0x73 => {
            while !reader.is_empty() {
                reader.take(tag::OCTETS)?;
            }
            Operation::Reference
        }
        0x78 => {
            let outcome = outcome(&mut reader)?;
            Operation::Extended(outcome, reader.take_if(0x8a)?)
        }
        0x79 => Operation::Intermediate,
        _ => return Err("the message is none that a server sends"),
    };
    reader.skip_rest()?;
    Ok(Message { id, operation })
}

fn outcome<'a>(reader: &mut Reader<'a>) -> Result<Outcome<'a>, &'static str> {
    let code = reader.number(tag::ENUMERATED)?;
    reader.take(tag::OCTETS)?;
    let text = reader.take(tag::OCTETS)?;
    // Referrals are not followed.
    reader.take_if(0xa3)?;
    Ok(Outcome { code, text })
}

/// The name of an entry; its attributes must be well-formed.
fn entry<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], &'static str> {
    let name = reader.take(tag::OCTETS)?;
    let mut attributes = Reader(reader.take(tag::SEQUENCE)?);
    while !attributes.is_empty() {
        let mut attribute = Reader(attributes.take(tag::SEQUENCE)?);
        attribute.take(tag::OCTETS)?;
        let mut values = Reader(attribute.take(tag::SET)?);
        while !values.is_empty() {
            values.take(tag::OCTETS)?;
        }
        attribute.skip_rest()?;
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: &[u8] = b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00";

    #[test]
    fn results_are_read() {
        let success = Outcome { code: 0, text: b"" };
        let message = Message { id: 1, operation: Operation::Bind(success) };
        assert_eq!(parse(BOUND), Parsed::Message(BOUND.len(), message));
        // As Active Directory sends lengths, with a control.
        let long = b"\x30\x84\x00\x00\x00\x14\x02\x01\x02\x65\x84\x00\x00\x00\x09\x0a\x01\x31\x04\
                     \x00\x04\x02no\xa0\x00";
        let done = Outcome { code: code::INVALID_CREDENTIALS, text: b"no" };
        let message = Message { id: 2, operation: Operation::SearchDone(done) };
        assert_eq!(parse(long), Parsed::Message(long.len(), message));
        let entry = b"\x30\x16\x02\x01\x03\x64\x11\x04\x04dc=x\x30\x09\x30\x07\x04\x01a\x31\x02\
                      \x04\x00";
        let message = Message { id: 3, operation: Operation::Entry(b"dc=x") };
        assert_eq!(parse(entry), Parsed::Message(entry.len(), message));
        let reference = b"\x30\x0a\x02\x01\x03\x73\x05\x04\x03l:x";
        let message = Message { id: 3, operation: Operation::Reference };
        assert_eq!(parse(reference), Parsed::Message(reference.len(), message));
    }

    #[test]
    fn pieces_are_incomplete() {
        for len in 0..BOUND.len() {
            let Parsed::Incomplete(needed) = parse(&BOUND[..len]) else { panic!("{len}") };
            assert!(needed > len && needed <= BOUND.len());
        }
        assert!(matches!(parse(&[BOUND, b"more"].concat()), Parsed::Message(14, _)));
    }

    #[test]
    fn what_no_server_sends_is_malformed() {
        for bad in [
            &b"HTTP/1.1 400"[..],
            b"\x30\x80",
            b"\x30\x84\x7f\xff\xff\xff",
            // The code is an INTEGER, the content is longer than its element, nothing behind it.
            b"\x30\x0c\x02\x01\x01\x61\x07\x02\x01\x00\x04\x00\x04\x00",
            b"\x30\x0c\x02\x01\x01\x61\x08\x0a\x01\x00\x04\x00\x04\x00",
            b"\x30\x00",
            // A request.
            b"\x30\x05\x02\x01\x03\x42\x00",
        ] {
            assert!(matches!(parse(bad), Parsed::Malformed(_)), "{bad:?}");
        }
    }
}
