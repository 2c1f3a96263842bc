//! Variables: the registry built at load, and their evaluation in a request.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::pattern::Pattern;
use conf::template::{VarId, VarNames, VarSource};
use conf::{ConfError, Word};

use crate::build::Modules;
use crate::request::Request;
use crate::watch;

/// Writes a variable's value; `false` where it has none ("not found").
pub type WriteFn = fn(&mut Request, &mut Vec<u8>) -> bool;
/// The same for a family of names (`$arg_…`): the rest of the name follows the request.
pub type PrefixFn = fn(&mut Request, &[u8], &mut Vec<u8>) -> bool;
/// Computes a value that is kept for the request's lifetime.
pub type ValueFn = Rc<dyn Fn(&mut Request) -> Option<Bytes>>;
/// What `set $name` does to a built-in variable.
pub type SetFn = fn(&mut Request, Bytes);

/// A built-in variable or a family of them.
pub struct VarDef {
    /// Without the dollar; a family's name ends in `_`.
    pub name: &'static str,
    /// How its value comes about.
    pub get: Get,
    /// Whether `set`, `map` and the like may define it anew, and what setting does.
    pub set: Option<SetFn>,
    /// Whether another module may define a variable of the same name.
    pub changeable: bool,
}

impl VarDef {
    /// A read-only variable that is computed on each use.
    pub const fn new(name: &'static str, get: WriteFn) -> VarDef {
        VarDef { name, get: Get::Write(get), set: None, changeable: false }
    }

    /// A family of variables by prefix.
    pub const fn prefix(name: &'static str, get: PrefixFn) -> VarDef {
        VarDef { name, get: Get::Prefix(get), set: None, changeable: false }
    }

    /// A read-only variable that is computed once a request and kept.
    pub const fn kept(name: &'static str, get: WriteFn) -> VarDef {
        VarDef { name, get: Get::Kept(get), set: None, changeable: false }
    }

    /// The same with a setter for `set $name value`.
    pub const fn settable(name: &'static str, get: WriteFn, set: SetFn) -> VarDef {
        VarDef { name, get: Get::Write(get), set: Some(set), changeable: true }
    }

    /// The same, but `set` and others may define a variable of that name.
    pub const fn changeable(mut self) -> VarDef {
        self.changeable = true;
        self
    }
}

/// See [`VarDef::get`].
#[derive(Clone, Copy)]
pub enum Get {
    /// Cheap: written out on each use.
    Write(WriteFn),
    /// Computed once a request.
    Kept(WriteFn),
    /// A family.
    Prefix(PrefixFn),
}

/// One variable that some directive refers to or defines.
pub struct Var {
    /// Its whole name.
    pub name: Bytes,
    pub(crate) kind: Kind,
    set: Option<SetFn>,
    changeable: bool,
    seen_at: Option<Word>,
}

#[derive(Clone)]
pub(crate) enum Kind {
    /// Referred to, not defined yet.
    Unknown,
    /// `$1`…: the n-th capture of the last regular expression.
    Capture(usize),
    Write(WriteFn),
    Kept(WriteFn),
    Prefix(PrefixFn, Bytes),
    /// Evaluated once a request and kept (`map`, `geo`, `split_clients`).
    Value(ValueFn),
    /// Evaluated on each use (`map … volatile`).
    Volatile(ValueFn),
    /// Only what `set` stored.
    Stored,
    /// Only what a named group of a regular expression, or `set`, stored.
    Captured,
}

/// A built-in variable, and the module to name where computing it takes long.
#[derive(Clone, Copy)]
struct Defined {
    def: &'static VarDef,
    watched: Option<&'static str>,
}

