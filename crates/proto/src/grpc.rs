//! gRPC: the time that a client gives to a call, and the messages of the health checking protocol
//! (`grpc.health.v1.Health`) in gRPC's framing: a byte that says whether the message is compressed,
//! its length in four bytes, and the message in the wire format of Protocol Buffers.

/// The path of the call that asks whether a service is well.
pub const HEALTH_PATH: &[u8] = b"/grpc.health.v1.Health/Check";

/// The status of a server that serves (`ServingStatus.SERVING`).
pub const SERVING: u64 = 1;

/// The field of a service's name in the request, with bytes of a length.
const SERVICE: u8 = 1 << 3 | 2;

/// The field of the status in the response, a number.
const STATUS: u64 = 1;

/// The field with the time that a client gives to a call.
pub const TIMEOUT: &[u8] = b"grpc-timeout";

/// The fields that tell a client that its time is over (status `DEADLINE_EXCEEDED`).
pub const LATE: [(&str, &str); 2] = [("grpc-status", "4"), ("grpc-message", "Deadline Exceeded")];

/// The time that a value of [`TIMEOUT`] gives, milliseconds, rounded up: at most eight digits and a
/// unit (gRPC over HTTP/2, "Requests"). `None`: it is no such value.
pub fn timeout_ms(value: &[u8]) -> Option<u64> {
    let (unit, digits) = value.split_last()?;
    if digits.len() > 8 {
        return None;
    }
    let n = base::ascii::parse_u64(digits)?;
    Some(match unit {
        b'H' => n * 3_600_000,
        b'M' => n * 60_000,
        b'S' => n * 1000,
        b'm' => n,
        b'u' => n.div_ceil(1000),
        b'n' => n.div_ceil(1_000_000),
        _ => return None,
    })
}

/// Codes of calls' ends that the server itself tells apart.
#[derive(Debug)]
pub struct Status;

impl Status {
    /// The call is done.
    pub const OK: u64 = 0;
    /// It was cancelled.
    pub const CANCELLED: u64 = 1;
    /// Its time was over.
    pub const DEADLINE_EXCEEDED: u64 = 4;
    /// The server has not enough of something.
    pub const RESOURCE_EXHAUSTED: u64 = 8;
    /// It was aborted.
    pub const ABORTED: u64 = 10;
    /// It was tried past a valid range.
    pub const OUT_OF_RANGE: u64 = 11;
    /// The server cannot be had now.
    pub const UNAVAILABLE: u64 = 14;
    /// Data was lost.
    pub const DATA_LOSS: u64 = 15;
}

/// The framing before a message of `len` bytes that is not compressed.
pub fn message_head(len: usize) -> [u8; 5] {
    let [a, b, c, d] = (len as u32).to_be_bytes();
    [0, a, b, c, d]
}

/// The only message of a body; `None`: it has none, another length, or is compressed.
pub fn message(body: &[u8]) -> Option<&[u8]> {
    let (head, message) = body.split_first_chunk::<5>()?;
    (*head == message_head(message.len())).then_some(message)
}

/// The text of `grpc-message`, in which some bytes are written `%41`.
pub fn decode_message(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, later)) = rest.split_first() {
        rest = later;
        let digits = later.get(..2).filter(|_| *first == b'%');
        match digits.and_then(base::ascii::parse_hex).as_deref() {
            Some([byte]) => {
                out.push(*byte);
                rest = &later[2..];
            }
            _ => out.push(*first),
        }
    }
    out
}

/// The bytes of a field whose name ends in `-bin`: base64, with or without padding.
pub fn decode_binary(value: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    base::base64::decode(value, &mut out).then_some(out)
}

/// The question whether a service is well; without a name, whether the server is.
pub fn health_request(service: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(SERVICE);
        write_number(&mut message, service.len() as u64);
        message.extend_from_slice(service);
    }
    let mut framed = message_head(message.len()).to_vec();
    framed.append(&mut message);
    framed
}

