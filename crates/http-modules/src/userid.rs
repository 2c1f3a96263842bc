//! `userid`: cookies that tell one browser from another.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use base::log::Level;
use bytes::Bytes;
use conf::table::{Args, Contexts, Directive};
use conf::template::{VarId, VarNames};
use conf::value;
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http::vars::VarDef;

/// The module's table.
pub static MODULE: Module = Module {
    variables: &[
        VarDef::kept("uid_got", got_variable),
        VarDef::kept("uid_set", set_variable),
        VarDef::kept("uid_reset", |_, _| true).changeable(),
    ],
    ..Module::of::<UserIdConf>("userid", DIRECTIVES, install)
};

const HSL: Contexts = http::core_directives::HSL;

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "userid",
        HSL,
        Args::T1,
        "off",
        "Sets a cookie that identifies clients: on, v1, log (only reads it), or off.",
        |cx, n| {
            let conf = cx.loc::<UserIdConf>();
            value::set_enum(&mut conf.mode, n, MODES)?;
            let reset = cx.vars.var_id(b"uid_reset", &n.name)?;
            cx.loc::<UserIdConf>().reset = Some(reset);
            Ok(())
        },
    ),
    directive(
        "userid_service",
        HSL,
        Args::T1,
        "",
        "This server's number in cookies that it sets; the default is its address.",
        |cx, n| value::set_num(&mut cx.loc::<UserIdConf>().service, n),
    ),
    directive("userid_name", HSL, Args::T1, "uid", "The cookie's name.", |cx, n| {
        value::set_str(&mut cx.loc::<UserIdConf>().name, n)
    }),
    directive("userid_domain", HSL, Args::T1, "none", "The cookie's domain.", |cx, n| {
        value::set_str(&mut cx.loc::<UserIdConf>().domain, n)
    }),
    directive("userid_path", HSL, Args::T1, "/", "The cookie's path.", |cx, n| {
        value::set_str(&mut cx.loc::<UserIdConf>().path, n)
    }),
    directive(
        "userid_expires",
        HSL,
        Args::T1,
        "off",
        "The lifetime of the cookie; off: the browser's session, max: until 2037.",
        |cx, n| value::set_once(&mut cx.loc::<UserIdConf>().expires, n, expires),
    ),
    directive(
        "userid_flags",
        HSL,
        Args::T123,
        "off",
        "The cookie's flags: secure, httponly, samesite=strict, lax or none.",
        |cx, n| value::set_bitmask(&mut cx.loc::<UserIdConf>().flags, n, FLAGS),
    ),
    directive(
        "userid_p3p",
        HSL,
        Args::T1,
        "none",
        "The value of the P3P field sent with the cookie.",
        |cx, n| value::set_str(&mut cx.loc::<UserIdConf>().p3p, n),
    ),
    directive(
        "userid_mark",
        HSL,
        Args::T1,
        "off",
        "Replaces the cookie's padding by this character, and re-sends cookies without it.",
        |cx, n| value::set_once(&mut cx.loc::<UserIdConf>().mark, n, mark),
    ),
];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Mode {
    Off,
    Log,
    V1,
    On,
}

const MODES: &[(&str, Mode)] =
    &[("off", Mode::Off), ("log", Mode::Log), ("v1", Mode::V1), ("on", Mode::On)];

const FLAGS: &[(&str, u64)] = &[
    ("off", 1),
    ("secure", 2),
    ("httponly", 4),
    ("samesite=strict", 8),
    ("samesite=lax", 16),
    ("samesite=none", 32),
];

/// The flags' texts in the cookie, in their order there.
const FLAG_TEXTS: &[(u64, &[u8])] = &[
    (2, b"; secure"),
    (4, b"; httponly"),
    (8, b"; samesite=strict"),
    (16, b"; samesite=lax"),
    (32, b"; samesite=none"),
];

/// `userid_expires`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expires {
    Off,
    Max,
    In(u64),
}

engine::settings! {
    struct UserIdConf {
        mode: Option<Mode>,
        service: Option<u64>,
        name: Option<Bytes>,
        domain: Option<Bytes>,
        path: Option<Bytes>,
        expires: Option<Expires>,
        flags: Option<u64>,
        p3p: Option<Bytes>,
        /// 0 is `off`.
        mark: Option<u8>,
        /// `$uid_reset`, where `userid` stands anywhere around.
        reset: Option<VarId>,
    }
}

