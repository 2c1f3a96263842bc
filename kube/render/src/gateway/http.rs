//! HTTPRoute and GRPCRoute: servers, locations, filters and backends.

use std::collections::{BTreeMap, BTreeSet};

use super::filters::{
    cors, mirrors, redirect, request_headers, response_headers, rewrite_path, timeouts,
};
use super::matching::{Match, Path};
use super::places::{Place, is_of_ingresses, misdirected, nobody, of_gateway, places};
use super::types::{BackendRef, Filter, Route, RouteRule};
use super::{Bound, Servers, attach, covers, refs};
use crate::check;
use crate::conf::{Block, Owner, plain, w};
use crate::cx::{Cx, digest};
use crate::ingress::blocks;
use crate::objects::{Key, Kind, ObjectRef};

/// A match with all that is needed to answer its requests.
pub(super) struct Entry<'a> {
    pub m: Match,
    pub kind: Kind,
    pub key: &'a Key,
    pub owner: Owner,
    rule: &'a RouteRule,
    /// The certificate and key of its Gateway for backends.
    client: Option<(String, String)>,
    /// Names that the route has on a listener.
    pub names: Vec<Option<String>>,
    /// Sorts after the match itself: age, name, place.
    age: (String, String, usize, usize),
}

/// Services that routes of a Gateway name, each with these Gateways.
pub(super) type Users<'a> = BTreeMap<Key, BTreeSet<&'a Key>>;

