//! The module `fs`: files, in three styles: `readFileSync` returns or throws, `readFile` calls a
//! callback, `promises.readFile` returns a promise. All of them wait for the disk, as in nginx.
//!
//! Descriptors are the instance's own: a script can neither read nor close what the server has
//! opened, and what it leaves open is closed with the instance.

mod failure;
mod files;
mod options;
mod paths;
mod stats;

use rquickjs::function::This;
use rquickjs::object::Property;
use rquickjs::{Ctx, Function, Object, Result, Value};

use crate::native::{self, Call};
use failure::Problem;

/// How the result of an operation reaches the script.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Direct,
    Promise,
    Callback,
}

/// An operation with its arguments.
type Operation = for<'js> fn(&Arguments<'_, '_, 'js>) -> std::result::Result<Value<'js>, Problem>;

/// The arguments of an operation, without a callback.
struct Arguments<'b, 'a, 'js> {
    call: &'b Call<'a, 'js>,
    style: Style,
    /// How many arguments come before the callback.
    count: usize,
    /// For methods of a `FileHandle`, which have no descriptor among their arguments.
    handle: bool,
}

impl<'js> Arguments<'_, '_, 'js> {
    fn ctx(&self) -> &Ctx<'js> {
        self.call.ctx()
    }

    /// An argument; `undefined` where there is none, or the callback.
    fn get(&self, index: usize) -> Value<'js> {
        if index >= self.count && self.style == Style::Callback {
            return Value::new_undefined(self.ctx().clone());
        }
        self.call.arg(index)
    }
}

struct Entry {
    name: &'static str,
    /// `length` of the direct style; a callback is one more.
    length: usize,
    operation: Operation,
    /// Which styles there are: letters of direct (`NAMESync`), callback and promise.
    styles: &'static str,
}

const fn entry(
    name: &'static str,
    length: usize,
    operation: Operation,
    styles: &'static str,
) -> Entry {
    Entry { name, length, operation, styles }
}

const ENTRIES: &[Entry] = &[
    entry("access", 2, paths::access, "dcp"),
    entry("appendFile", 3, files::append_file, "dcp"),
    entry("close", 1, files::close, "d"),
    entry("exists", 1, paths::exists, "d"),
    entry("fstat", 2, stats::fstat, "d"),
    entry("lstat", 2, stats::lstat, "dcp"),
    entry("mkdir", 2, paths::mkdir, "dcp"),
    entry("open", 3, files::open, "dp"),
    entry("read", 5, files::read, "d"),
    entry("readFile", 2, files::read_file, "dcp"),
    entry("readdir", 2, paths::readdir, "dcp"),
    entry("readlink", 2, paths::readlink, "dcp"),
    entry("realpath", 2, paths::realpath, "dcp"),
    entry("rename", 2, paths::rename, "dcp"),
    entry("rmdir", 2, paths::rmdir, "dcp"),
    entry("stat", 2, stats::stat, "dcp"),
    entry("symlink", 3, paths::symlink, "dcp"),
    entry("unlink", 1, paths::unlink, "dcp"),
    entry("write", 5, files::write, "d"),
    entry("writeFile", 3, files::write_file, "dcp"),
];

/// Methods of `FileHandle`; they return promises.
const HANDLE: &[(&str, usize, Operation)] = &[
    ("close", 0, files::close),
    ("read", 4, files::read),
    ("stat", 4, stats::fstat),
    ("write", 4, files::write),
];

/// What the module exports.
pub(crate) const EXPORTS: &[&str] = &[
    "constants",
    "promises",
    "Dirent",
    "access",
    "accessSync",
    "appendFile",
    "appendFileSync",
    "closeSync",
    "existsSync",
    "fstatSync",
    "lstat",
    "lstatSync",
    "mkdir",
    "mkdirSync",
    "openSync",
    "readFile",
    "readFileSync",
    "readSync",
    "readdir",
    "readdirSync",
    "readlink",
    "readlinkSync",
    "realpath",
    "realpathSync",
    "rename",
    "renameSync",
    "rmdir",
    "rmdirSync",
    "stat",
    "statSync",
    "symlink",
    "symlinkSync",
    "unlink",
    "unlinkSync",
    "writeFile",
    "writeFileSync",
    "writeSync",
];

