//! `static`: files by `root` and `alias`. It has no directives: it is what answers when nothing else does.

use std::io;

use base::log::Level;
use bytes::Bytes;
use conf::ConfError;
use http::files::{self, OpenError};
use http::module::{LocView, Module, Pipeline, Verdict};
use http::output::Body;
use http::request::Request;
use mem::Chain;
use proto::h1::Method;

/// The module's table.
pub static MODULE: Module = Module { name: "static", install: Some(install), ..Module::EMPTY };

fn install(_: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    p.content.push(Box::new(handle));
    Ok(())
}

fn handle(r: &mut Request) -> Verdict {
    if !r.method_is(&[Method::Get, Method::Head, Method::Post]) {
        return Verdict::Status(405);
    }
    if r.uri.last() == Some(&b'/') {
        return Verdict::Next;
    }
    let path = r.map_path();
    let file = match files::open(r, &path) {
        Ok(f) => f,
        Err(e) => return not_opened(r, &path, &e),
    };
    if file.meta.is_dir() {
        return add_slash(r);
    }
    if !file.meta.is_file() {
        r.log(Level::Crit, format_args!("\"{}\" is not a regular file", base::log::lossy(&path)));
        return Verdict::Status(404);
    }
    if r.method == Method::Post {
        return Verdict::Status(405);
    }
    send_file(r, &file)
}

/// Prepares a file as the response; other modules that choose a file end with it too.
pub fn send_file(r: &mut Request, file: &files::OpenFile) -> Verdict {
    let meta = &file.meta;
    r.out.status = 200;
    r.out.content_length = Some(meta.size);
    r.out.last_modified = Some(meta.mtime_sec);
    if r.loc.core.etag {
        r.out.etag = Some(file.etag.clone());
    }
    set_content_type(r);
    r.out.allow_ranges = true;
    let mut chain = Chain::new();
    if let Some(content) = &file.content {
        chain.push_bytes(content.clone());
    } else if let Some(fd) = &file.fd
        && meta.size > 0
    {
        chain.push_file(fd.clone(), 0, meta.size);
    }
    r.out.body = Body::Chain(chain);
    Verdict::Done
}

/// Sets the type by the URI's extension, or the default one.
pub fn set_content_type(r: &mut Request) {
    if r.out.content_type.is_none() {
        let core = &r.loc.core;
        let mime = core.types.get(r.extension()).unwrap_or(&core.default_type).clone();
        r.out.content_type = (!mime.is_empty()).then_some(mime);
    }
}

/// The status for a path that could not be opened, logged as nginx does.
pub fn not_opened(r: &Request, path: &[u8], e: &OpenError) -> Verdict {
    let status = match e.error.raw_os_error() {
        Some(ENOENT | ENOTDIR | ENAMETOOLONG) => 404,
        Some(EACCES | ELOOP | EXDEV) => 403,
        _ if e.error.kind() == io::ErrorKind::InvalidInput => 404,
        _ => 500,
    };
    let level = if status == 500 { Level::Crit } else { Level::Error };
    if status != 404 || r.loc.core.log_not_found {
        r.log_os(level, format_args!("{} \"{}\"", e.what, base::log::lossy(path)), &e.error);
    }
    Verdict::Status(status)
}

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EXDEV: i32 = 18;
const ENOTDIR: i32 = 20;
const ENAMETOOLONG: i32 = 36;
const ELOOP: i32 = 40;

/// A folder asked for without its slash: the redirect that adds it.
fn add_slash(r: &mut Request) -> Verdict {
    let mut to = Vec::with_capacity(r.uri.len() + r.args.len() + 2);
    proto::uri::escape(&r.uri, proto::uri::Escape::Uri, &mut to);
    to.push(b'/');
    if !r.args.is_empty() {
        to.push(b'?');
        to.extend_from_slice(&r.args);
    }
    r.out.location = Some(Bytes::from(to));
    Verdict::Status(301)
}
