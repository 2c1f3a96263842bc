//! The bytes of small files, by path, in two generations: an entry that is used moves to the young
//! one; when that is full it becomes the old one, and the entries left in the old one are dropped.
//!
//! No descriptor is held here, and no entry is trusted by itself: every use compares the attributes
//! that `statx(2)` tells with those that were read with the bytes. Two things escape that
//! comparison: writes through a shared mapping, which the kernel stamps late, and file systems that
//! do not keep times.

use std::cell::RefCell;

use base::hash::Table;

use crate::file::OpenFile;

/// The limit of both generations together, in bytes of content, paths and tables.
const BYTES_MAX: usize = 32 << 20;

/// Bytes of an entry besides its path and content, roughly.
const ENTRY_BYTES: usize = 320;

type Generation = Table<Box<[u8]>, OpenFile>;

#[derive(Default)]
struct Inner {
    young: Generation,
    young_bytes: usize,
    old: Generation,
}

/// The contents of small files that a worker holds.
#[derive(Default)]
pub(crate) struct Contents(RefCell<Inner>);

fn weight(path: &[u8], file: &OpenFile) -> usize {
    path.len() + file.content.as_ref().map_or(0, |c| c.len()) + ENTRY_BYTES
}

impl Contents {
    /// The file held for a path; its content is always there.
    pub fn get(&self, path: &[u8]) -> Option<OpenFile> {
        let inner = &mut *self.0.borrow_mut();
        if let Some(file) = inner.young.get(path) {
            return Some(file.clone());
        }
        let (key, file) = inner.old.remove_entry(path)?;
        inner.put(key, file.clone());
        Some(file)
    }

    pub fn insert(&self, path: &[u8], file: &OpenFile) {
        let inner = &mut *self.0.borrow_mut();
        inner.remove(path);
        inner.put(path.into(), file.clone());
    }

    pub fn remove(&self, path: &[u8]) {
        self.0.borrow_mut().remove(path);
    }
}

impl Inner {
    fn put(&mut self, key: Box<[u8]>, file: OpenFile) {
        self.young_bytes += weight(&key, &file);
        self.young.insert(key, file);
        if self.young_bytes > BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }

    fn remove(&mut self, path: &[u8]) {
        match self.young.remove_entry(path) {
            Some((key, file)) => self.young_bytes -= weight(&key, &file),
            None => drop(self.old.remove(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Facts;
    use bytes::Bytes;

    fn file(len: usize) -> OpenFile {
        let meta = os::file::stat(std::path::Path::new("/")).unwrap();
        let content = Some(Bytes::from(vec![b'x'; len]));
        OpenFile { facts: Facts::new(meta), fd: None, content }
    }

    #[test]
    fn what_is_used_stays_and_the_whole_is_bounded() {
        let contents = Contents::default();
        contents.insert(b"/hot", &file(1000));
        let size = 32 << 10;
        for i in 0..3000 {
            contents.insert(format!("/cold/{i}").as_bytes(), &file(size));
            assert!(contents.get(b"/hot").is_some(), "{i}");
        }
        assert!(contents.get(b"/cold/0").is_none());
        assert!(contents.get(b"/cold/2999").is_some());
        let inner = contents.0.borrow();
        let all = inner.young.iter().chain(&inner.old);
        let bytes: usize = all.map(|(k, f)| weight(k, f)).sum();
        assert!(bytes <= BYTES_MAX + size + ENTRY_BYTES, "{bytes}");
        let young: usize = inner.young.iter().map(|(k, f)| weight(k, f)).sum();
        assert_eq!(young, inner.young_bytes);
    }

    #[test]
    fn removed_is_gone_from_both_generations() {
        let contents = Contents::default();
        contents.insert(b"/a", &file(10));
        contents.insert(b"/a", &file(20));
        assert_eq!(contents.get(b"/a").unwrap().content.unwrap().len(), 20);
        contents.remove(b"/a");
        assert!(contents.get(b"/a").is_none());
        assert_eq!(contents.0.borrow().young_bytes, 0);
        contents.insert(b"/b", &file(10));
        {
            let inner = &mut *contents.0.borrow_mut();
            inner.old = std::mem::take(&mut inner.young);
            inner.young_bytes = 0;
        }
        contents.remove(b"/b");
        assert!(contents.get(b"/b").is_none());
    }
}
