//! `static`: files by `root` and `alias`. It has no directives: it is what answers when nothing
//! else does.

use std::io;
use std::task::{Poll, ready};

use base::log::Level;
use bytes::Bytes;
use conf::ConfError;
use http::files::{self, OpenError, OpenFile};
use http::module::{Dry, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::output::Body;
use http::request::Request;
use http_wire::h1::Method;
use mem::Chain;
pub use os::errno::{EACCES, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOTDIR};
use os::generated_file::is_generated;

use crate::file_notes;

/// The module's table.
pub static MODULE: Module = Module { name: "static", install: Some(install), ..Module::EMPTY };

fn install(_: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    p.content.push(Box::new(Static));
    p.content.push(Box::new(Generated));
    Ok(())
}

struct Static;

impl PhaseHandler for Static {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        match not_a_file(r, &[Method::Get, Method::Head, Method::Post]) {
            Some(verdict) => Step::Now(verdict),
            None => files::step(r, serve),
        }
    }
}

/// The verdict on a request that cannot be for a file: by its method, or its URI is a folder's.
pub(crate) fn not_a_file(r: &Request, methods: &[Method]) -> Option<Verdict> {
    if !r.method_is(methods) {
        return Some(Verdict::Status(405));
    }
    (r.target.uri.last() == Some(&b'/')).then_some(Verdict::Next)
}

fn serve(r: &mut Request) -> Poll<Verdict> {
    let path = r.map_path();
    let opened = ready!(files::try_open(r, &path));
    if r.is_traced() {
        let is_alias = r.loc.core.root.as_ref().is_some_and(|root| root.alias);
        let by = if is_alias { "alias" } else { "root" };
        file_notes::note(r, by, &path, opened.as_ref().map(OpenFile::meta));
    }
    r.flags.root_tested = opened.is_ok() && !r.flags.error_page;
    Poll::Ready(match opened {
        Err(e) => not_opened(r, &path, &e),
        Ok(file) if file.meta().is_dir() => add_slash(r),
        Ok(file) if !file.meta().is_file() => {
            let path = base::log::lossy(&path);
            r.log(Level::Crit, format_args!("\"{path}\" is not a regular file"));
            Verdict::Status(404)
        }
        Ok(_) if r.target.method == Method::Post => Verdict::Status(405),
        // A path whose links are checked is not opened again without that check.
        Ok(file) if is_generated(file.meta()) && r.loc.core.disable_symlinks.is_none() => {
            r.ctx_mut::<GeneratedPath>().0 = path.to_vec();
            Verdict::Next
        }
        Ok(file) => send_file(r, &file),
    })
}

/// The file of that kind that [`Static`] has found.
#[derive(Default)]
struct GeneratedPath(Vec<u8>);

/// Serves files of procfs and sysfs, whose sizes say nothing of their content.
struct Generated;

impl PhaseHandler for Generated {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        match r.ctx::<GeneratedPath>() {
            Some(_) => Step::Wait(Box::pin(serve_generated(r))),
            None => Step::Now(Verdict::Next),
        }
    }
}

/// The content changes with each reading, so that there is neither a tag nor a part of it.
async fn serve_generated(r: &mut Request) -> Verdict {
    let path = r.ctx_mut::<GeneratedPath>().0.clone();
    let name = path.clone();
    match r.on_disk(move || files::generated(&name)).await.and_then(|read| read) {
        Ok(content) => {
            r.out.status = 200;
            r.out.content_length = Some(content.len() as u64);
            r.set_content_type();
            let mut chain = Chain::new();
            if !content.is_empty() {
                chain.push_bytes(content.into());
            }
            r.out.body = Body::Chain(chain);
            Verdict::Done
        }
        Err(error) => not_opened(r, &path, &OpenError::new("read()", error)),
    }
}

/// Prepares a file as the response; other modules that choose a file end with it too.
pub fn send_file(r: &mut Request, file: &OpenFile) -> Verdict {
    let meta = file.meta();
    r.out.status = 200;
    r.out.content_length = Some(meta.size);
    r.out.last_modified = Some(meta.mtime_sec);
    if r.loc.core.etag {
        r.out.etag = Some(file.facts.etag.clone());
    }
    r.set_content_type();
    r.out.allow_ranges = true;
    let mut chain = Chain::new();
    file.append_to(&mut chain, 0, meta.size);
    r.out.body = Body::Chain(chain);
    Verdict::Done
}

/// The status for a path that could not be opened, logged as nginx does.
pub fn not_opened(r: &Request, path: &[u8], e: &OpenError) -> Verdict {
    let status = match e.error.raw_os_error() {
        Some(ENOENT | ENOTDIR | ENAMETOOLONG) => 404,
        Some(EACCES | EMLINK | ELOOP) => 403,
        _ if e.error.kind() == io::ErrorKind::InvalidInput => 404,
        _ => 500,
    };
    let level = if status == 500 { Level::Crit } else { Level::Error };
    if status != 404 || r.loc.core.log_not_found {
        r.log_os(level, format_args!("{} \"{}\"", e.what, base::log::lossy(path)), &e.error);
    }
    Verdict::Status(status)
}

/// A folder asked for without its slash: the redirect that adds it.
fn add_slash(r: &mut Request) -> Verdict {
    let mut to = Vec::with_capacity(r.target.uri.len() + r.target.args.len() + 2);
    http_wire::uri::escape(&r.target.uri, http_wire::uri::Escape::Uri, &mut to);
    to.push(b'/');
    if !r.target.args.is_empty() {
        to.push(b'?');
        to.extend_from_slice(&r.target.args);
    }
    r.out.location = Some(Bytes::from(to));
    Verdict::Status(301)
}
