//! Authentication: passwords, a service that is asked, and certificates of clients and backends.

use super::location::{Parts, Protocol};
use super::{Ing, Location, Server};
use crate::annotations::Annotations;
use crate::check;
use crate::conf::{Block, Word, plain, template, text, w};
use crate::cx::{Cx, digest};
use crate::objects::Key;

/// A Secret or ConfigMap that an annotation names, which by default has to be in the Ingress's own
/// namespace.
///
/// # Errors
/// It is in another one.
pub(super) fn foreign(cx: &Cx, ing: &Ing, name: &str) -> Result<Key, String> {
    let key = Key::parse(name, &ing.key.namespace);
    let own = key.namespace == ing.key.namespace;
    match own || cx.config.bool("allow-cross-namespace-resources") {
        true => Ok(key),
        false => Err(format!("\"{name}\" is in another namespace")),
    }
}

/// Why a location must not be served: what was to protect it is missing.
pub(super) fn denied(cx: &Cx, ing: &Ing, ann: &Annotations) -> Option<String> {
    let firewall = ["enable-modsecurity", "enable-owasp-core-rules"];
    if let Some(name) = firewall.into_iter().find(|name| ann.is_on(name)) {
        return Some(format!("{name}: there is no ModSecurity in Weir"));
    }
    if ann.get("auth-type").is_some_and(|kind| kind.trim() == "digest") {
        return Some("auth-type: digest is not supported".to_owned());
    }
    if ann.get("auth-type").is_some()
        && let Err(message) = passwords(cx, ing, ann)
    {
        return Some(message);
    }
    for name in ["auth-proxy-set-headers", "custom-headers", "fastcgi-params-configmap"] {
        let Some(value) = ann.trimmed(name) else { continue };
        let key = match foreign(cx, ing, value) {
            Ok(key) => key,
            Err(message) => return Some(format!("{name}: {message}")),
        };
        let Some(map) = cx.objects.config_maps.get(&key) else {
            return Some(format!("{name}: ConfigMap {key} does not exist"));
        };
        if let Some(message) = bad_field(cx, name, &map.data) {
            return Some(format!("{name}: {message}"));
        }
    }
    if let Some(name) = ann.trimmed("proxy-ssl-secret") {
        let found = foreign(cx, ing, name).and_then(|key| cx.secret(&key).map(|_| ()));
        if let Err(message) = found {
            return Some(message);
        }
    }
    if ann.get("auth-url").is_some() && host_of(ann.trimmed("auth-url").unwrap_or("")).is_none() {
        return Some("auth-url is not a URL with a host".to_owned());
    }
    None
}

fn bad_field(
    cx: &Cx,
    annotation: &str,
    data: &std::collections::BTreeMap<String, String>,
) -> Option<String> {
    let allowed = cx.config.list("global-allowed-response-headers");
    data.iter().find_map(|(name, value)| {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Some(format!("\"{}\" is not a field's name", name.escape_debug()));
        }
        if !check::is_clean(value) {
            return Some(format!("the value of \"{name}\" has a control character"));
        }
        let may =
            annotation != "custom-headers" || allowed.iter().any(|a| a.eq_ignore_ascii_case(name));
        (!may).then(|| format!("\"{name}\" is not among global-allowed-response-headers"))
    })
}

/// The Ingress whose `auth-tls-…` count for a host: the oldest one that has them.
pub(super) fn tls_ingress<'i, 'a>(ings: &'i [Ing<'a>], server: &Server) -> Option<&'i Ing<'a>> {
    let all = server.ings.iter().map(|i| &ings[*i]);
    let mut with = all.filter(|ing| ing.ann.trimmed("auth-tls-secret").is_some());
    with.next().filter(|ing| ing.ann.trimmed("auth-tls-verify-client") != Some("off"))
}

