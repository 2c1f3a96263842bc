//! Variables: the registry built at load, and their evaluation in a session.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::pattern::Pattern;
use conf::template::{VarId, VarNames};
use conf::{ConfError, Word};

use crate::module::Modules;
use crate::session::Session;
use crate::watch;

mod carried;
mod values;

pub use carried::{carried, keep};
use values::Slot;
pub use values::Values;

/// Writes a variable's value; `false` where it has none ("not found").
pub type WriteFn<S> = fn(&mut S, &mut Vec<u8>) -> bool;
/// The same for a family of names (`$arg_…`): the rest of the name follows the session.
pub type PrefixFn<S> = fn(&mut S, &[u8], &mut Vec<u8>) -> bool;
/// Computes a value that is kept for the session's lifetime.
pub type ValueFn<S> = Rc<dyn Fn(&mut S) -> Option<Bytes>>;
/// The effect of `set $name` on a built-in variable.
pub type SetFn<S> = fn(&mut S, Bytes);
/// The effect of `set $name` on a variable that a directive defines (`keyval`).
pub(crate) type AssignFn<S> = Rc<dyn Fn(&mut S, Bytes)>;

/// A built-in variable or a family of them.
pub struct VarDef<S> {
    /// Without the dollar; a family's name ends in `_`.
    pub name: &'static str,
    /// The source of its value.
    pub get: Get<S>,
    /// Whether `set`, `map` and the like may define it anew, and what setting does.
    pub set: Option<SetFn<S>>,
    /// Whether another module may define a variable of the same name.
    pub changeable: bool,
}

// Not derived: functions can be copied whatever they are called with.
impl<S> Clone for VarDef<S> {
    fn clone(&self) -> VarDef<S> {
        *self
    }
}

impl<S> Copy for VarDef<S> {}

impl<S> VarDef<S> {
    /// A read-only variable that is computed on each use.
    pub const fn new(name: &'static str, get: WriteFn<S>) -> VarDef<S> {
        VarDef { name, get: Get::Write(get), set: None, changeable: false }
    }

    /// A family of variables by prefix.
    pub const fn prefix(name: &'static str, get: PrefixFn<S>) -> VarDef<S> {
        VarDef { name, get: Get::Prefix(get), set: None, changeable: false }
    }

    /// A read-only variable that is computed once a request and kept.
    pub const fn kept(name: &'static str, get: WriteFn<S>) -> VarDef<S> {
        VarDef { name, get: Get::Kept(get), set: None, changeable: false }
    }

    /// The same with a setter for `set $name value`.
    pub const fn settable(name: &'static str, get: WriteFn<S>, set: SetFn<S>) -> VarDef<S> {
        VarDef { name, get: Get::Write(get), set: Some(set), changeable: true }
    }

    /// The same, but `set` and others may define a variable of that name.
    pub const fn changeable(mut self) -> VarDef<S> {
        self.changeable = true;
        self
    }
}

/// The way in which a built-in variable gets its value.
pub enum Get<S> {
    /// Cheap: written out on each use.
    Write(WriteFn<S>),
    /// Computed once a session.
    Kept(WriteFn<S>),
    /// A family.
    Prefix(PrefixFn<S>),
}

// Not derived: functions can be copied whatever they are called with.
impl<S> Clone for Get<S> {
    fn clone(&self) -> Get<S> {
        *self
    }
}

impl<S> Copy for Get<S> {}

/// One variable that some directive refers to or defines.
struct Var<S> {
    /// Its whole name.
    name: Bytes,
    evaluation: Evaluation<S>,
    set: Setter<S>,
    changeable: bool,
    /// Whether it is a member of a family (`$http_…`) that no directive defines.
    is_member: bool,
    seen_at: Option<Word>,
    /// Whether only directives mention it that no request uses without a `server` block.
    for_servers: bool,
}

/// What storing a value in a variable does.
enum Setter<S> {
    /// The session keeps the value.
    Kept,
    BuiltIn(SetFn<S>),
    Defined(AssignFn<S>),
}

enum Evaluation<S> {
    /// Referred to, not defined yet.
    Undefined,
    /// `$1`…: the n-th capture of the last regular expression.
    Capture(usize),
    Write(WriteFn<S>),
    Kept(WriteFn<S>),
    Prefix(PrefixFn<S>, Bytes),
    /// Evaluated once a session and kept (`map`, `geo`, `split_clients`).
    Value(ValueFn<S>),
    /// Evaluated on each use (`map … volatile`).
    Volatile(ValueFn<S>),
    /// Only what `set` stored.
    Stored,
    /// Only what a named group of a regular expression, or `set`, stored.
    Captured,
}