impl Defined {
    /// How the variable is evaluated; `rest` is what follows a family's name.
    fn kind(self, rest: &[u8]) -> Kind {
        let Defined { def, watched } = self;
        let Some(module) = watched else {
            return match def.get {
                Get::Write(f) => Kind::Write(f),
                Get::Kept(f) => Kind::Kept(f),
                Get::Prefix(_) if rest.is_empty() => Kind::Unknown,
                Get::Prefix(f) => Kind::Prefix(f, Bytes::copy_from_slice(rest)),
            };
        };
        match def.get {
            Get::Write(f) => Kind::Volatile(watched_value(module, f)),
            Get::Kept(f) => Kind::Value(watched_value(module, f)),
            Get::Prefix(_) if rest.is_empty() => Kind::Unknown,
            Get::Prefix(f) => {
                let rest = Bytes::copy_from_slice(rest);
                Kind::Volatile(watched_value(module, move |r, out| f(r, &rest, out)))
            }
        }
    }
}

/// The value that `write` writes, with the module to name where that takes long.
fn watched_value(
    module: &'static str,
    write: impl Fn(&mut Request, &mut Vec<u8>) -> bool + 'static,
) -> ValueFn {
    Rc::new(move |r| {
        let mut out = Vec::new();
        let found = watch::call(r, module, |r| write(r, &mut out));
        found.then(|| Bytes::from(out))
    })
}

/// All variables by name, while loading.
pub struct Registry {
    vars: Vec<Var>,
    by_name: HashMap<Bytes, u32>,
    builtin: HashMap<&'static str, Defined>,
    prefixes: Vec<Defined>,
    /// Patterns by text and whether their case matters: large configurations repeat the same few in
    /// every server, and compiling one costs more than all else in its location.
    patterns: HashMap<(Bytes, bool), Rc<Pattern>>,
}