fn expires(n: &Node) -> Result<Expires, ConfError> {
    match n.arg(0)?.bytes() {
        b"max" => Ok(Expires::Max),
        b"off" => Ok(Expires::Off),
        text => match value::parse_sec(text) {
            Some(0) => Ok(Expires::Off),
            Some(secs) => Ok(Expires::In(secs)),
            None => Err(ConfError::argument(n, 0, "invalid value")),
        },
    }
}

fn mark(n: &Node) -> Result<u8, ConfError> {
    match n.arg(0)?.bytes() {
        b"off" => Ok(0),
        [mark] if mark.is_ascii_alphanumeric() || *mark == b'=' => Ok(*mark),
        _ => {
            let what = "value must be \"off\" or a single letter, digit or \"=\"";
            Err(ConfError::argument(n, 0, what))
        }
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<UserIdConf>();
    if conf.mode() >= Mode::V1 {
        p.header_filters.push(Box::new(move |r: &mut Request| {
            conf.give(r);
            Verdict::Next
        }));
    }
    Ok(())
}

/// Sixteen bytes that tell a browser: server, time, process, number. The last is never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Uid([u8; 16]);

impl Uid {
    fn of_words(words: [u32; 4], bytes: fn(u32) -> [u8; 4]) -> Uid {
        let mut uid = [0; 16];
        for (to, word) in uid.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&bytes(word));
        }
        Uid(uid)
    }

    /// The cookie's first 22 characters; nothing for those that no server set.
    fn of_cookie(text: &[u8]) -> Result<Option<Uid>, ()> {
        let mut bytes = Vec::with_capacity(18);
        if !base::base64::decode(text, &mut bytes) {
            return Err(());
        }
        // Padding within the text ends it early: what is missing counts as zeros.
        bytes.resize(16, 0);
        let uid: [u8; 16] = bytes.try_into().map_err(|_| ())?;
        Ok((uid[12..] != [0; 4]).then_some(Uid(uid)))
    }

    /// As the variables and the log show it: four words of the machine in hexadecimal.
    fn shown(&self) -> String {
        let words = self.0.chunks_exact(4).map(|w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
        words.map(|word| format!("{word:08X}")).collect()
    }
}

/// The identity of the browser that a client's request came from.
struct Known {
    /// By which configuration; a redirect inside the server may lead to another.
    conf: Rc<UserIdConf>,
    got: Option<Uid>,
    /// The cookie's value as it came.
    cookie: Vec<u8>,
    set: Option<Uid>,
    reset: bool,
}

/// The same for its subrequests.
#[derive(Default)]
struct Shared(RefCell<Option<Known>>);

