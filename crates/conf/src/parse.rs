//! From text to a [`Tree`]: statements, blocks, `include`.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;

use crate::environment::{self, Environment};
use crate::error::short;
use crate::glob;
use crate::lexer::{End, Lexer};
use crate::{ConfError, Node, SourceFile, Tree, Word};

/// The end of the names of lua-nginx-module's directives that hold a program in braces. What reads
/// files for another purpose than to run them (`weir migrate`, `weir lint`) gets past it.
pub(crate) const LUA: &[u8] = b"_by_lua_block";

/// The limits and the behaviour of a parse.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where relative `include` paths begin: the directory of the main file.
    pub conf_prefix: PathBuf,
    /// Keeps the text before a syntax error as a tree that ends in a [`Node::broken`], so that an
    /// error in that text is reported first, as by nginx, which reads and applies in one go.
    pub keep_broken: bool,
    /// Leaves `include` in the tree as a directive like others, and opens nothing for it.
    pub keep_includes: bool,
    /// What becomes of `${env:NAME}`.
    pub environment: Environment,
    /// Texts in the place of those on disk, as an editor has them, by device and inode.
    pub unsaved: HashMap<(u64, u64), Bytes>,
    /// Files included from files, the main one counted.
    pub max_depth: usize,
    /// Files read in all, counted as often as they are included.
    pub max_files: usize,
    /// Bytes read in all.
    pub max_bytes: u64,
    /// The depth of nested blocks. Code that walks a tree recurses once a level.
    pub max_block_depth: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            conf_prefix: PathBuf::from("."),
            keep_broken: false,
            keep_includes: false,
            environment: Environment::Keep,
            unsaved: HashMap::new(),
            max_depth: 64,
            max_files: 100_000,
            max_bytes: 256 << 20,
            max_block_depth: 128,
        }
    }
}

/// Reads a file and its includes.
///
/// # Errors
///
/// The first file that cannot be read or statement that is malformed; with
/// [`keep_broken`](Options::keep_broken) only an unreadable main file.
pub fn parse_file(path: &Path, options: &Options) -> Result<Tree, ConfError> {
    let mut parser = Parser::new(options);
    let mut lexer = parser.open(path, None)?;
    parser.run(&mut lexer)
}

/// Reads text as the content of a file of that name.
///
/// # Errors
///
/// As [`parse_file`].
pub fn parse_bytes(name: &Path, text: Bytes, options: &Options) -> Result<Tree, ConfError> {
    let mut parser = Parser::new(options);
    let path: Rc<Path> = name.into();
    parser.keep(&path, &text);
    parser.run(&mut Lexer::new(path, text))
}

/// Reads the directives given on the command line (`-g`), which may include files but open no
/// blocks.
///
/// # Errors
///
/// As [`parse_file`].
pub fn parse_params(text: &[u8], options: &Options) -> Result<Tree, ConfError> {
    let mut lexer = Lexer::for_params(Bytes::copy_from_slice(text));
    Parser::new(options).run(&mut lexer)
}

struct Parser<'a> {
    options: &'a Options,
    files: Vec<SourceFile>,
    environment: Vec<Vec<u8>>,
    kept: HashSet<Rc<Path>>,
    /// Device and inode of the files that are being read, outermost first.
    reading: Vec<(u64, u64)>,
    opened: usize,
    bytes: u64,
    /// Open blocks, outermost first, each with its content so far; the first is the outermost
    /// level, which has no directive.
    blocks: Vec<(Option<Node>, Vec<Node>)>,
}

