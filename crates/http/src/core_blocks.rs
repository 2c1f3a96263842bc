//! The core's block directives, and those that read more than one value.

use std::rc::Rc;

use bytes::Bytes;
use conf::table::Contexts as C;
use conf::template::Template;
use conf::value;
use conf::{ConfError, Node, Word};
use engine::names::ServerName;
use engine::regex::Regex;

use crate::core_conf::{CoreLocDraft, DisableSymlinks, Root};
use crate::cx::{Block, Cx, LocationCx, LocationDraft};
use crate::server::location::LocKind;
use crate::types::Types;
use files::OpenFileCache;

pub(crate) fn server(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    cx.server_block(n)
}

/// The modifier and name of a `location`: `= /x`, `=/x`, `~* \.php$`, `@x`, `/x`.
fn location_name(n: &Node) -> Result<(LocKind, bool, &Word, Bytes), ConfError> {
    if let [modifier, name] = &n.args[..] {
        let (kind, caseless) = match modifier.bytes() {
            b"=" => (LocKind::Exact, false),
            b"^~" => (LocKind::PrefixNoRegex, false),
            b"~" => (LocKind::Regex, false),
            b"~*" => (LocKind::Regex, true),
            _ => {
                let m = format!("invalid location modifier \"{}\"", modifier.lossy());
                return Err(ConfError::at(modifier, m));
            }
        };
        return Ok((kind, caseless, name, name.text.clone()));
    }
    let word = &n.args[0];
    let text = &word.text;
    let (kind, caseless, skip) = match text.as_ref() {
        [b'=', ..] => (LocKind::Exact, false, 1),
        [b'^', b'~', ..] => (LocKind::PrefixNoRegex, false, 2),
        [b'~', b'*', ..] => (LocKind::Regex, true, 2),
        [b'~', ..] => (LocKind::Regex, false, 1),
        [b'@', ..] => (LocKind::Named, false, 0),
        _ => (LocKind::Prefix, false, 0),
    };
    Ok((kind, caseless, word, text.slice(skip..)))
}

pub(crate) fn location(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (kind, caseless, word, name) = location_name(n)?;
    let regex = match kind {
        LocKind::Regex => Some(Rc::new(Regex::for_list(word, &name, caseless, &mut cx.vars)?)),
        _ => None,
    };
    check_nesting(cx, kind, word, &name)?;
    let twin = |l: &LocationDraft| {
        let same = match (l.kind, kind) {
            (
                LocKind::Prefix | LocKind::PrefixNoRegex,
                LocKind::Prefix | LocKind::PrefixNoRegex,
            ) => true,
            (a, b) => a == b && a != LocKind::Regex,
        };
        same && l.name == name
    };
    if cx.top().block.locations.iter().any(twin) {
        let m = format!("duplicate location \"{}\"", String::from_utf8_lossy(&name));
        return Err(ConfError::at(word, m));
    }
    let level = cx.block(n, C::LOCATION, Block::of_location(Some((kind, name.clone()))))?;
    let at = word.clone();
    cx.top().block.locations.push(LocationDraft { kind, name, regex, level, at, ends: false });
    Ok(())
}

fn check_nesting(cx: &Cx, kind: LocKind, word: &Word, name: &Bytes) -> Result<(), ConfError> {
    if cx.here() != C::LOCATION {
        return Ok(());
    }
    let Some((outer_kind, outer)) = cx.location() else { return Ok(()) };
    let (inner_text, outer_text) = (String::from_utf8_lossy(name), String::from_utf8_lossy(outer));
    let message = match (outer_kind, kind) {
        (LocKind::Exact, _) => {
            format!(
                "location \"{inner_text}\" cannot be inside the exact location \"{outer_text}\""
            )
        }
        (LocKind::Named, _) => {
            format!(
                "location \"{inner_text}\" cannot be inside the named location \"{outer_text}\""
            )
        }
        (_, LocKind::Named) => {
            format!("named location \"{inner_text}\" can be on the server level only")
        }
        (_, LocKind::Regex) => return Ok(()),
        _ if !name.starts_with(outer) => {
            format!("location \"{inner_text}\" is outside location \"{outer_text}\"")
        }
        _ => return Ok(()),
    };
    Err(ConfError::at(word, message))
}

