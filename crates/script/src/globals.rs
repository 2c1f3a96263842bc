//! The global functions and objects that all scripts have: `console`, `njs`, `ngx`, timers,
//! `atob`, `btoa` and `require`.

use std::cell::RefCell;

use rquickjs::object::Property;
use rquickjs::{Ctx, Exception, Function, Object, Persistent, Result, Value};

use crate::builtin;
use crate::codec;
use crate::host::Level;
use crate::http;
use crate::ids::TimerId;
use crate::native::{self, Call, to_number};
use crate::raw::{self, Bytecode};
use crate::state::{self, Charge};
use crate::value::text;

/// The version of njs whose behaviour is followed.
pub const NJS_VERSION: &str = "1.0.1";

/// The same as a number: a byte for each part.
const NJS_VERSION_NUMBER: u32 = 0x01_00_01;

/// What njs says where code would be made of a string.
const NO_FUNCTION: &str = "function constructor is disabled in \"safe\" mode";

const SOURCE: &str = include_str!("js/errors.js");

thread_local! {
    static COMPILED: RefCell<Option<Bytecode>> = const { RefCell::new(None) };
}

/// Adds everything in this file.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    let globals = ctx.globals();
    // As in nginx: no code is made of strings.
    globals.remove("eval")?;
    let function: Object<'_> = globals.get("Function")?;
    globals.remove("Function")?;
    // Scripts for njs's own engine use its prototype.
    let prototype = function.get("prototype")?;
    native::constructor(ctx, "Function", 1, |c| Err(c.type_error(NO_FUNCTION)), prototype)?;
    http::prelude(ctx, "weir:errors", SOURCE, &COMPILED, Object::new(ctx.clone())?)?;
    native::methods(
        &globals,
        &[
            ("atob", 1, atob),
            ("btoa", 1, btoa),
            ("require", 1, require),
            ("setTimeout", 2, set_timeout),
            ("setImmediate", 1, set_immediate),
            ("clearTimeout", 1, clear_timeout),
        ],
    )?;
    console(ctx)?;
    json(ctx)?;
    njs(ctx)?;
    ngx(ctx)
}

/// `require(name)` of njs's own engine: a module of the server. Others are imported.
fn require<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let name = text(&call.arg(0))?;
    match builtin::require(call.ctx(), &name)? {
        Some(module) => Ok(module.into_value()),
        None => {
            let message = format!("Cannot find module \"{name}\"");
            Err(Exception::throw_message(call.ctx(), &message))
        }
    }
}

/// Where the state keeps the engine's own functions of `JSON`.
const PARSE: &str = "weir:JSON.parse";
const STRINGIFY: &str = "weir:JSON.stringify";

/// Has `JSON.parse` and `JSON.stringify` count as work of natives: a script could call the engine's
/// thousands of times on a long text before the engine looks at the clock.
fn json(ctx: &Ctx<'_>) -> Result<()> {
    let json: Object<'_> = ctx.globals().get("JSON")?;
    let state = state::of(ctx);
    for (name, key) in [("parse", PARSE), ("stringify", STRINGIFY)] {
        let own: Object<'_> = json.get(name)?;
        state.prototypes.borrow_mut().insert(key, Persistent::save(ctx, own));
    }
    native::methods(
        &json,
        &[
            ("parse", 2, |c| {
                let text = c.arg(0);
                raw::worked(raw::string_len(&text));
                own_json(c, PARSE)?.call((text, c.arg(1)))
            }),
            ("stringify", 3, |c| {
                let f = own_json(c, STRINGIFY)?;
                let text: Value<'_> = f.call((c.arg(0), c.arg(1), c.arg(2)))?;
                raw::worked(raw::string_len(&text));
                Ok(text)
            }),
        ],
    )
}

fn own_json<'js>(call: &Call<'_, 'js>, key: &'static str) -> Result<Function<'js>> {
    let own = native::prototype_of(call.ctx(), key)?.into_value();
    own.into_function().ok_or(rquickjs::Error::Unknown)
}