impl UserIdConf {
    fn mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::Off)
    }

    fn name(&self) -> &[u8] {
        self.name.as_deref().unwrap_or(b"uid")
    }

    fn mark(&self) -> u8 {
        self.mark.unwrap_or(0)
    }

    /// Looks at the cookie that the browser sent, once a request.
    fn look(self: &Rc<Self>, r: &mut Request) -> Rc<Shared> {
        let shared = r.shared::<Shared>();
        let known = shared.0.borrow().as_ref().is_some_and(|k| Rc::ptr_eq(&k.conf, self));
        if !known {
            let (got, cookie) = self.read(r);
            let known = Known { conf: self.clone(), got, cookie, set: None, reset: false };
            *shared.0.borrow_mut() = Some(known);
        }
        shared
    }

    fn read(&self, r: &Request) -> (Option<Uid>, Vec<u8>) {
        let Some((cookie, line)) = r.cookie(self.name()) else { return (None, Vec::new()) };
        r.debug(format_args!("uid cookie: \"{}\"", base::log::lossy(cookie)));
        let refuse = |why| {
            let line = base::log::lossy(line);
            r.log(Level::Error, format_args!("client sent {why} userid cookie \"{line}\""));
            (None, cookie.to_vec())
        };
        // The rest is padding, a mark, or rubbish that old cookies are full of.
        let Some(text) = cookie.get(..22) else { return refuse("too short") };
        match Uid::of_cookie(text) {
            Ok(got) => {
                if let Some(uid) = got {
                    r.debug(format_args!("uid: {}", uid.shown()));
                }
                (got, cookie.to_vec())
            }
            Err(()) => refuse("invalid"),
        }
    }

    /// The identity to send to the browser, if any: a new one, or its own with the mark.
    fn decide(self: &Rc<Self>, r: &mut Request, shared: &Shared) -> Option<Uid> {
        let got = match shared.0.borrow().as_ref() {
            Some(Known { set: Some(uid), .. }) => return Some(*uid),
            Some(known) => known.got,
            None => None,
        };
        let mut reset = false;
        let mut uid = None;
        if let Some(got) = got {
            // Evaluated with nothing borrowed: it may depend on anything.
            let text = self.reset.and_then(|var| r.var(var)).unwrap_or_default();
            reset = !(text.is_empty() || text == "0");
            if reset && text == "log" {
                let (name, uid) = (base::log::lossy(self.name()), got.shown());
                let message = format_args!("userid cookie \"{name}={uid}\" was reset");
                r.log(Level::Notice, message);
            }
            if !reset {
                let known = shared.0.borrow();
                let cookie = known.as_ref().map_or(&[][..], |k| &k.cookie);
                if self.mark() == 0 || cookie.get(22..24) == Some(&[self.mark(), b'=']) {
                    return None;
                }
                uid = Some(got);
            }
        }
        let uid = uid.unwrap_or_else(|| self.make(r));
        if let Some(known) = shared.0.borrow_mut().as_mut() {
            (known.set, known.reset) = (Some(uid), reset);
        }
        Some(uid)
    }

    /// A uid that no other process gives to another browser.
    fn make(&self, r: &Request) -> Uid {
        let now = base::time::unix_secs() as u32;
        if self.mode() == Mode::V1 {
            let service = self.service.unwrap_or(0) as u32;
            return Uid::of_words([service, now, started(), next(&V1, 1)], u32::to_ne_bytes);
        }
        let service = match self.service {
            Some(number) => number as u32,
            None => match r.c().local().and_then(|addr| addr.ip_addr()) {
                Some(IpAddr::V4(ip)) => ip.to_bits(),
                Some(IpAddr::V6(ip)) => ip.to_bits() as u32,
                None => 0,
            },
        };
        Uid::of_words([service, now, started(), next(&V2, V2_FIRST)], u32::to_be_bytes)
    }

    /// Adds the cookie to the response.
    fn give(self: &Rc<Self>, r: &mut Request) {
        if r.is_subrequest() {
            return;
        }
        let shared = self.look(r);
        let Some(uid) = self.decide(r, &shared) else { return };
        let own = match shared.0.borrow().as_ref() {
            Some(k) if k.got.is_some() && !k.reset => Some(k.cookie.clone()),
            _ => None,
        };
        let cookie = Bytes::from(self.cookie(&uid, own.as_deref()));
        r.debug(format_args!("uid cookie: \"{}\"", base::log::lossy(&cookie)));
        r.out.add("Set-Cookie", cookie);
        if let Some(p3p) = self.p3p.as_ref().filter(|p| !p.is_empty() && *p != "none") {
            r.out.add("P3P", p3p.clone());
        }
    }

    /// The field's value. `own` is the cookie that the browser has and is to mark.
    fn cookie(&self, uid: &Uid, own: Option<&[u8]>) -> Vec<u8> {
        let mut text = [self.name(), b"="].concat();
        match own {
            Some(own) => {
                text.extend_from_slice(&own[..22.min(own.len())]);
                text.extend_from_slice(&[self.mark(), b'=']);
            }
            None => {
                base::base64::encode(&uid.0, &mut text);
                if self.mark() != 0 {
                    let at = text.len() - 2;
                    text[at] = self.mark();
                }
            }
        }
        match self.expires.unwrap_or(Expires::Off) {
            Expires::Off => {}
            Expires::Max => text.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT"),
            Expires::In(secs) => {
                let at = base::time::unix_secs().saturating_add(secs);
                let at = i64::try_from(at).unwrap_or(i64::MAX);
                text.extend_from_slice(b"; expires=");
                text.extend_from_slice(&base::time::format_cookie_date(at));
            }
        }
        if let Some(domain) = self.domain.as_ref().filter(|d| *d != "none") {
            text.extend_from_slice(b"; domain=");
            text.extend_from_slice(domain);
        }
        text.extend_from_slice(b"; path=");
        text.extend_from_slice(self.path.as_deref().unwrap_or(b"/"));
        let flags = self.flags.unwrap_or(0);
        for (_, flag) in FLAG_TEXTS.iter().filter(|(bit, _)| flags & bit != 0) {
            text.extend_from_slice(flag);
        }
        text
    }
}

/// The first number of the second version; it is never smaller, so never 0.
const V2_FIRST: u32 = 0x0303_0302;

