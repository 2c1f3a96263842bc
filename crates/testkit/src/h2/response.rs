//! The response of a stream, and the last word on a connection.

use super::Fields;

/// A response as it came, whole or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status code; 0 before there is one.
    pub status: u16,
    /// Regular fields, in their order.
    pub fields: Fields,
    /// The body.
    pub body: Vec<u8>,
    /// Fields behind the body.
    pub trailers: Fields,
    /// Responses before the final one, with their fields.
    pub interim: Vec<(u16, Fields)>,
    /// Whether END_STREAM came.
    pub ended: bool,
    /// The code of RST_STREAM, if one came.
    pub reset: Option<u32>,
}

impl Response {
    /// The first field of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Every field of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        let same = move |(n, _): &&(String, String)| n == name;
        self.fields.iter().filter(same).map(|(_, value)| value.as_str())
    }

    /// The first trailer of that name.
    pub fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The body as text, with replacement characters where it is not UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether nothing more comes.
    pub fn is_over(&self) -> bool {
        self.ended || self.reset.is_some()
    }
}

/// A GOAWAY frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// The last stream that was or may be processed.
    pub last_stream: u32,
    /// One of [`code`](super::code).
    pub code: u32,
    /// The text behind.
    pub debug: String,
}
