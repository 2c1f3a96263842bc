//! The server behind both proxies: the path chooses its behaviour.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::Outcome;

/// Starts it on a free port, for as long as the process lives.
pub fn start() -> Outcome<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // The client may be gone.
                let _ = serve(stream);
            });
        }
    });
    Ok(port)
}

struct Asked {
    line: String,
    fields: Vec<String>,
    body: Vec<u8>,
}

impl Asked {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader)? {
        let head = asked.line.starts_with("HEAD ");
        let (answer, keep) = answer(&asked);
        let end =
            answer.windows(4).position(|w| w == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
        writer.write_all(if head { &answer[..end] } else { &answer })?;
        if !keep || asked.field("connection").is_some_and(|v| v.eq_ignore_ascii_case("close")) {
            break;
        }
    }
    Ok(())
}

fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut asked = Asked { line: line.trim_end().to_string(), fields: vec![], body: vec![] };
    loop {
        let mut bytes = Vec::new();
        if reader.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        let field = String::from_utf8_lossy(&bytes).trim_end().to_string();
        if field.is_empty() {
            break;
        }
        asked.fields.push(field);
    }
    if asked.field("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk)?;
            asked.body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = asked.field("content-length").and_then(|v| v.parse().ok()) {
        asked.body = vec![0; length];
        reader.read_exact(&mut asked.body)?;
    }
    Ok(Some(asked))
}

fn with_length(status: &str, fields: &str, body: &[u8]) -> (Vec<u8>, bool) {
    let len = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {len}\r\n\r\n");
    ([head.as_bytes(), body].concat(), true)
}

fn raw(text: &str) -> (Vec<u8>, bool) {
    (text.as_bytes().to_vec(), false)
}

/// The answer, and whether the connection is kept.
fn answer(asked: &Asked) -> (Vec<u8>, bool) {
    let path = asked.target().split('?').next().unwrap_or_default();
    const TEXT: &str = "Content-Type: text/plain\r\n";
    if let Some(code) = path.strip_prefix("/status/") {
        let status = if code.is_empty() { "200 OK".to_string() } else { format!("{code} Said") };
        let fields = format!("{TEXT}X-Who: somebody\r\nWWW-Authenticate: Basic realm=\"x\"\r\n");
        return with_length(&status, &fields, b"status\n");
    }
    match path {
        "/chunked" => {
            raw("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n5\r\nhello\r\n7;ext=1\r\n chunks\r\n0\r\nX-Trailer: \
                 t\r\n\r\n")
        }
        "/close" => raw("HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\nuntil the end\n"),
        "/fields" => with_length(
            "200 Fine",
            "Content-Type: text/html; charset=koi8-r\r\nSet-Cookie: a=1; Path=/; Domain=origin.test\
             \r\nSet-Cookie: b=2; path=/x\r\nX-More: more\r\nServer: origin\r\n\
             Cache-Control: no-cache\r\nExpires: Thu, 01 Jan 1970 00:00:01 GMT\r\n\
             Date: Thu, 01 Jan 2020 00:00:01 GMT\r\nX-Pad: pad\r\nX-Accel-Expires: 5\r\n\
             X-Accel-Charset: utf-8\r\nVary: X-Y\r\nLink: </a>; rel=x\r\n\
             ETag: \"abc\"\r\nLast-Modified: Wed, 01 Jan 2020 00:00:00 GMT\r\n",
            b"<p>fields of all kinds, and a body that is worth compressing: aaaaaaaaaaaaaaaa</p>",
        ),
        "/redirect" => with_length(
            "302 Found",
            "Location: http://origin.test/next\r\nRefresh: 5; url=http://origin.test/next\r\n",
            b"",
        ),
        "/internal" => {
            with_length("200 OK", "X-Accel-Redirect: /plain.txt?a=1\r\nX-More: x\r\n", b"no")
        }
        "/named" => with_length("200 OK", "X-Accel-Redirect: @teapot\r\nX-More: x\r\n", b"no"),
        "/range" => {
            let body: Vec<u8> = (0..9000u32).map(|n| b'a' + (n % 26) as u8).collect();
            partial(asked, &body)
        }
        "/gzipped" => with_length(
            "200 OK",
            "Content-Type: text/plain\r\nContent-Encoding: gzip\r\nETag: \"gz\"\r\n",
            &super::site::gzip(b"a text that was compressed at the origin\n"),
        ),
        "/badgzip" => with_length(
            "200 OK",
            "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n",
            b"\x1f\x8bthis is not what it says",
        ),
        "/continue" => {
            raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes")
        }
        "/bad" => raw("this is not HTTP\r\n\r\n"),
        "/empty" => (Vec::new(), false),
        "/short" => raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"),
        "/badchunk" => raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx"),
        "/long" => raw(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nlonger than it says",
        ),
        "/204" => raw("HTTP/1.1 204 No Content\r\nX-More: x\r\nConnection: close\r\n\r\n"),
        "/304" => raw("HTTP/1.1 304 Not Modified\r\nConnection: close\r\nETag: \"abc\"\r\n\r\n"),
        _ => {
            let mut body = format!("{}\n{}\n\n", asked.line, asked.fields.join("\n")).into_bytes();
            body.extend_from_slice(&asked.body);
            with_length("200 OK", TEXT, &body)
        }
    }
}

fn partial(asked: &Asked, body: &[u8]) -> (Vec<u8>, bool) {
    let fields = "Content-Type: text/plain\r\nETag: \"range\"\r\nAccept-Ranges: bytes\r\n";
    let asked_for = asked.field("range").and_then(|v| v.strip_prefix("bytes="));
    let Some((from, to)) = asked_for.and_then(|v| v.split_once('-')) else {
        return with_length("200 OK", fields, body);
    };
    let (Ok(from), to) = (from.parse::<usize>(), to.parse::<usize>()) else {
        return with_length("200 OK", fields, body);
    };
    if from >= body.len() {
        let range = format!("{fields}Content-Range: bytes */{}\r\n", body.len());
        return with_length("416 Range Not Satisfiable", &range, b"");
    }
    let to = to.unwrap_or(usize::MAX).min(body.len() - 1);
    let range = format!("{fields}Content-Range: bytes {from}-{to}/{}\r\n", body.len());
    with_length("206 Partial Content", &range, body.get(from..=to).unwrap_or_default())
}
