//! How natives are declared: tables of names and plain functions.

use std::any::Any;
use std::cell::RefCell;

use rquickjs::atom::PredefinedAtom;
use rquickjs::class::{
    ClassKind, JsCell, JsClass, PropertyDescriptor, PropertyName, Readable, Trace, Tracer,
};
use rquickjs::convert::Coerced;
use rquickjs::function::{Constructor, IntoJsFunc, ParamRequirement, Params};
use rquickjs::object::{Accessor, Property};
use rquickjs::{
    Array, Atom, Class, Ctx, Error, Exception, Function, Object, Persistent, Promise, Result,
    String as JsString, Value,
};

use crate::raw::{self, Holder};
use crate::state::{self, Charge};

/// The work of a step of a loop over what a script has given, beside the bytes of its text.
const STEP_BYTES: usize = 64;

/// The work of an access to a property that is computed: it may go through a long list.
const ACCESS_BYTES: usize = 4 << 10;

/// A call of a native: `this` and the arguments.
pub struct Call<'a, 'js>(Params<'a, 'js>);

pub type Native = for<'a, 'js> fn(&Call<'a, 'js>) -> Result<Value<'js>>;

/// A function of an object: its name, its `length`, and what it does.
pub type Method = (&'static str, usize, Native);

/// A native with a number that tells apart the functions that share it.
pub type Numbered = for<'a, 'js> fn(&Call<'a, 'js>, u32) -> Result<Value<'js>>;

#[derive(Clone, Copy)]
struct Plain(Native);

#[derive(Clone, Copy)]
struct WithNumber(Numbered, u32);

impl<'js> IntoJsFunc<'js, ()> for Plain {
    fn param_requirements() -> ParamRequirement {
        ParamRequirement::any()
    }

    fn call<'a>(&self, params: Params<'a, 'js>) -> Result<Value<'js>> {
        let call = Call(params);
        in_time(call.ctx(), (self.0)(&call))
    }
}

impl<'js> IntoJsFunc<'js, ()> for WithNumber {
    fn param_requirements() -> ParamRequirement {
        ParamRequirement::any()
    }

    fn call<'a>(&self, params: Params<'a, 'js>) -> Result<Value<'js>> {
        let call = Call(params);
        in_time(call.ctx(), (self.0)(&call, self.1))
    }
}

/// The result of a native, unless the script has used up its time: the engine looks at the clock
/// too rarely where natives do the work.
fn in_time<T>(ctx: &Ctx<'_>, result: Result<T>) -> Result<T> {
    match must_end(ctx) {
        true => Err(raw::interrupt(ctx)),
        false => result,
    }
}

/// Whether the script has used up its time, if the clock is due.
fn must_end(ctx: &Ctx<'_>) -> bool {
    raw::is_clock_due() && state::of(ctx).meter.must_end()
}

/// In a loop over what a script has given, which may be long: the engine does not look at the clock
/// before the native is done.
///
/// # Errors
/// The script has used up its time.
pub(crate) fn go_on(ctx: &Ctx<'_>) -> Result<()> {
    raw::worked(STEP_BYTES);
    in_time(ctx, Ok(()))
}

/// The same for code that knows no values of the engine: whether it may take so many steps.
pub(crate) fn goes_on(ctx: &Ctx<'_>, steps: usize) -> bool {
    raw::worked(steps.saturating_mul(STEP_BYTES));
    !must_end(ctx)
}

/// The elements of an array that a script has given, also of one that is long and has nothing but
/// holes: the clock is looked at in between. The library's own `Array::len` and `Array::iter` panic
/// if there are 2^31 elements or more.
pub(crate) fn elements<'js>(array: &Array<'js>) -> impl Iterator<Item = Result<Value<'js>>> {
    (0..raw::array_len(array)).map(|index| {
        go_on(array.ctx())?;
        array.get(index)
    })
}

