//! FastCGI: a responder here, over connections that are kept and ones that are not, and its
//! clients.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use testkit::rng::Rng;

use super::behind::{content, digest};
use super::http::{Client, status};
use super::tally::{Lane, Tally};
use crate::Outcome;
use crate::client::Watch;

const CLIENTS: usize = 2;
const LONGEST: usize = 200_000;

/// Types of records.
const BEGIN: u8 = 1;
const ABORT: u8 = 2;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

/// Starts the responder; gives its port. `/bytes/NUMBER/LENGTH` is content, everything else is
/// answered with the digest of the request's body.
pub fn responder() -> Outcome<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // The server may be gone.
                let _ = serve(stream);
            });
        }
    });
    Ok(port)
}

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

fn serve(mut stream: TcpStream) -> io::Result<()> {
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
                stream.write_all(&answer(&params, &body, [a, b]))?;
                if !keeps {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
}

fn answer(params: &[u8], body: &[u8], id: [u8; 2]) -> Vec<u8> {
    let path = String::from_utf8_lossy(param(params, b"REQUEST_URI").unwrap_or_default());
    let mut parts = path.rsplit('/').map(str::parse::<u64>);
    let text = match (parts.next(), parts.next()) {
        (Some(Ok(len)), Some(Ok(number))) => content(number, len as usize),
        _ => digest(body).into_bytes(),
    };
    let head = format!("Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n", text.len());
    let all = [head.as_bytes(), &text].concat();
    let mut out = Vec::with_capacity(all.len() + 100);
    all.chunks(30_000).for_each(|part| out.extend(record(STDOUT, id, part)));
    out.extend(record(STDOUT, id, b""));
    out.extend(record(END, id, &[0; 8]));
    out
}

/// Starts the clients.
pub fn begin(port: u16, tally: &Arc<Tally>) -> Vec<JoinHandle<()>> {
    let one = |n: usize| {
        let lane = Lane::new(tally, "FastCGI");
        std::thread::spawn(move || {
            let (mut rng, mut client) = (Rng::new(n as u64 + 91), Client::new(port, None));
            while !lane.tally.is_over() {
                lane.pace();
                ask(&mut client, &mut rng, ["fastcgi", "fastcgi-kept"][n % 2], &lane);
            }
        })
    };
    (0..CLIENTS).map(one).collect()
}

fn ask(client: &mut Client, rng: &mut Rng, place: &str, lane: &Lane) {
    let longest = [100, 20_000, LONGEST][rng.below(3)];
    let (number, len) = (rng.below(1 << 30) as u64, rng.below(longest));
    let bytes = content(number, len);
    let since = Instant::now();
    let (answer, right) = if rng.percent(30) {
        let head = format!(
            "POST /{place}/digest HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n"
        );
        (client.ask(&[head.as_bytes(), &bytes].concat()), digest(&bytes).into_bytes())
    } else {
        (client.get(&format!("/{place}/bytes/{number}/{len}"), ""), bytes)
    };
    match answer {
        Ok(answer) if answer.status != 200 => {
            lane.fault(since, &format!("{place}: {}", status(&answer)));
        }
        Ok(answer) if answer.body != right => lane.fault(since, &format!("{place}: another body")),
        Ok(_) => lane.right(since, place),
        Err(lost) => lane.fault(since, &format!("{place}: {lost}")),
    }
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
