//! The services that containers offer by their labels.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::error::Error;

/// Directives that a label may set in its location. Others could read files of the proxy's machine,
/// or write some.
const DIRECTIVES: &[&str] = &[
    "add_header",
    "client_body_timeout",
    "client_max_body_size",
    "expires",
    "gzip",
    "limit_rate",
    "limit_rate_after",
    "proxy_buffer_size",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_connect_timeout",
    "proxy_cookie_flags",
    "proxy_cookie_path",
    "proxy_http_version",
    "proxy_next_upstream",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_request_buffering",
    "proxy_send_timeout",
    "proxy_set_header",
];

/// The name of a directive in a label is behind this.
const DIRECTIVE: &str = "weir.directive.";

/// How a service is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Protocol {
    #[default]
    Http,
    Https,
    Grpc,
}

/// A server of a service: a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    /// Address and port.
    pub(crate) address: String,
    /// `weir.weight`
    pub(crate) weight: u32,
}

/// A service: containers that answer the same requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Service {
    /// Its containers.
    pub(crate) servers: Vec<Server>,
    /// The names of its virtual servers; none where only the group of servers is wanted.
    pub(crate) hosts: Vec<String>,
    /// The path below which it answers.
    pub(crate) path: String,
    /// `weir.proto`
    pub(crate) protocol: Protocol,
    /// Directives of its location: names and arguments.
    pub(crate) directives: Vec<(String, Vec<String>)>,
}

/// Services by the names of their groups.
pub(crate) type Services = BTreeMap<String, Service>;

/// What is wrong with the labels of a container.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// The value of a label is not what the text says.
    Value {
        label: &'static str,
        value: String,
        wanted: &'static str,
    },
    /// A directive that labels must not set.
    Directive(String),
    /// The container is not in the network that its label names.
    Network(String),
    NoAddress,
    NoPort,
}

impl Fault {
    fn value(label: &'static str, value: &str, wanted: &'static str) -> Fault {
        Fault::Value { label, value: value.to_owned(), wanted }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Value { label, value, wanted } => write!(f, "{label}: \"{value}\" is {wanted}"),
            Fault::Directive(name) => {
                write!(f, "the directive {name} cannot be set by a label")
            }
            Fault::Network(name) => write!(f, "it is not in the network \"{name}\""),
            Fault::NoAddress => f.write_str("it has no address"),
            Fault::NoPort => f.write_str("it exposes no port, and has no label weir.port"),
        }
    }
}

/// Reads the engine's list of containers. Also gives a line for each container whose labels are
/// wrong, which is left out.
///
/// # Errors
/// It is no such list.
pub(crate) fn read(list: &str) -> Result<(Services, Vec<String>), Error> {
    let containers: Value =
        serde_json::from_str(list).map_err(|e| Error::peer(format!("no JSON: {e}")))?;
    let Value::Array(mut containers) = containers else {
        return Err(Error::peer("not a list of containers"));
    };
    containers.sort_by_key(name_of);
    let (mut services, mut faults) = (Services::new(), Vec::new());
    for container in &containers {
        let labels = Labels(container);
        if !labels.are_ours() || !is_ready(container) {
            continue;
        }
        match service_of(container, &labels) {
            Err(fault) => faults.push(format!("container {}: {fault}", name_of(container))),
            Ok((name, mut service)) => match services.get_mut(&name) {
                None => drop(services.insert(name, service)),
                // Further containers of a service add their servers; the first decides the rest.
                Some(known) => known.servers.append(&mut service.servers),
            },
        }
    }
    Ok((services, faults))
}

/// A container's name, without the slash that the engine writes before it.
fn name_of(container: &Value) -> String {
    let name = container["Names"][0].as_str().or_else(|| container["Id"].as_str());
    name.unwrap_or_default().trim_start_matches('/').to_owned()
}

/// Whether a container runs, and does not say that it is unwell or still starting.
fn is_ready(container: &Value) -> bool {
    let status = container["Status"].as_str().unwrap_or_default();
    let is_unwell = status.contains("(unhealthy)") || status.contains("(health: starting)");
    container["State"].as_str() == Some("running") && !is_unwell
}

struct Labels<'a>(&'a Value);

