//! `session_log`: a line for each session, which is several requests of one client, instead of one
//! for each request. A session is over once its requests have paused for `timeout=`.

mod sessions;

use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use common_modules::log::{FileLog, Format};
use conf::table::{Args, Contexts as C, Directive};
use conf::template::{Template, VarId, VarNames};
use conf::{ConfError, Node, Word, value};
use engine::settings::Conf;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{ConfType, LocView, Module, Pipeline, Scope, Verdict};
use http::request::Request;
use http::server::HttpMain;
use http::vars::VarDef;
use md5::{Digest, Md5};

use self::sessions::{Id, Sessions};

/// The module's table.
pub static MODULE: Module = Module {
    name: "session_log",
    directives: DIRECTIVES,
    variables: VARIABLES,
    confs: &[ConfType::of::<Zones>(Scope::Main), ConfType::of::<SessionLogConf>(Scope::Location)],
    install: Some(install),
    start: Some(start),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "session_log",
        HSL,
        Args::T1,
        "off",
        "Adds requests to the sessions of a zone, each of which gets one line: NAME | off.",
        set_log,
    ),
    directive(
        "session_log_format",
        C::HTTP,
        Args::TWO_MORE,
        "combined \"…\"",
        "Defines a format of session lines; $body_bytes_sent is the sum of all requests.",
        set_format,
    ),
    directive(
        "session_log_zone",
        C::HTTP,
        Args::TWO_MORE,
        "",
        "Defines a zone of sessions: PATH zone=NAME:SIZE [format=] [timeout=] [id=] [md5=].",
        set_zone,
    ),
];

static VARIABLES: &[VarDef] = &[
    VarDef::new("session_log_id", |r, out| {
        let Some(id) = current(r) else { return false };
        base::ascii::write_hex(out, &id);
        true
    }),
    VarDef::new("session_log_binary_id", |r, out| {
        let Some(id) = current(r) else { return false };
        out.extend_from_slice(&id);
        true
    }),
];

/// The formats and zones of a configuration.
#[derive(Default)]
struct Zones {
    formats: Vec<Rc<Format>>,
    zones: Vec<Rc<SessionLog>>,
}

impl Conf for Zones {}

/// A zone with what its requests become.
struct SessionLog {
    name: Bytes,
    format: Rc<Format>,
    /// The texts that name a request's session.
    id: Option<Template>,
    md5: Option<Template>,
    /// `$body_bytes_sent`, of which a line has the sum.
    sent: VarId,
    sessions: Rc<Sessions>,
    log: Rc<FileLog>,
}

engine::settings! {
    struct SessionLogConf {
        /// `None` inside is `off`.
        log: Option<Option<Rc<SessionLog>>>,
    }
}

fn set_format(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let name = &n.args[0];
    let is_taken = |formats: &[Rc<Format>]| formats.iter().any(|known| known.name == name.text);
    if name.bytes() == b"combined" || is_taken(&cx.main::<Zones>().formats) {
        let m = format!("duplicate \"session_log_format\" name \"{}\"", name.lossy());
        return Err(ConfError::at(name, m));
    }
    let format = Format::parse(&mut cx.vars, n)?;
    cx.main::<Zones>().formats.push(Rc::new(format));
    Ok(())
}

fn format_of(cx: &mut Cx, name: &[u8], at: &Word) -> Result<Rc<Format>, ConfError> {
    let known = cx.main::<Zones>().formats.iter().find(|known| known.name == name).cloned();
    match known {
        Some(format) => Ok(format),
        None if name == b"combined" => {
            let format = Rc::new(Format::combined(&mut cx.vars, at)?);
            cx.main::<Zones>().formats.push(format.clone());
            Ok(format)
        }
        None => {
            let name = String::from_utf8_lossy(name);
            Err(ConfError::at(at, format!("unknown session log format \"{name}\"")))
        }
    }
}

