//! State that servers share through Redis or Valkey (`shared_state`).

use super::cx::Cx;
use super::{Entry, Found, Severity, entry};
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "shared-state-prefix",
        Severity::Warning,
        "servers of other sites on the same Redis would share limits and tables, too",
        prefix,
    ),
    entry(
        "shared-state-password",
        Severity::Warning,
        "the password of a Redis goes over the network in clear text",
        password,
    ),
    entry(
        "sync-alone",
        Severity::Error,
        "a zone has sync, and there is no shared_state: the file does not load",
        sync,
    ),
];

fn url(n: &Node) -> Option<&Word> {
    n.args.first().filter(|_| n.name == *"shared_state")
}

fn prefix(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(url) = url(n) else { return };
    if !n.args.iter().any(|word| word.bytes().starts_with(b"prefix=")) {
        found.add(
            url,
            "\"shared_state\" without \"prefix=NAME\": all servers with the prefix \"weir\" on \
             this Redis are one fleet",
        );
    }
}

fn password(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(url) = url(n) else { return };
    let Some(rest) = url.bytes().strip_prefix(b"redis://") else { return };
    let Some(at) = rest.iter().rposition(|b| *b == b'@') else { return };
    let hosts = rest[at + 1..].split(|b| *b == b'/').next().unwrap_or_default();
    let is_here = |host: &[u8]| {
        [&b"127."[..], b"localhost", b"[::1]"].iter().any(|start| host.starts_with(start))
    };
    if !hosts.split(|b| *b == b',').all(is_here) {
        found.add(url, "the password and all values go over the network in clear text: rediss://");
    }
}

fn sync(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let zones = ["limit_req_zone", "limit_conn_zone", "keyval_zone", "sticky"];
    let is_zone = zones.iter().any(|name| n.name == **name);
    let is_shared = is_zone || n.name.bytes().ends_with(b"_cache_path");
    // A part that others include does not show what the outermost level has.
    if !is_shared || cx.is_set("shared_state") || !cx.is_whole() {
        return;
    }
    let is_sync = |word: &&Word| [&b"sync"[..], b"sync=strict"].contains(&word.bytes());
    if let Some(word) = n.args.iter().find(is_sync) {
        found.add(word, "\"sync\" needs \"shared_state redis://…;\" at the outermost level");
    }
}
