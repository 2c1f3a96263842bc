//! `referer`: `$invalid_referer`, by names and expressions that pages may link from.

use std::rc::Rc;

use bytes::Bytes;
use conf::hostnames::HostTable;
use conf::pattern::{Pattern, PatternList};
use conf::table::{Args, Contexts as C, Directive, no_table};
use conf::{ConfError, Node, Word};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Conf, ConfType, Module, Scope};
use http::request::Request;
use http::vars::VarDef;
use http_wire::h1::FieldId;

/// The module's table.
pub static MODULE: Module = Module {
    name: "referer",
    directives: DIRECTIVES,
    variables: &[VarDef::kept("invalid_referer", invalid_referer).changeable()],
    confs: &[ConfType::of::<RefererConf>(Scope::Location)],
    ..Module::EMPTY
};

const PLACES: C = C::SERVER.or(C::LOCATION);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "valid_referers",
        PLACES,
        Args::ONE_MORE,
        "",
        "The allowed Referer values; $invalid_referer is \"1\" for all others.",
        valid_referers,
    ),
    no_table("referer_hash_max_size", PLACES),
    no_table("referer_hash_bucket_size", PLACES),
];

/// The valid referers. A level that names any names all.
#[derive(Default)]
struct RefererConf {
    list: Option<Rc<Referers>>,
    draft: Referers,
    /// The first `valid_referers` of this level.
    at: Option<Word>,
}

#[derive(Default)]
struct Referers {
    /// Hosts, with how the path must begin where that is said.
    hosts: HostTable<Bytes>,
    patterns: Vec<Pattern>,
    /// Which of `patterns` may match.
    list: PatternList,
    /// `none`: a request without the field.
    none: bool,
    /// `blocked`: a field that is no address of a page, as firewalls leave it.
    blocked: bool,
    /// `server_names`: the server's own.
    server_names: bool,
}

impl Conf for RefererConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        let Some(at) = &self.at else {
            self.list.clone_from(&prev.list);
            return Ok(());
        };
        let mut draft = std::mem::take(&mut self.draft);
        let nothing = draft.hosts.is_empty() && draft.patterns.is_empty() && !draft.server_names;
        if (draft.none || draft.blocked) && nothing {
            let m = "the \"none\" or \"blocked\" referers are specified in the \"valid_referers\" \
                     directive without any valid referer";
            return Err(ConfError::at(at, m));
        }
        draft.list = PatternList::new(&draft.patterns);
        self.list = Some(Rc::new(draft));
        Ok(())
    }
}

fn valid_referers(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let conf = cx.loc::<RefererConf>();
    conf.at.get_or_insert_with(|| n.name.clone());
    for word in &n.args {
        conf.draft.add(word)?;
    }
    Ok(())
}

impl Referers {
    fn add(&mut self, word: &Word) -> Result<(), ConfError> {
        match word.bytes() {
            b"" => return Err(ConfError::at(word, "invalid referer \"\"")),
            b"none" => self.none = true,
            b"blocked" => self.blocked = true,
            b"server_names" => self.server_names = true,
            b"~" => return Err(ConfError::at(word, "empty regex in \"~\"")),
            [b'~', pattern @ ..] => self.patterns.push(Pattern::for_list(word, pattern, true)?),
            text => {
                let slash = memchr::memchr(b'/', text).unwrap_or(text.len());
                let (host, path) = (&text[..slash], word.text.slice(slash..));
                self.hosts.add(host, path).map_err(|why| why.at(word, host))?;
            }
        }
        Ok(())
    }

    /// Whether a page of this address may link here.
    fn allow(&self, r: &Request, referer: &[u8]) -> bool {
        let Some(address) = behind_scheme(referer) else { return self.blocked };
        let end = address.iter().position(|b| matches!(b, b'/' | b':')).unwrap_or(address.len());
        if end > HOST_MAX {
            return false;
        }
        let host = address[..end].to_ascii_lowercase();
        if let Some(path) = self.hosts.find(&host) {
            let slash = memchr::memchr(b'/', &address[end..]).map_or(address.len(), |at| end + at);
            return address[slash..].starts_with(path);
        }
        // A referer whose match was given up is not known to be valid.
        self.server_names && r.server.is_named(&host, r).unwrap_or(false)
            || self.list.first(address, |index| {
                self.patterns[index].is_match(address).unwrap_or(false).then_some(())
            }) == Some(())
    }
}

/// The longest host that is looked at.
const HOST_MAX: usize = 256;

/// The text behind the scheme of a page's address; the shortest address has eleven characters.
fn behind_scheme(referer: &[u8]) -> Option<&[u8]> {
    if referer.len() < "http://i.ru".len() {
        return None;
    }
    let schemes = [&b"http://"[..], b"https://"];
    let scheme = schemes.iter().find(|s| base::ascii::starts_with_ignore_case(referer, s))?;
    referer.get(scheme.len()..)
}

/// `1` for requests that come from elsewhere, else empty.
fn invalid_referer(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let list = r.loc.confs.get::<RefererConf>().and_then(|conf| conf.list.as_ref());
    let valid = match (list, r.header(FieldId::Referer)) {
        (None, _) => true,
        (Some(list), None) => list.none,
        (Some(list), Some(referer)) => list.allow(r, referer),
    };
    if !valid {
        out.push(b'1');
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes() {
        assert_eq!(behind_scheme(b"http://www.example.org"), Some(&b"www.example.org"[..]));
        assert_eq!(behind_scheme(b"HTTPS://i.ru"), Some(&b"i.ru"[..]));
        for none in ["http://i.r", "ftp://www.example.org", "www.example.org/x", ""] {
            assert_eq!(behind_scheme(none.as_bytes()), None, "{none}");
        }
    }
}
