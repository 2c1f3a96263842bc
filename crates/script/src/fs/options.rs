//! Arguments that several operations share: paths, modes, flags, encodings.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rquickjs::{Error, Exception, Object, Result, Value};

use super::Arguments;
use crate::codec::Encoding;
use crate::native::{to_bool, to_i64};
use crate::raw;
use crate::value::text;

/// The longest path, with its end.
const PATH_MAX: usize = 4096;

/// A path, as bytes.
pub struct PathArgument(pub Vec<u8>);

impl PathArgument {
    /// The path for the standard library.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

/// The path that an argument names.
pub fn path(arguments: &Arguments<'_, '_, '_>, index: usize, name: &str) -> Result<PathArgument> {
    let value = arguments.get(index);
    let call = arguments.call;
    let bytes = if value.is_string() {
        text(&value)?.into_bytes()
    } else if raw::is_typed_array(&value) {
        raw::bytes(&value).unwrap_or_default()
    } else {
        return Err(call.type_error(&format!("\"{name}\" must be a string or Buffer")));
    };
    if bytes.len() > PATH_MAX - 1 {
        return Err(call.range_error(&format!("\"{name}\" is too long >= {PATH_MAX}")));
    }
    if bytes.contains(&0) {
        return Err(call.type_error(&format!("\"{name}\" must be a Buffer without null bytes")));
    }
    Ok(PathArgument(bytes))
}

/// A kind of scalars: its name for messages, and whether a value is one.
pub type Scalar = (&'static str, fn(&Value<'_>) -> bool);

/// Options of an operation: an object, or a scalar that is the most common option.
pub enum Options<'js> {
    None,
    Scalar(Value<'js>),
    Object(Object<'js>),
}

impl<'js> Options<'js> {
    /// Reads the argument. `scalar` says which scalars are allowed, for messages too.
    pub fn read(
        arguments: &Arguments<'_, '_, 'js>,
        index: usize,
        scalar: Option<Scalar>,
    ) -> Result<Options<'js>> {
        let value = arguments.get(index);
        if value.is_undefined() {
            return Ok(Options::None);
        }
        if scalar.is_some_and(|(_, is)| is(&value)) {
            return Ok(Options::Scalar(value));
        }
        match value.into_object() {
            Some(object) => Ok(Options::Object(object)),
            None => {
                let what =
                    scalar.map_or("an object".into(), |(name, _)| format!("{name} or object"));
                let message = format!("Unknown options type ({what} required)");
                Err(arguments.call.type_error(&message))
            }
        }
    }

    /// A member, if it is there.
    pub fn member(&self, name: &str) -> Result<Option<Value<'js>>> {
        let Options::Object(object) = self else { return Ok(None) };
        let value: Value<'js> = object.get(name)?;
        Ok(Some(value).filter(|value| !value.is_undefined()))
    }

    /// A member that is a flag.
    pub fn flag(&self, name: &str) -> Result<bool> {
        self.member(name)?.map_or(Ok(false), |value| to_bool(&value))
    }

    /// The encoding: the scalar, or the member of that name.
    pub fn encoding(&self) -> Result<Option<Value<'js>>> {
        match self {
            Options::Scalar(value) => Ok(Some(value.clone())),
            _ => self.member("encoding"),
        }
    }

    /// The access mode of a new file: the scalar, or the member of that name.
    pub fn mode(&self, default: u32) -> Result<u32> {
        let value = match self {
            Options::Scalar(value) => Some(value.clone()),
            _ => self.member("mode")?,
        };
        value.map_or(Ok(default), |value| mode(&value, default))
    }
}

/// Whether a scalar is a string: an encoding.
pub const STRING: Option<Scalar> = Some(("a string", |v| v.is_string()));

/// Whether a scalar is a number: a mode.
pub const NUMBER: Option<Scalar> = Some(("a number", |v| v.is_number()));

/// An access mode; undefined is the default.
pub fn mode(value: &Value<'_>, default: u32) -> Result<u32> {
    if value.is_undefined() { Ok(default) } else { Ok(to_i64(value)? as u32 & 0o7777) }
}

/// What a name of a file or a link is given as: a string in an encoding, or a buffer.
pub(crate) fn name_encoding(options: &Options<'_>) -> Result<Option<Encoding>> {
    match options.encoding()? {
        None => Ok(Some(Encoding::Utf8)),
        Some(value) if value.is_string() && text(&value)? == "buffer" => Ok(None),
        Some(value) => Encoding::of(&value).map(Some),
    }
}

/// How a file is opened: `r`, `w+`, `ax` and the like.
pub fn flags(value: &Value<'_>, default: &str) -> Result<OpenOptions> {
    let name = if value.is_undefined() { default.to_owned() } else { text(value)? };
    let mut options = OpenOptions::new();
    let plus = name.ends_with('+');
    match name.trim_end_matches('+') {
        "r" | "rs" if plus || name == "r" => options.read(true).write(plus),
        "w" | "wx" => options.write(true).read(plus).create(true).truncate(true),
        "a" | "as" | "ax" => options.append(true).read(plus).create(true),
        _ => return Err(unknown(value, &name)),
    };
    if name.matches('+').count() > 1 {
        return Err(unknown(value, &name));
    }
    if name.contains('x') {
        options.create_new(true);
    }
    if name.contains('s') {
        options.custom_flags(os::file::SYNC);
    }
    Ok(options)
}

fn unknown(value: &Value<'_>, name: &str) -> Error {
    Exception::throw_type(value.ctx(), &format!("Unknown file open flags: \"{name}\""))
}
