//! Statements that `-t` refuses, but only in a whole configuration, and obsolete forms.

use super::cx::{Cx, named};
use super::servers::address_of;
use super::{Entry, Found, Severity, change, entry};
use crate::edit::{Change, Edit};
use crate::{Node, Word, foreign, known};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "misplaced-block",
        Severity::Error,
        "a block is inside a block that cannot contain it",
        misplaced,
    ),
    entry(
        "duplicate-directive",
        Severity::Error,
        "a directive that may be set only once is set twice",
        duplicate,
    ),
    entry(
        "missing-semicolon",
        Severity::Warning,
        "a directive is read as an argument of the line before it",
        missing_semicolon,
    ),
    entry(
        "listen-http2",
        Severity::Note,
        "HTTP/2 is enabled by listen instead of by http2",
        listen_http2,
    ),
    entry("removed-directive", Severity::Error, "nginx has removed this directive", removed),
];

fn misplaced(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(around) = cx.block().filter(|_| n.block.is_some()) else { return };
    let around = around.name.bytes();
    let wrong = match n.name.bytes() {
        b"http" | b"events" | b"stream" | b"mail" => true,
        b"server" => matches!(around, b"server" | b"location" | b"if" | b"events"),
        b"location" => matches!(around, b"http" | b"upstream" | b"if" | b"events" | b"stream"),
        b"upstream" => matches!(around, b"server" | b"location" | b"if" | b"events" | b"upstream"),
        _ => false,
    };
    if wrong {
        let (name, around) = (n.name.lossy(), String::from_utf8_lossy(around));
        found.add(
            &n.name,
            format_args!("a \"{name}\" block is not allowed in \"{around}\": move it out"),
        );
    }
}

/// Directives that may be set once, of those that people repeat by mistake.
const ONCE: &[&str] = &[
    "alias",
    "autoindex",
    "client_body_timeout",
    "client_header_timeout",
    "client_max_body_size",
    "daemon",
    "default_type",
    "expires",
    "fastcgi_pass",
    "fastcgi_read_timeout",
    "grpc_pass",
    "gzip",
    "gzip_comp_level",
    "http2",
    "internal",
    "keepalive",
    "keepalive_timeout",
    "master_process",
    "pid",
    "proxy_buffering",
    "proxy_cache",
    "proxy_connect_timeout",
    "proxy_http_version",
    "proxy_pass",
    "proxy_read_timeout",
    "proxy_send_timeout",
    "resolver",
    "root",
    "sendfile",
    "server_tokens",
    "ssl_ciphers",
    "ssl_prefer_server_ciphers",
    "ssl_session_timeout",
    "tcp_nodelay",
    "tcp_nopush",
    "try_files",
    "user",
    "uwsgi_pass",
    "worker_connections",
    "worker_processes",
    "worker_rlimit_nofile",
];

fn duplicate(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(name) = ONCE.iter().find(|name| n.name == ***name) else { return };
    let siblings = cx.block().map_or(cx.top(), Node::children);
    let first = named(siblings, name).next();
    if let Some(first) = first.filter(|first| !std::ptr::eq(*first, n)) {
        let place = &first.name.pos;
        let words = |n: &Node| n.args.iter().map(|w| w.text.clone()).collect::<Vec<_>>();
        let same = words(n) == words(first) && n.block.is_none() && first.block.is_none();
        let fix = if same { change(&n.name, Change::RemoveStatement) } else { Vec::new() };
        found.add_with(
            &n.name,
            fix,
            format_args!("\"{name}\" is already set at {place}: remove one of the two"),
        );
    }
}

/// Directives whose arguments may be any word, also the name of a directive.
const FREE: &[&str] = &["index", "server_name", "valid_referers", "log_format", "env"];

fn missing_semicolon(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let name = n.name.bytes();
    let is_free = FREE.iter().any(|free| n.name == **free);
    if is_free || name.windows(4).any(|part| part == b"_lua" || part == b"lua_") {
        return;
    }
    let mut line = n.name.pos.line;
    for (at, word) in n.args.iter().enumerate() {
        let begins = word.pos.line > line && !word.quoted;
        line = word.pos.line;
        let has_argument = n.args.get(at + 1).is_some_and(|next| next.pos.line == line);
        let is_directive = || {
            let mut modules = known::find(word.bytes()).iter();
            modules.any(|known| !known.module.starts_with("ngx_mail"))
        };
        if begins && has_argument && is_directive() {
            let (before, name) = (n.name.lossy(), word.lossy());
            found.add(
                word,
                format_args!(
                    "\"{name}\" is read as an argument of \"{before}\": add the missing \";\" \
                     before it"
                ),
            );
            return;
        }
    }
}

fn listen_http2(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let http2 = n.args.iter().skip(1).find(|word| **word == *"http2");
    if let Some(word) = http2.filter(|_| n.name == *"listen") {
        let fix = if all_have_http2(cx, n) { http2_on(cx, n, word) } else { Vec::new() };
        let message = "this form is deprecated: write \"http2 on;\" in the server block";
        found.add_with(word, fix, message);
    }
}

/// Whether each server of the address has HTTP/2 by a directive of its own: `listen … http2` of
/// one enables it for all of them, and `http2 on` for one.
fn all_have_http2(cx: &Cx<'_>, n: &Node) -> bool {
    let (Some(http), Some((address, _))) = (cx.around("http"), address_of(n)) else { return false };
    let is_here = |n: &&Node| address_of(n).is_some_and(|(own, _)| own == address);
    named(http.children(), "server").all(|server| {
        let mut here = named(server.children(), "listen").filter(is_here).peekable();
        here.peek().is_none() || has_http2(server) || here.any(|n| n.args.iter().any(is_http2))
    })
}

fn is_http2(word: &Word) -> bool {
    *word == *"http2"
}

/// Whether a server has `http2 on`.
fn has_http2(server: &Node) -> bool {
    named(server.children(), "http2").any(|n| n.args.first().is_some_and(|word| *word == *"on"))
}

fn http2_on(cx: &Cx<'_>, n: &Node, word: &Word) -> Vec<Edit> {
    let mut fix = change(word, Change::RemoveWord);
    let Some(server) = cx.block() else { return Vec::new() };
    // One directive for all addresses of the server, after the last of them.
    let with = named(server.children(), "listen").filter(|n| n.args.iter().any(is_http2));
    let last = with.last().is_some_and(|last| std::ptr::eq(last, n));
    let set = named(server.children(), "http2").next();
    match set {
        Some(_) if !has_http2(server) => return Vec::new(),
        None if last => {
            fix.push(Edit::new(&n.name, Change::AddStatements(vec!["http2 on;".to_owned()])));
        }
        _ => {}
    }
    fix
}

fn removed(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if !known::find(n.name.bytes()).is_empty() {
        return;
    }
    let removed = foreign::of_directive(&n.name.lossy())
        .filter(|module| module.name.starts_with("nginx before "));
    if let Some(module) = removed {
        let (name, help) = (n.name.lossy(), module.advice);
        let fix = super::removed::fix(cx, n);
        found.add_with(
            &n.name,
            fix,
            format_args!("\"{name}\" is a directive of {}: {help}", module.name),
        );
    }
}
