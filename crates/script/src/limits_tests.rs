//! What a script may use, and what becomes of one that uses more. Time is counted in looks of the
//! engine at the clock, so that no test depends on the machine.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::fault::{Fault, FaultKind};
use crate::host::{Facts, NoHost};
use crate::instance::{Instance, Outcome};
use crate::program::Program;
use crate::state::Limits;

thread_local! {
    static NOW_USEC: Cell<u64> = const { Cell::new(0) };
}

/// A clock by which a millisecond passes between two looks.
fn clock() -> u64 {
    NOW_USEC.replace(NOW_USEC.get() + 1000)
}

fn limits() -> Limits {
    Limits {
        stretch: Duration::from_millis(100),
        cpu: Duration::from_millis(250),
        ..Limits::default()
    }
}

fn instance() -> Instance {
    instance_within(limits())
}

fn instance_within(limits: Limits) -> Instance {
    let facts = Rc::new(Facts::default());
    let made = Instance::new(Rc::new(Program::default()), limits, facts, &mut NoHost);
    let instance = made.unwrap();
    instance.state.meter.set_clock(clock);
    instance
}

/// Evaluates a text in an engine of its own.
fn run(text: &str) -> Result<String, Fault> {
    instance().evaluate(&mut NoHost, "test.js", text)
}

/// The message of a script that must fail otherwise than by time.
fn thrown(text: &str) -> String {
    let fault = run(text).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Thrown, "{text}: {fault}");
    fault.message
}

#[test]
fn endless_scripts_are_ended_and_nothing_catches_that() {
    for text in [
        "while (1);",
        "for (;;) try { for (;;); } catch (e) {} finally { continue }",
        "(function f() { try { for (;;); } finally { f() } })()",
        "new Promise(() => { for (;;); }).catch(() => 1)",
        "(async () => { try { for (;;); } catch (e) {} })()",
        "let p = Promise.resolve(); (function f() { p.then(f) })()",
        "(async () => { for (;;) await 1 })()",
        "new Proxy({}, { get() { for (;;); } }).a",
        "JSON.stringify({ toJSON() { for (;;); } })",
        "'a'.repeat(30).match(/(a+)+b/)",
        "/^(([a-z])+.)+[A-Z]([a-z])+$/.test('a'.repeat(40))",
        "'x'.replace(/x/, () => { for (;;); })",
        "function* f() { for (;;) yield 1 } for (let x of f());",
    ] {
        let fault = run(text).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Stretch, "{text}: {fault}");
    }
}

#[test]
fn the_fault_says_where_the_script_was() {
    let fault = run("function outer() {\n  for (;;);\n}\nouter()").unwrap_err();
    assert_eq!(fault.function.as_deref(), Some("outer"));
    assert_eq!(fault.place.unwrap().file, "test.js");
    assert_eq!(fault.message, "the script ran for more than 100 ms at a stretch");
}

#[test]
fn stretches_of_a_request_add_up() {
    let mut instance = instance();
    // Some tens of looks each, because the engine looks every few thousand steps.
    let text = "for (let i = 0; i < 100_000; i++);";
    let faults: Vec<Fault> = (0..100)
        .map_while(|_| match instance.evaluate(&mut NoHost, "test.js", text) {
            Ok(_) => Some(None),
            Err(fault) => Some(Some(fault)),
        })
        .flatten()
        .collect();
    assert_eq!(faults[0].kind, FaultKind::Cpu);
    assert!(faults[1..].iter().all(|fault| fault.kind == FaultKind::Ended));
    assert!(
        (2..=90).contains(&(100 - faults.len())),
        "{} calls were within the limit",
        100 - faults.len()
    );
}

#[test]
fn memory_has_a_limit() {
    for text in [
        "'x'.repeat(2 ** 30 - 2)",
        "let s = 'abcdefgh'; for (;;) s += s",
        "let a = []; for (;;) a.push(new Array(1000).fill(1))",
        "new Uint8Array(2 ** 30)",
        "Buffer.alloc(2 ** 31)",
        "Buffer.from({length: 2 ** 31})",
        "new ArrayBuffer(2 ** 32)",
        "let m = new Map(); for (let i = 0;; i++) m.set(i, {})",
        "'a,'.repeat(5_000_000).split(',')",
        "JSON.parse('[' + '1,'.repeat(3_000_000) + '1]')",
    ] {
        let fault = run(text).unwrap_err();
        // Filling the memory may take as long as the script has.
        let words =
            ["out of memory", "memory ran out", "string too long", "invalid array buffer length"];
        let is_limit = words.iter().any(|word| fault.message.contains(word));
        let is_limit = is_limit || fault.kind == FaultKind::Stretch;
        assert!(is_limit, "{text}: {fault}");
    }
    assert_eq!(thrown("'x'.repeat(2 ** 30)"), "RangeError: invalid string length");
}

