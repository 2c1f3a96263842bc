//! `try_files`: the first of several files or folders that is there becomes the URI.

use std::task::{Poll, ready};

use base::log::{Level, lossy};
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::{ConfError, Node, Word};
use http::core_directives::directive;
use http::cx::Cx;
use http::files::{self, FilePath, OpenError};
use http::module::{Conf, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use os::file::FileMeta;

use crate::file_notes;
use crate::static_file::{ENAMETOOLONG, ENOENT, ENOTDIR};

/// The module's table.
pub static MODULE: Module = Module::of::<TryConf>("try_files", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "try_files",
    C::SERVER.or(C::LOCATION),
    Args::TWO_MORE,
    "",
    "Serves the first existing file or directory; the last argument is the fallback.",
    try_files,
)];

/// One file or folder to look for.
#[derive(Clone)]
struct Candidate {
    name: Template,
    folder: bool,
}

/// The answer if no file exists.
#[derive(Clone)]
enum Last {
    Status(u16),
    /// A URI with arguments, or a named location.
    Uri(Template),
}

#[derive(Default)]
struct TryConf(Option<(Vec<Candidate>, Last)>);

impl Conf for TryConf {}

fn try_files(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<TryConf>().0.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let Some((last, names)) = n.args.split_last() else {
        return Err(ConfError::directive(n, "invalid number of arguments in"));
    };
    let mut candidates = Vec::with_capacity(names.len());
    for w in names {
        let (text, folder) = match w.bytes() {
            [.., b'/'] => (w.text.slice(..w.text.len() - 1), true),
            _ => (w.text.clone(), false),
        };
        let name = cx.template(&Word { text, ..w.clone() })?;
        candidates.push(Candidate { name, folder });
    }
    let template = cx.template(last)?;
    let last = match template.as_const().map(|c| c.strip_prefix(b"=")) {
        Some(Some(code)) => match base::ascii::parse_u64(code) {
            Some(code @ 0..=999) => Last::Status(code as u16),
            _ => {
                let m = format!("invalid code \"{}\"", last.lossy());
                return Err(ConfError::at(last, m));
            }
        },
        _ => Last::Uri(template),
    };
    cx.loc::<TryConf>().0 = Some((candidates, last));
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if !l.set_here::<TryConf>() {
        return Ok(());
    }
    if let Some((candidates, last)) = &l.conf::<TryConf>().0 {
        p.precontent.push(Box::new(Handler { candidates: candidates.clone(), last: last.clone() }));
        p.not_in_if = Some("try_files");
    }
    Ok(())
}

struct Handler {
    candidates: Vec<Candidate>,
    last: Last,
}

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        files::step(r, |r| self.choose(r))
    }
}

impl Handler {
    fn choose(&self, r: &mut Request) -> Poll<Verdict> {
        let mut path = FilePath::new();
        r.root_into(&mut path);
        let root = path.len();
        for c in &self.candidates {
            path.truncate(root);
            append(r, &c.name, &mut path);
            let looked = ready!(files::try_stat(r, &path));
            note(r, &mut path, c.folder, looked.as_ref());
            match looked {
                Ok(meta) if meta.is_dir() == c.folder => {
                    found(r, &path[root..], c.folder);
                    return Poll::Ready(Verdict::Next);
                }
                Ok(_) => {}
                Err(e) if matches!(e.errno(), Some(ENOENT | ENOTDIR | ENAMETOOLONG)) => {}
                Err(e) => {
                    let path = lossy(&path);
                    r.log_os(Level::Crit, format_args!("{} \"{path}\"", e.what), &e.error);
                }
            }
        }
        let target = match &self.last {
            Last::Status(code) => return Poll::Ready(Verdict::Status(*code)),
            Last::Uri(t) => t,
        };
        let mut uri = FilePath::new();
        append(r, target, &mut uri);
        if uri.first() == Some(&b'@') {
            return Poll::Ready(r.named_redirect(&uri));
        }
        let (uri, args) = match memchr::memchr(b'?', &uri) {
            Some(q) => (&uri[..q], &uri[q + 1..]),
            None => (&uri[..], &b""[..]),
        };
        Poll::Ready(r.internal_redirect(uri, args))
    }
}

/// Notes a look for an explanation; a folder is looked for by its name with a slash.
#[inline]
fn note(r: &Request, path: &mut FilePath, folder: bool, looked: Result<&FileMeta, &OpenError>) {
    if r.is_traced() {
        let len = path.len();
        path.extend_from_slice(if folder { b"/" } else { b"" });
        file_notes::note(r, "try_files", path, looked);
        path.truncate(len);
    }
}

/// The length of the location's name that `alias` stands for; `None` where no name is cut off.
fn alias_len(r: &Request) -> Option<usize> {
    let root = r.loc.core.root.as_ref()?;
    (root.alias && !root.whole).then_some(root.name_len)
}

/// Appends a value as it follows the root: with `alias`, one with variables that begins with the
/// location's name, as `$uri` does, goes on behind that.
fn append(r: &mut Request, name: &Template, out: &mut Vec<u8>) {
    let from = out.len();
    name.eval_into(r, out);
    if name.as_const().is_none()
        && let Some(len) = alias_len(r)
        && let Some(prefix) = r.target.uri.get(..len)
        && out[from..].starts_with(prefix)
    {
        out.drain(from..from + len);
    }
}

/// Makes what was found the URI.
fn found(r: &mut Request, name: &[u8], folder: bool) {
    let whole = r.loc.core.root.as_ref().is_some_and(|root| root.alias && root.whole);
    match alias_len(r) {
        Some(len) => {
            r.target.uri.truncate(len);
            r.target.uri.extend_from_slice(name);
        }
        // The alias of a location with a regular expression names a file; from now on the URI
        // follows.
        None if whole => {
            if !folder {
                set(&mut r.target.uri, name);
                r.flags.uri_below_alias = true;
            }
        }
        None => set(&mut r.target.uri, name),
    }
}

fn set(uri: &mut Vec<u8>, name: &[u8]) {
    uri.clear();
    uri.extend_from_slice(name);
}
