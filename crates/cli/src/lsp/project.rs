//! The configuration that a text belongs to, and the blocks around it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use conf::environment::Environment;
use conf::parse::{Options, parse_bytes, parse_file};
use conf::table::Contexts;
use conf::{Node, Tree};
use server::environ::Environ;
use server::layout::layout;
use server::paths::Paths;
use server::typed::Typed;

use super::document::{Document, Identity, identity};
use super::scan::Scan;

/// Folders above a file that are searched for its main configuration.
const ABOVE_MAX: usize = 4;

/// Texts of the editor's that are files.
pub(crate) type Unsaved = HashMap<Identity, Bytes>;

/// A text with the configuration around it.
pub(crate) struct View<'a> {
    /// The text.
    pub(crate) document: &'a Document,
    /// The main file of the configuration, if one includes the text.
    pub(crate) paths: Option<Paths>,
    /// The configuration, or the text alone.
    pub(crate) tree: Tree,
    /// The contexts of the text's outermost level.
    pub(crate) base: Contexts,
}

impl<'a> View<'a> {
    /// Finds the configuration of a text. `typed` are the command's switches, which may name it.
    pub(crate) fn new(document: &'a Document, typed: &Typed, unsaved: &Unsaved) -> View<'a> {
        let scan = Scan::new(&document.text);
        let found = candidates(document, &scan, typed).into_iter().find_map(|paths| {
            let tree = read(&paths, unsaved)?;
            let place = place(&tree, document.identity()?)?;
            Some((paths, tree, place))
        });
        match found {
            Some((paths, tree, blocks)) => {
                let base = blocks.and_then(|names| {
                    names.iter().try_fold(Contexts::MAIN, |around, name| around.inside(name))
                });
                let base = base.unwrap_or_else(|| guess(&scan));
                View { document, paths: Some(paths), tree, base }
            }
            None => {
                let (tree, base) = (alone(document), guess(&scan));
                View { document, paths: None, tree, base }
            }
        }
    }

    /// The folder that relative includes start from.
    pub(crate) fn folder(&self) -> PathBuf {
        let own = || self.document.path.as_deref().and_then(Path::parent).map(Path::to_owned);
        let of_main = self.paths.as_ref().map(|paths| paths.conf_prefix.clone());
        of_main.or_else(own).unwrap_or_default()
    }

    /// The contexts of what stands in these blocks of the text; `None` where no directives are.
    pub(crate) fn context<'n>(
        &self,
        blocks: impl IntoIterator<Item = &'n str>,
    ) -> Option<Contexts> {
        blocks.into_iter().try_fold(self.base, Contexts::inside)
    }
}

/// The main files that may include a text, the likeliest first.
fn candidates(document: &Document, scan: &Scan, typed: &Typed) -> Vec<Paths> {
    let environ = Environ::capture();
    let of = |file: &Path| {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let bytes = std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str()).to_vec();
        Paths::new(&Typed { conf_file: Some(bytes), ..typed.clone() }, &environ)
    };
    if typed.conf_file.is_some() {
        return vec![Paths::new(typed, &environ)];
    }
    let Some(path) = document.path.as_deref() else { return Vec::new() };
    let top = scan.statements.iter().filter(|one| one.parent.is_none());
    if top.into_iter().any(|one| matches!(one.name(), "http" | "stream" | "events")) {
        return vec![of(path)];
    }
    let above = path.ancestors().skip(1).take(ABOVE_MAX).map(|folder| folder.join("nginx.conf"));
    let default = Path::new(&layout().prefix).join(layout().conf_path);
    above.chain([default]).filter(|file| file.is_file()).map(|file| of(&file)).collect()
}

/// Reads a configuration with the editor's texts in it.
pub(crate) fn read(paths: &Paths, unsaved: &Unsaved) -> Option<Tree> {
    let options = Options {
        conf_prefix: paths.conf_prefix.clone(),
        keep_broken: true,
        environment: Environment::IfSet,
        unsaved: unsaved.clone(),
        ..Options::default()
    };
    parse_file(&paths.conf_file, &options).ok()
}

/// Reads a text as it stands.
fn alone(document: &Document) -> Tree {
    let options = Options { keep_broken: true, keep_includes: true, ..Options::default() };
    let name = document.path.as_deref().unwrap_or(Path::new(&document.uri));
    let text = Bytes::copy_from_slice(document.text.as_bytes());
    parse_bytes(name, text, &options).unwrap_or_default()
}

/// The names of the blocks around a file of a configuration, the outermost first: `None` within if
/// it has no directive to tell by, and around if it is no file of it.
fn place(tree: &Tree, file: Identity) -> Option<Option<Vec<String>>> {
    let same = |path: &Rc<Path>| identity(path) == Some(file);
    let paths: Vec<_> = tree.files.iter().map(|f| &f.path).filter(|path| same(path)).collect();
    let first = paths.first()?;
    if tree.files.first().is_some_and(|main| main.path == **first) {
        return Some(Some(Vec::new()));
    }
    let mut names = Vec::new();
    let found = look(&tree.nodes, &|node| paths.contains(&&node.name.pos.file), &mut names);
    Some(found.then_some(names))
}

fn look(nodes: &[Node], is: &dyn Fn(&Node) -> bool, names: &mut Vec<String>) -> bool {
    nodes.iter().any(|node| {
        if is(node) {
            return true;
        }
        names.push(node.name.lossy().into_owned());
        let found = look(node.children(), is, names);
        if !found {
            names.pop();
        }
        found
    })
}

/// The contexts of a part of a configuration that nothing is known of, by what stands in it.
fn guess(scan: &Scan) -> Contexts {
    let mut top = scan.statements.iter().filter(|one| one.parent.is_none());
    let context = top.find_map(|one| match one.name() {
        "http" | "stream" | "events" | "worker_processes" => Some(Contexts::MAIN),
        "server" | "upstream" | "map" | "geo" | "limit_req_zone" => Some(Contexts::HTTP),
        "location" | "listen" | "server_name" => Some(Contexts::SERVER),
        _ => None,
    });
    context.unwrap_or(Contexts::ANY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_follow_the_blocks() {
        let of = |base: Contexts, blocks: &[&str]| blocks.iter().try_fold(base, |c, b| c.inside(b));
        let main = Contexts::MAIN;
        assert_eq!(of(main, &["http", "server", "location", "if"]), Some(Contexts::IF_LOCATION));
        assert_eq!(of(main, &["http", "server", "if"]), Some(Contexts::IF_SERVER));
        assert_eq!(of(main, &["stream", "server"]), Some(Contexts::STREAM_SERVER));
        assert_eq!(of(main, &["stream", "upstream"]), Some(Contexts::STREAM_UPSTREAM));
        assert_eq!(of(Contexts::ANY, &["server"]), Some(Contexts::SERVER));
        assert_eq!(of(main, &["http", "map"]), None);
    }

    #[test]
    fn parts_tell_their_place() {
        let of = |text: &str| guess(&Scan::new(text));
        assert_eq!(of("upstream a { server b; }"), Contexts::HTTP);
        assert_eq!(of("listen 80;"), Contexts::SERVER);
        assert_eq!(of("events { }"), Contexts::MAIN);
        assert_eq!(of("add_header A b;"), Contexts::ANY);
    }
}
