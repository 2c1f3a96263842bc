//! `Buffer`: a `Uint8Array` with the methods that njs takes from Node.js.

mod numbers;
mod search;

use rquickjs::object::Property;
use rquickjs::{
    Array, Ctx, Exception, Function, Object, Persistent, Result, Value, atom::PredefinedAtom,
};

use crate::codec::Encoding;
use crate::native::{self, Call, to_i64, to_u32};
use crate::raw;
use crate::state;
use crate::value::text;

/// A buffer with these bytes.
pub fn new<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<Value<'js>> {
    adopt(ctx, raw::uint8_array_of(ctx, bytes)?)
}

/// A buffer of zeroes.
fn alloc<'js>(ctx: &Ctx<'js>, length: usize) -> Result<Value<'js>> {
    let length = Value::new_number(ctx.clone(), length as f64);
    adopt(ctx, raw::uint8_array(ctx, &[length])?)
}

/// Makes a buffer of a `Uint8Array`.
fn adopt<'js>(ctx: &Ctx<'js>, array: Value<'js>) -> Result<Value<'js>> {
    let prototype = state::of(ctx).buffer.borrow().clone();
    if let Some(prototype) = prototype {
        raw::set_prototype(&array, prototype.restore(ctx)?.as_value())?;
    }
    Ok(array)
}

/// The bytes that an argument stands for: of a string, of a typed array or `ArrayBuffer`, or of
/// what `String(value)` gives.
pub fn bytes_of(value: &Value<'_>) -> Result<Vec<u8>> {
    match raw::bytes(value) {
        Some(bytes) => Ok(bytes),
        None => Ok(text(value)?.into_bytes()),
    }
}

/// Adds `Buffer` to the global object.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    let prototype = native::class(
        ctx,
        "Buffer",
        3,
        |call| {
            Err(call.type_error(
                "Buffer() is deprecated. Use the Buffer.alloc() or Buffer.from() methods instead.",
            ))
        },
        &[
            ("compare", 5, |c| {
                compare(c, [c.this(), c.arg(0), c.arg(1), c.arg(2), c.arg(3), c.arg(4)])
            }),
            ("copy", 5, copy),
            ("equals", 1, equals),
            ("fill", 4, fill),
            ("toJSON", 0, to_json),
            ("toString", 3, to_string),
            ("write", 4, write),
        ],
    )?;
    state::of(ctx).buffer.replace(Some(Persistent::save(ctx, prototype.clone())));
    // A typed array has a tag of its own.
    prototype.remove(PredefinedAtom::SymbolToStringTag)?;
    search::install(&prototype)?;
    numbers::install(&prototype)?;
    let uint8: Object<'_> = ctx.globals().get("Uint8Array")?;
    let parent: Object<'_> = uint8.get("prototype")?;
    prototype.set_prototype(Some(&parent))?;
    let buffer: Object<'_> = ctx.globals().get("Buffer")?;
    native::methods(
        &buffer,
        &[
            ("alloc", 3, alloc_filled),
            ("allocUnsafe", 3, alloc_filled),
            ("byteLength", 2, byte_length),
            ("compare", 6, |c| {
                compare(c, [c.arg(0), c.arg(1), c.arg(2), c.arg(3), c.arg(4), c.arg(5)])
            }),
            ("concat", 2, concat),
            ("from", 3, from),
            ("isBuffer", 1, is_buffer),
            ("isEncoding", 1, is_encoding),
        ],
    )?;
    // What `slice` and `map` of typed arrays make their results with.
    let species = native::function(ctx, "Buffer species ctor", 3, |c| {
        let arguments: Vec<Value<'_>> = (0..c.len().min(3)).map(|i| c.arg(i)).collect();
        adopt(c.ctx(), raw::uint8_array(c.ctx(), &arguments)?)
    })?;
    let species: Function<'_> = species.with_constructor(true);
    buffer.prop(PredefinedAtom::SymbolSpecies, Property::from(species).configurable())
}

/// What the module `buffer` exports.
pub(crate) const EXPORTS: &[&str] = &["constants", "Buffer"];

