//! Operations on names: folders, links, renames.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rquickjs::{Array, Value};

use super::Arguments;
use super::failure::{Problem, failed};
use super::options::{self, Options};
use super::stats;
use crate::codec::Encoding;
use crate::native::to_i64;

type Outcome<'js> = Result<Value<'js>, Problem>;

fn undefined<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    Ok(Value::new_undefined(arguments.ctx().clone()))
}

/// `accessSync(path, mode)`
pub fn access<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let path = options::path(arguments, 0, "path")?;
    let mode = arguments.get(1);
    let mode = match mode {
        _ if mode.is_undefined() => 0,
        _ if mode.is_number() => to_i64(&mode)? as u8 & 7,
        _ => return Err(arguments.call.type_error("\"mode\" must be a number").into()),
    };
    os::file::access(path.path(), mode).map_err(|e| failed("access", Some(&path.0), &e))?;
    undefined(arguments)
}

/// `existsSync(path)`
pub fn exists<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let path = options::path(arguments, 0, "path")?;
    Ok(arguments.call.bool(os::file::access(path.path(), 0).is_ok())?)
}

/// `mkdirSync(path, options)`
pub fn mkdir<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let path = options::path(arguments, 0, "path")?;
    let options = Options::read(arguments, 1, options::NUMBER)?;
    let mut how = DirBuilder::new();
    how.mode(options.mode(0o777)?);
    let made = if options.flag("recursive")? {
        make_all(&how, path.path())
    } else {
        how.create(path.path())
    };
    made.map_err(|e| failed("mkdir", Some(&path.0), &e))?;
    undefined(arguments)
}

/// Makes a folder and all that are missing above it.
fn make_all(how: &DirBuilder, path: &Path) -> io::Result<()> {
    let mut so_far = std::path::PathBuf::new();
    for part in path.components() {
        so_far.push(part);
        let Err(error) = how.create(&so_far) else { continue };
        match fs::metadata(&so_far) {
            Ok(meta) if meta.is_dir() => {}
            // Something in the way that is no folder.
            Ok(_) => return Err(io::Error::from_raw_os_error(os::errno::ENOTDIR)),
            Err(_) => return Err(error),
        }
    }
    Ok(())
}

/// A name as a script gets it.
fn name<'js>(
    arguments: &Arguments<'_, '_, 'js>,
    encoding: Option<Encoding>,
    bytes: &[u8],
) -> rquickjs::Result<Value<'js>> {
    match encoding {
        None => crate::buffer::new(arguments.ctx(), bytes),
        Some(encoding) => arguments.call.text(&encoding.encode(bytes)),
    }
}

/// `readdirSync(path, options)`
pub fn readdir<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let path = options::path(arguments, 0, "path")?;
    let options = Options::read(arguments, 1, options::STRING)?;
    let encoding = options::name_encoding(&options)?;
    let types = options.flag("withFileTypes")?;
    let entries = fs::read_dir(path.path()).map_err(|e| failed("opendir", Some(&path.0), &e))?;
    let list = Array::new(arguments.ctx().clone())?;
    for (i, entry) in entries.enumerate() {
        arguments.call.go_on()?;
        let entry = entry.map_err(|e| failed("readdir", Some(&path.0), &e))?;
        let value = name(arguments, encoding, entry.file_name().as_bytes())?;
        if types {
            let kind = entry.file_type().map_err(|e| failed("readdir", Some(&path.0), &e))?;
            list.set(i, stats::dirent(arguments.ctx(), value, Some(kind))?)?;
        } else {
            list.set(i, value)?;
        }
    }
    Ok(list.into_value())
}

/// `readlinkSync(path, options)`
pub(crate) fn readlink<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let path = options::path(arguments, 0, "path")?;
    let options = Options::read(arguments, 1, options::STRING)?;
    let encoding = options::name_encoding(&options)?;
    let target = fs::read_link(path.path());
    let target = target.map_err(|e| failed("readlink", Some(&path.0), &e))?;
    Ok(name(arguments, encoding, target.as_os_str().as_bytes())?)
}

/// `realpathSync(path, options)`
pub fn realpath<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let path = options::path(arguments, 0, "path")?;
    let options = Options::read(arguments, 1, options::STRING)?;
    let encoding = options::name_encoding(&options)?;
    let real = fs::canonicalize(path.path());
    let real = real.map_err(|e| failed("realpath", Some(&path.0), &e))?;
    Ok(name(arguments, encoding, &real.into_os_string().into_vec())?)
}

/// `renameSync(oldPath, newPath)`
pub fn rename<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let old = options::path(arguments, 0, "oldPath")?;
    let new = options::path(arguments, 1, "newPath")?;
    fs::rename(old.path(), new.path()).map_err(|e| failed("rename", None, &e))?;
    undefined(arguments)
}

/// `rmdirSync(path, options)`
pub fn rmdir<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let path = options::path(arguments, 0, "path")?;
    let options = Options::read(arguments, 1, None)?;
    let recursive = options.flag("recursive")?;
    let removed = match fs::remove_dir(path.path()) {
        Err(e) if recursive && e.raw_os_error() == Some(os::errno::ENOTEMPTY) => {
            fs::remove_dir_all(path.path())
        }
        other => other,
    };
    removed.map_err(|e| failed("rmdir", Some(&path.0), &e))?;
    undefined(arguments)
}

/// `symlinkSync(target, path, type)`
pub fn symlink<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let target = options::path(arguments, 0, "target")?;
    let path = options::path(arguments, 1, "path")?;
    let kind = arguments.get(2);
    if !kind.is_undefined() && !kind.is_string() {
        return Err(arguments.call.type_error("\"type\" must be a string").into());
    }
    let made = std::os::unix::fs::symlink(target.path(), path.path());
    made.map_err(|e| failed("symlink", Some(&path.0), &e))?;
    undefined(arguments)
}

/// `unlinkSync(path)`
pub fn unlink<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let path = options::path(arguments, 0, "path")?;
    fs::remove_file(path.path()).map_err(|e| failed("unlink", Some(&path.0), &e))?;
    undefined(arguments)
}
