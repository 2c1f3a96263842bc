use super::*;
use crate::spec::Deferral;
use base::log::capture;
use std::os::unix::ffi::OsStrExt;

fn spec(addr: &[u8]) -> ListenSpec {
    ListenSpec::new(SockAddr::parse(addr).unwrap())
}

/// An address with a port that is free, as far as can be known.
fn free() -> ListenSpec {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    ListenSpec::new(socket::local_addr(&probe).unwrap())
}

fn socket_file(name: &str) -> (std::path::PathBuf, ListenSpec) {
    let name = format!("weir-net-{name}-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_file(&path);
    let spec = spec(&[b"unix:", path.as_os_str().as_bytes()].concat());
    (path, spec)
}

fn open(
    specs: &[ListenSpec],
    previous: &Listeners,
    workers: usize,
    log: &Log,
) -> Result<Listeners, OpenFailed> {
    let env = OpenEnv { workers, test: false, log };
    Listeners::open(specs, previous, &mut Inherited::default(), env)
}

#[test]
fn sockets_are_taken_over_and_counted() {
    let (log, lines) = capture(Level::Info);
    let none = Listeners::default();
    let plain = free();
    let one = open(std::slice::from_ref(&plain), &none, 3, &log).unwrap();
    let deferred = Some(Deferral::Always);
    let own = ListenSpec { reuseport: true, deferred, ..plain.clone() };
    let mut three = open(std::slice::from_ref(&own), &one, 3, &log).unwrap();
    three.configure(&log);
    assert_eq!(three.list[0].sockets.len(), 3);
    assert!(Rc::ptr_eq(&one.list[0].sockets[0], &three.list[0].sockets[0]));
    let numbers: Vec<_> = three.fds().map(|fd| fd.as_raw_fd().to_string()).collect();
    assert_eq!(three.for_new_binary(), numbers.join(";") + ";");

    let two = open(&[own], &three, 2, &log).unwrap();
    assert_eq!(two.fds().count(), 2);
    assert!(three.retire(&two, &log));
    assert!(!two.retire(&two, &log));
    let of_third_worker = three.of_worker(2).unwrap();
    assert_eq!(of_third_worker.len(), 1);
    // Deferred connections come to the closing socket, which is emptied; the others stay.
    let defers = |fd: &OwnedFd| socket::defer_accept(fd).unwrap() > 0;
    assert!(!defers(&of_third_worker[0]) && two.fds().all(|fd| defers(fd)));
    two.fds().for_each(end_deferral);
    drop((one, three));
    // A connection that comes now waits in one of the two sockets that stay.
    let clients: Vec<_> =
        (0..8).map(|_| std::net::TcpStream::connect(plain.addr.to_string()).unwrap()).collect();
    let waiting = |fd: &OwnedFd| socket::accept_queue(fd).unwrap().0;
    assert_eq!(waiting(&of_third_worker[0]), 0);
    assert_eq!(two.fds().map(|fd| waiting(fd)).sum::<u32>(), 8);
    drop(clients);
    assert_eq!(lines.take(), "");
}

#[test]
fn sockets_of_datagrams_stay_and_are_shared_out() {
    let (log, _lines) = capture(Level::Info);
    let none = Listeners::default();
    let udp = ListenSpec { reuseport: true, kind: Kind::Datagram, ..free() };
    let open = |before, workers| open(std::slice::from_ref(&udp), before, workers, &log).unwrap();
    let seven = open(&none, 7);
    let three = open(&seven, 3);
    assert!(!seven.retire(&three, &log));
    let numbers = |set: &Listeners| set.fds().map(|fd| fd.as_raw_fd()).collect::<Vec<_>>();
    assert_eq!(numbers(&three), numbers(&seven));
    let further = |set: &Listeners, index| set.further_of(index).unwrap().len();
    assert_eq!([0, 1, 2].map(|index| further(&three, index)), [2, 1, 1]);
    assert!((0..7).all(|index| further(&seven, index) == 0));
    let eight = open(&three, 8);
    assert_eq!(numbers(&eight)[..7], numbers(&seven));
}

#[test]
fn a_wildcard_takes_the_place_of_an_address() {
    let (log, lines) = capture(Level::Info);
    let one = free();
    let port = one.addr.port();
    let wildcard = spec(format!("0.0.0.0:{port}").as_bytes());
    let narrow = open(std::slice::from_ref(&one), &Listeners::default(), 1, &log).unwrap();
    let wide = open(&[wildcard], &narrow, 1, &log).unwrap();
    assert_eq!(lines.take(), "");
    assert!(!socket::reuseport(wide.fds().next().unwrap()).unwrap());
    // And back, with another failure: the running sockets share with none afterwards.
    drop(narrow);
    let bad = [one.clone(), spec(b"192.0.2.77:80")];
    assert!(open(&bad, &wide, 1, &log).is_err());
    assert!(!socket::reuseport(wide.fds().next().unwrap()).unwrap());
    let narrow = open(&[one], &wide, 1, &log).unwrap();
    drop(wide);
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    drop(narrow);
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let (log, lines) = capture(Level::Info);
    let none = Listeners::default();
    let (path, unix) = socket_file("undone");
    let running = open(&[unix.clone(), spec(b"192.0.2.77:80")], &none, 1, &log);
    assert!(running.is_err() && !path.exists());
    let text = lines.take();
    assert!(text.contains("bind() to 192.0.2.77:80 failed (99: "), "{text}");

    let running = open(std::slice::from_ref(&unix), &none, 1, &log).unwrap();
    assert!(open(&[unix, spec(b"192.0.2.77:80")], &running, 1, &log).is_err());
    // The running socket is unchanged.
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
    lines.take();
    running.retire(&none, &log);
    assert!(!path.exists() && lines.take().contains("deleting socket "));
}

#[test]
fn a_taken_address_is_tried_again_and_given_up() {
    let (log, lines) = capture(Level::Info);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = ListenSpec::new(socket::local_addr(&taken).unwrap());
    let specs = std::slice::from_ref(&spec);
    assert!(open(specs, &Listeners::default(), 1, &log).is_err());
    let text = lines.take();
    let addr = &spec.addr;
    let failed = format!("bind() to {addr} failed (98: Address already in use)");
    assert_eq!(text.matches(&failed).count(), 5, "{text}");
    assert_eq!(text.matches("try again to bind() after 500ms").count(), 4);
    assert!(text.ends_with("still could not bind()\n"));

    let env = OpenEnv { workers: 1, test: true, log: &log };
    let mut inherited = Inherited::default();
    assert!(Listeners::open(specs, &Listeners::default(), &mut inherited, env).is_ok());
    assert_eq!(lines.take(), "");
}

#[test]
fn inherited_sockets_come_before_new_ones() {
    use std::os::fd::IntoRawFd;
    let (log, _lines) = capture(Level::Info);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = ListenSpec::new(socket::local_addr(&listener).unwrap());
    let number = listener.into_raw_fd();
    let mut inherited = Inherited::from_binary(&format!("{number};"), &log);
    let env = OpenEnv { workers: 1, test: false, log: &log };
    let mut set = Listeners::open(&[spec], &Listeners::default(), &mut inherited, env).unwrap();
    assert_eq!(set.for_new_binary(), format!("{number};"));
    set.configure(&log);
    assert_eq!(socket::accept_queue(set.fds().next().unwrap()).unwrap().1, 511);
}

#[test]
fn a_removed_address_of_datagrams_comes_back_with_its_sockets() {
    let (log, _lines) = capture(Level::Info);
    let udp = ListenSpec { reuseport: true, kind: Kind::Datagram, ..free() };
    let all = ListenSpec { addr: SockAddr::parse(b"0.0.0.0:0").unwrap(), ..udp.clone() };
    let open = |before: &Listeners, specs: &[ListenSpec], workers| {
        let set = open(specs, before, workers, &log).unwrap();
        before.retire(&set, &log);
        set
    };
    let numbers = |set: &Listeners| set.fds().map(|fd| fd.as_raw_fd()).collect::<Vec<_>>();
    let with = open(&Listeners::default(), &[udp.clone(), all], 3);
    let (sockets, states) = (numbers(&with)[..3].to_vec(), with.removals());
    assert!(!states.has(&udp.addr));
    // Over two reloads, to fewer workers and to more.
    let without = open(&with, &[], 2);
    drop(with);
    assert!(states.has(&udp.addr) && without.fds().count() == 0 && without.have_datagrams());
    assert_eq!(without.parting.len(), 1, "one of all addresses has left its group");
    assert!(without.parting_of(0).unwrap().is_empty(), "it is not QUIC's");
    let mut without = open(&without, &[], 4);
    let again = open(&without, std::slice::from_ref(&udp), 3);
    assert_eq!((numbers(&again), states.has(&udp.addr)), (sockets, false));
    assert!(!again.have_quic());
    // None is left who has it open.
    without = open(&again, &[], 1);
    without.end_parting();
    assert!(!without.have_datagrams());
    assert_eq!(states.get(&udp.addr), State::Ended);
}

#[test]
fn the_sockets_of_a_removed_address_of_quic_are_read_on() {
    let (log, _lines) = capture(Level::Info);
    let quic = ListenSpec { quic: true, reuseport: true, kind: Kind::Datagram, ..free() };
    let with = open(std::slice::from_ref(&quic), &Listeners::default(), 3, &log).unwrap();
    let without = open(&[], &with, 2, &log).unwrap();
    with.retire(&without, &log);
    assert!(without.have_quic() && without.quic_key() == with.quic_key());
    let read = |index| without.parting_of(index).unwrap().len();
    assert_eq!([0, 1, 2].map(read), [1, 1, 0], "the third one gets nothing");
    without.end();
    assert_eq!(with.removals().get(&quic.addr), State::Ended);
}