#[test]
fn memory_of_natives_counts_and_is_given_back() {
    let hashes = "let a = []; for (let i = 0; i < 20_000; i++) a.push(c.createHash('md5'))";
    let import = |rest: &str| {
        // Scripts have no imports: the module comes by its promise.
        format!("import('crypto').then(m => {{ const c = m.default; {rest} }})")
    };
    let fault = run(&import(
        &format!("{hashes}; {hashes}").replace("let a = []; for", "var a = a || []; for"),
    ))
    .unwrap_err();
    assert!(fault.message.contains("out of memory"), "{fault}");
    let text = import("for (let i = 0; i < 60_000; i++) c.createHash('md5')");
    run(&text).unwrap();
}

/// The engine keeps a value that it is given for its stacks, and must release the one before.
#[test]
fn memory_of_settings_for_stacks_is_given_back() {
    let hoard = "{ valueOf: () => 3, bytes: new Uint8Array(1 << 20) }";
    for text in [
        format!("for (let i = 0; i < 50; i++) Error.stackTraceLimit = {hoard}"),
        format!("for (let i = 0; i < 50; i++) {{ Error.prepareStackTrace = {hoard}; Error() }}"),
    ] {
        run(&text).unwrap();
    }
    let text = "Error.stackTraceLimit = { valueOf: () => 3 }; Error.stackTraceLimit";
    assert_eq!(run(text).unwrap(), "3");
}

#[test]
fn deep_recursion_is_an_error_that_scripts_can_catch() {
    for text in [
        "(function f() { f() })()",
        "(function f(a) { return [1].map(() => f(a)) })()",
        "let f = () => new (class { constructor() { f() } }); f()",
        "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; JSON.stringify(a)",
        "JSON.parse('['.repeat(1e5))",
        "let o = { get a() { return this.a } }; o.a",
        "let o = { toString() { return btoa(this) } }; btoa(o)",
        "let o = { toString() { return Buffer.from(['']).indexOf(this) } }; 'a' + o",
        "new RegExp('('.repeat(1e5) + ')'.repeat(1e5))",
    ] {
        let message = thrown(text);
        let right = ["stack", "call stack", "too many", "nested", "not a string", "Maximum"];
        assert!(right.iter().any(|word| message.contains(word)), "{text}: {message}");
        let caught =
            format!("try {{ eval_me() }} catch (e) {{}} function eval_me() {{ {text} }} 'on'");
        assert_eq!(run(&caught).unwrap(), "'on'", "{text}");
    }
}

#[test]
fn code_cannot_be_made_of_strings() {
    assert_eq!(thrown("eval('1')"), "ReferenceError: eval is not defined");
    let disabled = "TypeError: function constructor is disabled in \"safe\" mode";
    for text in [
        "new Function('return 1')",
        "Function('return 1')",
        "(() => 1).constructor('1')",
        "(async () => 1).constructor('1')",
        "(function* () {}).constructor('1')",
        "(async function* () {}).constructor('1')",
        "Object.getPrototypeOf((async () => 1).constructor).constructor('1')",
    ] {
        assert_eq!(thrown(text), disabled, "{text}");
    }
    let whole = "Function.prototype.call.call(x => x, null, 1) === 1 && run instanceof Function";
    assert_eq!(run(&format!("function run() {{}} {whole}")).unwrap(), "true");
}

/// Builtins with arguments that make them work for long. A look at the clock must come while they
/// work; those of [`DEAF`] have none, so that only their own bounds (the limit on memory) end them.
const LONG: &[(&str, &str)] = &[
    ("let a = new Array(2e5).fill(3)", "a.map(x => x)"),
    ("let a = new Array(2e5).fill(3)", "a.reduce((x, y) => x + y)"),
    ("let a = new Array(2e5).fill(3)", "for (let x of a);"),
    ("let s = 'ab'.repeat(1e6)", "s.replace(/a/g, 'c')"),
    ("let s = 'ab'.repeat(1e5)", "s.split(/a/)"),
    ("let s = 'ab'.repeat(1e6)", "s.match(/(ab)*c/)"),
    ("let u = new Uint8Array(1e6)", "u.map(x => x + 1)"),
    ("let m = new Map(); for (let i = 0; i < 1e5; i++) m.set(i, i)", "m.forEach(() => 0)"),
];

