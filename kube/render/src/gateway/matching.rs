//! Which rule gets a request: the order of matches, and the variables that decide.

use serde_json::Value;

use super::types::{RouteMatch, ValueMatch};
use crate::check;
use crate::conf::{Block, Owner, plain, w};
use crate::cx::{Cx, digest};
use crate::ingress::{escape, header_variable};

/// A path to match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Path {
    Exact(String),
    /// A whole path or its first elements; without a slash at the end.
    Prefix(String),
    Regex(String),
}

impl Path {
    /// Whether all requests that `other` matches have to be looked at with this one, too.
    pub fn covers(&self, other: &Path) -> bool {
        match (self, other) {
            (Path::Exact(a), Path::Exact(b)) => a == b,
            (Path::Prefix(a), Path::Exact(b) | Path::Prefix(b)) => b
                .strip_prefix(a.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            (Path::Regex(a), Path::Regex(b)) => a == b,
            // What an expression matches is not known here: prefixes of all paths may follow it.
            (Path::Prefix(a), Path::Regex(_)) => a.is_empty(),
            _ => false,
        }
    }

    /// Sorts the most specific first.
    pub fn rank(&self) -> (u8, usize) {
        match self {
            Path::Exact(path) => (0, usize::MAX - path.len()),
            Path::Regex(path) => (1, usize::MAX - path.len()),
            Path::Prefix(path) => (2, usize::MAX - path.len()),
        }
    }
}

/// One match of a route's rule.
#[derive(Clone, Debug)]
pub(super) struct Match {
    pub path: Path,
    /// Conditions besides the path: a variable, and a key of a map for its value.
    conditions: Vec<Condition>,
    method: bool,
    headers: usize,
    params: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    variable: String,
    pattern: Pattern,
}

#[derive(Clone, Debug, PartialEq)]
enum Pattern {
    Value(String),
    Regex(String),
}

/// The match of a rule without any.
impl Default for Match {
    fn default() -> Match {
        Match {
            path: Path::Prefix(String::new()),
            conditions: Vec::new(),
            method: false,
            headers: 0,
            params: 0,
        }
    }
}

impl Match {
    /// Reads a match of an HTTPRoute, or of a GRPCRoute.
    ///
    /// # Errors
    /// What cannot be matched.
    pub fn read(m: &RouteMatch, grpc: bool) -> Result<Match, String> {
        let mut out = Match::default();
        if let Some(path) = &m.path {
            out.path = read_path(path.kind.as_deref(), path.value.as_deref().unwrap_or("/"))?;
        }
        match &m.method {
            Some(Value::String(method)) if !grpc => {
                out.method = true;
                let pattern = Pattern::Value(method.clone());
                out.conditions.push(Condition { variable: "$request_method".to_owned(), pattern });
            }
            Some(method) if grpc => out.path = read_grpc(method)?,
            _ => {}
        }
        for header in &m.headers {
            let variable = header_variable(&header.name)
                .ok_or_else(|| format!("\"{}\" is not a field's name", header.name))?;
            // The first of several matches of the same name counts.
            if out.conditions.iter().any(|c| c.variable == variable) {
                continue;
            }
            out.conditions.push(Condition { variable, pattern: pattern(header)? });
            out.headers += 1;
        }
        for param in &m.query_params {
            let variable = "$args".to_owned();
            let name = escape(&param.name);
            let value = match pattern(param)? {
                Pattern::Value(value) => escape(&encoded(&value)),
                Pattern::Regex(regex) => format!("(?:{regex})"),
            };
            let pattern = Pattern::Regex(format!("(?:^|&){name}={value}(?:&|$)"));
            out.conditions.push(Condition { variable, pattern });
            out.params += 1;
        }
        Ok(out)
    }

