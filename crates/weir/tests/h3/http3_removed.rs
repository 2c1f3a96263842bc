//! Addresses of QUIC that a reload removes, and that come back while a worker of before has
//! connections; and the end of the server.

use testkit::certificates::KeyKind;
use testkit::h3::{Client, Options, StreamId};
use testkit::{Driver, Pair, Site, Weir, built_binary, on_all_drivers, wait_for};

/// A response of five seconds.
fn slow() -> Vec<u8> {
    b"slow ".repeat(8_000)
}

/// `workers` with a server over TCP, and one over QUIC at this address.
fn config(workers: usize, quic: Option<&str>) -> String {
    let quic = quic.map_or(String::new(), |address| {
        format!(
            "server {{ listen {address}:%PORT0% quic; root html;
                 location /slow {{ limit_rate 8k; }}
                 location /here {{ return 200 here; }} }}"
        )
    });
    format!(
        "worker_processes {workers}; events {{}}
         http {{ ssl_certificate a.pem; ssl_certificate_key a.key; {quic}
             server {{ listen 127.0.0.1:%PORT9%; return 200 up; }} }}"
    )
}

fn start(driver: Driver, text: &str) -> Weir {
    let site = Pair::own(KeyKind::P256, "localhost").on(Site::new(built_binary(), driver), "a");
    site.file("html/slow", slow()).config(text).start()
}

/// Reloads with another configuration, and waits until the workers of before are leaving.
fn reload(weir: &mut Weir, text: &str) {
    let left = |weir: &Weir| weir.log("error.log").matches("gracefully shutting down").count();
    weir.set_config(text);
    let before = left(weir);
    weir.reload();
    wait_for("leaving workers", || (left(weir) > before).then_some(()));
}

/// Connections, each of which has got the head of a slow response.
fn begin(weir: &Weir) -> Vec<(Client, StreamId)> {
    let begun = |_| {
        let mut c = Client::connect(weir.port(0), "localhost");
        let id = c.begin_with("GET", "/slow", &[]);
        c.quic().finish(id);
        c.response_until(id, |r| r.status == 200);
        (c, id)
    };
    (0..3).map(begun).collect()
}

/// The responses come to their ends.
fn end(all: Vec<(Client, StreamId)>) {
    for (mut c, id) in all {
        assert!(c.response(id).body == slow());
        assert_eq!(c.quic().until("no end", |quic| quic.lost_code()), 0x100);
    }
}

#[test]
fn connections_of_a_removed_address_go_on() {
    on_all_drivers(|driver| {
        for address in ["127.0.0.1", "0.0.0.0"] {
            // Some of the sockets have no new worker of their number.
            for (workers, next) in [(1, 1), (3, 2)] {
                let mut weir = start(driver, &config(workers, Some(address)));
                let before = begin(&weir);
                reload(&mut weir, &config(next, None));
                end(before);
                // The sockets close with the workers that had connections.
                let port = weir.port(0);
                wait_for("a free address", || std::net::UdpSocket::bind((address, port)).ok());
            }
        }
    });
}

#[test]
fn an_address_comes_back_whole() {
    on_all_drivers(|driver| {
        let with = config(2, Some("127.0.0.1"));
        let mut weir = start(driver, &with);
        let mut before = begin(&weir);
        reload(&mut weir, &config(2, None));
        // A client that begins now gets no answer, and one that the address comes back for does.
        let options = Options { name: "localhost".to_owned(), ..Options::default() };
        let mut early = Client::start(weir.port(0), &options);
        early.quic().turn();
        reload(&mut weir, &with);
        early.quic().until("no connection", |quic| quic.is_connected().then_some(()));
        // Of a socket that is still a leaving worker's, some of them would have no answer.
        for _ in 0..10 {
            assert_eq!(Client::connect(weir.port(0), "localhost").get("/here").body, b"here");
        }
        before.extend(begin(&weir));
        reload(&mut weir, &config(2, None));
        end(before);
    });
}

/// The next workers have another socket, which the kernel prefers, and pass on what comes there.
#[test]
fn connections_go_on_when_one_of_all_addresses_stays() {
    on_all_drivers(|driver| {
        let mut weir = start(driver, &config(2, Some("0.0.0.0")));
        let before = begin(&weir);
        reload(&mut weir, &config(2, Some("127.0.0.1")));
        let mut c = Client::connect(weir.port(0), "localhost");
        assert_eq!(c.get("/here").body, b"here");
        end(before);
    });
}

/// No worker follows that could pass on what belongs to those that leave.
#[test]
fn connections_go_on_when_the_server_ends() {
    on_all_drivers(|driver| {
        let mut weir = start(driver, &config(2, Some("127.0.0.1")));
        let before = begin(&weir);
        weir.signal("QUIT");
        end(before);
        assert!(weir.wait_for_end().success());
    });
}
