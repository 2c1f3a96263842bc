//! What `weir explain` shows of files that directives looked for.

use std::io;

use http::files::OpenError;
use http::request::Request;
use os::file::FileMeta;

use crate::static_file::{EACCES, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOTDIR};

/// Notes the outcome of a look for a file, if the request is explained.
#[inline]
pub fn note<'a>(
    r: &Request,
    by: &'static str,
    path: &[u8],
    outcome: Result<&'a FileMeta, &'a OpenError>,
) {
    r.note_file(by, path, || match outcome {
        Ok(meta) => of_meta(meta).to_owned(),
        Err(e) => of_error(&e.error),
    });
}

fn of_meta(meta: &FileMeta) -> &'static str {
    match meta {
        meta if meta.is_dir() => "is a folder",
        meta if meta.is_file() => "exists",
        _ => "is neither a file nor a folder",
    }
}

fn of_error(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(ENOENT) => "is missing".to_owned(),
        Some(ENOTDIR) => "is missing: a part of the path is a file".to_owned(),
        Some(ENAMETOOLONG) => "is missing: the name is too long".to_owned(),
        Some(EACCES) => "is not permitted to this user".to_owned(),
        Some(ELOOP | EMLINK) => "is behind a symbolic link that is not permitted".to_owned(),
        _ => format!("fails: {}", base::log::os_error(error)),
    }
}
