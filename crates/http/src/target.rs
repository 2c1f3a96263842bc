//! Prepares a parsed head for the phases: host, virtual server, normalized URI.

use std::ops::Range;

use base::log::Level;
use http_wire::h1::{Method, TargetForm, Version};

use crate::files::FilePath;
use crate::request::{Request, Target};

/// Sets host, server, URI and arguments of a request.
///
/// # Errors
/// The status to refuse the request with.
pub(crate) fn prepare(r: &mut Request) -> Result<(), u16> {
    // In this order, as the request line comes first: its path is made as the default server of the
    // address has it (`merge_slashes`), whatever the host.
    let mut prepared = uri(r).and_then(|()| host(r)).and_then(|()| checked(r));
    let speaks = match r.head.version {
        Version::HTTP_20 => r.server.http2.enabled,
        Version::HTTP_30 => r.server.http3.enabled,
        _ => true,
    };
    if prepared.is_ok() && !speaks {
        let m = "client attempted to request the server name for which the negotiated protocol is";
        r.log(Level::Info, format_args!("{m} disabled"));
        prepared = Err(421);
    }
    if prepared.is_ok() && (r.c().listen.ssl || r.c().listen.quic) {
        prepared = crate::ssl::admit(r);
    }
    if prepared.is_err() {
        r.close_connection();
    }
    prepared
}

/// The same for a request that another process has checked and begun.
///
/// # Errors
/// This configuration has no such server.
pub(crate) fn resume(r: &mut Request) -> Result<(), u16> {
    uri(r)?;
    host(r)
}

/// The same for a request with refused or incomplete fields, as far as they are known. A request
/// without a host after all its fields (`whole`) is for the server of requests without one.
///
/// # Errors
/// The status to answer with whatever else is wrong.
#[cold]
pub(crate) fn prepare_refused(r: &mut Request, whole: bool) -> Result<(), u16> {
    uri(r)?;
    if whole || r.head.host.is_some() {
        return host(r);
    }
    dropped_fields(r, 0..usize::MAX);
    Ok(())
}

fn checked(r: &mut Request) -> Result<(), u16> {
    let refuse = |r: &Request, status, what: &str| {
        r.log(Level::Info, format_args!("client sent {what} while reading client request headers"));
        Err(status)
    };
    if r.head.version >= Version::HTTP_11 && r.head.host.is_none() {
        return refuse(r, 400, "HTTP/1.1 request without \"Host\" header");
    }
    match r.head.method {
        Method::Connect if r.head.version < Version::HTTP_11 || !r.server.core.allow_connect => {
            return refuse(r, 405, "CONNECT method");
        }
        Method::Connect if r.head.has_body() => {
            return refuse(r, 400, "CONNECT request with body");
        }
        // The bytes behind its head are not HTTP.
        Method::Connect => r.close_connection(),
        Method::Trace => return refuse(r, 405, "TRACE method"),
        _ => {}
    }
    Ok(())
}

fn host(r: &mut Request) -> Result<(), u16> {
    let known_from = r.head.host.map_or(usize::MAX, |h| h.name.range().start);
    if r.head.any_dropped {
        dropped_fields(r, 0..known_from);
    }
    if let Some(h) = r.head.host {
        let (host, channel) = (&mut r.target.host, &r.client.channel);
        host.extend_from_slice(h.name.of(channel.head_text()));
        if h.has_upper {
            host.make_ascii_lowercase();
        }
        r.target.host_port = h.port;
    }
    let address = r.c().listen.clone();
    r.server.clone_from(&address.default);
    let mut found = Ok(None);
    if let Some(names) = &address.names {
        let host = std::mem::take(&mut r.target.host);
        found = names.find(&host, r);
        r.target.host = host;
    }
    if let Ok(Some(server)) = &found {
        r.server.clone_from(server);
    }
    r.loc.clone_from(&r.server.root);
    r.note_server();
    if r.head.any_dropped {
        dropped_fields(r, known_from..usize::MAX);
    }
    found.map_err(|_| 500u16)?;
    crate::ssl::check_name(r)
}

