use super::*;
use os::SockAddr;
use os::filter::{self, Step};
use os::socket::{self, Kind};
use std::os::fd::OwnedFd;

/// A group of sockets, in the order in which they were bound, and a client.
struct Group {
    sockets: Vec<OwnedFd>,
    client: OwnedFd,
    at: SockAddr,
}

impl Group {
    fn new(count: usize, addr: &[u8]) -> Option<Group> {
        let mut at = SockAddr::parse(addr).unwrap();
        let client = socket::socket(&at, Kind::Datagram).unwrap();
        let mut sockets = Vec::new();
        for _ in 0..count {
            let fd = socket::socket(&at, Kind::Datagram).unwrap();
            socket::set_reuseport(&fd, true).unwrap();
            // Not every machine has version 6.
            socket::bind(&fd, &at).ok()?;
            at = socket::local_addr(&fd).unwrap();
            sockets.push(fd);
        }
        Some(Group { sockets, client, at })
    }

    fn steer(&self, steps: &[Step]) {
        filter::attach_reuseport(&self.sockets[0], steps).unwrap();
    }

    fn send(&self, datagram: &[u8]) {
        assert_eq!(socket::send_to(&self.client, datagram, &self.at).unwrap(), datagram.len());
    }

    /// The numbers of the sockets that something has come to, with it. Loopback delivers at once.
    fn come(&self) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        for (number, fd) in self.sockets.iter().enumerate() {
            let mut buf = [0; 2000];
            while let Ok(n) = socket::recv(fd, &mut buf) {
                all.push((number, buf[..n].to_vec()));
            }
        }
        all
    }

    fn place_of(&self, datagram: &[u8]) -> usize {
        self.send(datagram);
        let come = self.come();
        assert_eq!(come.len(), 1);
        assert_eq!(come[0].1, datagram);
        come[0].0
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    os::random::fill(&mut bytes);
    bytes
}

fn short(id: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0x40 | random::<1>()[0] & 0x3f];
    datagram.extend_from_slice(id);
    datagram.extend_from_slice(&random::<30>());
    datagram
}

fn long(id: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0xc0 | random::<1>()[0] & 0x3f, 0, 0, 0, 1, id.len() as u8];
    datagram.extend_from_slice(id);
    datagram.extend_from_slice(&random::<1180>());
    datagram
}

#[test]
fn the_kernel_finds_the_worker_of_an_id() {
    for (count, addr) in [(1, &b"127.0.0.1:0"[..]), (2, b"127.0.0.1:0"), (7, b"[::1]:0")] {
        // Beyond those of workers, the group has sockets that nobody reads.
        let Some(group) = Group::new(count + 2, addr) else { continue };
        let key = Key::random();
        group.steer(&program(&key, count));
        for i in 0..1000u16 {
            let index = i % count as u16;
            let place = Place { index, slot: i % 1024, half: i % 3 == 0 };
            let id = Id::new(&key, place, random());
            for datagram in [short(&id.0), long(&id.0)] {
                assert_eq!(socket_of(&key, count, &datagram), Some(usize::from(index)));
                assert_eq!(group.place_of(&datagram), usize::from(index), "{count} sockets");
            }
        }
    }
}

#[test]
fn other_ids_are_spread_over_the_workers() {
    let (count, key) = (5, Key::random());
    let group = Group::new(count + 3, b"127.0.0.1:0").unwrap();
    group.steer(&program(&key, count));
    let elsewhere = Place { index: 1000, slot: 0, half: false };
    let mut came = [0; 5];
    for _ in 0..1000 {
        let gone = Id::new(&key, elsewhere, random());
        let datagrams = [
            short(&random::<16>()),
            short(&gone.0),
            long(&gone.0),
            long(&random::<8>()),
            long(&random::<16>()),
            long(&random::<20>()),
            long(&[]),
        ];
        for datagram in datagrams {
            let number = group.place_of(&datagram);
            assert_eq!(Some(number), socket_of(&key, count, &datagram));
            came[number] += 1;
        }
        // Whatever comes again with the same id, comes to the same worker: the rest does not count.
        let id = random::<8>();
        assert_eq!(group.place_of(&long(&id)), group.place_of(&long(&id)));
        // Nonsense comes to some worker as well, and to no one else.
        let nonsense = &random::<22>()[..usize::from(random::<1>()[0] % 22)];
        assert_eq!(socket_of(&key, count, nonsense), None);
        assert!(group.place_of(nonsense) < count);
    }
    assert!(came.iter().all(|n| (1200..1600).contains(n)), "{came:?}");
}

