//! `geoip2`: variables from any value of a MaxMind database, with the directives of the third-party
//! module of that name.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use base::log::Level;
use bytes::Bytes;
use conf::table::{Args, Directive, directive};
use conf::template::Template;
use conf::{ConfError, Node, value};
use engine::settings::{Conf, ConfType, Scope};
use engine::{Cx, Module, Session};
use net::ip::parse_ip;

use crate::geoip::{MaxMind, OpenError, PathPart};
use crate::proxies::Proxies;

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    Module {
        name: "geoip2",
        directives: const { &directives() },
        confs: const { &[ConfType::of::<GeoIp2Conf>(Scope::Main)] },
        ..Module::EMPTY
    }
}

const fn directives<S: Session>() -> [Directive<Cx<S>>; 3] {
    [
        directive(
            "geoip2",
            S::BLOCK,
            Args::BLOCK.or(Args::T1),
            "",
            "A MaxMind database; its block defines variables: $x [default=…] [source=…] path.",
            geoip2,
        ),
        directive(
            "geoip2_proxy",
            S::BLOCK,
            Args::T1,
            "",
            "A trusted proxy: its X-Forwarded-For gives the address to look up.",
            |cx, n| cx.main::<GeoIp2Conf>().proxies.set_proxy(n),
        ),
        directive(
            "geoip2_proxy_recursive",
            S::BLOCK,
            Args::FLAG,
            "off",
            "Takes the last address in X-Forwarded-For that is not a trusted proxy.",
            |cx, n| cx.main::<GeoIp2Conf>().proxies.set_recursive(n),
        ),
    ]
}

/// The proxies that are believed about a client's address.
#[derive(Default)]
pub(crate) struct GeoIp2Conf {
    proxies: Proxies,
}

impl Conf for GeoIp2Conf {}

/// A database file, looked at again from time to time where `auto_reload` says so.
struct Source {
    path: PathBuf,
    database: RefCell<Rc<MaxMind>>,
    /// `auto_reload`, in milliseconds; 0 is never.
    every_ms: Cell<u64>,
    /// The time at which the file that was read had been written.
    written: Cell<Option<SystemTime>>,
    checked_ms: Cell<u64>,
    /// The same for variables, in seconds since 1970.
    checked_secs: Cell<u64>,
}

/// The fact that a variable of the block holds.
enum Fact {
    /// A value of the record of an address: the client's, or the one that `source` gives.
    OfRecord {
        path: Vec<PathPart>,
        source: Option<Template>,
        fallback: Option<Bytes>,
    },
    Built,
    Checked,
    Changed,
}

fn geoip2<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let file = n.arg(0)?;
    let path = cx.env.path(file.bytes());
    let (database, written) = read(&path).map_err(|e| {
        let space = if matches!(e, OpenError::Io(_)) { " " } else { ": " };
        ConfError::at(file, format!("MMDB_open(\"{}\") failed{space}{e}", file.lossy()))
    })?;
    let source = Rc::new(Source {
        path,
        database: RefCell::new(Rc::new(database)),
        every_ms: Cell::new(0),
        written: Cell::new(written),
        checked_ms: Cell::new(base::time::now_ms()),
        checked_secs: Cell::new(base::time::unix_secs()),
    });
    for line in n.entries() {
        entry(cx, &source, line?)?;
    }
    Ok(())
}

fn entry<S: Session>(cx: &mut Cx<S>, source: &Rc<Source>, line: &Node) -> Result<(), ConfError> {
    let name = &line.name;
    if name.bytes() == b"auto_reload" {
        let [_] = &line.args[..] else {
            let m = "invalid number of arguments for auto_reload";
            return Err(ConfError::at(name, m));
        };
        if source.every_ms.get() != 0 {
            return Err(ConfError::directive(line, "is duplicate"));
        }
        source.every_ms.set(value::msec(line, 0)?);
        return Ok(());
    }
    if !name.bytes().starts_with(b"$") {
        let m = format!("invalid setting \"{}\"", name.lossy());
        return Err(ConfError::at(name, m).with_help("it is \"auto_reload\", or a $variable"));
    }
    cx.vars.define(name)?;
    let fact = fact_of(cx, line)?;
    let source = source.clone();
    let value = Rc::new(move |s: &mut S| evaluate(s, &source, &fact));
    cx.vars.define_value(name, false, value).map(drop)
}