fn uri(r: &mut Request) -> Result<(), u16> {
    let Request { target, client, head, server, .. } = r;
    let Target { uri, args, .. } = target;
    let bytes = client.channel.head_text();
    if head.form == TargetForm::Authority {
        uri.push(b'/');
        return Ok(());
    }
    if head.plain_path {
        uri.extend_from_slice(head.path.of(bytes));
        args.extend_from_slice(head.args.of(bytes));
        return Ok(());
    }
    let raw = head.target.of(bytes);
    match http_wire::uri::normalize(raw, server.core.merge_slashes, uri) {
        Ok(parts) => {
            args.extend_from_slice(&raw[parts.args]);
            (head.quoted, head.plus_in_path) = (parts.quoted, parts.plus);
            Ok(())
        }
        Err(_) => {
            uri.clear();
            let raw = base::log::lossy(raw).into_owned();
            r.log(
                Level::Info,
                format_args!(
                    "client sent invalid request while reading client request line: \"{raw}\""
                ),
            );
            Err(400)
        }
    }
}

/// Logs the fields that `ignore_invalid_headers` drops, if they begin in a range of the head.
#[cold]
fn dropped_fields(r: &Request, of: Range<usize>) {
    if !r.logs(Level::Info) {
        return;
    }
    for f in r.head.fields.iter().filter(|f| f.dropped && of.contains(&f.name.range().start)) {
        let text = http_wire::h1::dropped_message(f, r.head_bytes());
        r.log(Level::Info, format_args!("{text} while reading client request headers"));
    }
}

impl Request {
    /// Whether the path that the client sent had a `%` or a `+`: groups of regular expressions are
    /// escaped then, where they become arguments or redirects.
    pub fn was_escaped(&self) -> bool {
        self.head.quoted || self.head.plus_in_path
    }

    /// The path of the file that the URI stands for here, by `root` or `alias`.
    pub fn map_path(&mut self) -> FilePath {
        let mut path = FilePath::new();
        self.map_path_into(&mut path);
        path
    }

    /// The same, appended to `out`.
    pub(crate) fn map_path_into(&mut self, out: &mut Vec<u8>) {
        self.root_into(out);
        out.extend_from_slice(self.below_root(&self.target.uri));
    }

    /// The path of the file that another URI stands for here. `None`: an `alias` may name groups of
    /// the location's regular expression, which does not match that URI.
    pub fn map_path_of(&mut self, uri: &[u8]) -> Option<FilePath> {
        let mut path = FilePath::new();
        let is_whole = self.loc.core.root.as_ref().is_some_and(|root| root.alias && root.whole);
        let regex = self.loc.regex.clone().filter(|_| is_whole);
        let captures = self.state.captures.clone();
        if let Some(regex) = &regex
            && !regex.exec(self, uri).is_ok_and(|matches| matches)
        {
            return None;
        }
        self.root_into(&mut path);
        path.extend_from_slice(self.below_root(uri));
        if let Some(regex) = &regex {
            // The variables of named groups are those of the request again.
            let own = self.target.uri.clone();
            let _ = regex.exec(self, &own);
            self.state.captures = captures;
        }
        Some(path)
    }

    /// The part of a URI that follows the root or alias in its file's path.
    fn below_root<'a>(&self, uri: &'a [u8]) -> &'a [u8] {
        match &self.loc.core.root {
            Some(root) if root.alias && root.whole && !self.flags.uri_below_alias => b"",
            Some(root) if root.alias && root.whole => uri,
            Some(root) if root.alias => self.behind_alias(uri, root.name_len),
            _ => uri,
        }
    }

    fn behind_alias<'a>(&self, uri: &'a [u8], name_len: usize) -> &'a [u8] {
        // After a rewrite the URI may not begin with the location's name: then all of it is added.
        if self.flags.valid_location || uri.starts_with(&self.loc.info.name) {
            uri.get(name_len..).unwrap_or_default()
        } else {
            uri
        }
    }

    /// Appends `root` (or `alias`) as it is for this request, absolute.
    pub fn root_into(&mut self, out: &mut Vec<u8>) {
        let Some(root) = &self.loc.core.root else {
            return out.extend_from_slice(&self.main.default_root);
        };
        if let Some(c) = root.path.as_const() {
            return out.extend_from_slice(c);
        }
        let core = self.loc.core.clone();
        let value = core.root.as_ref().map(|root| root.path.eval(self)).unwrap_or_default();
        if value.first() != Some(&b'/') {
            out.extend_from_slice(&self.main.prefix);
            out.push(b'/');
        }
        out.extend_from_slice(&value);
    }
}
