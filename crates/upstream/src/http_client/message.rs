//! Requests of the server's own, written out.

use bytes::Bytes;
use http_wire::h1;

/// The parts of a request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method: a token.
    pub method: &'a str,
    /// The target of the request line.
    pub target: &'a [u8],
    /// The value of Host.
    pub host: &'a [u8],
    /// Further fields; Connection and Content-Length are written without being named here.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// The body. One without bytes is declared as well.
    pub body: Option<&'a [u8]>,
    /// Whether the connection is to stay open behind the response.
    pub keeps_connection: bool,
}

/// A request as it is sent, as often as is wanted.
#[derive(Clone, Debug)]
pub struct Message {
    pub(super) text: Bytes,
    pub(super) keeps_connection: bool,
    /// The response has no body, whatever its head says.
    pub(super) is_head: bool,
}

impl Request<'_> {
    /// Writes the request out. No target and no value ends its line, whatever bytes it has.
    pub fn to_message(&self) -> Message {
        let mut text = Vec::new();
        text.extend_from_slice(self.method.as_bytes());
        text.push(b' ');
        let target = text.len();
        text.extend_from_slice(self.target);
        h1::encode_target(&mut text, target);
        text.extend_from_slice(b" HTTP/1.1\r\n");
        h1::write_field(&mut text, b"Host", self.host);
        for (name, value) in self.fields {
            h1::write_field(&mut text, name.as_bytes(), value);
        }
        let connection: &[u8] = if self.keeps_connection { b"keep-alive" } else { b"close" };
        h1::write_field(&mut text, b"Connection", connection);
        if let Some(body) = self.body {
            h1::write_field(&mut text, b"Content-Length", body.len().to_string().as_bytes());
        }
        text.extend_from_slice(b"\r\n");
        text.extend_from_slice(self.body.unwrap_or_default());
        Message {
            text: text.into(),
            keeps_connection: self.keeps_connection,
            is_head: self.method == "HEAD",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_out() {
        let get = Request {
            method: "GET",
            target: b"/a b\r\nX: y",
            host: b"h\r\nX: y",
            fields: &[("User-Agent", b"weir\n")],
            body: None,
            keeps_connection: true,
        };
        assert_eq!(
            get.to_message().text,
            "GET /a%20b%0D%0AX:%20y HTTP/1.1\r\nHost: h  X: y\r\nUser-Agent: weir \r\n\
             Connection: keep-alive\r\n\r\n"
        );
        let post = Request {
            method: "POST",
            target: b"/",
            host: b"h",
            fields: &[],
            body: Some(b"a\r\nb"),
            keeps_connection: false,
        };
        assert_eq!(
            post.to_message().text,
            "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 4\r\n\r\na\r\nb"
        );
        let empty = Request { body: Some(b""), ..post };
        let text = empty.to_message().text;
        assert!(text.ends_with(b"\r\nContent-Length: 0\r\n\r\n"), "{text:?}");
    }
}
