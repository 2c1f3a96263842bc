//! The payloads of requests.

use base::json::{Object, escape};

use super::jws::{self, By, SignFailed, Signer};
use super::{Identifier, base64url};

/// Texts as a JSON list.
fn list(texts: &[String]) -> String {
    let mut out = vec![b'['];
    for (i, text) in texts.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.push(b'"');
        escape(text.as_bytes(), &mut out);
        out.push(b'"');
    }
    out.push(b']');
    String::from_utf8_lossy(&out).into_owned()
}

/// The members of an object of which some are JSON already.
fn object(members: &[(&str, String)]) -> String {
    let members: Vec<_> =
        members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

/// Asks for an account (RFC 8555 section 7.3). `binding` is [`super::external_account`]'s.
pub fn new_account(contacts: &[String], agreed: bool, binding: Option<&str>) -> String {
    let mut members = Vec::new();
    if agreed {
        members.push(("termsOfServiceAgreed", "true".to_owned()));
    }
    if !contacts.is_empty() {
        members.push(("contact", list(contacts)));
    }
    if let Some(binding) = binding {
        members.push(("externalAccountBinding", binding.to_owned()));
    }
    object(&members)
}

/// Asks for the account of a key, which is not made (section 7.3.1).
pub fn find_account() -> String {
    object(&[("onlyReturnExisting", "true".to_owned())])
}

/// Asks for an order (section 7.4), in the place of the certificate with the identifier `replaces`
/// (RFC 9773 section 5).
pub fn new_order(
    identifiers: &[Identifier],
    profile: Option<&str>,
    replaces: Option<&str>,
) -> String {
    let mut out = Vec::new();
    Object::write(&mut out, |o| {
        o.list("identifiers", identifiers.iter(), |o, identifier| {
            o.text("type", identifier.kind().as_bytes());
            o.text("value", identifier.value().as_bytes());
        });
        if let Some(profile) = profile {
            o.text("profile", profile.as_bytes());
        }
        if let Some(replaces) = replaces {
            o.text("replaces", replaces.as_bytes());
        }
    });
    String::from_utf8_lossy(&out).into_owned()
}

/// Asks for the certificate of a request in DER.
pub fn finalize(request: &[u8]) -> String {
    object(&[("csr", format!("\"{}\"", base64url(request)))])
}

/// Asks for another key of an account (section 7.3.5): the payload of a request that the old key
/// signs.
///
/// # Errors
/// The new key does not sign.
pub fn key_change(
    account: &str,
    old: &dyn Signer,
    new: &dyn Signer,
    url: &str,
) -> Result<String, SignFailed> {
    let mut name = Vec::new();
    escape(account.as_bytes(), &mut name);
    let name = String::from_utf8_lossy(&name).into_owned();
    let inner = object(&[("account", format!("\"{name}\"")), ("oldKey", old.jwk())]);
    let jws = jws::request(new, By::Key, None, url, Some(&inner))?;
    Ok(String::from_utf8_lossy(&jws).into_owned())
}
