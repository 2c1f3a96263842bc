//! Ingresses: which are served, and the servers and locations that they make together.

mod auth;
mod canary;
mod limits;
mod location;
mod responses;
mod server;

use std::collections::BTreeMap;

use serde_json::json;

use crate::annotations::Annotations;
use crate::check;
use crate::conf::{Block, Owner};
use crate::cx::Cx;
use crate::objects::{HttpPath, Ingress, IngressBackend, Key, Kind, ObjectRef, PortRef};
use crate::{Status, keys::Outcome};

pub(crate) use canary::{escape, header_variable};
pub(crate) use location::usual;
pub(crate) use responses::cors_regex;
pub(crate) use server::{addresses, blocks};

/// An Ingress that is served.
pub(crate) struct Ing<'a> {
    pub key: &'a Key,
    pub object: ObjectRef,
    pub ingress: &'a Ingress,
    pub ann: Annotations,
    pub owner: Owner,
}

/// A path's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathType {
    Exact,
    Prefix,
    Implementation,
}

/// Where a location sends requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// A Service's port.
    Service { service: String, port: PortRef },
    /// What answers if nothing else does.
    Default,
}

/// A location of a server.
#[derive(Clone)]
pub(crate) struct Location {
    /// As it is matched.
    pub path: String,
    /// As the Ingress has it.
    pub ingress_path: String,
    pub kind: PathType,
    /// The Ingress that it comes from, by index.
    pub ing: Option<usize>,
    pub target: Target,
    /// The canary of this path, and its backend.
    pub canary: Option<(usize, Target)>,
}

/// A server: the paths of a host.
#[derive(Default)]
pub(crate) struct Server {
    /// The host; `_` for the one without a name.
    pub host: String,
    pub locations: Vec<Location>,
    /// Names of `server-alias`.
    pub aliases: Vec<String>,
    /// Files of the certificate and its key, and the owner of the Secret's name.
    pub certificate: Option<(String, String)>,
    /// The Ingresses with a rule for this host, by index, the oldest first.
    pub ings: Vec<usize>,
    /// Whether TLS goes to the backend.
    pub passthrough: bool,
}

/// The blocks of all hosts.
#[derive(Default)]
pub(crate) struct Servers {
    /// `server` blocks, and those of redirects.
    pub blocks: Vec<Block>,
}

pub(crate) const CATCH_ALL: &str = "_";

/// Builds the servers of all Ingresses.
pub(crate) fn servers(cx: &mut Cx) -> Servers {
    let ings = select(cx);
    let servers = model(cx, &ings);
    let mut out = Servers::default();
    for server in servers.values() {
        server::render(cx, &ings, &servers, server, &mut out);
    }
    for ing in &ings {
        if let Some(text) = ing.ann.get("stream-snippet") {
            cx.stream.owned_by(Some(ing.owner));
            cx.stream.raw(text);
            cx.stream.owned_by(None);
        }
    }
    statuses(cx, &ings);
    out
}

/// The Ingresses of our classes whose annotations are acceptable, the oldest first.
fn select<'a>(cx: &mut Cx<'a>) -> Vec<Ing<'a>> {
    let objects = cx.objects;
    let blocked: Vec<String> =
        cx.config.list("annotation-value-word-blocklist").into_iter().map(str::to_owned).collect();
    let snippets = cx.config.bool("allow-snippet-annotations")
        && (!cx.config.is_set("annotations-risk-level")
            || cx.config.get("annotations-risk-level") == "Critical");
    let mut all: Vec<(&Key, &Ingress)> =
        objects.ingresses.iter().filter(|(_, ingress)| is_ours(cx, ingress)).collect();
    all.sort_by_key(|(key, i)| (&i.metadata.creation_timestamp, *key));
    let mut ings = Vec::new();
    for (key, ingress) in all {
        let object = ObjectRef::new(Kind::Ingress, &key.namespace, &key.name);
        if let Some(message) = cx.refused.get(&object) {
            cx.warn(object, "Rejected", format!("the configuration does not load: {message}"));
            continue;
        }
        if let Err(message) = acceptable(cx, key, ingress) {
            cx.warn(object, "Rejected", message);
            continue;
        }
        let prefix = &cx.options.annotations_prefix;
        match Annotations::read(&ingress.metadata.annotations, prefix, snippets, &blocked) {
            Ok((ann, findings)) => {
                for finding in findings.ignored {
                    cx.warn(object.clone(), "Ignored", finding);
                }
                let owner = cx.owner(&object);
                ings.push(Ing { key, object, ingress, ann, owner });
            }
            Err(message) => cx.warn(object, "Rejected", message),
        }
    }
    ings
}