fn console(ctx: &Ctx<'_>) -> Result<()> {
    let console = Object::new(ctx.clone())?;
    native::methods(
        &console,
        &[
            ("error", 0, |c| log_arguments(c, Level::Error)),
            ("info", 0, |c| log_arguments(c, Level::Info)),
            ("log", 0, |c| log_arguments(c, Level::Info)),
            ("warn", 0, |c| log_arguments(c, Level::Warn)),
            ("time", 0, time),
            ("timeEnd", 0, time_end),
        ],
    )?;
    native::tag(&console, "Console")?;
    ctx.globals().prop("console", Property::from(console).writable().configurable())
}

fn log_arguments<'js>(call: &Call<'_, 'js>, level: Level) -> Result<Value<'js>> {
    log_from(call, 0, level)
}

/// Logs the arguments from a position on.
fn log_from<'js>(call: &Call<'_, 'js>, first: usize, level: Level) -> Result<Value<'js>> {
    for i in first..call.len() {
        let text = text(&call.arg(i))?;
        state::host(call.ctx(), |host| host.log(level, &text))?;
        call.go_on()?;
    }
    call.undefined()
}

fn label<'js>(call: &Call<'_, 'js>) -> Result<String> {
    let value = call.arg(0);
    if value.is_undefined() { Ok("default".to_owned()) } else { text(&value) }
}

fn time<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let label = label(call)?;
    let state = state::of(call.ctx());
    let mut clocks = state.clocks.borrow_mut();
    if clocks.iter().any(|(name, _)| *name == label) {
        drop(clocks);
        let message = format!("Timer \"{label}\" already exists.");
        state::host(call.ctx(), |host| host.log(Level::Info, &message))?;
        return call.undefined();
    }
    // A script that makes labels without end would fill memory that no limit counts.
    if clocks.len() >= 100 {
        // Making the error may run a function of the script.
        drop(clocks);
        return Err(call.range_error("too many timers of console.time()"));
    }
    clocks.push((label, os::clock::monotonic_nsec()));
    call.undefined()
}

fn time_end<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let now = os::clock::monotonic_nsec();
    let label = label(call)?;
    let state = state::of(call.ctx());
    let mut clocks = state.clocks.borrow_mut();
    let at = clocks.iter().position(|(name, _)| *name == label);
    let message = match at.map(|at| clocks.remove(at)) {
        Some((_, started)) => {
            let nsec = now.saturating_sub(started);
            format!("{label}: {}.{:06}ms", nsec / 1_000_000, nsec % 1_000_000)
        }
        None => format!("Timer \"{label}\" doesn't exist."),
    };
    drop(clocks);
    state::host(call.ctx(), |host| host.log(Level::Info, &message))?;
    call.undefined()
}

fn njs(ctx: &Ctx<'_>) -> Result<()> {
    let njs = Object::new(ctx.clone())?;
    let plain = |value| Property::from(value).writable().configurable().enumerable();
    njs.prop("version", plain(NJS_VERSION))?;
    njs.prop("version_number", Property::from(NJS_VERSION_NUMBER).writable().configurable())?;
    njs.prop("engine", plain("QuickJS"))?;
    native::methods(&njs, &[("on", 2, on)])?;
    native::tag(&njs, "njs")?;
    ctx.globals().prop("njs", Property::from(njs).writable().configurable())
}

/// `njs.on('exit', callback)`
fn on<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let name = text(&call.arg(0))?;
    if name != "exit" {
        return Err(call.type_error(&format!("unknown hook \"{name}\"")));
    }
    let value = call.arg(1);
    let state = state::of(call.ctx());
    match value.as_function() {
        Some(f) => *state.exit.borrow_mut() = Some(Persistent::save(call.ctx(), f.clone())),
        None if value.is_null() => *state.exit.borrow_mut() = None,
        None => return Err(call.type_error("callback is not a function or null")),
    }
    call.undefined()
}

