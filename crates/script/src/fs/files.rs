//! Operations on open files, and on whole files.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::rc::{Rc, Weak};

use rquickjs::object::Property;
use rquickjs::{Exception, Object, Value};

use super::failure::{Problem, failed, other};
use super::options::{self, Options};
use super::{Arguments, Style};
use crate::codec::Encoding;
use crate::native::{self, Call, to_i64};
use crate::raw;
use crate::state::{self, State};
use crate::value::text;

type Outcome<'js> = Result<Value<'js>, Problem>;

/// The data of a `FileHandle`. When the script has no reference any more, the file is closed.
pub struct Handle {
    /// The number; `None` once closed.
    number: Option<i32>,
    /// The file itself: it is closed at the end of its request, and its number serves others then.
    file: Weak<File>,
    state: Weak<State>,
}

impl Handle {
    /// The number, while the file is open.
    fn live(&self) -> Option<i32> {
        self.number.filter(|_| self.file.strong_count() > 0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let state = self.state.upgrade();
        if let (Some(number), Some(state)) = (self.live(), state) {
            state.files.borrow_mut().remove(number);
        }
    }
}

/// `fd` and `valueOf` of a `FileHandle`.
pub fn descriptor<'js>(call: &Call<'_, 'js>) -> rquickjs::Result<Value<'js>> {
    match native::with_data(&call.this(), |handle: &mut Handle| handle.live()) {
        Some(number) => call.number(f64::from(number.unwrap_or(-1))),
        None => Err(call.type_error("'this' is not a FileHandle")),
    }
}

/// The number that an operation on an open file is about.
fn number(arguments: &Arguments<'_, '_, '_>) -> rquickjs::Result<i32> {
    let call = arguments.call;
    if arguments.handle {
        let number = native::with_data(&call.this(), |handle: &mut Handle| handle.live());
        let number = number.ok_or_else(|| call.type_error("'this' is not a FileHandle"))?;
        return Ok(number.unwrap_or(-1));
    }
    Ok(to_i64(&call.arg(0))? as i32)
}

/// The open file that an operation is about.
pub fn open_file(
    arguments: &Arguments<'_, '_, '_>,
    syscall: &'static str,
) -> Result<Rc<File>, Problem> {
    let number = number(arguments)?;
    let file = state::of(arguments.ctx()).files.borrow().get(number);
    file.ok_or_else(|| bad_descriptor(syscall))
}

fn bad_descriptor(syscall: &'static str) -> Problem {
    failed(syscall, None, &std::io::Error::from_raw_os_error(os::errno::EBADF))
}

/// Position of the first argument after the descriptor.
fn first(arguments: &Arguments<'_, '_, '_>) -> usize {
    usize::from(!arguments.handle)
}

/// `openSync(path, flags, mode)`, `promises.open`
pub fn open<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let ctx = arguments.ctx();
    let path = options::path(arguments, 0, "path")?;
    let mut how = options::flags(&arguments.get(1), "r")?;
    how.mode(options::mode(&arguments.get(2), 0o666)?);
    let state = state::of(ctx);
    if state.files.borrow().is_full() {
        let error = std::io::Error::from_raw_os_error(os::errno::EMFILE);
        return Err(failed("open", Some(&path.0), &error));
    }
    let file = how.open(path.path()).map_err(|e| failed("open", Some(&path.0), &e))?;
    let (number, file) = state.files.borrow_mut().add(file);
    if arguments.style == Style::Direct {
        return Ok(Value::new_int(ctx.clone(), number));
    }
    let handle = Handle { number: Some(number), file, state: Rc::downgrade(&state) };
    Ok(native::object(ctx, "FileHandle", handle)?.into_value())
}

/// `closeSync(fd)`, `FileHandle.close()`
pub fn close<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let ctx = arguments.ctx();
    let number = if arguments.handle {
        let this = arguments.call.this();
        let number = native::with_data(&this, |handle: &mut Handle| {
            let number = handle.live();
            handle.number = None;
            number
        });
        let number = number.flatten();
        number.ok_or_else(|| arguments.call.type_error("file was already closed"))?
    } else {
        number(arguments)?
    };
    let file = state::of(ctx).files.borrow_mut().remove(number);
    file.ok_or_else(|| bad_descriptor("close"))?;
    Ok(Value::new_undefined(ctx.clone()))
}

/// The part of a buffer that three arguments name, and the position in the file: `offset`,
/// `length`, `position`.
fn part<'js>(
    arguments: &Arguments<'_, '_, 'js>,
    first: usize,
    size: usize,
) -> rquickjs::Result<(usize, usize, Option<u64>)> {
    let bounded = |value: &Value<'js>, max: usize, what: &str| -> rquickjs::Result<usize> {
        let number = usize::try_from(to_i64(value)?).ok().filter(|number| *number <= max);
        number.ok_or_else(|| {
            let message = format!("{what} is out of range (must be <= {max})");
            Exception::throw_range(arguments.ctx(), &message)
        })
    };
    let is_given = |value: &Value<'js>| !value.is_undefined() && !value.is_null();
    let offset = arguments.get(first);
    let offset = if is_given(&offset) { bounded(&offset, size, "offset")? } else { 0 };
    let mut length = size - offset;
    let given = arguments.get(first + 1);
    if is_given(&given) {
        length = bounded(&given, length, "length")?;
    }
    Ok((offset, length, position(&arguments.get(first + 2))?))
}