/// The module `buffer`.
pub fn module<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let constants = Object::new(ctx.clone())?;
    constants.set("MAX_LENGTH", i32::MAX)?;
    constants.set("MAX_STRING_LENGTH", 0x3fff_ffff)?;
    let module = Object::new(ctx.clone())?;
    module.set("constants", constants)?;
    module.set("Buffer", ctx.globals().get::<_, Value<'js>>("Buffer")?)?;
    Ok(module)
}

/// Throws what the engine throws for `%TypedArray%` methods on other objects.
fn not_a_typed_array(ctx: &Ctx<'_>) -> rquickjs::Error {
    Exception::throw_type(ctx, "not a TypedArray")
}

/// The length of an array in bytes.
fn length(value: &Value<'_>) -> Result<usize> {
    raw::len(value).ok_or_else(|| not_a_typed_array(value.ctx()))
}

fn alloc_filled<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    if !call.arg(0).is_number() {
        return Err(call.type_error("The \"size\" argument must be of type number"));
    }
    let size = to_u32(&call.arg(0))? as usize;
    let buffer = alloc(call.ctx(), size)?;
    if !call.arg(1).is_undefined() {
        fill_range(&buffer, &call.arg(1), &call.arg(2), 0, size as u64)?;
    }
    Ok(buffer)
}

fn byte_length<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let value = call.arg(0);
    if let Some(length) = raw::len(&value) {
        return call.number(length as f64);
    }
    if !value.is_string() {
        return Err(call.type_error("first argument is not a string or Buffer-like object"));
    }
    let encoding = Encoding::of(&call.arg(1))?;
    call.number(encoding.decode(&text(&value)?).len() as f64)
}

fn concat<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let ctx = call.ctx();
    let Some(list) = call.arg(0).into_array() else {
        return Err(call.type_error("\"list\" argument must be an instance of Array"));
    };
    let mut length = None;
    if !call.arg(1).is_undefined() {
        length = Some(to_u32(&call.arg(1))? as usize);
    }
    let mut sum = 0_usize;
    for (i, part) in native::elements(&list).enumerate() {
        sum = sum.saturating_add(part_length(&part?, i)?);
    }
    let buffer = alloc(ctx, length.unwrap_or(sum))?;
    let mut at = 0;
    for (i, part) in native::elements(&list).enumerate() {
        // Reading elements may run the script, which may have changed the list.
        let part = part?;
        part_length(&part, i)?;
        at += copy_bytes(&part, 0, usize::MAX, &buffer, at);
    }
    Ok(buffer)
}

/// The length of an element of the list that `Buffer.concat` is given.
fn part_length(part: &Value<'_>, index: usize) -> Result<usize> {
    raw::len(part).ok_or_else(|| {
        let what = "argument must be an instance of Buffer or Uint8Array";
        Exception::throw_type(part.ctx(), &format!("\"list[{index}]\" {what}"))
    })
}

/// Copies `from[start..end]` to `to[at..]`, as much as there is and fits, and returns the count.
/// The two may be the same memory.
fn copy_bytes(from: &Value<'_>, start: usize, end: usize, to: &Value<'_>, at: usize) -> usize {
    raw::write(to, at, &raw::range(from, start, end).unwrap_or_default())
}

fn fill_range<'js>(
    buffer: &Value<'js>,
    with: &Value<'js>,
    encoding: &Value<'js>,
    start: u64,
    end: u64,
) -> Result<()> {
    let ctx = buffer.ctx();
    let pattern = if with.is_number() {
        vec![(to_u32(with)? & 0xff) as u8]
    } else if with.is_string() {
        Encoding::of(encoding)?.decode(&text(with)?)
    } else {
        raw::bytes(with).ok_or_else(|| not_a_typed_array(ctx))?
    };
    let length = length(buffer)? as u64;
    if end > length {
        return Err(Exception::throw_range(ctx, "\"end\" is out of range"));
    }
    let count = end.saturating_sub(start) as usize;
    let filled: Vec<u8> = match pattern[..] {
        [] => vec![0; count],
        [byte] => vec![byte; count],
        _ => pattern.iter().copied().cycle().take(count).collect(),
    };
    raw::write(buffer, start as usize, &filled);
    Ok(())
}

