//! `keyval_zone` and `keyval`, for the engines of HTTP and stream.

use std::rc::Rc;

use base::log::lossy;
use bytes::Bytes;
use conf::table::{Args, Contexts, Directive, directive};
use conf::{ConfError, Node, Word, value};
use engine::settings::{ConfType, Scope};
use engine::zones::name_and_size;
use engine::{Cx, Module, Session};

use crate::state::Format;
use crate::store::Kind;
use crate::zone::{AllZones, Settings, Zone, Zones};

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    Module {
        name: "keyval",
        directives: const { &directives() },
        confs: const { &[ConfType::of::<Zones>(Scope::Main)] },
        init: Some(init),
        ..Module::EMPTY
    }
}

const fn directives<S: Session>() -> [Directive<Cx<S>>; 2] {
    [
        directive(
            "keyval_zone",
            S::BLOCK,
            Args::ONE_MORE,
            "",
            "A table of keys and values: zone=NAME:SIZE [state=FILE] [timeout=TIME] \
             [type=string|ip|prefix] [full=refuse|evict] [sync].",
            keyval_zone,
        ),
        directive(
            "keyval",
            S::BLOCK,
            Args::T3,
            "",
            "A variable whose value is that of a key in a table: KEY $VARIABLE zone=NAME.",
            keyval,
        ),
    ]
}

/// The user of a zone's memory: tables of HTTP and stream do not share one.
fn user<S: Session>() -> &'static str {
    if S::BLOCK.intersects(Contexts::STREAM) { "stream keyval" } else { "keyval" }
}

/// Refers to a zone that `keyval_zone` defines, before or after this. `bytes` is the size where
/// this is the definition.
///
/// # Errors
/// The name is taken for something else, or with another size.
pub fn refer<S: Session>(
    cx: &mut Cx<S>,
    word: &Word,
    name: &[u8],
    bytes: Option<usize>,
) -> Result<Rc<Zone>, ConfError> {
    cx.declare_zone(word, name, bytes, user::<S>())?;
    let zones = &mut cx.main::<Zones>().0;
    if let Some(zone) = zones.iter().find(|zone| zone.name == name) {
        return Ok(zone.clone());
    }
    let zone = Rc::new(Zone::new(Bytes::copy_from_slice(name), word));
    zones.push(zone.clone());
    Ok(zone)
}

/// Defines a zone of texts that a module needs for itself. If it is full, the pairs that were
/// stored longest ago are evicted.
///
/// # Errors
/// The name is taken for something else, or with another size.
pub fn define<S: Session>(
    cx: &mut Cx<S>,
    word: &Word,
    name: &[u8],
    bytes: usize,
) -> Result<Rc<Zone>, ConfError> {
    let zone = refer::<S>(cx, word, name, Some(bytes))?;
    let settings = Settings { bytes, evicts: true, ..Settings::default() };
    if zone.settings.borrow_mut().replace(settings).is_some() {
        return Err(ConfError::at(word, format!("duplicate zone \"{}\"", lossy(name))));
    }
    Ok(zone)
}

/// A table as the directive of another module describes it.
#[derive(Clone, Debug, Default)]
pub struct TableSettings {
    /// Its size.
    pub bytes: usize,
    /// The lifetime of pairs.
    pub timeout_ms: Option<u64>,
    /// Old pairs make room for new ones.
    pub evicts: bool,
    /// Its state file.
    pub state: Option<std::path::PathBuf>,
    /// How that is written.
    pub format: Format,
}

/// Defines a zone of texts for scripts.
///
/// # Errors
/// The name is taken.
pub fn define_table<S: Session>(
    cx: &mut Cx<S>,
    word: &Word,
    name: &[u8],
    table: TableSettings,
) -> Result<Rc<Zone>, ConfError> {
    let TableSettings { bytes, timeout_ms, evicts, state, format } = table;
    let zone = refer::<S>(cx, word, name, Some(bytes))?;
    let kind = Kind::Text;
    let settings = Settings { bytes, kind, timeout_ms, state, evicts, format, synced: false };
    if zone.settings.borrow_mut().replace(settings).is_some() {
        return Err(ConfError::at(word, format!("duplicate zone \"{}\"", lossy(name))));
    }
    Ok(zone)
}

