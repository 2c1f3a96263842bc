//! Groups of servers, from Services and their endpoints.

use std::net::IpAddr;

use crate::check;
use crate::conf::{Block, Owner, Word, plain, quote};
use crate::cx::Cx;
use crate::objects::{Key, PortRef, Service, ServicePort};

/// A server of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    /// `ADDRESS:PORT`.
    pub address: String,
    /// Its share; 1 without one.
    pub weight: u32,
    /// It takes no requests.
    pub down: bool,
    /// It is a name, which is resolved again and again; the API does not change it.
    pub resolve: bool,
}

impl Server {
    fn at(address: String) -> Server {
        Server { address, weight: 1, down: false, resolve: false }
    }

    /// Stands in for the servers of a group without any, because a group needs one.
    fn placeholder() -> Server {
        Server { address: "127.0.0.1:1".to_owned(), weight: 1, down: true, resolve: false }
    }

    /// The directive.
    fn line(&self) -> String {
        let mut line = format!("server {}", quote(&self.address));
        if self.weight != 1 {
            line.push_str(&format!(" weight={}", self.weight));
        }
        // Endpoints that fail their probes are removed; others are not to be avoided.
        line.push_str(" max_fails=0");
        if self.down {
            line.push_str(" down");
        }
        if self.resolve {
            line.push_str(" resolve");
        }
        line
    }
}

/// A group.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// Balancing and idle connections.
    pub settings: Block,
    /// Its servers, sorted.
    pub servers: Vec<Server>,
    /// The object that its settings come from.
    pub owner: Option<Owner>,
}

impl Upstream {
    /// Its servers, or the one that stands in for them.
    pub fn effective_servers(&self) -> Vec<Server> {
        match self.servers.is_empty() {
            true => vec![Server::placeholder()],
            false => self.servers.clone(),
        }
    }

    /// The block. The zone has room for twice the servers there are, in steps, so that few changes
    /// of endpoints change it.
    pub fn block(&self, name: &str) -> Block {
        let mut block = Block::of(self.owner);
        let kilobytes = 128 * (self.servers.len() * 2).div_ceil(64).next_power_of_two();
        block.add("zone", [plain(name), plain(format!("{kilobytes}k"))]);
        block.extend(self.settings.clone());
        let lines: Vec<String> = self.effective_servers().iter().map(Server::line).collect();
        // Names that are resolved cannot be changed by the API: they are part of the shape.
        match self.servers.iter().any(|s| s.resolve) {
            true => self.servers.iter().for_each(|s| {
                let mut words = vec![plain(&s.address), plain("max_fails=0"), plain("resolve")];
                if s.weight != 1 {
                    words.push(plain(format!("weight={}", s.weight)));
                }
                block.add("server", words);
            }),
            false => block.endpoints(lines),
        }
        block
    }
}

/// An address and a port as one word.
pub(crate) fn address(ip: &str, port: u16) -> Option<String> {
    match ip.parse().ok()? {
        IpAddr::V4(ip) => Some(format!("{ip}:{port}")),
        IpAddr::V6(ip) => Some(format!("[{ip}]:{port}")),
    }
}

/// Finds a port of a Service by name, number or target.
pub(crate) fn service_port<'s>(service: &'s Service, port: &PortRef) -> Option<&'s ServicePort> {
    let by_name = |p: &&ServicePort| !port.name.is_empty() && p.name == port.name;
    let by_number = |p: &&ServicePort| port.number == Some(p.port);
    let by_target = |p: &&ServicePort| match (&port.number, &p.target_port) {
        (Some(number), serde_json::Value::Number(n)) => n.as_u64() == Some((*number).into()),
        (None, serde_json::Value::String(s)) => !port.name.is_empty() && *s == port.name,
        _ => false,
    };
    let ports = &service.spec.ports;
    ports.iter().find(|p| by_name(p) || by_number(p)).or_else(|| ports.iter().find(by_target))
}

/// What a Service's port resolves to.
pub(crate) struct Backend {
    /// `NAMESPACE-SERVICE-PORT`, as ingress-nginx names it.
    pub name: String,
    /// Its servers.
    pub servers: Vec<Server>,
    /// How the Service says that its port speaks.
    pub app_protocol: String,
}

