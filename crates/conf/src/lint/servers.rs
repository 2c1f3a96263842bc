//! `server` blocks and the main level.

use super::cx::{Cx, named};
use super::{Entry, Found, Severity, change, entry};
use crate::edit::{Change, Edit};
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "implicit-default-server",
        Severity::Note,
        "servers share an address, and none is default_server",
        implicit_default,
    ),
    entry(
        "worker-connections",
        Severity::Warning,
        "worker_rlimit_nofile is too low for worker_connections",
        worker_connections,
    ),
    entry(
        "error-log-off",
        Severity::Warning,
        "error_log off writes to a file named \"off\"",
        error_log_off,
    ),
];

/// The addresses that a server listens on, as they are written, with a port.
fn addresses(server: &Node) -> Vec<(String, bool)> {
    let listens: Vec<&Node> = named(server.children(), "listen").collect();
    if listens.is_empty() {
        return vec![("*:80".to_owned(), false)];
    }
    listens.iter().filter_map(|n| address_of(n)).collect()
}

/// The address of a `listen` directive, and whether the server is its default one.
pub(super) fn address_of(n: &Node) -> Option<(String, bool)> {
    let text = n.args.first()?.lossy().into_owned();
    let default = n.args.iter().any(|word| matches!(word.bytes(), b"default_server" | b"default"));
    let full = match text.parse::<u16>() {
        Ok(port) => format!("*:{port}"),
        Err(_) if text.contains(':') => text,
        Err(_) => format!("{text}:80"),
    };
    // QUIC's socket is another one.
    let quic = n.args.iter().any(|word| word.bytes() == b"quic");
    Some((if quic { format!("{full} quic") } else { full }, default))
}

fn implicit_default(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"http" {
        return;
    }
    let mut seen: Vec<(String, &Node, usize, bool)> = Vec::new();
    for server in named(n.children(), "server") {
        for (address, default) in addresses(server) {
            match seen.iter_mut().find(|(known, ..)| *known == address) {
                Some((_, _, count, any_default)) => {
                    *count += 1;
                    *any_default |= default;
                }
                None => seen.push((address, server, 1, default)),
            }
        }
    }
    for (address, first, count, default) in seen {
        if count < 2 || default {
            continue;
        }
        let names = named(first.children(), "server_name").flat_map(|n| &n.args);
        let names: Vec<String> = names.map(|word| word.lossy().into_owned()).collect();
        // `_` says that it is meant to be the default.
        if names.iter().any(|name| name == "_" || name.is_empty()) {
            continue;
        }
        let what = match names.first() {
            Some(name) => format!("\"{name}\""),
            None => "this server".to_owned(),
        };
        found.add_with(
            &first.name,
            default_of(first, &address),
            format_args!(
                "of {count} servers on {address}, {what} answers requests for unknown names, \
                 because it is the first: add \"default_server\" to one of them"
            ),
        );
    }
}

/// The change that makes a server the default one of an address, which it is already.
fn default_of(server: &Node, address: &str) -> Vec<Edit> {
    let is_it = |n: &&Node| address_of(n).is_some_and(|(own, _)| own == address);
    let listen = named(server.children(), "listen").find(is_it);
    let word = listen.and_then(|n| n.args.first());
    word.map_or_else(Vec::new, |word| change(word, Change::AddWord("default_server".to_owned())))
}

fn number(nodes: &[Node], name: &str) -> Option<u64> {
    let node = named(nodes, name).next()?;
    base::ascii::parse_u64(node.args.first()?.bytes())
}

fn worker_connections(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"worker_connections" || cx.around("events").is_none() {
        return;
    }
    let (Some(limit), Some(connections)) = (
        number(cx.top(), "worker_rlimit_nofile"),
        n.args.first().and_then(|word| base::ascii::parse_u64(word.bytes())),
    ) else {
        return;
    };
    if limit < connections {
        found.add(
            &n.name,
            format_args!(
                "{connections} connections need as many descriptors, and proxied ones twice as \
                 many, but \"worker_rlimit_nofile\" allows {limit}: raise it"
            ),
        );
    }
}

fn error_log_off(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let off = |word: &Word| word.bytes() == b"off";
    if n.name == *"error_log"
        && let Some(word) = n.args.first().filter(|word| off(word))
    {
        let mut fix = change(word, Change::Replace("/dev/null".to_owned()));
        if n.args.len() == 1 {
            fix = change(word, Change::Replace("/dev/null crit".to_owned()));
        }
        let message = "this is a file named \"off\": write \"error_log /dev/null crit\"";
        found.add_with(word, fix, message);
    }
}