/// Builtins that never look at the clock, however long they work. What they work on is bounded by
/// the limit on memory, so that the worst of them takes tens of milliseconds; BigInt's division and
/// conversion grow with the square of the number's length.
///
/// An object may lie about its length, and an array may have one without elements: the methods of
/// `Array.prototype` then look at each index, of which there are up to 2^53, and at no clock
/// (`[].indexOf.call({length: 2 ** 52}, 1)`). No limit of this crate ends that; the watchdog of the
/// workers reports it.
const DEAF: &[(&str, &str)] = &[
    ("let a = new Array(2e5).fill(3)", "a.fill(1)"),
    ("let a = new Array(2e5).fill(3)", "a.reverse()"),
    ("let a = new Array(2e5).fill(3)", "a.sort()"),
    ("let a = new Array(2e5).fill(3)", "a.join('')"),
    ("let a = new Array(2e5).fill(3)", "a.indexOf(4)"),
    ("let a = new Array(2e5).fill(3)", "a.includes(4)"),
    ("let a = new Array(2e5).fill(3)", "a.concat(a)"),
    ("let a = new Array(2e5).fill(3)", "a.slice()"),
    ("let u = new Uint8Array(1e6)", "u.sort()"),
    ("let u = new Uint8Array(1e6)", "u.reverse()"),
    ("let u = new Uint8Array(1e6)", "u.fill(1)"),
    ("let s = 'ab'.repeat(1e6)", "s.indexOf('c')"),
    ("let s = 'ab'.repeat(1e6)", "s.toUpperCase()"),
    ("let s = 'ab'.repeat(1e6)", "s.normalize('NFD')"),
    ("let s = 'ab'.repeat(1e6)", "encodeURIComponent(s)"),
    ("let a = new Array(2e5).fill(3)", "JSON.stringify(a)"),
    ("let s = 'ab'.repeat(1e6)", "s.replaceAll('a', 'c')"),
    ("let k = {}; for (let i = 0; i < 1e5; i++) k['k' + i] = i", "Object.keys(k).length"),
    ("let n = 1n << 100_000n", "n * n"),
    ("let n = 1n << 100_000n", "n.toString()"),
    ("let n = 1n << 100_000n", "(n * n) / (n - 1n)"),
];

/// How often the engine looked at the clock for the second text of a pair, and how long it took.
fn looks(setup: &str, work: &str) -> (u64, u64) {
    let mut instance = instance_within(Limits { memory_bytes: 256 << 20, ..limits() });
    instance.evaluate(&mut NoHost, "setup.js", setup).unwrap();
    // Every look counts from here on: the counter of the engine starts anew with each.
    let before = instance.state.meter.polls();
    let started = os::clock::thread_usec();
    let done = instance.evaluate(&mut NoHost, "work.js", work);
    let took = os::clock::thread_usec() - started;
    if let Err(fault) = done {
        assert_eq!(fault.kind, FaultKind::Stretch, "{work}: {fault}");
    }
    (instance.state.meter.polls() - before, took)
}

#[test]
fn long_builtins_look_at_the_clock() {
    let mut deaf: Vec<&str> = Vec::new();
    for (setup, work) in LONG {
        let (looks, took) = looks(setup, work);
        println!("{looks:8} looks {took:8} us  {work}");
        deaf.extend((looks <= 1).then_some(*work));
    }
    assert!(deaf.is_empty(), "not interrupted: {deaf:?}");
}

#[test]
fn builtins_that_do_not_look_are_known() {
    for (setup, work) in DEAF {
        let (looks, took) = looks(setup, work);
        println!("{looks:8} looks {took:8} us  {work}");
        // One may fall to the code around it.
        assert!(looks <= 1, "{work} looks at the clock: move it to the other list");
    }
}

/// Natives on large data, each of which is one step for the engine, which looks at the clock once
/// in 10,000 of them.
const NATIVES: &[(&str, &str)] = &[
    ("let b = Buffer.alloc(1e6)", "b.toString('hex')"),
    ("let b = Buffer.alloc(1e6)", "b.indexOf('x')"),
    ("let b = Buffer.alloc(1e6), d = Buffer.alloc(1e6)", "b.copy(d)"),
    ("let b = Buffer.alloc(1e6)", "b.fill('ab')"),
    ("let s = btoa('a'.repeat(1e6))", "atob(s)"),
    ("let s = 'a'.repeat(1e6)", "new TextEncoder().encode(s)"),
    ("let t = '[' + '1,'.repeat(1e5) + '1]'", "JSON.parse(t)"),
    ("let a = new Array(1e5).fill(1)", "JSON.stringify(a)"),
    ("let b = Buffer.alloc(1e6)", "crypto.subtle.digest('SHA-256', b)"),
    ("let b = Buffer.alloc(10)", "crypto.subtle.generateKey({name: 'Ed25519'}, true, ['sign'])"),
    ("let x = require('xml').parse(`<r>${'a'.repeat(1e5)}</r>`)", "x.r.$text"),
    ("let x = require('xml').parse(`<r>${'<a/>'.repeat(1e2)}</r>`)", "x.r.b"),
    ("let x = require('xml').parse(`<r>${'<a/>'.repeat(1e2)}</r>`)", "Object.keys(x.r)"),
];