/// A built-in variable, and the module to name where computing it takes long.
struct BuiltIn<S: 'static> {
    def: &'static VarDef<S>,
    watched: Option<&'static str>,
}

impl<S> Clone for BuiltIn<S> {
    fn clone(&self) -> BuiltIn<S> {
        *self
    }
}

impl<S> Copy for BuiltIn<S> {}

impl<S: Session> BuiltIn<S> {
    /// The variable's evaluation; `rest` is the part of its name behind a family's prefix.
    fn evaluation(self, rest: &[u8]) -> Evaluation<S> {
        let BuiltIn { def, watched } = self;
        let Some(module) = watched else {
            return match def.get {
                Get::Write(f) => Evaluation::Write(f),
                Get::Kept(f) => Evaluation::Kept(f),
                Get::Prefix(_) if rest.is_empty() => Evaluation::Undefined,
                Get::Prefix(f) => Evaluation::Prefix(f, Bytes::copy_from_slice(rest)),
            };
        };
        match def.get {
            Get::Write(f) => Evaluation::Volatile(watched_value(module, f)),
            Get::Kept(f) => Evaluation::Value(watched_value(module, f)),
            Get::Prefix(_) if rest.is_empty() => Evaluation::Undefined,
            Get::Prefix(f) => {
                let rest = Bytes::copy_from_slice(rest);
                Evaluation::Volatile(watched_value(module, move |s, out| f(s, &rest, out)))
            }
        }
    }
}

/// The value that `write` writes, with the module to name where that takes long.
fn watched_value<S: Session>(
    module: &'static str,
    write: impl Fn(&mut S, &mut Vec<u8>) -> bool + 'static,
) -> ValueFn<S> {
    Rc::new(move |s| {
        let mut out = Vec::new();
        let found = watch::call(s, module, |s| write(s, &mut out));
        found.then(|| Bytes::from(out))
    })
}

/// All variables by name, while loading.
pub struct Registry<S: 'static> {
    vars: Vec<Var<S>>,
    by_name: HashMap<Bytes, u32>,
    builtin: HashMap<&'static str, BuiltIn<S>>,
    prefixes: Vec<BuiltIn<S>>,
    /// Patterns by text and whether their case matters: large configurations repeat the same few in
    /// every server, and compiling one costs more than all else in its location.
    patterns: HashMap<(Bytes, bool), Rc<Pattern>>,
}

impl<S: Session> Registry<S> {
    /// A registry that knows the variables of the given modules.
    pub fn new(modules: Modules<S>) -> Registry<S> {
        let mut builtin = HashMap::new();
        let mut prefixes = Vec::new();
        for m in modules {
            let watched = m.added.then_some(m.name);
            for def in m.variables {
                let d = BuiltIn { def, watched };
                match def.get {
                    Get::Prefix(_) => prefixes.push(d),
                    Get::Write(_) | Get::Kept(_) => {
                        builtin.insert(def.name, d);
                    }
                }
            }
        }
        let patterns = HashMap::new();
        Registry { vars: Vec::new(), by_name: HashMap::new(), builtin, prefixes, patterns }
    }

    /// Reads a pattern for a list, once for all places where it stands.
    pub(crate) fn pattern(
        &mut self,
        word: &Word,
        text: &[u8],
        caseless: bool,
    ) -> Result<Rc<Pattern>, ConfError> {
        let key = (Bytes::copy_from_slice(text), caseless);
        if let Some(known) = self.patterns.get(&key) {
            return Ok(known.clone());
        }
        let pattern = Rc::new(Pattern::for_list(word, text, caseless)?);
        self.patterns.insert(key, pattern.clone());
        Ok(pattern)
    }

