//! An engine in a worker.

use std::rc::Rc;

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{
    ArrayBuffer, Context, Ctx, Error, Exception, Module, Object, Persistent, Promise, Runtime,
    Value, promise::PromiseState,
};

use crate::fault::{Fault, FaultKind};
use crate::host::stream::{Form, Way};
use crate::host::{Facts, Host};
use crate::ids::{Ticket, TimerId};
use crate::program::Program;
use crate::state::{self, Limits, State, Waiter};
use crate::value::{self, Answer, Argument, Data};
use crate::{buffer, builtin, functions, globals, http, late, process, raw, stream};

/// An engine that runs one program. It serves one request at a time; the caller throws it away
/// after a fault.
pub struct Instance {
    // The context goes before the runtime.
    context: Context,
    runtime: Runtime,
    pub(crate) state: Rc<State>,
    limits: Limits,
    ended: bool,
}

/// What a call has come to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The function returned a value, or a promise that is fulfilled with it.
    Done(Data),
    /// It returned a promise that is not settled: the host completes tickets and timers, then
    /// [`Instance::outcome`] tells.
    Pending(Call),
}

/// A call whose promise is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call(u64);

/// Finds modules in a program, never in files.
struct Compiled(Rc<Program>);

impl Instance {
    /// Makes an engine and evaluates the program's modules.
    ///
    /// # Errors
    /// A module threw, ran too long, or there is not enough memory.
    pub fn new(
        program: Rc<Program>,
        limits: Limits,
        facts: Rc<Facts>,
        host: &mut dyn Host,
    ) -> Result<Instance, Fault> {
        let memory = |e: Error| Fault::new(FaultKind::Memory, e.to_string());
        let runtime = Runtime::new().map_err(memory)?;
        runtime.set_memory_limit(limits.memory_bytes);
        runtime.set_max_stack_size(limits.stack_bytes);
        runtime.set_loader(Compiled(program.clone()), Compiled(program.clone()));
        let state = Rc::new(State::new(limits, facts));
        let meter = state.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || meter.meter.must_end())));
        let tracker = state.clone();
        runtime.set_host_promise_rejection_tracker(Some(Box::new(
            move |ctx, promise, reason, is_handled| {
                let promise = Persistent::save(&ctx, promise);
                tracker.note_rejection(promise, Persistent::save(&ctx, reason), is_handled);
            },
        )));
        let context = context(&runtime).map_err(memory)?;
        let serves_stream = host.stream().is_some();
        let mut instance = Instance { context, runtime, state, limits, ended: false };
        instance.run(host, |ctx, state| {
            raw::keep(ctx, state.clone());
            state.late.set(program.late);
            install(ctx)?;
            if serves_stream {
                state.serves_stream.set(true);
                stream::install(ctx)?;
            }
            for (name, text) in &program.objects {
                http::constant(ctx, name, text)?;
            }
            for (name, path) in &program.imports {
                let (module, promise) = program.module(ctx, path)?.eval()?;
                // A module that waits at its top level goes on with what it waits for.
                while promise.state() == PromiseState::Pending && ctx.execute_pending_job() {}
                if let Some(result) = promise.result::<Value<'_>>() {
                    result?;
                }
                let default: Value<'_> = module.namespace()?.get("default")?;
                state.imports.borrow_mut().push((name.clone(), Persistent::save(ctx, default)));
            }
            Ok(())
        })?;
        Ok(instance)
    }

    /// Runs a script, as if its text stood in a file of its own without imports, and returns its
    /// value as the interactive shell shows it: strings in quotes.
    ///
    /// # Errors
    /// As for [`Instance::call`].
    pub fn evaluate(
        &mut self,
        host: &mut dyn Host,
        name: &str,
        text: &str,
    ) -> Result<String, Fault> {
        self.run(host, |ctx, _| {
            let mut options = rquickjs::context::EvalOptions::default();
            options.filename = Some(name.to_owned());
            let value: Value<'_> = ctx.eval_with_options(text, options)?;
            let shown = value::text(&value)?;
            Ok(if value.is_string() { format!("'{shown}'") } else { shown })
        })
    }

    /// Calls what `njs.on('exit')` has registered.
    ///
    /// # Errors
    /// As for [`Instance::call`].
    pub fn exit(&mut self, host: &mut dyn Host) -> Result<(), Fault> {
        self.run(host, |ctx, state| match state.exit.take() {
            Some(hook) => hook.restore(ctx)?.call(()),
            None => Ok(()),
        })
    }

    /// Calls a function of an imported module by its path, for example `main.hello`, and runs
    /// what it has set off until everything that is left waits for the host.
    ///
    /// # Errors
    /// The function threw or its promise was rejected, a rejection went unhandled, a limit was
    /// exceeded, or there is no such function.
    pub fn call(
        &mut self,
        host: &mut dyn Host,
        function: &str,
        arguments: &[Argument],
    ) -> Result<Outcome, Fault> {
        let begin = |ctx: &Ctx<'_>, state: &Rc<State>| {
            let Some(found) = functions::find(ctx, state, function)? else { return Ok(None) };
            let mut args = rquickjs::function::Args::new(ctx.clone(), arguments.len());
            for argument in arguments {
                args.push_arg(match argument {
                    Argument::Request => subject(ctx, state)?,
                    Argument::Data(data) => data.to_js(ctx)?,
                    Argument::Last(last) => http::flags(ctx, *last)?,
                })?;
            }
            let value: Value<'_> = found.call_arg(args)?;
            Ok(Some(Persistent::save(ctx, value)))
        };
        // One stretch with what follows, because beginning and ending one takes time.
        let outcome = self.run_then(host, begin, |ctx, state, value| match value {
            Some(value) => outcome_of(ctx, state, value, None).map(Some),
            None => Ok(None),
        })?;
        outcome.ok_or_else(|| {
            let message = format!("js function \"{function}\" not found");
            Fault::new(FaultKind::NoFunction, message)
        })
    }

    /// Calls the callback that `s.on()` has set for a way of bytes, if there is one. A promise that
    /// it returns is watched ([`Instance::watch`]).
    ///
    /// # Errors
    /// As for [`Instance::call`].
    pub fn event(
        &mut self,
        host: &mut dyn Host,
        (way, form): (Way, Form),
        bytes: Vec<u8>,
        last: bool,
    ) -> Result<(), Fault> {
        self.run(host, |ctx, _| stream::event(ctx, way, form, bytes, last))
    }

    /// Has the rejection of a call's promise be a fault as soon as it happens, whatever else the
    /// script waits for; otherwise it is one when the script waits for nothing.
    ///
    /// # Errors
    /// As for [`Instance::call`].
    pub fn watch(&mut self, host: &mut dyn Host, call: Call) -> Result<(), Fault> {
        self.run(host, |ctx, state| {
            let Some(value) = state.call(call.0) else { return Ok(()) };
            state.forget_call(call.0);
            http::watch(ctx, value.restore(ctx)?)
        })
    }

    /// Whether a directive's function exists.
    ///
    /// # Errors
    /// A getter on the way to it threw.
    pub fn has_function(&mut self, host: &mut dyn Host, function: &str) -> Result<bool, Fault> {
        self.run(host, |ctx, state| Ok(functions::find(ctx, state, function)?.is_some()))
    }

    /// Sets what the script may use from now on: the place of a request may change.
    pub fn set_limits(&mut self, limits: Limits) {
        if self.limits == limits {
            return;
        }
        self.limits = limits;
        self.runtime.set_memory_limit(limits.memory_bytes);
        self.runtime.set_max_stack_size(limits.stack_bytes);
        self.state.set_limits(limits);
    }

    /// What a call has come to by now.
    ///
    /// # Errors
    /// Its promise was rejected.
    pub fn outcome(&mut self, host: &mut dyn Host, call: Call) -> Result<Outcome, Fault> {
        self.run(host, |ctx, state| match state.call(call.0) {
            Some(value) => outcome_of(ctx, state, value, Some(call)),
            None => Ok(Outcome::Done(Data::Undefined)),
        })
    }

    /// Settles what a native has asked of the host, and runs what waited for it. A ticket that is
    /// unknown (its callback was dropped) is none of the caller's concern.
    ///
    /// # Errors
    /// As for [`Instance::call`].
    pub fn complete(
        &mut self,
        host: &mut dyn Host,
        ticket: Ticket,
        answer: Answer,
    ) -> Result<(), Fault> {
        self.run(host, |ctx, state| {
            let Some((waiter, finish)) = state.take_waiter(ticket) else { return Ok(()) };
            let value = finish(ctx, answer);
            match waiter {
                Waiter::Promise(resolve, reject) => match value {
                    Ok(value) => resolve.restore(ctx)?.call((value,)),
                    Err(Error::Exception) => reject.restore(ctx)?.call((ctx.catch(),)),
                    Err(e) => Err(e),
                },
                Waiter::Callback(callback) => {
                    let _: Value<'_> = callback.restore(ctx)?.call((value?,))?;
                    Ok(())
                }
            }
        })
    }

    /// Calls the function of a timer that has expired.
    ///
    /// # Errors
    /// As for [`Instance::call`].
    pub fn timer_fired(&mut self, host: &mut dyn Host, timer: TimerId) -> Result<(), Fault> {
        self.run(host, |ctx, state| {
            let Some((callback, arguments, _)) = state.take_timer(timer) else { return Ok(()) };
            let mut args = rquickjs::function::Args::new(ctx.clone(), arguments.len());
            for argument in arguments {
                args.push_arg(argument.restore(ctx)?)?;
            }
            let _: Value<'_> = callback.restore(ctx)?.call_arg(args)?;
            Ok(())
        })
    }

    /// Ends the work for a request: calls what `njs.on('exit')` has registered, and forgets
    /// tickets, timers and calls. Returns whether the engine may serve another request, before
    /// which [`Instance::reset_time`] is due.
    ///
    /// # Errors
    /// As for [`Instance::call`]: what the hook threw, or a rejection that nobody handled.
    pub fn end_request(&mut self, host: &mut dyn Host) -> Result<bool, Fault> {
        if self.ended {
            return Ok(false);
        }
        let hook = if self.state.has_exit_hook() { self.exit(host) } else { Ok(()) };
        self.state.forget_request();
        let left = match self.state.has_rejections() || self.runtime.is_job_pending() {
            true => self.run(host, |_, _| Ok(())),
            false => Ok(()),
        };
        hook.and(left)?;
        Ok(!self.ended && !self.state.is_waiting())
    }

    /// Bytes of memory that the engine holds.
    pub fn memory_bytes(&self) -> usize {
        usize::try_from(self.runtime.memory_usage().malloc_size).unwrap_or(0)
    }

    /// Whether tickets or timers are outstanding.
    pub fn is_waiting(&self) -> bool {
        self.state.is_waiting()
    }

    /// Forgets the processor time of the request so far.
    pub fn reset_time(&self) {
        self.state.meter.reset();
    }

    /// Processor time of the request so far, microseconds.
    pub fn used_usec(&self) -> u64 {
        self.state.meter.used_usec()
    }

    /// One stretch: runs a function and all jobs that follow, within the limits.
    fn run<R>(
        &mut self,
        host: &mut dyn Host,
        f: impl FnOnce(&Ctx<'_>, &Rc<State>) -> rquickjs::Result<R>,
    ) -> Result<R, Fault> {
        self.run_then(host, f, |_, _, result| Ok(result))
    }

    /// The same, and then a function that gets the result of the first one, with what follows from
    /// that, too. It does not run if the first one fails, or leaves a rejection unhandled.
    fn run_then<A, R>(
        &mut self,
        host: &mut dyn Host,
        f: impl FnOnce(&Ctx<'_>, &Rc<State>) -> rquickjs::Result<A>,
        then: impl FnOnce(&Ctx<'_>, &Rc<State>, A) -> rquickjs::Result<R>,
    ) -> Result<R, Fault> {
        if self.ended {
            return Err(Fault::new(FaultKind::Ended, "the script was ended before"));
        }
        let state = self.state.clone();
        state.meter.begin();
        let result = state.lent.lend(host, || {
            self.context.with(|ctx| {
                let thrown = |e| Fault::caught(&ctx, FaultKind::Thrown, &e);
                let first = f(&ctx, &state).map_err(thrown)?;
                settle(&ctx, &state)?;
                if let Some(kind) = state.meter.ended() {
                    return Err(Fault::new(kind, ""));
                }
                let result = then(&ctx, &state, first).map_err(thrown)?;
                settle(&ctx, &state)?;
                Ok(result)
            })
        });
        state.meter.end();
        let result = match (result, state.meter.ended()) {
            (result, None) => result,
            (result, Some(kind)) => {
                let fault = result.err().unwrap_or_else(|| Fault::new(kind, ""));
                Err(state::ended(kind, fault, &self.limits))
            }
        };
        self.ended = state.meter.ended().is_some();
        result
    }
}

/// Runs the jobs that wait, and fails for a rejection that nobody can handle any more.
fn settle(ctx: &Ctx<'_>, state: &State) -> Result<(), Fault> {
    while state.meter.ended().is_none() && ctx.execute_pending_job() {}
    let reason = match state.take_broken() {
        Some(reason) => Some(reason),
        // While the host owes an answer, the script may still handle a rejection.
        None if state.is_waiting() => None,
        None => state.take_rejection(),
    };
    let Some(reason) = reason else { return Ok(()) };
    let reason = reason.restore(ctx);
    Err(match reason {
        Ok(reason) => Fault::rejected(&reason),
        Err(e) => Fault::caught(ctx, FaultKind::Thrown, &e),
    })
}

/// What a call has come to that returned this value. `call` is its number if it has one already.
fn outcome_of(
    ctx: &Ctx<'_>,
    state: &State,
    saved: Persistent<Value<'static>>,
    call: Option<Call>,
) -> rquickjs::Result<Outcome> {
    let value = saved.clone().restore(ctx)?;
    if value.is_undefined() && call.is_none() {
        return Ok(Outcome::Done(Data::Undefined));
    }
    let value = match Promise::from_value(value.clone()) {
        Ok(promise) => match promise.result::<Value<'_>>() {
            None => {
                let call = call.unwrap_or_else(|| Call(state.add_call(saved)));
                return Ok(Outcome::Pending(call));
            }
            Some(settled) => {
                if let Some(call) = call {
                    state.forget_call(call.0);
                }
                // Its rejection is told here.
                state.forget_rejection(&saved);
                settled?
            }
        },
        Err(_) => value,
    };
    if let Some(call) = call {
        state.forget_call(call.0);
    }
    Ok(Outcome::Done(Data::from_js(&value)?))
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.state.clear();
        self.runtime.set_interrupt_handler(None);
        self.runtime.set_host_promise_rejection_tracker(None);
    }
}