pub fn module<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let fs = Object::new(ctx.clone())?;
    let promises = Object::new(ctx.clone())?;
    let constants = Object::new(ctx.clone())?;
    for (name, value) in [("F_OK", 0), ("R_OK", 4), ("W_OK", 2), ("X_OK", 1)] {
        constants.prop(name, Property::from(value).enumerable())?;
    }
    for (number, entry) in (0..).zip(ENTRIES) {
        for style in entry.styles.chars() {
            let length = entry.length;
            match style {
                'd' => add(&fs, &format!("{}Sync", entry.name), length, number << 2)?,
                'p' => add(&promises, entry.name, length, number << 2 | 1)?,
                _ => add(&fs, entry.name, length + 1, number << 2 | 2)?,
            }
        }
    }
    fs.prop("constants", Property::from(constants).configurable())?;
    fs.prop("promises", Property::from(promises).configurable())?;
    let handle = native::prototype(ctx, "FileHandle", &[("valueOf", 0, files::descriptor)])?;
    for (number, &(name, length, _)) in (0..).zip(HANDLE) {
        let f = native::with_number(ctx, name, length, call_handle, number)?;
        native::method(&handle, name, f)?;
    }
    native::getters(&handle, &[("fd", files::descriptor)])?;
    fs.prop("Dirent", Property::from(stats::install(ctx)?).writable().configurable())?;
    Ok(fs)
}

fn add<'js>(object: &Object<'js>, name: &str, length: usize, number: u32) -> Result<()> {
    native::method(object, name, native::with_number(object.ctx(), name, length, call, number)?)
}

/// Runs the operation that the number names, in its style.
fn call<'js>(call: &Call<'_, 'js>, number: u32) -> Result<Value<'js>> {
    let entry = &ENTRIES[(number >> 2) as usize];
    let style = match number & 3 {
        0 => Style::Direct,
        1 => Style::Promise,
        _ => Style::Callback,
    };
    let mut arguments = Arguments { call, style, count: entry.length, handle: false };
    let mut callback = None;
    if style == Style::Callback {
        // The last argument, options before it may be left out.
        arguments.count = call.len().saturating_sub(1).min(entry.length);
        let Some(f) = call.arg(arguments.count).into_function() else {
            return Err(call.type_error("\"callback\" must be a function"));
        };
        callback = Some(f);
    }
    let result = (entry.operation)(&arguments);
    deliver(&arguments, result, callback)
}

fn call_handle<'js>(call: &Call<'_, 'js>, number: u32) -> Result<Value<'js>> {
    let arguments = Arguments { call, style: Style::Promise, count: 4, handle: true };
    let result = (HANDLE[number as usize].2)(&arguments);
    deliver(&arguments, result, None)
}

/// Gives the script the result. Wrong arguments are thrown in all styles.
fn deliver<'js>(
    arguments: &Arguments<'_, '_, 'js>,
    result: std::result::Result<Value<'js>, Problem>,
    callback: Option<Function<'js>>,
) -> Result<Value<'js>> {
    let ctx = arguments.ctx();
    let result = match result {
        Ok(value) => Ok(value),
        Err(Problem::Thrown(e)) => return Err(e),
        Err(Problem::Failed(failure)) => Err(failure.to_js(ctx)?),
    };
    match (arguments.style, callback) {
        (Style::Callback, Some(callback)) => {
            let undefined = Value::new_undefined(ctx.clone());
            let (error, value) = match result {
                Ok(value) => (undefined.clone(), value),
                Err(error) => (error, undefined.clone()),
            };
            callback.call::<_, Value<'js>>((This(undefined.clone()), error, value))?;
            Ok(undefined)
        }
        (Style::Promise, _) => native::settled(ctx, result.map_err(|error| ctx.throw(error))),
        _ => result.map_err(|error| ctx.throw(error)),
    }
}