#[test]
fn natives_look_at_the_clock_when_they_have_worked() {
    for (setup, work) in NATIVES {
        let mut instance = instance_within(Limits { memory_bytes: 256 << 20, ..limits() });
        let setup = format!("var n = 0; {setup}");
        instance.evaluate(&mut NoHost, "setup.js", &setup).unwrap();
        let text = format!("for (; n < 2000; n++) {{ try {{ {work} }} catch (e) {{ n = 3000 }} }}");
        let fault = instance.evaluate(&mut NoHost, "work.js", &text).map(|_| work).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Stretch, "{work}: {fault}");
    }
}

/// Single calls that go through what the script gives for longer than it may run: a setup and the
/// call.
const THROUGH: &[(&str, &str)] = &[
    ("let a = []; a[1e8] = 1", "require('querystring').stringify({a})"),
    ("let a = []; a.length = 2 ** 32 - 1", "require('querystring').stringify({a})"),
    ("let s = 'a&'.repeat(1e6)", "require('querystring').parse(s, null, null, {maxKeys: 0})"),
    ("let s = '&'.repeat(1e7)", "require('querystring').parse(s, null, null, {maxKeys: 0})"),
    ("let o = {length: 1e7}", "Buffer.from(o)"),
    ("let a = Array(2e3).fill('x'.repeat(1 << 16))", "console.log.apply(console, a)"),
    ("let a = Array(2e3).fill('x'.repeat(1 << 16))", "ngx.log.apply(ngx, a)"),
    (
        "let s = Array.from({length: 30}, (_, i) => ` xmlns:a${i}='u'`).join('');
         let x = require('xml').parse(`<r${s}>${'<a/>'.repeat(1e4)}</r>`)",
        "require('xml').c14n(x)",
    ),
    (
        "let x = require('xml').parse(`<r><b/>${'<a/>'.repeat(1e4)}</r>`), a = Array(200).fill(x.r.b)",
        "x.r.$tags = a",
    ),
];

#[test]
fn natives_look_at_the_clock_while_they_go_through_what_is_given() {
    for (setup, call) in THROUGH {
        let mut instance = instance_within(Limits { memory_bytes: 256 << 20, ..limits() });
        instance.state.meter.set_clock(|| 0);
        instance.evaluate(&mut NoHost, "setup.js", setup).unwrap();
        instance.state.meter.set_clock(clock);
        let fault = instance.evaluate(&mut NoHost, "work.js", call).map(|_| call).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Stretch, "{call}: {fault}");
    }
}

/// The library's own ways to go through an array panic if it is as long as these.
#[test]
fn arrays_may_have_any_length() {
    let length = "const all = []; all.length = 2 ** 31;";
    for (text, kind, words) in [
        ("Buffer.concat(all)", FaultKind::Thrown, "list[0]"),
        ("require('xml').parse('<a/>').a.$tags = all", FaultKind::Thrown, "value is not XMLNode"),
        (
            "crypto.subtle.importKey('raw', Buffer.alloc(16), 'AES-GCM', true, all)",
            FaultKind::Rejected,
            "unknown key usage",
        ),
        // An array of ours, which the script makes longer.
        (
            "Object.defineProperty(Array.prototype, 0, {
                 get: () => ['a', 'b'],
                 set() { this.length = 2 ** 31; },
             });
             ngx.fetch('http://a/', {headers: {a: 'b'}})",
            FaultKind::Rejected,
            "array",
        ),
    ] {
        let fault = run(&format!("{length} {text}")).unwrap_err();
        assert_eq!(fault.kind, kind, "{text}: {fault}");
        assert!(fault.message.contains(words), "{text}: {fault}");
    }
}

/// Many references to one text become as many copies outside of the engine.
#[test]
fn headers_of_a_fetch_have_the_limit_of_memory() {
    let text = "const long = 'x'.repeat(1 << 20);
        Object.defineProperty(Array.prototype, 0, {
            set() {
                for (let i = 0; i < 40; i++) Object.defineProperty(this, i, {value: ['a', long]});
            },
        });
        ngx.fetch('http://a/', {headers: {a: 'b'}})";
    let fault = run(text).unwrap_err();
    assert!(fault.message.contains("out of memory"), "{fault}");
}

