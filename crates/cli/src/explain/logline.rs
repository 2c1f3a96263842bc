//! A line of an access log, read back into the request that it is about: in the formats of the
//! configuration (`log_format`, `log_json`), in `combined`, or as the predefined format `json`.

use std::collections::BTreeMap;

use conf::{Node, Tree};
use serde_json::Value;

use crate::error::Error;

/// The predefined format of nginx.
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                        $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";
/// The variable of a path with its arguments.
const TARGET: &str = "request_uri";
/// Attempts to fit a line to a format.
const ATTEMPTS_MAX: usize = 100_000;
/// Headers that describe the connection or a body, which the explained request does not have.
const LEFT_OUT: &[&str] = &[
    "host",
    "connection",
    "upgrade",
    "te",
    "expect",
    "transfer_encoding",
    "content_length",
    "keep_alive",
];

/// The request of a line, as far as the line has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Logged {
    /// The name of the format.
    pub(crate) format: String,
    pub(crate) method: String,
    /// Path and arguments, or a whole URL.
    pub(crate) target: String,
    /// The name that the client asked for.
    pub(crate) host: Option<String>,
    /// The port that it connected to.
    pub(crate) port: Option<u16>,
    /// Whether it was HTTPS.
    pub(crate) tls: Option<bool>,
    /// The client's address.
    pub(crate) from: Option<String>,
    /// The address that the client connected to.
    pub(crate) to: Option<String>,
    /// The status of the response.
    pub(crate) status: Option<String>,
    /// Further headers.
    pub(crate) headers: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Escape {
    Default,
    Json,
    None,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    Variable(String),
}

#[derive(Debug)]
enum Form {
    Text(Vec<Part>, Escape),
    /// Members of an object, with their values.
    Object(Vec<(String, Vec<Part>)>),
}

/// A format of lines.
#[derive(Debug)]
pub(crate) struct Format {
    name: String,
    form: Form,
}

/// The formats of a configuration, then the predefined ones.
pub(crate) fn formats(tree: &Tree) -> Vec<Format> {
    let mut all = Vec::new();
    let http = tree.nodes.iter().filter(|node| node.name == *"http");
    for node in http.flat_map(Node::children) {
        let Some(name) = node.args.first() else { continue };
        let name = name.lossy().into_owned();
        if node.name == *"log_format" {
            let mut texts = node.args[1..].iter().map(|word| word.lossy()).peekable();
            let escape = match texts.peek().and_then(|text| text.strip_prefix("escape=")) {
                Some("json") => Escape::Json,
                Some("none") => Escape::None,
                _ => Escape::Default,
            };
            let text: String = texts.filter(|text| !text.starts_with("escape=")).collect();
            all.push(Format { name, form: Form::Text(parts(&text), escape) });
        } else if node.name == *"log_json" {
            let member = |line: &Node| {
                let value = line.args.first()?.lossy().into_owned();
                Some((line.name.lossy().into_owned(), parts(&value)))
            };
            let members = node.children().iter().filter_map(member).collect();
            all.push(Format { name, form: Form::Object(members) });
        }
    }
    let combined = Form::Text(parts(COMBINED), Escape::Default);
    all.push(Format { name: "combined".to_owned(), form: combined });
    // Its members have the names of their variables.
    all.push(Format { name: "json".to_owned(), form: Form::Object(Vec::new()) });
    all
}

fn parts(text: &str) -> Vec<Part> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let behind = &rest[at + 1..];
        let (open, name) = match behind.strip_prefix('{') {
            Some(inner) => (1, inner),
            None => (0, behind),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = name.find(|c| !is_name(c)).unwrap_or(name.len());
        if at > 0 {
            all.push(Part::Text(rest[..at].to_owned()));
        }
        all.push(Part::Variable(name[..len].to_owned()));
        rest = behind.get(len + 2 * open..).unwrap_or_default();
    }
    if !rest.is_empty() {
        all.push(Part::Text(rest.to_owned()));
    }
    joined(all)
}

