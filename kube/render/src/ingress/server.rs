//! A `server` block: names, certificates, and what Ingresses say about the whole host.

use std::collections::BTreeMap;

use super::{
    CATCH_ALL, Ing, Server, Servers, auth, default_certificate, location, needs_rewrite, uses_regex,
};
use crate::check;
use crate::conf::{Block, plain, text, w};
use crate::cx::Cx;
use crate::layer4;

/// Writes the server of a host, and the server of its other name with or without `www`.
pub(super) fn render(
    cx: &mut Cx,
    ings: &[Ing],
    all: &BTreeMap<String, Server>,
    server: &Server,
    out: &mut Servers,
) {
    let owner = server.ings.first().map(|i| ings[*i].owner);
    if server.passthrough {
        layer4::passthrough(cx, ings, server);
    }
    let mut block = Block::of(owner);
    names(&mut block, server);
    listen(cx, &mut block, server);
    if server.host == CATCH_ALL {
        // Formats of logs may name them although no location sets them.
        for name in location::VARIABLES {
            block.add("set", [w(name), w("")]);
        }
    }
    blocks(cx, &mut block);
    client_certificates(cx, &mut block, ings, server);
    ciphers(&mut block, ings, server);
    snippets(cx, &mut block, ings, server);
    let regex = server.locations.iter().any(|l| needs_rewrite(l, ings) || uses_regex(l, ings));
    let mut parts = location::Parts::default();
    for location in &server.locations {
        location::render(cx, ings, server, location, regex, &mut parts);
    }
    block.extend(parts.server);
    block.extend(parts.internal);
    block.extend(parts.locations);
    if server.host == CATCH_ALL {
        status_pages(cx, &mut block);
    }
    out.blocks.push(block);
    from_to_www(cx, ings, all, server, out);
}

fn names(block: &mut Block, server: &Server) {
    let mut words = vec![match server.host.strip_prefix("*.") {
        // A wildcard of Kubernetes stands for one label.
        Some(rest) => plain(format!("~^[^.]+\\.{}$", rest.replace('.', "\\."))),
        None => plain(&server.host),
    }];
    words.extend(server.aliases.iter().map(plain));
    block.add("server_name", words);
}

/// The `listen` directives of a server, and its certificate.
pub(super) fn listen(cx: &mut Cx, block: &mut Block, server: &Server) {
    let is_default = server.host == CATCH_ALL;
    listen_on(cx, block, is_default, false);
    let reject = is_default && cx.config.bool("ssl-reject-handshake");
    let files = match reject {
        true => None,
        false => server.certificate.clone().or_else(|| default_certificate(cx)),
    };
    if files.is_none() && !is_default {
        return;
    }
    listen_on(cx, block, is_default, true);
    if cx.config.bool("use-http2") {
        block.add("http2", ["on"]);
    }
    match files {
        Some((certificate, key)) => {
            block.add("ssl_certificate", [plain(certificate)]);
            block.add("ssl_certificate_key", [plain(key)]);
        }
        None => block.add("ssl_reject_handshake", ["on"]),
    }
}

/// The addresses of a port: those of `bind-address`, or all.
pub(crate) fn addresses(cx: &Cx, port: u16) -> Vec<String> {
    let bind: Vec<String> = cx
        .config
        .list("bind-address")
        .into_iter()
        .filter_map(|a| a.parse::<std::net::IpAddr>().ok())
        .filter(|ip| ip.is_ipv4() || !cx.config.bool("disable-ipv6"))
        .map(|ip| if ip.is_ipv4() { format!("{ip}:{port}") } else { format!("[{ip}]:{port}") })
        .collect();
    if !bind.is_empty() {
        return bind;
    }
    match cx.config.bool("disable-ipv6") {
        true => vec![port.to_string()],
        false => vec![port.to_string(), format!("[::]:{port}")],
    }
}

pub(crate) fn listen_on(cx: &Cx, block: &mut Block, is_default: bool, tls: bool) {
    let behind = tls && cx.options.ssl_passthrough;
    let addresses = match (tls, behind) {
        (true, true) => vec![format!("127.0.0.1:{}", cx.options.ssl_proxy_port)],
        (true, false) => addresses(cx, cx.options.https_port),
        (false, _) => addresses(cx, cx.options.http_port),
    };
    for address in addresses {
        let mut words = vec![plain(address)];
        if is_default {
            words.push(w("default_server"));
            if cx.config.bool("reuse-port") && !behind {
                words.push(w("reuseport"));
            }
            words.push(w("backlog=4096"));
        }
        if tls {
            words.push(w("ssl"));
        }
        // With passthrough, `stream` has read that header already.
        if cx.config.bool("use-proxy-protocol") && !behind {
            words.push(w("proxy_protocol"));
        }
        block.add("listen", words);
    }
}

/// 403 for clients that the ConfigMap blocks.
pub(crate) fn blocks(cx: &Cx, block: &mut Block) {
    for (key, variable) in [("block-user-agents", "block_ua"), ("block-referers", "block_ref")] {
        if !cx.config.list(key).is_empty() {
            let mut body = Block::default();
            body.add("return", ["403"]);
            block.if_set(variable, body);
        }
    }
}

