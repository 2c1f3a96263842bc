//! URLs of directories (RFC 4516).

use std::fmt;

use super::filter::is_attribute;
use super::{Filter, Scope};

/// A URL such as `ldaps://ldap.example.com/ou=people,dc=example,dc=com?uid?sub?(active=TRUE)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    /// `ldaps`: TLS from the first byte on.
    pub is_tls: bool,
    /// The host with its port, as written.
    pub authority: String,
    /// The name of the entry to search from.
    pub base: Vec<u8>,
    /// The attribute that users are named by.
    pub attribute: Option<String>,
    /// The part of the directory to search.
    pub scope: Scope,
    /// What entries of users have in common.
    pub filter: Option<Filter>,
}

/// The reason why an LDAP URL is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadUrl {
    /// The bytes are no UTF-8.
    NotUtf8,
    /// There is no `://`.
    NoScheme,
    /// The scheme is neither `ldap` nor `ldaps`.
    UnknownScheme,
    /// More than one attribute is named.
    Attributes,
    /// The attribute is no name of one.
    Attribute,
    /// The scope is none of `base`, `one` and `sub`.
    Scope(String),
    /// The filter cannot be parsed, for this reason.
    Filter(&'static str),
    /// Extensions, which are not supported.
    Extensions,
    /// A percent sign without two hexadecimal digits.
    Escape,
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadUrl::NotUtf8 => "it is no UTF-8",
            BadUrl::NoScheme => "it has no \"://\"",
            BadUrl::UnknownScheme => "it begins with neither \"ldap://\" nor \"ldaps://\"",
            BadUrl::Attributes => "it has more than one attribute: only that of users' names",
            BadUrl::Attribute => "its attribute is invalid",
            BadUrl::Scope(scope) => {
                return write!(f, "\"{scope}\" is no scope: it is base, one or sub");
            }
            BadUrl::Filter(why) => return write!(f, "its filter is invalid: {why}"),
            BadUrl::Extensions => "it has extensions",
            BadUrl::Escape => "a \"%\" has no two hexadecimal digits behind it",
        })
    }
}

impl std::error::Error for BadUrl {}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// See [`BadUrl`].
    pub fn parse(text: &[u8]) -> Result<Url, BadUrl> {
        let text = std::str::from_utf8(text).map_err(|_| BadUrl::NotUtf8)?;
        let (scheme, rest) = text.split_once("://").ok_or(BadUrl::NoScheme)?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "ldap" => false,
            "ldaps" => true,
            _ => return Err(BadUrl::UnknownScheme),
        };
        let (authority, rest) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let mut parts = rest.strip_prefix('/').unwrap_or(rest).splitn(5, '?');
        let base = decoded(parts.next().unwrap_or_default())?;
        let attributes = decoded(parts.next().unwrap_or_default())?;
        let attribute = match &attributes[..] {
            b"" => None,
            list if list.contains(&b',') => return Err(BadUrl::Attributes),
            name if is_attribute(name) => String::from_utf8(name.to_vec()).ok(),
            _ => return Err(BadUrl::Attribute),
        };
        let scope = parts.next().unwrap_or_default();
        let scope = match scope.to_ascii_lowercase().as_str() {
            "" | "base" => Scope::Base,
            "one" => Scope::One,
            "sub" => Scope::Sub,
            _ => return Err(BadUrl::Scope(scope.to_owned())),
        };
        let filter = match parts.next().unwrap_or_default() {
            "" => None,
            filter => {
                let read = Filter::parse(&decoded(filter)?);
                Some(read.map_err(BadUrl::Filter)?)
            }
        };
        if parts.next().is_some_and(|extensions| !extensions.is_empty()) {
            return Err(BadUrl::Extensions);
        }
        Ok(Url { is_tls, authority: authority.to_owned(), base, attribute, scope, filter })
    }
}

/// A part without its percent-encoding.
fn decoded(text: &str) -> Result<Vec<u8>, BadUrl> {
    let (text, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(&byte) = text.get(at) {
        at += 1;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |at| text.get(at).and_then(|byte: &u8| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(at), digit(at + 1)) else {
            return Err(BadUrl::Escape);
        };
        out.push((high << 4 | low) as u8);
        at += 2;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_their_parts() {
        let url = Url::parse(
            b"ldap://192.0.2.1:3268/DC=test,DC=local?sAMAccountName?sub?(objectClass=person)",
        )
        .unwrap();
        assert_eq!((url.is_tls, url.authority.as_str()), (false, "192.0.2.1:3268"));
        assert_eq!(url.base, b"DC=test,DC=local");
        assert_eq!(url.attribute.as_deref(), Some("sAMAccountName"));
        assert_eq!(url.scope, Scope::Sub);
        assert_eq!(url.filter, Filter::parse(b"(objectClass=person)").ok());
        let url = Url::parse(b"LDAPS://h/o=a%20b%3f??ONE").unwrap();
        assert_eq!((url.is_tls, &url.base[..], url.scope), (true, &b"o=a b?"[..], Scope::One));
        assert_eq!((url.attribute, url.filter), (None, None));
        let url = Url::parse(b"ldap://[::1]:389").unwrap();
        assert_eq!((url.authority.as_str(), url.scope), ("[::1]:389", Scope::Base));
    }

    #[test]
    fn errors_have_reasons() {
        for text in [
            "h/dc=x",
            "http://h/dc=x",
            "ldapi://h/dc=x",
            "ldap://h/dc=x?uid,cn",
            "ldap://h/dc=x?u id",
            "ldap://h/dc=x?uid?all",
            "ldap://h/dc=x?uid?sub?objectClass=*",
            "ldap://h/dc=x?uid?sub?(a=b)?!x",
            "ldap://h/dc=%x?uid",
        ] {
            assert!(Url::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Url::parse(b"ldap://h/\xff").is_err());
    }
}
