//! Reads a stylesheet and those that it includes and imports (XSLT, sections 2.2 and 2.6).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault;
use crate::atoms::Atoms;
use crate::error::{Error, Result};
use crate::parse::{Parsing, parse, path_of, read_file};
use crate::tree::{Doc, Id, Kind, ROOT};

/// The most bytes of a stylesheet's file, and of memory for its tree.
const BYTES_MAX: usize = 256 << 20;

/// The most files of a stylesheet, and how deep they may include one another.
const FILES_MAX: usize = 1000;
const NESTED_MAX: usize = 100;

/// The files of a stylesheet.
pub(super) struct Loaded {
    pub(super) atoms: Atoms,
    pub(super) files: Vec<File>,
    /// The elements at the top, by ascending import precedence.
    pub(super) tops: Vec<Top>,
}

pub(super) struct File {
    pub(super) doc: Doc,
    pub(super) name: Arc<str>,
    /// `xsl:stylesheet`, or the element that is a template by itself (section 2.3).
    pub(super) root: Id,
    pub(super) is_simplified: bool,
}

/// An element at the top.
#[derive(Clone, Copy)]
pub(super) struct Top {
    pub(super) file: usize,
    pub(super) id: Id,
    pub(super) precedence: u32,
    /// The lowest precedence of what its stylesheet imports.
    pub(super) lowest: u32,
}

/// Reads all files of a stylesheet.
pub(super) fn load(path: &Path) -> Result<Loaded> {
    let loaded = Loaded { atoms: Atoms::default(), files: Vec::new(), tops: Vec::new() };
    let mut loader = Loader { loaded, precedence: 0, chain: Vec::new() };
    loader.stylesheet(path)?;
    Ok(loader.loaded)
}

struct Loader {
    loaded: Loaded,
    /// The next one.
    precedence: u32,
    /// The files that are being read: one includes the next.
    chain: Vec<PathBuf>,
}

impl Loader {
    /// Reads a stylesheet that has a precedence of its own, behind those that it imports.
    fn stylesheet(&mut self, path: &Path) -> Result<()> {
        let lowest = self.precedence;
        let mut own = Vec::new();
        self.file(path, &mut own)?;
        let precedence = self.precedence;
        self.precedence += 1;
        let tops = own.into_iter().map(|(file, id)| Top { file, id, precedence, lowest });
        self.loaded.tops.extend(tops);
        Ok(())
    }

    /// Reads a file; its elements join those of the stylesheet that it belongs to.
    fn file(&mut self, path: &Path, own: &mut Vec<(usize, Id)>) -> Result<()> {
        let name = path.display().to_string();
        if self.chain.iter().any(|open| open == path) {
            return fault(format!("\"{name}\" includes or imports itself"));
        }
        if self.chain.len() == NESTED_MAX || self.loaded.files.len() == FILES_MAX {
            return fault(format!("too many stylesheets are included: \"{name}\""));
        }
        let bytes = read_file(path, BYTES_MAX)
            .map_err(|e| Error::new(format!("open() \"{name}\" failed ({e})")))?;
        let parsing = Parsing { entities: None, external_entities: true, bytes_max: BYTES_MAX };
        let doc = parse(&self.loaded.atoms, &bytes, Some(&name), &parsing, true)?;
        let file = self.kept(doc, name.as_str())?;
        self.chain.push(path.to_owned());
        self.tops(file, path, own).map_err(|e| self.at_root(file, e))?;
        self.chain.pop();
        Ok(())
    }

    fn at_root(&self, file: usize, e: Error) -> Error {
        let file = &self.loaded.files[file];
        e.or_at(&file.name, file.doc.line(file.root))
    }

    /// Keeps a document without its white space: all text nodes of it alone but those of
    /// `xsl:text` (section 3.4).
    fn kept(&mut self, doc: Doc, name: &str) -> Result<usize> {
        let atoms = &self.loaded.atoms;
        let text = atoms.name(crate::XSL, "text");
        let doc = doc.stripped(atoms, &|element| element != text);
        let root = doc.children(ROOT).find(|id| doc.node(*id).kind == Kind::Element);
        let Some(root) = root else {
            return Err(Error::new("a stylesheet is empty").or_at(name, 1));
        };
        let of_root = doc.node(root).name;
        let version = atoms.name(crate::XSL, "version");
        let is_stylesheet = ["stylesheet", "transform"]
            .iter()
            .any(|local| of_root == atoms.name(crate::XSL, local));
        if !is_stylesheet && doc.attribute(root, version).is_none() {
            let m = "the file is no stylesheet: its element is not xsl:stylesheet, and has no \
                     xsl:version";
            return Err(Error::new(m).or_at(name, doc.line(root)));
        }
        let file = File { doc, name: Arc::from(name), root, is_simplified: !is_stylesheet };
        self.loaded.files.push(file);
        Ok(self.loaded.files.len() - 1)
    }

    fn tops(&mut self, file: usize, path: &Path, own: &mut Vec<(usize, Id)>) -> Result<()> {
        let of_file = &self.loaded.files[file];
        if of_file.is_simplified {
            own.push((file, of_file.root));
            return Ok(());
        }
        let elements: Vec<Id> = of_file.doc.children(of_file.root).collect();
        let (include, import) = (
            self.loaded.atoms.name(crate::XSL, "include"),
            self.loaded.atoms.name(crate::XSL, "import"),
        );
        for id in elements {
            let doc = &self.loaded.files[file].doc;
            let node = doc.node(id);
            if node.kind != Kind::Element {
                continue;
            }
            if node.name != include && node.name != import {
                own.push((file, id));
                continue;
            }
            let (name, line) = (self.loaded.files[file].name.clone(), doc.line(id));
            let Some(href) = doc.plain_attribute(&self.loaded.atoms, id, "href") else {
                return Err(Error::new("\"href\" is missing").or_at(&name, line));
            };
            let of_href = beside(path, href);
            let done = match of_href {
                Some(other) if node.name == import => self.stylesheet(&other),
                Some(other) => self.file(&other, own),
                None => fault(format!("\"{href}\" is no file")),
            };
            done.map_err(|e| e.or_at(&name, line))?;
        }
        Ok(())
    }
}

/// The file that a reference names, relative to the file that has it, without its fragment; `None`
/// for what is no file (`http:`).
pub(crate) fn beside(file: &Path, href: &str) -> Option<PathBuf> {
    match href.split('#').next().unwrap_or_default() {
        "" => Some(file.to_owned()),
        path => path_of(Some(&file.to_string_lossy()), path),
    }
}