/// Whether an Ingress is of a class of ours. The older annotation counts where there is no field.
fn is_ours(cx: &Cx, ingress: &Ingress) -> bool {
    let annotated = ingress.metadata.annotations.get("kubernetes.io/ingress.class");
    let field = ingress.spec.ingress_class_name.as_ref();
    if let Some(class) = annotated {
        return *class == cx.options.ingress_class;
    }
    let Some(name) = field else {
        let is_default = |class: &crate::objects::IngressClass| {
            let annotations = &class.metadata.annotations;
            let default = annotations.get("ingressclass.kubernetes.io/is-default-class");
            default.is_some_and(|v| v == "true")
                && cx.options.controller_class.contains(&class.spec.controller)
        };
        return cx.options.watch_ingress_without_class
            || cx.objects.ingress_classes.values().any(is_default);
    };
    match cx.objects.ingress_classes.get(&Key::new("", name)) {
        Some(class) => cx.options.controller_class.contains(&class.spec.controller),
        None => *name == cx.options.ingress_class,
    }
}

/// Checks what the API server leaves to controllers.
fn acceptable(cx: &Cx, key: &Key, ingress: &Ingress) -> Result<(), String> {
    if !check::is_host(&key.namespace, false) || !check::is_host(&key.name, false) {
        return Err("the name of the object is not a DNS name".to_owned());
    }
    let strict = cx.config.bool("strict-validate-path-type");
    for rule in &ingress.spec.rules {
        let host = &rule.host;
        if !host.is_empty() && !check::is_host(host, true) {
            return Err(format!("\"{host}\" is not a host name"));
        }
        if host.is_empty() && cx.options.disable_catch_all {
            return Err("rules without a host are not allowed".to_owned());
        }
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            check_path(path, strict)?;
        }
    }
    if ingress.spec.rules.is_empty()
        && ingress.spec.default_backend.is_some()
        && cx.options.disable_catch_all
    {
        return Err("a default backend without a host is not allowed".to_owned());
    }
    Ok(())
}

fn check_path(path: &HttpPath, strict: bool) -> Result<(), String> {
    let text = &path.path;
    if !check::is_clean(text) {
        return Err(format!("the path \"{}\" has a control character", text.escape_debug()));
    }
    if !text.is_empty() && !text.starts_with('/') {
        return Err(format!("the path \"{text}\" does not begin with a slash"));
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/~".contains(&b);
    if strict && path.path_type != "ImplementationSpecific" && !text.bytes().all(plain) {
        return Err(format!(
            "the path \"{text}\" needs pathType ImplementationSpecific, because it is not plain"
        ));
    }
    Ok(())
}

fn path_type(text: &str) -> PathType {
    match text {
        "Exact" => PathType::Exact,
        "Prefix" => PathType::Prefix,
        _ => PathType::Implementation,
    }
}

fn target(backend: &IngressBackend) -> Option<Target> {
    let service = backend.service.as_ref()?;
    Some(Target::Service { service: service.name.clone(), port: service.port.clone() })
}

/// Puts rules together into servers.
fn model(cx: &mut Cx, ings: &[Ing]) -> BTreeMap<String, Server> {
    let mut servers: BTreeMap<String, Server> = BTreeMap::new();
    let catch_all = Server { host: CATCH_ALL.to_owned(), ..Server::default() };
    servers.insert(CATCH_ALL.to_owned(), catch_all);
    for (index, ing) in ings.iter().enumerate() {
        if ing.ann.is_on("canary") {
            continue;
        }
        rules(cx, &mut servers, ings, index, ing);
    }
    for (index, ing) in ings.iter().enumerate() {
        if ing.ann.is_on("canary") {
            merge_canary(cx, &mut servers, index, ing);
        }
    }
    aliases(cx, &mut servers, ings);
    for server in servers.values_mut() {
        finish(server, ings);
    }
    servers
}

fn rules(
    cx: &mut Cx,
    servers: &mut BTreeMap<String, Server>,
    ings: &[Ing],
    index: usize,
    ing: &Ing,
) {
    let spec = &ing.ingress.spec;
    let default = spec.default_backend.as_ref().and_then(target);
    if spec.rules.is_empty()
        && let (Some(target), Some(server)) = (default.clone(), servers.get_mut(CATCH_ALL))
    {
        server.ings.push(index);
        add(cx, server, ings, root(Some(index), target));
    }
    for rule in &spec.rules {
        let host = match rule.host.as_str() {
            "" => CATCH_ALL.to_owned(),
            host => host.to_ascii_lowercase(),
        };
        let server = servers
            .entry(host.clone())
            .or_insert_with(|| Server { host: host.clone(), ..Server::default() });
        server.ings.push(index);
        if server.certificate.is_none() && host != CATCH_ALL {
            server.certificate = certificate(cx, ing, &host);
        }
        server.passthrough |= cx.options.ssl_passthrough && ing.ann.is_on("ssl-passthrough");
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let Some(target) = target(&path.backend) else {
                let m = format!("the backend of {host}{} is not a Service", path.path);
                cx.warn(ing.object.clone(), "Ignored", m);
                continue;
            };
            let text = if path.path.is_empty() { "/" } else { &path.path };
            let location = Location {
                path: text.to_owned(),
                ingress_path: text.to_owned(),
                kind: path_type(&path.path_type),
                ing: Some(index),
                target,
                canary: None,
            };
            add(cx, server, ings, location);
        }
        if let Some(target) = default.clone()
            && !server.locations.iter().any(|l| l.path == "/")
        {
            add(cx, server, ings, root(Some(index), target));
        }
    }
}