/// The users and hashes of `auth-secret`, in the form of a password file.
fn passwords(cx: &Cx, ing: &Ing, ann: &Annotations) -> Result<Vec<u8>, String> {
    let Some(name) = ann.trimmed("auth-secret") else {
        return Err("auth-type without auth-secret".to_owned());
    };
    let key = foreign(cx, ing, name)?;
    let secret = cx.secret(&key)?;
    if ann.trimmed("auth-secret-type") != Some("auth-map") {
        let file = secret.value("auth");
        return file.ok_or_else(|| format!("Secret {key} has no \"auth\""));
    }
    let mut out = Vec::new();
    for user in secret.keys() {
        let hash = secret.value(user).unwrap_or_default();
        if user.contains(':') || hash.iter().any(|b| *b == b'\n' || *b == b'\r') {
            return Err(format!("Secret {key} has a user or a hash with a colon or a line feed"));
        }
        out.extend_from_slice(user.as_bytes());
        out.push(b':');
        out.extend_from_slice(&hash);
        out.push(b'\n');
    }
    Ok(out)
}

/// What an external service is asked, from annotations or the ConfigMap.
struct External {
    url: String,
    method: Option<String>,
    signin: Option<String>,
    signin_param: String,
    response_headers: Vec<String>,
    request_redirect: Option<String>,
    snippet: Option<String>,
    cache_key: Option<String>,
    cache_durations: String,
    always_set_cookie: bool,
    set_headers: Vec<(String, String)>,
    keepalive: Option<(u64, u64, u64)>,
}

fn external(cx: &Cx, ing: &Ing, ann: &Annotations) -> Option<External> {
    let config = &cx.config;
    let owned = |text: Option<&str>| text.map(str::to_owned);
    if let Some(url) = ann.trimmed("auth-url") {
        let headers = ann.get("auth-response-headers").unwrap_or_default();
        let fields = ann.trimmed("auth-proxy-set-headers").and_then(|name| {
            let key = Key::parse(name, &ing.key.namespace);
            cx.objects.config_maps.get(&key).map(|map| map.data.clone())
        });
        let connections = ann.signed("auth-keepalive").and_then(|n| u64::try_from(n).ok());
        let requests = ann.int("auth-keepalive-requests").unwrap_or(1000);
        let timeout = ann.int("auth-keepalive-timeout").unwrap_or(60);
        let constant = host_of(url).is_some_and(|host| !host.contains('$'));
        return Some(External {
            url: url.to_owned(),
            method: owned(ann.trimmed("auth-method")),
            signin: owned(ann.trimmed("auth-signin")),
            signin_param: ann.trimmed("auth-signin-redirect-param").unwrap_or("rd").to_owned(),
            response_headers: check::list(headers).map(str::to_owned).collect(),
            request_redirect: owned(ann.trimmed("auth-request-redirect")),
            snippet: owned(ann.get("auth-snippet")),
            cache_key: owned(ann.trimmed("auth-cache-key")),
            cache_durations: ann.get("auth-cache-duration").unwrap_or("200 202 401 5m").to_owned(),
            always_set_cookie: ann.is_on("auth-always-set-cookie"),
            set_headers: fields.unwrap_or_default().into_iter().collect(),
            keepalive: connections
                .filter(|n| *n > 0 && constant && requests > 0 && timeout > 0)
                .map(|n| (n, requests, timeout)),
        });
    }
    let url = config.some("global-auth-url")?;
    if ann.bool("enable-global-auth") == Some(false) || host_of(url).is_none() {
        return None;
    }
    Some(External {
        url: url.to_owned(),
        method: owned(config.some("global-auth-method")),
        signin: owned(config.some("global-auth-signin")),
        signin_param: config.get("global-auth-signin-redirect-param").to_owned(),
        response_headers: config
            .list("global-auth-response-headers")
            .into_iter()
            .map(str::to_owned)
            .collect(),
        request_redirect: owned(config.some("global-auth-request-redirect")),
        snippet: owned(config.some("global-auth-snippet")),
        cache_key: owned(config.some("global-auth-cache-key")),
        cache_durations: config.get("global-auth-cache-duration").to_owned(),
        always_set_cookie: config.bool("global-auth-always-set-cookie"),
        set_headers: Vec::new(),
        keepalive: None,
    })
}

