//! A small HTTP client that shows the bytes of the wire.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketType};

use crate::PATIENCE;

/// A response as it came.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The whole status line, without its line break.
    pub status_line: String,
    /// Field names as sent, and values without the space around them.
    pub headers: Vec<(String, String)>,
    /// The body, unwrapped from chunks.
    pub body: Vec<u8>,
}

impl Response {
    /// The first field of that name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Every field of that name, in any case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        let same = move |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.headers.iter().filter(same).map(|(_, value)| value.as_str())
    }

    /// The body as text, with replacement characters where it is not UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection to the server. Reads time out after [`PATIENCE`] and fail the test then.
pub struct Conn {
    stream: Stream,
    /// Received, not yet handed out.
    pending: Vec<u8>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Other(Box<dyn ReadWrite + Send>),
}

/// A stream of bytes in both directions.
pub trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

impl Conn {
    /// Connects to 127.0.0.1.
    pub fn tcp(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect over TCP");
        stream.set_nodelay(true).expect("set TCP_NODELAY");
        Self::with(Stream::Tcp(stream))
    }

    /// Connects to 127.0.0.1 from another address of the loopback: another client.
    pub fn tcp_from(address: Ipv4Addr, port: u16) -> Self {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        net::bind(&socket, &SocketAddrV4::new(address, 0)).expect("bind to the loopback");
        net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).expect("connect");
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).expect("set TCP_NODELAY");
        Self::with(Stream::Tcp(stream))
    }

    /// Connects to a unix socket.
    pub fn unix(path: &Path) -> Self {
        Self::with(Stream::Unix(UnixStream::connect(path).expect("connect to the unix socket")))
    }

    /// Speaks over any stream, of TLS say, whose reads have their own limit of time.
    pub fn over(stream: impl ReadWrite + Send + 'static) -> Self {
        Self { stream: Stream::Other(Box::new(stream)), pending: Vec::new() }
    }

    fn with(stream: Stream) -> Self {
        let mut conn = Self { stream, pending: Vec::new() };
        conn.set_patience(PATIENCE);
        conn
    }

    /// The limit of a read.
    pub fn set_patience(&mut self, patience: Duration) {
        let patience = Some(patience);
        match &self.stream {
            Stream::Tcp(s) => s.set_read_timeout(patience).and(s.set_write_timeout(patience)),
            Stream::Unix(s) => s.set_read_timeout(patience).and(s.set_write_timeout(patience)),
            Stream::Other(_) => Ok(()),
        }
        .expect("set the socket's timeouts");
    }

    /// The local port, or nothing for a unix socket.
    pub fn local_port(&self) -> Option<u16> {
        match &self.stream {
            Stream::Tcp(s) => s.local_addr().ok().map(|a| a.port()),
            Stream::Unix(_) | Stream::Other(_) => None,
        }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("send to the server");
    }

    /// Sends bytes; for when the server may have closed already.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(s) => s.write_all(bytes.as_ref()),
            Stream::Unix(s) => s.write_all(bytes.as_ref()),
            Stream::Other(s) => s.write_all(bytes.as_ref()).and_then(|()| s.flush()),
        }
    }

    /// Says that nothing more will be sent; reading goes on.
    pub fn finish_sending(&mut self) {
        let how = std::net::Shutdown::Write;
        match &self.stream {
            Stream::Tcp(s) => s.shutdown(how),
            Stream::Unix(s) => s.shutdown(how),
            Stream::Other(_) => panic!("only sockets end in one direction"),
        }
        .expect("shut down the writing side");
    }

    /// Reads once: pending bytes, or the next ones; empty at the end of the stream.
    pub fn read_some(&mut self) -> std::io::Result<Vec<u8>> {
        if !self.pending.is_empty() {
            return Ok(std::mem::take(&mut self.pending));
        }
        let mut buffer = vec![0; 65_536];
        loop {
            let read = match &mut self.stream {
                Stream::Tcp(s) => s.read(&mut buffer),
                Stream::Unix(s) => s.read(&mut buffer),
                Stream::Other(s) => s.read(&mut buffer),
            };
            match read {
                // A read with a timeout is not restarted after a signal.
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
                Ok(len) => {
                    buffer.truncate(len);
                    return Ok(buffer);
                }
            }
        }
    }

    /// Reads until the server closes. A reset or a timeout fails the test.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let more = self.read_some().expect("read until the server closes");
            if more.is_empty() {
                return all;
            }
            all.extend_from_slice(&more);
        }
    }

    /// Reads exactly `len` bytes.
    pub fn read_exact(&mut self, len: usize) -> Vec<u8> {
        while self.pending.len() < len {
            assert!(self.fill(), "the server closed after {} of {len} bytes", self.pending.len());
        }
        self.pending.drain(..len).collect()
    }

    /// Reads up to and including `end`.
    pub fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = find(&self.pending, end) {
                return self.pending.drain(..at + end.len()).collect();
            }
            let so_far = String::from_utf8_lossy(&self.pending).into_owned();
            assert!(self.fill(), "the server closed early; it had sent: {so_far:?}");
        }
    }

    /// Whether the server has closed, or closes within the limit of a read, without sending more.
    pub fn is_closed(&mut self) -> bool {
        if !self.pending.is_empty() {
            return false;
        }
        match self.read_some() {
            Ok(more) => {
                self.pending = more;
                self.pending.is_empty()
            }
            Err(e) => matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        }
    }

    /// Whether the connection is open and the server silent for that long.
    pub fn is_silent_for(&mut self, time: Duration) -> bool {
        self.set_patience(time);
        let silent = self.pending.is_empty()
            && self
                .read_some()
                .map(|more| self.pending = more)
                .is_err_and(|e| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        self.set_patience(PATIENCE);
        silent
    }

    /// Takes the next response; one to `HEAD` has no body whatever its headers. Interim responses
    /// (100 to 199 but 101) are returned like any other.
    pub fn response_to(&mut self, method: &str) -> Response {
        let head = String::from_utf8_lossy(&self.read_until(b"\r\n\r\n")).into_owned();
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap_or_default().to_string();
        let status = status_line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("not a status line: {status_line:?}"));
        let headers = lines
            .map(|line| {
                let split = line.split_once(':');
                let (name, value) = split.unwrap_or_else(|| panic!("not a header: {line:?}"));
                (name.to_string(), value.trim().to_string())
            })
            .collect();
        let mut response = Response { status, status_line, headers, body: Vec::new() };
        let bodiless = method == "HEAD" || status < 200 || status == 204 || status == 304;
        if !bodiless {
            response.body = self.read_body(&response);
        }
        response
    }

    /// Takes the next response, to any method but `HEAD`.
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Takes the next `count` responses.
    pub fn responses(&mut self, count: usize) -> Vec<Response> {
        (0..count).map(|_| self.response()).collect()
    }

    fn read_body(&mut self, response: &Response) -> Vec<u8> {
        let chunked = response.header("Transfer-Encoding").is_some_and(|v| v == "chunked");
        if chunked {
            return self.read_chunks();
        }
        match response.header("Content-Length") {
            Some(length) => {
                let length = length.parse();
                self.read_exact(length.unwrap_or_else(|e| panic!("bad Content-Length: {e}")))
            }
            None => self.read_to_end(),
        }
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let chunk = self.read_chunk();
            if chunk.is_empty() {
                return body;
            }
            body.extend(chunk);
        }
    }

    /// Takes the next chunk of a chunked body, whose head was read; empty at its end, with the
    /// trailers read.
    pub fn read_chunk(&mut self) -> Vec<u8> {
        let line = String::from_utf8_lossy(&self.read_until(b"\r\n")).into_owned();
        let size = line.trim_end().split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size, 16)
            .unwrap_or_else(|e| panic!("bad chunk size {line:?}: {e}"));
        if size == 0 {
            // Trailers, if any, then the empty line.
            while self.read_until(b"\r\n") != b"\r\n" {}
            return Vec::new();
        }
        let chunk = self.read_exact(size);
        assert_eq!(self.read_exact(2), b"\r\n", "a chunk ends with a line break");
        chunk
    }

    /// Receives more; false at the end of the stream.
    fn fill(&mut self) -> bool {
        let pending = std::mem::take(&mut self.pending);
        let more = self.read_some();
        self.pending = pending;
        let more = more.unwrap_or_else(|e| {
            panic!("read: {e}; so far: {:?}", String::from_utf8_lossy(&self.pending))
        });
        self.pending.extend_from_slice(&more);
        !more.is_empty()
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::Conn;

    fn served(bytes: &'static [u8]) -> Conn {
        let (listener, port) = crate::listener();
        std::thread::spawn(move || listener.accept().unwrap().0.write_all(bytes).unwrap());
        Conn::tcp(port)
    }

    #[test]
    fn pipelined_responses_come_apart() {
        let mut conn = served(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: 1\r\nx: 2\r\n\r\nabc\
              HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
              2;x=y\r\nde\r\n1\r\nf\r\n0\r\nT: v\r\n\r\n\
              HTTP/1.1 304 Not Modified\r\n\r\nHTTP/1.0 404 No\r\n\r\nto the end",
        );
        let seen = conn.responses(4);
        let bodies: Vec<String> = seen.iter().map(super::Response::text).collect();
        assert_eq!(bodies, ["abc", "def", "", "to the end"]);
        assert_eq!(seen[0].all("x").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(seen[3].status, 404);
        assert!(conn.is_closed());
    }

    #[test]
    fn a_head_response_has_no_body() {
        let mut conn = served(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
        assert!(conn.response_to("HEAD").body.is_empty());
        assert!(conn.is_closed());
    }

    #[test]
    #[should_panic(expected = "closed early")]
    fn a_cut_response_fails() {
        served(b"HTTP/1.1 200 OK\r\nContent-Le").response();
    }
}
