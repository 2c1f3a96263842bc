//! `open_file_cache`: files with their descriptors, held by path for a while without looking again.
//! Folders and (with `open_file_cache_errors`) errors are entries too.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Poll, ready};

use bytes::Bytes;
use mem::Lru;

use crate::file::{CONTENT_MAX, Facts, OpenError, OpenFile};
use crate::links::Links;
use crate::opener::{Opener, opened};
use crate::question;

/// `open_file_cache`; each worker has a cache of its own.
#[derive(Clone, Copy, Debug)]
pub struct OpenFileCache {
    /// Entries that this location's cache holds.
    pub max: usize,
    /// Seconds after which an unused entry goes.
    pub inactive_secs: u64,
    /// Caches with the same settings written at different places are different caches.
    pub id: u32,
}

/// The object at a path.
enum Held {
    /// A file, open. Its content, if it is held, is in [`Contents`](crate::contents::Contents).
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
pub(crate) struct Caches(RefCell<HashMap<u32, Cache>>);

/// The outcome of looking a path up.
enum Lookup {
    Answer(Result<OpenFile, OpenError>),
    /// An open file whose time is up.
    OldFile(OpenFile),
    OldDir,
    Unknown,
}

/// Opens `path` through the cache: see [`Opener::open`].
pub(crate) fn open(
    o: &mut Opener<'_>,
    conf: &OpenFileCache,
    path: &[u8],
    links: Links,
) -> Poll<Result<OpenFile, OpenError>> {
    let now = base::time::now_ms() / 1000;
    let (files, settings) = (o.files, o.settings);
    let valid = settings.cache_valid;
    let (found, gone) = files.caches.with(conf.id, |c| {
        let found = c.find(path, links, now, valid);
        (found, c.expire_unused(now, conf.inactive_secs))
    });
    dispose(gone);
    let answer = match found {
        Lookup::Answer(Ok(file)) => return Poll::Ready(Ok(with_content(o, path, file))),
        Lookup::Answer(Err(e)) => return Poll::Ready(Err(e)),
        Lookup::OldFile(file) => match ready!(o.uncached_stat(path, links)) {
            Ok(meta) if meta.ino == file.meta().ino && meta.dev == file.meta().dev => {
                Ok(refreshed(o, path, file, meta))
            }
            Ok(_) => ready!(load(o, path, links)),
            Err(e) => Err(e),
        },
        Lookup::OldDir => match ready!(o.uncached_stat(path, links)) {
            Ok(meta) if meta.is_dir() => {
                Ok(OpenFile { facts: Facts::new(meta), fd: None, content: None })
            }
            Ok(_) => ready!(load(o, path, links)),
            Err(e) => Err(e),
        },
        Lookup::Unknown => ready!(load(o, path, links)),
    };
    let (errors, min_uses) = (settings.cache_errors, settings.cache_min_uses);
    let held = match &answer {
        Ok(f) if f.meta().is_dir() => Some(Held::Dir(f.facts.clone())),
        Ok(f) => Some(Held::File(OpenFile { content: None, ..f.clone() })),
        Err(e) if errors && e.what != "fstat()" => e.errno().map(|n| Held::Error(n, e.what)),
        Err(_) => None,
    };
    let gone = files.caches.with(conf.id, |c| match held {
        Some(held) => c.store(path, links, held, now, conf, min_uses),
        None => c.remove(path),
    });
    dispose(gone);
    Poll::Ready(answer)
}

/// Closes entries that went; the loop may be waiting for a descriptor to become free.
fn dispose(gone: Vec<Entry>) {
    if !gone.is_empty() {
        drop(gone);
        event::descriptor_closed();
    }
}

/// Opens and reads anew; the content goes to the contents.
fn load(o: &mut Opener<'_>, path: &[u8], links: Links) -> Poll<Result<OpenFile, OpenError>> {
    let flags = o.settings.flags();
    let loaded = match ready!(o.load(path, links, flags)) {
        Ok(l) => l,
        Err(e) => return Poll::Ready(Err(e)),
    };
    let settled = loaded.settled();
    let file = opened(loaded);
    if settled && file.content.is_some() {
        keep(o, path, &file);
    }
    Poll::Ready(Ok(file))
}

fn keep(o: &Opener<'_>, path: &[u8], file: &OpenFile) {
    o.files.contents.insert(path, &OpenFile { fd: None, ..file.clone() });
}

/// The same file with the facts of now.
fn refreshed(o: &Opener<'_>, path: &[u8], file: OpenFile, meta: os::file::FileMeta) -> OpenFile {
    let facts = match meta.same_version(file.meta()) {
        true => file.facts,
        false => Facts::new(meta),
    };
    with_content(o, path, OpenFile { facts, ..file })
}

/// Adds the content of a small file: from memory where this very version is held, else read now if
/// later changes can be told from it.
fn with_content(o: &Opener<'_>, path: &[u8], mut file: OpenFile) -> OpenFile {
    let meta = file.meta();
    if !meta.is_file() || meta.size > CONTENT_MAX {
        return file;
    }
    let held = o.files.contents.get(path);
    if let Some(held) = held
        && held.meta().same_version(meta)
    {
        file.content = held.content;
        return file;
    }
    if let Some(fd) = &file.fd
        && question::settled(meta)
        && let Some(content) = question::read_again(fd, meta, o.settings.aio_off)
    {
        file.content = Some(Bytes::from(content));
        keep(o, path, &file);
    }
    file
}

impl Caches {
    fn with<T>(&self, id: u32, f: impl FnOnce(&mut Cache) -> T) -> T {
        f(self.0.borrow_mut().entry(id).or_default())
    }
}

impl Cache {
    fn find(&mut self, path: &[u8], links: Links, now: u64, valid: u64) -> Lookup {
        let Some(e) = self.0.get(path) else { return Lookup::Unknown };
        let current = now.saturating_sub(e.created) < valid && e.links == links;
        let found = match (&e.held, current) {
            (Held::File(f), true) => Lookup::Answer(Ok(f.clone())),
            (Held::File(f), false) => return Lookup::OldFile(f.clone()),
            (Held::Dir(facts), true) => {
                let facts = facts.clone();
                Lookup::Answer(Ok(OpenFile { facts, fd: None, content: None }))
            }
            (Held::Dir(_), false) => return Lookup::OldDir,
            (Held::Error(n, what), true) => {
                let error = std::io::Error::from_raw_os_error(*n);
                Lookup::Answer(Err(OpenError::new(what, error)))
            }
            (Held::Error(..), false) | (Held::Rare, _) => return Lookup::Unknown,
        };
        e.uses += 1;
        e.accessed = now;
        found
    }

