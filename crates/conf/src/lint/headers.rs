//! Header fields of requests and responses.

use base::ascii::{eq_ignore_case, starts_with_ignore_case};

use super::cx::{Cx, Part, named, parts};
use super::patterns::{self, Decoded};
use super::{Entry, Found, Severity, entry};
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "add-header-multiline",
        Severity::Warning,
        "the value of a header has line breaks",
        multiline,
    ),
    entry(
        "add-header-content-type",
        Severity::Warning,
        "add_header adds a second Content-Type",
        content_type,
    ),
    entry(
        "host-spoofing",
        Severity::Warning,
        "the upstream gets a Host that the client made up",
        host_spoofing,
    ),
    entry(
        "http-splitting",
        Severity::Error,
        "a decoded variable can inject a header line",
        splitting,
    ),
    entry(
        "valid-referers-none",
        Severity::Warning,
        "requests without a Referer are allowed",
        referers_none,
    ),
    entry(
        "redirect-host",
        Severity::Note,
        "a redirect goes to any host that the client sends",
        redirect_host,
    ),
];

fn multiline(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let (values, with_options) = match n.name.bytes() {
        b"add_header" => (n.args.get(1..2), false),
        b"more_set_headers" => (Some(&n.args[..]), true),
        _ => (None, false),
    };
    let values = values.unwrap_or_default();
    for (at, value) in values.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| values.get(before));
        let is_list = before.is_some_and(|word| matches!(word.bytes(), b"-t" | b"-s"));
        if value.bytes().contains(&b'\n') && !(with_options && is_list) {
            found.add(
                value,
                "many clients, and HTTP/2, refuse a header value with line breaks: write it in \
                 one line",
            );
        }
    }
}

fn content_type(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(field) = n.args.first().filter(|_| n.name == *"add_header") else { return };
    if !eq_ignore_case(field.bytes(), b"content-type") {
        return;
    }
    // A response without a body has no Content-Type, and another directive may have removed it.
    let siblings = cx.block().map_or(cx.top(), Node::children);
    let bodiless = named(siblings, "return").any(|n| n.args.first().is_some_and(|w| *w == *"204"));
    let hides = |node: &Node| {
        let is_hiding =
            node.name.bytes().ends_with(b"_hide_header") || node.name == *"default_type";
        is_hiding && node.args.first().is_some_and(|word| is_type_or_empty(word.bytes()))
    };
    if !bodiless && !cx.outward().any(|block| block.children().iter().any(hides)) {
        found.add(
            field,
            "the response keeps its own Content-Type, so clients get two: use default_type, types \
             or more_set_headers instead",
        );
    }
}

fn is_type_or_empty(word: &[u8]) -> bool {
    word.is_empty() || eq_ignore_case(word, b"content-type")
}

fn host_spoofing(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let is_host = n.args.first().is_some_and(|name| eq_ignore_case(name.bytes(), b"host"));
    if n.name != *"proxy_set_header" && n.name != *"grpc_set_header" || !is_host {
        return;
    }
    let Some(value) = n.args.get(1) else { return };
    for part in parts(value.bytes()) {
        let Part::Variable(name) = part else { continue };
        if name == b"http_host" || starts_with_ignore_case(name, b"arg_") {
            let name = String::from_utf8_lossy(name);
            found.add(
                value,
                format_args!("\"${name}\" is any text that the client sends: use \"$host\""),
            );
        }
    }
}

/// The arguments of a directive that become part of a request's or response's header section.
fn head_arguments(n: &Node) -> &[Word] {
    let from = match n.name.bytes() {
        b"add_header" | b"proxy_set_header" => 1,
        b"proxy_pass" => 0,
        b"return" if n.args.len() == 2 && n.args[0].bytes().starts_with(b"3") => 1,
        b"return" if n.args.len() == 1 => 0,
        b"rewrite" if is_redirect(n) => 1,
        _ => return &[],
    };
    n.args.get(from..from + 1).unwrap_or_default()
}

fn is_redirect(n: &Node) -> bool {
    let flag = n.args.get(2).map(Word::bytes);
    let to = n.args.get(1).map_or(&b""[..], Word::bytes);
    matches!(flag, Some(b"redirect" | b"permanent"))
        || to.starts_with(b"http://")
        || to.starts_with(b"https://")
        || to.starts_with(b"$scheme")
}

fn splitting(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    for value in head_arguments(n) {
        for part in parts(value.bytes()) {
            let Part::Variable(name) = part else { continue };
            let why = match patterns::decoded(cx, n, name) {
                Decoded::No => continue,
                Decoded::Path => "is the decoded path",
                Decoded::Group => "is a group of the decoded path that can match line breaks",
            };
            let name = String::from_utf8_lossy(name);
            found.add(
                value,
                format_args!(
                    "\"${name}\" {why}: in nginx, a client can inject header lines with %0d%0a \
                     (not in Weir); use \"$request_uri\", or a group without line breaks"
                ),
            );
        }
    }
}

fn referers_none(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name == *"valid_referers"
        && let Some(none) = n.args.iter().find(|word| **word == *"none")
    {
        found.add(
            none,
            "any site can make browsers send no Referer (Referrer-Policy), so \"none\" allows \
             every site: leave it out",
        );
    }
}

fn redirect_host(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let is_redirect = n.name == *"return" || n.name == *"rewrite" && is_redirect(n);
    let Some(server) = cx.around("server").filter(|_| is_redirect) else { return };
    let names: Vec<&Word> = named(server.children(), "server_name").flat_map(|n| &n.args).collect();
    let any = |word: &&Word| word.bytes() == b"_" || word.bytes().is_empty();
    if !names.iter().all(any) {
        return;
    }
    for value in head_arguments(n) {
        let text = value.bytes();
        let host = [&b"://$host"[..], b"://$http_host", b"://${host}", b"://${http_host}"];
        if host.iter().any(|h| text.windows(h.len()).any(|w| w == *h)) {
            found.add(
                value,
                "this server accepts any name and redirects to the host that the client sends: \
                 write the host here, or set \"server_name\"",
            );
        }
    }
}
