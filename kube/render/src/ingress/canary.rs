//! Which of several backends gets a request: balancing, sessions, canaries.

use super::{Ing, Target};
use crate::annotations::Annotations;
use crate::conf::{Block, Word, plain, template, text, w};
use crate::cx::{Cx, digest};
use crate::objects::Key;

/// The directives of a group that an Ingress asks for.
pub(super) fn balancing(
    cx: &mut Cx,
    ing: &Ing,
    ann: &Annotations,
) -> Vec<(&'static str, Vec<Word>)> {
    let mut out: Vec<(&'static str, Vec<Word>)> = Vec::new();
    let affinity = ann.trimmed("affinity") == Some("cookie");
    if let Some(hash) = ann.trimmed("upstream-hash-by").filter(|_| !affinity) {
        out.push(("hash", vec![template(hash), w("consistent")]));
    } else {
        let method = ann.trimmed("load-balance").unwrap_or_else(|| cx.config.get("load-balance"));
        if method == "ewma" {
            out.push(("random", vec![w("two"), w("least_time=last_byte")]));
        }
    }
    if affinity && let Some(words) = sticky(cx, ing, ann) {
        out.push(("sticky", words));
    }
    out
}

/// The name of the cookie of sessions.
fn cookie_name(ann: &Annotations) -> &str {
    ann.trimmed("session-cookie-name").unwrap_or("INGRESSCOOKIE")
}

fn sticky(cx: &mut Cx, ing: &Ing, ann: &Annotations) -> Option<Vec<Word>> {
    let name = cookie_name(ann);
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        let m = "session-cookie-name may have letters, digits and _; there are no sessions";
        cx.warn(ing.object.clone(), "Ignored", m);
        return None;
    }
    let mut words = vec![w("cookie"), plain(name)];
    let age = ann.signed("session-cookie-max-age").or_else(|| ann.signed("session-cookie-expires"));
    if let Some(seconds) = age.filter(|seconds| *seconds > 0) {
        words.push(plain(format!("expires={seconds}s")));
    }
    if let Some(domain) = ann.trimmed("session-cookie-domain") {
        words.push(plain(format!("domain={domain}")));
    }
    let path = match ann.trimmed("session-cookie-path") {
        Some(path) => path.to_owned(),
        None => first_path(ing),
    };
    words.push(plain(format!("path={path}")));
    words.push(w("httponly"));
    if ann.is_on("session-cookie-secure") {
        words.push(w("secure"));
    }
    match ann.trimmed("session-cookie-samesite").map(str::to_ascii_lowercase).as_deref() {
        Some("none") if ann.is_on("session-cookie-conditional-samesite-none") => {
            same_site_map(cx);
            words.push(w("samesite=$weir_same_site_none"));
        }
        Some(site @ ("none" | "lax" | "strict")) => words.push(plain(format!("samesite={site}"))),
        _ => {}
    }
    Some(words)
}