fn root(ing: Option<usize>, target: Target) -> Location {
    Location {
        path: "/".to_owned(),
        ingress_path: "/".to_owned(),
        kind: PathType::Prefix,
        ing,
        target,
        canary: None,
    }
}

/// Adds a location; the oldest Ingress wins.
fn add(cx: &mut Cx, server: &mut Server, ings: &[Ing], location: Location) {
    let taken = server
        .locations
        .iter()
        .find(|l| l.path == location.path && (l.kind == location.kind || l.path == "/"));
    match taken {
        None => server.locations.push(location),
        Some(first) => {
            let named = |i: Option<usize>| i.and_then(|i| ings.get(i)).map(|ing| ing.key);
            if let (Some(first), Some(ing)) = (named(first.ing), location.ing) {
                let m = format!(
                    "{}{} is already served by Ingress {first}, which is older",
                    server.host, location.path
                );
                cx.warn(ings[ing].object.clone(), "Ignored", m);
            }
        }
    }
}

/// The certificate of a host, as the Ingress names it.
fn certificate(cx: &mut Cx, ing: &Ing, host: &str) -> Option<(String, String)> {
    let covers = |name: &String| {
        let name = name.to_ascii_lowercase();
        let parent = host.split_once('.').map(|(_, parent)| parent);
        name == host || name.strip_prefix("*.").is_some_and(|n| Some(n) == parent)
    };
    let tls = &ing.ingress.spec.tls;
    let found = tls
        .iter()
        .find(|t| t.hosts.iter().any(covers))
        .or_else(|| tls.iter().find(|t| t.hosts.is_empty()))?;
    if found.secret_name.is_empty() {
        return default_certificate(cx);
    }
    let key = Key::new(&ing.key.namespace, &found.secret_name);
    match cx.certificate(&key) {
        Ok(files) => Some(files),
        Err(message) => {
            let m = format!("{host} has the default certificate: {message}");
            cx.warn(ing.object.clone(), "NoCertificate", m);
            default_certificate(cx)
        }
    }
}

/// The certificate of hosts without one of their own.
pub(crate) fn default_certificate(cx: &mut Cx) -> Option<(String, String)> {
    if let Some(key) = cx.options.default_certificate.clone() {
        match cx.certificate(&key) {
            Ok(files) => return Some(files),
            Err(message) => {
                let object = ObjectRef::new(Kind::Secret, &key.namespace, &key.name);
                cx.warn(object, "NoCertificate", message);
            }
        }
    }
    let file = cx.options.default_certificate_file.clone()?;
    Some((file.clone(), file))
}