impl<'js> Call<'_, 'js> {
    /// The context.
    pub fn ctx(&self) -> &Ctx<'js> {
        self.0.ctx()
    }

    /// The receiver.
    pub fn this(&self) -> Value<'js> {
        self.0.this()
    }

    /// An argument; `undefined` if it was not given.
    pub fn arg(&self, index: usize) -> Value<'js> {
        self.0.arg(index).unwrap_or_else(|| Value::new_undefined(self.ctx().clone()))
    }

    /// How many arguments were given.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Counts a step of a loop over what the script has given, and looks at the clock: [`go_on`].
    ///
    /// # Errors
    /// The script has used up its time.
    pub(crate) fn go_on(&self) -> Result<()> {
        go_on(self.ctx())
    }

    pub fn undefined(&self) -> Result<Value<'js>> {
        Ok(Value::new_undefined(self.ctx().clone()))
    }

    /// A boolean.
    pub fn bool(&self, value: bool) -> Result<Value<'js>> {
        Ok(Value::new_bool(self.ctx().clone(), value))
    }

    pub fn number(&self, value: f64) -> Result<Value<'js>> {
        Ok(Value::new_number(self.ctx().clone(), value))
    }

    pub fn text(&self, value: &str) -> Result<Value<'js>> {
        Ok(JsString::from_str(self.ctx().clone(), value)?.into_value())
    }

    pub(crate) fn type_error(&self, message: &str) -> Error {
        Exception::throw_type(self.ctx(), message)
    }

    pub(crate) fn range_error(&self, message: &str) -> Error {
        Exception::throw_range(self.ctx(), message)
    }

    /// `ToIndex`: an integer from 0 to 2^53 - 1.
    pub fn index(&self, value: &Value<'js>) -> Result<u64> {
        let number = to_number(value)?.trunc();
        let number = if number.is_nan() { 0.0 } else { number };
        if !(0.0..=9_007_199_254_740_991.0).contains(&number) {
            return Err(self.range_error("invalid array index"));
        }
        Ok(number as u64)
    }
}

pub fn to_number(value: &Value<'_>) -> Result<f64> {
    match value.as_number() {
        Some(number) => Ok(number),
        None => Ok(value.get::<Coerced<f64>>()?.0),
    }
}

/// `ToInt64` as the engine has it: truncated and clamped, 0 for NaN.
pub(crate) fn to_i64(value: &Value<'_>) -> Result<i64> {
    // The cast clamps, and makes 0 of NaN.
    Ok(to_number(value)?.trunc() as i64)
}

/// `ToUint32`
pub(crate) fn to_u32(value: &Value<'_>) -> Result<u32> {
    let number = to_number(value)?;
    if !number.is_finite() {
        return Ok(0);
    }
    Ok(number.trunc().rem_euclid(4_294_967_296.0) as u32)
}

/// `ToBoolean`
pub fn to_bool(value: &Value<'_>) -> Result<bool> {
    Ok(value.get::<Coerced<bool>>()?.0)
}

/// A function object.
pub fn function<'js>(
    ctx: &Ctx<'js>,
    name: &str,
    length: usize,
    native: Native,
) -> Result<Function<'js>> {
    Function::new(ctx.clone(), Plain(native))?.with_name(name)?.with_length(length)
}

/// Adds functions to an object.
pub fn methods<'js>(object: &Object<'js>, table: &[Method]) -> Result<()> {
    for &(name, length, native) in table {
        method(object, name, function(object.ctx(), name, length, native)?)?;
    }
    Ok(())
}

/// Adds functions that share a native.
pub fn numbered<'js>(
    object: &Object<'js>,
    native: Numbered,
    table: &[(&'static str, usize, u32)],
) -> Result<()> {
    for &(name, length, number) in table {
        method(object, name, with_number(object.ctx(), name, length, native, number)?)?;
    }
    Ok(())
}

/// A function object of a shared native.
pub(crate) fn with_number<'js>(
    ctx: &Ctx<'js>,
    name: &str,
    length: usize,
    native: Numbered,
    number: u32,
) -> Result<Function<'js>> {
    let f = Function::new(ctx.clone(), WithNumber(native, number))?;
    f.with_name(name)?.with_length(length)
}

/// Adds one function.
pub fn method<'js>(object: &Object<'js>, name: &str, function: Function<'js>) -> Result<()> {
    object.prop(name, Property::from(function).writable().configurable())
}

/// Adds properties that are computed on each read.
pub(crate) fn getters<'js>(object: &Object<'js>, table: &[(&'static str, Native)]) -> Result<()> {
    for &(name, native) in table {
        object.prop(name, Accessor::from(Plain(native)).configurable())?;
    }
    Ok(())
}

/// Adds a property that natives read and write.
pub(crate) fn accessor<'js>(
    object: &Object<'js>,
    name: &str,
    get: Native,
    set: Native,
) -> Result<()> {
    object.prop(name, Accessor::new(Plain(get), Plain(set)).configurable())
}

/// Adds a property that natives make when it is first read or assigned to.
pub(crate) fn late<'js>(
    object: &Object<'js>,
    name: &str,
    (get, set): (Numbered, Numbered),
    number: u32,
    is_enumerable: bool,
) -> Result<()> {
    let property = Accessor::new(WithNumber(get, number), WithNumber(set, number)).configurable();
    object.prop(name, if is_enumerable { property.enumerable() } else { property })
}

/// Adds `Symbol.toStringTag`.
pub fn tag<'js>(object: &Object<'js>, name: &str) -> Result<()> {
    let symbol = PredefinedAtom::SymbolToStringTag;
    object.prop(symbol, Property::from(name).configurable())
}