pub(super) fn render<'a>(cx: &mut Cx<'a>, bound: &mut [Bound<'a>], out: &mut Servers) -> Users<'a> {
    let mut users = Users::new();
    let entries = entries(cx, bound, &mut users);
    let mut defaults = BTreeSet::new();
    for place in places(cx, bound, &entries) {
        for (name, index) in &place.listeners {
            let own = entries.iter().filter(|(i, _)| i == index).map(|(_, e)| e);
            let of_name = own.filter(|e| e.names.iter().any(|n| includes(n, name)));
            let list: Vec<&Entry<'a>> = of_name.collect();
            server(cx, bound, &place, (name, *index), &list, &mut defaults, out);
        }
        nobody(cx, bound, &place, &mut defaults, out);
    }
    users
}

/// Whether requests for `name` may be meant by a route with the name `wide`.
pub(super) fn includes(wide: &Option<String>, name: &Option<String>) -> bool {
    match (wide, name) {
        (None, _) => true,
        (Some(wide), Some(name)) => covers(wide, name),
        (Some(_), None) => false,
    }
}

/// All matches of all routes, with the listeners that took them.
fn entries<'a>(
    cx: &mut Cx<'a>,
    bound: &mut [Bound<'a>],
    users: &mut Users<'a>,
) -> Vec<(usize, Entry<'a>)> {
    let objects = cx.objects;
    let http = objects.http_routes.iter().map(|(key, r)| (Kind::HttpRoute, key, r));
    let grpc = objects.grpc_routes.iter().map(|(key, r)| (Kind::GrpcRoute, key, r));
    let mut out = Vec::new();
    for (kind, key, route) in http.chain(grpc) {
        let object = ObjectRef::new(kind, &key.namespace, &key.name);
        if let Some(message) = cx.refused.get(&object) {
            cx.warn(object, "Rejected", format!("the configuration does not load: {message}"));
            continue;
        }
        let resolved = refs::resolve(cx, kind, &key.namespace, backend_refs(route), false);
        let (parents, names) = (&route.spec.parent_refs, &route.spec.hostnames);
        let attached = attach(cx, bound, kind, key, &route.metadata, parents, names, &resolved);
        for reference in backend_refs(route) {
            let namespace = reference.namespace.as_deref().unwrap_or(&key.namespace);
            let of_service = users.entry(Key::new(namespace, &reference.name)).or_default();
            of_service.extend(attached.listeners.iter().map(|(index, _)| bound[*index].gateway));
        }
        let owner = cx.owner(&object);
        for (number, rule) in route.spec.rules.iter().enumerate() {
            let matches: Vec<Match> = match rule.matches.is_empty() {
                true => vec![Match::default()],
                false => rule
                    .matches
                    .iter()
                    .filter_map(|m| {
                        let read = Match::read(m, kind == Kind::GrpcRoute);
                        read.map_err(|e| cx.warn(object.clone(), "Rejected", e)).ok()
                    })
                    .collect(),
            };
            for (place, m) in matches.into_iter().enumerate() {
                for (index, names) in &attached.listeners {
                    let age =
                        (route.metadata.creation_timestamp.clone(), key.to_string(), number, place);
                    let (m, names) = (m.clone(), names.clone());
                    let client = bound[*index].backend_client.clone();
                    out.push((*index, Entry { m, kind, key, owner, rule, client, names, age }));
                }
            }
        }
    }
    out
}

fn backend_refs(route: &Route) -> impl Iterator<Item = &BackendRef> {
    route.spec.rules.iter().flat_map(|rule| {
        let mirrors = rule.filters.iter().filter_map(|f| f.request_mirror.as_ref());
        rule.backend_refs.iter().chain(mirrors.map(|m| &m.backend_ref))
    })
}

/// How specific the name of a route is for a server: the longest first, wildcards last.
fn specificity(entry: &Entry, name: &Option<String>) -> (u8, usize) {
    let of = |n: &Option<String>| match n {
        Some(n) if !n.starts_with('*') => (0, usize::MAX - n.len()),
        Some(n) => (1, usize::MAX - n.len()),
        None => (2, 0),
    };
    entry.names.iter().filter(|n| includes(n, name)).map(of).min().unwrap_or((3, 0))
}

/// The server for a name, which belongs to the listener `index`.
fn server<'a>(
    cx: &mut Cx<'a>,
    bound: &[Bound],
    place: &Place,
    (name, index): (&Option<String>, usize),
    list: &[&Entry<'a>],
    defaults: &mut BTreeSet<String>,
    out: &mut Servers,
) {
    let mut sorted: Vec<&Entry<'a>> = list.to_vec();
    sorted.sort_by(|a, b| {
        let rank = |e: &Entry| (specificity(e, name), e.m.rank());
        rank(a).cmp(&rank(b)).then_with(|| a.age.cmp(&b.age))
    });
    let mut block = Block::of(Some(of_gateway(cx, &bound[index])));
    for address in &place.addresses {
        let mut words = vec![plain(address)];
        if name.is_none() && !is_of_ingresses(cx, address) && defaults.insert(address.clone()) {
            words.push(w("default_server"));
        }
        if place.tls {
            words.push(w("ssl"));
        }
        block.add("listen", words);
    }
    // Any name that no other server has. Names by expressions come after all others.
    block.add("server_name", [plain(name.as_deref().unwrap_or("~^"))]);
    block.add("http2", ["on"]);
    if place.tls {
        let listener = &bound[index];
        for (certificate, private) in &listener.certificates {
            block.add("ssl_certificate", [plain(certificate)]);
            block.add("ssl_certificate_key", [plain(private)]);
        }
        if let Some(clients) = &listener.clients {
            clients.add_to(&mut block);
        }
        misdirected(cx, bound, place, index, &mut block);
    }
    blocks(cx, &mut block);
    locations(cx, &sorted, &mut block);
    out.blocks.push(block);
}

/// The locations of a server: one for each path, which looks at all matches that may apply to it.
fn locations<'a>(cx: &mut Cx<'a>, sorted: &[&Entry<'a>], block: &mut Block) {
    let mut paths: Vec<&Path> = sorted.iter().map(|e| &e.m.path).collect();
    paths.sort_by(|a, b| a.rank().cmp(&b.rank()).then_with(|| a.cmp(b)));
    paths.dedup();
    let mut named: BTreeMap<String, Block> = BTreeMap::new();
    for path in &paths {
        let candidates = sorted.iter().filter(|e| e.m.path.covers(path));
        let mut chosen = Vec::new();
        for entry in candidates {
            chosen.push(*entry);
            if entry.m.is_path_alone() {
                break;
            }
        }
        let body = choose(cx, &chosen, &mut named);
        let is_exact =
            paths.iter().any(|p| matches!((p, path), (Path::Exact(a), Path::Prefix(b)) if a == b));
        put(block, path, is_exact, body);
    }
    if !paths.iter().any(|p| **p == Path::Prefix(String::new())) {
        let mut none = Block::default();
        none.add("return", ["404"]);
        block.block("location", ["/"], none);
    }
    for (name, body) in named {
        match name.starts_with('@') {
            true => block.block("location", [plain(name)], body),
            false => block.block("location", [w("="), plain(name)], body),
        }
    }
}

/// `is_exact`: another match has the bare path of this prefix.
fn put(block: &mut Block, path: &Path, is_exact: bool, body: Block) {
    match path {
        Path::Exact(path) => block.block("location", [w("="), plain(path)], body),
        Path::Regex(regex) => block.block("location", [w("~"), plain(regex)], body),
        Path::Prefix(path) if path.is_empty() => block.block("location", ["/"], body),
        Path::Prefix(path) => {
            if !is_exact {
                block.block("location", [w("="), plain(path)], body.clone());
            }
            block.block("location", [w("^~"), plain(format!("{path}/"))], body);
        }
    }
}

/// A location's contents: the one rule, or a choice among named locations. Locations that are
/// needed besides are added to `named`.
fn choose<'a>(
    cx: &mut Cx<'a>,
    chosen: &[&Entry<'a>],
    named: &mut BTreeMap<String, Block>,
) -> Block {
    let is_sure = chosen.last().is_some_and(|e| e.m.is_path_alone());
    if let ([only], true) = (chosen, is_sure) {
        return rule(cx, only, named);
    }
    let mut next = "@gw_none".to_owned();
    for entry in chosen.iter().rev() {
        let id = entry_id(entry);
        let name = format!("@gw_rule_{id}");
        if !named.contains_key(&name) {
            let body = rule(cx, entry, named);
            named.insert(name.clone(), body);
        }
        next = match entry.m.is_path_alone() {
            true => name,
            false => entry.m.choose(cx, entry.owner, &name, &next),
        };
    }
    if !is_sure {
        let mut none = Block::default();
        none.add("return", ["404"]);
        named.insert("@gw_none".to_owned(), none);
    }
    let mut body = Block::default();
    body.add("internal_redirect", [w(next)]);
    body
}

/// A short text that differs for different matches.
pub(super) fn entry_id(entry: &Entry) -> String {
    let place = format!("{:?} {} {:?}", entry.kind, entry.key, entry.age);
    digest(&[place.as_bytes()])
}

/// What a rule does with a request that it matches. Locations that are needed besides are added to
/// `named`.
fn rule<'a>(cx: &mut Cx<'a>, entry: &Entry<'a>, named: &mut BTreeMap<String, Block>) -> Block {
    let of_rule: Vec<&Filter> = entry.rule.filters.iter().collect();
    if of_rule.iter().any(|f| f.request_redirect.is_some()) {
        return forward(cx, entry, named, &of_rule, &Choice::default());
    }
    let shares = shares(cx, entry);
    let id = entry_id(entry);
    match shares.as_slice() {
        [] => forward(cx, entry, named, &of_rule, &Choice::default()),
        [(_, choice)] => forward(cx, entry, named, &choice.filters_after(&of_rule), choice),
        _ if are_alike(&shares) => {
            let index = split(cx, entry, &shares);
            let group = format!("$gw_group_{id}");
            if cx.first(&group) {
                let mut map = Block::of(Some(entry.owner));
                for (i, (_, choice)) in shares.iter().enumerate() {
                    let name = choice.group.as_deref().unwrap_or_default();
                    map.entry(plain(i.to_string()), [plain(name)]);
                }
                cx.http.block("map", [w(index), w(&group)], map);
            }
            let choice = Choice { group: Some(group), ..shares[0].1.clone() };
            forward(cx, entry, named, &of_rule, &choice)
        }
        _ => {
            // Backends that are asked differently have locations of their own.
            let index = split(cx, entry, &shares);
            for (i, (_, choice)) in shares.iter().enumerate() {
                let body = forward(cx, entry, named, &choice.filters_after(&of_rule), choice);
                named.insert(format!("@gw_backend_{id}_{i}"), body);
            }
            let mut block = Block::of(Some(entry.owner));
            block.add("internal_redirect", [w(format!("@gw_backend_{id}_{index}"))]);
            block
        }
    }
}

