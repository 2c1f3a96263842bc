//! Settings that work, and that some teams want to be written differently.

use base::ascii::eq_ignore_case;

use super::cx::{Cx, has, named};
use super::{Entry, Found, change, habit, locations, passing};
use crate::Node;
use crate::edit::Change;

pub(super) const ENTRIES: &[Entry] = &[
    habit("server-tokens", "responses show the server's version", server_tokens),
    habit("autoindex", "folders without an index are listed", autoindex),
    habit("gzip-default", "gzip is not set", |cx, n, found| {
        unset(
            cx,
            n,
            found,
            "gzip",
            "responses are not compressed by default: set \"gzip\" to on or off",
        );
    }),
    habit("body-size-default", "client_max_body_size is not set", |cx, n, found| {
        unset(
            cx,
            n,
            found,
            "client_max_body_size",
            "request bodies over 1 MB are refused by default: set \"client_max_body_size\"",
        );
    }),
    habit("error-log-default", "error_log is not set", |cx, n, found| {
        unset(cx, n, found, "error_log", "errors go to the default file: set \"error_log\"");
    }),
    habit("proxy-pass-uri", "the path in proxy_pass replaces the location's", pass_uri),
    habit("proxy-host", "the upstream does not get the client's Host", proxy_host),
    habit("server-root", "root is set in a location, but not in its server", server_root),
    habit(
        "resolved-once",
        "the name of an upstream server is resolved only at load",
        resolved_once,
    ),
];

fn server_tokens(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let on = n.args.first().is_some_and(|word| *word == *"on");
    let by_default = n.name == *"http" && !is_within(n.children(), "server_tokens");
    if by_default || n.name == *"server_tokens" && on {
        let fix = match n.args.first() {
            Some(word) => change(word, Change::Replace("off".to_owned())),
            None => change(&n.name, Change::AddFirst("server_tokens off;".to_owned())),
        };
        let message = "responses show the server's version: set \"server_tokens off\"";
        found.add_with(&n.name, fix, message);
    }
}

fn autoindex(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name == *"autoindex" && n.args.first().is_some_and(|word| *word == *"on") {
        found.add(
            &n.name,
            "folders without an index show the names of all their files to everybody",
        );
    }
}

/// Whether the directive is in one of the blocks, at any depth.
fn is_within(nodes: &[Node], name: &str) -> bool {
    has(nodes, name) || nodes.iter().any(|node| is_within(node.children(), name))
}

fn unset(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>, name: &str, message: &str) {
    if n.name == *"http" && !cx.is_set(name) && !is_within(n.children(), name) {
        found.add(&n.name, message);
    }
}

fn pass_uri(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(url) = n.args.first().filter(|_| n.name == *"proxy_pass") else { return };
    let Some(name) = cx.block().and_then(locations::prefix) else { return };
    let text = url.lossy();
    let path = text.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
    if let Some((_, path)) = path.filter(|_| !text.contains('$')) {
        let name = name.lossy();
        found.add(
            url,
            format_args!(
                "\"{name}x\" is forwarded as \"/{path}x\": leave out the path to forward it \
                 unchanged"
            ),
        );
    }
}

fn proxy_host(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    const SET: &str = "proxy_set_header";
    if n.name != *"proxy_pass" || cx.around("http").is_none() {
        return;
    }
    let levels = cx.outward().map(Node::children).chain([cx.top()]);
    let mut setting = levels.filter(|level| has(level, SET));
    let is_host =
        |node: &Node| node.args.first().is_some_and(|name| eq_ignore_case(name.bytes(), b"host"));
    if !setting.next().is_some_and(|level| named(level, SET).any(is_host)) {
        found.add(
            &n.name,
            "the upstream gets the name in proxy_pass as Host: \"proxy_set_header Host $host\" \
             forwards the client's",
        );
    }
}

fn server_root(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let in_location = cx.block().is_some_and(|block| block.name == *"location");
    let Some(server) = cx.around("server").filter(|_| in_location) else { return };
    if n.name == *"root" && !has(server.children(), "root") {
        found.add(
            &n.name,
            "other locations of this server have no root: set one in the server block",
        );
    }
}

fn resolved_once(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(to) = n.args.first().filter(|_| cx.is_whole()) else { return };
    let text = to.bytes();
    let in_group = cx.block().is_some_and(|block| block.name == *"upstream");
    let is_server = n.name == *"server" && n.block.is_none() && in_group;
    let is_pass = n.name == *"proxy_pass" && !text.contains(&b'$');
    let resolves = n.args.iter().any(|word| *word == *"resolve");
    let host = passing::host_of(text);
    if !(is_server || is_pass) || resolves || passing::is_address(host) || host.is_empty() {
        return;
    }
    if is_pass && cx.is_upstream(host) {
        return;
    }
    let host = String::from_utf8_lossy(host);
    found.add(
        to,
        format_args!(
            "\"{host}\" is resolved only when the configuration is loaded: use an \"upstream\" \
             with a \"zone\" and \"server … resolve\" to follow changes"
        ),
    );
}
