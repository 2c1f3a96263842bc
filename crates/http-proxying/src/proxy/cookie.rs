//! `proxy_cookie_domain`, `proxy_cookie_path`, `proxy_cookie_flags`: cookies of a server made to
//! fit our own names and paths.

use std::rc::Rc;

use bytes::Bytes;
use conf::template::Template;
use conf::{ConfError, Node, Word};
use engine::regex::Regex;
use http::cx::Cx;
use http::request::Request;

use super::ProxyConf;
use super::redirect::{self, Rewrite};
use super::request::Head;

/// The cookies of a rule.
enum CookieMatch {
    Name(Template),
    Regex(Regex),
}

/// One `proxy_cookie_flags`.
pub(crate) struct CookieFlags {
    which: CookieMatch,
    flags: Vec<Template>,
}

/// The change of a flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Change {
    #[default]
    Leave,
    Set,
    Remove,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum SameSite {
    #[default]
    Leave,
    Set(&'static str),
    Remove,
}

#[derive(Default)]
struct Changes {
    secure: Change,
    httponly: Change,
    samesite: SameSite,
}

impl Changes {
    /// Takes a flag's word; an unknown one from a variable says nothing.
    fn add(&mut self, word: &[u8]) -> bool {
        match word.to_ascii_lowercase().as_slice() {
            b"secure" => self.secure = Change::Set,
            b"nosecure" if self.secure != Change::Set => self.secure = Change::Remove,
            b"httponly" => self.httponly = Change::Set,
            b"nohttponly" if self.httponly != Change::Set => self.httponly = Change::Remove,
            b"samesite=strict" => self.samesite = SameSite::Set("Strict"),
            b"samesite=lax" => self.samesite = SameSite::Set("Lax"),
            b"samesite=none" => self.samesite = SameSite::Set("None"),
            b"nosamesite" if self.samesite == SameSite::Leave => self.samesite = SameSite::Remove,
            b"nosecure" | b"nohttponly" | b"nosamesite" => {}
            _ => return false,
        }
        true
    }

    fn any(&self) -> bool {
        self.secure != Change::Leave
            || self.httponly != Change::Leave
            || self.samesite != SameSite::Leave
    }
}

/// An attribute of a cookie; the first is the cookie itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attr {
    name: Bytes,
    value: Option<Bytes>,
}

fn trim(b: &Bytes) -> Bytes {
    let from = b.iter().position(|c| *c != b' ').unwrap_or(b.len());
    let end = b.iter().rposition(|c| *c != b' ').map_or(from, |i| i + 1);
    b.slice(from..end)
}

fn parse(value: &Bytes) -> Vec<Attr> {
    let mut attrs = Vec::with_capacity(4);
    let mut from = 0;
    loop {
        let end = memchr::memchr(b';', &value[from..]).map_or(value.len(), |i| from + i);
        let part = value.slice(from..end);
        attrs.push(match memchr::memchr(b'=', &part) {
            Some(eq) => {
                Attr { name: trim(&part.slice(..eq)), value: Some(trim(&part.slice(eq + 1..))) }
            }
            None => Attr { name: trim(&part), value: None },
        });
        if end == value.len() {
            return attrs;
        }
        from = end + 1;
    }
}

fn join(attrs: &[Attr]) -> Bytes {
    let mut out = Vec::new();
    for (i, a) in attrs.iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(&a.name);
        if let Some(v) = &a.value {
            out.push(b'=');
            out.extend_from_slice(v);
        }
    }
    Bytes::from(out)
}

/// The cookie after all rules; `None` where it stays as it is.
pub(super) fn rewrite(r: &mut Request, head: &Head, value: &Bytes) -> Option<Bytes> {
    if head.cookie_domains.is_none() && head.cookie_paths.is_none() && head.cookie_flags.is_none() {
        return None;
    }
    let mut attrs = parse(value);
    attrs.first()?.value.as_ref()?;
    let mut changed = false;
    for a in attrs.iter_mut().skip(1) {
        let Some(v) = &a.value else { continue };
        let rules = match () {
            () if a.name.eq_ignore_ascii_case(b"domain") => &head.cookie_domains,
            () if a.name.eq_ignore_ascii_case(b"path") => &head.cookie_paths,
            () => continue,
        };
        let Some(rules) = rules else { continue };
        if let Some(new) = redirect::rewrite(r, rules, v, 0) {
            a.value = Some(new);
            changed = true;
        }
    }
    if let Some(flags) = &head.cookie_flags {
        changed |= edit(r, flags, &mut attrs);
    }
    changed.then(|| join(&attrs))
}

fn edit(r: &mut Request, rules: &[CookieFlags], attrs: &mut Vec<Attr>) -> bool {
    let Some(cookie) = attrs.first().map(|a| a.name.clone()) else { return false };
    let found = rules.iter().find(|f| match &f.which {
        CookieMatch::Regex(re) => re.exec(r, &cookie).unwrap_or(false),
        CookieMatch::Name(t) => t.eval(r).eq_ignore_ascii_case(&cookie),
    });
    let Some(rule) = found else { return false };
    let mut changes = Changes::default();
    for t in &rule.flags {
        let word = t.eval(r);
        changes.add(&word);
    }
    if !changes.any() {
        return false;
    }
    apply(&changes, attrs);
    true
}

