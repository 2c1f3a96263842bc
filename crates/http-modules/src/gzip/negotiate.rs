//! Whether a client takes gzip: the directives that `gzip`, `gzip_static` and `gunzip` share.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::value::{set_bitmask, set_enum, set_flag};
use conf::{ConfError, Node};
use engine::regex::Regex;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module};
use http::request::Request;
use http_wire::h1::{FieldId, Version};

use crate::compress::{Coding, weight};

/// The module's table.
pub static MODULE: Module = Module::with_conf::<AcceptConf>("gzip_negotiation", DIRECTIVES);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "gzip_vary",
        HSL,
        Args::FLAG,
        "off",
        "Adds `Vary: Accept-Encoding` to responses that may be compressed.",
        |cx, n| set_flag(&mut cx.loc::<AcceptConf>().vary, n),
    ),
    directive(
        "gzip_http_version",
        HSL,
        Args::T1,
        "1.1",
        "The minimum HTTP version of requests whose responses may be compressed.",
        |cx, n| {
            let versions = &[("1.0", Version::HTTP_10), ("1.1", Version::HTTP_11)];
            set_enum(&mut cx.loc::<AcceptConf>().http_version, n, versions)
        },
    ),
    directive(
        "gzip_proxied",
        HSL,
        Args::ONE_MORE,
        "off",
        "Which responses to proxied requests (those with `Via`) may be compressed.",
        |cx, n| set_bitmask(&mut cx.loc::<AcceptConf>().proxied, n, PROXIED),
    ),
    directive(
        "gzip_disable",
        HSL,
        Args::ONE_MORE,
        "",
        "No gzip for clients whose User-Agent matches an expression; `msie6`: old MSIE.",
        gzip_disable,
    ),
];

const OFF: u64 = 1;
const EXPIRED: u64 = 1 << 1;
const NO_CACHE: u64 = 1 << 2;
const NO_STORE: u64 = 1 << 3;
const PRIVATE: u64 = 1 << 4;
const NO_LAST_MODIFIED: u64 = 1 << 5;
const NO_ETAG: u64 = 1 << 6;
const AUTH: u64 = 1 << 7;
const ANY: u64 = 1 << 8;

static PROXIED: &[(&str, u64)] = &[
    ("off", OFF),
    ("expired", EXPIRED),
    ("no-cache", NO_CACHE),
    ("no-store", NO_STORE),
    ("private", PRIVATE),
    ("no_last_modified", NO_LAST_MODIFIED),
    ("no_etag", NO_ETAG),
    ("auth", AUTH),
    ("any", ANY),
];

engine::settings! {
    struct AcceptConf {
        vary: Option<bool>,
        http_version: Option<Version>,
        proxied: Option<u64>,
        disable: Option<Vec<Rc<Regex>>>,
        disable_msie6: Option<bool>,
    }
}

fn gzip_disable(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    cx.loc::<AcceptConf>().disable.get_or_insert_default();
    for word in &n.args {
        if *word == *"msie6" {
            cx.loc::<AcceptConf>().disable_msie6 = Some(true);
            continue;
        }
        let regex = Regex::compile(word, &word.text, true, &mut cx.vars)?;
        cx.loc::<AcceptConf>().disable.get_or_insert_default().push(Rc::new(regex));
    }
    Ok(())
}

/// The settings of one location, for a module's handler to keep.
pub struct Accept {
    /// `gzip_vary`
    pub vary: bool,
    http_version: Version,
    proxied: u64,
    disable: Vec<Rc<Regex>>,
    disable_msie6: bool,
}

/// The answer for a request, kept so that modules that ask later agree with it.
#[derive(Default)]
struct Tested(Cell<Option<bool>>);

impl Accept {
    /// The settings of a location.
    pub fn of(l: &LocView<'_>) -> Accept {
        let conf = l.conf::<AcceptConf>();
        Accept {
            vary: conf.vary.unwrap_or(false),
            http_version: conf.http_version.unwrap_or(Version::HTTP_11),
            proxied: conf.proxied.unwrap_or(OFF),
            disable: conf.disable.clone().unwrap_or_default(),
            disable_msie6: conf.disable_msie6.unwrap_or(false),
        }
    }

