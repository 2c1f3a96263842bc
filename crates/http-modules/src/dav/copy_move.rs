//! COPY and MOVE.

use std::io;
use std::path::Path;

use base::log::Level;
use files::{Attributes, copy_file, dir_mode, move_file};
use http::module::Verdict;
use http::request::Request;
use http_wire::h1::{FieldId, Method};

use super::work::{self, Notes};
use super::{Dav, Depth, body_refused, depth, is_collection, path_of, refused, tree};

/// The source and target of a COPY or MOVE.
struct Job {
    from: Vec<u8>,
    to: Vec<u8>,
    /// Both end in a slash in the request; the paths here do not.
    collection: bool,
    overwrite: bool,
    is_move: bool,
    /// The permissions of folders that are made on the way to a file.
    dir_mode: u32,
    /// The URI, and what is said where the target is a collection and the source is none.
    uri: String,
    not_into: String,
}

pub(super) async fn run(dav: &Dav, r: &mut Request) -> Verdict {
    if let Some(v) = body_refused(r, "COPY and MOVE with body are") {
        return v;
    }
    let job = match job(dav, r) {
        Ok(job) => job,
        Err(v) => return v,
    };
    match work::run(r, move |notes| carry_out(&job, notes)).await {
        Ok(status) => Verdict::Status(status),
        Err(v) => v,
    }
}

/// Reads the request's fields and checks the paths with one another.
fn job(dav: &Dav, r: &mut Request) -> Result<Job, Verdict> {
    let (uri, said) = destination(r)?;
    let collection = is_collection(&r.target.uri);
    if collection != is_collection(&uri) {
        let own = base::log::lossy(&r.target.uri);
        let m = format!(
            "both URI \"{own}\" and \"Destination\" URI \"{said}\" \
             should be either collections or non-collections"
        );
        return Err(refused(r, 409, &m));
    }
    if let Some(root) = &r.loc.core.root
        && root.alias
        && !root.whole
        && uri.get(..root.name_len) != r.target.uri.get(..root.name_len)
    {
        return Err(invalid(r, &said));
    }
    match (depth(r, Depth::Infinity), r.target.method) {
        (Depth::Infinity, _) | (Depth::Zero, Method::Copy) => {}
        (_, Method::Copy) => {
            return Err(refused(r, 400, "\"Depth\" header must be 0 or infinity"));
        }
        _ => return Err(refused(r, 400, "\"Depth\" header must be infinity")),
    }
    let overwrite = match r.header(FieldId::Overwrite) {
        None | Some(b"T" | b"t") => true,
        Some(b"F" | b"f") => false,
        Some(other) => {
            let other = base::log::lossy(other);
            let m = format!("client sent invalid \"Overwrite\" header: \"{other}\"");
            return Err(refused(r, 400, &m));
        }
    };
    let mut from = r.map_path();
    let Some(mut to) = r.map_path_of(&uri) else { return Err(invalid(r, &said)) };
    for path in [&mut from, &mut to] {
        path.dedup_by(|a, b| *a == b'/' && *b == b'/');
        if path.len() > 1 && is_collection(path) {
            path.pop();
        }
    }
    apart(r, &from, &to, collection, &said)?;
    Ok(Job {
        from: from.to_vec(),
        to: to.to_vec(),
        collection,
        overwrite,
        is_move: r.target.method == Method::Move,
        dir_mode: dir_mode(dav.access),
        uri: base::log::lossy(&r.target.uri).into_owned(),
        not_into: not_into(r, &said),
    })
}

/// The path that `Destination` names, decoded, and the field as sent.
fn destination(r: &Request) -> Result<(Vec<u8>, String), Verdict> {
    let Some(value) = r.header(FieldId::Destination) else {
        return Err(refused(r, 400, "client sent no \"Destination\" header"));
    };
    let said = base::log::lossy(value).into_owned();
    if value.first() != Some(&b'/') && r.target.host.is_empty() {
        return Err(refused(r, 400, "client sent no \"Host\" header"));
    }
    let raw = match local_part(value, &r.target.host) {
        Ok(raw) => raw,
        Err(NotHere::Elsewhere) => {
            let m = format!(
                "\"Destination\" URI \"{said}\" is handled by \
                 different repository than the source URI"
            );
            return Err(refused(r, 400, &m));
        }
        Err(NotHere::Invalid) => return Err(invalid(r, &said)),
    };
    if !http_wire::uri::has_whole_escapes(raw) {
        return Err(invalid(r, &said));
    }
    let mut uri = Vec::new();
    if http_wire::uri::parse_unsafe(raw, &mut uri).is_err() || uri.first() != Some(&b'/') {
        r.log(Level::Error, format_args!("unsafe URI \"{}\" was detected", base::log::lossy(raw)));
        return Err(invalid(r, &said));
    }
    Ok((uri, said))
}

fn invalid(r: &Request, said: &str) -> Verdict {
    refused(r, 400, &format!("client sent invalid \"Destination\" header: \"{said}\""))
}

/// The reason that a destination is refused.
#[derive(Debug, PartialEq, Eq)]
enum NotHere {
    Elsewhere,
    Invalid,
}

