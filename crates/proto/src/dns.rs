//! DNS messages (RFC 1035), as far as a stub resolver needs them: one question out, and back the
//! answers of types A, AAAA, CNAME, PTR and SRV, and the lifetime of a negative answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A type of record.
pub mod kind {
    /// An IPv4 address.
    pub const A: u16 = 1;
    /// Another name.
    pub const CNAME: u16 = 5;
    /// The start of a zone's authority.
    pub(crate) const SOA: u16 = 6;
    /// The name of an address (RFC 1035 section 3.5).
    pub const PTR: u16 = 12;
    /// An IPv6 address.
    pub const AAAA: u16 = 28;
    /// Host and port of a service (RFC 2782).
    pub const SRV: u16 = 33;
}

/// The class of the Internet.
const IN: u16 = 1;

/// Longest name in its form on the wire, in bytes.
const NAME_MAX: usize = 255;
/// Longest label, in bytes.
const LABEL_MAX: usize = 63;
/// Length of a message's head.
const HEAD: usize = 12;

/// A name that no query can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadName;

/// A message that is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Appends the query for the records of a type of a name, written with dots. Recursion is desired.
///
/// # Errors
/// Labels that are empty or too long, or a name that is.
pub fn write_query(out: &mut Vec<u8>, id: u16, name: &[u8], kind: u16) -> Result<(), BadName> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    if name.len() + 2 > NAME_MAX {
        return Err(BadName);
    }
    let start = out.len();
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split(|b| *b == b'.') {
        if label.is_empty() || label.len() > LABEL_MAX {
            out.truncate(start);
            return Err(BadName);
        }
        out.push(label.len() as u8);
        out.extend_from_slice(label);
    }
    out.push(0);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&IN.to_be_bytes());
    Ok(())
}

/// The data of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// The name that the owner stands for.
    Cname(Vec<u8>),
    /// The name of an address.
    Ptr(Vec<u8>),
    /// Where a service is.
    Srv {
        /// Servers with a lower one are preferred.
        priority: u16,
        /// The share among servers of one priority.
        weight: u16,
        /// The port.
        port: u16,
        /// The host.
        target: Vec<u8>,
    },
    /// Another type.
    Other(u16),
}

/// A record of the answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The owner's name, written with dots, as it came.
    pub name: Vec<u8>,
    /// Its lifetime in seconds.
    pub ttl: u32,
    /// What the record says, by its type.
    pub data: Data,
}

/// A response of a DNS server to one question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The query's number.
    pub id: u16,
    /// The answer did not fit: it must be requested over TCP.
    pub truncated: bool,
    /// The response code, 0 for success.
    pub rcode: u8,
    /// The name of the question, written with dots, with its letters as they came back.
    pub name: Vec<u8>,
    /// The type of the question.
    pub kind: u16,
    /// The answers. Of a truncated response, none.
    pub answers: Vec<Record>,
    /// The lifetime of a negative answer in seconds; `None` where the response has none (RFC 2308).
    pub negative_ttl: Option<u32>,
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(n).ok_or(Malformed)?;
        let bytes = self.message.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from(self.u16()?) << 16 | u32::from(self.u16()?))
    }

    /// A name, perhaps compressed. Each pointer leads further to the front, so that none leads in a
    /// circle.
    fn name(&mut self) -> Result<Vec<u8>, Malformed> {
        let mut name = Vec::new();
        let mut at = self.at;
        let mut end = None;
        let mut before = self.at;
        loop {
            let len = usize::from(*self.message.get(at).ok_or(Malformed)?);
            match len & 0xc0 {
                0 if len == 0 => break,
                0 => {
                    let label = self.message.get(at + 1..at + 1 + len).ok_or(Malformed)?;
                    // A dot within a label would make another name of it when it is written.
                    if label.iter().any(|b| matches!(b, b'.' | 0)) {
                        return Err(Malformed);
                    }
                    if !name.is_empty() {
                        name.push(b'.');
                    }
                    name.extend_from_slice(label);
                    if name.len() + 2 > NAME_MAX {
                        return Err(Malformed);
                    }
                    at += 1 + len;
                }
                0xc0 => {
                    let low = *self.message.get(at + 1).ok_or(Malformed)?;
                    end.get_or_insert(at + 2);
                    at = (len & 0x3f) << 8 | usize::from(low);
                    if at >= before {
                        return Err(Malformed);
                    }
                    before = at;
                }
                _ => return Err(Malformed),
            }
        }
        self.at = end.unwrap_or(at + 1);
        Ok(name)
    }

    fn record(&mut self) -> Result<Record, Malformed> {
        let name = self.name()?;
        let (kind, class, ttl) = (self.u16()?, self.u16()?, self.u32()?);
        let len = usize::from(self.u16()?);
        let end = self.at + len;
        if end > self.message.len() {
            return Err(Malformed);
        }
        let data = match kind {
            _ if class != IN => Data::Other(kind),
            kind::A => {
                let bytes: [u8; 4] = self.take(len)?.try_into().map_err(|_| Malformed)?;
                Data::A(bytes.into())
            }
            kind::AAAA => {
                let bytes: [u8; 16] = self.take(len)?.try_into().map_err(|_| Malformed)?;
                Data::Aaaa(bytes.into())
            }
            kind::CNAME => Data::Cname(self.name()?),
            kind::PTR => Data::Ptr(self.name()?),
            kind::SRV => {
                let (priority, weight, port) = (self.u16()?, self.u16()?, self.u16()?);
                Data::Srv { priority, weight, port, target: self.name()? }
            }
            _ => Data::Other(kind),
        };
        if self.at > end {
            return Err(Malformed);
        }
        self.at = end;
        // RFC 2181, section 8: the highest bit makes it zero.
        Ok(Record { name, ttl: if ttl > i32::MAX as u32 { 0 } else { ttl }, data })
    }

    /// The minimum of a SOA record that begins here, and its own time.
    fn authority(&mut self) -> Result<Option<u32>, Malformed> {
        let _ = self.name()?;
        let (kind, class, ttl) = (self.u16()?, self.u16()?, self.u32()?);
        let len = usize::from(self.u16()?);
        let data = self.take(len)?;
        let minimum = match data {
            [.., a, b, c, d] if kind == kind::SOA && class == IN && len >= 22 => {
                u32::from_be_bytes([*a, *b, *c, *d])
            }
            _ => return Ok(None),
        };
        Ok(Some(minimum.min(ttl)))
    }
}

