//! Request methods.

/// A request method; names that nginx has no number for are `Other` (see `Head::method_name`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Method {
    Other,
    Get,
    Head,
    Post,
    Put,
    Delete,
    Mkcol,
    Copy,
    Move,
    Options,
    Propfind,
    Proppatch,
    Lock,
    Unlock,
    Patch,
    Trace,
    Connect,
}

impl Method {
    /// The method of a name; methods are case-sensitive.
    pub fn lookup(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"MKCOL" => Method::Mkcol,
            b"COPY" => Method::Copy,
            b"MOVE" => Method::Move,
            b"OPTIONS" => Method::Options,
            b"PROPFIND" => Method::Propfind,
            b"PROPPATCH" => Method::Proppatch,
            b"LOCK" => Method::Lock,
            b"UNLOCK" => Method::Unlock,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// The name; empty for `Other`.
    pub fn name(self) -> &'static str {
        match self {
            Method::Other => "",
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Mkcol => "MKCOL",
            Method::Copy => "COPY",
            Method::Move => "MOVE",
            Method::Options => "OPTIONS",
            Method::Propfind => "PROPFIND",
            Method::Proppatch => "PROPPATCH",
            Method::Lock => "LOCK",
            Method::Unlock => "UNLOCK",
            Method::Patch => "PATCH",
            Method::Trace => "TRACE",
            Method::Connect => "CONNECT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Method;

    #[test]
    fn names_round_trip_and_are_case_sensitive() {
        for name in [
            "GET",
            "HEAD",
            "POST",
            "PUT",
            "DELETE",
            "MKCOL",
            "COPY",
            "MOVE",
            "OPTIONS",
            "PROPFIND",
            "PROPPATCH",
            "LOCK",
            "UNLOCK",
            "PATCH",
            "TRACE",
            "CONNECT",
        ] {
            assert_eq!(Method::lookup(name.as_bytes()).name(), name);
            assert_eq!(Method::lookup(name.to_lowercase().as_bytes()), Method::Other);
        }
        assert_eq!(Method::lookup(b"GETT"), Method::Other);
        assert_eq!(Method::lookup(b""), Method::Other);
    }
}