fn fact_of<S: Session>(cx: &mut Cx<S>, line: &Node) -> Result<Fact, ConfError> {
    let (mut path, mut source, mut fallback) = (Vec::new(), None, None);
    if let [first, rest @ ..] = &line.args[..]
        && first.bytes() == b"metadata"
    {
        let what = rest.first().map(|word| word.bytes());
        return match (what, rest.len()) {
            (Some(b"build_epoch"), 1) => Ok(Fact::Built),
            (Some(b"last_check"), 1) => Ok(Fact::Checked),
            (Some(b"last_change"), 1) => Ok(Fact::Changed),
            _ => {
                let m = "invalid metadata field";
                let help = "it is build_epoch, last_check or last_change";
                Err(ConfError::at(rest.first().unwrap_or(first), m).with_help(help))
            }
        };
    }
    for word in &line.args {
        if let Some(text) = word.bytes().strip_prefix(b"default=") {
            fallback = Some(Bytes::copy_from_slice(text));
        } else if let Some(text) = word.bytes().strip_prefix(b"source=") {
            if !text.starts_with(b"$") {
                let m = format!("invalid variable name \"{}\"", word.lossy());
                return Err(ConfError::at(word, m));
            }
            let mut word = word.clone();
            word.text = Bytes::copy_from_slice(text);
            source = Some(cx.template(&word)?);
        } else {
            path.push(PathPart::of(&word.lossy()));
        }
    }
    Ok(Fact::OfRecord { path, source, fallback })
}

fn read(path: &Path) -> Result<(MaxMind, Option<SystemTime>), OpenError> {
    // Taken before the file is read: a write during the read is seen at the next check.
    let written = std::fs::metadata(path).and_then(|m| m.modified()).map_err(OpenError::Io)?;
    let database = MaxMind::parse(std::fs::read(path).map_err(OpenError::Io)?)?;
    Ok((database, Some(written)))
}

impl Source {
    /// Looks at the file again if it is time to. The look is another thread's, so that requests go
    /// on with what is known.
    fn refresh<S: Session>(self: &Rc<Self>, s: &S) {
        let (every_ms, now_ms) = (self.every_ms.get(), base::time::now_ms());
        if every_ms == 0 || now_ms < self.checked_ms.get().saturating_add(every_ms) {
            return;
        }
        self.checked_ms.set(now_ms);
        let (source, log) = (self.clone(), s.error_log().clone());
        event::spawn(async move {
            let (path, before) = (source.path.clone(), source.written.get());
            let look = move || {
                let written = std::fs::metadata(&path).and_then(|m| m.modified());
                match written {
                    Ok(written) if Some(written) == before => Ok(None),
                    Ok(_) => read(&path).map(Some),
                    Err(e) => Err(OpenError::Io(e)),
                }
            };
            let path = source.path.display();
            match event::pool::run_blocking(look).await {
                Ok(Ok(read)) => {
                    source.checked_secs.set(base::time::unix_secs());
                    let Some((database, written)) = read else { return };
                    *source.database.borrow_mut() = Rc::new(database);
                    source.written.set(written);
                    base::log!(log, Level::Info, None, "reload MMDB \"{path}\"");
                }
                Ok(Err(e)) => {
                    base::log!(log, Level::Emerg, None, "MMDB_open(\"{path}\") failed {e}");
                }
                Err(e) => base::log!(log, Level::Error, None, "MMDB \"{path}\": {e}"),
            }
        });
    }
}

fn evaluate<S: Session>(s: &mut S, source: &Rc<Source>, fact: &Fact) -> Option<Bytes> {
    source.refresh(s);
    let database = source.database.borrow().clone();
    let number = |number: u64| Some(Bytes::from(number.to_string()));
    match fact {
        Fact::Built => number(database.built_secs()),
        Fact::Checked => number(source.checked_secs.get()),
        Fact::Changed => {
            let since = source.written.get().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            number(since.map_or(0, |at| at.as_secs()))
        }
        Fact::OfRecord { path, source, fallback } => {
            let ip = address(s, source.as_ref());
            let found = ip.and_then(|ip| database.value(ip.to_canonical(), path));
            found.map(Bytes::from).or_else(|| fallback.clone())
        }
    }
}

fn address<S: Session>(s: &mut S, source: Option<&Template>) -> Option<IpAddr> {
    match source {
        Some(template) => parse_ip(&s.eval(template)),
        None => match s.confs().get::<GeoIp2Conf>() {
            Some(conf) => conf.proxies.client(s),
            None => s.address().ip_addr(),
        },
    }
}