pub(crate) fn limit_except(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.top().block.limit_except.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let mut methods = Vec::new();
    for w in &n.args {
        let upper = w.bytes().to_ascii_uppercase();
        if http_wire::h1::Method::lookup(&upper) == http_wire::h1::Method::Other {
            return Err(ConfError::at(w, format!("invalid method \"{}\"", w.lossy())));
        }
        // GET allows HEAD too.
        if upper == b"GET" {
            methods.push(Bytes::from_static(b"HEAD"));
        }
        methods.push(Bytes::from(upper));
    }
    let me = cx.location().cloned();
    let level = cx.block(n, C::LIMIT_EXCEPT, Block::of_location(me.clone()))?;
    let name = me.map(|m| m.1).unwrap_or_default();
    let at = n.name.clone();
    let draft =
        LocationDraft { kind: LocKind::LimitExcept, name, regex: None, level, at, ends: false };
    cx.top().block.limit_except = Some((methods, Box::new(draft)));
    Ok(())
}

pub(crate) fn server_name(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    for w in &n.args {
        let name = ServerName::parse(w, &mut cx.vars)?;
        cx.top().block.names.push(name);
    }
    Ok(())
}

pub(crate) fn types(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let mut types = Types::default();
    if let Some(old) = cx.loc::<CoreLocDraft>().types.take() {
        types = Rc::try_unwrap(old).unwrap_or_default();
    }
    for line in n.block.as_deref().unwrap_or(&[]) {
        for ext in &line.args {
            let mime = line.name.text.clone();
            if let Some(old) = types.insert(ext.bytes(), mime) {
                let m = format!(
                    "duplicate extension \"{}\", content type: \"{}\", \
                     previous content type: \"{}\"",
                    ext.lossy(),
                    line.name.lossy(),
                    String::from_utf8_lossy(&old)
                );
                conf::warn(ext, m);
            }
        }
    }
    cx.loc::<CoreLocDraft>().types = Some(Rc::new(types));
    Ok(())
}

fn root_like(cx: &mut Cx, n: &Node, alias: bool) -> Result<(), ConfError> {
    let old = cx.loc::<CoreLocDraft>().root.as_ref().and_then(Option::as_ref).map(|r| r.alias);
    if let Some(old_alias) = old {
        if old_alias == alias {
            return Err(ConfError::directive(n, "is duplicate"));
        }
        let earlier = if old_alias { "alias" } else { "root" };
        let m = format!("is duplicate, \"{earlier}\" directive was specified earlier");
        return Err(ConfError::directive(n, &m));
    }
    let word = &n.args[0];
    let (name, text) = (n.name.lossy().into_owned(), word.bytes());
    for own in ["document_root", "realpath_root"] {
        let (plain, braced) = (format!("${own}"), format!("${{{own}}}"));
        let has = |s: &str| memchr::memmem::find(text, s.as_bytes()).is_some();
        if has(&plain) || has(&braced) {
            let m = format!("the ${own} variable cannot be used in the \"{name}\" directive");
            return Err(ConfError::at(word, m));
        }
    }
    let (mut name_len, mut whole) = (0, false);
    if alias {
        match cx.location() {
            Some((LocKind::Named, _)) => {
                let m = "the \"alias\" directive cannot be used inside the named location";
                return Err(ConfError::at(word, m));
            }
            Some((LocKind::Regex, _)) => whole = true,
            Some((_, l)) => name_len = l.len(),
            None => {}
        }
        warn_alias(cx, word, n);
    }
    let mut path = cx.template(word)?;
    if let Some(c) = path.as_const() {
        use std::os::unix::ffi::OsStrExt;
        let mut full = cx.env.path(c).as_os_str().as_bytes().to_vec();
        // The slash at the end of a root belongs to the URI that follows.
        if !alias && full.last() == Some(&b'/') {
            full.pop();
        }
        path = Template::constant(Bytes::from(full));
    }
    cx.loc::<CoreLocDraft>().root = Some(Some(Root { path, alias, name_len, whole }));
    Ok(())
}