/// The status in the answer; 0 (unknown) where there is none in it. `None`: it is no such answer.
pub fn health_status(body: &[u8]) -> Option<u64> {
    let (mut rest, mut status) = (message(body)?, 0);
    while !rest.is_empty() {
        let tag = read_number(&mut rest)?;
        match tag & 7 {
            0 => {
                let value = read_number(&mut rest)?;
                if tag >> 3 == STATUS {
                    status = value;
                }
            }
            1 => rest = rest.get(8..)?,
            2 => {
                let len = usize::try_from(read_number(&mut rest)?).ok()?;
                rest = rest.get(len..)?;
            }
            5 => rest = rest.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, later) = rest.split_first()?;
        *rest = later;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_calls() {
        for (value, ms) in [
            ("1H", 3_600_000),
            ("2M", 120_000),
            ("3S", 3000),
            ("99999999m", 99_999_999),
            ("1500u", 2),
            ("1n", 1),
            ("0S", 0),
        ] {
            assert_eq!(timeout_ms(value.as_bytes()), Some(ms), "{value}");
        }
        for value in ["", "S", "5", "5s", "-5S", "+5S", "5.0S", "123456789S", " 5S"] {
            assert_eq!(timeout_ms(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn messages_of_ends_are_decoded() {
        for (value, text) in [
            ("", ""),
            ("too much", "too much"),
            ("100%25 of %C3%A4", "100% of \u{e4}"),
            ("%", "%"),
            ("%4", "%4"),
            ("%zz%41", "%zzA"),
        ] {
            assert_eq!(decode_message(value.as_bytes()), text.as_bytes(), "{value}");
        }
    }

    #[test]
    fn binary_fields_are_decoded() {
        for (value, bytes) in [
            ("", &b""[..]),
            ("Zg", b"f"),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm8", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYmFy", b"foobar"),
            ("+/+/", &[0xfb, 0xff, 0xbf]),
        ] {
            assert_eq!(decode_binary(value.as_bytes()).as_deref(), Some(bytes), "{value}");
        }
        for value in ["Z", "Zm9vY", "Zm 8", "Zm9-"] {
            assert_eq!(decode_binary(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn messages_have_their_length() {
        assert_eq!(message(&[0, 0, 0, 0, 2, 8, 1]), Some(&[8, 1][..]));
        assert_eq!(message(&message_head(0)), Some(&[][..]));
        for bad in [&[][..], &[0, 0, 0, 0, 2, 8], &[1, 0, 0, 0, 1, 8]] {
            assert_eq!(message(bad), None);
        }
    }

    #[test]
    fn requests_name_the_service() {
        assert_eq!(health_request(b""), [0, 0, 0, 0, 0]);
        assert_eq!(health_request(b"a.B"), [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'.', b'B']);
        let long = health_request(&[b'x'; 200]);
        assert_eq!(long[..8], [0, 0, 0, 0, 203, 0x0a, 0xc8, 1]);
    }

    #[test]
    fn answers_have_a_status() {
        assert_eq!(health_status(&[0, 0, 0, 0, 2, 8, 1]), Some(SERVING));
        assert_eq!(health_status(&[0, 0, 0, 0, 2, 8, 2]), Some(2));
        assert_eq!(health_status(&[0, 0, 0, 0, 0]), Some(0));
        // Fields that are not known are passed over.
        let others = [0x12, 1, b'x', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 8, 1];
        assert_eq!(health_status(&[&[0, 0, 0, 0, 19][..], &others].concat()), Some(SERVING));
        for bad in [
            &[][..],
            &[0, 0, 0, 0, 3, 8, 1],
            &[1, 0, 0, 0, 2, 8, 1],
            &[0, 0, 0, 0, 1, 8],
            &[0, 0, 0, 0, 2, 0x0a, 5],
            &[0, 0, 0, 0, 1, 0x0b],
            &[0, 0, 0, 0, 12, 8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
        ] {
            assert_eq!(health_status(bad), None, "{bad:?}");
        }
    }
}
