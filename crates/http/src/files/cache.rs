//! `open_file_cache`: what was found at paths, with descriptors, held for a while without looking
//! again. Folders and (with `open_file_cache_errors`) errors are entries too.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Poll, ready};

use bytes::Bytes;
use mem::Lru;

use super::links::Links;
use super::{CONTENT_MAX, Facts, OpenError, OpenFile, ask_load, ask_stat, door, opened};
use crate::core_conf::OpenFileCache;
use crate::request::Request;

/// What was found at a path.
enum Held {
    /// A file, open. Its content, if it is held, is in [`Contents`](super::contents::Contents).
    File(OpenFile),
    /// A file that was not used often enough to stay open.
    Rare,
    /// A folder.
    Dir(Rc<Facts>),
    /// The path cannot be opened: the system's error and the call that met it.
    Error(i32, &'static str),
}

struct Entry {
    held: Held,
    links: Links,
    /// When it was looked at, in seconds of the monotonic clock.
    created: u64,
    accessed: u64,
    uses: u64,
}

/// One cache: entries by path.
#[derive(Default)]
struct Cache(Lru<Entry>);

/// The caches of a configuration, by the number of their directive.
#[derive(Default)]
pub(super) struct Caches(RefCell<HashMap<u32, Cache>>);

/// What the cache says about a path.
enum Found {
    Answer(Result<OpenFile, OpenError>),
    /// An open file whose time is up.
    OldFile(OpenFile),
    OldDir,
    Unknown,
}

/// Opens `path` through the cache; see [`try_open`](super::try_open).
pub(super) fn open(
    r: &mut Request,
    conf: &OpenFileCache,
    path: &[u8],
    links: Links,
) -> Poll<Result<OpenFile, OpenError>> {
    let now = base::time::now_ms() / 1000;
    let main = r.main.clone();
    let valid = r.loc.core.open_file_cache_valid;
    let (found, gone) = main.files.caches.with(conf.id, |c| {
        let found = c.find(path, links, now, valid);
        (found, c.expire_unused(now, conf.inactive_secs))
    });
    dispose(gone);
    let answer = match found {
        Found::Answer(Ok(file)) => return Poll::Ready(Ok(with_content(r, path, file))),
        Found::Answer(Err(e)) => return Poll::Ready(Err(e)),
        Found::OldFile(file) => match ready!(ask_stat(r, path, links)) {
            Ok(meta) if meta.ino == file.meta().ino && meta.dev == file.meta().dev => {
                Ok(refreshed(r, path, file, meta))
            }
            Ok(_) => ready!(load(r, path, links)),
            Err(e) => Err(e),
        },
        Found::OldDir => match ready!(ask_stat(r, path, links)) {
            Ok(meta) if meta.is_dir() => {
                Ok(OpenFile { facts: Facts::new(meta), fd: None, content: None })
            }
            Ok(_) => ready!(load(r, path, links)),
            Err(e) => Err(e),
        },
        Found::Unknown => ready!(load(r, path, links)),
    };
    let core = &r.loc.core;
    let (errors, min_uses) = (core.open_file_cache_errors, core.open_file_cache_min_uses);
    let held = match &answer {
        Ok(f) if f.meta().is_dir() => Some(Held::Dir(f.facts.clone())),
        Ok(f) => Some(Held::File(OpenFile { content: None, ..f.clone() })),
        Err(e) if errors && e.what != "fstat()" => e.errno().map(|n| Held::Error(n, e.what)),
        Err(_) => None,
    };
    let gone = main.files.caches.with(conf.id, |c| match held {
        Some(held) => c.store(path, links, held, now, conf, min_uses),
        None => c.remove(path),
    });
    dispose(gone);
    Poll::Ready(answer)
}

/// Closes what is no longer held; the loop may be waiting for a descriptor to become free.
fn dispose(gone: Vec<Entry>) {
    if !gone.is_empty() {
        drop(gone);
        event::descriptor_closed();
    }
}

/// Opens and reads anew; what was read goes to the contents.
fn load(r: &mut Request, path: &[u8], links: Links) -> Poll<Result<OpenFile, OpenError>> {
    let how = super::how(r);
    let loaded = match ready!(ask_load(r, path, links, how)) {
        Ok(l) => l,
        Err(e) => return Poll::Ready(Err(e)),
    };
    let settled = loaded.settled();
    let file = opened(loaded);
    if settled && file.content.is_some() {
        keep(r, path, &file);
    }
    Poll::Ready(Ok(file))
}

fn keep(r: &Request, path: &[u8], file: &OpenFile) {
    r.main.files.contents.insert(path, &OpenFile { fd: None, ..file.clone() });
}

/// The same file with the facts of now.
fn refreshed(r: &Request, path: &[u8], file: OpenFile, meta: os::file::FileMeta) -> OpenFile {
    let facts = match meta.same_version(file.meta()) {
        true => file.facts,
        false => Facts::new(meta),
    };
    with_content(r, path, OpenFile { facts, ..file })
}

/// Adds the content of a small file: what is held of this very version, else what is read now, once
/// later changes can be told from it.
fn with_content(r: &Request, path: &[u8], mut file: OpenFile) -> OpenFile {
    let meta = file.meta();
    if !meta.is_file() || meta.size > CONTENT_MAX {
        return file;
    }
    let held = r.main.files.contents.get(path);
    if let Some(held) = held
        && held.meta().same_version(meta)
    {
        file.content = held.content;
        return file;
    }
    if let Some(fd) = &file.fd
        && door::settled(meta)
        && let Some(content) = door::read_again(fd, meta, r.loc.core.aio.is_off())
    {
        file.content = Some(Bytes::from(content));
        keep(r, path, &file);
    }
    file
}

impl Caches {
    fn with<T>(&self, id: u32, f: impl FnOnce(&mut Cache) -> T) -> T {
        f(self.0.borrow_mut().entry(id).or_default())
    }
}

impl Cache {
    fn find(&mut self, path: &[u8], links: Links, now: u64, valid: u64) -> Found {
        let Some(e) = self.0.get(path) else { return Found::Unknown };
        let current = now.saturating_sub(e.created) < valid && e.links == links;
        let found = match (&e.held, current) {
            (Held::File(f), true) => Found::Answer(Ok(f.clone())),
            (Held::File(f), false) => return Found::OldFile(f.clone()),
            (Held::Dir(facts), true) => {
                let facts = facts.clone();
                Found::Answer(Ok(OpenFile { facts, fd: None, content: None }))
            }
            (Held::Dir(_), false) => return Found::OldDir,
            (Held::Error(n, what), true) => {
                let error = std::io::Error::from_raw_os_error(*n);
                Found::Answer(Err(OpenError::new(what, error)))
            }
            (Held::Error(..), false) | (Held::Rare, _) => return Found::Unknown,
        };
        e.uses += 1;
        e.accessed = now;
        found
    }