/// The host and port of a URL of http or https.
fn host_of(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|host| !host.is_empty() && !host.contains(' '))
}

/// Writes what a location asks of its clients.
#[allow(clippy::too_many_arguments)]
pub(super) fn render(
    cx: &mut Cx,
    ing: &Ing,
    ann: &Annotations,
    server: &Server,
    location: &Location,
    protocol: Protocol,
    parts: &mut Parts,
    block: &mut Block,
) {
    let skipped = cx.config.list("no-auth-locations");
    let free = skipped.iter().any(|prefix| location.path.starts_with(prefix));
    if !free {
        if let Some(external) = external(cx, ing, ann) {
            ask(cx, ing, server, location, &external, protocol, parts, block);
        }
        if ann.get("auth-type").is_some() {
            basic(cx, ing, ann, protocol, block);
        }
    }
    client_certificate_fields(ing, protocol, ann, block);
}

fn basic(cx: &mut Cx, ing: &Ing, ann: &Annotations, protocol: Protocol, block: &mut Block) {
    let Ok(users) = passwords(cx, ing, ann) else { return };
    let file = cx.file(&format!("{}-{}-users", ing.key.namespace, ing.key.name), "htpasswd", users);
    block.add("auth_basic", [text(ann.get("auth-realm").unwrap_or_default())]);
    block.add("auth_basic_user_file", [text(file)]);
    block.add(protocol.set_header(), [w("Authorization"), w("")]);
}

#[allow(clippy::too_many_arguments)]
fn ask(
    cx: &mut Cx,
    ing: &Ing,
    server: &Server,
    location: &Location,
    external: &External,
    protocol: Protocol,
    parts: &mut Parts,
    block: &mut Block,
) {
    let id = digest(&[server.host.as_bytes(), location.path.as_bytes(), &[location.kind as u8]]);
    let path = format!("/_external-auth-{id}");
    let mut inner = Block::of(Some(ing.owner));
    request(cx, server, location, external, &path, &mut inner);
    if let Some(text) = &external.snippet {
        inner.raw(text);
    }
    target(cx, ing, external, &id, &mut inner);
    parts.internal.block("location", [w("="), plain(&path)], inner);

    block.add("auth_request", [plain(&path)]);
    block.add("auth_request_set", ["$auth_cookie", "$upstream_http_set_cookie"]);
    match external.always_set_cookie {
        true => block.add("add_header", ["Set-Cookie", "$auth_cookie", "always"]),
        false => block.add("add_header", ["Set-Cookie", "$auth_cookie"]),
    }
    for (i, name) in external.response_headers.iter().enumerate() {
        let variable = format!("$auth_header_{i}");
        let field = name.to_ascii_lowercase().replace('-', "_");
        block.add("auth_request_set", [w(&variable), w(format!("$upstream_http_{field}"))]);
        block.add(protocol.set_header(), [plain(name), w(variable)]);
    }
    if let Some(signin) = &external.signin {
        let name = format!("@signin_{id}");
        let mut body = Block::of(Some(ing.owner));
        body.add("add_header", ["Set-Cookie", "$auth_cookie"]);
        body.add("return", [w("302"), template(signin_url(signin, &external.signin_param))]);
        parts.internal.block("location", [plain(&name)], body);
        block.add("error_page", [w("401"), w("="), plain(name)]);
        escape_script(cx);
    }
}

/// The sign-in page with the wanted URL as a parameter, unless its author put one there.
fn signin_url(url: &str, parameter: &str) -> String {
    let has = url.split_once('?').is_some_and(|(_, arguments)| {
        arguments.split('&').any(|a| a.split('=').next() == Some(parameter))
    });
    if has {
        return url.to_owned();
    }
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}{parameter}=$pass_access_scheme://$http_host$escaped_request_uri")
}

/// `$escaped_request_uri`: the URI as part of another one's arguments.
fn escape_script(cx: &mut Cx) {
    if !cx.first("escape script") {
        return;
    }
    let program = "function escaped(r) { return encodeURIComponent(r.variables.request_uri); }\n\
                   export default { escaped };\n";
    let path = cx.file("escape", "js", program.as_bytes().to_vec());
    cx.http.add("js_import", [w("weir_escape"), w("from"), plain(path)]);
    cx.http.add("js_set", ["$escaped_request_uri", "weir_escape.escaped"]);
}