fn fill<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let (with, mut encoding) = (call.arg(0), call.arg(3));
    let (mut start, mut end) = (0, length(&call.this())? as u64);
    if with.is_string() && call.arg(1).is_string() {
        encoding = call.arg(1);
    } else {
        if !call.arg(1).is_undefined() {
            start = call.index(&call.arg(1))?;
        }
        if with.is_string() && call.arg(2).is_string() {
            encoding = call.arg(2);
        } else if !call.arg(2).is_undefined() {
            end = call.index(&call.arg(2))?;
        }
    }
    fill_range(&call.this(), &with, &encoding, start, end)?;
    Ok(call.this())
}

fn from<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let ctx = call.ctx();
    let value = call.arg(0);
    if value.is_string() {
        return new(ctx, &Encoding::of(&call.arg(1))?.decode(&text(&value)?));
    }
    let Some(object) = value.as_object() else {
        return Err(call.type_error("first argument is not a string or Buffer-like object"));
    };
    if object.as_array_buffer().is_some() {
        let arguments: Vec<Value<'js>> = (0..call.len().min(3)).map(|i| call.arg(i)).collect();
        return adopt(ctx, raw::uint8_array(ctx, &arguments)?);
    }
    if raw::is_typed_array(&value) {
        // Each element becomes a byte, as an assignment to a `Uint8Array` does it.
        return adopt(ctx, raw::uint8_array(ctx, &[value])?);
    }
    let value_of: Value<'js> = object.get("valueOf")?;
    if let Some(value_of) = value_of.as_function() {
        let primitive: Value<'js> = value_of.call((rquickjs::function::This(value.clone()),))?;
        if primitive.is_string() {
            return new(ctx, &Encoding::of(&call.arg(1))?.decode(&text(&primitive)?));
        }
        if let Some(other) = primitive.as_object().filter(|other| *other != object) {
            return from_object(call, other, 0);
        }
    }
    from_object(call, object, 0)
}

/// A buffer of an array-like object, or of what `toJSON` of a buffer has given.
fn from_object<'js>(call: &Call<'_, 'js>, object: &Object<'js>, depth: u32) -> Result<Value<'js>> {
    let length: Value<'js> = object.get("length")?;
    if length.is_undefined() && depth < 2 {
        let kind: Value<'js> = object.get("type")?;
        if kind.is_string() && text(&kind)? == "Buffer" {
            let data: Value<'js> = object.get("data")?;
            if let Some(data) = data.as_object() {
                return from_object(call, data, depth + 1);
            }
        }
    }
    if !length.is_number() {
        return Err(call.type_error("first argument is not a string or Buffer-like object"));
    }
    let length = to_i64(&length)?.clamp(0, i64::from(u32::MAX)) as usize;
    let buffer = alloc(call.ctx(), length)?;
    for i in 0..length {
        let item: Value<'js> = object.get(i as u32)?;
        let byte = to_u32(&item)? as u8;
        raw::write(&buffer, i, &[byte]);
        call.go_on()?;
    }
    Ok(buffer)
}

fn is_buffer<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let prototype = native::prototype_of(call.ctx(), "Buffer")?;
    let own = call.arg(0).as_object().and_then(Object::get_prototype);
    call.bool(own == Some(prototype))
}

fn is_encoding<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    if !call.arg(0).is_string() {
        return call.bool(false);
    }
    call.bool(Encoding::named(&text(&call.arg(0))?).is_some())
}

/// The range of an array that two arguments name.
fn range<'js>(
    call: &Call<'_, 'js>,
    length: usize,
    [start, end]: [&Value<'js>; 2],
    name: &str,
) -> Result<(usize, usize)> {
    let read = |value: &Value<'js>, default: usize, which: &str| -> Result<usize> {
        if value.is_undefined() {
            return Ok(default);
        }
        let number = to_i64(value)?;
        match usize::try_from(number) {
            Ok(number) if number <= length => Ok(number),
            _ => Err(call.range_error(&format!("\"{name}{which}\" is out of range: {number}"))),
        }
    };
    let start = read(start, 0, "Start")?;
    let end = read(end, length, "End")?;
    Ok((start, end.max(start)))
}