    fn id_of(&mut self, name: &[u8], at: Option<&Word>) -> VarId {
        let name = name.to_ascii_lowercase();
        if let Some(&i) = self.by_name.get(name.as_slice()) {
            let var = &mut self.vars[i as usize];
            if var.for_servers {
                (var.for_servers, var.seen_at) = (false, at.cloned());
            }
            return VarId(i);
        }
        let def = std::str::from_utf8(&name).ok().and_then(|n| self.builtin.get(n).copied());
        let name = Bytes::from(name);
        let mut var = Var {
            name: name.clone(),
            evaluation: Evaluation::Undefined,
            set: Setter::Kept,
            changeable: true,
            is_member: false,
            seen_at: at.cloned(),
            for_servers: false,
        };
        if let Some(d) = def {
            var.set = d.def.set.map_or(Setter::Kept, Setter::BuiltIn);
            var.changeable = d.def.changeable;
            var.evaluation = d.evaluation(b"");
        }
        let i = self.vars.len() as u32;
        self.vars.push(var);
        self.by_name.insert(name, i);
        VarId(i)
    }

    /// Finds or makes the variable that `word` names with a leading `$`, for a directive that
    /// defines it; `None` where it is built in with a setter, which then is what "defining" it
    /// means.
    pub fn define(&mut self, word: &Word) -> Result<VarId, ConfError> {
        let text = word.bytes();
        let name = match text.strip_prefix(b"$") {
            Some(n) if !n.is_empty() => n,
            _ => {
                let m = format!("invalid variable name \"{}\"", word.lossy());
                return Err(ConfError::at(word, m));
            }
        };
        let id = self.id_of(name, Some(word));
        let var = &mut self.vars[id.0 as usize];
        if !var.changeable {
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(ConfError::at(word, format!("the duplicate \"{name}\" variable")));
        }
        Ok(id)
    }

    /// Makes the variable one whose value is computed once a request (`volatile`: on each use).
    pub fn define_value(
        &mut self,
        word: &Word,
        volatile: bool,
        value: ValueFn<S>,
    ) -> Result<VarId, ConfError> {
        let id = self.define(word)?;
        self.vars[id.0 as usize].evaluation =
            if volatile { Evaluation::Volatile(value) } else { Evaluation::Value(value) };
        Ok(id)
    }

    /// Makes the variable one whose value is computed on each use, and that can be assigned to.
    ///
    /// # Errors
    /// As [`Registry::define`].
    pub fn define_assignable(
        &mut self,
        word: &Word,
        value: ValueFn<S>,
        assign: AssignFn<S>,
    ) -> Result<VarId, ConfError> {
        let id = self.define_value(word, true, value)?;
        self.vars[id.0 as usize].set = Setter::Defined(assign);
        Ok(id)
    }

    /// Makes the variable one that holds what is stored in it at run time (`set`), if it is not
    /// computed by something else. [`assign`] stores.
    pub fn define_stored(&mut self, word: &Word) -> Result<VarId, ConfError> {
        let id = self.define(word)?;
        let var = &mut self.vars[id.0 as usize];
        if matches!(var.evaluation, Evaluation::Undefined) {
            var.evaluation = Evaluation::Stored;
        }
        Ok(id)
    }

    /// The variable that a named group of a regular expression sets.
    pub(crate) fn named_capture(&mut self, name: &str, at: &Word) -> Result<VarId, ConfError> {
        let id = self.id_of(name.as_bytes(), Some(at));
        let var = &mut self.vars[id.0 as usize];
        if !var.changeable {
            return Err(ConfError::at(at, format!("the duplicate \"{name}\" variable")));
        }
        // Whatever the variable was, it now has no value until the expression matched.
        var.evaluation = Evaluation::Captured;
        Ok(id)
    }

    /// The end of loading: gives families their names and refuses what nobody defined. Without a
    /// `server` block, variables that only [`ForServers`] mentioned may stay undefined.
    ///
    /// # Errors
    /// `unknown "NAME" variable`, at the place that names it first.
    pub fn finish(mut self, has_servers: bool) -> Result<Variables<S>, ConfError> {
        for var in &mut self.vars {
            // A name that only `set` defines still belongs to its family where nothing was stored.
            if !matches!(var.evaluation, Evaluation::Undefined | Evaluation::Stored) {
                continue;
            }
            let found = self
                .prefixes
                .iter()
                .filter(|d| var.name.starts_with(d.def.name.as_bytes()))
                .max_by_key(|d| d.def.name.len());
            if let Some(d) = found {
                var.is_member = matches!(var.evaluation, Evaluation::Undefined);
                var.evaluation = d.evaluation(&var.name[d.def.name.len()..]);
                continue;
            }
            if matches!(var.evaluation, Evaluation::Stored) || var.for_servers && !has_servers {
                continue;
            }
            let m = format!("unknown \"{}\" variable", String::from_utf8_lossy(&var.name));
            return Err(match &var.seen_at {
                Some(w) => ConfError::at(w, m),
                None => ConfError::new(m),
            });
        }
        let Registry { vars, by_name, builtin, prefixes, .. } = self;
        Ok(Variables { vars, by_name, builtin, prefixes })
    }
}

