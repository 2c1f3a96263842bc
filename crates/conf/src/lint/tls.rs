//! TLS protocols and ciphers.

use super::cx::Cx;
use super::{Entry, Found, Severity, entry};
use crate::edit::{Change, Edit};
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "tls-protocols",
        Severity::Warning,
        "a protocol older than TLS 1.2 is enabled",
        protocols,
    ),
    entry("tls-ciphers", Severity::Warning, "broken ciphers are enabled", ciphers),
];

fn protocols(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if !n.name.bytes().ends_with(b"ssl_protocols") {
        return;
    }
    let old = |word: &&Word| matches!(word.bytes(), b"SSLv2" | b"SSLv3" | b"TLSv1" | b"TLSv1.1");
    let names: Vec<_> = n.args.iter().filter(old).map(Word::lossy).collect();
    if let Some(first) = n.args.iter().find(old) {
        let names = names.join(", ");
        // A list of old ones alone keeps the file from loading: its author has to decide.
        let has_new = n.args.iter().any(|word| !old(&word));
        let removed = n.args.iter().filter(old).filter(|_| has_new);
        let fix = removed.map(|word| Edit::new(word, Change::RemoveWord)).collect();
        found.add_with(
            first,
            fix,
            format_args!(
                "{names} is insecure, and Weir does not support it: write \"TLSv1.2 TLSv1.3\""
            ),
        );
    }
}

/// Parts of the names of ciphers that are broken or do not authenticate the peer.
const BROKEN: &[&str] =
    &["RC4", "RC2", "DES", "MD5", "NULL", "EXP", "ADH", "AECDH", "IDEA", "SEED", "LOW"];

/// Sets that contain ciphers without authentication.
const SETS: &[&str] = &["ALL", "COMPLEMENTOFALL", "HIGH", "MEDIUM"];

fn ciphers(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if !n.name.bytes().ends_with(b"ssl_ciphers") {
        return;
    }
    let Some(list) = n.args.first() else { return };
    let text = list.lossy().to_ascii_uppercase();
    let names = || text.split([':', ',', ' ']).filter(|name| !name.is_empty());
    let killed: Vec<&str> = names().filter_map(|name| name.strip_prefix('!')).collect();
    let is_killed = |part: &str| killed.iter().any(|name| name.starts_with(part));
    let on = || names().filter(|name| !name.starts_with(['!', '-', '@']));
    let broken = on().find(|name| {
        let mut parts = BROKEN.iter().filter(|part| name.contains(*part));
        parts.next().is_some_and(|part| !is_killed(part))
    });
    if let Some(name) = broken {
        found.add(
            list,
            format_args!(
                "\"{name}\" is broken; Weir does not have it, but another server that reads this \
                 file may offer it: leave it out"
            ),
        );
    } else if let Some(set) = on().find(|name| SETS.contains(name)).filter(|_| !is_killed("ANULL"))
    {
        found.add(
            list,
            format_args!(
                "\"{set}\" contains ciphers without authentication (Weir has none of them): add \
                 \"!aNULL\""
            ),
        );
    }
}
