//! The addresses of an engine: servers gathered by address, and addresses by socket.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use conf::{ConfError, Word};
use net::{Kind, ListenSpec};
use os::SockAddr;

use crate::names::{self, ServerName, ServerNames};

/// One address of a `listen` directive with its options.
#[derive(Clone)]
pub struct ListenAddress {
    /// The socket to bind, with its options.
    pub spec: ListenSpec,
    /// Its server is the one for hosts that no name matches.
    pub default_server: bool,
    /// A PROXY protocol header comes first.
    pub proxy_protocol: bool,
    /// Clients speak TLS.
    pub ssl: bool,
    /// Clients may speak HTTP/2.
    pub http2: bool,
    /// Socket options were given: they may stand once an address.
    pub set: bool,
    /// The place in the configuration.
    pub at: Word,
}

impl ListenAddress {
    /// An address with no more than its socket.
    pub fn new(spec: ListenSpec, at: &Word) -> ListenAddress {
        ListenAddress {
            spec,
            default_server: false,
            proxy_protocol: false,
            ssl: false,
            http2: false,
            set: false,
            at: at.clone(),
        }
    }

    /// The address of a server without `listen`: port 80, or 8000 where low ports are not ours.
    pub fn default_of(at: &Word) -> ListenAddress {
        let port = if os::process::geteuid().is_root() { 80 } else { 8000 };
        let addr = SockAddr::ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        ListenAddress::new(ListenSpec::new(addr), at)
    }
}

/// A socket to answer on: one address, or a wildcard that stands for several.
pub struct Listen<T> {
    /// The socket to bind, with its options.
    pub spec: ListenSpec,
    /// Servers by the address that a connection was made to; the wildcard's own last.
    pub addresses: Vec<Rc<Address<T>>>,
}

impl<T> Listen<T> {
    /// The servers for a connection whose local address is `local` (asked only where it matters).
    pub fn address(&self, local: impl FnOnce() -> Option<SockAddr>) -> Rc<Address<T>> {
        let last = self.addresses.len() - 1;
        if last > 0
            && let Some(local) = local()
        {
            let found = self.addresses[..last].iter().find(|a| a.addr == local);
            if let Some(a) = found {
                return a.clone();
            }
        }
        self.addresses[last].clone()
    }
}

/// One address with its servers.
pub struct Address<T> {
    /// The address as configured.
    pub addr: SockAddr,
    /// The server for hosts that no name matches.
    pub default: Rc<T>,
    /// The servers by name; `None` where no host can lead to another server.
    pub names: Option<ServerNames<Rc<T>>>,
    /// Some server here differs from the default one in the settings that hold before a server is
    /// chosen by name.
    pub differ: bool,
    /// `listen … proxy_protocol`
    pub proxy_protocol: bool,
    /// `listen … ssl`
    pub ssl: bool,
    /// `listen … quic`
    pub quic: bool,
}

/// A server and its addresses, while a block is compiled.
pub struct Built<T> {
    /// The server that the names lead to.
    pub server: Rc<T>,
    /// The addresses that it listens on.
    pub listens: Vec<ListenAddress>,
}

/// A hash of what leads clients to a server: its addresses and its names, in any order. Of two
/// servers with the same one, clients reach the first alone.
pub fn identity(listens: &[ListenAddress], names: &[ServerName]) -> u64 {
    let mut addresses: Vec<String> = listens.iter().map(|l| l.spec.addr.to_string()).collect();
    let mut names: Vec<&[u8]> = names.iter().map(|name| &name.text[..]).collect();
    addresses.sort_unstable();
    names.sort_unstable();
    base::hash::stable(&(addresses, names))
}

/// One address of the whole block while servers are gathered.
struct Gathered {
    listen: ListenAddress,
    servers: Vec<usize>,
    default: Option<usize>,
}