/// `location /img { alias /data/img/; }` lets `/img../x` reach `/data/img/../x`.
fn warn_alias(cx: &mut Cx, word: &Word, _: &Node) {
    let Some((LocKind::Prefix | LocKind::PrefixNoRegex, name)) = cx.location().cloned() else {
        return;
    };
    if name.last() != Some(&b'/') && word.bytes().last() == Some(&b'/') {
        let name = String::from_utf8_lossy(&name).into_owned();
        let m = format!(
            "location \"{name}\" does not end in a slash but its alias does: \"{name}../\" \
             escapes from the folder"
        );
        conf::warn(word, m);
    }
}

pub(crate) fn root(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    root_like(cx, n, false)
}

pub(crate) fn alias(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    root_like(cx, n, true)
}

pub(crate) fn error_log(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let logs = cx.env.logs.clone();
    let loc = cx.loc::<CoreLocDraft>();
    let written = loc.error_log_written.get_or_insert_default();
    written.add(&logs, n)?;
    loc.error_log = written.log().cloned();
    Ok(())
}

/// `limit_rate` and its like: a size, or a template that is read as one in the request.
fn set_rate(
    cx: &mut Cx,
    n: &Node,
    slot: fn(&mut CoreLocDraft) -> &mut Option<Option<Template>>,
) -> Result<(), ConfError> {
    if slot(cx.loc()).is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let t = cx.template(&n.args[0])?;
    let off = t.as_const().is_some() && value::size(n, 0)? == 0;
    *slot(cx.loc()) = Some((!off).then_some(t));
    Ok(())
}

pub(crate) fn limit_rate(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_rate(cx, n, |core| &mut core.limit_rate)
}

pub(crate) fn limit_rate_after(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_rate(cx, n, |core| &mut core.limit_rate_after)
}

pub(crate) fn disable_symlinks(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<CoreLocDraft>().disable_symlinks.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let (mut mode, mut from) = (None, None);
    for w in &n.args {
        match w.bytes() {
            b"off" => mode = Some(None),
            b"on" => mode = Some(Some(false)),
            b"if_not_owner" => mode = Some(Some(true)),
            text if text.starts_with(b"from=") => {
                let part = Word { text: w.text.slice(5..), ..w.clone() };
                from = Some(cx.template(&part)?);
            }
            _ => return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
        }
    }
    let value = match mode {
        Some(Some(if_not_owner)) => Some(Rc::new(DisableSymlinks { if_not_owner, from })),
        Some(None) if from.is_some() => {
            let m = "\"from=\" cannot be used with \"off\" parameter";
            return Err(ConfError::at(&n.args[0], m));
        }
        Some(None) => None,
        None => {
            let m = "\"disable_symlinks\" must have \"off\", \"on\" or \"if_not_owner\" parameter";
            return Err(ConfError::at(&n.args[0], m));
        }
    };
    cx.loc::<CoreLocDraft>().disable_symlinks = Some(value);
    Ok(())
}

pub(crate) fn open_file_cache(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<CoreLocDraft>().open_file_cache.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let (mut max, mut inactive, mut off) = (0u64, 60u64, false);
    for w in &n.args {
        let bad =
            || ConfError::at(w, format!("invalid \"open_file_cache\" parameter \"{}\"", w.lossy()));
        let text = w.bytes();
        if let Some(v) = text.strip_prefix(b"max=") {
            max = base::ascii::parse_u64(v).filter(|v| *v > 0).ok_or_else(bad)?;
        } else if let Some(v) = text.strip_prefix(b"inactive=") {
            inactive = value::parse_sec(v).ok_or_else(bad)?;
        } else if text == b"off" {
            off = true;
        } else {
            return Err(bad());
        }
    }
    if !off && max == 0 {
        let m = "\"open_file_cache\" must have the \"max\" parameter";
        return Err(ConfError::at(&n.name, m));
    }
    let id = cx.next_id();
    let cache = OpenFileCache { max: max as usize, inactive_secs: inactive, id };
    cx.loc::<CoreLocDraft>().open_file_cache = Some((!off).then_some(cache));
    Ok(())
}