impl Cx<'_> {
    /// The servers behind a Service's port. `whole` takes the Service's own address.
    ///
    /// # Errors
    /// There is no such Service or port, or it is of a kind that is not allowed.
    pub fn backend(
        &self,
        key: &Key,
        port: &PortRef,
        whole: bool,
        udp: bool,
    ) -> Result<Backend, String> {
        let Some(service) = self.objects.services.get(key) else {
            return Err(format!("Service {key} does not exist"));
        };
        if !check::is_host(&key.namespace, false) || !check::is_host(&key.name, false) {
            return Err(format!("\"{key}\" is not the name of a Service"));
        }
        let wanted = match port.number {
            Some(number) => number.to_string(),
            None => port.name.clone(),
        };
        if !wanted.is_empty() && !check::is_host(&wanted, false) {
            return Err(format!("\"{wanted}\" is not the name of a port"));
        }
        let name = self.backend_name(key, &wanted);
        if service.spec.kind == "ExternalName" {
            let servers = vec![self.external_name(service, port)?];
            return Ok(Backend { name, servers, app_protocol: String::new() });
        }
        let Some(found) = service_port(service, port) else {
            return Err(format!("Service {key} has no port \"{wanted}\""));
        };
        let app_protocol = found.app_protocol.clone();
        let servers = match whole {
            true => {
                address(&service.spec.cluster_ip, found.port).map(Server::at).into_iter().collect()
            }
            false => self.endpoints(key, found, udp),
        };
        Ok(Backend { name, servers, app_protocol })
    }

    /// `NAMESPACE-SERVICE-PORT`. Two Services may have one such name, because each part may have
    /// hyphens: then all but the first get a suffix, so that none is asked for another's sake.
    fn backend_name(&self, key: &Key, port: &str) -> String {
        let name = format!("{}-{}-{port}", key.namespace, key.name);
        let own = (key.namespace.as_str(), key.name.as_str());
        let hyphens: Vec<usize> = name.match_indices('-').map(|(at, _)| at).collect();
        let is_before = |(i, at): (usize, &usize)| {
            hyphens[i + 1..].iter().any(|end| {
                let other = (&name[..*at], &name[at + 1..*end]);
                other < own && self.objects.services.contains_key(&Key::new(other.0, other.1))
            })
        };
        match hyphens.iter().enumerate().any(is_before) {
            true => {
                let parts = [key.namespace.as_bytes(), b"/", key.name.as_bytes()];
                format!("{name}-{}", &crate::cx::digest(&parts)[..8])
            }
            false => name,
        }
    }

    fn external_name(&self, service: &Service, port: &PortRef) -> Result<Server, String> {
        let name = service.spec.external_name.trim_end_matches('.');
        if self.options.disable_external_name {
            return Err("Services of type ExternalName are not allowed".to_owned());
        }
        let number = port.number.or_else(|| service_port(service, port).map(|p| p.port));
        let Some(number) = number else {
            return Err("the port of an external name has to be a number".to_owned());
        };
        if let Some(address) = address(name, number) {
            return Ok(Server::at(address));
        }
        if !check::is_host(name, false) {
            return Err(format!("\"{name}\" is not a host name"));
        }
        // This host itself would be a way around the limits of other directives.
        if name == "localhost" {
            return Err("an external name must not be \"localhost\"".to_owned());
        }
        if self.options.resolvers.is_empty() {
            return Err(format!("no DNS server is known that could resolve \"{name}\""));
        }
        Ok(Server { resolve: true, ..Server::at(format!("{name}:{number}")) })
    }

    fn endpoints(&self, key: &Key, port: &ServicePort, udp: bool) -> Vec<Server> {
        let protocol = if udp { "UDP" } else { "TCP" };
        let mut addresses = Vec::new();
        for slice in self.slices(key) {
            let number = slice.ports.iter().find(|p| {
                let same = p.protocol.is_empty() || p.protocol == protocol;
                p.name == port.name && same
            });
            let Some(number) = number.and_then(|p| p.port) else { continue };
            for endpoint in &slice.endpoints {
                if endpoint.conditions.ready == Some(false) {
                    continue;
                }
                addresses.extend(endpoint.addresses.iter().filter_map(|ip| address(ip, number)));
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses.into_iter().map(Server::at).collect()
    }

    /// Adds a group with these settings; returns its name, which has a digest of settings that
    /// differ from those that other Ingresses chose for the same Service.
    pub fn upstream(
        &mut self,
        backend: &Backend,
        settings: Vec<(&'static str, Vec<Word>)>,
        owner: Option<Owner>,
    ) -> String {
        let mut block = Block::of(owner);
        for (name, words) in settings.iter().cloned() {
            block.add(name, words);
        }
        let config = &self.config;
        let keepalive = config.int("upstream-keepalive-connections");
        let name = match settings.is_empty() {
            true => backend.name.clone(),
            false => {
                let digest = crate::cx::digest(&[format!("{settings:?}").as_bytes()]);
                format!("{}-{}", backend.name, &digest[..8])
            }
        };
        if keepalive > 0 {
            block.add("keepalive", [plain(keepalive.to_string())]);
            block.add("keepalive_time", [plain(config.get("upstream-keepalive-time"))]);
            let timeout = format!("{}s", config.int("upstream-keepalive-timeout"));
            block.add("keepalive_timeout", [plain(timeout)]);
            block.add("keepalive_requests", [plain(config.get("upstream-keepalive-requests"))]);
        }
        let servers = backend.servers.clone();
        self.upstreams.entry(name.clone()).or_insert(Upstream { settings: block, servers, owner });
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_servers_has_a_placeholder() {
        let empty = Upstream::default();
        assert!(empty.effective_servers()[0].down);
        let text = crate::conf::write(&empty.block("a")).text;
        assert_eq!(text, "zone a 128k;\nserver 127.0.0.1:1 max_fails=0 down;\n");
    }

    #[test]
    fn addresses() {
        assert_eq!(address("::1", 80).as_deref(), Some("[::1]:80"));
        assert_eq!(address("1.2.3.4; x", 80), None);
    }
}