    /// Puts what was found now in place; gives back what is no longer held.
    fn store(
        &mut self,
        path: &[u8],
        links: Links,
        held: Held,
        now: u64,
        conf: &OpenFileCache,
        min_uses: u64,
    ) -> Vec<Entry> {
        let uses = self.0.peek(path).map_or(0, |e| e.uses) + 1;
        let mut gone = Vec::new();
        if uses == 1 && self.0.len() >= conf.max {
            gone.extend(self.0.pop_oldest());
        }
        let held = match held {
            Held::File(_) if uses < min_uses => Held::Rare,
            h => h,
        };
        gone.extend(self.0.insert(path, Entry { held, links, created: now, accessed: now, uses }));
        gone
    }

    /// Takes out one or two entries that nobody used for so long, as nginx does at each use of
    /// another.
    fn expire_unused(&mut self, now: u64, inactive_secs: u64) -> Vec<Entry> {
        let mut gone = Vec::new();
        for _ in 0..2 {
            let oldest = self.0.oldest();
            if oldest.is_some_and(|e| now.saturating_sub(e.accessed) > inactive_secs) {
                gone.extend(self.0.pop_oldest());
            }
        }
        gone
    }

    fn remove(&mut self, path: &[u8]) -> Vec<Entry> {
        self.0.remove(path).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const CONF: OpenFileCache = OpenFileCache { max: 2, inactive_secs: 10, id: 1 };

    fn file() -> Held {
        let fd = os::file::open(Path::new("/proc/self/exe")).unwrap();
        let facts = Facts::new(os::file::fstat(&fd).unwrap());
        Held::File(OpenFile { facts, fd: Some(fd.into()), content: None })
    }

    fn store(c: &mut Cache, path: &[u8], held: Held, now: u64, min_uses: u64) -> usize {
        c.store(path, Links::Follow, held, now, &CONF, min_uses).len()
    }

    #[test]
    fn entries_hold_for_their_time_and_for_their_links() {
        let mut c = Cache::default();
        let find = |c: &mut Cache, links, now| c.find(b"/a", links, now, 60);
        assert!(matches!(find(&mut c, Links::Follow, 0), Found::Unknown));
        store(&mut c, b"/a", file(), 100, 1);
        assert!(matches!(find(&mut c, Links::Follow, 159), Found::Answer(Ok(_))));
        assert!(matches!(find(&mut c, Links::Follow, 160), Found::OldFile(_)));
        let check = Links::Check { owner: false, from: 0 };
        assert!(matches!(find(&mut c, check, 101), Found::OldFile(_)));
        store(&mut c, b"/a", Held::Error(2, "open()"), 200, 1);
        let Found::Answer(Err(e)) = find(&mut c, Links::Follow, 201) else { panic!("no error") };
        assert_eq!((e.errno(), e.what), (Some(2), "open()"));
        assert!(matches!(find(&mut c, Links::Follow, 260), Found::Unknown));
    }

    #[test]
    fn rare_files_are_not_held_open() {
        let mut c = Cache::default();
        for uses in 1..4 {
            assert!(matches!(c.find(b"/a", Links::Follow, 0, 60), Found::Unknown), "{uses}");
            store(&mut c, b"/a", file(), 0, 4);
        }
        store(&mut c, b"/a", file(), 0, 4);
        assert!(matches!(c.find(b"/a", Links::Follow, 0, 60), Found::Answer(Ok(_))));
    }

    #[test]
    fn the_cache_is_bounded_and_forgets_what_is_not_used() {
        let mut c = Cache::default();
        store(&mut c, b"/a", file(), 0, 1);
        store(&mut c, b"/b", file(), 1, 1);
        assert!(matches!(c.find(b"/a", Links::Follow, 2, 60), Found::Answer(_)));
        assert_eq!(store(&mut c, b"/c", file(), 3, 1), 1);
        assert!(matches!(c.find(b"/b", Links::Follow, 3, 60), Found::Unknown));
        assert!(c.expire_unused(12, CONF.inactive_secs).is_empty());
        assert_eq!(c.expire_unused(13, CONF.inactive_secs).len(), 1);
        assert!(matches!(c.find(b"/a", Links::Follow, 13, 60), Found::Unknown));
        assert!(matches!(c.find(b"/c", Links::Follow, 13, 60), Found::Answer(_)));
    }
}
