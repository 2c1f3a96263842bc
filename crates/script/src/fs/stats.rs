//! `Stats` and `Dirent`.

use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::UNIX_EPOCH;

use rquickjs::object::Property;
use rquickjs::{Ctx, Function, Result, Value};

use super::failure::{Problem, failed};
use super::options::{self, Options};
use super::{Arguments, Style, files};
use crate::native::{self, Call, to_bool};
use crate::raw;

/// The type of a file, as data of both objects; `None` for a `Dirent` that the script has made.
struct Kind(Option<FileType>);

type Test = fn(&FileType) -> bool;

const TESTS: &[(&str, Test)] = &[
    ("isBlockDevice", |t| t.is_block_device()),
    ("isCharacterDevice", |t| t.is_char_device()),
    ("isDirectory", |t| t.is_dir()),
    ("isFIFO", |t| t.is_fifo()),
    ("isFile", |t| t.is_file()),
    ("isSocket", |t| t.is_socket()),
    ("isSymbolicLink", |t| t.is_symlink()),
];

/// Makes both prototypes, and returns the constructor of `Dirent`.
pub fn install<'js>(ctx: &Ctx<'js>) -> Result<Function<'js>> {
    for name in ["Stats", "Dirent"] {
        let prototype = native::prototype(ctx, name, &[])?;
        for (number, (name, _)) in (0..).zip(TESTS) {
            native::method(&prototype, name, native::with_number(ctx, name, 0, test, number)?)?;
        }
    }
    let constructor = native::function(ctx, "Dirent", 1, |call| {
        if call.len() < 1 {
            return Err(call.type_error("name is required"));
        }
        dirent(call.ctx(), call.arg(0), None)
    })?;
    let constructor = constructor.with_constructor(true);
    constructor.set("prototype", native::prototype_of(ctx, "Dirent")?)?;
    Ok(constructor)
}

fn test<'js>(call: &Call<'_, 'js>, number: u32) -> Result<Value<'js>> {
    let (_, test) = TESTS[number as usize];
    let is = native::with_data(&call.this(), |kind: &mut Kind| kind.0.as_ref().is_some_and(test));
    call.bool(is.ok_or_else(|| call.type_error("'this' is not a Stats or Dirent"))?)
}

/// An entry of a folder.
pub(crate) fn dirent<'js>(
    ctx: &Ctx<'js>,
    name: Value<'js>,
    kind: Option<FileType>,
) -> Result<Value<'js>> {
    let entry = native::object(ctx, "Dirent", Kind(kind))?;
    entry.prop("name", Property::from(name).enumerable())?;
    Ok(entry.into_value())
}

fn stats<'js>(ctx: &Ctx<'js>, meta: &Metadata) -> Result<Value<'js>> {
    let stats = native::object(ctx, "Stats", Kind(Some(meta.file_type())))?;
    let add = |name: &str, value: Value<'js>| {
        stats.prop(name, Property::from(value).enumerable().configurable())
    };
    let number = |value: f64| Value::new_number(ctx.clone(), value);
    for (name, value) in [
        ("dev", meta.dev()),
        ("ino", meta.ino()),
        ("mode", u64::from(meta.mode())),
        ("nlink", meta.nlink()),
        ("uid", u64::from(meta.uid())),
        ("gid", u64::from(meta.gid())),
        ("rdev", meta.rdev()),
        ("size", meta.size()),
        ("blksize", meta.blksize()),
        ("blocks", meta.blocks()),
    ] {
        add(name, number(value as f64))?;
    }
    let changed = milliseconds(meta.ctime(), meta.ctime_nsec());
    // Not every file system knows when a file was made.
    let made = meta.created().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    for (name, name_ms, value) in [
        ("atime", "atimeMs", milliseconds(meta.atime(), meta.atime_nsec())),
        ("mtime", "mtimeMs", milliseconds(meta.mtime(), meta.mtime_nsec())),
        ("ctime", "ctimeMs", changed),
        ("birthtime", "birthtimeMs", made.map_or(changed, |t| t.as_secs_f64() * 1000.0)),
    ] {
        add(name_ms, number(value))?;
        add(name, raw::date(ctx, value)?)?;
    }
    Ok(stats.into_value())
}

fn milliseconds(seconds: i64, nanoseconds: i64) -> f64 {
    seconds as f64 * 1000.0 + nanoseconds as f64 / 1_000_000.0
}

/// `statSync(path, options)`
pub fn stat<'js>(arguments: &Arguments<'_, '_, 'js>) -> std::result::Result<Value<'js>, Problem> {
    let path = options::path(arguments, 0, "path")?;
    of(arguments, 1, "stat", Some(&path.0), || fs::metadata(path.path()))
}

/// `lstatSync(path, options)`
pub fn lstat<'js>(arguments: &Arguments<'_, '_, 'js>) -> std::result::Result<Value<'js>, Problem> {
    let path = options::path(arguments, 0, "path")?;
    of(arguments, 1, "lstat", Some(&path.0), || fs::symlink_metadata(path.path()))
}

/// `fstatSync(fd, options)`, `FileHandle.stat(options)`
pub fn fstat<'js>(arguments: &Arguments<'_, '_, 'js>) -> std::result::Result<Value<'js>, Problem> {
    let file = files::open_file(arguments, "fstat")?;
    of(arguments, usize::from(!arguments.handle), "fstat", None, || file.metadata())
}

fn of<'js>(
    arguments: &Arguments<'_, '_, 'js>,
    index: usize,
    syscall: &'static str,
    path: Option<&[u8]>,
    ask: impl FnOnce() -> io::Result<Metadata>,
) -> std::result::Result<Value<'js>, Problem> {
    let options = Options::read(arguments, index, None)?;
    if options.member("bigint")?.is_some() {
        return Err(arguments.call.type_error("\"bigint\" is not supported").into());
    }
    let mut throws = true;
    if arguments.style == Style::Direct
        && let Some(value) = options.member("throwIfNoEntry")?
    {
        throws = to_bool(&value)?;
    }
    match ask() {
        Ok(meta) => Ok(stats(arguments.ctx(), &meta)?),
        Err(e) if e.raw_os_error() == Some(os::errno::ENOENT) && !throws => {
            Ok(Value::new_undefined(arguments.ctx().clone()))
        }
        Err(e) => Err(failed(syscall, path, &e)),
    }
}
