//! The only `unsafe` code of the crate: what the engine's library offers no safe call for.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::ptr::NonNull;
use std::rc::Rc;

use rquickjs::module::Declared;
use rquickjs::{Array, Ctx, Error, JsLifetime, Module, Result, Value, qjs};

use crate::host::Host;

/// Data of ours behind an object of the engine, or in its context.
pub struct Holder<T>(pub T);

// SAFETY: `T` is `'static`, so it has no value of the engine in it, whose lifetime could change.
unsafe impl<T: 'static> JsLifetime<'_> for Holder<T> {
    type Changed<'to> = Holder<T>;
}

/// Keeps a value for [`kept`] as long as the engine of the context lives. Called once for each.
pub(crate) fn keep(ctx: &Ctx<'_>, value: Rc<dyn Any>) {
    let _ = ctx.store_userdata(Holder(value));
    let Some(holder) = ctx.userdata::<Holder<Rc<dyn Any>>>() else { return };
    let pointer: *const Rc<dyn Any> = &holder.0;
    // SAFETY: the engine gives the pointer back and does nothing else with it.
    unsafe { qjs::JS_SetContextOpaque(ctx.as_raw().as_ptr(), pointer.cast_mut().cast()) }
}

/// The value of [`keep`]. Every call of a native asks for it, so it is not looked up among the
/// library's user data, which takes a hundred instructions.
pub(crate) fn kept<T: 'static>(ctx: &Ctx<'_>) -> Option<Rc<T>> {
    // SAFETY: only `keep` sets the pointer, which is null before. It points into a box of the
    // engine's user data, which stays there as long as the engine lives: nothing removes it.
    let value = unsafe {
        let pointer = qjs::JS_GetContextOpaque(ctx.as_raw().as_ptr());
        pointer.cast::<Rc<dyn Any>>().cast_const().as_ref()?.clone()
    };
    value.downcast().ok()
}

/// A class of objects that are numbers outside of the engine. The engine makes and frees them
/// without calls of ours, because the number stands in the place of the pointer to data.
#[derive(Clone, Copy)]
pub(crate) struct NumberedClass {
    id: qjs::JSClassID,
    runtime: NonNull<qjs::JSRuntime>,
}

impl NumberedClass {
    /// A new class, whose objects have this prototype, or none if it is `null`.
    pub fn new(ctx: &Ctx<'_>, name: &CStr, prototype: &Value<'_>) -> Result<NumberedClass> {
        let raw = ctx.as_raw().as_ptr();
        let class = qjs::JSClassDef {
            class_name: name.as_ptr(),
            finalizer: None,
            gc_mark: None,
            call: None,
            exotic: std::ptr::null_mut(),
        };
        // SAFETY: the context has a runtime. The engine copies the name and the definition; the
        // prototype is a value of this context, of which the class gets a reference of its own.
        unsafe {
            let runtime = NonNull::new(qjs::JS_GetRuntime(raw)).ok_or(Error::Unknown)?;
            let mut id = 0;
            qjs::JS_NewClassID(runtime.as_ptr(), &mut id);
            if qjs::JS_NewClass(runtime.as_ptr(), id, &class) < 0 {
                return Err(Error::Allocation);
            }
            qjs::JS_SetClassProto(raw, id, qjs::JS_DupValue(raw, prototype.as_raw()));
            Ok(NumberedClass { id, runtime })
        }
    }

    /// A new object. Number 0 is none.
    pub fn object<'js>(self, ctx: &Ctx<'js>, number: u64) -> Result<Value<'js>> {
        let raw = ctx.as_raw().as_ptr();
        // SAFETY: the class is one of this runtime, as is looked at. It has no finalizer, so the
        // engine never follows the pointer that the number is. The result belongs to the caller.
        unsafe {
            if qjs::JS_GetRuntime(raw) != self.runtime.as_ptr() {
                return Err(Error::UnrelatedRuntime);
            }
            let object = qjs::JS_NewObjectClass(raw, self.id);
            if qjs::JS_IsException(object) {
                return Err(Error::Exception);
            }
            let number = std::ptr::without_provenance_mut(number as usize);
            qjs::JS_SetOpaque(object, number);
            Ok(Value::from_raw(ctx.clone(), object))
        }
    }

    /// The number of an object of this class; `None` for any other value.
    pub fn number(self, value: &Value<'_>) -> Option<u64> {
        // SAFETY: the call only looks at the class of the value, and returns null for another one.
        let number = unsafe { qjs::JS_GetOpaque(value.as_raw(), self.id) };
        (!number.is_null()).then_some(number.addr() as u64)
    }
}