impl<'a> Labels<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0["Labels"].get(name)?.as_str().map(str::trim).filter(|value| !value.is_empty())
    }

    fn are_ours(&self) -> bool {
        self.get("weir.host").is_some() || self.get("weir.upstream").is_some()
    }

    fn directives(&self) -> Result<Vec<(String, Vec<String>)>, Fault> {
        let mut all = Vec::new();
        for (label, value) in self.0["Labels"].as_object().into_iter().flatten() {
            let Some(name) = label.strip_prefix(DIRECTIVE) else { continue };
            if !DIRECTIVES.contains(&name) {
                return Err(Fault::Directive(name.to_owned()));
            }
            let words = value.as_str().unwrap_or_default().split_whitespace();
            all.push((name.to_owned(), words.map(str::to_owned).collect()));
        }
        Ok(all)
    }
}

fn service_of(container: &Value, labels: &Labels<'_>) -> Result<(String, Service), Fault> {
    let hosts = labels.get("weir.host").unwrap_or_default().split([',', ' ']);
    let hosts: Vec<String> =
        hosts.filter(|host| !host.is_empty()).map(str::to_ascii_lowercase).collect();
    if let Some(host) = hosts.iter().find(|host| !is_host(host)) {
        return Err(Fault::value("weir.host", host, "no name of a host"));
    }
    let path = labels.get("weir.path").unwrap_or("/");
    if !path.starts_with('/') || path.chars().any(char::is_control) {
        return Err(Fault::value("weir.path", path, "no path"));
    }
    let protocol = match labels.get("weir.proto") {
        None | Some("http") => Protocol::Http,
        Some("https") => Protocol::Https,
        Some("grpc") => Protocol::Grpc,
        Some(other) => return Err(Fault::value("weir.proto", other, "not http, https or grpc")),
    };
    let weight = match labels.get("weir.weight") {
        None => 1,
        Some(text) => match text.parse() {
            Ok(weight @ 1..=1000) => weight,
            _ => return Err(Fault::value("weir.weight", text, "no number from 1 to 1000")),
        },
    };
    let server = Server { address: address_of(container, labels)?, weight };
    let (directives, path) = (labels.directives()?, path.to_owned());
    let service = Service { servers: vec![server], hosts, path, protocol, directives };
    Ok((group_of(container, labels)?, service))
}

/// Letters, digits, dots and hyphens, and an asterisk at the beginning.
fn is_host(host: &str) -> bool {
    let bare = host.strip_prefix("*.").unwrap_or(host);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    !bare.is_empty() && bare.len() < 254 && bare.chars().all(fits)
}

/// The name of the group: the label's, the service's of a compose file, or the container's.
fn group_of(container: &Value, labels: &Labels<'_>) -> Result<String, Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if let Some(name) = labels.get("weir.upstream") {
        return match name.chars().all(fits) {
            true => Ok(name.to_owned()),
            false => Err(Fault::value("weir.upstream", name, "no name of an upstream")),
        };
    }
    let (project, service) = ("com.docker.compose.project", "com.docker.compose.service");
    let name = match (labels.get(project), labels.get(service)) {
        (Some(project), Some(service)) => format!("docker-{project}-{service}"),
        _ => format!("docker-{}", name_of(container)),
    };
    Ok(name.chars().map(|c| if fits(c) { c } else { '_' }).collect())
}

/// The address in the network that is named, or in the first by name.
fn address_of(container: &Value, labels: &Labels<'_>) -> Result<String, Fault> {
    let port = port_of(container, labels)?;
    let networks = container["NetworkSettings"]["Networks"].as_object();
    let mut networks: Vec<_> = networks.into_iter().flatten().collect();
    networks.sort_by_key(|(name, _)| name.as_str());
    if let Some(wanted) = labels.get("weir.network") {
        networks.retain(|(name, _)| *name == wanted);
        if networks.is_empty() {
            return Err(Fault::Network(wanted.to_owned()));
        }
    }
    for (name, network) in networks {
        let ip = |key: &str| network[key].as_str()?.parse::<std::net::IpAddr>().ok();
        match ip("IPAddress").or_else(|| ip("GlobalIPv6Address")) {
            Some(ip) => return Ok(std::net::SocketAddr::new(ip, port).to_string()),
            None if name == "host" => return Ok(format!("127.0.0.1:{port}")),
            None => {}
        }
    }
    Err(Fault::NoAddress)
}