/// The path of a session's cookie: that of the Ingress if there is one, otherwise the root.
fn first_path(ing: &Ing) -> String {
    let rules = ing.ingress.spec.rules.iter();
    let mut paths: Vec<&str> =
        rules.flat_map(|r| r.http.iter().flat_map(|h| &h.paths)).map(|p| p.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    match paths.as_slice() {
        [one] if !one.is_empty() && !ing.ann.is_on("use-regex") => (*one).to_owned(),
        _ => "/".to_owned(),
    }
}

/// Browsers that reject `SameSite=None`, or treat it as Strict, get no attribute.
fn same_site_map(cx: &mut Cx) {
    if !cx.first("same site") {
        return;
    }
    let mut map = Block::default();
    map.entry(w("default"), ["none"]);
    for pattern in [
        "~Chrome/5[0-9]\\.",
        "~Chrome/6[0-6]\\.",
        "~\\(iP.+; CPU .*OS 12[_0-9]*.*\\) AppleWebKit/",
        "~\\(Macintosh;.*Mac OS X 10_14[_0-9]*.*\\).*AppleWebKit/[.0-9]+ \\(KHTML, like Gecko\\)",
        "~UCBrowser/(8|9|10|11|12)\\.",
    ] {
        map.entry(w(pattern), [""]);
    }
    cx.http.block("map", ["$http_user_agent", "$weir_same_site_none"], map);
}

/// Adds the variable that names the group of a request, and returns it.
pub(super) fn choose(
    cx: &mut Cx,
    ing: &Ing,
    canary: &Ing,
    target: &Target,
    main: &str,
    block: &mut Block,
) -> String {
    let Target::Service { service, port } = target else { return main.to_owned() };
    let backend = match cx.backend(&Key::new(&canary.key.namespace, service), port, false, false) {
        Ok(backend) if !backend.servers.is_empty() => backend,
        other => {
            let why = other.err().unwrap_or_else(|| format!("Service {service} has no endpoints"));
            cx.warn(canary.object.clone(), "NoBackend", format!("no canary: {why}"));
            block.add("set", [w("$weir_group"), plain(main)]);
            return main.to_owned();
        }
    };
    let settings = balancing(
        cx,
        canary,
        if canary.ann.get("affinity").is_some() { &canary.ann } else { &ing.ann },
    );
    let group = cx.upstream(&backend, settings, Some(canary.owner));
    let id = digest(&[main.as_bytes(), group.as_bytes(), canary.key.to_string().as_bytes()]);
    if cx.first(&format!("canary {id}")) {
        maps(cx, ing, canary, main, &group, &id);
    }
    let variable = format!("$canary_{id}");
    block.add("set", [w("$weir_group"), w(&variable)]);
    block.add("set", [w("$proxy_alternative_upstream_name"), w(format!("$canary_name_{id}"))]);
    if sticks(ing, canary) {
        // Only where it changes something: the value is empty for clients that have the cookie.
        block.add("add_header", [w("Set-Cookie"), w(format!("$canary_cookie_{id}"))]);
    }
    "$weir_group".to_owned()
}

/// Whether clients stay with the canary or the main service, by a cookie.
fn sticks(ing: &Ing, canary: &Ing) -> bool {
    let legacy = canary.ann.trimmed("affinity-canary-behavior") == Some("legacy");
    !legacy && ing.ann.trimmed("affinity") == Some("cookie")
}

/// The chain of decisions, the last one first: share, cookie, header, session.
fn maps(cx: &mut Cx, ing: &Ing, canary: &Ing, main: &str, group: &str, id: &str) {
    let ann = &canary.ann;
    let http = &mut cx.http;
    http.owned_by(Some(canary.owner));
    let mut next = share(http, ann, main, group, id);
    if let Some(name) = ann.trimmed("canary-by-cookie") {
        let name = escape(name);
        let mut map = Block::of(Some(canary.owner));
        map.entry(w("default"), [w(&next)]);
        map.entry(plain(format!("~(^|;\\s*){name}=always\\s*(;|$)")), [plain(group)]);
        map.entry(plain(format!("~(^|;\\s*){name}=never\\s*(;|$)")), [plain(main)]);
        let variable = format!("$canary_by_cookie_{id}");
        http.block("map", [w("$http_cookie"), w(&variable)], map);
        next = variable;
    }
    if let Some(name) = ann.trimmed("canary-by-header").and_then(header_variable) {
        let mut map = Block::of(Some(canary.owner));
        map.entry(w("default"), [w(&next)]);
        if let Some(value) = ann.trimmed("canary-by-header-value") {
            map.entry(plain(format!("~^{}$", escape(value))), [plain(group)]);
        } else if let Some(pattern) = ann.trimmed("canary-by-header-pattern") {
            map.entry(plain(format!("~{pattern}")), [plain(group)]);
        } else {
            // Keys of a map ignore case: expressions do not.
            map.entry(w("~^always$"), [plain(group)]);
            map.entry(w("~^never$"), [plain(main)]);
        }
        let variable = format!("$canary_by_header_{id}");
        http.block("map", [w(name), w(&variable)], map);
        next = variable;
    }
    if sticks(ing, canary) {
        let cookie = format!("{}_backend", cookie_name(&ing.ann));
        let tag = &id[..8];
        let mut map = Block::of(Some(canary.owner));
        map.entry(w("default"), [w(&next)]);
        map.entry(plain(format!("{tag}.canary")), [plain(group)]);
        map.entry(plain(format!("{tag}.main")), [plain(main)]);
        let variable = format!("$canary_by_session_{id}");
        http.block("map", [w(format!("$cookie_{cookie}")), w(&variable)], map);
        next = variable;
        let path = ing.ann.trimmed("session-cookie-path").unwrap_or("/");
        let mut set = Block::of(Some(canary.owner));
        set.entry(w("default"), [text(format!("{cookie}={tag}.main; Path={path}; HttpOnly"))]);
        set.entry(plain(group), [text(format!("{cookie}={tag}.canary; Path={path}; HttpOnly"))]);
        let chosen = format!("$canary_set_{id}");
        http.block("map", [w(format!("$canary_{id}")), w(&chosen)], set);
        let mut once = Block::of(Some(canary.owner));
        once.entry(w("default"), [w(chosen)]);
        once.entry(plain(format!("~^{tag}\\.(main|canary)$")), [""]);
        http.block(
            "map",
            [w(format!("$cookie_{cookie}")), w(format!("$canary_cookie_{id}"))],
            once,
        );
    }
    let mut all = Block::of(Some(canary.owner));
    all.entry(w("default"), [w(next.clone())]);
    http.block("map", [w(&next), w(format!("$canary_{id}"))], all);
    let mut name = Block::of(Some(canary.owner));
    name.entry(w("default"), [""]);
    name.entry(plain(group), [plain(group)]);
    http.block("map", [w(format!("$canary_{id}")), w(format!("$canary_name_{id}"))], name);
    http.owned_by(None);
}

/// A share of the requests, chosen by chance.
fn share(http: &mut Block, ann: &Annotations, main: &str, group: &str, id: &str) -> String {
    let total = ann.int("canary-weight-total").filter(|n| *n > 100).unwrap_or(100);
    let weight = ann.int("canary-weight").unwrap_or(0).min(total);
    let variable = format!("$canary_by_weight_{id}");
    let mut split = Block::default();
    // Hundredths of a percent are the finest share.
    let share = weight * 10_000 / total;
    if share > 0 {
        split.entry(plain(format!("{}.{:02}%", share / 100, share % 100)), [plain(group)]);
    }
    if share < 10_000 {
        split.entry(w("*"), [plain(main)]);
    }
    http.block("split_clients", [w("$request_id"), w(&variable)], split);
    variable
}

/// The variable of a request's field.
pub(crate) fn header_variable(name: &str) -> Option<String> {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let good = !name.is_empty() && name.bytes().all(is_name);
    good.then(|| format!("$http_{}", name.to_ascii_lowercase().replace('-', "_")))
}

/// Text as a regular expression that matches it.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if !c.is_alphanumeric() && c != '_' && c != '-' && c != '/' && c.is_ascii() {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