/// Gathers servers by address, then addresses by socket: a wildcard socket stands for all addresses
/// of its port that ask for no socket of their own. `names` gives a server's names, at least one;
/// `differ` compares the settings that hold before a server is chosen by name.
///
/// # Errors
/// Two servers want one address with options, or as its default server.
pub fn gather<T>(
    servers: &[Built<T>],
    names: impl Fn(&T) -> &[ServerName],
    differ: impl Fn(&T, &T) -> bool,
) -> Result<Vec<Listen<T>>, ConfError> {
    let mut drafts: Vec<Gathered> = Vec::new();
    let mut index: HashMap<(String, bool), usize> = HashMap::new();
    for (i, b) in servers.iter().enumerate() {
        for l in &b.listens {
            let key = (l.spec.addr.to_string(), l.spec.kind == Kind::Datagram);
            let at = *index.entry(key).or_insert_with(|| {
                drafts.push(Gathered { listen: l.clone(), servers: Vec::new(), default: None });
                drafts.len() - 1
            });
            join(&mut drafts[at], l, i)?;
        }
    }
    let mut sockets: Vec<Listen<T>> = Vec::new();
    let wildcard = |d: &Gathered, other: &Gathered| {
        other.listen.spec.addr.is_wildcard()
            && other.listen.spec.kind == d.listen.spec.kind
            && other.listen.spec.addr.port() == d.listen.spec.addr.port()
            && other.listen.spec.addr.family() == d.listen.spec.addr.family()
    };
    for (i, d) in drafts.iter().enumerate() {
        let covered = !d.listen.spec.bind
            && !d.listen.spec.addr.is_wildcard()
            && drafts.iter().any(|o| wildcard(d, o));
        if covered {
            continue;
        }
        let mut addresses = Vec::new();
        if d.listen.spec.addr.is_wildcard() && !d.listen.spec.addr.is_unix() {
            for (j, o) in drafts.iter().enumerate() {
                if j != i
                    && wildcard(o, d)
                    && !o.listen.spec.bind
                    && !o.listen.spec.addr.is_wildcard()
                {
                    addresses.push(address(o, servers, &names, &differ)?);
                }
            }
        }
        addresses.push(address(d, servers, &names, &differ)?);
        sockets.push(Listen { spec: d.listen.spec.clone(), addresses });
    }
    Ok(sockets)
}

fn join(d: &mut Gathered, l: &ListenAddress, server: usize) -> Result<(), ConfError> {
    if d.servers.is_empty() {
        d.listen = l.clone();
    } else if l.set {
        if d.listen.set {
            let m = format!("duplicate listen options for {}", l.spec.addr);
            return Err(ConfError::at(&l.at, m));
        }
        let before = (d.listen.proxy_protocol, d.listen.ssl, d.listen.spec.bind);
        d.listen = l.clone();
        let (proxy_protocol, ssl, bind) = before;
        d.listen.proxy_protocol |= proxy_protocol;
        d.listen.ssl |= ssl;
        d.listen.spec.bind |= bind;
    }
    d.listen.proxy_protocol |= l.proxy_protocol;
    d.listen.ssl |= l.ssl;
    if l.default_server {
        if d.default.is_some() {
            let m = format!("a duplicate default server for {}", l.spec.addr);
            return Err(ConfError::at(&l.at, m));
        }
        d.default = Some(server);
    }
    d.servers.push(server);
    Ok(())
}

fn address<T>(
    d: &Gathered,
    servers: &[Built<T>],
    names: impl Fn(&T) -> &[ServerName],
    differ: impl Fn(&T, &T) -> bool,
) -> Result<Rc<Address<T>>, ConfError> {
    let default = servers[d.default.unwrap_or(d.servers[0])].server.clone();
    let of = d.servers.iter().map(|i| &servers[*i].server);
    let of: Vec<_> = of.map(|server| (server.clone(), names(server))).collect();
    let text = d.listen.spec.addr.to_string();
    Ok(Rc::new(Address {
        differ: of.iter().any(|(s, _)| differ(s, &default)),
        addr: d.listen.spec.addr.clone(),
        default,
        names: names::of_address(&of, &text)?,
        proxy_protocol: d.listen.proxy_protocol,
        ssl: d.listen.ssl,
        quic: d.listen.spec.quic,
    }))
}
