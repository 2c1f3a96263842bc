//! The client beside a scripted name server.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::mpsc;

use super::*;

fn record(name: &str, ttl: u32, data: Data) -> Record {
    Record { name: name.as_bytes().to_vec(), ttl, data }
}

fn a(n: u8) -> Data {
    Data::A(Ipv4Addr::new(127, 0, 0, n))
}

#[test]
fn only_records_of_the_chain_are_taken() {
    let name = Bytes::from_static(b"a.example");
    let cname = |to: &str| Data::Cname(to.as_bytes().to_vec());
    let answers = [
        record("evil.example", 600, a(9)),
        record("c.example", 30, a(1)),
        record("A.Example", 20, cname("B.example")),
        record("b.example", 10, cname("c.example")),
        record("c.example", 40, a(2)),
    ];
    let (data, end, ttl) = collect(&answers, &name, kind::A);
    assert_eq!(data, [a(1), a(2)]);
    assert_eq!((&end[..], ttl), (&b"c.example"[..], 10));
    // A circle ends, too.
    let circle = [record("a.example", 1, cname("b.x")), record("b.x", 1, cname("a.example"))];
    let (data, end, _) = collect(&circle, &name, kind::A);
    assert!(data.is_empty() && end == "b.x");
}

/// Runs a test on one driver.
fn run(body: impl Future<Output = ()> + 'static) {
    let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
    event_loop.block_on(body).unwrap();
}

/// A name server on a port of the loopback with its answer to each message, in order.
struct Server {
    addr: SockAddr,
    asked: mpsc::Receiver<Vec<u8>>,
}

/// A datagram of [`count`], which is no question.
const END: &[u8] = b"end";

/// Answers to a question: for each, the bytes of one datagram.
type Say = fn(&[u8], usize) -> Vec<Vec<u8>>;

fn server(say: Say) -> Server {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = SockAddr::parse(socket.local_addr().unwrap().to_string().as_bytes()).unwrap();
    let (tell, asked) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buf = [0; 512];
        for n in 0.. {
            let Ok((len, from)) = socket.recv_from(&mut buf) else { return };
            let question = buf[..len].to_vec();
            // Before the answer: who has that finds the question counted.
            if tell.send(question.clone()).is_err() {
                return;
            }
            if question == END {
                continue;
            }
            for answer in say(&question, n) {
                socket.send_to(&answer, from).unwrap();
            }
        }
    });
    Server { addr, asked }
}

/// The question as an answer with one address.
fn yes(question: &[u8], ip: u8, ttl: u8) -> Vec<u8> {
    let mut m = question.to_vec();
    m[2] |= 0x80;
    m[7] = 1;
    m.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, ttl, 0, 4, 127, 0, 0, ip]);
    m
}

fn no(question: &[u8], code: u8) -> Vec<u8> {
    let mut m = question.to_vec();
    m[2] |= 0x80;
    m[3] = code;
    m
}

fn resolver(servers: &[&Server]) -> Rc<Resolver> {
    let servers = servers.iter().map(|s| s.addr.clone()).collect();
    Resolver::new(Config { servers, valid: None, ipv4: true, ipv6: false }, None)
}

fn ips(found: Result<Addresses, Failure>) -> Result<Vec<u8>, Failure> {
    let last = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => 0,
    };
    found.map(|f| f.list.iter().map(last).collect())
}

/// Counts the questions so far. Datagrams over the loopback keep their order: the server has taken
/// all questions that were sent when it takes this one.
fn count(server: &Server) -> usize {
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    own.send_to(END, server.addr.to_string()).unwrap();
    server.asked.iter().take_while(|question| question != END).count()
}

#[test]
fn answers_are_kept_and_questions_shared() {
    for driver in event::testing::real_drivers() {
        let s = server(|q, _| vec![yes(q, 1, 60)]);
        let r = resolver(&[&s]);
        let options = event::Options { driver, ..event::Options::default() };
        let mut event_loop = event::Loop::new(options).unwrap();
        let asked = async move {
            let (one, two) = (r.addresses(b"a.example", 3000), r.addresses(b"A.Example.", 3000));
            let both = join(one, two).await;
            assert_eq!((ips(both.0), ips(both.1)), (Ok(vec![1]), Ok(vec![1])), "{driver:?}");
            assert_eq!(ips(r.addresses(b"a.example", 3000).await), Ok(vec![1]));
            assert_eq!(count(&s), 1);
            assert!(r.flights.borrow().is_empty());
        };
        event_loop.block_on(asked).unwrap();
    }
}