    /// Whether it asks for nothing but the path.
    pub fn is_path_alone(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Sorts as the specification says: path, method, number of fields, number of parameters.
    pub fn rank(&self) -> impl Ord + use<> {
        let (kind, len) = self.path.rank();
        (kind, len, !self.method, usize::MAX - self.headers, usize::MAX - self.params)
    }

    /// Adds the map that chooses `this` if all conditions hold, otherwise the value of `next`;
    /// returns its variable.
    pub fn choose(&self, cx: &mut Cx, owner: Owner, this: &str, next: &str) -> String {
        let bits: Vec<String> = self.conditions.iter().map(|c| bit(cx, owner, c)).collect();
        let tag = digest(&[bits.concat().as_bytes(), this.as_bytes(), next.as_bytes()]);
        let variable = format!("$gw_{tag}");
        if cx.first(&variable) {
            let mut map = Block::of(Some(owner));
            map.entry(w("default"), [w(next)]);
            map.entry(w("1".repeat(bits.len())), [w(this)]);
            cx.http.block("map", [w(bits.concat()), w(&variable)], map);
        }
        variable
    }
}

/// The variable that is 1 if a condition holds, else 0.
fn bit(cx: &mut Cx, owner: Owner, condition: &Condition) -> String {
    let (word, text) = match &condition.pattern {
        // Keys of a map ignore case: an expression does not.
        Pattern::Value(value) => {
            let regex = format!("~^{}$", escape(value));
            (plain(&regex), regex)
        }
        Pattern::Regex(regex) => (plain(format!("~{regex}")), format!("~{regex}")),
    };
    let tag = digest(&[condition.variable.as_bytes(), text.as_bytes()]);
    let variable = format!("$gw_is_{tag}");
    if cx.first(&variable) {
        let mut map = Block::of(Some(owner));
        map.entry(w("default"), ["0"]);
        map.entry(word, ["1"]);
        cx.http.block("map", [w(&condition.variable), w(&variable)], map);
    }
    // Variables whose names follow one another are told apart by braces.
    format!("${{{}}}", &variable[1..])
}

fn pattern(m: &ValueMatch) -> Result<Pattern, String> {
    if !check::is_clean(&m.value) || !check::is_clean(&m.name) {
        return Err(format!("\"{}\" has a control character", m.name.escape_debug()));
    }
    match m.kind.as_deref().unwrap_or("Exact") {
        "Exact" => Ok(Pattern::Value(m.value.clone())),
        "RegularExpression" => Ok(Pattern::Regex(format!("^(?:{})$", m.value))),
        other => Err(format!("matches of type {other} are not supported")),
    }
}

/// A value as it stands in the arguments of a URL.
fn encoded(value: &str) -> String {
    let mut out = String::new();
    for byte in value.bytes() {
        match byte {
            b if b.is_ascii_alphanumeric() || b"-._~!$'()*,;:@/?".contains(&b) => {
                out.push(b.into())
            }
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

fn read_path(kind: Option<&str>, value: &str) -> Result<Path, String> {
    if !check::is_clean(value) {
        return Err("the path has a control character".to_owned());
    }
    match kind.unwrap_or("PathPrefix") {
        "RegularExpression" => Ok(Path::Regex(value.to_owned())),
        _ if !value.starts_with('/') => Err(format!("the path \"{value}\" begins without a slash")),
        "Exact" => Ok(Path::Exact(value.to_owned())),
        "PathPrefix" => Ok(Path::Prefix(value.trim_end_matches('/').to_owned())),
        other => Err(format!("paths of type {other} are not supported")),
    }
}

/// The path of a method of gRPC: `/SERVICE/METHOD`.
fn read_grpc(method: &Value) -> Result<Path, String> {
    let text = |name: &str| method[name].as_str().filter(|v| !v.is_empty());
    let (service, name) = (text("service"), text("method"));
    let regex = method["type"].as_str() == Some("RegularExpression");
    for part in [service, name].into_iter().flatten() {
        if !check::is_clean(part) || (!regex && part.contains('/')) {
            return Err(format!("\"{}\" is not a name of gRPC", part.escape_debug()));
        }
    }
    Ok(match (service, name) {
        (None, None) => Path::Prefix(String::new()),
        (service, name) if regex => {
            let any = "[^/]+";
            Path::Regex(format!("^/{}/{}$", service.unwrap_or(any), name.unwrap_or(any)))
        }
        (Some(service), Some(name)) => Path::Exact(format!("/{service}/{name}")),
        (Some(service), None) => Path::Prefix(format!("/{service}")),
        (None, Some(name)) => Path::Regex(format!("^/[^/]+/{}$", escape(name))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_of_whole_elements() {
        let prefix = |p: &str| read_path(None, p).unwrap();
        assert!(prefix("/a/").covers(&prefix("/a")) && prefix("/").covers(&prefix("/a")));
        assert!(prefix("/a").covers(&Path::Exact("/a/b".into())));
        assert!(
            !prefix("/a").covers(&prefix("/ab")) && !Path::Exact("/a".into()).covers(&prefix("/a"))
        );
    }

    #[test]
    fn order_of_matches() {
        let mut ranked = [
            Match { path: Path::Prefix("/a/b".into()), ..Match::default() },
            Match { path: Path::Prefix("/a".into()), headers: 1, ..Match::default() },
            Match { path: Path::Exact("/a".into()), ..Match::default() },
            Match { path: Path::Prefix("/a".into()), method: true, ..Match::default() },
            Match { path: Path::Prefix("/a".into()), headers: 1, params: 1, ..Match::default() },
        ];
        ranked.sort_by_key(|m| m.rank());
        let got: Vec<_> =
            ranked.iter().map(|m| (m.path.clone(), m.method, m.headers, m.params)).collect();
        assert_eq!(got[0].0, Path::Exact("/a".into()));
        assert_eq!(got[1].0, Path::Prefix("/a/b".into()));
        assert!(got[2].1);
        assert_eq!((got[3].2, got[3].3, got[4].3), (1, 1, 0));
    }

    #[test]
    fn grpc_paths() {
        let of = |v| read_grpc(&v).unwrap();
        assert_eq!(
            of(serde_json::json!({"service": "a.B", "method": "c"})),
            Path::Exact("/a.B/c".into())
        );
        assert_eq!(of(serde_json::json!({"service": "a.B"})), Path::Prefix("/a.B".into()));
        assert_eq!(of(serde_json::json!({"method": "c"})), Path::Regex("^/[^/]+/c$".into()));
        assert!(read_grpc(&serde_json::json!({"service": "a/b"})).is_err());
    }
}