/// Where the state keeps `ngx`, whatever the script does to that name.
const NGX: &str = "weir:ngx";

/// The object `ngx`.
pub(crate) fn ngx_of<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    native::prototype_of(ctx, NGX)
}

fn ngx(ctx: &Ctx<'_>) -> Result<()> {
    let ngx = Object::new(ctx.clone())?;
    let state = state::of(ctx);
    let facts = &state.facts;
    for (name, value) in [
        ("build", &facts.build),
        ("conf_file_path", &facts.conf_file_path),
        ("conf_prefix", &facts.conf_prefix),
        ("error_log_path", &facts.error_log_path),
        ("prefix", &facts.prefix),
        ("version", &facts.version),
    ] {
        ngx.prop(name, Property::from(value.as_str()).enumerable())?;
    }
    for (name, value) in [
        ("version_number", facts.version_number),
        ("worker_id", facts.worker_id),
        ("ERR", 4),
        ("WARN", 5),
        ("INFO", 7),
    ] {
        ngx.prop(name, Property::from(value).enumerable())?;
    }
    native::methods(&ngx, &[("log", 2, log)])?;
    native::tag(&ngx, "ngx")?;
    state.prototypes.borrow_mut().insert(NGX, Persistent::save(ctx, ngx.clone()));
    ctx.globals().prop("ngx", Property::from(ngx).writable().configurable())
}

/// `ngx.log(level, text)`
fn log<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let level = match to_number(&call.arg(0))? as i64 {
        ..=4 => Level::Error,
        5 | 6 => Level::Warn,
        _ => Level::Info,
    };
    log_from(call, 1, level)
}

fn atob<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let bytes = codec::forgiving_base64(&text(&call.arg(0))?)
        .ok_or_else(|| call.type_error("the string to be decoded is not correctly encoded"))?;
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    call.text(&text)
}

fn btoa<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let text = text(&call.arg(0))?;
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    let bytes = bytes.ok_or_else(|| call.type_error("invalid character (> U+00FF)"))?;
    call.text(&codec::Encoding::Base64.encode(&bytes))
}

fn set_timeout<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let delay = if call.arg(1).is_number() { to_number(&call.arg(1))? } else { 0.0 };
    // The cast clamps, and makes 0 of NaN and of what is negative.
    start_timer(call, delay as u64, 2)
}

fn set_immediate<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    start_timer(call, 0, 1)
}

/// The memory of a timer outside the engine, here and in the host, roughly.
const TIMER_BYTES: usize = 512;

fn start_timer<'js>(call: &Call<'_, 'js>, delay: u64, first: usize) -> Result<Value<'js>> {
    let ctx = call.ctx();
    if call.len() < 1 {
        return Err(call.type_error("too few arguments"));
    }
    let Some(callback) = call.arg(0).into_function() else {
        return Err(call.type_error("first arg must be a function"));
    };
    let more = call.len().saturating_sub(first) * size_of::<Value<'_>>();
    let charge = Charge::new(ctx, TIMER_BYTES + more)?;
    let arguments = (first..call.len()).map(|i| Persistent::save(ctx, call.arg(i))).collect();
    let state = state::of(ctx);
    let timer = state.add_timer(Persistent::save(ctx, callback), arguments, charge);
    if let Err(e) = state::host(ctx, |host| host.start_timer(timer, delay)) {
        state.take_timer(timer);
        return Err(e);
    }
    call.number(timer.0 as f64)
}

fn clear_timeout<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    if !call.arg(0).is_number() {
        return call.undefined();
    }
    let timer = TimerId(to_number(&call.arg(0))? as u64);
    if state::of(call.ctx()).take_timer(timer).is_none() {
        return Err(Exception::throw_type(call.ctx(), "failed to find timer"));
    }
    state::host(call.ctx(), |host| host.stop_timer(timer))?;
    call.undefined()
}
