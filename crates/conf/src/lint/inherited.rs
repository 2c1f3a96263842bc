//! Directives that a block inherits only if it sets none of the same name.

use super::cx::{Cx, has, named};
use super::{Entry, Found, Severity, entry};
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "add-header-redefinition",
        Severity::Warning,
        "add_header here drops protective headers of the outer block",
        add_header,
    ),
    entry(
        "set-header-redefinition",
        Severity::Warning,
        "proxy_set_header here drops those of the outer block",
        |cx, n, found| each(cx, n, found, &["proxy_set_header", "grpc_set_header"]),
    ),
    entry(
        "param-redefinition",
        Severity::Warning,
        "fastcgi_param here drops those of the outer block",
        |cx, n, found| each(cx, n, found, &["fastcgi_param", "uwsgi_param", "scgi_param"]),
    ),
    entry(
        "list-redefinition",
        Severity::Note,
        "error_page, limit_req and the like here drop those of the outer block",
        |cx, n, found| each(cx, n, found, LISTS),
    ),
];

const LISTS: &[&str] = &[
    "error_page",
    "limit_conn",
    "limit_req",
    "proxy_hide_header",
    "fastcgi_hide_header",
    "grpc_hide_header",
    "scgi_hide_header",
    "uwsgi_hide_header",
];

/// Headers that protect clients or their private data.
const GUARDS: &[&str] = &[
    "Access-Control-Allow-Origin",
    "Cache-Control",
    "Content-Disposition",
    "Content-Security-Policy",
    "Content-Security-Policy-Report-Only",
    "Cross-Origin-Embedder-Policy",
    "Cross-Origin-Opener-Policy",
    "Cross-Origin-Resource-Policy",
    "Expires",
    "Permissions-Policy",
    "Pragma",
    "Referrer-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Download-Options",
    "X-Frame-Options",
    "X-Permitted-Cross-Domain-Policies",
    "X-Robots-Tag",
    "X-XSS-Protection",
];

fn add_header(cx: &Cx<'_>, block: &Node, found: &mut Found<'_>) {
    const MERGE: &str = "add_header_inherit";
    if cx.is_set(MERGE) || has(block.children(), MERGE) {
        return;
    }
    let Some((first, mut lost)) = dropped(cx, block, "add_header") else { return };
    // Other headers are dropped on purpose as often as by mistake.
    lost.retain(|field| GUARDS.iter().any(|guard| guard.eq_ignore_ascii_case(field)));
    tell(first, &lost, "repeat them here, or set \"add_header_inherit merge\"", found);
}

fn each(cx: &Cx<'_>, block: &Node, found: &mut Found<'_>, names: &[&str]) {
    for name in names {
        if let Some((first, lost)) = dropped(cx, block, name) {
            tell(first, &lost, "repeat them here", found);
        }
    }
}

fn tell(first: &Node, lost: &[String], help: &str, found: &mut Found<'_>) {
    if !lost.is_empty() {
        let (name, lost) = (first.name.lossy(), lost.join(", "));
        found.add(
            &first.name,
            format_args!("\"{name}\" here drops {lost} of the outer block: {help}"),
        );
    }
}

/// Returns the first directive of that name in a block, and the keys of the outer block that this
/// block does not repeat.
fn dropped<'n>(cx: &Cx<'_>, block: &'n Node, name: &str) -> Option<(&'n Node, Vec<String>)> {
    let own: Vec<&Node> = named(block.children(), name).collect();
    let first = *own.first()?;
    let mut levels = cx.outward().map(Node::children).chain([cx.top()]);
    let outer = levels.find(|around| has(around, name))?;
    let own: Vec<String> = own.iter().flat_map(|node| keys(node)).collect();
    let mut lost: Vec<String> = Vec::new();
    for key in named(outer, name).flat_map(keys) {
        let known = |list: &[String]| list.iter().any(|k| k.eq_ignore_ascii_case(&key));
        if !known(&own) && !known(&lost) {
            lost.push(key);
        }
    }
    Some((first, lost))
}

/// The names that tell one directive of a list from the others: a field, a status, a zone.
fn keys(node: &Node) -> Vec<String> {
    let texts = node.args.iter().map(Word::lossy);
    match node.name.bytes() {
        b"error_page" => {
            let statuses = texts.take(node.args.len().saturating_sub(1));
            statuses.filter(|word| !word.starts_with('=')).map(String::from).collect()
        }
        b"limit_req" => {
            texts.filter_map(|word| word.strip_prefix("zone=").map(str::to_owned)).collect()
        }
        _ => texts.take(1).map(String::from).collect(),
    }
}
