//! The directives that hold for a request, by the text: those of its block and those that the block
//! inherits. Setting a directive on one level hides it on the levels around.

use conf::table::Contexts;
use conf::{Node, Pos, Tree};
use server::{added, engines};

/// A directive that holds, and those that it hides.
pub(crate) struct Effect<'a> {
    /// The directive.
    pub(crate) node: &'a Node,
    /// The directives of levels around that it replaces.
    pub(crate) hides: Vec<&'a Node>,
}

/// Directives that hold on their own level alone.
const OF_ONE_LEVEL: &[&str] =
    &["rewrite", "return", "set", "break", "try_files", "internal", "listen", "server_name"];
/// Handlers of the content: blocks without a name (`if`, `limit_except`) have those around.
const HANDLERS: &[&str] = &[
    "proxy_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "grpc_pass",
    "memcached_pass",
    "tunnel_pass",
    "stub_status",
    "empty_gif",
    "flv",
    "mp4",
    "hls",
    "api",
];
/// Directives that replace one another.
const FAMILIES: &[&[&str]] = &[&["allow", "deny"], &["root", "alias"]];

/// The directives that hold in the block at a place: its own, then those of the blocks around.
pub(crate) fn effects<'a>(tree: &'a Tree, at: &Pos) -> Vec<Effect<'a>> {
    let mut way = Vec::new();
    find(&tree.nodes, at, &mut way);
    let known: Vec<(&str, Contexts)> = engines::directives().collect();
    let places = Contexts::SERVER.or(Contexts::LOCATION);
    let counts = |node: &Node| {
        let name = node.name.lossy();
        known.iter().any(|(n, contexts)| *n == name && contexts.intersects(places))
    };
    let mut found: Vec<(Effect<'a>, usize)> = Vec::new();
    let mut nameless = true;
    for (depth, block) in way.iter().rev().enumerate() {
        for node in block.children().iter().filter(|node| node.block.is_none() && counts(node)) {
            let name = &*node.name.lossy();
            let inherits = match name {
                _ if OF_ONE_LEVEL.contains(&name) => depth == 0,
                _ if HANDLERS.contains(&name) => nameless,
                _ => true,
            };
            if !inherits {
                continue;
            }
            let inner = found.iter_mut().find(|(effect, of)| *of < depth && replaces(effect, name));
            match inner {
                Some((effect, _)) => effect.hides.push(node),
                None => found.push((Effect { node, hides: Vec::new() }, depth)),
            }
        }
        nameless &= ["if", "limit_except"].contains(&&*block.name.lossy());
    }
    found.into_iter().map(|(effect, _)| effect).collect()
}

fn replaces(effect: &Effect<'_>, name: &str) -> bool {
    let own = effect.node.name.lossy();
    own == name || FAMILIES.iter().any(|f| f.contains(&&*own) && f.contains(&name))
}

/// The blocks from the outermost one to that at a place.
fn find<'a>(nodes: &'a [Node], at: &Pos, way: &mut Vec<&'a Node>) -> bool {
    nodes.iter().filter(|node| node.block.is_some()).any(|node| {
        way.push(node);
        // Locations are known by their names, others by the directive's.
        let is_it = node.name.pos == *at || node.args.iter().any(|arg| arg.pos == *at);
        let found = is_it || find(node.children(), at, way);
        if !found {
            way.pop();
        }
        found
    })
}

/// The arguments of a directive as written; secrets are starred.
pub(crate) fn words(node: &Node) -> Vec<String> {
    let mut secrets = added::modules().iter().flat_map(|m| m.secrets);
    if secrets.any(|secret| node.name == **secret) {
        return vec!["***".to_owned()];
    }
    node.args.iter().map(|arg| arg.lossy().into_owned()).collect()
}

/// The `upstream` block of a name.
pub(crate) fn upstream<'a>(tree: &'a Tree, name: &str) -> Option<&'a Node> {
    let http = tree.nodes.iter().filter(|node| node.name == *"http");
    http.flat_map(Node::children)
        .find(|n| n.name == *"upstream" && n.args.first().is_some_and(|word| *word == *name))
}

/// The balancing method of an `upstream` block.
pub(crate) fn method(upstream: &Node) -> String {
    const METHODS: &[&str] =
        &["least_conn", "least_time", "ip_hash", "hash", "random", "sticky", "random_two"];
    let lines = upstream.children().iter().filter(|n| METHODS.iter().any(|m| n.name == **m));
    let lines: Vec<String> = lines.map(line).collect();
    if lines.is_empty() { "round robin".to_owned() } else { lines.join(", ") }
}

/// A directive on one line.
pub(crate) fn line(node: &Node) -> String {
    let mut out = node.name.lossy().into_owned();
    for word in words(node) {
        let plain = !word.is_empty() && !word.contains([' ', ';', '{', '}', '"']);
        out.push(' ');
        out.push_str(&if plain { word } else { format!("{word:?}") });
    }
    out
}
