//! Tokens and sign-in.

use super::cx::{Cx, Part, named, parts};
use super::{Entry, Found, Severity, entry};
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "jwt-for-others",
        Severity::Warning,
        "auth_jwt accepts tokens that are for other services",
        jwt_for_others,
    ),
    entry(
        "keys-over-http",
        Severity::Error,
        "the keys of auth_jwt are fetched over plain HTTP",
        keys_over_http,
    ),
    entry(
        "oidc-satisfy-any",
        Severity::Warning,
        "auth_oidc redirects before the other checks of satisfy any",
        oidc_satisfy_any,
    ),
    entry(
        "oidc-callback",
        Severity::Warning,
        "no location with auth_oidc answers the provider's callback",
        oidc_callback,
    ),
    entry("token-in-log", Severity::Warning, "a log has tokens or session cookies", token_in_log),
];

fn is_on(n: &Node) -> bool {
    n.args.first().is_some_and(|word| word.bytes() != b"off")
}

fn jwt_for_others(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name == *"auth_jwt" && is_on(n) && !cx.is_set("auth_jwt_require") {
        found.add(
            &n.name,
            "all tokens of the issuer are accepted: check \"iss\" and \"aud\" with \
             \"auth_jwt_require\"",
        );
    }
}

/// The host of a plain URL, unless it is this machine.
fn plain_host(url: &[u8]) -> Option<&[u8]> {
    let rest = url.strip_prefix(b"http://")?;
    let is_local = [&b"127."[..], b"localhost", b"[::1]", b"unix:"];
    (!is_local.iter().any(|local| rest.starts_with(local))).then_some(rest)
}

fn keys_over_http(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(uri) = n.args.first().filter(|_| n.name == *"auth_jwt_key_request") else { return };
    let path = uri.bytes().split(|b| *b == b'?').next().unwrap_or_default();
    let locations = cx.outward().flat_map(|block| named(block.children(), "location"));
    for location in locations {
        if location.args.last().map(Word::bytes) != Some(path) {
            continue;
        }
        let Some(pass) = named(location.children(), "proxy_pass").next() else { continue };
        let is_plain = |word: &&Word| {
            plain_host(word.bytes()).is_some_and(|rest| {
                let host = rest.split(|b| matches!(b, b'/' | b':')).next().unwrap_or_default();
                !cx.is_upstream(host)
            })
        };
        if let Some(url) = pass.args.first().filter(is_plain) {
            found.add(
                url,
                "whoever is on the way can put keys of its own in place of these, and sign tokens \
                 with them: use https:// and \"proxy_ssl_verify on\"",
            );
        }
    }
}

fn oidc_satisfy_any(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let is_any = |n: &Node| n.args.first().is_some_and(|word| word.bytes() == b"any");
    let satisfies_any = |block: &Node| named(block.children(), "satisfy").any(is_any);
    // Those that are checked before it can let a request in.
    let others = ["auth_jwt", "auth_request"];
    let has_others =
        |block: &Node| others.iter().any(|other| named(block.children(), other).any(is_on));
    if n.name == *"auth_oidc"
        && is_on(n)
        && cx.outward().any(satisfies_any)
        && cx.outward().any(has_others)
    {
        found.add(
            &n.name,
            "requests without a session are redirected before \"auth_jwt\" and \"auth_request\" \
             are asked: \"satisfy any\" helps addresses and passwords only",
        );
    }
}

/// The path of a provider's `redirect_uri`.
fn callback_of<'a>(cx: &Cx<'a>, provider: &[u8]) -> Option<&'a [u8]> {
    let http = cx.around("http")?;
    let is = |node: &&Node| node.args.first().is_some_and(|word| word.bytes() == provider);
    let block = named(http.children(), "oidc_provider").find(is)?;
    let uri = named(block.children(), "redirect_uri").next().and_then(|node| node.args.first());
    let Some(uri) = uri.map(Word::bytes) else { return Some(b"/oidc_callback") };
    match uri.strip_prefix(b"https://") {
        Some(rest) => rest.iter().position(|b| *b == b'/').map(|at| &rest[at..]),
        None => Some(uri),
    }
}

/// Whether a location may answer a path; one with an expression may.
fn may_answer(location: &Node, path: &[u8]) -> bool {
    match &location.args[..] {
        [name] => path.starts_with(name.bytes()) || name.bytes().starts_with(b"~"),
        [how, name] if how.bytes() == b"=" => path == name.bytes(),
        [how, name] if how.bytes() == b"^~" => path.starts_with(name.bytes()),
        _ => true,
    }
}

fn oidc_callback(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"auth_oidc" || !is_on(n) {
        return;
    }
    let (Some(server), Some(name)) = (cx.around("server"), n.args.first()) else { return };
    let is_here = cx.around("location").is_some();
    let Some(path) = callback_of(cx, name.bytes()).filter(|_| is_here) else { return };
    let has_oidc = |block: &Node| named(block.children(), "auth_oidc").any(is_on);
    let around = cx.outward().filter(|block| block.name != *"location").any(has_oidc);
    let mut locations = named(server.children(), "location");
    if !around && !locations.any(|l| has_oidc(l) && may_answer(l, path)) {
        let path = String::from_utf8_lossy(path);
        found.add(
            &n.name,
            format_args!(
                "users cannot come back: \"{path}\" lies in no location of this server with \
                 \"auth_oidc\""
            ),
        );
    }
}

/// Variables with tokens, by their whole name.
const TOKENS: &[&[u8]] = &[
    b"oidc_id_token",
    b"oidc_access_token",
    b"http_authorization",
    b"http_cookie",
    b"sent_http_set_cookie",
    b"jwt_payload",
];

fn token_in_log(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    if n.name != *"log_format" {
        return;
    }
    for word in n.args.iter().skip(1) {
        for part in parts(word.bytes()) {
            let Part::Variable(name) = part else { continue };
            let is_session = name.strip_prefix(b"cookie_").is_some_and(|cookie| {
                let cookie = cookie.to_ascii_lowercase();
                cookie.windows(7).any(|w| w == b"session") || cookie.ends_with(b"token")
            });
            if is_session || TOKENS.contains(&name) {
                let name = String::from_utf8_lossy(name);
                let m = format_args!(
                    "whoever reads the log can use the value of \"${name}\": log a claim instead, \
                     for example \"$oidc_claim_sub\""
                );
                found.add(word, m);
            }
        }
    }
}