/// The fields and the cache of the authentication request.
fn request(
    cx: &mut Cx,
    server: &Server,
    location: &Location,
    external: &External,
    path: &str,
    inner: &mut Block,
) {
    inner.add("internal", [] as [&str; 0]);
    inner.add("access_log", ["off"]);
    inner.add("proxy_intercept_errors", ["off"]);
    inner.add("proxy_pass_request_body", ["off"]);
    let set = "proxy_set_header";
    let host = host_of(&external.url).unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    inner.add(set, ["Content-Length", ""]);
    inner.add(set, ["X-Forwarded-Proto", ""]);
    inner.add(set, ["X-Request-ID", "$req_id"]);
    if let Some(method) = &external.method {
        inner.add("proxy_method", [plain(method)]);
        inner.add(set, ["X-Original-URI", "$request_uri"]);
        inner.add(set, ["X-Scheme", "$pass_access_scheme"]);
    }
    inner.add(set, [w("Host"), template(host)]);
    inner.add(set, ["X-Original-URL", "$scheme://$http_host$request_uri"]);
    inner.add(set, ["X-Original-Method", "$request_method"]);
    inner.add(set, ["X-Sent-From", "nginx-ingress-controller"]);
    inner.add(set, ["X-Real-IP", "$remote_addr"]);
    inner.add(set, ["X-Forwarded-For", "$weir_forwarded_for"]);
    match &external.request_redirect {
        Some(to) => inner.add(set, [w("X-Auth-Request-Redirect"), text(to)]),
        None => inner.add(set, ["X-Auth-Request-Redirect", "$request_uri"]),
    }
    if let Some(key) = &external.cache_key {
        if cx.first("auth cache") {
            let folder = plain(format!("{}/auth-cache", cx.options.temp));
            let words = ["levels=1:2", "keys_zone=auth_cache:10m", "max_size=128m", "inactive=30m"];
            let mut all = vec![folder];
            all.extend(words.map(w));
            all.push(w("use_temp_path=off"));
            cx.http.add("proxy_cache_path", all);
        }
        inner.add("proxy_cache", ["auth_cache"]);
        for duration in check::list(&external.cache_durations) {
            let words: Vec<Word> = duration.split_whitespace().map(plain).collect();
            inner.add("proxy_cache_valid", words);
        }
        let host = text(format!("{}{path}{}", server.host, location.path));
        inner.add("set", [w("$weir_auth_scope"), host]);
        inner.add("proxy_cache_key", [template(format!("$weir_auth_scope{key}"))]);
        inner.add("proxy_buffering", ["on"]);
    }
    inner.add("proxy_ssl_server_name", ["on"]);
    for (name, value) in &external.set_headers {
        inner.add(set, [plain(name), template(value)]);
    }
}

/// `proxy_pass` of the authentication request.
fn target(cx: &mut Cx, ing: &Ing, external: &External, id: &str, inner: &mut Block) {
    let Some((connections, requests, timeout)) = external.keepalive else {
        // Through a variable, because a name that cannot be resolved yet must not fail the load.
        inner.add("set", [w("$target"), template(&external.url)]);
        inner.add("proxy_pass", ["$target"]);
        return;
    };
    let host = host_of(&external.url).unwrap_or_default();
    let (scheme, rest) = external.url.split_once("://").unwrap_or(("http", ""));
    let port = if scheme == "https" { "443" } else { "80" };
    let with_port = match host.rsplit_once(':') {
        Some((_, digits)) if digits.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:{port}"),
    };
    let name = format!("auth-{id}");
    let mut group = Block::of(Some(ing.owner));
    group.add("zone", [plain(&name), w("128k")]);
    let is_name = with_port.parse::<std::net::SocketAddr>().is_err();
    let mut words = vec![plain(&with_port)];
    if is_name && !cx.options.resolvers.is_empty() {
        words.push(w("resolve"));
    }
    group.add("server", words);
    group.add("keepalive", [plain(connections.to_string())]);
    group.add("keepalive_requests", [plain(requests.to_string())]);
    group.add("keepalive_timeout", [plain(format!("{timeout}s"))]);
    cx.http.block("upstream", [plain(&name)], group);
    inner.add("proxy_http_version", ["1.1"]);
    inner.add("proxy_set_header", ["Connection", ""]);
    let path = &rest[host.len().min(rest.len())..];
    inner.add("set", [w("$target"), template(format!("{scheme}://{name}{path}"))]);
    inner.add("proxy_pass", ["$target"]);
}