    /// Stores an entry; gives back those that had to go.
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
        assert!(matches!(find(&mut c, Links::Follow, 0), Lookup::Unknown));
        store(&mut c, b"/a", file(), 100, 1);
        assert!(matches!(find(&mut c, Links::Follow, 159), Lookup::Answer(Ok(_))));
        assert!(matches!(find(&mut c, Links::Follow, 160), Lookup::OldFile(_)));
        let check = Links::Check { owner: false, from: 0 };
        assert!(matches!(find(&mut c, check, 101), Lookup::OldFile(_)));
        store(&mut c, b"/a", Held::Error(2, "open()"), 200, 1);
        let Lookup::Answer(Err(e)) = find(&mut c, Links::Follow, 201) else { panic!("no error") };
        assert_eq!((e.errno(), e.what), (Some(2), "open()"));
        assert!(matches!(find(&mut c, Links::Follow, 260), Lookup::Unknown));
    }

    #[test]
    fn rare_files_are_not_held_open() {
        let mut c = Cache::default();
        for uses in 1..4 {
            assert!(matches!(c.find(b"/a", Links::Follow, 0, 60), Lookup::Unknown), "{uses}");
            store(&mut c, b"/a", file(), 0, 4);
        }
        store(&mut c, b"/a", file(), 0, 4);
        assert!(matches!(c.find(b"/a", Links::Follow, 0, 60), Lookup::Answer(Ok(_))));
    }

    #[test]
    fn the_cache_is_bounded_and_forgets_what_is_not_used() {
        let mut c = Cache::default();
        store(&mut c, b"/a", file(), 0, 1);
        store(&mut c, b"/b", file(), 1, 1);
        assert!(matches!(c.find(b"/a", Links::Follow, 2, 60), Lookup::Answer(_)));
        assert_eq!(store(&mut c, b"/c", file(), 3, 1), 1);
        assert!(matches!(c.find(b"/b", Links::Follow, 3, 60), Lookup::Unknown));
        assert!(c.expire_unused(12, CONF.inactive_secs).is_empty());
        assert_eq!(c.expire_unused(13, CONF.inactive_secs).len(), 1);
        assert!(matches!(c.find(b"/a", Links::Follow, 13, 60), Lookup::Unknown));
        assert!(matches!(c.find(b"/c", Links::Follow, 13, 60), Lookup::Answer(_)));
    }
}