/// The port of the label, or the lowest one over TCP that the image exposes.
fn port_of(container: &Value, labels: &Labels<'_>) -> Result<u16, Fault> {
    if let Some(text) = labels.get("weir.port") {
        let port = text.parse().ok().filter(|port| *port > 0);
        return port.ok_or_else(|| Fault::value("weir.port", text, "no port"));
    }
    let ports = container["Ports"].as_array().into_iter().flatten();
    let over_tcp = ports.filter(|port| port["Type"].as_str().is_none_or(|kind| kind == "tcp"));
    let exposed = over_tcp.filter_map(|port| u16::try_from(port["PrivatePort"].as_u64()?).ok());
    exposed.min().ok_or(Fault::NoPort)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A container in the network `web`, with these labels.
    fn container(name: &str, labels: Value) -> Value {
        json!({
            "Id": "0123", "Names": [format!("/{name}")], "State": "running", "Status": "Up 3 s",
            "Labels": labels, "Ports": [
                { "PrivatePort": 9000, "Type": "tcp" }, { "PrivatePort": 8080, "Type": "tcp" },
                { "PrivatePort": 53, "Type": "udp" },
            ],
            "NetworkSettings": { "Networks": {
                "web": { "IPAddress": "172.18.0.5", "GlobalIPv6Address": "" },
                "other": { "IPAddress": "", "GlobalIPv6Address": "fd00::5" },
            } },
        })
    }

    fn all(containers: &[Value]) -> (Services, Vec<String>) {
        read(&Value::from(containers.to_vec()).to_string()).unwrap()
    }

    fn fault(labels: Value) -> String {
        let (services, mut faults) = all(&[container("a", labels)]);
        assert!(services.is_empty(), "{services:?}");
        faults.remove(0)
    }

    #[test]
    fn containers_of_a_service_are_its_servers() {
        let compose = json!({ "weir.host": "A.example, *.b.example", "weir.network": "web",
            "com.docker.compose.project": "shop", "com.docker.compose.service": "api" });
        let mut second = container("shop-api-2", compose.clone());
        second["NetworkSettings"]["Networks"]["web"]["IPAddress"] = json!("172.18.0.6");
        let (services, faults) = all(&[second, container("shop-api-1", compose)]);
        assert_eq!(faults, [] as [String; 0]);
        let service = &services["docker-shop-api"];
        assert_eq!(service.hosts, ["a.example", "*.b.example"]);
        let addresses: Vec<_> = service.servers.iter().map(|s| s.address.as_str()).collect();
        assert_eq!(addresses, ["172.18.0.5:8080", "172.18.0.6:8080"]);
    }

    #[test]
    fn labels_say_more() {
        let labels = json!({ "weir.upstream": "api", "weir.port": "81", "weir.weight": "3",
            "weir.proto": "https", "weir.path": "/v1/",
            "weir.directive.proxy_set_header": "X-From docker" });
        let (services, _) = all(&[container("x", labels)]);
        let service = &services["api"];
        // The networks are in order, and without a label the first one counts.
        assert_eq!(service.servers, [Server { address: "[fd00::5]:81".to_owned(), weight: 3 }]);
        assert_eq!((service.protocol, service.path.as_str()), (Protocol::Https, "/v1/"));
        assert_eq!(service.directives[0].1, ["X-From", "docker"]);
    }

    #[test]
    fn containers_that_are_not_ready_or_not_ours_are_left_out() {
        let labels = json!({ "weir.host": "a" });
        let with = |key: &str, value: &str| {
            let mut container = container("a", labels.clone());
            container[key] = json!(value);
            container
        };
        let other = container("b", json!({ "traefik.enable": "true" }));
        let containers = [
            with("State", "exited"),
            with("Status", "Up 2 s (unhealthy)"),
            with("Status", "Up 2 s (health: starting)"),
            other,
        ];
        assert_eq!(all(&containers), (Services::new(), Vec::new()));
        assert_eq!(all(&[with("Status", "Up 2 s (healthy)")]).0.len(), 1);
    }

    #[test]
    fn wrong_labels_are_told() {
        for (labels, message) in [
            (json!({ "weir.host": "a; b" }), "\"a;\" is no name of a host"),
            (json!({ "weir.host": "a", "weir.path": "x" }), "\"x\" is no path"),
            (json!({ "weir.host": "a", "weir.port": "0" }), "\"0\" is no port"),
            (json!({ "weir.host": "a", "weir.weight": "0" }), "no number from 1"),
            (json!({ "weir.host": "a", "weir.proto": "ftp" }), "not http, https or grpc"),
            (json!({ "weir.host": "a", "weir.network": "no" }), "not in the network \"no\""),
            (json!({ "weir.upstream": "a b" }), "no name of an upstream"),
            (json!({ "weir.host": "a", "weir.directive.alias": "/" }), "alias cannot be set"),
        ] {
            let told = fault(labels);
            assert!(told.starts_with("container a: ") && told.contains(message), "{told}");
        }
        for text in ["{}", "[", "null"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