/// Whether backends differ in nothing but their servers.
fn are_alike(shares: &[(u64, Choice)]) -> bool {
    let first = &shares[0].1;
    shares.iter().all(|(_, c)| {
        c.group.is_some()
            && !c.is_empty
            && c.filters.is_empty()
            && c.kind == first.kind
            && c.policy == first.policy
    })
}

/// Filters, fields, timeouts and the backend of a location.
fn forward(
    cx: &mut Cx,
    entry: &Entry,
    named: &mut BTreeMap<String, Block>,
    filters: &[&Filter],
    choice: &Choice,
) -> Block {
    const KNOWN: [&str; 6] = [
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestMirror",
        "URLRewrite",
        "RequestRedirect",
        "CORS",
    ];
    let mut block = Block::of(Some(entry.owner));
    if let Some(filter) = filters.iter().find(|f| !KNOWN.contains(&f.kind.as_str())) {
        // Going on without a filter could expose what it protects.
        let object = ObjectRef::new(entry.kind, &entry.key.namespace, &entry.key.name);
        let m = format!("filters of type {} are not supported", filter.kind);
        cx.warn(object, "Rejected", m);
        block.add("return", ["500"]);
        return block;
    }
    if let Some(to) = filters.iter().find_map(|f| f.request_redirect.as_ref()) {
        redirect(cx, entry, to, &mut block);
        response_headers(filters, &mut block);
        return block;
    }
    let Some(group) = &choice.group else {
        block.add("return", ["500"]);
        return block;
    };
    if choice.is_empty {
        block.add("return", ["503"]);
        return block;
    }
    for change in filters.iter().filter_map(|f| f.cors.as_ref()) {
        cors(cx, entry.owner, change, &mut block);
    }
    mirrors(cx, entry, named, filters, &mut block);
    response_headers(filters, &mut block);
    timeouts(entry.rule, entry.kind == Kind::GrpcRoute, &mut block);
    request_fields(cx, entry, filters, &mut block);
    block.extend(choice.tls.clone());
    choice.kind.pass(&mut block, group);
    block
}