/// Reads a response.
///
/// # Errors
/// The message is no response to one question, or is malformed.
pub fn read(message: &[u8]) -> Result<Response, Malformed> {
    let mut r = Reader { message, at: 0 };
    let (id, flags) = (r.u16()?, r.u16()?);
    let (questions, answers) = (r.u16()?, r.u16()?);
    let (authorities, _) = (r.u16()?, r.u16()?);
    // QR is set, the opcode is QUERY, and there is one question.
    if flags & 0xf800 != 0x8000 || questions != 1 {
        return Err(Malformed);
    }
    debug_assert_eq!(r.at, HEAD);
    let name = r.name()?;
    let (kind, class) = (r.u16()?, r.u16()?);
    if class != IN {
        return Err(Malformed);
    }
    let truncated = flags & 0x0200 != 0;
    let mut response = Response {
        id,
        truncated,
        rcode: (flags & 15) as u8,
        name,
        kind,
        answers: Vec::new(),
        negative_ttl: None,
    };
    if truncated {
        return Ok(response);
    }
    for _ in 0..answers {
        response.answers.push(r.record()?);
    }
    for _ in 0..authorities {
        // Data behind the answers is of no importance, malformed or not.
        match r.authority() {
            Ok(Some(ttl)) => response.negative_ttl = Some(ttl),
            Ok(None) => {}
            Err(Malformed) => break,
        }
    }
    Ok(response)
}

