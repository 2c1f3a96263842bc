//! `secure_link`: whether a link carries the hash of a secret, and whether its time is over.

use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::template::Template;
use conf::value::set_once;
use conf::{ConfError, Word};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, Module};
use http::request::Request;
use http::vars::VarDef;
use md5::{Digest, Md5};

/// The module's table.
pub static MODULE: Module = Module {
    variables: &[
        VarDef::kept("secure_link", secure_link_variable),
        VarDef::kept("secure_link_expires", expires_variable),
    ],
    ..Module::with_conf::<SecureLinkConf>("secure_link", DIRECTIVES)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "secure_link",
        HSL,
        Args::T1,
        "",
        "The expression with the link's MD5 hash (base64url) and, after a comma, its expiry time.",
        |cx, n| cx.set_template(n, |conf: &mut SecureLinkConf| &mut conf.link),
    ),
    directive(
        "secure_link_md5",
        HSL,
        Args::T1,
        "",
        "The expression whose MD5 hash must equal the link's.",
        |cx, n| cx.set_template(n, |conf: &mut SecureLinkConf| &mut conf.md5),
    ),
    directive(
        "secure_link_secret",
        HSL,
        Args::T1,
        "",
        "The secret word for links of the form /prefix/hash/link.",
        |cx, n| set_once(&mut cx.loc::<SecureLinkConf>().secret, n, |n| Ok(n.arg(0)?.clone())),
    ),
];

#[derive(Default)]
struct SecureLinkConf {
    link: Option<Template>,
    md5: Option<Template>,
    secret: Option<Word>,
}

impl Conf for SecureLinkConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if let Some(secret) = &self.secret {
            if self.link.is_some() || self.md5.is_some() {
                let message = "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \
                               \"secure_link_md5\"";
                return Err(ConfError::at(secret, message));
            }
            return Ok(());
        }
        self.link = self.link.take().or_else(|| prev.link.clone());
        self.md5 = self.md5.take().or_else(|| prev.md5.clone());
        if self.link.is_none() && self.md5.is_none() {
            self.secret.clone_from(&prev.secret);
        }
        Ok(())
    }
}

/// Until when the link said it holds, once `$secure_link` has looked at it.
#[derive(Default)]
struct Expires(Bytes);

/// `$secure_link`: nothing for a wrong hash, `0` for a link whose time is over, else `1`; with
/// `secure_link_secret`, the link behind the hash.
fn secure_link_variable(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let loc = r.loc.clone();
    let Some(conf) = loc.confs.get::<SecureLinkConf>() else { return false };
    if let Some(secret) = &conf.secret {
        return match link_of(r.unparsed_uri(), secret.bytes()) {
            Some(link) => {
                out.extend_from_slice(link);
                true
            }
            None => false,
        };
    }
    let (Some(link), Some(md5)) = (&conf.link, &conf.md5) else { return false };
    let said = r.eval(link);
    let mut hash = &said[..];
    let mut until = None;
    if let Some(comma) = memchr::memchr(b',', &said) {
        let text = said.slice(comma + 1..);
        until = base::ascii::parse_u64(&text).filter(|secs| *secs > 0);
        if until.is_none() {
            return false;
        }
        hash = &said[..comma];
        *r.ctx_mut() = Expires(text);
    }
    let Some(hash) = decoded(hash) else { return false };
    let text = r.eval(md5);
    if !equal(&hash, &Md5::digest(&text)) {
        return false;
    }
    let over = until.is_some_and(|secs| secs < base::time::unix_secs());
    out.push(if over { b'0' } else { b'1' });
    true
}

fn expires_variable(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match r.ctx::<Expires>() {
        Some(Expires(text)) => {
            out.extend_from_slice(text);
            true
        }
        None => false,
    }
}

/// The sixteen bytes of a hash in base64url, padded or not.
fn decoded(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() > 24 {
        return None;
    }
    let mut bytes = Vec::with_capacity(18);
    base::base64::decode_url(text, &mut bytes).then(|| bytes.try_into().ok())?
}

/// The link behind the hash in `/prefix/hash/link`, if the hash is that of link and secret.
fn link_of<'a>(uri: &'a [u8], secret: &[u8]) -> Option<&'a [u8]> {
    let rest = uri.get(1..)?;
    let rest = &rest[memchr::memchr(b'/', rest)? + 1..];
    let slash = memchr::memchr(b'/', rest)?;
    let (hash, link) = (&rest[..slash], &rest[slash + 1..]);
    if hash.len() != 32 || link.is_empty() {
        return None;
    }
    let hash = base::ascii::parse_hex(hash)?;
    let want = Md5::new().chain_update(link).chain_update(secret).finalize();
    equal(&hash, &want).then_some(link)
}

/// Compares in a time that does not tell where the first difference is.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |seen, (a, b)| seen | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_with_a_secret() {
        let hash = base::ascii::parse_hex(&[b'0'; 32]).unwrap();
        assert_eq!(hash.len(), 16);
        let mut uri = b"/p/".to_vec();
        base::ascii::write_hex(&mut uri, &Md5::digest(b"a/b.html?xsecret"));
        uri.extend_from_slice(b"/a/b.html?x");
        assert_eq!(link_of(&uri, b"secret"), Some(&b"a/b.html?x"[..]));
        assert_eq!(link_of(&uri, b"other"), None);
        for broken in [&b""[..], b"/", b"/p", b"/p/", b"/p/00/x", b"/p/00", &uri[..uri.len() - 10]]
        {
            assert_eq!(link_of(broken, b"secret"), None);
        }
        uri[4] = b'x';
        assert_eq!(link_of(&uri, b"secret"), None);
    }

    #[test]
    fn hashes_in_base64url() {
        let zeroes = [0; 16];
        assert_eq!(decoded(b"AAAAAAAAAAAAAAAAAAAAAA"), Some(zeroes));
        assert_eq!(decoded(b"AAAAAAAAAAAAAAAAAAAAAA=="), Some(zeroes));
        let mut bytes = zeroes;
        bytes[0] = 0xfb;
        bytes[1] = 0xf0;
        assert_eq!(decoded(b"-_AAAAAAAAAAAAAAAAAAAA"), Some(bytes));
        for text in [&b""[..], b"AAAA", b"+/AAAAAAAAAAAAAAAAAAAA", &[b'A'; 25], &[b'A'; 24]] {
            assert_eq!(decoded(text), None);
        }
    }

    #[test]
    fn comparison() {
        assert!(equal(b"abc", b"abc"));
        assert!(!equal(b"abc", b"abd"));
        assert!(!equal(b"abc", b"ab"));
    }
}