/// `auth-tls-…` of the first Ingress of the host that has them.
fn client_certificates(cx: &mut Cx, block: &mut Block, ings: &[Ing], server: &Server) {
    let Some(ing) = auth::tls_ingress(ings, server) else { return };
    let secret = ing.ann.trimmed("auth-tls-secret").unwrap_or_default();
    let verify = ing.ann.trimmed("auth-tls-verify-client").unwrap_or("on");
    block.owned_by(Some(ing.owner));
    match auth::foreign(cx, ing, secret).and_then(|key| Ok((cx.ca(&key)?, cx.crl(&key)))) {
        Ok((ca, crl)) => {
            block.add("ssl_client_certificate", [plain(ca)]);
            block.add("ssl_verify_client", [plain(verify)]);
            let depth = ing.ann.int("auth-tls-verify-depth").unwrap_or(1);
            block.add("ssl_verify_depth", [plain(depth.to_string())]);
            if let Some(crl) = crl {
                block.add("ssl_crl", [plain(crl)]);
            }
            if let Some(page) = ing.ann.trimmed("auth-tls-error-page") {
                block.add("error_page", [w("495"), w("496"), w("="), text(page)]);
            }
            if let Some(name) = ing.ann.trimmed("auth-tls-match-cn") {
                let mut body = Block::of(Some(ing.owner));
                body.add("return", ["403", "client certificate unauthorized"]);
                block.if_compared("ssl_client_s_dn", "!~", &plain(name), body);
            }
        }
        Err(message) => {
            cx.warn(ing.object.clone(), "Denied", format!("all paths answer 403: {message}"));
            block.add("return", ["403"]);
        }
    }
}

fn ciphers(block: &mut Block, ings: &[Ing], server: &Server) {
    let first =
        |name| server.ings.iter().map(|i| &ings[*i]).find(|ing| ing.ann.get(name).is_some());
    if let Some(ing) = first("ssl-ciphers") {
        block.owned_by(Some(ing.owner));
        block.add("ssl_ciphers", [plain(ing.ann.trimmed("ssl-ciphers").unwrap_or_default())]);
    }
    if let Some(ing) = first("ssl-prefer-server-ciphers") {
        let on = if ing.ann.is_on("ssl-prefer-server-ciphers") { "on" } else { "off" };
        block.owned_by(Some(ing.owner));
        block.add("ssl_prefer_server_ciphers", [on]);
    }
}

/// `server-snippet` of the first Ingress that has one, and the ConfigMap's.
fn snippets(cx: &mut Cx, block: &mut Block, ings: &[Ing], server: &Server) {
    let mut with =
        server.ings.iter().map(|i| &ings[*i]).filter(|i| i.ann.get("server-snippet").is_some());
    if let Some(ing) = with.next() {
        block.owned_by(Some(ing.owner));
        block.raw(ing.ann.get("server-snippet").unwrap_or_default());
    }
    let first = with.collect::<Vec<_>>();
    for ing in first {
        let m = format!("{} has a server-snippet of an older Ingress", server.host);
        cx.warn(ing.object.clone(), "Ignored", m);
    }
    if let Some(text) = cx.config.some("server-snippet").map(str::to_owned) {
        block.owned_by(cx.config_owner());
        block.raw(&text);
    }
    block.owned_by(server.ings.first().map(|i| ings[*i].owner));
}

/// The health check of load balancers, and nginx's status page.
fn status_pages(cx: &Cx, block: &mut Block) {
    let mut health = Block::default();
    health.add("access_log", ["off"]);
    health.add("return", ["200"]);
    block.block("location", [w("="), plain(&cx.options.healthz_path)], health);
    let mut status = Block::default();
    for key in ["nginx-status-ipv4-whitelist", "nginx-status-ipv6-whitelist"] {
        for address in cx.config.list(key).into_iter().filter_map(check::cidr) {
            status.add("allow", [plain(address)]);
        }
    }
    status.add("deny", ["all"]);
    status.add("access_log", ["off"]);
    status.add("stub_status", [] as [&str; 0]);
    block.block("location", [w("="), w("/nginx_status")], status);
}

/// Redirects from the name without `www` to the one with it, or back.
fn from_to_www(
    cx: &mut Cx,
    ings: &[Ing],
    all: &BTreeMap<String, Server>,
    server: &Server,
    out: &mut Servers,
) {
    let asks = |i: &&usize| ings[**i].ann.is_on("from-to-www-redirect");
    let Some(index) = server.ings.iter().find(asks) else { return };
    if server.host == CATCH_ALL || server.host.starts_with('*') {
        return;
    }
    let other = match server.host.strip_prefix("www.") {
        Some(bare) => bare.to_owned(),
        None => format!("www.{}", server.host),
    };
    let ing = &ings[*index];
    if all.contains_key(&other) || all.values().any(|s| s.aliases.contains(&other)) {
        let m = format!("from-to-www-redirect: {other} is the host of another Ingress");
        cx.warn(ing.object.clone(), "Ignored", m);
        return;
    }
    let mut block = Block::of(Some(ing.owner));
    block.add("server_name", [plain(&other)]);
    let twin = Server { host: other, certificate: server.certificate.clone(), ..Server::default() };
    listen(cx, &mut block, &twin);
    blocks(cx, &mut block);
    let code = cx.config.get("http-redirect-code").to_owned();
    let to = format!("$pass_access_scheme://{}$weir_port_suffix$request_uri", server.host);
    block.add("return", [plain(code), w(to)]);
    out.blocks.push(block);
}