#[test]
fn answers_of_no_duration_are_not_kept() {
    let s = server(|q, n| vec![yes(q, n as u8 + 1, 0)]);
    let r = resolver(&[&s]);
    run(async move {
        assert_eq!(ips(r.addresses(b"a.example", 3000).await), Ok(vec![1]));
        assert_eq!(ips(r.addresses(b"a.example", 3000).await), Ok(vec![2]));
    });
}

#[test]
fn what_is_forged_or_broken_is_passed_over() {
    let s = server(|q, _| {
        let mut other_id = yes(q, 66, 60);
        other_id[0] ^= 1;
        let mut other_name = yes(q, 66, 60);
        other_name[13] = b'z';
        let mut other_kind = yes(q, 66, 60);
        other_kind[24] = 28;
        vec![other_id, other_name, q.to_vec(), b"x".to_vec(), other_kind, yes(q, 1, 60)]
    });
    let r = resolver(&[&s]);
    run(async move {
        assert_eq!(ips(r.addresses(b"a.example", 3000).await), Ok(vec![1]));
    });
}

#[test]
fn refusals() {
    let s = server(|q, n| vec![no(q, n as u8 + 1)]);
    let r = resolver(&[&s]);
    run(async move {
        for failure in [
            Failure::Format,
            Failure::Server,
            Failure::NotFound,
            Failure::NotImplemented,
            Failure::Refused,
            Failure::Other(6),
        ] {
            assert_eq!(ips(r.addresses(b"a.example", 3000).await), Err(failure));
        }
        let long = "a".repeat(64);
        assert_eq!(ips(r.addresses(long.as_bytes(), 3000).await), Err(Failure::Format));
        assert_eq!(count(&s), 6);
    });
}

#[test]
fn another_server_is_asked_when_one_fails() {
    let bad = server(|q, _| vec![no(q, 2)]);
    let good = server(|q, _| vec![yes(q, 7, 0)]);
    let r = resolver(&[&bad, &good]);
    run(async move {
        for _ in 0..4 {
            assert_eq!(ips(r.addresses(b"a.example", 3000).await), Ok(vec![7]));
        }
        assert_eq!(count(&good), 4);
        assert!(count(&bad) >= 2);
    });
}

#[test]
fn no_answer_at_all() {
    let s = server(|_, _| Vec::new());
    let r = resolver(&[&s]);
    run(async move {
        assert_eq!(ips(r.addresses(b"a.example", 100).await), Err(Failure::TimedOut));
        // The waiter is gone, and its query is cancelled.
        assert!(r.flights.borrow().is_empty());
        assert_eq!(count(&s), 1);
    });
}

#[test]
fn chains_lead_on_and_end() {
    // Each name stands for one that is a letter longer.
    let s = server(|q, n| {
        let mut m = no(q, 0);
        if n < 3 {
            m[7] = 1;
            m.extend_from_slice(&[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 4, 1, b'b', 0xc0, 12]);
            vec![m]
        } else {
            vec![yes(q, 5, 60)]
        }
    });
    let r = resolver(&[&s]);
    run(async move {
        assert_eq!(ips(r.addresses(b"a.example", 3000).await), Ok(vec![5]));
        let asked: Vec<Vec<u8>> = s.asked.try_iter().collect();
        assert_eq!(asked[3][12..].len(), asked[0][12..].len() + 6);
    });
    let endless = server(|q, n| {
        let mut m = no(q, 0);
        m[7] = 1;
        let to = [1, b'a' + (n % 26) as u8, 1, b'a' + (n / 26 % 26) as u8, 0];
        m.extend_from_slice(&[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 5]);
        m.extend_from_slice(&to);
        vec![m]
    });
    let r = resolver(&[&endless]);
    run(async move {
        assert_eq!(ips(r.addresses(b"x.example", 9000).await), Err(Failure::NotFound));
        assert_eq!(count(&endless), CHAIN_MAX + 1);
    });
}