/// Joined datagrams go by the first of them: a client sends no other connection's among them.
#[test]
fn joined_datagrams_stay_together() {
    let key = Key::random();
    let group = Group::new(3, b"127.0.0.1:0").unwrap();
    group.sockets.iter().for_each(|fd| os::datagram::set_join(fd).unwrap());
    group.steer(&program(&key, 3));
    for index in 0..3 {
        let id = Id::new(&key, Place { index, slot: 0, half: false }, random());
        let one = short(&id.0);
        let segment = Some(one.len() as u16);
        os::datagram::send(&group.client, &one.repeat(5), Some(&group.at), None, segment).unwrap();
        let come = group.come();
        assert_eq!(
            come.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
            [usize::from(index)]
        );
        assert_eq!(come[0].1.len(), one.len() * 5);
    }
}

/// What the kernel does with a number that no socket has: it chooses by its hash of the addresses,
/// among all sockets of the group.
#[test]
fn without_a_number_the_kernel_chooses() {
    let group = Group::new(4, b"127.0.0.1:0").unwrap();
    group.steer(&[Step::set(4), Step::give()]);
    let place = group.place_of(b"x");
    assert!((0..50).all(|_| group.place_of(b"y") == place), "of one client to one socket");
    let mut seen = [false; 4];
    for _ in 0..200 {
        let client = socket::socket(&group.at, Kind::Datagram).unwrap();
        socket::send_to(&client, b"z", &group.at).unwrap();
        group.come().iter().for_each(|(number, _)| seen[*number] = true);
    }
    assert_eq!(seen, [true; 4]);
    // A load from beyond the datagram's end is socket 0.
    group.steer(&[Step::byte(9), Step::set(2), Step::give()]);
    assert_eq!((group.place_of(b"short"), group.place_of(b"long enough")), (0, 2));
}

/// Sockets keep their numbers when later ones close, and are behind those that stay when they come
/// again.
#[test]
fn numbers_are_in_the_order_of_binding() {
    let mut group = Group::new(4, b"127.0.0.1:0").unwrap();
    let at = |group: &Group, number: u32| {
        group.steer(&[Step::set(number), Step::give()]);
        group.place_of(b"x")
    };
    assert_eq!([0, 1, 2, 3].map(|n| at(&group, n)), [0, 1, 2, 3]);
    group.sockets.truncate(2);
    assert_eq!([0, 1].map(|n| at(&group, n)), [0, 1]);
    let fd = socket::socket(&group.at, Kind::Datagram).unwrap();
    socket::set_reuseport(&fd, true).unwrap();
    socket::bind(&fd, &group.at).unwrap();
    group.sockets.push(fd);
    assert_eq!([0, 1, 2].map(|n| at(&group, n)), [0, 1, 2]);
}

#[test]
fn an_id_names_its_place() {
    let key = Key::new(&[7; 32]);
    for i in 0..20_000u64 {
        let random = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let place =
            Place { index: (i % 1024) as u16, slot: (i / 7 % 1024) as u16, half: i % 2 == 1 };
        let id = Id::new(&key, place, random);
        assert_eq!(read(&key, &id.0), Some(Read { place, is_genuine: true }));
        // A changed tag, and a changed place of a known id.
        let mut other = id;
        other.0[12 + (i % 4) as usize] ^= 1 << (i % 8);
        assert_eq!(read(&key, &other.0), Some(Read { place, is_genuine: false }));
        let mut other = id;
        other.0[8] ^= 0x40;
        assert!(read(&key, &other.0).is_some_and(|read| !read.is_genuine));
    }
    assert_eq!(read(&key, &[1; 15]), None);
}

#[test]
fn foreign_ids_are_seen_as_such() {
    let (key, other) = (Key::new(&[7; 32]), Key::new(&[8; 32]));
    let place = Place { index: 1, slot: 2, half: false };
    let ids = (0..100_000u64).map(|i| Id::new(&other, place, i.to_le_bytes()));
    let seen: Vec<_> = ids.filter_map(|id| read(&key, &id.0)).collect();
    // One of 2,048.
    assert!((20..90).contains(&seen.len()), "{}", seen.len());
    assert!(seen.iter().all(|read| !read.is_genuine));
}

#[test]
fn masks_depend_on_every_bit_of_the_random_part() {
    let key = Key::random();
    for bit in 0..64 {
        let changed: u32 = (0..1000u64)
            .map(|i| {
                let i = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (key.mix(i.to_le_bytes()) ^ key.mix((i ^ 1 << bit).to_le_bytes())).count_ones()
            })
            .sum();
        // Half of the bits.
        assert!((15_000..17_000).contains(&changed), "bit {bit}: {changed}");
    }
    let again = Key::new(key.secret());
    assert_eq!(again, key);
}