/// A context with the language, and without what nginx leaves out: `WeakRef`, `performance`,
/// `DOMException`.
pub(crate) fn context(runtime: &Runtime) -> rquickjs::Result<Context> {
    use rquickjs::context::intrinsic::{
        Date, Eval, Json, MapSet, Promise, Proxy, RegExp, RegExpCompiler, TypedArrays,
    };
    type Language = (Date, Eval, RegExpCompiler, RegExp, Json, Proxy, MapSet, TypedArrays, Promise);
    Context::custom::<Language>(runtime)
}

/// The `r` object of the request that the host lends, or the `s` object of its session.
fn subject<'js>(ctx: &Ctx<'js>, state: &State) -> rquickjs::Result<Value<'js>> {
    match state.serves_stream.get() {
        true => stream::session(ctx),
        false => http::request(ctx),
    }
}

/// Adds the common objects to a context.
fn install(ctx: &Ctx<'_>) -> rquickjs::Result<()> {
    let state = state::of(ctx);
    state.keep(ctx, Object::new(ctx.clone())?.into_value());
    state.keep(ctx, ArrayBuffer::new_copy(ctx.clone(), [0_u8; 0])?.into_value());
    globals::install(ctx)?;
    buffer::install(ctx)?;
    process::install(ctx)?;
    http::install(ctx)?;
    late::install(ctx)
}