/// A single call that would work for longer than the script may run.
#[test]
fn compression_looks_at_the_clock_while_it_works() {
    for call in [
        "z.deflateSync(Buffer.alloc(16 << 20))",
        "z.deflateRawSync(Buffer.alloc(16 << 20).fill('abc'), {level: 9})",
        "z.inflateSync(packed)",
    ] {
        let mut instance = instance_within(Limits { memory_bytes: 256 << 20, ..limits() });
        instance.state.meter.set_clock(|| 0);
        let setup = "import('zlib').then(m => {
            globalThis.z = m.default;
            globalThis.packed = z.deflateSync(Buffer.alloc(16 << 20));
        })";
        instance.evaluate(&mut NoHost, "setup.js", setup).unwrap();
        instance.state.meter.set_clock(clock);
        let fault = instance.evaluate(&mut NoHost, "work.js", call).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Stretch, "{call}: {fault}");
    }
}

#[test]
fn limits_may_change_between_calls() {
    let mut instance = instance_within(Limits { memory_bytes: 1 << 20, ..limits() });
    let text = "new Uint8Array(4 << 20).length";
    assert!(instance.evaluate(&mut NoHost, "a.js", text).is_err());
    instance.set_limits(Limits { memory_bytes: 64 << 20, ..limits() });
    assert_eq!(instance.evaluate(&mut NoHost, "a.js", text).unwrap(), "4194304");
    instance.set_limits(Limits { stretch: Duration::ZERO, ..limits() });
    let fault = instance.evaluate(&mut NoHost, "a.js", "for (;;);").unwrap_err();
    assert_eq!(fault.message, "the script ran for more than 0 ms at a stretch");
}

#[test]
fn every_function_survives_wild_arguments() {
    // Every function that can be reached from the global object, with arguments of all kinds. Most
    // calls throw; none may crash, and none may use more than it is given.
    let text = r#"
        const wild = [undefined, null, -1, 2 ** 53, NaN, 'x'.repeat(1000), Symbol('s'), [1, 2, 3],
            new Uint8Array(1000), new ArrayBuffer(64), 10n ** 50n, () => 1, /(a*)*b/, new Map(),
            { length: 1000, toString() { throw 1 } }, new Proxy({}, {}), Buffer.from('ab')];
        const seen = new Set(), functions = [];
        function walk(value) {
            if (value === null || (typeof value != 'object' && typeof value != 'function')) return;
            if (seen.has(value)) return;
            seen.add(value);
            if (typeof value == 'function') functions.push(value);
            for (const key of Reflect.ownKeys(value)) {
                const d = Reflect.getOwnPropertyDescriptor(value, key);
                if (d === undefined) continue;
                [d.value, d.get, d.set].forEach(walk);
            }
            walk(Reflect.getPrototypeOf(value));
        }
        walk(globalThis);
        functions.length
    "#;
    let mut reached = 0;
    // Each function runs in an engine of its own until none is left: one call may end an engine.
    for number in 0.. {
        let mut instance = instance();
        let count: usize =
            instance.evaluate(&mut NoHost, "walk.js", text).unwrap().parse().unwrap();
        if number >= count {
            break;
        }
        let call = format!(
            "const f = functions[{number}];
             for (const a of wild) for (const b of [a, wild[3], wild[5], wild[11]]) {{
                 if (f.name == 'kill' || f.name == 'generateKey') break;
                 try {{ f.call(a, b, a, 1) }} catch (e) {{}}
                 try {{ new f(a, b) }} catch (e) {{}}
             }}
             'done'"
        );
        match instance.evaluate(&mut NoHost, "call.js", &call) {
            Ok(_) => {}
            Err(fault) => assert!(
                matches!(fault.kind, FaultKind::Stretch | FaultKind::Rejected | FaultKind::Thrown),
                "{fault}"
            ),
        }
        reached += 1;
    }
    assert!(reached > 500, "{reached} functions");
}

#[test]
fn an_ended_instance_runs_nothing_more() {
    let mut instance = instance();
    let first = instance.evaluate(&mut NoHost, "a.js", "for (;;);").unwrap_err();
    assert_eq!(first.kind, FaultKind::Stretch);
    let second = instance.call(&mut NoHost, "main.f", &[]);
    assert_eq!(second.map(|_: Outcome| ()).unwrap_err().kind, FaultKind::Ended);
}
