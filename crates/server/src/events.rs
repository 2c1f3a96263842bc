//! The `events` block.

use conf::table::{Args, Contexts, Directive};
use conf::value::{set_flag, set_msec, set_once};
use conf::{ConfError, Node};
use event::DriverKind;
use net::{Cidr, Origin};

use crate::directives::TABLE;
use crate::main_block::MainBlock;
use crate::settings::CONNECTIONS;

/// The drivers that `use` can choose.
const DRIVERS: &[DriverKind] =
    &[DriverKind::Epoll, DriverKind::Uring, DriverKind::Poll, DriverKind::Select];
/// Methods of nginx's that this program does not have.
const OTHER_METHODS: &[&str] = &["kqueue", "devpoll", "/dev/poll", "eventport"];

/// The directives of an `events` block.
#[derive(Default)]
pub(crate) struct EventsBlock {
    pub(crate) driver: Option<DriverKind>,
    pub(crate) connections: Option<usize>,
    pub(crate) multi_accept: Option<bool>,
    pub(crate) accept_mutex: Option<bool>,
    pub(crate) accept_mutex_delay_ms: Option<u64>,
    pub(crate) epoll_events: Option<usize>,
    pub(crate) stall_ms: Option<u64>,
    pub(crate) aio_requests: Option<usize>,
    pub(crate) debug_connections: Vec<Origin>,
}

type Set = fn(&mut MainBlock, &Node) -> Result<(), ConfError>;

const fn events(
    name: &'static str,
    args: Args,
    default: &'static str,
    doc: &'static str,
    set: Set,
) -> Directive<MainBlock> {
    Directive { name, contexts: Contexts::EVENTS, args, default, doc, set }
}

/// The block and its directives.
pub static DIRECTIVES: &[Directive<MainBlock>] = &[
    Directive {
        name: "events",
        contexts: Contexts::MAIN,
        args: Args::BLOCK.or(Args::NONE),
        default: "",
        doc: "Settings of the event loop.",
        set: block,
    },
    events(
        "accept_mutex",
        Args::FLAG,
        "off",
        "Lets only one worker at a time accept connections.",
        |d, n| set_flag(&mut d.events.get_or_insert_default().accept_mutex, n),
    ),
    events(
        "accept_mutex_delay",
        Args::T1,
        "500ms",
        "The time after which a worker retries to take the accept mutex.",
        |d, n| set_msec(&mut d.events.get_or_insert_default().accept_mutex_delay_ms, n),
    ),
    events(
        "debug_connection",
        Args::T1,
        "",
        "Logs at debug level for clients with these addresses.",
        debug_connection,
    ),
    events(
        "epoll_events",
        Args::T1,
        "512",
        "The maximum number of events returned by one epoll_wait call.",
        |d, n| set_once(&mut d.events.get_or_insert_default().epoll_events, n, count),
    ),
    events(
        "multi_accept",
        Args::FLAG,
        "off",
        "Accepts all pending connections per event rather than one.",
        |d, n| set_flag(&mut d.events.get_or_insert_default().multi_accept, n),
    ),
    events(
        "stall_threshold",
        Args::T1,
        "1000ms",
        "Logs a warning if the event loop serves nobody else for longer than this.",
        |d, n| set_msec(&mut d.events.get_or_insert_default().stall_ms, n),
    ),
    events(
        "use",
        Args::T1,
        "epoll",
        "The event driver: epoll, io_uring, poll or select.",
        |d, n| set_once(&mut d.events.get_or_insert_default().driver, n, driver),
    ),
    events(
        "worker_aio_requests",
        Args::T1,
        "32",
        "The maximum number of file reads in flight in a worker's ring (use io_uring).",
        |d, n| set_once(&mut d.events.get_or_insert_default().aio_requests, n, count),
    ),
    events(
        "worker_connections",
        Args::T1,
        "512",
        "The maximum number of open connections of a worker, including upstream ones.",
        |d, n| set_once(&mut d.events.get_or_insert_default().connections, n, count),
    ),
];

fn block(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    if draft.events.is_some() {
        return Err(ConfError::directive(node, "is duplicate"));
    }
    draft.events = Some(EventsBlock::default());
    TABLE.apply(draft, node.children(), Contexts::EVENTS)?;
    draft.events.as_ref().map_or(Ok(()), |events| select_limit(events, node))
}

/// select cannot watch as many connections as the others can.
fn select_limit(events: &EventsBlock, node: &Node) -> Result<(), ConfError> {
    let connections = events.connections.unwrap_or(CONNECTIONS);
    if events.driver != Some(DriverKind::Select) || connections <= event::SELECT_MAX as usize {
        return Ok(());
    }
    let place = |name: &[u8]| node.children().iter().find(|n| n.name.bytes() == name);
    let word = place(b"worker_connections").or(place(b"use")).unwrap_or(node);
    let max = event::SELECT_MAX;
    let message = format!("the maximum number of files supported by select() is {max}");
    Err(ConfError::at(&word.name, message))
}