/// A property's name in the form of the engine, for natives that use it often.
///
/// The state of an engine holds all of its names, and drops them before the engine goes.
pub(crate) struct Name {
    atom: qjs::JSAtom,
    runtime: NonNull<qjs::JSRuntime>,
}

impl Name {
    /// The name of this text.
    pub fn new(ctx: &Ctx<'_>, text: &str) -> Result<Name> {
        let raw = ctx.as_raw().as_ptr();
        // SAFETY: the context has a runtime; the engine copies the text. The atom belongs to the
        // caller.
        unsafe {
            let runtime = NonNull::new(qjs::JS_GetRuntime(raw)).ok_or(Error::Unknown)?;
            let atom = qjs::JS_NewAtomLen(raw, text.as_ptr().cast(), text.len() as _);
            if atom == qjs::JS_ATOM_NULL {
                return Err(Error::Exception);
            }
            Ok(Name { atom, runtime })
        }
    }

    /// The property of an object.
    pub fn of<'js>(&self, object: &Value<'js>) -> Result<Value<'js>> {
        let ctx = object.ctx();
        let raw = ctx.as_raw().as_ptr();
        // SAFETY: the name is one of this runtime, as is looked at; the result belongs to the
        // caller.
        unsafe {
            if qjs::JS_GetRuntime(raw) != self.runtime.as_ptr() {
                return Err(Error::UnrelatedRuntime);
            }
            let value = qjs::JS_GetProperty(raw, object.as_raw(), self.atom);
            if qjs::JS_IsException(value) {
                return Err(Error::Exception);
            }
            Ok(Value::from_raw(ctx.clone(), value))
        }
    }

    /// Adds the property to an object that does not have it.
    pub fn define<'js>(&self, object: &Value<'js>, value: &Value<'js>) -> Result<()> {
        let raw = object.ctx().as_raw().as_ptr();
        // SAFETY: as above; the engine gets a reference of its own to the value.
        let done = unsafe {
            if qjs::JS_GetRuntime(raw) != self.runtime.as_ptr() {
                return Err(Error::UnrelatedRuntime);
            }
            let value = qjs::JS_DupValue(raw, value.as_raw());
            let flags = qjs::JS_PROP_C_W_E as i32;
            qjs::JS_DefinePropertyValue(raw, object.as_raw(), self.atom, value, flags)
        };
        if done < 0 { Err(Error::Exception) } else { Ok(()) }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // SAFETY: the runtime is there: `State::clear` drops all names before it goes.
        unsafe { qjs::JS_FreeAtomRT(self.runtime.as_ptr(), self.atom) }
    }
}

/// Bytecode that this process has compiled. Nothing else can make one: the engine trusts bytecode,
/// and a foreign one could do anything.
#[derive(Clone)]
pub struct Bytecode(Vec<u8>);

impl std::fmt::Debug for Bytecode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Bytecode {
    /// The bytecode of a module that was compiled from text.
    pub fn of<T>(module: &Module<'_, T>) -> Result<Bytecode> {
        module
            .write(rquickjs::WriteOptions { strip_source: true, ..Default::default() })
            .map(Bytecode)
    }

    /// The module in another engine of the same build.
    pub fn load<'js>(&self, ctx: &Ctx<'js>) -> Result<Module<'js, Declared>> {
        // SAFETY: the field is private, and `of` fills it with what the engine's own writer made,
        // in this process, whose engine has one version.
        unsafe { Module::load(ctx.clone(), &self.0) }
    }
}

/// So many bytes of natives' work are between two looks at the clock: about 0.1 ms of hashing.
const WORK_BYTES: usize = 64 << 10;

thread_local! {
    /// The work of natives since the last look at the clock, bytes.
    static WORK: Cell<usize> = const { Cell::new(0) };
}

/// Notes that a native works through so many bytes. Functions of this file that copy bytes of a
/// script do it themselves; natives that work without such copies call it.
pub fn worked(bytes: usize) {
    WORK.set(WORK.get().saturating_add(bytes));
}

/// Notes that a native takes about as long as hashing [`WORK_BYTES`] or longer, whatever the length
/// of its arguments.
pub(crate) fn worked_long() {
    worked(WORK_BYTES);
}

/// Whether the clock is due, because natives have worked since the last look. The engine itself
/// looks once in 10,000 steps of the script, and each call of a native is one step.
pub(crate) fn is_clock_due() -> bool {
    let is_due = WORK.get() >= WORK_BYTES;
    if is_due {
        WORK.set(0);
    }
    is_due
}

