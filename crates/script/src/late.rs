//! Objects that few scripts name. To make and to drop them takes two fifths of the time of an
//! engine, so an engine makes them when they are first read, if no text of its program names them.
//!
//! A script reaches such an object by a computed name alone, for example
//! `globalThis['cry' + 'pto']`. Objects that a text names are made before any script runs, because
//! a script could change the built-in objects, such as `Object`, with which they are made.

use rquickjs::{Ctx, Object, Result, Value};

use crate::native::{self, Call};
use crate::state::{self, State};
use crate::{crypto, fetch, globals, shared, text};

/// Objects that are made together.
struct Group {
    /// Properties of the global object.
    globals: &'static [&'static str],
    /// A property of `ngx`.
    of_ngx: Option<&'static str>,
    install: fn(&Ctx<'_>) -> Result<()>,
}

const GROUPS: &[Group] = &[
    Group { globals: &["TextDecoder", "TextEncoder"], of_ngx: None, install: text::install },
    Group { globals: &["crypto"], of_ngx: None, install: crypto::install },
    Group {
        globals: &["Headers", "Request", "Response"],
        of_ngx: Some("fetch"),
        install: fetch::install,
    },
    Group { globals: &["SharedMemoryError"], of_ngx: Some("shared"), install: shared::install },
];

/// The groups that a text may name: a bit for each, from the lowest on.
pub(crate) fn named_in(text: &[u8]) -> u32 {
    let is_named = |group: &Group| {
        group.globals.iter().chain(&group.of_ngx).any(|name| has_word(text, name.as_bytes()))
    };
    let named = (0..).zip(GROUPS).filter(|(_, group)| is_named(group));
    named.fold(0, |bits, (number, _)| bits | 1 << number)
}

/// Whether an engine makes a group later.
fn is_late(state: &State, number: usize) -> bool {
    state.late.get() >> number & 1 == 1
}

/// Whether a word stands in a text, in a string or a comment, too.
fn has_word(text: &[u8], word: &[u8]) -> bool {
    let continues = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
    };
    memchr::memmem::find_iter(text, word).any(|at| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        !continues(before) && !continues(text.get(at + word.len()))
    })
}

/// Makes the objects, or what makes them later, as the state says.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    let state = state::of(ctx);
    for (number, group) in GROUPS.iter().enumerate() {
        if !is_late(&state, number) {
            (group.install)(ctx)?;
            continue;
        }
        for (which, &name) in group.globals.iter().enumerate() {
            let which = (number << 8 | which) as u32;
            native::late(&ctx.globals(), name, (get, set), which, false)?;
        }
        if let Some(name) = group.of_ngx {
            let which = (number << 8 | group.globals.len()) as u32;
            native::late(&globals::ngx_of(ctx)?, name, (get, set), which, true)?;
        }
    }
    Ok(())
}

/// Makes a group, if it is not there. Returns the object with the property that was read or
/// assigned to, and its name.
fn make<'js>(call: &Call<'_, 'js>, which: u32) -> Result<Option<(Object<'js>, &'static str)>> {
    let (ctx, state) = (call.ctx(), state::of(call.ctx()));
    let number = (which >> 8) as usize;
    let group = &GROUPS[number];
    if !is_late(&state, number) {
        return Ok(None);
    }
    state.late.set(state.late.get() & !(1 << number));
    let (globals, ngx) = (ctx.globals(), globals::ngx_of(ctx)?);
    for name in group.globals {
        globals.remove(*name)?;
    }
    if let Some(name) = group.of_ngx {
        ngx.remove(name)?;
    }
    (group.install)(ctx)?;
    Ok(match (group.globals.get((which & 0xff) as usize), group.of_ngx) {
        (Some(name), _) => Some((globals, name)),
        (None, Some(name)) => Some((ngx, name)),
        (None, None) => None,
    })
}

fn get<'js>(call: &Call<'_, 'js>, which: u32) -> Result<Value<'js>> {
    match make(call, which)? {
        Some((object, name)) => object.get(name),
        // A getter that a script has taken before.
        None => call.undefined(),
    }
}

fn set<'js>(call: &Call<'_, 'js>, which: u32) -> Result<Value<'js>> {
    if let Some((object, name)) = make(call, which)? {
        object.set(name, call.arg(0))?;
    }
    call.undefined()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{GROUPS, is_late, named_in};
    use crate::host::{Facts, NoHost};
    use crate::instance::Instance;
    use crate::program::Program;
    use crate::state::Limits;

    fn instance(text: &str) -> Instance {
        let program = Program { late: !named_in(text.as_bytes()), ..Program::default() };
        let facts = Rc::new(Facts::default());
        Instance::new(Rc::new(program), Limits::default(), facts, &mut NoHost).unwrap()
    }

    /// The numbers of the groups that an engine has not made.
    fn late(instance: &Instance) -> Vec<usize> {
        (0..GROUPS.len()).filter(|number| is_late(&instance.state, *number)).collect()
    }

    #[test]
    fn objects_are_made_at_once_where_a_text_names_them() {
        for (text, expected) in [
            ("r.readRequestText(); fetched; $crypto", &[0, 1, 2, 3][..]),
            ("ngx.fetch('http://a')", &[0, 1, 3]),
            ("import crypto from 'crypto'", &[0, 2, 3]),
            ("new TextEncoder; ngx['shared'].a", &[1, 2]),
            ("x instanceof Response", &[0, 1, 3]),
        ] {
            assert_eq!(late(&instance(text)), expected, "{text}");
        }
    }

    #[test]
    fn objects_are_made_when_a_computed_name_reads_them() {
        for (text, expected, left) in [
            ("globalThis['cry' + 'pto'].randomUUID().length", "36", &[0, 2, 3][..]),
            ("new globalThis['Head' + 'ers']({a: 1}).get('a')", "'1'", &[0, 1, 3]),
            (
                "ngx['fe' + 'tch'] === ngx['fe' + 'tch'] && typeof ngx['fe' + 'tch']",
                "'function'",
                &[0, 1, 3],
            ),
            (
                "Object.keys(ngx).filter(k => /^(fe|sh)/.test(k)).join()",
                "'fetch,shared'",
                &[0, 1, 2, 3],
            ),
            ("globalThis['Text' + 'Decoder'] = 1; globalThis['Text' + 'Decoder']", "1", &[1, 2, 3]),
            ("Object.values(ngx); Object.values(ngx).length > 9", "true", &[0, 1]),
            ("globalThis.ngx = {}; typeof globalThis['Resp' + 'onse']", "'function'", &[0, 1, 3]),
            ("typeof Object.create(ngx)['sha' + 'red']", "'object'", &[0, 1, 2]),
        ] {
            let mut instance = instance("");
            let got = instance.evaluate(&mut NoHost, "test.js", text);
            assert_eq!(got.as_deref(), Ok(expected), "{text}");
            assert_eq!(late(&instance), left, "{text}");
        }
    }
}