/// Makes a constructor with a prototype of the functions in `table`, adds it to the global object
/// and remembers the prototype for [`object`]. The native must return an object.
pub fn class<'js>(
    ctx: &Ctx<'js>,
    name: &'static str,
    length: usize,
    construct: Native,
    table: &[Method],
) -> Result<Object<'js>> {
    let prototype = prototype(ctx, name, table)?;
    constructor(ctx, name, length, construct, prototype.clone())?;
    Ok(prototype)
}

/// Adds a global constructor of objects with a prototype.
pub fn constructor<'js>(
    ctx: &Ctx<'js>,
    name: &str,
    length: usize,
    construct: Native,
    prototype: Object<'js>,
) -> Result<()> {
    let constructor = Constructor::new_prototype(ctx, prototype, Plain(construct))?;
    let f: &Function<'js> = &constructor;
    f.set_name(name)?;
    f.set_length(length)?;
    ctx.globals().prop(name, Property::from(constructor).writable().configurable())
}

/// Makes a prototype that scripts have no constructor for.
pub fn prototype<'js>(ctx: &Ctx<'js>, name: &'static str, table: &[Method]) -> Result<Object<'js>> {
    let prototype = Object::new(ctx.clone())?;
    methods(&prototype, table)?;
    tag(&prototype, name)?;
    let saved = Persistent::save(ctx, prototype.clone());
    state::of(ctx).prototypes.borrow_mut().insert(name, saved);
    Ok(prototype)
}

/// The prototype of that name.
pub(crate) fn prototype_of<'js>(ctx: &Ctx<'js>, name: &'static str) -> Result<Object<'js>> {
    let saved = state::of(ctx).prototypes.borrow().get(name).cloned();
    match saved {
        Some(saved) => saved.restore(ctx),
        None => Err(Exception::throw_internal(ctx, &format!("no prototype of {name}"))),
    }
}

/// Data of a native, and its share of the limit on memory.
pub struct Data(RefCell<Box<dyn Any>>, #[allow(dead_code, reason = "held until the end")] Charge);

/// Data of a native behind an object. It holds no value of the engine: those are properties.
type Opaque = Holder<Data>;

/// About the memory of an object with data, in bytes: more than most need.
const OBJECT_BYTES: usize = 512;

impl<'js> Trace<'js> for Holder<Data> {
    fn trace<'a>(&self, _tracer: Tracer<'a, 'js>) {}
}

impl<'js> JsClass<'js> for Holder<Data> {
    const NAME: &'static str = "Object";
    type Mutable = Readable;

    fn constructor(_ctx: &Ctx<'js>) -> Result<Option<Constructor<'js>>> {
        Ok(None)
    }
}

/// An object of a class with its data.
pub fn object<'js, T: 'static>(ctx: &Ctx<'js>, name: &'static str, data: T) -> Result<Object<'js>> {
    large_object(ctx, name, data, 0)
}

/// An object of a class with data that holds more memory than usual, in bytes.
pub(crate) fn large_object<'js, T: 'static>(
    ctx: &Ctx<'js>,
    name: &'static str,
    data: T,
    more_bytes: usize,
) -> Result<Object<'js>> {
    let charge = Charge::new(ctx, size_of::<T>() + OBJECT_BYTES + more_bytes)?;
    let prototype = prototype_of(ctx, name)?;
    let opaque = Holder(Data(RefCell::new(Box::new(data)), charge));
    Ok(Class::instance_proto(opaque, prototype)?.into_inner())
}

/// Calls a function with the data of an object; `None` for an object that has no such data.
///
/// The function must not call back into the engine: the same object would be unreachable.
pub(crate) fn with_data<T: 'static, R>(
    value: &Value<'_>,
    f: impl FnOnce(&mut T) -> R,
) -> Option<R> {
    let class = Class::<Opaque>::from_object(value.as_object()?)?;
    let opaque = class.try_borrow().ok()?;
    let mut data = opaque.0.0.try_borrow_mut().ok()?;
    data.downcast_mut::<T>().map(f)
}

/// An object whose properties are computed: each read asks for them.
pub trait Exotic: 'static {
    /// The object itself, for [`with_exotic`].
    fn as_any(&self) -> &dyn Any;

    /// A property of its own.
    fn get<'js>(&self, ctx: &Ctx<'js>, name: &str) -> Result<Option<Value<'js>>>;

    /// The names of its enumerable properties, in order.
    fn names(&self) -> Vec<String>;

    /// Assigns to a property, or deletes it; false if it cannot be.
    fn set<'js>(&self, ctx: &Ctx<'js>, name: &str, value: Option<Value<'js>>) -> Result<bool> {
        let _ = (ctx, name, value);
        Ok(false)
    }
}

