//! A responder of FastCGI, for one request at a time on each connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Types of records.
const BEGIN: u8 = 1;
const ABORT: u8 = 2;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

/// The value of a parameter.
fn param<'a>(mut bytes: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    fn len(bytes: &mut &[u8]) -> Option<usize> {
        let first = *bytes.first()?;
        if first < 128 {
            *bytes = &bytes[1..];
            return Some(first.into());
        }
        let (four, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        Some((u32::from_be_bytes(*four) & 0x7fff_ffff) as usize)
    }
    loop {
        let (name, value) = (len(&mut bytes)?, len(&mut bytes)?);
        let (own, rest) = bytes.split_at_checked(name)?;
        let (text, rest) = rest.split_at_checked(value)?;
        if own == wanted {
            return Some(text);
        }
        bytes = rest;
    }
}

fn record(kind: u8, id: [u8; 2], bytes: &[u8]) -> Vec<u8> {
    let [a, b] = (bytes.len() as u16).to_be_bytes();
    let padding = bytes.len() % 3;
    let head = [1, kind, id[0], id[1], a, b, padding as u8, 0];
    [&head[..], bytes, &[0; 3][..padding]].concat()
}

/// Answers the requests of a connection until it ends: `answer` gets the value of `REQUEST_URI` and
/// the body, and gives the response's body.
///
/// # Errors
/// Those of the socket, its end among them.
pub fn serve(mut stream: TcpStream, answer: impl Fn(&str, &[u8]) -> Vec<u8>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut keeps, mut params, mut body) = (false, Vec::new(), Vec::new());
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        let [_, kind, a, b, high, low, padding, _] = head;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let mut bytes = vec![0; len + usize::from(padding)];
        stream.read_exact(&mut bytes)?;
        bytes.truncate(len);
        match kind {
            BEGIN => {
                keeps = bytes.get(2).is_some_and(|flags| flags & 1 != 0);
                (params, body) = (Vec::new(), Vec::new());
            }
            PARAMS => params.extend(bytes),
            ABORT => return Ok(()),
            STDIN if len > 0 => body.extend(bytes),
            STDIN => {
                let uri = param(&params, b"REQUEST_URI").unwrap_or_default();
                let text = answer(&String::from_utf8_lossy(uri), &body);
                stream.write_all(&response(&text, [a, b]))?;
                if !keeps {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
}

/// The records of a response.
fn response(text: &[u8], id: [u8; 2]) -> Vec<u8> {
    let head = format!("Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n", text.len());
    let all = [head.as_bytes(), text].concat();
    let mut out = Vec::with_capacity(all.len() + 100);
    all.chunks(30_000).for_each(|part| out.extend(record(STDOUT, id, part)));
    out.extend(record(STDOUT, id, b""));
    out.extend(record(END, id, &[0; 8]));
    out
}

#[cfg(test)]
mod tests {
    use super::param;

    #[test]
    fn parameters_are_found() {
        let long = "x".repeat(200);
        let mut bytes = vec![1, 2];
        bytes.extend(b"abc");
        bytes.extend([11, 0x80, 0, 0, 200]);
        bytes.extend(b"REQUEST_URI");
        bytes.extend(long.bytes());
        assert_eq!(param(&bytes, b"a"), Some(&b"bc"[..]));
        assert_eq!(param(&bytes, b"REQUEST_URI"), Some(long.as_bytes()));
        assert_eq!(param(&bytes[..100], b"REQUEST_URI"), None);
    }
}
