//! `random_index`: any one of a folder's files answers for the folder.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::task::{Poll, ready};

use base::log::{Level, lossy};
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, value};
use http::core_directives::directive;
use http::cx::Cx;
use http::files::{self, FilePath};
use http::module::{Dry, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use os::file::FileKind;

use crate::autoindex::not_listed;
use crate::index::of_folder;

/// The module's table.
pub static MODULE: Module = Module::of::<RandomConf>("random_index", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "random_index",
    C::LOCATION,
    Args::FLAG,
    "off",
    "Serves a random file of a directory for URIs that end with a slash.",
    |cx, n| value::set_flag(&mut cx.loc::<RandomConf>().0, n),
)];

engine::settings! {
    struct RandomConf(Option<bool>);
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.conf::<RandomConf>().0 == Some(true) {
        p.content.push(Box::new(RandomIndex { keys: RandomState::new() }));
    }
    Ok(())
}

struct RandomIndex {
    /// The source of chance: hashes under keys that differ with every process.
    keys: RandomState,
}

impl PhaseHandler for RandomIndex {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        of_folder(r, |r| self.choose(r))
    }
}

impl RandomIndex {
    fn choose(&self, r: &mut Request) -> Poll<Verdict> {
        let mut path = r.map_path();
        path.pop();
        let listing = match ready!(files::try_list(r, &path, false)) {
            Ok(l) => l,
            Err(e) => return Poll::Ready(not_listed(r, &path, &e)),
        };
        if let Some((name, e)) = listing.failed.first() {
            let (path, name) = (lossy(&path), lossy(name));
            r.log_os(Level::Crit, format_args!("stat() \"{path}/{name}\""), e);
            return Poll::Ready(Verdict::Status(500));
        }
        let files = || listing.entries.iter().filter(|e| e.kind == FileKind::File);
        let count = files().count();
        if count == 0 {
            return Poll::Ready(Verdict::Next);
        }
        let mut hasher = self.keys.build_hasher();
        hasher.write_u64(r.c().number);
        hasher.write_u64(r.c().requests.get());
        let chosen = hasher.finish() % count as u64;
        let Some(file) = files().nth(chosen as usize) else { return Poll::Ready(Verdict::Next) };
        let mut uri = FilePath::new();
        uri.extend_from_slice(&r.target.uri);
        uri.extend_from_slice(&file.name);
        Poll::Ready(crate::index::redirect(r, &uri))
    }
}
