//! Changes of a configuration that rules propose: made together, tested as `-t` would, and written
//! only if the result loads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::log::Log;
use bytes::Bytes;
use conf::edit::{Edit, apply, replacements};
use conf::parse::{Options, parse_file};
use conf::tokens::Tokens;
use conf::{Node, Pos, Tree};
use server::engines::Lasting;
use server::environ::Environ;
use server::load::Loader;
use server::paths::Paths;
use server::typed::Typed;

use crate::error::Error;
use crate::lsp::{Identity, identity};
use crate::rewrite::Changed;

/// Passes over a configuration: a change may make room for another one that overlapped with it.
const PASSES_MAX: usize = 8;

/// Makes the changes that `find` names, until it names none. Returns the files that differ then,
/// and the configuration with the changes.
///
/// # Errors
/// The configuration cannot be parsed.
pub(crate) fn fix(
    file: &Path,
    find: impl Fn(&Tree) -> Vec<Edit>,
) -> Result<(Vec<Changed>, Tree), Error> {
    let mut texts: HashMap<Rc<Path>, Changed> = HashMap::new();
    let mut unsaved = HashMap::new();
    let mut passes = 0;
    loop {
        let tree = read(file, &unsaved)?;
        let edits = if passes < PASSES_MAX { find(&tree) } else { Vec::new() };
        passes += 1;
        let mut any = false;
        for (path, edits) in by_file(&tree, edits) {
            let Some(source) = tree.files.iter().find(|source| source.path == path) else {
                continue;
            };
            let tokens = Tokens::new(&path, source.bytes.clone())?;
            let new = Bytes::from(apply(&tokens.text, &replacements(&tokens, &edits)));
            let Some(identity) = identity(&path).filter(|_| new != source.bytes) else { continue };
            any = true;
            unsaved.insert(identity, new.clone());
            let old = source.bytes.clone();
            let changed = Changed { path: path.to_path_buf(), old, new: new.clone() };
            texts.entry(path).or_insert(changed).new = new;
        }
        if !any {
            let mut list: Vec<Changed> = texts.into_values().collect();
            list.retain(|changed| changed.old != changed.new);
            list.sort_by(|a, b| a.path.cmp(&b.path));
            return Ok((list, tree));
        }
    }
}

fn read(file: &Path, unsaved: &HashMap<Identity, Bytes>) -> Result<Tree, Error> {
    let conf_prefix = file.parent().map(PathBuf::from).unwrap_or_default();
    let options = Options { conf_prefix, unsaved: unsaved.clone(), ..Options::default() };
    parse_file(file, &options).map_err(Error::Configuration)
}

/// The changes of each file, without those at places that are read more than once: a file that two
/// blocks include cannot change for one of them.
pub(crate) fn by_file(tree: &Tree, edits: Vec<Edit>) -> Vec<(Rc<Path>, Vec<Edit>)> {
    let mut counts = HashMap::new();
    count(&tree.nodes, &mut counts);
    let mut files: Vec<(Rc<Path>, Vec<Edit>)> = Vec::new();
    for edit in edits {
        let key = (edit.pos.file.clone(), edit.pos.line, edit.pos.column);
        if counts.get(&key).is_some_and(|count| *count > 1) {
            continue;
        }
        match files.iter_mut().find(|(path, _)| *path == edit.pos.file) {
            Some((_, list)) => list.push(edit),
            None => files.push((edit.pos.file.clone(), vec![edit])),
        }
    }
    files
}

type Place = (Rc<Path>, u32, u32);

fn count(nodes: &[Node], counts: &mut HashMap<Place, usize>) {
    for node in nodes {
        for word in std::iter::once(&node.name).chain(&node.args) {
            let Pos { file, line, column } = &word.pos;
            *counts.entry((file.clone(), *line, *column)).or_default() += 1;
        }
        count(node.children(), counts);
    }
}

/// Tests a configuration with the changes in it, as `-t` does, but opens nothing.
///
/// # Errors
/// The first error of the configuration.
pub(crate) fn test(file: &Path, changed: &[Changed]) -> Result<(), Error> {
    use std::os::unix::ffi::OsStringExt;
    let file = std::path::absolute(file).map_err(Error::file(&file))?;
    let typed = Typed { conf_file: Some(file.into_os_string().into_vec()), ..Typed::default() };
    let lasting = Lasting::new().map_err(|e| Error::system(format!("mmap() failed {e}")))?;
    let mut loader = Loader::new(Paths::new(&typed, &Environ::capture()), None, lasting);
    let identities = changed.iter().filter_map(|one| Some((identity(&one.path)?, one.new.clone())));
    loader.unsaved = identities.collect();
    // Warnings are those of the configuration as it was.
    let errors = loader.check(&Log::new(Vec::new()));
    errors.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
}

/// The error of a command whose changes do not load.
pub(crate) fn unloadable(error: Error) -> Error {
    Error::usage(format!("nothing is written: with the changes {error}"))
}

/// Writes changed files, each of which is replaced as a whole.
///
/// # Errors
/// A file cannot be written; the message names the files that were written before.
pub(crate) fn write(changed: &[Changed]) -> Result<(), Error> {
    for (at, one) in changed.iter().enumerate() {
        one.write().map_err(|error| match at {
            0 => error,
            _ => {
                let done: Vec<String> =
                    changed[..at].iter().map(|one| one.path.display().to_string()).collect();
                Error::system(format!("{error}; already written: {}", done.join(", ")))
            }
        })?;
    }
    Ok(())
}