/// Puts a canary beside the locations of the same host and path.
fn merge_canary(cx: &mut Cx, servers: &mut BTreeMap<String, Server>, index: usize, ing: &Ing) {
    let mut merged = false;
    for rule in &ing.ingress.spec.rules {
        let host = match rule.host.as_str() {
            "" => CATCH_ALL.to_owned(),
            host => host.to_ascii_lowercase(),
        };
        let Some(server) = servers.get_mut(&host) else { continue };
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let Some(target) = target(&path.backend) else { continue };
            let text = if path.path.is_empty() { "/" } else { &path.path };
            let kind = path_type(&path.path_type);
            let same = |l: &&mut Location| l.path == text && l.kind == kind && l.target != target;
            if let Some(location) = server.locations.iter_mut().find(same)
                && location.canary.is_none()
                && location.ing.is_some()
            {
                location.canary = Some((index, target));
                merged = true;
            }
        }
    }
    if !merged {
        let m = "a canary without an Ingress of the same host and path has no effect";
        cx.warn(ing.object.clone(), "Ignored", m);
    }
}

/// Adds the names of `server-alias` that no host has.
fn aliases(cx: &mut Cx, servers: &mut BTreeMap<String, Server>, ings: &[Ing]) {
    let mut taken: Vec<String> = servers.keys().cloned().collect();
    for ing in ings {
        let Some(list) = ing.ann.get("server-alias") else { continue };
        let hosts = ing.ingress.spec.rules.iter().map(|rule| rule.host.to_ascii_lowercase());
        let Some(host) = hosts.into_iter().find(|host| servers.contains_key(host)) else {
            continue;
        };
        for name in check::list(list) {
            if taken.iter().any(|t| t == name) {
                let m = format!("the alias \"{name}\" is already the name of a server");
                cx.warn(ing.object.clone(), "Ignored", m);
                continue;
            }
            taken.push(name.to_owned());
            if let Some(server) = servers.get_mut(&host) {
                server.aliases.push(name.to_owned());
            }
        }
    }
}

/// Whether a location's annotations change its path before it is forwarded.
pub(crate) fn needs_rewrite(location: &Location, ings: &[Ing]) -> bool {
    let target = location.ing.and_then(|i| ings[i].ann.trimmed("rewrite-target"));
    target.is_some_and(|target| target != location.path)
}

pub(crate) fn uses_regex(location: &Location, ings: &[Ing]) -> bool {
    location.ing.is_some_and(|i| ings[i].ann.is_on("use-regex"))
}

/// Adds the root, splits prefixes into the exact path and what is below it, and sorts: the longest
/// path first, because the first expression that matches wins.
fn finish(server: &mut Server, ings: &[Ing]) {
    if !server.locations.iter().any(|l| l.path == "/") {
        server.locations.push(root(None, Target::Default));
    }
    let exact: Vec<String> = server
        .locations
        .iter()
        .filter(|l| l.kind == PathType::Exact)
        .map(|l| l.path.clone())
        .collect();
    let mut out = Vec::new();
    for mut location in std::mem::take(&mut server.locations) {
        let whole = location.path == "/"
            || location.kind != PathType::Prefix
            || needs_rewrite(&location, ings)
            || uses_regex(&location, ings);
        if whole {
            out.push(location);
            continue;
        }
        let bare = location.path.trim_end_matches('/').to_owned();
        if !exact.contains(&location.path) && !exact.contains(&bare) {
            out.push(Location { path: bare.clone(), kind: PathType::Exact, ..location.clone() });
        }
        location.path = format!("{bare}/");
        out.push(location);
    }
    out.sort_by(|a, b| {
        b.path.len().cmp(&a.path.len()).then(b.path.cmp(&a.path)).then(a.kind.cmp(&b.kind))
    });
    // A path may be both exact and a prefix, but not twice the same.
    out.dedup_by(|b, a| {
        a.path == b.path && (a.kind == PathType::Exact) == (b.kind == PathType::Exact)
    });
    server.locations = out;
}

/// The addresses of all Ingresses that are served.
fn statuses(cx: &mut Cx, ings: &[Ing]) {
    let addresses: Vec<_> = cx
        .options
        .addresses
        .iter()
        .map(|a| match a.parse::<std::net::IpAddr>() {
            Ok(ip) => json!({ "ip": ip.to_string() }),
            Err(_) => json!({ "hostname": a }),
        })
        .collect();
    for ing in ings {
        let status = json!({ "loadBalancer": { "ingress": addresses } });
        cx.statuses.push(Status { object: ing.object.clone(), status });
        let refused = ing.ann.names().filter_map(crate::annotations::find);
        if !refused.into_iter().any(|a| a.outcome == Outcome::Refused) {
            cx.note(ing.object.clone(), "Sync", "served");
        }
    }
}