fn apply(c: &Changes, attrs: &mut Vec<Attr>) {
    let (mut secure, mut httponly, mut samesite) = (false, false, false);
    let is = |a: &Attr, name: &[u8]| a.name.eq_ignore_ascii_case(name);
    // The first is the cookie itself, whatever it is called.
    let mut first = true;
    attrs.retain_mut(|a| {
        if std::mem::take(&mut first) {
            return true;
        }
        if is(a, b"secure") {
            secure = true;
            return c.secure != Change::Remove;
        }
        if is(a, b"httponly") {
            httponly = true;
            return c.httponly != Change::Remove;
        }
        if is(a, b"samesite") {
            samesite = true;
            if let SameSite::Set(to) = c.samesite {
                let same = a.value.as_ref().is_some_and(|v| v.eq_ignore_ascii_case(to.as_bytes()));
                if !same {
                    a.name = Bytes::from_static(b"SameSite");
                    a.value = Some(Bytes::from_static(to.as_bytes()));
                }
            }
            return c.samesite != SameSite::Remove;
        }
        true
    });
    let bare = |name: &'static str| Attr { name: Bytes::from_static(name.as_bytes()), value: None };
    if c.secure == Change::Set && !secure {
        attrs.push(bare("Secure"));
    }
    if c.httponly == Change::Set && !httponly {
        attrs.push(bare("HttpOnly"));
    }
    if let SameSite::Set(to) = c.samesite
        && !samesite
    {
        attrs.push(Attr { value: Some(Bytes::from_static(to.as_bytes())), ..bare("SameSite") });
    }
}

/// `off` alone, or a rule's two words.
fn is_off<T>(n: &Node, slot: &Option<Rc<Vec<T>>>) -> Result<bool, ConfError> {
    if slot.as_ref().is_some_and(|l| l.is_empty()) {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    if n.args.len() > 1 {
        return Ok(false);
    }
    let word = n.arg(0)?;
    if word.bytes() != b"off" {
        return Err(ConfError::at(word, format!("invalid parameter \"{}\"", word.lossy())));
    }
    if slot.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    Ok(true)
}

type ReadRewrite = fn(&mut Cx, &Word, &Word) -> Result<Rewrite, ConfError>;

/// `proxy_cookie_domain` and `proxy_cookie_path`, whose rules stand in `field`.
pub(super) fn set_rewrite(
    cx: &mut Cx,
    n: &Node,
    field: fn(&mut ProxyConf) -> &mut Option<Rc<Vec<Rewrite>>>,
    read: ReadRewrite,
) -> Result<(), ConfError> {
    if is_off(n, field(cx.loc()))? {
        *field(cx.loc()) = Some(Rc::default());
        return Ok(());
    }
    let rule = read(cx, n.arg(0)?, n.arg(1)?)?;
    Rc::make_mut(field(cx.loc()).get_or_insert_default()).push(rule);
    Ok(())
}

pub(super) fn set_flags(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if is_off(n, &cx.loc::<ProxyConf>().cookie_flags)? {
        cx.loc::<ProxyConf>().cookie_flags = Some(Rc::default());
        return Ok(());
    }
    let name = n.arg(0)?;
    let which = match name.bytes() {
        [b'~', rest @ ..] => CookieMatch::Regex(Regex::compile(name, rest, true, &mut cx.vars)?),
        _ => CookieMatch::Name(cx.template(name)?),
    };
    let flags = n.args[1..].iter().map(|w| cx.template(w)).collect::<Result<Vec<_>, _>>()?;
    let list = cx.loc::<ProxyConf>().cookie_flags.get_or_insert_default();
    if let Some(list) = Rc::get_mut(list) {
        list.push(CookieFlags { which, flags });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(cookie: &'static str, words: &[&str]) -> String {
        let mut changes = Changes::default();
        words.iter().for_each(|w| assert!(changes.add(w.as_bytes()), "{w}"));
        let mut attrs = parse(&Bytes::from_static(cookie.as_bytes()));
        apply(&changes, &mut attrs);
        String::from_utf8(join(&attrs).to_vec()).unwrap()
    }

    #[test]
    fn attributes() {
        let attrs = parse(&Bytes::from_static(b"a=b;  path = /x ;Secure"));
        let names: Vec<_> = attrs.iter().map(|a| a.name.clone()).collect();
        assert_eq!(names, ["a", "path", "Secure"]);
        assert_eq!(attrs[1].value.as_deref(), Some(&b"/x"[..]));
        assert_eq!(&join(&attrs)[..], b"a=b; path=/x; Secure");
    }

    #[test]
    fn flags_are_set_and_removed() {
        assert_eq!(edited("a=b", &["secure", "httponly"]), "a=b; Secure; HttpOnly");
        assert_eq!(edited("a=b; secure", &["secure"]), "a=b; secure");
        assert_eq!(edited("a=b; Secure; HttpOnly", &["nosecure"]), "a=b; HttpOnly");
        assert_eq!(edited("a=b", &["samesite=lax"]), "a=b; SameSite=Lax");
        assert_eq!(edited("a=b; samesite=LAX", &["samesite=lax"]), "a=b; samesite=LAX");
        assert_eq!(edited("a=b; SameSite=none", &["samesite=strict"]), "a=b; SameSite=Strict");
        assert_eq!(edited("a=b; SameSite=none", &["nosamesite"]), "a=b");
        assert_eq!(edited("secure=b; Secure", &["nosecure"]), "secure=b");
        assert_eq!(edited("secure=b", &["secure"]), "secure=b; Secure");
        assert_eq!(edited("samesite=b", &["samesite=lax"]), "samesite=b; SameSite=Lax");
    }

    #[test]
    fn unknown_words_say_nothing() {
        let mut c = Changes::default();
        assert!(!c.add(b"sekure"));
        assert!(!c.any());
    }
}
