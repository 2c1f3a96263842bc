//! Credentials of the Basic scheme (RFC 7617), as the client sent them.

use http_wire::basic::{Credentials, parse};
use http_wire::h1::{FieldId, Method};

use crate::request::Request;

impl Request {
    /// The credentials in `Authorization` (`Proxy-Authorization` for CONNECT), if they are of the
    /// Basic scheme and well-formed.
    pub fn basic_credentials(&self) -> Option<Credentials> {
        let id = match self.target.method {
            Method::Connect => FieldId::ProxyAuthorization,
            _ => FieldId::Authorization,
        };
        parse(self.header(id)?)
    }
}