impl<'a> Parser<'a> {
    fn new(options: &'a Options) -> Parser<'a> {
        Parser {
            options,
            files: Vec::new(),
            environment: Vec::new(),
            kept: HashSet::new(),
            reading: Vec::new(),
            opened: 0,
            bytes: 0,
            blocks: vec![(None, Vec::new())],
        }
    }

    fn run(mut self, lexer: &mut Lexer) -> Result<Tree, ConfError> {
        if let Err(error) = self.read(lexer) {
            if !self.options.keep_broken {
                return Err(error);
            }
            self.push(broken(error, lexer.file()));
            while self.blocks.len() > 1 {
                self.close();
            }
        }
        let nodes = self.blocks.pop().map(|(_, nodes)| nodes).unwrap_or_default();
        Ok(Tree { nodes, files: self.files, environment: self.environment })
    }

    /// Reads one file to its end. A block must end in the file where it began.
    fn read(&mut self, lexer: &mut Lexer) -> Result<(), ConfError> {
        self.statements(lexer).map_err(|error| lexer.with_line(error))
    }

    fn statements(&mut self, lexer: &mut Lexer) -> Result<(), ConfError> {
        let level = self.blocks.len();
        let mut words = Vec::new();
        loop {
            match lexer.statement(&mut words)? {
                End::Eof if self.blocks.len() > level => return Err(self.not_closed(lexer)),
                End::Eof => return Ok(()),
                End::Close if self.blocks.len() == level => return Err(lexer.unexpected_close()),
                End::Close => self.close(),
                end => self.directive(lexer, end, &mut words)?,
            }
        }
    }

    fn directive(
        &mut self,
        lexer: &mut Lexer,
        end: End,
        words: &mut Vec<Word>,
    ) -> Result<(), ConfError> {
        let mut words = words.drain(..);
        let Some(name) = words.next() else {
            return Ok(());
        };
        let mut node = Node { name, args: words.collect(), block: None, broken: None };
        for word in std::iter::once(&mut node.name).chain(&mut node.args) {
            environment::expand(word, self.options.environment, &mut self.environment)?;
        }
        if end == End::Open && lexer.is_params() {
            let message = "block directives are not supported in -g option";
            return Err(ConfError::at(&node.name, message));
        }
        if node.name == *"include" && !(self.options.keep_includes && end == End::Semicolon) {
            return self.include(&node, end);
        }
        if end == End::Open && node.name.bytes().ends_with(LUA) {
            node.args.push(lexer.lua(&node.name)?);
            self.push(node);
            return Ok(());
        }
        if end == End::Semicolon {
            self.push(node);
            return Ok(());
        }
        if self.blocks.len() > self.options.max_block_depth {
            let message =
                format!("blocks are nested more than {} deep", self.options.max_block_depth);
            return Err(ConfError::at(&node.name, message));
        }
        self.blocks.push((Some(node), Vec::new()));
        Ok(())
    }

    fn push(&mut self, node: Node) {
        if let Some((_, nodes)) = self.blocks.last_mut() {
            nodes.push(node);
        }
    }

    /// Ends the innermost block, which is not the outermost level.
    fn close(&mut self) {
        if let Some((Some(mut node), nodes)) = self.blocks.pop() {
            node.block = Some(nodes);
            self.push(node);
        }
    }

    #[cold]
    fn not_closed(&self, lexer: &Lexer) -> ConfError {
        let error = lexer.error_at_end("unexpected end of file, expecting \"}\"");
        match self.blocks.last() {
            Some((Some(node), _)) => {
                let (name, line) = (short(&node.name), node.name.pos.line);
                error.with_help(format!("the block \"{name}\" in line {line} is not closed"))
            }
            _ => error,
        }
    }

    fn include(&mut self, node: &Node, end: End) -> Result<(), ConfError> {
        if end == End::Open {
            let message = "directive \"include\" is not terminated by \";\"";
            return Err(ConfError::at(&node.name, message));
        }
        let [word] = &node.args[..] else {
            return Err(node.wrong_count());
        };
        let mut path = self.options.conf_prefix.clone();
        path.push(OsStr::from_bytes(word.bytes()));
        let full = path.as_os_str().as_bytes();
        if !glob::is_pattern(full) {
            return self.include_one(&path, word);
        }
        let Some(found) = glob::glob(full, self.options.max_files - self.opened) else {
            return Err(ConfError::at(word, self.too_many_files()));
        };
        found.iter().try_for_each(|path| self.include_one(path, word))
    }

    fn include_one(&mut self, path: &Path, word: &Word) -> Result<(), ConfError> {
        if self.reading.len() >= self.options.max_depth {
            let message = format!("includes are nested more than {} deep", self.options.max_depth);
            return Err(ConfError::at(word, message));
        }
        let mut lexer = self.open(path, Some(word))?;
        self.read(&mut lexer)?;
        self.reading.pop();
        Ok(())
    }

    /// Opens and reads a file that `word` includes, and records it as open.
    fn open(&mut self, path: &Path, word: Option<&Word>) -> Result<Lexer, ConfError> {
        let error = |message: String| match word {
            Some(word) => ConfError::at(word, message),
            None => ConfError::new(message),
        };
        if self.opened >= self.options.max_files {
            return Err(error(self.too_many_files()));
        }
        self.opened += 1;
        let shown = path.display();
        let (text, identity) = match load(path, self.options.max_bytes - self.bytes) {
            Ok(loaded) => loaded,
            Err(Unreadable::Call(call, cause)) => {
                let cause = base::log::os_error(&cause);
                return Err(error(format!("{call}() \"{shown}\" failed {cause}")));
            }
            Err(Unreadable::Kind) => {
                return Err(error(format!("\"{shown}\" is not a regular file")));
            }
            Err(Unreadable::TooLarge) => {
                let max = self.options.max_bytes;
                return Err(error(format!("configuration is larger than {max} bytes")));
            }
        };
        if self.reading.contains(&identity) {
            return Err(error(format!("\"{shown}\" includes itself")));
        }
        self.reading.push(identity);
        let text = self.options.unsaved.get(&identity).cloned().unwrap_or(text);
        self.bytes += text.len() as u64;
        let path: Rc<Path> = path.into();
        self.keep(&path, &text);
        Ok(Lexer::new(path, text))
    }

    fn too_many_files(&self) -> String {
        format!("more than {} files are included", self.options.max_files)
    }

    fn keep(&mut self, path: &Rc<Path>, text: &Bytes) {
        if self.kept.insert(path.clone()) {
            self.files.push(SourceFile { path: path.clone(), bytes: text.clone() });
        }
    }
}

/// The node for an unreadable part.
fn broken(error: ConfError, file: &Rc<Path>) -> Node {
    let pos = error.pos.clone().unwrap_or(crate::Pos { file: file.clone(), line: 0, column: 0 });
    let name = Word { text: Bytes::new(), pos, quoted: false };
    Node { name, args: Vec::new(), block: None, broken: Some(Box::new(error)) }
}

enum Unreadable {
    /// A system call failed.
    Call(&'static str, io::Error),
    /// A pipe, a socket or a device, which might never end.
    Kind,
    TooLarge,
}

/// Reads a regular file of at most `max` bytes: its text, its device and inode.
fn load(path: &Path, max: u64) -> Result<(Bytes, (u64, u64)), Unreadable> {
    // Before opening: to open a pipe waits for its writer, to open a device may do anything.
    let metadata = fs::metadata(path).map_err(|cause| Unreadable::Call("open", cause))?;
    let kind = metadata.file_type();
    let identity = (metadata.dev(), metadata.ino());
    if kind.is_dir() {
        return Err(Unreadable::Call("pread", io::Error::from_raw_os_error(os::errno::EISDIR)));
    }
    // /dev/null is how people switch an include off.
    if kind.is_char_device() && path == Path::new("/dev/null") {
        return Ok((Bytes::new(), identity));
    }
    if !kind.is_file() {
        return Err(Unreadable::Kind);
    }
    if metadata.len() > max {
        return Err(Unreadable::TooLarge);
    }
    let file = File::open(path).map_err(|cause| Unreadable::Call("open", cause))?;
    let mut text = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    // A file may grow while it is read; files in /proc have no length.
    file.take(max.saturating_add(1))
        .read_to_end(&mut text)
        .map_err(|cause| Unreadable::Call("pread", cause))?;
    if text.len() as u64 > max {
        return Err(Unreadable::TooLarge);
    }
    Ok((text.into(), identity))
}