/// The variables of a configuration: by number, and by name where that is known at run time only.
pub struct Variables<S: 'static> {
    vars: Vec<Var<S>>,
    by_name: HashMap<Bytes, u32>,
    builtin: HashMap<&'static str, BuiltIn<S>>,
    prefixes: Vec<BuiltIn<S>>,
}

impl<S> Variables<S> {
    /// Says whether the configuration names this variable.
    pub fn names(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }

    fn name(&self, id: VarId) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.vars[id.0 as usize].name)
    }
}

impl<S: Session> VarNames for Registry<S> {
    fn var_id(&mut self, name: &[u8], at: &Word) -> Result<VarId, ConfError> {
        // `${1}`, for a group that a digit follows.
        if let [n @ b'1'..=b'9'] = name {
            return Ok(self.capture_id(n - b'0'));
        }
        Ok(self.id_of(name, Some(at)))
    }

    fn capture_id(&mut self, n: u8) -> VarId {
        let id = self.id_of(n.to_string().as_bytes(), None);
        self.vars[id.0 as usize].evaluation = Evaluation::Capture(n.into());
        id
    }
}

/// The registry for directives that only the requests of a `server` block use, such as
/// `proxy_set_header`: nginx looks their variables up when a server inherits them, so that an
/// `http` block without servers may name unknown ones.
pub(crate) struct ForServers<'a, S: 'static>(pub &'a mut Registry<S>);

impl<S: Session> VarNames for ForServers<'_, S> {
    fn var_id(&mut self, name: &[u8], at: &Word) -> Result<VarId, ConfError> {
        let known = self.0.vars.len();
        let id = match self.0.by_name.get(name.to_ascii_lowercase().as_slice()) {
            // Keeps what earlier directives said of it.
            Some(&i) => VarId(i),
            None => self.0.var_id(name, at)?,
        };
        if id.0 as usize == known {
            self.0.vars[known].for_servers = true;
        }
        Ok(id)
    }

    fn capture_id(&mut self, n: u8) -> VarId {
        self.0.capture_id(n)
    }
}

/// Stores a value, as `set` and named captures do.
pub fn store<S: Session>(s: &mut S, id: VarId, value: Option<Bytes>) {
    let slot = match value {
        Some(v) => Slot::Value(v),
        None => Slot::NotFound,
    };
    s.values_mut().set(id, slot);
}

/// Assigns a value, as `set` does: variables of directives and some built-in ones act on it, others
/// keep it for the session.
pub fn assign<S: Session>(s: &mut S, id: VarId, value: Bytes) {
    match &s.variables().vars[id.0 as usize].set {
        Setter::Kept => store(s, id, Some(value)),
        Setter::BuiltIn(set) => {
            let set = *set;
            set(s, value);
        }
        Setter::Defined(assign) => {
            let assign = assign.clone();
            assign(s, value);
        }
    }
}

/// Why a value cannot be assigned to a variable that is named at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAssigned {
    /// There is no such variable.
    Unknown,
    /// It is built in, has no setter, and no directive refers to it, so that nothing would ever
    /// read the value.
    ReadOnly,
}

/// Assigns to the variable of a name in lower case, as [`assign`] does.
///
/// # Errors
/// The variable takes no value. Members of families (`$http_…`) count as unknown, as in nginx,
/// unless a directive such as `set` defines them.
pub fn assign_named<S: Session>(s: &mut S, name: &[u8], value: Bytes) -> Result<(), NotAssigned> {
    let all = s.variables().clone();
    if let Some(&i) = all.by_name.get(name) {
        if all.vars[i as usize].is_member {
            return Err(NotAssigned::Unknown);
        }
        assign(s, VarId(i), value);
        return Ok(());
    }
    let def = std::str::from_utf8(name).ok().and_then(|n| all.builtin.get(n));
    let set = def.ok_or(NotAssigned::Unknown)?.def.set.ok_or(NotAssigned::ReadOnly)?;
    set(s, value);
    Ok(())
}