fn keyval_zone<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let (mut named, mut settings, mut is_synced) = (None, Settings::default(), None);
    let mut evicts = None;
    for word in &n.args {
        let text = word.bytes();
        let bad = |what: &str| ConfError::at(word, format!("invalid {what} \"{}\"", word.lossy()));
        if let Some(rest) = text.strip_prefix(b"zone=") {
            named = Some((word, name_and_size(word, rest)?));
        } else if let Some(path) = text.strip_prefix(b"state=") {
            if path.is_empty() {
                return Err(bad("state"));
            }
            settings.state = Some(cx.env.path(path));
        } else if let Some(time) =
            text.strip_prefix(b"timeout=").or_else(|| text.strip_prefix(b"ttl="))
        {
            let ms = value::parse_msec(time).filter(|ms| *ms > 0);
            if settings.timeout_ms.replace(ms.ok_or_else(|| bad("timeout"))?).is_some() {
                return Err(ConfError::directive(n, "has two timeouts"));
            }
        } else if let Some(kind) = text.strip_prefix(b"type=") {
            settings.kind = match kind {
                b"string" => Kind::Text,
                b"ip" => Kind::Ip,
                b"prefix" => Kind::Prefix,
                _ => return Err(bad("type")),
            };
        } else if let Some(how) = text.strip_prefix(b"full=") {
            evicts = Some(match how {
                b"refuse" => false,
                b"evict" => true,
                _ => return Err(bad("parameter")),
            });
        } else if text == b"sync" {
            is_synced = Some(word);
        } else {
            return Err(bad("parameter"));
        }
    }
    let Some((word, (name, bytes))) = named.filter(|(_, (name, _))| !name.is_empty()) else {
        return Err(ConfError::directive(n, "must have \"zone\" parameter"));
    };
    if let Some(word) = is_synced {
        if settings.timeout_ms.is_none() {
            return Err(ConfError::at(word, "\"sync\" needs the parameter \"timeout\""));
        }
        cx.env.fleet.check(word)?;
        settings.synced = true;
    }
    (settings.bytes, settings.evicts) = (bytes, evicts.unwrap_or(false));
    let zone = refer::<S>(cx, word, &name, Some(bytes))?;
    if zone.settings.borrow_mut().replace(settings).is_some() {
        let m = format!("duplicate zone \"{}\"", lossy(&name));
        return Err(ConfError::at(word, m));
    }
    Ok(())
}

fn keyval<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let key = Rc::new(cx.template(&n.args[0])?);
    let word = &n.args[2];
    let Some(name) = word.bytes().strip_prefix(b"zone=").filter(|name| !name.is_empty()) else {
        return Err(ConfError::at(word, format!("invalid parameter \"{}\"", word.lossy())));
    };
    let zone = refer::<S>(cx, word, &Bytes::copy_from_slice(name), None)?;
    let (of, by) = (zone.clone(), key.clone());
    let value = Rc::new(move |s: &mut S| {
        let key = s.eval(&by);
        of.store().value(&key)
    });
    let assign = Rc::new(move |s: &mut S, value: Bytes| {
        let key = s.eval(&key);
        zone.assign(s, &key, &value);
    });
    cx.vars.define_assignable(&n.args[1], value, assign)?;
    Ok(())
}

fn init<S: Session>(cx: &mut Cx<S>) -> Result<(), ConfError> {
    let zones = cx.main::<Zones>().0.clone();
    zones.iter().try_for_each(|zone| zone.map(cx))?;
    let is_stream = S::BLOCK.intersects(Contexts::STREAM);
    cx.env.metrics.add_part(Rc::new(AllZones { is_stream, zones }));
    Ok(())
}
