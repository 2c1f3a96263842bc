//! `dav`: PUT, DELETE, MKCOL, COPY and MOVE (RFC 4918) on files below `root` and `alias`.

mod copy_move;
mod tree;
mod work;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use base::log::Level;
use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::value::{set_access, set_bitmask, set_flag, set_num};
use conf::{ConfError, Node};
use files::{Attributes, dir_mode, move_file};
use files::{Keep, TempFile};
use http::body::InFile;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http_wire::h1::{FieldId, Method};

use self::work::Notes;

/// The module's table.
pub static MODULE: Module = Module::of::<DavConf>("dav", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "dav_methods",
        HSL,
        Args::ONE_MORE,
        "off",
        "The WebDAV methods to allow: PUT, DELETE, MKCOL, COPY, MOVE.",
        dav_methods,
    ),
    directive(
        "create_full_put_path",
        HSL,
        Args::FLAG,
        "off",
        "Creates missing parent directories on PUT.",
        |cx, n| set_flag(&mut cx.loc::<DavConf>().create_full_put_path, n),
    ),
    directive(
        "min_delete_depth",
        HSL,
        Args::T1,
        "0",
        "DELETE requires a path with at least this number of components.",
        |cx, n| set_num(&mut cx.loc::<DavConf>().min_delete_depth, n),
    ),
    directive(
        "dav_access",
        HSL,
        Args::T123,
        "user:rw",
        "The permissions of new files and directories.",
        |cx, n| set_access(&mut cx.loc::<DavConf>().access, n),
    ),
];

const METHODS: &[(&str, u64)] =
    &[("off", 1), ("put", 2), ("delete", 4), ("mkcol", 8), ("copy", 16), ("move", 32)];

engine::settings! {
    struct DavConf {
        methods: Option<u64>,
        create_full_put_path: Option<bool>,
        min_delete_depth: Option<u64>,
        access: Option<u32>,
    }
}

fn dav_methods(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_bitmask(&mut cx.loc::<DavConf>().methods, n, METHODS)
}

/// The bit of a request's method; 0 for all others.
fn bit_of(method: Method) -> u64 {
    match method {
        Method::Put => 2,
        Method::Delete => 4,
        Method::Mkcol => 8,
        Method::Copy => 16,
        Method::Move => 32,
        _ => 0,
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<DavConf>();
    let dav = Dav {
        methods: conf.methods.unwrap_or(0),
        create_full_put_path: conf.create_full_put_path.unwrap_or(false),
        min_delete_depth: conf.min_delete_depth.unwrap_or(0),
        access: conf.access.unwrap_or(0o600),
    };
    if dav.methods & !1 != 0 {
        p.content.push(Box::new(dav));
    }
    Ok(())
}

/// The settings of a location.
struct Dav {
    methods: u64,
    create_full_put_path: bool,
    min_delete_depth: u64,
    access: u32,
}

impl PhaseHandler for Dav {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if self.methods & bit_of(r.target.method) == 0 {
            return Verdict::Next.into();
        }
        match r.target.method {
            Method::Put => Step::Wait(Box::pin(self.put(r))),
            Method::Delete => Step::Wait(Box::pin(self.delete(r))),
            Method::Mkcol => Step::Wait(Box::pin(self.mkcol(r))),
            _ => Step::Wait(Box::pin(copy_move::run(self, r))),
        }
    }
}

fn path_of(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn is_collection(path: &[u8]) -> bool {
    path.last() == Some(&b'/')
}

/// A path without the slash at its end.
fn trimmed(path: &[u8]) -> &[u8] {
    match path {
        [b'/'] => path,
        [rest @ .., b'/'] => rest,
        _ => path,
    }
}

/// Refuses what nginx refuses, in its words.
fn refused(r: &Request, status: u16, why: &str) -> Verdict {
    r.log(Level::Error, format_args!("{why}"));
    Verdict::Status(status)
}

fn body_refused(r: &Request, who: &str) -> Option<Verdict> {
    r.head.has_body().then(|| refused(r, 415, &format!("{who} unsupported")))
}

/// 201 with the address of what was made.
fn created(r: &mut Request) {
    let mut to = Vec::with_capacity(r.target.uri.len());
    http_wire::uri::escape(&r.target.uri, http_wire::uri::Escape::Uri, &mut to);
    r.out.location = Some(Bytes::from(to));
}

/// The value of a `Depth` field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Depth {
    Zero,
    One,
    Infinity,
    Invalid,
}

fn said(r: &Request) -> Option<Depth> {
    Some(match r.header(FieldId::Depth)? {
        b"0" => Depth::Zero,
        b"1" => Depth::One,
        b"infinity" => Depth::Infinity,
        other => {
            let other = base::log::lossy(other);
            r.log(Level::Error, format_args!("client sent invalid \"Depth\" header: \"{other}\""));
            Depth::Invalid
        }
    })
}

fn depth(r: &Request, usual: Depth) -> Depth {
    said(r).unwrap_or(usual)
}

/// Checks that a URI is deep enough; the error is its depth.
fn deep_enough(uri: &[u8], min: u64) -> Result<(), u64> {
    let mut depth = 0;
    for at in memchr::memchr_iter(b'/', uri) {
        depth += 1;
        if depth >= min && at + 1 < uri.len() {
            return Ok(());
        }
    }
    Err(depth)
}