/// Throws the exception of a script that has used up its time: none can catch it.
#[cold]
pub fn interrupt(ctx: &Ctx<'_>) -> Error {
    let error = rquickjs::Exception::throw_internal(ctx, "interrupted");
    let value = ctx.catch();
    // SAFETY: the value is an error of this context, which is marked.
    unsafe { qjs::JS_SetUncatchableError(ctx.as_raw().as_ptr(), value.as_raw()) };
    ctx.throw(value);
    error
}

/// Compiles a module and, by the runtime's loader, everything it imports, and runs none of it.
pub fn check(ctx: &Ctx<'_>, name: &str, source: &str) -> Result<()> {
    let name = CString::new(name)?;
    // The engine wants a zero byte after the text.
    let source = CString::new(source)?;
    let flags = qjs::JS_EVAL_TYPE_MODULE | qjs::JS_EVAL_FLAG_COMPILE_ONLY;
    let raw = ctx.as_raw().as_ptr();
    // SAFETY: both strings live until the call returns, the length is without the zero byte; the
    // result is a value of this context that belongs to the caller. Compiling a module gives a
    // module or an exception, and `JS_ResolveModule` takes no reference of its own. A definition
    // belongs to the context, so the value needs no release.
    let failed = unsafe {
        let length = source.as_bytes().len();
        let value = qjs::JS_Eval(raw, source.as_ptr(), length as _, name.as_ptr(), flags as i32);
        qjs::JS_IsException(value) || qjs::JS_ResolveModule(raw, value) < 0
    };
    if failed { Err(Error::Exception) } else { Ok(()) }
}

/// The bytes of a typed array or `ArrayBuffer`; `None` for anything else, and empty for one that
/// was detached.
///
/// All of these functions copy: a slice of the engine's memory would be invalid as soon as the
/// script runs again.
pub fn bytes(value: &Value<'_>) -> Option<Vec<u8>> {
    range(value, 0, usize::MAX)
}

/// The length of a typed array or `ArrayBuffer`, in bytes.
pub fn len(value: &Value<'_>) -> Option<usize> {
    span(value).map(|(_, length)| length)
}

/// A part of the bytes, as much of it as there is.
pub fn range(value: &Value<'_>, start: usize, end: usize) -> Option<Vec<u8>> {
    let part =
        with_bytes(value, |b| b.get(start.min(b.len())..end.min(b.len())).map(<[u8]>::to_vec));
    let part = part?.unwrap_or_default();
    worked(part.len());
    Some(part)
}

/// Fills `to` with the bytes from `at` on; false if there are not enough.
pub fn read(value: &Value<'_>, at: usize, to: &mut [u8]) -> bool {
    let read = with_bytes(value, |bytes| {
        let from = at.checked_add(to.len()).and_then(|end| bytes.get(at..end));
        from.map(|from| to.copy_from_slice(from)).is_some()
    });
    read.unwrap_or_default()
}

/// Writes bytes from `at` on, as many as there is room for, and returns their number.
pub fn write(value: &Value<'_>, at: usize, from: &[u8]) -> usize {
    let Some((pointer, length)) = span(value) else { return 0 };
    let count = from.len().min(length.saturating_sub(at));
    worked(count);
    if count > 0 {
        // SAFETY: `span` has the range from the engine, which keeps it while `value` lives; `at`
        // and `count` are within it. `from` is no part of it, because no slice of it leaves this
        // file.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), pointer.add(at), count) }
    }
    count
}

/// Calls a function of this file, which does not run the engine, with the bytes.
fn with_bytes<R>(value: &Value<'_>, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let (pointer, length) = span(value)?;
    if length == 0 {
        return Some(f(&[]));
    }
    // SAFETY: `span` has the range from the engine, which keeps it while `value` lives. The engine
    // has one thread and does not run before `f` returns, and `f` does not write.
    Some(f(unsafe { std::slice::from_raw_parts(pointer, length) }))
}

/// A new `Uint8Array` with a copy of bytes.
pub(crate) fn uint8_array_of<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<Value<'js>> {
    worked(bytes.len());
    // SAFETY: the engine copies the bytes; the result belongs to the caller.
    unsafe {
        let raw = ctx.as_raw().as_ptr();
        let value = qjs::JS_NewUint8ArrayCopy(raw, bytes.as_ptr(), bytes.len() as _);
        if qjs::JS_IsException(value) {
            return Err(Error::Exception);
        }
        Ok(Value::from_raw(ctx.clone(), value))
    }
}