/// The value of a variable; `None` where it has none.
pub fn value<S: Session>(s: &mut S, id: VarId) -> Option<Bytes> {
    match s.values().with(id, Slot::clone) {
        Slot::Value(v) => return Some(v),
        Slot::NotFound => return None,
        Slot::Busy => return cycle(s, id),
        Slot::Unset => {}
    }
    let all = s.variables().clone();
    match &all.vars[id.0 as usize].evaluation {
        Evaluation::Value(f) => {
            s.values_mut().set(id, Slot::Busy);
            let v = f(s);
            store(s, id, v.clone());
            v
        }
        Evaluation::Volatile(f) => {
            s.values_mut().set(id, Slot::Busy);
            let v = f(s);
            s.values_mut().set(id, Slot::Unset);
            v
        }
        Evaluation::Kept(f) => {
            let mut out = Vec::new();
            let v = f(s, &mut out).then(|| Bytes::from(out));
            store(s, id, v.clone());
            v
        }
        Evaluation::Capture(n) => s.captures().get(*n).map(Bytes::copy_from_slice),
        _ => {
            let mut out = Vec::new();
            write(s, id, &mut out).then(|| Bytes::from(out))
        }
    }
}

/// What is known about a variable before it is asked for.
enum Stored {
    Found,
    None,
    Busy,
    Unset,
}

/// Appends a variable's value to `out`; `false` where it has none.
pub fn write<S: Session>(s: &mut S, id: VarId, out: &mut Vec<u8>) -> bool {
    if !s.values().is_untouched() {
        let stored = s.values().with(id, |slot| match slot {
            Slot::Value(v) => {
                out.extend_from_slice(v);
                Stored::Found
            }
            Slot::NotFound => Stored::None,
            Slot::Busy => Stored::Busy,
            Slot::Unset => Stored::Unset,
        });
        match stored {
            Stored::Found => return true,
            Stored::None => return false,
            Stored::Busy => return cycle(s, id).is_some(),
            Stored::Unset => {}
        }
    }
    // Most variables are of this kind.
    if let Evaluation::Write(f) = &s.variables().vars[id.0 as usize].evaluation {
        let f = *f;
        return f(s, out);
    }
    let all = s.variables().clone();
    match &all.vars[id.0 as usize].evaluation {
        Evaluation::Write(f) => f(s, out),
        Evaluation::Prefix(f, rest) => f(s, rest, out),
        Evaluation::Capture(n) => match s.captures().get(*n) {
            Some(v) => {
                out.extend_from_slice(v);
                true
            }
            None => false,
        },
        Evaluation::Stored => uninitialized(s, id),
        Evaluation::Kept(_) | Evaluation::Value(_) | Evaluation::Volatile(_) => {
            match value(s, id) {
                Some(v) => {
                    out.extend_from_slice(&v);
                    true
                }
                None => false,
            }
        }
        Evaluation::Undefined | Evaluation::Captured => false,
    }
}

/// The value of a variable whose name is known at run time only, in lower case; `None` where it has
/// none, or there is no such variable.
pub fn value_of_name<S: Session>(s: &mut S, name: &[u8]) -> Option<Bytes> {
    let all = s.variables().clone();
    if let Some(&i) = all.by_name.get(name) {
        return value(s, VarId(i));
    }
    let mut out = Vec::new();
    let builtin = std::str::from_utf8(name).ok().and_then(|n| all.builtin.get(n));
    let prefixes = all.prefixes.iter().filter(|d| name.starts_with(d.def.name.as_bytes()));
    let d = builtin.or_else(|| prefixes.max_by_key(|d| d.def.name.len()))?;
    let mut get = |s: &mut S| match d.def.get {
        Get::Write(f) | Get::Kept(f) => f(s, &mut out),
        Get::Prefix(f) => f(s, &name[d.def.name.len()..], &mut out),
    };
    let found = match d.watched {
        None => get(s),
        Some(module) => watch::call(s, module, get),
    };
    found.then(|| Bytes::from(out))
}

#[cold]
fn cycle<S: Session>(s: &mut S, id: VarId) -> Option<Bytes> {
    let name = s.variables().name(id);
    s.log(Level::Error, format_args!("cycle while evaluating variable \"{name}\""));
    None
}

#[cold]
fn uninitialized<S: Session>(s: &mut S, id: VarId) -> bool {
    if s.warns_of_uninitialized() {
        let name = s.variables().name(id);
        s.log(Level::Warn, format_args!("using uninitialized \"{name}\" variable"));
    }
    s.values_mut().set(id, Slot::Value(Bytes::new()));
    true
}
