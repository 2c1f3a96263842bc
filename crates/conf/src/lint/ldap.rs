//! Directories that passwords are checked with.

use super::cx::{Cx, named};
use super::{Entry, Found, Severity, entry};
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "ldap-plaintext",
        Severity::Error,
        "auth_ldap sends passwords over the network in plain text",
        ldap_plaintext,
    ),
    entry(
        "ldap-unchecked",
        Severity::Warning,
        "auth_ldap sends passwords to whoever answers, without a check of the certificate",
        ldap_unchecked,
    ),
    entry(
        "ldap-password",
        Severity::Error,
        "auth_ldap binds without a password, which servers take for an anonymous client",
        ldap_password,
    ),
    entry(
        "ldap-scope",
        Severity::Warning,
        "auth_ldap searches a single entry, in which no users can be",
        ldap_scope,
    ),
];

/// The first argument of a directive in a block.
fn argument<'a>(block: &'a Node, name: &'static str) -> Option<&'a Word> {
    named(block.children(), name).next().and_then(|node| node.args.first())
}

fn is_on(block: &Node, name: &'static str) -> bool {
    argument(block, name).is_some_and(|word| word.bytes() == b"on")
}

/// The URL of a server, with the part behind the scheme, and whether that is `ldaps`.
fn url_of(n: &Node) -> Option<(&Word, &[u8], bool)> {
    let url = argument(n, "url").filter(|_| n.name == *"ldap_server")?;
    let at = url.bytes().windows(3).position(|w| w == b"://")?;
    let (scheme, rest) = (&url.bytes()[..at], &url.bytes()[at + 3..]);
    Some((url, rest, scheme.eq_ignore_ascii_case(b"ldaps")))
}

fn ldap_plaintext(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some((url, rest, is_tls)) = url_of(n) else { return };
    let is_local = [&b"127."[..], b"localhost", b"[::1]"].iter().any(|own| rest.starts_with(own));
    if !is_tls && !is_local && !is_on(n, "starttls") {
        found.add(
            url,
            "whoever is on the way reads the passwords of all users: use ldaps://, or \
             \"starttls on\", with \"ssl_check_cert on\"",
        );
    }
}

fn ldap_unchecked(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some((url, _, is_tls)) = url_of(n) else { return };
    if (is_tls || is_on(n, "starttls")) && !is_on(n, "ssl_check_cert") {
        found.add(
            url,
            "any certificate is accepted, so that another server can take this one's place and \
             get the passwords: write \"ssl_check_cert on\", with \"ssl_ca_file\" if needed",
        );
    }
}

fn ldap_password(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"ldap_server" {
        return;
    }
    let Some(dn) = argument(n, "binddn").filter(|dn| !dn.bytes().is_empty()) else { return };
    let password = argument(n, "binddn_passwd");
    if password.is_none_or(|password| password.bytes().is_empty()) {
        found.add(dn, "write the password of \"binddn\" in \"binddn_passwd\"");
    }
}

fn ldap_scope(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some((url, rest, _)) = url_of(n) else { return };
    let scope = rest.split(|byte| *byte == b'?').nth(2).unwrap_or_default();
    let is_named = |node: &Node| {
        node.args.first().is_some_and(|word| word.bytes() == b"valid_user") && node.args.len() > 1
    };
    if (scope.is_empty() || scope.eq_ignore_ascii_case(b"base"))
        && !named(n.children(), "require").any(is_named)
    {
        found.add(
            url,
            "without a scope only the entry of the URL itself is searched: write \"?sub\" or \
             \"?one\" behind the attribute",
        );
    }
}