thread_local! {
    static STARTED: Cell<Option<u32>> = const { Cell::new(None) };
    static V1: Cell<u32> = const { Cell::new(1) };
    static V2: Cell<u32> = const { Cell::new(V2_FIRST) };
}

/// A number of this process: its id below, what its clock showed at its first cookie above.
fn started() -> u32 {
    STARTED.with(|started| match started.get() {
        Some(number) => number,
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let number = (now.subsec_micros() / 20) << 16 | std::process::id();
            started.set(Some(number));
            number
        }
    })
}

fn next(sequence: &'static std::thread::LocalKey<Cell<u32>>, first: u32) -> u32 {
    sequence.with(|next| {
        let number = next.get();
        next.set(number.wrapping_add(0x100).max(first));
        number
    })
}

/// The configuration that a client's request is answered by; a subrequest follows what was found
/// out for that.
fn conf_of(r: &mut Request) -> Option<Rc<UserIdConf>> {
    if r.is_subrequest()
        && let Some(known) = r.shared::<Shared>().0.borrow().as_ref()
    {
        return Some(known.conf.clone());
    }
    r.loc.confs.get_rc::<UserIdConf>()
}

fn show(conf: &UserIdConf, uid: Option<Uid>, out: &mut Vec<u8>) -> bool {
    let Some(uid) = uid else { return false };
    out.extend_from_slice(conf.name());
    out.push(b'=');
    out.extend_from_slice(uid.shown().as_bytes());
    true
}

/// `$uid_got`: what the browser sent.
fn got_variable(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(conf) = conf_of(r).filter(|conf| conf.mode() != Mode::Off) else { return false };
    let shared = conf.look(r);
    let got = shared.0.borrow().as_ref().and_then(|known| known.got);
    show(&conf, got, out)
}

/// `$uid_set`: what the browser gets.
fn set_variable(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(conf) = conf_of(r).filter(|conf| conf.mode() >= Mode::V1) else { return false };
    let shared = conf.look(r);
    let set = conf.decide(r, &shared);
    show(&conf, set, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(conf: &UserIdConf, uid: &Uid, own: Option<&[u8]>) -> String {
        String::from_utf8(conf.cookie(uid, own)).unwrap()
    }

    #[test]
    fn cookies() {
        let uid = Uid::of_words([0x7f00_0001, 1, 2, 0x0303_0302], u32::to_be_bytes);
        let mut conf = UserIdConf::default();
        assert_eq!(text(&conf, &uid, None), "uid=fwAAAQAAAAEAAAACAwMDAg==; path=/");
        conf.mark = Some(b't');
        conf.name = Some("x".into());
        conf.domain = Some("none".into());
        conf.path = Some("/a".into());
        conf.expires = Some(Expires::Max);
        conf.flags = Some(1 | 2 | 16);
        let expires = "; expires=Thu, 31-Dec-37 23:55:55 GMT";
        let want = "x=fwAAAQAAAAEAAAACAwMDAgt=; path=/a; secure; samesite=lax";
        assert_eq!(text(&conf, &uid, None), want.replacen("; ", &format!("{expires}; "), 1));
        conf.expires = None;
        let own = b"fwAAAQAAAAEAAAACAwMDAgrubbish";
        assert_eq!(text(&conf, &uid, Some(own)), want);
    }

    #[test]
    fn cookies_that_browsers_send() {
        let uid = Uid::of_words([0x7f00_0001, 1, 2, 0x0303_0302], u32::to_be_bytes);
        assert_eq!(Uid::of_cookie(b"fwAAAQAAAAEAAAACAwMDAg"), Ok(Some(uid)));
        assert_eq!(Uid::of_cookie(b"AAAAAAAAAAAAAAAAAAAAAA"), Ok(None));
        assert_eq!(Uid::of_cookie(b"fwAAAQ================"), Ok(None));
        assert_eq!(Uid::of_cookie(b"fwAAAQ*AAAEAAAACAwMDAg"), Err(()));
    }

    #[test]
    fn numbers_do_not_repeat() {
        assert_eq!((next(&V1, 1), next(&V1, 1)), (1, 0x101));
        V2.set(u32::MAX - 0xff + 2);
        let (last, first) = (next(&V2, V2_FIRST), next(&V2, V2_FIRST));
        assert_eq!((last, first), (u32::MAX - 0xff + 2, V2_FIRST));
    }
}