/// A position in a file; `None` for the current one.
fn position(value: &Value<'_>) -> rquickjs::Result<Option<u64>> {
    if value.is_undefined() || value.is_null() {
        return Ok(None);
    }
    // -1 is the current position, too.
    Ok(u64::try_from(to_i64(value)?).ok())
}

/// `readSync(fd, buffer, offset, length, position)`
pub fn read<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let first = first(arguments);
    let buffer = arguments.get(first);
    let size = raw::len(&buffer).ok_or_else(|| arguments.call.type_error("not a TypedArray"))?;
    let (offset, length, position) = part(arguments, first + 1, size)?;
    let file = open_file(arguments, "read")?;
    let mut bytes = vec![0; length];
    let count = match position {
        Some(position) => file.read_at(&mut bytes, position),
        None => file.as_ref().read(&mut bytes),
    };
    let count = count.map_err(|e| failed("read", None, &e))?;
    raw::write(&buffer, offset, &bytes[..count]);
    Ok(transferred(arguments, "bytesRead", count, buffer)?)
}

/// The number of bytes; as a promise's result, with the buffer.
fn transferred<'js>(
    arguments: &Arguments<'_, '_, 'js>,
    name: &str,
    count: usize,
    buffer: Value<'js>,
) -> rquickjs::Result<Value<'js>> {
    let ctx = arguments.ctx();
    let count = Value::new_number(ctx.clone(), count as f64);
    if arguments.style == Style::Direct {
        return Ok(count);
    }
    let object = Object::new(ctx.clone())?;
    object.prop(name, Property::from(count).enumerable())?;
    object.prop("buffer", Property::from(buffer).enumerable())?;
    Ok(object.into_value())
}

/// `writeSync(fd, buffer, offset, length, position)`, `writeSync(fd, string, position, encoding)`
pub fn write<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let first = first(arguments);
    let buffer = arguments.get(first);
    let (bytes, position) = if buffer.is_string() {
        let position = position(&arguments.get(first + 1))?;
        let encoding = Encoding::of(&arguments.get(first + 2))?;
        (encoding.decode(&text(&buffer)?), position)
    } else {
        let size = raw::len(&buffer);
        let size = size.ok_or_else(|| arguments.call.type_error("not a TypedArray"))?;
        let (offset, length, position) = part(arguments, first + 1, size)?;
        (raw::range(&buffer, offset, offset + length).unwrap_or_default(), position)
    };
    let file = open_file(arguments, "write")?;
    let count = match position {
        Some(position) => file.write_at(&bytes, position),
        None => file.as_ref().write(&bytes),
    };
    let count = count.map_err(|e| failed("write", None, &e))?;
    if count != bytes.len() {
        return Err(other("write", None, "failed to write all the data"));
    }
    Ok(transferred(arguments, "bytesWritten", count, buffer)?)
}

/// `readFileSync(path, options)`
pub fn read_file<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    let ctx = arguments.ctx();
    let path = options::path(arguments, 0, "path")?;
    let options = Options::read(arguments, 1, options::STRING)?;
    let undefined = Value::new_undefined(ctx.clone());
    let how = options::flags(&options.member("flag")?.unwrap_or(undefined), "r")?;
    let encoding = options.encoding()?.map(|value| Encoding::of(&value)).transpose()?;
    let place = Some(&path.0[..]);
    let file = how.open(path.path()).map_err(|e| failed("open", place, &e))?;
    let meta = file.metadata().map_err(|e| failed("stat", place, &e))?;
    if !meta.is_file() {
        return Err(other("stat", place, "File is not regular"));
    }
    let limit = state::of(ctx).memory_max() as u64;
    let mut bytes = Vec::new();
    // A file may be longer than it says: those of /proc say 0.
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| failed("read", place, &e))?;
    if bytes.len() as u64 > limit {
        return Err(state::out_of_memory(ctx).into());
    }
    match encoding {
        None => Ok(crate::buffer::new(ctx, &bytes)?),
        Some(encoding) => Ok(arguments.call.text(&encoding.encode(&bytes))?),
    }
}

/// `writeFileSync(path, data, options)`
pub fn write_file<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    write_whole(arguments, "w")
}

/// `appendFileSync(path, data, options)`
pub fn append_file<'js>(arguments: &Arguments<'_, '_, 'js>) -> Outcome<'js> {
    write_whole(arguments, "a")
}

fn write_whole<'js>(arguments: &Arguments<'_, '_, 'js>, flags: &str) -> Outcome<'js> {
    let ctx = arguments.ctx();
    let path = options::path(arguments, 0, "path")?;
    let options = Options::read(arguments, 2, options::STRING)?;
    let undefined = Value::new_undefined(ctx.clone());
    let flag = options.member("flag")?.unwrap_or(undefined.clone());
    let mut how: OpenOptions = options::flags(&flag, flags)?;
    how.mode(options::mode(&options.member("mode")?.unwrap_or(undefined.clone()), 0o666)?);
    let encoding = Encoding::of(&options.encoding()?.unwrap_or(undefined))?;
    let data = arguments.get(1);
    let bytes = match raw::bytes(&data) {
        Some(bytes) if !data.is_string() => bytes,
        _ => encoding.decode(&text(&data)?),
    };
    let place = Some(&path.0[..]);
    let mut file = how.open(path.path()).map_err(|e| failed("open", place, &e))?;
    file.write_all(&bytes).map_err(|e| failed("write", place, &e))?;
    Ok(Value::new_undefined(ctx.clone()))
}