/// Sets the prototype of an object.
pub(crate) fn set_prototype<'js>(object: &Value<'js>, prototype: &Value<'js>) -> Result<()> {
    // SAFETY: both are values of one context, whose references stay with the caller; the engine
    // throws for what is no object.
    let done = unsafe {
        let raw = object.ctx().as_raw().as_ptr();
        qjs::JS_SetPrototype(raw, object.as_raw(), prototype.as_raw())
    };
    if done < 0 { Err(Error::Exception) } else { Ok(()) }
}

/// `new Proxy(target, handler)`
pub(crate) fn proxy<'js>(target: &Value<'js>, handler: &Value<'js>) -> Result<Value<'js>> {
    let ctx = target.ctx();
    // SAFETY: both are values of one context, of which the proxy gets references of its own; the
    // result belongs to the caller.
    unsafe {
        let raw = ctx.as_raw().as_ptr();
        let value = qjs::JS_NewProxy(raw, target.as_raw(), handler.as_raw());
        if qjs::JS_IsException(value) {
            return Err(Error::Exception);
        }
        Ok(Value::from_raw(ctx.clone(), value))
    }
}

/// `new Uint8Array(…)`, whatever the script has done to that name.
pub(crate) fn uint8_array<'js>(ctx: &Ctx<'js>, arguments: &[Value<'js>]) -> Result<Value<'js>> {
    let mut raw: Vec<qjs::JSValue> = arguments.iter().map(Value::as_raw).collect();
    let kind = qjs::JSTypedArrayEnum_JS_TYPED_ARRAY_UINT8;
    // SAFETY: the arguments are values of this context that live as long as `arguments`; the
    // engine takes its own references. The result belongs to the caller.
    unsafe {
        let pointer = raw.as_mut_ptr();
        let value =
            qjs::JS_NewTypedArray(ctx.as_raw().as_ptr(), raw.len() as i32, pointer.cast(), kind);
        if qjs::JS_IsException(value) {
            return Err(Error::Exception);
        }
        Ok(Value::from_raw(ctx.clone(), value))
    }
}

/// Evens out a fault of rquickjs 0.14: its handler for assignments to exotic objects releases the
/// value, which belongs to the engine and is released there again. To be called once by each such
/// handler, before it returns.
pub(crate) fn keep_assigned(value: &Value<'_>) {
    // SAFETY: the value is of this context; one reference more cannot free anything. The engine's
    // second release takes it back.
    unsafe { qjs::JS_DupValue(value.ctx().as_raw().as_ptr(), value.as_raw()) };
}

/// `new Date(milliseconds)`
pub fn date<'js>(ctx: &Ctx<'js>, milliseconds: f64) -> Result<Value<'js>> {
    // SAFETY: the result is a value of this context that belongs to the caller.
    unsafe {
        let value = qjs::JS_NewDate(ctx.as_raw().as_ptr(), milliseconds);
        if qjs::JS_IsException(value) {
            return Err(Error::Exception);
        }
        Ok(Value::from_raw(ctx.clone(), value))
    }
}

/// Whether a value is a `Uint8Array`, a `Buffer` among them.
pub(crate) fn is_uint8_array(value: &Value<'_>) -> bool {
    // SAFETY: the call only looks at the class of the value.
    let kind = unsafe { qjs::JS_GetTypedArrayType(value.as_raw()) };
    u32::try_from(kind) == Ok(qjs::JSTypedArrayEnum_JS_TYPED_ARRAY_UINT8)
}

/// Whether a value is a typed array or `ArrayBuffer` whose memory is gone.
pub(crate) fn is_detached(value: &Value<'_>) -> bool {
    span(value).is_some_and(|(pointer, _)| pointer.is_null())
}

/// Whether a value is a typed array: no `ArrayBuffer` and no `DataView`.
pub(crate) fn is_typed_array(value: &Value<'_>) -> bool {
    // SAFETY: the call only looks at the class of the value.
    unsafe { qjs::JS_GetTypedArrayType(value.as_raw()) >= 0 }
}

/// Where the bytes of an array are now.
fn span(value: &Value<'_>) -> Option<(*mut u8, usize)> {
    if is_typed_array(value) {
        return Some(span_of_typed(value));
    }
    let ctx = value.ctx();
    // The library has no other test than to ask for the bytes. That throws an error for any other
    // object, which takes 3,000 instructions, so it comes last.
    value.as_object()?.as_array_buffer()?;
    let mut size = 0;
    // SAFETY: the value is an ArrayBuffer of this context. A detached one gives null, and an
    // exception that is taken away.
    let pointer =
        unsafe { qjs::JS_GetArrayBuffer(ctx.as_raw().as_ptr(), &mut size, value.as_raw()) };
    if pointer.is_null() {
        ctx.catch();
        return Some((pointer, 0));
    }
    Some((pointer, size as usize))
}

