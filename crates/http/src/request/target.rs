//! The resource that is asked for now: what the head says, as rewriting, internal redirects and
//! modules have changed it since.

use http_wire::h1::Method;

/// Method, path, arguments and host of a request, as they hold now.
pub struct Target {
    /// The method; GET after an internal redirect to an error page.
    pub method: Method,
    /// The normalized path, unescaped. Never empty while phases run.
    pub uri: Vec<u8>,
    /// The arguments, behind the `?`.
    pub args: Vec<u8>,
    /// The host that the request is for: lower case, without port; may be empty.
    pub host: Vec<u8>,
    /// The port that the request's authority named; 0 if none.
    pub host_port: u16,
    /// The head followed by the fields that [`Request::edit_header`] has set; empty until then.
    ///
    /// [`Request::edit_header`]: super::Request::edit_header
    pub(crate) edited_head: Vec<u8>,
    /// The number of further URI changes that are allowed.
    pub(crate) uri_changes: u8,
}

/// The number of times that a request may change its URI inside the server; more are treated as a
/// circle.
pub(crate) const MAX_URI_CHANGES: u8 = 10;

impl Target {
    pub(super) fn new() -> Target {
        Target {
            method: Method::Get,
            uri: Vec::new(),
            args: Vec::new(),
            host: Vec::new(),
            host_port: 0,
            edited_head: Vec::new(),
            uri_changes: MAX_URI_CHANGES + 1,
        }
    }

    /// Clears it for the next request, which sets its method.
    pub(super) fn reset(&mut self) {
        self.edited_head.clear();
        self.uri.clear();
        self.args.clear();
        self.host.clear();
        self.host_port = 0;
        self.uri_changes = MAX_URI_CHANGES + 1;
    }

    /// The file name extension of the path, without its dot; empty if there is none.
    pub fn extension(&self) -> &[u8] {
        http_wire::uri::extension(&self.uri).unwrap_or_default()
    }
}