/// A number of things of which there has to be one at least.
fn count(node: &Node) -> Result<usize, ConfError> {
    let word = node.arg(0)?;
    let invalid = || ConfError::at(word, format!("invalid number \"{}\"", word.lossy()));
    let number = base::ascii::parse_u64(word.bytes()).filter(|n| *n <= i64::MAX as u64);
    match usize::try_from(number.ok_or_else(invalid)?).map_err(|_| invalid())? {
        0 => Err(ConfError::at(word, format!("0 {} are not enough", node.name.lossy()))),
        n => Ok(n),
    }
}

fn driver(node: &Node) -> Result<DriverKind, ConfError> {
    let word = node.arg(0)?;
    let name = word.lossy();
    if let Some(kind) = DRIVERS.iter().find(|kind| kind.name() == name) {
        return Ok(*kind);
    }
    let message = format!("invalid event type \"{name}\"");
    let names: Vec<_> = DRIVERS.iter().map(|kind| kind.name()).collect();
    let names = names.join(", ");
    let help = if OTHER_METHODS.contains(&&*name) {
        format!("\"{name}\" is a method of nginx that weir does not have; available: {names}")
    } else {
        format!("it is one of: {names}")
    };
    Err(ConfError::at(word, message).with_help(help))
}

fn debug_connection(draft: &mut MainBlock, node: &Node) -> Result<(), ConfError> {
    let list = &mut draft.events.get_or_insert_default().debug_connections;
    let word = node.arg(0)?;
    if word.bytes() == b"unix:" {
        list.push(Origin::Unix);
        return Ok(());
    }
    if let Some((cidr, low_bits)) = Cidr::parse(word.bytes()) {
        if low_bits {
            let text = word.lossy();
            conf::warn(word, format!("low address bits of {text} are meaningless"));
        }
        list.push(Origin::Net(cidr));
        return Ok(());
    }
    let ips = net::addr::resolve(word.bytes()).map_err(|what| {
        ConfError::at(word, format!("{what} in debug_connection \"{}\"", word.lossy()))
    })?;
    list.extend(ips.into_iter().map(|ip| Origin::Net(Cidr::host(ip))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::main_block::tests::read;

    #[test]
    fn values() {
        let d = read(
            "events { use epoll; worker_connections 99; multi_accept on; accept_mutex on; \
             accept_mutex_delay 5ms; stall_threshold 20ms; epoll_events 16; \
             worker_aio_requests 64; \
             debug_connection 10.0.0.0/8; debug_connection unix:; }",
        );
        let e = d.unwrap().events.unwrap();
        assert_eq!((e.driver, e.connections), (Some(DriverKind::Epoll), Some(99)));
        assert_eq!((e.multi_accept, e.accept_mutex), (Some(true), Some(true)));
        assert_eq!(e.accept_mutex_delay_ms, Some(5));
        assert_eq!(e.stall_ms, Some(20));
        assert_eq!((e.epoll_events, e.aio_requests), (Some(16), Some(64)));
        assert_eq!(e.debug_connections.len(), 2);
    }

    #[test]
    fn errors_in_nginx_s_words() {
        for (text, message) in [
            ("use select; worker_connections 1024;", ""),
            (
                "use select; worker_connections 1025;",
                "the maximum number of files supported by select() is 1024 in f:1",
            ),
            ("worker_connections abc;", "invalid number \"abc\" in f:1"),
            ("worker_connections 10k;", "invalid number \"10k\" in f:1"),
            ("worker_connections 0;", "0 worker_connections are not enough in f:1"),
            ("epoll_events 0;", "0 epoll_events are not enough in f:1"),
            ("worker_aio_requests -1;", "invalid number \"-1\" in f:1"),
            ("use kqueue;", "invalid event type \"kqueue\" in f:1"),
            ("use epoll; use epoll;", "\"use\" directive is duplicate in f:1"),
            (
                "debug_connection no.invalid;",
                "host not found in debug_connection \"no.invalid\" in f:1",
            ),
            ("worker_processes 1;", "\"worker_processes\" directive is not allowed here in f:1"),
        ] {
            let said = read(&format!("events {{ {text} }}")).map(|_| String::new());
            let said = said.unwrap_or_else(|error| error);
            assert_eq!(said, message);
        }
        let said = read("events {} events {}").map(|_| ()).unwrap_err();
        assert_eq!(said, "\"events\" directive is duplicate in f:1");
    }
}