    /// Whether the response in `r.out` may go to this client with gzip. Asked once a request. Parts
    /// of pages go as they are: the page as a whole is compressed.
    pub(crate) fn takes_gzip(&self, r: &mut Request) -> bool {
        if let Some(known) = r.ctx::<Tested>().and_then(|tested| tested.0.get()) {
            return known;
        }
        let takes = self.test(r);
        r.ctx_mut::<Tested>().0.set(Some(takes));
        takes
    }

    /// The weight that the client gives to a coding, in thousandths; 0 where it is not to get it.
    /// `gzip_proxied` and `gzip_disable` withhold gzip alone.
    pub fn weight(&self, r: &mut Request, coding: Coding) -> u16 {
        match coding {
            Coding::Gzip if !self.takes_gzip(r) => 0,
            // Taken, though it may be written in a way that has no weight.
            Coding::Gzip => weight::of(r, coding).max(1),
            _ if r.is_subrequest() => 0,
            _ => weight::of(r, coding),
        }
    }

    fn test(&self, r: &Request) -> bool {
        let Some(accept) = r.header(FieldId::AcceptEncoding) else { return false };
        if r.is_subrequest() || !names_gzip(accept) {
            return false;
        }
        if self.disable_msie6 && r.is_msie6() || r.version() < self.http_version {
            return false;
        }
        if r.header(FieldId::Via).is_some() && !self.proxy_may_have(r) {
            return false;
        }
        match r.header(FieldId::UserAgent) {
            Some(agent) => !self.disable.iter().any(|re| re.is_match(r, agent).unwrap_or(true)),
            None => true,
        }
    }

    /// `gzip_proxied`
    fn proxy_may_have(&self, r: &Request) -> bool {
        let may = |bit: u64| self.proxied & bit != 0;
        if may(OFF) {
            return false;
        }
        if may(ANY) || may(AUTH) && r.header(FieldId::Authorization).is_some() {
            return true;
        }
        if let Some(expires) = r.out.header(b"Expires") {
            let date = match &r.out.date {
                Some(date) => base::time::parse_http_date(date),
                None => Some(base::time::unix_secs() as i64),
            };
            let expires = base::time::parse_http_date(expires);
            return may(EXPIRED) && matches!((expires, date), (Some(e), Some(d)) if e < d);
        }
        if r.out.header(b"Cache-Control").is_some() {
            return may(NO_CACHE) && says(&r.out.headers, b"no-cache")
                || may(NO_STORE) && says(&r.out.headers, b"no-store")
                || may(PRIVATE) && says(&r.out.headers, b"private");
        }
        !(may(NO_LAST_MODIFIED) && r.out.last_modified.is_some()
            || may(NO_ETAG) && r.out.etag.is_some())
    }
}

/// Whether `Accept-Encoding` names gzip, and with a weight above zero where it has one.
fn names_gzip(accept: &[u8]) -> bool {
    accept.starts_with(b"gzip,") || weight::in_list(accept, b"gzip") > 0
}

/// Whether any `Cache-Control` names a directive.
fn says(headers: &[(Bytes, Bytes)], directive: &[u8]) -> bool {
    let control = headers.iter().filter(|(n, _)| base::ascii::eq_ignore_case(n, b"Cache-Control"));
    control.flat_map(|(_, value)| value.split(|b| matches!(b, b',' | b';'))).any(|item| {
        let item = base::ascii::trim(item);
        base::ascii::eq_ignore_case(item, directive)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_of_caches() {
        let line = |text: &'static str| {
            (Bytes::from_static(b"cache-control"), Bytes::from_static(text.as_bytes()))
        };
        let headers = [line("max-age=5, No-Cache"), line("private;x")];
        assert!(says(&headers, b"no-cache"));
        assert!(says(&headers, b"private"));
        assert!(!says(&headers, b"no-store"));
        assert!(!says(&headers, b"max-age"));
    }
}