impl Registry {
    /// A registry that knows the variables of the given modules.
    pub fn new(modules: Modules) -> Registry {
        let mut builtin = HashMap::new();
        let mut prefixes = Vec::new();
        for m in modules {
            let watched = m.added.then_some(m.name);
            for def in m.variables {
                let d = Defined { def, watched };
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

    /// Compiles a pattern, once for all places where it stands.
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
        let pattern = Rc::new(Pattern::compile(word, text, caseless)?);
        self.patterns.insert(key, pattern.clone());
        Ok(pattern)
    }

    fn id_of(&mut self, name: &[u8], at: Option<&Word>) -> VarId {
        let name = name.to_ascii_lowercase();
        if let Some(&i) = self.by_name.get(name.as_slice()) {
            return VarId(i);
        }
        let def = std::str::from_utf8(&name).ok().and_then(|n| self.builtin.get(n).copied());
        let name = Bytes::from(name);
        let mut var = Var {
            name: name.clone(),
            kind: Kind::Unknown,
            set: None,
            changeable: true,
            seen_at: at.cloned(),
        };
        if let Some(d) = def {
            var.set = d.def.set;
            var.changeable = d.def.changeable;
            var.kind = d.kind(b"");
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
        value: ValueFn,
    ) -> Result<VarId, ConfError> {
        let id = self.define(word)?;
        self.vars[id.0 as usize].kind =
            if volatile { Kind::Volatile(value) } else { Kind::Value(value) };
        Ok(id)
    }

    /// Makes the variable one that holds what is stored in it at run time (`set`), if it is not
    /// computed by something else. Gives its setter where it is built in.
    pub fn define_stored(&mut self, word: &Word) -> Result<(VarId, Option<SetFn>), ConfError> {
        let id = self.define(word)?;
        let var = &mut self.vars[id.0 as usize];
        if matches!(var.kind, Kind::Unknown) {
            var.kind = Kind::Stored;
        }
        Ok((id, var.set))
    }

    /// The variable that a named group of a regular expression sets.
    pub(crate) fn named_capture(&mut self, name: &str, at: &Word) -> Result<VarId, ConfError> {
        let id = self.id_of(name.as_bytes(), Some(at));
        let var = &mut self.vars[id.0 as usize];
        if !var.changeable {
            return Err(ConfError::at(at, format!("the duplicate \"{name}\" variable")));
        }
        // Whatever the variable was, it now has no value until the expression matched.
        var.kind = Kind::Captured;
        Ok(id)
    }

    /// The end of loading: gives families their names and refuses what nobody defined.
    pub(crate) fn finish(mut self) -> Result<(Vec<Var>, Names), ConfError> {
        for var in &mut self.vars {
            // A name that only `set` defines still belongs to its family where nothing was stored.
            if !matches!(var.kind, Kind::Unknown | Kind::Stored) {
                continue;
            }
            let found = self
                .prefixes
                .iter()
                .filter(|d| var.name.starts_with(d.def.name.as_bytes()))
                .max_by_key(|d| d.def.name.len());
            if let Some(d) = found {
                var.kind = d.kind(&var.name[d.def.name.len()..]);
                continue;
            }
            if matches!(var.kind, Kind::Stored) {
                continue;
            }
            let m = format!("unknown \"{}\" variable", String::from_utf8_lossy(&var.name));
            return Err(match &var.seen_at {
                Some(w) => ConfError::at(w, m),
                None => ConfError::new(m),
            });
        }
        let Registry { vars, by_name, builtin, prefixes, .. } = self;
        Ok((vars, Names { by_name, builtin, prefixes }))
    }
}

/// Variables by name, for names that are known at run time only.
pub(crate) struct Names {
    by_name: HashMap<Bytes, u32>,
    builtin: HashMap<&'static str, Defined>,
    prefixes: Vec<Defined>,
}

impl Names {
    /// Whether the configuration names this variable.
    pub fn names(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }
}

impl VarNames for Registry {
    fn var_id(&mut self, name: &[u8], at: &Word) -> Result<VarId, ConfError> {
        // `${1}`, for a group that a digit follows.
        if let [n @ b'1'..=b'9'] = name {
            return Ok(self.capture_id(n - b'0'));
        }
        Ok(self.id_of(name, Some(at)))
    }

    fn capture_id(&mut self, n: u8) -> VarId {
        let id = self.id_of(n.to_string().as_bytes(), None);
        self.vars[id.0 as usize].kind = Kind::Capture(n.into());
        id
    }
}

/// A variable's value in one request.
#[derive(Clone, Default)]
pub(crate) enum Slot {
    #[default]
    Unset,
    /// Being computed: met again, it is a circle.
    Busy,
    NotFound,
    Value(Bytes),
}

/// The values of one request, by variable; recycled with it. Subrequests have them in common with
/// the request that made them.
#[derive(Default)]
pub(crate) struct Values {
    slots: Vec<Slot>,
    touched: bool,
    /// Instead of `slots`, from the first subrequest on.
    common: Option<Rc<RefCell<Vec<Slot>>>>,
}

impl Values {
    pub fn clear(&mut self) {
        if self.touched {
            self.slots.clear();
            self.touched = false;
        }
        self.common = None;
    }

    /// The same values for another request.
    pub fn share(&mut self) -> Values {
        let own = &mut self.slots;
        let common = self.common.get_or_insert_with(|| Rc::new(RefCell::new(std::mem::take(own))));
        Values { slots: Vec::new(), touched: false, common: Some(common.clone()) }
    }

    fn set(&mut self, id: VarId, value: Slot) {
        let put = |slots: &mut Vec<Slot>| {
            let i = id.0 as usize;
            if i >= slots.len() {
                slots.resize_with(i + 1, Slot::default);
            }
            slots[i] = value;
        };
        match &self.common {
            None => {
                self.touched = true;
                put(&mut self.slots);
            }
            Some(common) => put(&mut common.borrow_mut()),
        }
    }

    /// Looks at a value; `look` must not touch others.
    fn with<T>(&self, id: VarId, look: impl FnOnce(&Slot) -> T) -> T {
        let of = |slots: &[Slot]| look(slots.get(id.0 as usize).unwrap_or(&Slot::Unset));
        match &self.common {
            None => of(&self.slots),
            Some(common) => of(&common.borrow()),
        }
    }
}

impl Request {
    /// Stores a value, as `set` and named captures do.
    pub fn set_var(&mut self, id: VarId, value: Option<Bytes>) {
        let slot = match value {
            Some(v) => Slot::Value(v),
            None => Slot::NotFound,
        };
        self.values.set(id, slot);
    }

    /// The value of a variable; `None` where it has none.
    pub fn var(&mut self, id: VarId) -> Option<Bytes> {
        match self.values.with(id, Slot::clone) {
            Slot::Value(v) => return Some(v),
            Slot::NotFound => return None,
            Slot::Busy => return self.cycle(id),
            Slot::Unset => {}
        }
        let main = self.main.clone();
        match &main.vars[id.0 as usize].kind {
            Kind::Value(f) => {
                self.values.set(id, Slot::Busy);
                let v = f(self);
                self.set_var(id, v.clone());
                v
            }
            Kind::Volatile(f) => {
                self.values.set(id, Slot::Busy);
                let v = f(self);
                self.values.set(id, Slot::Unset);
                v
            }
            Kind::Kept(f) => {
                let mut out = Vec::new();
                let v = f(self, &mut out).then(|| Bytes::from(out));
                self.set_var(id, v.clone());
                v
            }
            Kind::Capture(n) => self.capture(*n).map(Bytes::copy_from_slice),
            _ => {
                let mut out = Vec::new();
                self.write_var(id, &mut out).then(|| Bytes::from(out))
            }
        }
    }

    /// Appends a variable's value to `out`; `false` where it has none.
    pub fn write_var(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        let stored = self.values.with(id, |slot| match slot {
            Slot::Value(v) => {
                out.extend_from_slice(v);
                Some(true)
            }
            Slot::NotFound => Some(false),
            Slot::Busy | Slot::Unset => None,
        });
        match stored {
            Some(found) => return found,
            None if self.values.with(id, |slot| matches!(slot, Slot::Busy)) => {
                return self.cycle(id).is_some();
            }
            None => {}
        }
        let main = self.main.clone();
        match &main.vars[id.0 as usize].kind {
            Kind::Write(f) => f(self, out),
            Kind::Prefix(f, rest) => f(self, rest, out),
            Kind::Capture(n) => match self.capture(*n) {
                Some(v) => {
                    out.extend_from_slice(v);
                    true
                }
                None => false,
            },
            Kind::Stored => self.uninitialized(id),
            Kind::Kept(_) | Kind::Value(_) | Kind::Volatile(_) => match self.var(id) {
                Some(v) => {
                    out.extend_from_slice(&v);
                    true
                }
                None => false,
            },
            Kind::Unknown | Kind::Captured => false,
        }
    }

    /// The value of a variable whose name is known at run time only, in lower case; `None` where it
    /// has none, or there is no such variable.
    pub fn var_named(&mut self, name: &[u8]) -> Option<Bytes> {
        let main = self.main.clone();
        let names = &main.var_names;
        if let Some(&i) = names.by_name.get(name) {
            return self.var(VarId(i));
        }
        let mut out = Vec::new();
        let builtin = std::str::from_utf8(name).ok().and_then(|n| names.builtin.get(n));
        let prefixes = names.prefixes.iter().filter(|d| name.starts_with(d.def.name.as_bytes()));
        let d = builtin.or_else(|| prefixes.max_by_key(|d| d.def.name.len()))?;
        let mut get = |r: &mut Request| match d.def.get {
            Get::Write(f) | Get::Kept(f) => f(r, &mut out),
            Get::Prefix(f) => f(r, &name[d.def.name.len()..], &mut out),
        };
        let found = match d.watched {
            None => get(self),
            Some(module) => watch::call(self, module, get),
        };
        found.then(|| Bytes::from(out))
    }

    #[cold]
    fn cycle(&mut self, id: VarId) -> Option<Bytes> {
        let name = self.main.vars[id.0 as usize].name.clone();
        let name = String::from_utf8_lossy(&name);
        self.log(Level::Error, format_args!("cycle while evaluating variable \"{name}\""));
        None
    }

    #[cold]
    fn uninitialized(&mut self, id: VarId) -> bool {
        if self.loc.core.uninitialized_variable_warn {
            let name = self.main.vars[id.0 as usize].name.clone();
            let name = String::from_utf8_lossy(&name);
            self.log(Level::Warn, format_args!("using uninitialized \"{name}\" variable"));
        }
        self.values.set(id, Slot::Value(Bytes::new()));
        true
    }
}

impl VarSource for Request {
    fn value(&mut self, id: VarId) -> Option<Bytes> {
        self.var(id)
    }

    fn write(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        self.write_var(id, out)
    }
}