/// The same for a typed array.
fn span_of_typed(value: &Value<'_>) -> (*mut u8, usize) {
    let ctx = value.ctx();
    let raw = ctx.as_raw().as_ptr();
    // SAFETY: the value is a typed array of this context, and the type has 1 to 8 bytes an
    // element; the buffer is a value that belongs to the caller, and is released at the end of
    // this function, while the array keeps its buffer.
    unsafe {
        let (mut offset, mut length, mut element, mut size) = (0, 0, 0, 0);
        let buffer = qjs::JS_GetTypedArrayBuffer(
            raw,
            value.as_raw(),
            &mut offset,
            &mut length,
            &mut element,
        );
        if qjs::JS_IsException(buffer) {
            ctx.catch();
            return (std::ptr::null_mut(), 0);
        }
        let buffer = Value::from_raw(ctx.clone(), buffer);
        let pointer = qjs::JS_GetArrayBuffer(raw, &mut size, buffer.as_raw());
        let within = (offset as usize).checked_add(length as usize);
        if pointer.is_null() || within.is_none_or(|end| end > size as usize) {
            ctx.catch();
            return (std::ptr::null_mut(), 0);
        }
        (pointer.add(offset as usize), length as usize)
    }
}

/// The bytes of `String(value)` as UTF-8, with U+FFFD for each lone surrogate.
pub fn to_text(value: &Value<'_>) -> Result<String> {
    let raw = value.ctx().as_raw().as_ptr();
    let mut length = 0;
    // SAFETY: the call gives null and an exception, or `length` bytes that live until they are
    // released below.
    unsafe {
        let pointer = qjs::JS_ToCStringLen(raw, &mut length, value.as_raw());
        if pointer.is_null() {
            return Err(Error::Exception);
        }
        worked(length);
        let bytes = std::slice::from_raw_parts(pointer.cast::<u8>(), length);
        let text = without_surrogates(bytes);
        qjs::JS_FreeCString(raw, pointer);
        Ok(text)
    }
}

/// The length of a string in UTF-16 units, without a copy; 0 for other values.
pub(crate) fn string_len(value: &Value<'_>) -> usize {
    if value.is_string() { length(value) } else { 0 }
}

/// The length of an array, up to 2^32 - 1.
pub(crate) fn array_len(array: &Array<'_>) -> usize {
    length(array)
}

/// The `length` of a string or an array.
fn length(value: &Value<'_>) -> usize {
    let mut length = 0;
    // SAFETY: the value is one of this context. A string's or an array's length is a number of its
    // own, so that nothing of the script runs.
    let failed = unsafe {
        qjs::JS_GetLength(value.ctx().as_raw().as_ptr(), value.as_raw(), &mut length) < 0
    };
    if failed { 0 } else { usize::try_from(length).unwrap_or(0) }
}

/// A host that is lent for the length of a call.
#[derive(Default)]
pub struct Lent(Cell<Option<NonNull<dyn Host>>>);

impl Lent {
    /// Runs a function during which [`Lent::borrow`] reaches the host.
    pub(crate) fn lend<R>(&self, host: &mut dyn Host, f: impl FnOnce() -> R) -> R {
        struct Restore<'a>(&'a Lent, Option<NonNull<dyn Host>>);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.0.set(self.1);
            }
        }
        let short: NonNull<dyn Host + '_> = NonNull::from(host);
        // SAFETY: only the lifetime changes. The pointer is taken away when this function returns
        // or unwinds, before the exclusive borrow of `host` ends.
        let long = unsafe {
            std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host + 'static>>(short)
        };
        let _restore = Restore(self, self.0.replace(Some(long)));
        f()
    }

    /// Calls a function with the lent host. `None` when there is none, or while an outer call of
    /// this function still has it.
    pub fn borrow<R>(&self, f: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
        struct Back<'a>(&'a Lent, NonNull<dyn Host>);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.0.set(Some(self.1));
            }
        }
        let mut pointer = self.0.take()?;
        let _back = Back(self, pointer);
        // SAFETY: `lend` is still running, because it takes the pointer away at its end. It holds
        // the exclusive borrow, and the cell is empty until `f` returns, so that there is no
        // second reference.
        Some(f(unsafe { pointer.as_mut() }))
    }
}

/// UTF-8 from the engine's form, which writes lone surrogates as three bytes each: these become
/// one U+FFFD, where the standard library would write three.
fn without_surrogates(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let is_surrogate = byte == 0xed && bytes.get(at + 1).is_some_and(|b| *b >= 0xa0);
        if is_surrogate {
            out.extend_from_slice("\u{fffd}".as_bytes());
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
