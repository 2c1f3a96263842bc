//! `index`: the files that answer for a folder.

use base::log::Level;
use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::template::Template;
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::files;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope, Verdict};
use http::request::Request;

use crate::static_file::not_opened;

/// The module's table.
pub static MODULE: Module = Module {
    name: "index",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<IndexConf>(Scope::Location)],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "index",
    HSL,
    Args::ONE_MORE,
    "index.html",
    "The files that answer for a folder, in the order in which they are tried.",
    index,
)];

#[derive(Default)]
struct IndexConf {
    names: Option<Vec<Template>>,
}

impl Conf for IndexConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.names.is_none() {
            self.names.clone_from(&prev.names);
        }
        Ok(())
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
    p.content.push(Box::new(move |r: &mut Request| handle(r, &names)));
    Ok(())
}

fn handle(r: &mut Request, names: &[Template]) -> Verdict {
    use proto::h1::Method;
    if r.uri.last() != Some(&b'/') || !r.method_is(&[Method::Get, Method::Head, Method::Post]) {
        return Verdict::Next;
    }
    let mut dir_is_there = false;
    for t in names {
        let name = t.eval(r);
        if name.first() == Some(&b'/') {
            return r.internal_redirect(&name, b"");
        }
        let mut uri = r.uri.clone();
        uri.extend_from_slice(&name);
        let path = r.map_path_of(&uri);
        match files::open(r, &path) {
            Ok(_) => {
                let args = std::mem::take(&mut r.args);
                return r.internal_redirect(&uri, &args);
            }
            Err(e) => match e.error.raw_os_error() {
                Some(2 | 20 | 36) => {
                    if !dir_is_there {
                        if let Some(v) = folder(r) {
                            return v;
                        }
                        dir_is_there = true;
                    }
                }
                _ => return not_opened(r, &path, &e),
            },
        }
    }
    Verdict::Next
}

/// Whether the folder itself is there: without it the answer is 404, not the next handler's.
fn folder(r: &mut Request) -> Option<Verdict> {
    let path = r.map_path();
    match files::stat(r, &path) {
        Ok(m) if m.is_dir() => None,
        Ok(_) => {
            r.log(Level::Error, format_args!("\"{}\" is not a directory", base::log::lossy(&path)));
            Some(Verdict::Status(500))
        }
        Err(e) if e.error.raw_os_error() == Some(13) => None,
        Err(e) => Some(match not_opened(r, &path, &e) {
            Verdict::Status(500) => Verdict::Status(500),
            v => v,
        }),
    }
}
