//! `index`: the files that answer for a folder.

use std::task::{Poll, ready};

use base::log::Level;
use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::template::Template;
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::files::{self, FilePath};
use http::module::{Dry, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http_wire::h1::Method;

use crate::file_notes;
use crate::static_file::{EACCES, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOTDIR, not_opened};

/// The module's table.
pub static MODULE: Module = Module::of::<IndexConf>("index", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "index",
    HSL,
    Args::ONE_MORE,
    "index.html",
    "Index files of a directory, tried in order.",
    index,
)];

engine::settings! {
    struct IndexConf {
        names: Option<Vec<Template>>,
    }
}

fn index(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    for (i, w) in n.args.iter().enumerate() {
        if w.bytes().is_empty() {
            return Err(ConfError::at(w, "index \"\" in \"index\" directive is invalid"));
        }
        if w.bytes().first() == Some(&b'/') && i + 1 != n.args.len() {
            conf::warn(w, "only the last index in \"index\" directive should be absolute");
        }
        let t = cx.template(w)?;
        cx.loc::<IndexConf>().names.get_or_insert_default().push(t);
    }
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let names = match &l.conf::<IndexConf>().names {
        Some(n) => n.clone(),
        None => vec![Template::constant(Bytes::from_static(b"index.html"))],
    };
    p.content.push(Box::new(Index { names }));
    Ok(())
}

struct Index {
    names: Vec<Template>,
}

impl PhaseHandler for Index {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        of_folder(r, |r| self.choose(r))
    }
}

/// The step of a handler that chooses a file of the folder a request is for, if it is for one.
pub(crate) fn of_folder<'a>(
    r: &'a mut Request,
    choose: impl Fn(&mut Request) -> Poll<Verdict> + 'a,
) -> Step<'a> {
    match r.target.uri.last() == Some(&b'/')
        && r.method_is(&[Method::Get, Method::Head, Method::Post])
    {
        true => files::step(r, choose),
        false => Step::Now(Verdict::Next),
    }
}

impl Index {
    /// Asks for the files before the folder: most requests find one, and the others should fail
    /// fast.
    fn choose(&self, r: &mut Request) -> Poll<Verdict> {
        let mut path = r.map_path();
        let folder = path.len();
        let mut folder_is_there = false;
        for t in &self.names {
            path.truncate(folder);
            t.eval_into(r, &mut path);
            let name = &path[folder..];
            if name.first() == Some(&b'/') {
                return Poll::Ready(redirect(r, name));
            }
            let looked = ready!(files::try_stat(r, &path));
            file_notes::note(r, "index", &path, looked.as_ref());
            let Err(e) = looked else {
                let mut uri = FilePath::new();
                uri.extend_from_slice(&r.target.uri);
                uri.extend_from_slice(name);
                return Poll::Ready(redirect(r, &uri));
            };
            match e.errno() {
                Some(ELOOP | EMLINK) => return Poll::Ready(Verdict::Status(403)),
                Some(n @ (ENOTDIR | ENAMETOOLONG | EACCES)) => {
                    return Poll::Ready(refused(r, &path, n));
                }
                _ => {}
            }
            if !folder_is_there {
                if let Some(v) = ready!(no_folder(r, &path[..folder])) {
                    return Poll::Ready(v);
                }
                folder_is_there = true;
            }
            if e.errno() != Some(ENOENT) {
                return Poll::Ready(not_opened(r, &path, &e));
            }
        }
        Poll::Ready(Verdict::Next)
    }
}

/// Goes to the file that was chosen, with the request's own arguments.
pub(crate) fn redirect(r: &mut Request, uri: &[u8]) -> Verdict {
    let args = std::mem::take(&mut r.target.args);
    let verdict = r.internal_redirect(uri, b"");
    r.target.args = args;
    verdict
}

/// Whether the folder itself is missing: then the answer is 404, not the next handler's.
fn no_folder(r: &mut Request, path: &[u8]) -> Poll<Option<Verdict>> {
    let path = match path {
        [_, .., b'/'] => &path[..path.len() - 1],
        _ => path,
    };
    let looked = ready!(files::try_stat(r, path));
    file_notes::note(r, "index", path, looked.as_ref());
    Poll::Ready(match looked {
        Ok(m) if m.is_dir() => None,
        Ok(_) => {
            let path = base::log::lossy(path);
            r.log(Level::Alert, format_args!("\"{path}\" is not a directory"));
            Some(Verdict::Status(500))
        }
        Err(e) => match e.errno() {
            Some(ELOOP | EMLINK) => Some(Verdict::Status(403)),
            Some(ENOENT) => Some(refused(r, path, ENOENT)),
            // The first file's error was another one, so the folder may be searched, if not read.
            Some(EACCES) => None,
            _ => {
                let shown = base::log::lossy(path);
                r.log_os(Level::Crit, format_args!("{} \"{shown}\"", e.what), &e.error);
                Some(Verdict::Status(500))
            }
        },
    })
}

/// Logs and answers a path that is not there or must not be seen.
fn refused(r: &Request, path: &[u8], errno: i32) -> Verdict {
    let (status, what) = match errno {
        EACCES => (403, "is forbidden"),
        _ => (404, "is not found"),
    };
    if status == 403 || r.loc.core.log_not_found {
        let error = std::io::Error::from_raw_os_error(errno);
        let error = base::log::os_error(&error);
        r.log(Level::Error, format_args!("\"{}\" {what} {error}", base::log::lossy(path)));
    }
    Verdict::Status(status)
}