/// An object of a class with computed properties.
pub(crate) fn exotic<'js>(
    ctx: &Ctx<'js>,
    name: &'static str,
    object: impl Exotic,
) -> Result<Value<'js>> {
    let charge = Charge::new(ctx, OBJECT_BYTES)?;
    let prototype = prototype_of(ctx, name)?;
    let class = Class::instance_proto(Holder(Computed(Box::new(object), charge)), prototype)?;
    Ok(class.into_inner().into_value())
}

/// Calls a function with what is behind an object with computed properties.
pub(crate) fn with_exotic<T: 'static, R>(value: &Value<'_>, f: impl FnOnce(&T) -> R) -> Option<R> {
    let class = Class::<ExoticOpaque>::from_object(value.as_object()?)?;
    let opaque = class.try_borrow().ok()?;
    opaque.0.0.as_any().downcast_ref::<T>().map(f)
}

/// What computes properties, and its share of the limit on memory.
pub struct Computed(Box<dyn Exotic>, #[allow(dead_code, reason = "held until the end")] Charge);

/// The class of all objects with computed properties.
type ExoticOpaque = Holder<Computed>;

impl<'js> Trace<'js> for Holder<Computed> {
    fn trace<'a>(&self, _tracer: Tracer<'a, 'js>) {}
}

impl<'js> JsClass<'js> for Holder<Computed> {
    const NAME: &'static str = "Object";
    const KIND: ClassKind = ClassKind::Exotic;
    type Mutable = Readable;

    fn constructor(_ctx: &Ctx<'js>) -> Result<Option<Constructor<'js>>> {
        Ok(None)
    }

    fn exotic_get_property(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
        atom: Atom<'js>,
        receiver: Value<'js>,
    ) -> Result<Value<'js>> {
        if let Some(value) = own(this, ctx, &atom)? {
            return Ok(value);
        }
        // The engine leaves the prototype to this function, too.
        match receiver.as_object().and_then(Object::get_prototype) {
            Some(prototype) => prototype.get(atom),
            None => Ok(Value::new_undefined(ctx.clone())),
        }
    }

    fn exotic_set_property(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
        atom: Atom<'js>,
        _receiver: Value<'js>,
        value: Value<'js>,
    ) -> Result<bool> {
        crate::raw::keep_assigned(&value);
        assign(this, ctx, &atom, Some(value))
    }

    fn exotic_delete_property(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
        atom: Atom<'js>,
    ) -> Result<bool> {
        assign(this, ctx, &atom, None)
    }

    fn exotic_has_property(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
        atom: Atom<'js>,
    ) -> Result<bool> {
        Ok(own(this, ctx, &atom)?.is_some())
    }

    fn exotic_get_own_property(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
        atom: Atom<'js>,
    ) -> Result<Option<PropertyDescriptor<'js>>> {
        let value = own(this, ctx, &atom)?;
        Ok(value.map(|value| PropertyDescriptor::new_value(value, true, true, true)))
    }

    fn exotic_get_own_property_names(
        this: &JsCell<'js, Self>,
        ctx: &Ctx<'js>,
    ) -> Result<Vec<PropertyName<'js>>> {
        let names = this.borrow().0.0.names();
        let name = |name: String| {
            let atom = Atom::from_str(ctx.clone(), &name)?;
            Ok(PropertyName { atom, is_enumerable: true })
        };
        accessed(ctx, names.into_iter().map(name).collect())
    }
}

/// A property of the object's own; symbols are none.
fn own<'js>(
    this: &JsCell<'js, ExoticOpaque>,
    ctx: &Ctx<'js>,
    atom: &Atom<'js>,
) -> Result<Option<Value<'js>>> {
    if atom.to_value()?.is_symbol() {
        return Ok(None);
    }
    accessed(ctx, this.borrow().0.0.get(ctx, &atom.to_string()?))
}

/// Assigns to a property, or deletes it.
fn assign<'js>(
    this: &JsCell<'js, ExoticOpaque>,
    ctx: &Ctx<'js>,
    atom: &Atom<'js>,
    value: Option<Value<'js>>,
) -> Result<bool> {
    accessed(ctx, this.borrow().0.0.set(ctx, &atom.to_string()?, value))
}

/// The result of an access, unless the script has used up its time.
fn accessed<T>(ctx: &Ctx<'_>, result: Result<T>) -> Result<T> {
    raw::worked(ACCESS_BYTES);
    in_time(ctx, result)
}

/// A promise with the result of a native that has finished. It is settled by a job, so that code
/// after the call runs first, as nginx has it.
pub fn settled<'js>(ctx: &Ctx<'js>, result: Result<Value<'js>>) -> Result<Value<'js>> {
    let (promise, resolve, reject) = Promise::new(ctx)?;
    match result {
        Ok(value) => resolve.defer((value,))?,
        Err(Error::Exception) => reject.defer((ctx.catch(),))?,
        Err(e) => return Err(e),
    }
    Ok(promise.into_value())
}
