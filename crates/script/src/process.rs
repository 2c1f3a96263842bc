//! `process`: what a script can know of its process.

use std::os::unix::ffi::OsStrExt;

use os::signal::Signal;
use rquickjs::object::Property;
use rquickjs::{Array, Ctx, Object, Result, Value};

use crate::native::{self, Call, to_i64};
use crate::state;
use crate::value::text;

/// Adds `process` to the global object. It is made when it is first read, because few scripts do.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    native::getters(
        &ctx.globals(),
        &[("process", |call| {
            let process = make(call.ctx())?;
            let globals = call.ctx().globals();
            globals.prop("process", Property::from(process.clone()).configurable())?;
            Ok(process.into_value())
        })],
    )
}

fn make<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let process = Object::new(ctx.clone())?;
    let argv = Array::new(ctx.clone())?;
    for (i, argument) in state::of(ctx).facts.arguments.iter().enumerate() {
        argv.set(i, argument.as_str())?;
    }
    process.prop("argv", Property::from(argv).writable().configurable().enumerable())?;
    // One object, so that what a script assigns to a variable stays.
    let env = Property::from(environment(ctx)?).writable().configurable().enumerable();
    process.prop("env", env)?;
    native::getters(
        &process,
        &[
            ("pid", |call| call.number(f64::from(std::process::id()))),
            ("ppid", |call| call.number(f64::from(std::os::unix::process::parent_id()))),
        ],
    )?;
    native::methods(&process, &[("kill", 2, kill)])?;
    native::tag(&process, "process")?;
    Ok(process)
}

fn environment<'js>(ctx: &Ctx<'js>) -> Result<Value<'js>> {
    let object = Object::new(ctx.clone())?;
    for (name, value) in std::env::vars_os() {
        let name = String::from_utf8_lossy(name.as_bytes());
        let value = String::from_utf8_lossy(value.as_bytes());
        let value = Property::from(value.as_ref()).writable().configurable().enumerable();
        object.prop(name.as_ref(), value)?;
    }
    Ok(object.into_value())
}

/// `process.kill(pid, signal)`
fn kill<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let pid = to_i64(&call.arg(0))? as i32;
    let signal = call.arg(1);
    let signal = if signal.is_number() {
        let number = to_i64(&signal)?;
        let known = i32::try_from(number).ok().filter(|n| (0..=64).contains(n));
        known.map(Signal).ok_or_else(|| call.type_error(&format!("unknown signal: {number}")))?
    } else if signal.is_undefined() {
        Signal::TERM
    } else {
        let name = text(&signal)?;
        let signal = name.strip_prefix("SIG").and_then(Signal::named);
        signal.ok_or_else(|| call.type_error(&format!("unknown signal: {name}")))?
    };
    match os::signal::kill(pid, signal) {
        Ok(()) => call.bool(true),
        Err(e) => Err(call.type_error(&format!("kill failed with ({e})"))),
    }
}