/// The fields of requests to the backend, and the path that it sees.
fn request_fields(cx: &mut Cx, entry: &Entry, filters: &[&Filter], block: &mut Block) {
    let grpc = entry.kind == Kind::GrpcRoute;
    let set = if grpc { "grpc_set_header" } else { "proxy_set_header" };
    let mut fields = BTreeMap::new();
    let mut host = "$best_http_host".to_owned();
    for filter in filters {
        if let Some(change) = &filter.request_header_modifier {
            request_headers(cx, entry.owner, change, &mut fields);
        }
        if let Some(rewrite) = &filter.url_rewrite {
            if let Some(name) = rewrite.hostname.as_ref().filter(|h| check::is_host(h, false)) {
                host.clone_from(name);
            }
            rewrite_path(cx, entry, rewrite, block);
        }
    }
    block.add(set, [w("Host"), w(host)]);
    for (name, value) in [
        ("X-Request-ID", "$req_id"),
        ("X-Real-IP", "$remote_addr"),
        ("X-Forwarded-For", "$weir_forwarded_for"),
        ("X-Forwarded-Host", "$best_http_host"),
        ("X-Forwarded-Proto", "$pass_access_scheme"),
    ] {
        if !fields.keys().any(|n: &String| n.eq_ignore_ascii_case(name)) {
            block.add(set, [w(name), w(value)]);
        }
    }
    if !grpc {
        block.add(set, ["Upgrade", "$http_upgrade"]);
        block.add(set, ["Connection", "$connection_upgrade"]);
    }
    for (name, value) in fields {
        block.add(set, [plain(name), value]);
    }
}

/// The backends of a rule that have a share of its requests.
fn shares<'a>(cx: &mut Cx<'a>, entry: &Entry<'a>) -> Vec<(u64, Choice<'a>)> {
    let mut shares = Vec::new();
    for reference in &entry.rule.backend_refs {
        let weight = u64::from(reference.weight.unwrap_or(1));
        if weight > 0 {
            shares.push((weight, choice(cx, entry, reference)));
        }
    }
    shares
}