/// The path of a destination: a path, or an address of this host, whatever its port and scheme: a
/// front that ends TLS passes on the `https` that its client wrote.
fn local_part<'a>(value: &'a [u8], host: &[u8]) -> Result<&'a [u8], NotHere> {
    if value.first() == Some(&b'/') {
        return Ok(value);
    }
    let after = |scheme: &str| {
        let (own, rest) = value.split_at_checked(scheme.len())?;
        own.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    };
    let rest = after("http://").or_else(|| after("https://")).ok_or(NotHere::Invalid)?;
    let slash = memchr::memchr(b'/', rest).unwrap_or(rest.len());
    let name = memchr::memchr(b':', &rest[..slash]).filter(|_| !rest.starts_with(b"["));
    let name = match (name, memchr::memchr(b']', &rest[..slash])) {
        (Some(colon), _) => &rest[..colon],
        (None, Some(bracket)) => &rest[..=bracket],
        (None, None) => &rest[..slash],
    };
    if !base::ascii::eq_ignore_case(name, host) {
        return Err(NotHere::Elsewhere);
    }
    if slash == rest.len() { Err(NotHere::Invalid) } else { Ok(&rest[slash..]) }
}

/// Refuses a destination that is the source itself, or a collection that one of them would be
/// inside of the other.
fn apart(r: &Request, from: &[u8], to: &[u8], collection: bool, said: &str) -> Result<(), Verdict> {
    let own = base::log::lossy(&r.target.uri);
    if from == to {
        let m = format!(
            "both URI \"{own}\" and \"Destination\" URI \"{said}\" point to the same location"
        );
        return Err(refused(r, 403, &m));
    }
    if collection && (is_inside(from, to) || is_inside(to, from)) {
        return Err(refused(r, 403, &not_into(r, said)));
    }
    Ok(())
}

fn is_inside(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/') || folder == b"/")
}

fn not_into(r: &Request, said: &str) -> String {
    let (own, method) = (base::log::lossy(&r.target.uri), r.target.method.name());
    format!("\"{own}\" could not be {method}ed to collection \"{said}\"")
}

/// Does it; the status of the answer.
fn carry_out(job: &Job, notes: &mut Notes) -> Result<u16, u16> {
    let (from, to) = (path_of(&job.from), path_of(&job.to));
    let there = match os::file::lstat(to) {
        Ok(meta) => Some(meta),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(notes.failed("lstat()", to, e, 404)),
    };
    if let Some(meta) = &there {
        if meta.is_dir() && !job.collection {
            return Err(notes.refused(409, job.not_into.clone()));
        }
        if !job.overwrite {
            let m = format!("\"{}\" could not be created (17: File exists)", to.display());
            return Err(notes.refused(412, m));
        }
    }
    // With the slash, as asked for: what ends in one is a folder, or it is not there.
    let mut asked = job.from.to_vec();
    if job.collection {
        asked.push(b'/');
    }
    let source = os::file::lstat(path_of(&asked))
        .map_err(|e| notes.failed("lstat()", path_of(&asked), e, 404))?;
    if !source.is_dir() {
        return file(job, from, to, notes);
    }
    if !job.collection {
        return Err(notes.refused(400, format!("\"{}\" is collection", job.uri)));
    }
    if let Some(meta) = there {
        tree::delete(to, meta.is_dir(), notes)?;
    }
    folder(job, from, to, notes)
}

fn file(job: &Job, from: &Path, to: &Path, notes: &mut Notes) -> Result<u16, u16> {
    let done = if job.is_move {
        move_file(from, to, Attributes { dir_mode: Some(job.dir_mode), ..Attributes::default() })
    } else {
        copy_file(from, to, Attributes::default())
    };
    done.map(|()| 204).map_err(|e| notes.undone(&e))
}

fn folder(job: &Job, from: &Path, to: &Path, notes: &mut Notes) -> Result<u16, u16> {
    if job.is_move && std::fs::rename(from, to).is_ok() {
        return Ok(201);
    }
    tree::copy_folder(from, to).map_err(|e| notes.failed("mkdir()", to, e, 404))?;
    tree::copy_into(from, to, notes)?;
    if job.is_move {
        // Of a link to a folder the link goes, and what it leads to stays.
        tree::delete(from, !tree::is_link(from), notes)?;
    }
    Ok(201)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_on_this_host() {
        let here = |value: &'static str| local_part(value.as_bytes(), b"localhost");
        for (value, path) in
            [("/a/b", "/a/b"), ("http://localhost/a?b", "/a?b"), ("https://LocalHost:8443/", "/")]
        {
            assert_eq!(here(value), Ok(path.as_bytes()), "{value}");
        }
        for value in ["http://otherhost/a", "http://localhost.evil/a", "http:///a", "http://x"] {
            assert_eq!(here(value), Err(NotHere::Elsewhere), "{value}");
        }
        for value in ["http://localhost", "http://localhost:80", "ftp://localhost/a", "a", ""] {
            assert_eq!(here(value), Err(NotHere::Invalid), "{value}");
        }
        assert_eq!(local_part(b"http://[::1]:80/a", b"[::1]"), Ok(&b"/a"[..]));
        assert_eq!(local_part(b"http://[::1]/a", b"[::2]"), Err(NotHere::Elsewhere));
    }

    #[test]
    fn folders_inside_folders() {
        assert!(is_inside(b"/a/b", b"/a"));
        assert!(is_inside(b"/a", b"/"));
        assert!(!is_inside(b"/ab", b"/a"));
        assert!(!is_inside(b"/a", b"/a/b"));
    }
}
