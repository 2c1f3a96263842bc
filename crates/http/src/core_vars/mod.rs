//! The core's variables: the request, the response, the connection, the process. Each is written
//! straight into the text that is being made.

mod connection;
mod process;
mod request;
mod response;

use crate::vars::VarDef;
use base::ascii::is_name_of_field;
use common_modules::connection_vars::{self, write_port, write_some};
use conf::table::join;

/// All of them. A name of its own wins over a family that it would belong to.
pub(crate) static VARIABLES: &[VarDef] = &join::<_, { OWN.len() + SHARED.len() }>(&[OWN, SHARED]);

/// The variables that every engine has.
const SHARED: &[VarDef] = &connection_vars::variables();

const OWN: &[VarDef] = &[
    // The request.
    VarDef::prefix("arg_", request::arg),
    VarDef::settable("args", request::args, request::set_args),
    VarDef::new("query_string", request::args),
    VarDef::new("is_args", request::is_args),
    VarDef::new("uri", request::uri),
    VarDef::new("document_uri", request::uri),
    VarDef::new("request_uri", request::request_uri),
    VarDef::new("request", request::line),
    VarDef::new("request_method", request::method),
    VarDef::new("server_protocol", request::protocol),
    VarDef::prefix("http_", request::header),
    VarDef::new("http_cookie", request::cookies),
    VarDef::prefix("cookie_", request::cookie),
    VarDef::new("content_type", |r, out| request::header(r, b"content_type", out)),
    VarDef::new("content_length", request::content_length),
    VarDef::new("host", request::host),
    VarDef::new("request_port", request::port),
    VarDef::new("is_request_port", request::is_port),
    VarDef::new("remote_user", request::remote_user),
    VarDef::new("server_name", request::server_name),
    VarDef::new("document_root", request::document_root),
    VarDef::new("realpath_root", request::realpath_root),
    VarDef::new("request_filename", request::filename),
    VarDef::new("request_body", request::body),
    VarDef::new("request_body_file", request::body_file),
    VarDef::new("request_length", request::length),
    VarDef::new("request_time", request::time),
    VarDef::kept("request_id", process::request_id),
    VarDef::new("pipe", request::pipe),
    // The response.
    VarDef::new("status", response::status),
    VarDef::new("bytes_sent", response::bytes_sent),
    VarDef::new("body_bytes_sent", response::body_bytes_sent),
    VarDef::new("request_completion", response::completion),
    VarDef::settable("limit_rate", response::limit_rate, response::set_limit_rate),
    VarDef::prefix("sent_http_", response::header),
    VarDef::prefix("sent_trailer_", response::trailer),
    VarDef::new("sent_http_content_type", response::content_type),
    VarDef::new("sent_http_content_length", response::content_length),
    VarDef::new("sent_http_last_modified", response::last_modified),
    VarDef::new("sent_http_etag", response::etag),
    VarDef::new("sent_http_location", response::location),
    VarDef::new("sent_http_connection", response::connection),
    VarDef::new("sent_http_keep_alive", response::keep_alive),
    VarDef::new("sent_http_transfer_encoding", response::transfer_encoding),
    // The connection.
    VarDef::new("connection_requests", connection::requests),
    VarDef::new("connection_time", connection::time),
    VarDef::new("scheme", connection::scheme),
    VarDef::new("https", connection::https),
    VarDef::new("tcpinfo_rtt", |r, out| connection::tcp_info(r, out, |t| t.rtt)),
    VarDef::new("tcpinfo_rttvar", |r, out| connection::tcp_info(r, out, |t| t.rttvar)),
    VarDef::new("tcpinfo_snd_cwnd", |r, out| connection::tcp_info(r, out, |t| t.snd_cwnd)),
    VarDef::new("tcpinfo_rcv_space", |r, out| connection::tcp_info(r, out, |t| t.rcv_space)),
];

/// Writes the values of all fields that a variable's name means, with `between` in between: letters
/// are equal in either case, and `_` stands for `-`.
fn write_fields<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    wanted: &[u8],
    between: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let mut found = false;
    for (name, value) in fields {
        if !is_name_of_field(wanted, name) {
            continue;
        }
        if found {
            out.extend_from_slice(between);
        }
        found = true;
        out.extend_from_slice(value);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_name_are_joined() {
        let fields: [(&[u8], &[u8]); 4] =
            [(b"X-One", b"a"), (b"x-two", b"no"), (b"x_one", b"b"), (b"X-ONE", b"")];
        let mut out = Vec::new();
        assert!(write_fields(fields.into_iter(), b"x_one", b", ", &mut out));
        assert_eq!(out, b"a, b, ");
        assert!(!write_fields(fields.into_iter(), b"x_three", b", ", &mut out));
        assert!(!write_fields(fields.into_iter(), b"", b", ", &mut out));
    }

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<&str> = VARIABLES.iter().map(|v| v.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