/// The name under which the name of an address is looked up (RFC 1035 section 3.5, RFC 3596 section
/// 2.5).
pub fn name_of_address(ip: IpAddr) -> Vec<u8> {
    let mut name = String::new();
    match ip {
        IpAddr::V4(ip) => {
            for octet in ip.octets().iter().rev() {
                name.push_str(&format!("{octet}."));
            }
            name.push_str("in-addr.arpa");
        }
        IpAddr::V6(ip) => {
            for octet in ip.octets().iter().rev() {
                name.push_str(&format!("{:x}.{:x}.", octet & 15, octet >> 4));
            }
            name.push_str("ip6.arpa");
        }
    }
    name.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut out = Vec::new();
        write_query(&mut out, 0x1234, name.as_bytes(), kind).unwrap();
        out
    }

    /// A response to a query with answers as they stand on the wire.
    fn response(name: &str, kind: u16, flags: u16, answers: &[&[u8]]) -> Vec<u8> {
        let mut out = query(name, kind);
        out[2..4].copy_from_slice(&flags.to_be_bytes());
        out[6..8].copy_from_slice(&(answers.len() as u16).to_be_bytes());
        answers.iter().for_each(|a| out.extend_from_slice(a));
        out
    }

    #[test]
    fn queries() {
        let q = query("www.example.com", kind::A);
        let expected = b"\x124\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01";
        assert_eq!(q, expected);
        assert_eq!(query("www.example.com.", kind::A), expected);
        for bad in ["", ".", "a..b", ".a", &"a".repeat(64), &"a.".repeat(128)] {
            let mut out = vec![7];
            assert_eq!(write_query(&mut out, 1, bad.as_bytes(), 1), Err(BadName), "{bad}");
            assert_eq!(out, [7]);
        }
        assert!(write_query(&mut Vec::new(), 1, "a.".repeat(127).as_bytes(), 1).is_ok());
    }

    #[test]
    fn answers() {
        let m = response(
            "a.example",
            kind::A,
            0x8180,
            &[
                b"\xc0\x0c\0\x05\0\x01\0\0\0\x05\0\x04\x01b\xc0\x0e",
                b"\xc0\x27\0\x01\0\x01\0\0\0\x09\0\x04\x7f\0\0\x01",
                b"\x01C\0\0\x1c\0\x01\xff\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01",
                b"\xc0\x0c\0\x21\0\x01\0\0\0\x01\0\x09\0\x01\0\x02\x1f\x90\x01t\0",
                b"\xc0\x0c\0\x10\0\x01\0\0\0\x01\0\x02\x01x",
            ],
        );
        let r = read(&m).unwrap();
        assert_eq!((r.id, r.rcode, r.truncated, r.kind), (0x1234, 0, false, kind::A));
        assert_eq!(r.name, b"a.example");
        let of = |i: usize| (&r.answers[i].name[..], r.answers[i].ttl, r.answers[i].data.clone());
        assert_eq!(of(0), (&b"a.example"[..], 5, Data::Cname(b"b.example".to_vec())));
        assert_eq!(of(1), (&b"b.example"[..], 9, Data::A(Ipv4Addr::LOCALHOST)));
        assert_eq!(of(2), (&b"C"[..], 0, Data::Aaaa(Ipv6Addr::LOCALHOST)));
        let target = b"t".to_vec();
        let srv = Data::Srv { priority: 1, weight: 2, port: 8080, target };
        assert_eq!(of(3).2, srv);
        assert_eq!(of(4).2, Data::Other(16));
    }

    #[test]
    fn names_of_addresses() {
        let of = |ip: &str| String::from_utf8(name_of_address(ip.parse().unwrap())).unwrap();
        assert_eq!(of("192.0.2.10"), "10.2.0.192.in-addr.arpa");
        let zeros = "0.".repeat(19);
        assert_eq!(of("2001:db8::1f"), format!("f.1.0.0.0.{zeros}8.b.d.0.1.0.0.2.ip6.arpa"));
        let m = response(
            "10.2.0.192.in-addr.arpa",
            kind::PTR,
            0x8180,
            &[b"\xc0\x0c\0\x0c\0\x01\0\0\0\x05\0\x05\x01c\x01d\0"],
        );
        assert_eq!(read(&m).unwrap().answers[0].data, Data::Ptr(b"c.d".to_vec()));
    }

    #[test]
    fn refusals_and_truncation() {
        let mut m = response("a.b", kind::A, 0x8183, &[]);
        m[9] = 1;
        m.extend_from_slice(b"\0\0\x06\0\x01\0\0\0\x09\0\x16\0\0");
        m.extend_from_slice(&[0; 16]);
        m.extend_from_slice(&[0, 0, 0, 7]);
        let r = read(&m).unwrap();
        assert_eq!((r.rcode, r.negative_ttl), (3, Some(7)));
        let m = response("a.b", kind::A, 0x8380, &[b"half an ans"]);
        assert!(read(&m).unwrap().truncated);
    }

    #[test]
    fn what_is_broken() {
        let good = response("a.b", kind::A, 0x8180, &[b"\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04abcd"]);
        assert!(read(&good).is_ok());
        for len in 0..good.len() {
            assert_eq!(read(&good[..len]), Err(Malformed), "{len} bytes");
        }
        let with = |at: usize, byte: u8| {
            let mut m = good.clone();
            m[at] = byte;
            read(&m)
        };
        assert_eq!(with(2, 0x01), Err(Malformed), "a query");
        assert_eq!(with(2, 0x91), Err(Malformed), "another opcode");
        assert_eq!(with(5, 2), Err(Malformed), "two questions");
        assert_eq!(with(13, b'.'), Err(Malformed), "a dot in a label");
        assert_eq!(with(22, 0x15), Err(Malformed), "a pointer to itself");
        assert_eq!(with(22, 0x7f), Err(Malformed), "a pointer forwards");
        assert_eq!(with(12, 0x41), Err(Malformed), "a label of a reserved form");
        assert_eq!(with(32, 5), Err(Malformed), "an address too long");
    }

    #[test]
    fn pointers_to_pointers_end() {
        // Each points to the one before it; the first one to a name.
        let mut m = response("a", kind::A, 0x8180, &[]);
        let start = m.len();
        for i in 0..100u16 {
            let to = if i == 0 { 12 } else { start as u16 + (i - 1) * 2 };
            m.extend_from_slice(&(0xc000 | to).to_be_bytes());
        }
        let mut r = Reader { message: &m, at: start + 198 };
        assert_eq!(r.name().unwrap(), b"a");
        assert_eq!(r.at, start + 200);
    }
}
