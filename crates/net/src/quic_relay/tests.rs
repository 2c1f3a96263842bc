use super::*;
use os::SockAddr;
use std::net::IpAddr;

fn addr(text: &str) -> SockAddr {
    SockAddr::parse(text.as_bytes()).unwrap()
}

fn datagrams() -> Vec<Relayed<'static>> {
    let from = addr("192.0.2.7:4433");
    let listener = addr("0.0.0.0:443");
    let to: Option<IpAddr> = "192.0.2.1".parse().ok();
    let one = Relayed { from, listener, to, ecn: 2, segment: 1200, bytes: b"datagram" };
    let scoped = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 5, 0, 77);
    let six = Relayed {
        from: SockAddr::V6(scoped),
        listener: addr("[::1]:443"),
        to: None,
        ecn: 0,
        segment: 9,
        bytes: b"",
    };
    vec![one.clone(), Relayed { to: "2001:db8::1".parse().ok(), ..six.clone() }, six, one]
}

fn places() -> [Place; 2] {
    [3, 5].map(|slot| Place { index: 1, slot, half: true })
}

/// A worker in slot 5 whose elder is in slot 3, and the elder's inbox.
fn relay(living: &Living) -> (Relay, Inbox) {
    let (fd, inbox) = pair().unwrap();
    let [elder, own] = places();
    let elders = vec![Elder { slot: elder.slot, half: elder.half, fd }];
    (Relay::new(Rc::new(Key::random()), own, Some(living.clone()), elders, None), inbox)
}

#[test]
fn datagrams_come_to_the_elder_as_they_were() {
    let (relay, inbox) = relay(&Living::new(16).unwrap());
    let mut buf = [0; 2000];
    assert_eq!(inbox.recv(&mut buf).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    for datagram in datagrams() {
        assert_eq!(relay.pass_on(places()[0], &datagram), Passed::On);
    }
    for datagram in datagrams() {
        assert_eq!(inbox.recv(&mut buf).unwrap(), Some(datagram));
    }
    // As long as the kernel joins them.
    let long = vec![7; 65_536];
    let long = Relayed { bytes: &long, ..datagrams().remove(0) };
    assert_eq!(relay.pass_on(places()[0], &long), Passed::On);
    let mut buf = vec![0; 65_536 + HEAD_MAX];
    assert_eq!(inbox.recv(&mut buf).unwrap(), Some(long));
}

#[test]
fn an_elder_that_is_slow_loses_datagrams_and_one_that_has_ended_is_known() {
    let (relay, inbox) = relay(&Living::new(16).unwrap());
    let [elder, _] = places();
    let bytes = [0; 1200];
    let one = Relayed { bytes: &bytes, ..datagrams().remove(0) };
    let passed = (0..100_000).take_while(|_| relay.pass_on(elder, &one) == Passed::On).count();
    assert!((50..100_000).contains(&passed), "{passed}");
    assert_eq!(relay.pass_on(elder, &one), Passed::Lost);
    assert!(inbox.recv(&mut [0; 2000]).unwrap().is_some());
    assert!(!relay.elders[0].has_ended());
    drop(inbox);
    assert!(relay.elders[0].has_ended());
    assert_eq!(relay.pass_on(elder, &one), Passed::Ended);
}

#[test]
fn owners_are_told_apart() {
    let living = Living::new(16).unwrap();
    let (relay, _inbox) = relay(&living);
    let [elder, own] = places();
    living.set(8, true);
    let of = |slot: u16, half: bool| relay.owner(Place { index: 0, slot, half });
    assert_eq!((relay.owner(own), relay.owner(elder)), (Owner::Own, Owner::Elder));
    assert_eq!((of(8, true), of(9, true)), (Owner::Other, Owner::None));
    assert_eq!((of(5, false), of(3, false), of(8, false)), (Owner::None, Owner::None, Owner::None));
    assert_eq!(of(1000, true), Owner::None, "beyond all slots");
    living.set(8, false);
    assert_eq!(of(8, true), Owner::None);
    living.set(99, true);
    let id = relay.new_id();
    let read = crate::quic_id::read(relay.key(), &id.0).unwrap();
    assert_eq!((read.place, read.is_genuine), (own, true));
}

#[test]
fn nonsense_is_no_datagram() {
    let (sends, inbox) = pair().unwrap();
    let mut buf = [0; 2000];
    for datagram in datagrams() {
        datagram.send(&sends).unwrap();
        let n = os::socket::recv(&inbox, &mut buf).unwrap();
        let message = buf[..n].to_vec();
        let head = n - datagram.bytes.len();
        assert!(head <= HEAD_MAX);
        assert!((0..head).all(|end| Relayed::read(&message[..end]).is_none()));
        let mut other = message.clone();
        other[0] = 2;
        assert_eq!(Relayed::read(&other), None);
        for _ in 0..200 {
            let mut other = message.clone();
            let at = os::random::number() as usize % head;
            other[at] = os::random::number() as u8;
            let _ = Relayed::read(&other);
        }
    }
    let unix = Relayed { from: addr("unix:/x"), ..datagrams().remove(0) };
    assert_eq!(unix.send(&sends).unwrap_err().kind(), io::ErrorKind::Unsupported);
}

#[test]
fn a_new_binary_gets_the_key_and_the_relays() {
    let key = Key::random();
    let (sends, inbox) = pair().unwrap();
    let relays = [(3, &sends)];
    let value = Handover::for_new_binary(&key, true, relays.into_iter()).unwrap();
    // The descriptors are the new binary's: this process plays both.
    let number = std::os::fd::AsRawFd::as_raw_fd(&sends);
    assert!(value.ends_with(&format!(";3={number};")), "{value}");
    std::mem::forget(sends);
    let taken = Handover::from_binary(&value).unwrap();
    assert_eq!((taken.key, taken.half, taken.elders.len()), (key, true, 1));
    let [elder] = <[Elder; 1]>::try_from(taken.elders).unwrap();
    assert_eq!((elder.slot, elder.half), (3, true));
    datagrams()[0].send(&elder.fd).unwrap();
    assert!(inbox.recv(&mut [0; 2000]).unwrap().is_some());
    for nonsense in ["", "2;", "0", "0;x;", "0;999999;", "0;1;", ";;"] {
        assert!(Handover::from_binary(nonsense).is_none(), "{nonsense}");
    }
}