impl Dav {
    async fn put(&self, r: &mut Request) -> Verdict {
        if is_collection(&r.target.uri) {
            return refused(r, 409, "cannot PUT to a collection");
        }
        if r.header(FieldId::ContentRange).is_some() {
            return refused(r, 501, "PUT with range is unsupported");
        }
        let how = InFile { keep: Keep::Named, mode: 0o660, log: None };
        if let Err(v) = r.read_body_to_file(how).await {
            return v;
        }
        let Some(file) = r.take_body_file() else {
            return refused(r, 500, "PUT request body must be in a file");
        };
        let path = r.map_path().to_vec();
        let how = Attributes {
            mode: Some(self.access),
            mtime: r.header(FieldId::Date).and_then(base::time::parse_http_date),
            dir_mode: self.create_full_put_path.then(|| dir_mode(self.access)),
        };
        match work::run(r, move |notes| put(file, path_of(&path), how, notes)).await {
            Err(v) => v,
            Ok(status) => {
                r.out.status = status;
                if status == 201 {
                    created(r);
                    r.out.content_length = Some(0);
                }
                Verdict::Done
            }
        }
    }

    async fn mkcol(&self, r: &mut Request) -> Verdict {
        if let Some(v) = body_refused(r, "MKCOL with body is") {
            return v;
        }
        if !is_collection(&r.target.uri) {
            return refused(r, 409, "MKCOL can create a collection only");
        }
        let path = r.map_path().to_vec();
        let mode = dir_mode(self.access);
        let task = move |notes: &mut Notes| {
            let path = path_of(trimmed(&path));
            let made = std::fs::DirBuilder::new().mode(mode).create(path);
            made.map(|()| 201).map_err(|e| notes.failed("mkdir()", path, e, 409))
        };
        match work::run(r, task).await {
            Ok(status) => {
                created(r);
                Verdict::Status(status)
            }
            Err(v) => v,
        }
    }

    async fn delete(&self, r: &mut Request) -> Verdict {
        if let Some(v) = body_refused(r, "DELETE with body is") {
            return v;
        }
        if self.min_delete_depth > 0
            && let Err(depth) = deep_enough(&r.target.uri, self.min_delete_depth)
        {
            return refused(r, 409, &format!("insufficient URI depth:{depth} to DELETE"));
        }
        let (path, collection, depth) =
            (r.map_path().to_vec(), is_collection(&r.target.uri), said(r));
        let task = move |notes: &mut Notes| delete(path_of(&path), collection, depth, notes);
        match work::run(r, task).await {
            Ok(status) => Verdict::Status(status),
            Err(v) => v,
        }
    }
}

/// Gives what was sent its place; the status.
fn put(mut file: TempFile, path: &Path, how: Attributes, notes: &mut Notes) -> Result<u16, u16> {
    let there = os::file::stat(path);
    if there.as_ref().is_ok_and(os::file::FileMeta::is_dir) {
        let m = format!("\"{}\" could not be created (21: Is a directory)", path.display());
        return Err(notes.refused(409, m));
    }
    move_file(file.path(), path, how).map_err(|e| notes.undone(&e))?;
    file.moved();
    Ok(if there.is_ok() { 204 } else { 201 })
}

fn delete(
    path: &Path,
    collection: bool,
    depth: Option<Depth>,
    notes: &mut Notes,
) -> Result<u16, u16> {
    let own = path_of(trimmed(path.as_os_str().as_bytes()));
    // With a slash behind it, lstat(2) follows a link, and what the link leads to may be outside of
    // the root: the link itself is what the request names, and all that is removed.
    if collection && tree::is_link(own) {
        tree::delete(own, false, notes)?;
        return Ok(204);
    }
    let meta = match os::file::lstat(path) {
        Ok(m) => m,
        Err(e) => {
            let missing = if e.kind() == io::ErrorKind::NotADirectory { 409 } else { 404 };
            return Err(notes.failed("lstat()", path, e, missing));
        }
    };
    if meta.is_dir() {
        if !collection {
            let m = format!("DELETE \"{}\" failed (21: Is a directory)", path.display());
            return Err(notes.refused(409, m));
        }
        if depth.unwrap_or(Depth::Infinity) != Depth::Infinity {
            return Err(notes.refused(400, "\"Depth\" header must be infinity".to_owned()));
        }
    } else if !matches!(depth.unwrap_or(Depth::Zero), Depth::Zero | Depth::Infinity) {
        return Err(notes.refused(400, "\"Depth\" header must be 0 or infinity".to_owned()));
    }
    tree::delete(own, meta.is_dir(), notes)?;
    Ok(204)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_of_paths() {
        assert_eq!(deep_enough(b"/a", 1), Ok(()));
        assert_eq!(deep_enough(b"/", 1), Err(1));
        assert_eq!(deep_enough(b"/a/b/c", 3), Ok(()));
        assert_eq!(deep_enough(b"/a/b/", 3), Err(3));
        assert_eq!(deep_enough(b"/a/b", 3), Err(2));
    }

    #[test]
    fn slashes_at_the_end() {
        assert!(is_collection(b"/a/") && !is_collection(b"/a") && !is_collection(b""));
        assert_eq!(trimmed(b"/a/"), b"/a");
        assert_eq!(trimmed(b"/a"), b"/a");
        assert_eq!(trimmed(b"/"), b"/");
    }

    #[test]
    fn each_method_has_a_bit_of_its_own() {
        let known = [Method::Put, Method::Delete, Method::Mkcol, Method::Copy, Method::Move];
        for m in known {
            let name = m.name().to_ascii_lowercase();
            let bit = METHODS.iter().find(|(n, _)| *n == name).map(|(_, b)| *b);
            assert_eq!(bit, Some(bit_of(m)), "{name}");
        }
        assert_eq!(bit_of(Method::Get), 0);
    }
}