/// What the backend learns about the certificate of a client.
fn client_certificate_fields(ing: &Ing, protocol: Protocol, ann: &Annotations, block: &mut Block) {
    if ing.ann.trimmed("auth-tls-secret").is_none() {
        return;
    }
    let set = protocol.set_header();
    if ann.is_on("auth-tls-pass-certificate-to-upstream") {
        block.add(set, ["ssl-client-cert", "$ssl_client_escaped_cert"]);
    }
    block.add(set, ["ssl-client-verify", "$ssl_client_verify"]);
    block.add(set, ["ssl-client-subject-dn", "$ssl_client_s_dn"]);
    block.add(set, ["ssl-client-issuer-dn", "$ssl_client_i_dn"]);
}

/// `proxy-ssl-…`: the certificate that is shown to the backend, and how its own is verified.
pub(super) fn proxy_ssl(
    cx: &mut Cx,
    ing: &Ing,
    ann: &Annotations,
    protocol: Protocol,
    block: &mut Block,
) {
    let grpc = matches!(protocol, Protocol::Grpc | Protocol::Grpcs);
    let pick = |proxy: &'static str, of_grpc: &'static str| if grpc { of_grpc } else { proxy };
    let key = ann.trimmed("proxy-ssl-secret").and_then(|name| foreign(cx, ing, name).ok());
    if let Some(key) = &key {
        if let Ok((certificate, private)) = cx.certificate(key) {
            block.add(pick("proxy_ssl_certificate", "grpc_ssl_certificate"), [plain(certificate)]);
            block.add(
                pick("proxy_ssl_certificate_key", "grpc_ssl_certificate_key"),
                [plain(private)],
            );
        }
        if let Ok(ca) = cx.ca(key) {
            let name = pick("proxy_ssl_trusted_certificate", "grpc_ssl_trusted_certificate");
            block.add(name, [plain(ca)]);
            let verify = ann.trimmed("proxy-ssl-verify").unwrap_or("off");
            block.add(pick("proxy_ssl_verify", "grpc_ssl_verify"), [plain(verify)]);
            let depth = ann.int("proxy-ssl-verify-depth").unwrap_or(1);
            let name = pick("proxy_ssl_verify_depth", "grpc_ssl_verify_depth");
            block.add(name, [plain(depth.to_string())]);
        } else if ann.trimmed("proxy-ssl-verify") == Some("on") {
            cx.warn(
                ing.object.clone(),
                "Ignored",
                format!("proxy-ssl-verify: Secret {key} has no \"ca.crt\""),
            );
        }
    }
    if let Some(ciphers) = ann.trimmed("proxy-ssl-ciphers") {
        block.add(pick("proxy_ssl_ciphers", "grpc_ssl_ciphers"), [plain(ciphers)]);
    }
    if let Some(versions) = ann.trimmed("proxy-ssl-protocols") {
        let words: Vec<Word> = versions.split_whitespace().map(plain).collect();
        block.add(pick("proxy_ssl_protocols", "grpc_ssl_protocols"), words);
    }
    if let Some(name) = ann.trimmed("proxy-ssl-name") {
        block.add(pick("proxy_ssl_name", "grpc_ssl_name"), [text(name)]);
    }
    if let Some(on) = ann.trimmed("proxy-ssl-server-name") {
        block.add(pick("proxy_ssl_server_name", "grpc_ssl_server_name"), [plain(on)]);
    }
}