/// The variable with the index of the backend that a request goes to.
fn split(cx: &mut Cx, entry: &Entry, shares: &[(u64, Choice)]) -> String {
    let variable = format!("$gw_backend_{}", entry_id(entry));
    if !cx.first(&variable) {
        return variable;
    }
    let total: u64 = shares.iter().map(|(weight, _)| weight).sum();
    let (mut before, mut sum) = (0, 0);
    let mut split = Block::of(Some(entry.owner));
    for (index, (weight, _)) in shares.iter().enumerate() {
        sum += weight;
        let upto = sum * 10_000 / total;
        let share = upto - before;
        before = upto;
        let index = plain(index.to_string());
        if sum == total {
            split.entry(w("*"), [index]);
        } else if share > 0 {
            split.entry(plain(format!("{}.{:02}%", share / 100, share % 100)), [index]);
        }
    }
    cx.http.block("split_clients", [w("$request_id"), w(&variable)], split);
    variable
}

/// How a backend is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Speaks {
    #[default]
    Http,
    H2c,
    Https,
    Grpc,
    Grpcs,
}

impl Speaks {
    fn pass(self, block: &mut Block, group: &str) {
        match self {
            Speaks::Http | Speaks::H2c => {
                let version = if self == Speaks::H2c { "2" } else { "1.1" };
                block.add("proxy_http_version", [version]);
                block.add("proxy_pass", [w(format!("http://{group}"))]);
            }
            Speaks::Https => {
                block.add("proxy_http_version", ["1.1"]);
                block.add("proxy_pass", [w(format!("https://{group}"))]);
            }
            Speaks::Grpc => block.add("grpc_pass", [w(format!("grpc://{group}"))]),
            Speaks::Grpcs => block.add("grpc_pass", [w(format!("grpcs://{group}"))]),
        }
    }
}

/// One backend of a rule.
#[derive(Clone, Default)]
struct Choice<'a> {
    kind: Speaks,
    /// Its group; `None` if it does not exist or may not be asked.
    group: Option<String>,
    /// Whether it has no endpoints.
    is_empty: bool,
    /// The policy for TLS to it, and its directives.
    policy: Option<&'a Key>,
    tls: Block,
    /// Filters of its own.
    filters: Vec<&'a Filter>,
}

impl<'a> Choice<'a> {
    fn filters_after<'f>(&self, of_rule: &[&'f Filter]) -> Vec<&'f Filter>
    where
        'a: 'f,
    {
        of_rule.iter().copied().chain(self.filters.iter().copied()).collect()
    }
}

fn choice<'a>(cx: &mut Cx<'a>, entry: &Entry<'a>, reference: &'a BackendRef) -> Choice<'a> {
    match find_choice(cx, entry, reference) {
        Ok(choice) => choice,
        Err(message) => {
            let object = ObjectRef::new(entry.kind, &entry.key.namespace, &entry.key.name);
            cx.warn(object, "NoBackend", message);
            Choice::default()
        }
    }
}

fn find_choice<'a>(
    cx: &mut Cx<'a>,
    entry: &Entry<'a>,
    reference: &'a BackendRef,
) -> Result<Choice<'a>, String> {
    let grpc = entry.kind == Kind::GrpcRoute;
    let (key, backend) = refs::backend(cx, entry.kind, &entry.key.namespace, reference, false)
        .map_err(|(_, message)| message)?;
    let policy = refs::policy(cx, &key, reference.port).map(|(key, _)| key);
    let mut tls = refs::backend_tls(cx, &key, reference.port, grpc)?;
    if let (Some(block), Some((certificate, private))) = (&mut tls, &entry.client) {
        let [of_certificate, of_key] = match grpc {
            true => ["grpc_ssl_certificate", "grpc_ssl_certificate_key"],
            false => ["proxy_ssl_certificate", "proxy_ssl_certificate_key"],
        };
        block.add(of_certificate, [plain(certificate)]);
        block.add(of_key, [plain(private)]);
    }
    let kind = match (&tls, grpc, backend.app_protocol.as_str()) {
        (Some(_), true, _) => Speaks::Grpcs,
        (Some(_), false, _) => Speaks::Https,
        (None, true, _) => Speaks::Grpc,
        (None, false, "kubernetes.io/h2c") => Speaks::H2c,
        (None, false, _) => Speaks::Http,
    };
    let group = cx.upstream(&backend, Vec::new(), Some(entry.owner));
    Ok(Choice {
        kind,
        group: Some(group),
        is_empty: backend.servers.is_empty(),
        policy,
        tls: tls.unwrap_or_default(),
        filters: reference.filters.iter().collect(),
    })
}