impl Program {
    fn module<'js>(&self, ctx: &Ctx<'js>, path: &str) -> rquickjs::Result<Module<'js, Declared>> {
        if let Some(module) = builtin::declare(ctx, path)? {
            return Ok(module);
        }
        match self.modules.get(path) {
            Some(bytecode) => bytecode.load(ctx),
            None => Err(Exception::throw_reference(ctx, &format!("Cannot find module \"{path}\""))),
        }
    }
}

impl Resolver for Compiled {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<String> {
        if builtin::is(name) {
            return Ok(name.to_owned());
        }
        let link = self.0.links.get(&(base.to_owned(), name.to_owned()));
        link.cloned().ok_or_else(|| {
            Exception::throw_reference(ctx, &format!("Cannot find module \"{name}\""))
        })
    }
}

impl Loader for Compiled {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<Module<'js, Declared>> {
        self.0.module(ctx, name)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{Instance, Outcome};
    use crate::fault::FaultKind;
    use crate::host::{Facts, NoHost};
    use crate::program::{Import, Program, Sources};
    use crate::state::Limits;
    use crate::value::{Argument, Data};

    fn instance(text: &str) -> Instance {
        let folder = std::env::temp_dir().join(format!(
            "weir-script-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("main.js"), text).unwrap();
        let sources = Sources {
            imports: vec![Import { name: "main".into(), path: "main.js".into() }],
            paths: vec![folder.clone()],
            ..Sources::default()
        };
        let program = Program::compile(&sources);
        std::fs::remove_dir_all(&folder).unwrap();
        let limits = Limits::default();
        Instance::new(Rc::new(program.unwrap()), limits, Rc::new(Facts::default()), &mut NoHost)
            .unwrap()
    }

    #[test]
    fn calls_functions_by_path() {
        let mut i = instance("export default {f: x => x + 1, a: {g: async () => 'g'}}");
        let one = [Argument::Data(Data::Number(1.0))];
        assert_eq!(i.call(&mut NoHost, "main.f", &one), Ok(Outcome::Done(Data::Number(2.0))));
        let g = i.call(&mut NoHost, "main.a.g", &[]);
        assert_eq!(g, Ok(Outcome::Done(Data::Text("g".into()))));
        let none = i.call(&mut NoHost, "main.h", &[]).unwrap_err();
        assert_eq!(none.kind, FaultKind::NoFunction);
    }

    #[test]
    fn a_call_finds_the_function_that_its_name_has_now() {
        let mut i = instance(
            "const all = { f() { all.f = () => 'second'; return 'first'; } };
             export default { all };",
        );
        for expected in ["first", "second", "second"] {
            let f = i.call(&mut NoHost, "main.all.f", &[]);
            assert_eq!(f, Ok(Outcome::Done(Data::Text(expected.into()))));
        }
        assert_eq!(i.has_function(&mut NoHost, "main.all.f.name.g"), Ok(false));
    }

    #[test]
    fn modules_may_export_what_they_declare_later() {
        let mut i = instance(
            "export default {f};\nconst f = g.bind(null, 'f');\nfunction g(x) { return x }",
        );
        let f = i.call(&mut NoHost, "main.f", &[]);
        assert_eq!(f, Ok(Outcome::Done(Data::Text("f".into()))));
    }

    #[test]
    fn a_loop_is_ended_and_cannot_be_caught() {
        let mut i = instance(
            "function f() { for (;;) try { for (;;); } catch (e) {} }\nexport default {f}",
        );
        let fault = i.call(&mut NoHost, "main.f", &[]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Stretch);
        assert_eq!(fault.function.as_deref(), Some("f"));
        assert_eq!(fault.place.unwrap().line, 1);
        let again = i.call(&mut NoHost, "main.f", &[]).unwrap_err();
        assert_eq!(again.kind, FaultKind::Ended);
    }

    #[test]
    fn variables_of_the_environment_can_be_assigned_to() {
        let mut i = instance(
            "export default {set() { process.env.WEIR_T = 'a'; return process.env.WEIR_T },
             unset() { delete process.env.WEIR_T; return 'WEIR_T' in process.env }}",
        );
        let set = i.call(&mut NoHost, "main.set", &[]);
        assert_eq!(set, Ok(Outcome::Done(Data::Text("a".into()))));
        let unset = i.call(&mut NoHost, "main.unset", &[]);
        assert_eq!(unset, Ok(Outcome::Done(Data::Bool(false))));
        // Those of the process are as before.
        assert!(std::env::var_os("WEIR_T").is_none());
    }

    #[test]
    fn stacks_begin_with_the_text_of_the_error() {
        let mut i = instance(
            "class Own extends Error { get name() { return 'Own'; } }
             function stack(e) { return `${e.stack}`; }
             export default {
                 plain: () => stack(new TypeError('a b')),
                 native: () => { try { null.a } catch (e) { return stack(e) } },
                 own: () => stack(new Own('c')),
                 captured: () => { const o = {}; Error.captureStackTrace(o); return stack(o) },
                 prepared: () => {
                     Error.prepareStackTrace = (e, sites) => `${e.message} ${sites.length > 0}`;
                     const made = stack(new Error('d'));
                     Error.prepareStackTrace = undefined;
                     return made;
                 },
                 // An object of which no text can be made.
                 odd: () => stack(Object.assign(new Error(), { message: Symbol() })),
                 assigned: () => { const e = new Error('f'); e.stack = 'g'; return stack(e) },
                 thrown: () => { throw new RangeError('one\\ntwo') },
             }",
        );
        let mut stack = |name: &str| match i.call(&mut NoHost, &format!("main.{name}"), &[]) {
            Ok(Outcome::Done(Data::Text(text))) => text,
            other => panic!("{name}: {other:?}"),
        };
        for (name, first) in [
            ("plain", "TypeError: a b\n    at plain ("),
            ("native", "TypeError: cannot read property 'a' of null\n    at native ("),
            ("own", "Own: c\n    at Own ("),
            ("captured", "Error\n    at captured ("),
            ("odd", "    at odd ("),
        ] {
            let text = stack(name);
            assert!(text.starts_with(first), "{name}: {text}");
        }
        assert_eq!(stack("prepared"), "d true");
        assert_eq!(stack("assigned"), "g");
        // A fault has the text and the frames apart.
        let fault = i.call(&mut NoHost, "main.thrown", &[]).unwrap_err();
        assert_eq!(fault.message, "RangeError: one\ntwo");
        assert!(fault.stack.starts_with("    at thrown ("), "{}", fault.stack);
        assert_eq!(fault.function.as_deref(), Some("thrown"));
    }

    #[test]
    fn an_unhandled_rejection_is_a_fault() {
        let mut i = instance("export default {f() { Promise.reject(new Error('no')) }}");
        let fault = i.call(&mut NoHost, "main.f", &[]).unwrap_err();
        assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::Rejected, "Error: no"));
    }
}