fn set_zone(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let path = n.arg(0)?;
    let (mut zone, mut format, mut id, mut md5, mut timeout_ms) = (None, None, None, None, 30_000);
    for word in &n.args[1..] {
        let text = word.bytes();
        let bad = || ConfError::at(word, format!("invalid parameter \"{}\"", word.lossy()));
        let mut template =
            |from: usize| Template::parse_slice(&word.text.slice(from..), word, from, &mut cx.vars);
        if let Some(named) = text.strip_prefix(b"zone=") {
            let at = named.iter().position(|byte| *byte == b':').ok_or_else(bad)?;
            let size = value::parse_size(&named[at + 1..]).filter(|size| *size > 0);
            let name = word.text.slice(5..5 + at);
            zone = Some((word, name, size.ok_or_else(bad)?));
        } else if let Some(name) = text.strip_prefix(b"format=") {
            format = Some(format_of(cx, name, word)?);
        } else if let Some(time) = text.strip_prefix(b"timeout=") {
            timeout_ms = value::parse_msec(time).filter(|ms| *ms > 0).ok_or_else(bad)?;
        } else if text.starts_with(b"id=") {
            id = Some(template(3)?);
        } else if text.starts_with(b"md5=") {
            md5 = Some(template(4)?);
        } else {
            return Err(bad());
        }
    }
    let Some((at, name, bytes)) = zone else {
        return Err(ConfError::directive(n, "must have the \"zone\" parameter"));
    };
    if id.is_none() && md5.is_none() {
        let m = "must have the \"id\" or the \"md5\" parameter, which tell sessions apart";
        return Err(ConfError::directive(n, m));
    }
    let format = match format {
        Some(format) => format,
        None => format_of(cx, b"combined", path)?,
    };
    let file: PathBuf = cx.env.path(path.bytes());
    let sessions = Sessions::map(cx, at, &name, bytes, file)?;
    sessions.set_timeout(timeout_ms);
    let log = FileLog::new(cx.env.logs.open(path.bytes()));
    let sent = cx.vars.var_id(b"body_bytes_sent", path)?;
    let log = SessionLog { name, format, id, md5, sent, sessions, log };
    cx.main::<Zones>().zones.push(Rc::new(log));
    Ok(())
}

fn set_log(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let found = match word.bytes() {
        b"off" => None,
        name => {
            let zones = &cx.main::<Zones>().zones;
            let found = zones.iter().find(|zone| zone.name == name).cloned();
            let m = || format!("unknown session log zone \"{}\"", word.lossy());
            Some(found.ok_or_else(|| ConfError::at(word, m()))?)
        }
    };
    value::set_once(&mut cx.loc::<SessionLogConf>().log, n, |_| Ok(found))
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if let Some(Some(log)) = l.conf::<SessionLogConf>().log.clone() {
        p.log.push(Box::new(move |r: &mut Request| {
            if !r.is_subrequest() {
                log.add(r);
            }
            Verdict::Next
        }));
    }
    Ok(())
}

/// In a worker: writes the lines of sessions that are over.
fn start(main: &Rc<HttpMain>, _: &engine::Seat) -> io::Result<()> {
    let zones = main.confs.get::<Zones>().map(|zones| zones.zones.clone()).unwrap_or_default();
    for zone in zones {
        let gate = main.life.gate.clone();
        event::spawn(async move {
            loop {
                let wait_ms = zone.write_ended();
                if event::race(event::sleep(wait_ms), gate.closed()).await.is_second() {
                    return;
                }
            }
        });
    }
    Ok(())
}

/// The session of a request, in a place that logs sessions.
fn current(r: &mut Request) -> Option<Id> {
    let log = r.loc.confs.get::<SessionLogConf>()?.log.clone()??;
    Some(log.id_of(r))
}

impl SessionLog {
    /// The session that a request belongs to.
    fn id_of(&self, r: &mut Request) -> Id {
        let given = self.id.as_ref().map(|id| id.eval(r));
        if let Some(id) = given.as_deref().and_then(hex_id) {
            return id;
        }
        let text = self.md5.as_ref().map(|text| text.eval(r)).or(given).unwrap_or_default();
        Md5::digest(&text).into()
    }

    /// Adds a request that is over to its session.
    fn add(&self, r: &mut Request) {
        let (id, sent) = (self.id_of(r), r.account.body_bytes_sent());
        let mut ended = Vec::new();
        if !self.sessions.add(id, sent, &mut ended) {
            let (mut text, mut holes) = (Vec::new(), Vec::new());
            self.format.write_without(r, self.sent, &mut text, &mut holes);
            self.sessions.begin(id, sent, &text, &holes, &mut ended);
        }
        self.write(&ended);
    }

    /// Writes the lines of sessions that are over; gives the time until the next may be,
    /// milliseconds.
    fn write_ended(&self) -> u64 {
        let mut ended = Vec::new();
        let wait_ms = self.sessions.take_ended(&mut ended);
        self.write(&ended);
        wait_ms
    }

    fn write(&self, lines: &[Vec<u8>]) {
        for line in lines {
            self.log.line(true, |out| out.extend_from_slice(line));
        }
    }
}

/// 32 hexadecimal digits.
fn hex_id(text: &[u8]) -> Option<Id> {
    base::ascii::parse_hex(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_md5_hashes_in_hex() {
        let id = hex_id(b"000102030405060708090a0B0c0D0e0F").unwrap();
        assert_eq!((id[0], id[10], id[15]), (0, 10, 15));
        for wrong in
            ["", "00", "000102030405060708090a0b0c0d0e0g", "é00102030405060708090a0b0c0d0e"]
        {
            assert_eq!(hex_id(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
