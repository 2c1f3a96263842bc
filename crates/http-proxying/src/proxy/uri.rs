//! The URIs of requests to servers.

use bytes::Bytes;
use http::request::Request;
use http_wire::uri::{Escape, escape};

/// The URI of a request to the server.
#[derive(Clone, Debug)]
pub(crate) enum Uri {
    /// As it is, from variables.
    Whole(Bytes),
    /// The client's, with the location's name (so many bytes) replaced. Nothing to replace it with
    /// means that it goes as the client wrote it.
    Replace {
        /// The replacement of the location's name.
        with: Bytes,
        /// The length of that name.
        location: usize,
    },
}

/// The parts of the client's request that URIs are made of.
struct Asked<'a> {
    /// As it was sent, where that still is what is asked for.
    sent: Option<&'a [u8]>,
    path: &'a [u8],
    args: &'a [u8],
    /// The path begins with the location's name.
    located: bool,
    /// The path holds what must be escaped.
    escaped: bool,
}

impl Uri {
    /// Appends the URI for a request; `false` where it would be empty.
    pub fn write(&self, r: &Request, out: &mut Vec<u8>) -> bool {
        self.put(
            &Asked {
                sent: r.flags.valid_unparsed_uri.then(|| r.unparsed_uri()),
                path: &r.target.uri,
                args: &r.target.args,
                located: r.flags.valid_location,
                escaped: r.head.quoted || r.flags.internal,
            },
            out,
        )
    }

    fn put(&self, asked: &Asked<'_>, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        match (self, asked.sent) {
            (Uri::Whole(uri), _) => out.extend_from_slice(uri),
            (Uri::Replace { with, .. }, Some(sent)) if with.is_empty() => {
                out.extend_from_slice(sent);
            }
            (Uri::Replace { with, location }, _) => {
                let cut = asked.located && !with.is_empty();
                let from = if cut { *location } else { 0 };
                if asked.located {
                    out.extend_from_slice(with);
                }
                let rest = asked.path.get(from..).unwrap_or_default();
                if asked.escaped {
                    escape(rest, Escape::Uri, out);
                } else {
                    out.extend_from_slice(rest);
                }
                if !asked.args.is_empty() {
                    out.push(b'?');
                    out.extend_from_slice(asked.args);
                }
            }
        }
        out.len() > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(with: &'static str, location: &str, asked: &Asked<'_>) -> String {
        let uri =
            Uri::Replace { with: Bytes::from_static(with.as_bytes()), location: location.len() };
        let mut out = Vec::new();
        uri.put(asked, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_name_of_the_location_is_replaced() {
        let plain = Asked {
            sent: Some(b"/loc/a%20b?x=%20"),
            path: b"/loc/a b",
            args: b"x=%20",
            located: true,
            escaped: true,
        };
        assert_eq!(uri("", "/loc/", &plain), "/loc/a%20b?x=%20");
        assert_eq!(uri("/new/", "/loc/", &plain), "/new/a%20b?x=%20");
        assert_eq!(uri("/new", "/loc/", &plain), "/newa%20b?x=%20");
        assert_eq!(uri("/?q=", "/loc/", &plain), "/?q=a%20b?x=%20");
        // A name longer than the path takes all of it.
        assert_eq!(uri("/new/", "/loc/a b/longer", &plain), "/new/?x=%20");
    }

    #[test]
    fn after_rewriting_the_path_goes_as_it_is() {
        let rewritten =
            Asked { sent: None, path: b"/other/x", args: b"", located: false, escaped: false };
        assert_eq!(uri("", "/loc/", &rewritten), "/other/x");
        assert_eq!(uri("/new/", "/loc/", &rewritten), "/other/x");
        let found_anew = Asked { located: true, ..rewritten };
        assert_eq!(uri("/new/", "/other/", &found_anew), "/new/x");
    }

    #[test]
    fn variables_give_it_whole() {
        let asked =
            Asked { sent: Some(b"/a"), path: b"/a", args: b"", located: true, escaped: false };
        let mut out = Vec::new();
        assert!(Uri::Whole(Bytes::from_static(b"/x y")).put(&asked, &mut out));
        assert_eq!(out, b"/x y");
        assert!(!Uri::Whole(Bytes::new()).put(&asked, &mut out));
    }
}