/// Makes one variable of `$uri$is_args$args`: nothing tells where the path ends, and nothing has
/// to.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let is = |part: &Part, names: &[&str]| match part {
        Part::Variable(name) => names.contains(&name.as_str()),
        Part::Text(_) => false,
    };
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        let after_path = all.last().is_some_and(|last| is(last, &["uri", "document_uri", TARGET]));
        match after_path && is(&part, &["is_args", "args", "query_string"]) {
            true => {
                all.pop();
                all.push(Part::Variable(TARGET.to_owned()));
            }
            false => all.push(part),
        }
    }
    all
}

/// Reads a line in the first format that fits.
///
/// # Errors
/// None fits, or the line does not say what was requested.
pub(crate) fn read(line: &str, formats: &[Format]) -> Result<Logged, Error> {
    let line = line.trim_end_matches(['\r', '\n']);
    for format in formats {
        if let Some(values) = format.values(line) {
            return request(&format.name, &values);
        }
    }
    let names: Vec<&str> = formats.iter().map(|format| format.name.as_str()).collect();
    Err(Error::usage(format!("the line fits none of the log formats {}", names.join(", "))))
}

type Values = BTreeMap<String, String>;

impl Format {
    fn values(&self, line: &str) -> Option<Values> {
        let mut values = Values::new();
        match &self.form {
            Form::Text(parts, escape) => {
                let mut found = Vec::new();
                fit(parts, line, &mut found, &mut ATTEMPTS_MAX.clone()).then_some(())?;
                for (name, raw) in found {
                    let value = unescape(raw, *escape)?;
                    let is_absent = value.is_empty() || value == "-" && *escape == Escape::Default;
                    if !is_absent {
                        values.insert(name.to_owned(), value);
                    }
                }
            }
            Form::Object(members) => {
                let Ok(Value::Object(object)) = serde_json::from_str(line) else { return None };
                let text = |value: &Value| match value {
                    Value::Null => String::new(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                if members.is_empty() {
                    values = object.iter().map(|(name, v)| (name.clone(), text(v))).collect();
                }
                for (name, parts) in members {
                    // A member is left out where its value is empty.
                    let value = object.get(name).map(text).unwrap_or_default();
                    let mut found = Vec::new();
                    if fit(parts, &value, &mut found, &mut ATTEMPTS_MAX.clone()) {
                        values
                            .extend(found.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
                    }
                }
                object
                    .keys()
                    .all(|key| members.is_empty() || members.iter().any(|(name, _)| name == key))
                    .then_some(())?;
                values.retain(|_, value| !value.is_empty());
            }
        }
        Some(values)
    }
}

/// Fits a line to the parts of a format: the values of its variables, the shortest first.
fn fit<'p, 'l>(
    parts: &'p [Part],
    line: &'l str,
    found: &mut Vec<(&'p str, &'l str)>,
    left: &mut usize,
) -> bool {
    let Some((first, rest)) = parts.split_first() else { return line.is_empty() };
    match first {
        Part::Text(text) => {
            line.strip_prefix(text.as_str()).is_some_and(|line| fit(rest, line, found, left))
        }
        Part::Variable(name) => {
            let next = match rest.first() {
                Some(Part::Text(text)) => text.as_str(),
                // Nothing tells where the first of two adjacent values ends.
                Some(Part::Variable(_)) => return false,
                None => {
                    let fits = is_plausible(name, line);
                    found.push((name, line));
                    return fits;
                }
            };
            for (at, _) in line.match_indices(next) {
                match left.checked_sub(1) {
                    Some(less) => *left = less,
                    None => return false,
                }
                let (value, after) = line.split_at(at);
                if !is_plausible(name, value) {
                    continue;
                }
                let depth = found.len();
                found.push((name, value));
                if fit(rest, after, found, left) {
                    return true;
                }
                found.truncate(depth);
            }
            false
        }
    }
}

/// Whether a value may be that of a variable: it tells apart formats that differ in order.
fn is_plausible(name: &str, value: &str) -> bool {
    let all = |is: fn(char) -> bool| value.chars().all(is);
    match name {
        "status" | "server_port" | "connection" | "pid" => {
            value == "-" || all(|c| c.is_ascii_digit())
        }
        "body_bytes_sent" | "bytes_sent" | "request_length" | "request_time" | "msec" => {
            value == "-" || all(|c| c.is_ascii_digit() || c == '.')
        }
        "remote_addr" | "server_addr" | "realip_remote_addr" => {
            all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | ':')) || value.starts_with("unix:")
        }
        "request_method" => all(|c| c.is_ascii_alphabetic() || c == '-'),
        "host" | "http_host" | "server_name" | "scheme" => !value.contains(' '),
        _ => true,
    }
}

fn unescape(raw: &str, escape: Escape) -> Option<String> {
    match escape {
        Escape::None => Some(raw.to_owned()),
        // A value that is no JSON string, such as a number, has no escapes.
        Escape::Json => serde_json::from_str(&format!("\"{raw}\"")).ok(),
        Escape::Default => {
            let mut bytes = Vec::with_capacity(raw.len());
            let mut rest = raw;
            while let Some((before, behind)) = rest.split_once("\\x") {
                bytes.extend_from_slice(before.as_bytes());
                match behind.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                    Some(byte) => bytes.push(byte),
                    None => return None,
                }
                rest = &behind[2..];
            }
            bytes.extend_from_slice(rest.as_bytes());
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

/// The request that values of variables describe.
fn request(format: &str, values: &Values) -> Result<Logged, Error> {
    let get = |name: &str| values.get(name).cloned();
    let mut logged = Logged { format: format.to_owned(), ..Logged::default() };
    let line = get("request");
    match line.as_deref().map(|line| line.split(' ').collect::<Vec<_>>()).as_deref() {
        Some([method, target] | [method, target, _]) => {
            (logged.method, logged.target) = ((*method).to_owned(), (*target).to_owned());
        }
        Some(_) => return Err(Error::usage("the request in the line is malformed")),
        None => {
            logged.method = get("request_method").unwrap_or_else(|| "GET".to_owned());
            logged.target = target(values).ok_or_else(|| {
                Error::usage(format!(
                    "lines of the format \"{format}\" do not say what was requested"
                ))
            })?;
        }
    }
    let http_host = get("http_host");
    let (host, port) = match http_host.as_deref().and_then(|host| host.rsplit_once(':')) {
        Some((host, port)) if !port.ends_with(']') => (Some(host.to_owned()), port.parse().ok()),
        _ => (http_host, None),
    };
    logged.host = host.or_else(|| get("host")).or_else(|| get("server_name"));
    logged.port = get("server_port").and_then(|port| port.parse().ok()).or(port);
    logged.tls = match (get("scheme"), get("https"), get("ssl_protocol")) {
        (Some(scheme), ..) => Some(scheme == "https"),
        (_, Some(https), _) => Some(https == "on"),
        (_, _, Some(_)) => Some(true),
        _ => None,
    };
    logged.from = get("realip_remote_addr").or_else(|| get("remote_addr"));
    logged.to = get("server_addr");
    logged.status = get("status");
    let headers = values.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix("http_").filter(|name| !LEFT_OUT.contains(name))?;
        Some((name.replace('_', "-"), value.clone()))
    });
    logged.headers = headers.collect();
    let cookies: Vec<String> = values
        .iter()
        .filter_map(|(name, value)| Some(format!("{}={value}", name.strip_prefix("cookie_")?)))
        .collect();
    if !cookies.is_empty() && !values.contains_key("http_cookie") {
        logged.headers.push(("cookie".to_owned(), cookies.join("; ")));
    }
    Ok(logged)
}

/// The target of a request that is logged in parts.
fn target(values: &Values) -> Option<String> {
    if let Some(uri) = values.get("request_uri") {
        return Some(uri.clone());
    }
    let path = values.get("uri").or_else(|| values.get("document_uri"))?;
    let mut target = Vec::new();
    http_wire::uri::escape(path.as_bytes(), http_wire::uri::Escape::Uri, &mut target);
    let mut target = String::from_utf8_lossy(&target).into_owned();
    if let Some(args) = values.get("args").or_else(|| values.get("query_string")) {
        target.push('?');
        target.push_str(args);
    }
    Some(target)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(conf: &str, line: &str) -> Result<Logged, Error> {
        let text = format!("http {{ {conf} }}").into();
        let options = conf::parse::Options::default();
        let tree = conf::parse::parse_bytes(Path::new("f"), text, &options).unwrap();
        read(line, &formats(&tree))
    }

    #[test]
    fn combined_is_known_to_all() {
        let line = "192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] \"GET /a?b=\\x22c HTTP/1.1\" 404 12 \
                    \"-\" \"Mozilla/5.0 (X11) \\x22q\\x22\"";
        let logged = of("", line).unwrap();
        assert_eq!((logged.format.as_str(), logged.method.as_str()), ("combined", "GET"));
        assert_eq!(logged.target, "/a?b=\"c");
        assert_eq!(logged.from.as_deref(), Some("192.0.2.1"));
        assert_eq!(logged.status.as_deref(), Some("404"));
        let agent = ("user-agent".to_owned(), "Mozilla/5.0 (X11) \"q\"".to_owned());
        assert_eq!((logged.headers, logged.host), (vec![agent], None));
        assert!(
            of("", "hello")
                .unwrap_err()
                .to_string()
                .contains("none of the log formats combined, json")
        );
        let bad = line.replace("GET /a?b=\\x22c HTTP/1.1", "\\x16\\x03\\x01");
        assert!(of("", &bad).unwrap_err().to_string().contains("malformed"));
    }

    #[test]
    fn formats_of_the_configuration_come_first() {
        let conf = "log_format own '$scheme://$host:$server_port $request_method' \
                    ' $uri$is_args$args';\
                    log_format two '$status $request_method ${scheme} $http_host $request_uri' \
                    ' \"$http_x_y\" $cookie_s';";
        let line = "200 POST https a.example:8443 /x%20y \"v w\" 5";
        let logged = of(conf, line).unwrap();
        assert_eq!(logged.format, "two");
        assert_eq!((logged.method.as_str(), logged.target.as_str()), ("POST", "/x%20y"));
        assert_eq!((logged.host.as_deref(), logged.port), (Some("a.example"), Some(8443)));
        assert_eq!(logged.tls, Some(true));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(logged.headers, [pair("x-y", "v w"), pair("cookie", "s=5")]);
        let line = "https://b:443 GET /x?y=z";
        let logged = of(conf, line).unwrap();
        assert_eq!((logged.format.as_str(), logged.target.as_str()), ("own", "/x?y=z"));
        // Other values without a text between them cannot be told apart.
        assert!(of("log_format n '$request_uri$status';", "/a200").is_err());
        let none = of("log_format n '$status';", "200").unwrap_err();
        assert!(none.to_string().contains("do not say what was requested"), "{none}");
    }

    #[test]
    fn lines_of_json() {
        let line = "{\"request_method\":\"GET\",\"request_uri\":\"/a\",\"host\":\"b\",\
                    \"status\":200,\"ssl_protocol\":\"TLSv1.3\"}";
        let logged = of("", line).unwrap();
        assert_eq!((logged.format.as_str(), logged.target.as_str()), ("json", "/a"));
        assert_eq!((logged.host.as_deref(), logged.tls), (Some("b"), Some(true)));
        let conf = "log_json own { m $request_method; u '$uri'; q $args; s $status number; }\
                    log_format text escape=json '{\"r\":\"$request\",\"t\":$request_time}';";
        let logged = of(conf, "{\"m\":\"PUT\",\"u\":\"/a b\",\"q\":\"c=d\",\"s\":1}").unwrap();
        assert_eq!((logged.format.as_str(), logged.target.as_str()), ("own", "/a%20b?c=d"));
        let logged = of(conf, "{\"r\":\"GET /\\\"x HTTP/1.1\",\"t\":0.1}").unwrap();
        assert_eq!((logged.format.as_str(), logged.target.as_str()), ("text", "/\"x"));
    }

    #[test]
    fn a_line_that_never_fits_ends() {
        let conf = format!("log_format x '{}!';", "$a $b ".repeat(10));
        assert!(of(&conf, &" ".repeat(400)).is_err());
    }
}