/// `Buffer.compare(source, target, targetStart, targetEnd, sourceStart, sourceEnd)`
fn compare<'js>(call: &Call<'_, 'js>, v: [Value<'js>; 6]) -> Result<Value<'js>> {
    let (source, target) = (length(&v[0])?, length(&v[1])?);
    let source = range(call, source, [&v[4], &v[5]], "source")?;
    let target = range(call, target, [&v[2], &v[3]], "target")?;
    let source = raw::range(&v[0], source.0, source.1).unwrap_or_default();
    let target = raw::range(&v[1], target.0, target.1).unwrap_or_default();
    call.number(f64::from(source.cmp(&target) as i8))
}

fn equals<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let pair = (raw::bytes(&call.this()), raw::bytes(&call.arg(0)));
    let (Some(a), Some(b)) = pair else { return Err(not_a_typed_array(call.ctx())) };
    call.bool(a == b)
}

/// `source.copy(target, targetStart, sourceStart, sourceEnd)`
fn copy<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let (source, target) = (call.this(), call.arg(0));
    let lengths = (length(&source)?, length(&target)?);
    let undefined = Value::new_undefined(call.ctx().clone());
    let (at, _) = range(call, lengths.1, [&call.arg(1), &undefined], "target")?;
    let (start, end) = range(call, lengths.0, [&call.arg(2), &call.arg(3)], "source")?;
    call.number(copy_bytes(&source, start, end, &target, at) as f64)
}

fn to_json<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let bytes = raw::bytes(&call.this()).ok_or_else(|| not_a_typed_array(call.ctx()))?;
    let data = Array::new(call.ctx().clone())?;
    for (i, byte) in bytes.iter().enumerate() {
        data.set(i, *byte)?;
    }
    let object = Object::new(call.ctx().clone())?;
    object.prop("type", Property::from("Buffer").enumerable())?;
    object.prop("data", Property::from(data).enumerable())?;
    Ok(object.into_value())
}

fn to_string<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let this = call.this();
    let Some(length) = raw::len(&this) else {
        return Err(call.type_error("method toString() called on incompatible object"));
    };
    let bound = |value: Value<'js>, default: usize| -> Result<usize> {
        if value.is_undefined() {
            return Ok(default);
        }
        Ok(call.index(&value)?.min(length as u64) as usize)
    };
    let (start, end) = (bound(call.arg(1), 0)?, bound(call.arg(2), length)?);
    let encoding = if start >= end { Encoding::Utf8 } else { Encoding::of(&call.arg(0))? };
    call.text(&encoding.encode(&raw::range(&this, start, end).unwrap_or_default()))
}

fn write<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let (value, mut encoding) = (call.arg(0), call.arg(3));
    let length = length(&call.this())? as u64;
    let (mut offset, mut max) = (0, None);
    if value.is_string() && call.arg(1).is_string() {
        encoding = call.arg(1);
    } else {
        if !call.arg(1).is_undefined() {
            offset = call.index(&call.arg(1))?;
        }
        if value.is_string() && call.arg(2).is_string() {
            encoding = call.arg(2);
        } else if !call.arg(2).is_undefined() {
            max = Some(call.index(&call.arg(2))?);
        }
    }
    let encoding = Encoding::of(&encoding)?;
    if !value.is_string() {
        return Err(call.type_error("first argument is not a string"));
    }
    let source = text(&value)?;
    let source = encoding.decode(&source);
    let Some(room) = length.checked_sub(offset) else {
        return Err(call.range_error("\"offset\" is out of range"));
    };
    if source.is_empty() {
        return call.number(0.0);
    }
    if max.is_some_and(|max| max > room) {
        return Err(call.range_error("\"length\" is out of range"));
    }
    let mut count = source.len().min(max.unwrap_or(room) as usize);
    if encoding == Encoding::Utf8 {
        // Only whole characters are written.
        while source.get(count).is_some_and(|byte| byte & 0xc0 == 0x80) {
            count -= 1;
        }
    }
    let written = raw::write(&call.this(), offset as usize, &source[..count]);
    call.number(written as f64)
}
