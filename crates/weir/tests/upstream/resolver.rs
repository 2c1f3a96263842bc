//! Names that become addresses at run time.

use std::net::Ipv4Addr;

use crate::dns::{A, Dns, SRV, Say};
use testkit::{Backend, Driver, Port, Site, Weir, built_binary, each_driver, wait_until};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Nobody listens there.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);

fn start(driver: Driver, workers: usize, http: &str) -> Weir {
    Site::new(built_binary(), driver)
        .config(&format!("worker_processes {workers};\nevents {{}}\nhttp {{\n{http}\n}}\n"))
        .start()
}

#[test]
fn what_name_servers_do() {
    each_driver(|driver| {
        let (dns, b) = (Dns::start(), Backend::start());
        let weir = start(
            driver,
            1,
            &format!(
                "resolver 127.0.0.1:{} ipv6=off status_zone=names; resolver_timeout 700ms;
                 server {{ listen 127.0.0.1:%PORT0%;
                     location /to/ {{ proxy_pass http://$arg_h:{}; }} }}",
                dns.port, b.port
            ),
        );
        dns.say("good.x", A, Say::Addresses(vec![HERE], 60));
        dns.say("dead.x", A, Say::Addresses(vec![NOWHERE, HERE], 60));
        dns.say("long.x", A, Say::OverTcp(HERE));
        dns.say("late.x", A, Say::Late(250, HERE));
        dns.say("forged.x", A, Say::AfterForged(NOWHERE, HERE));
        dns.say("no.x", A, Say::Code(3));
        dns.say("broken.x", A, Say::Code(2));
        dns.say("never.x", A, Say::Never);
        dns.say("cut.x", A, Say::Cut(true));
        dns.say("mute.x", A, Say::Cut(false));
        let get = |host: &str| weir.get(&format!("/to/?h={host}")).status;
        for host in ["good.x", "GOOD.X", "dead.x", "long.x", "forged.x", "good.x."] {
            assert_eq!(get(host), 200, "{host}");
        }
        assert_eq!(dns.asked("good.x"), 1);
        // Two requests for the same name share a lookup.
        let mut clients = [weir.connect(), weir.connect()];
        for c in &mut clients {
            c.send("GET /to/?h=late.x HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        assert!(clients.iter_mut().all(|c| c.response().status == 200));
        assert_eq!(dns.asked("late.x"), 1);
        for host in ["no.x", "broken.x", "never.x", "nothing.x", "cut.x", "mute.x", "a..b"] {
            assert_eq!(get(host), 502, "{host}");
        }
        for line in [
            "no.x could not be resolved (3: Host not found)",
            "broken.x could not be resolved (2: Server failure)",
            "never.x could not be resolved (110: Operation timed out)",
            "cut.x could not be resolved (110: Operation timed out)",
            "mute.x could not be resolved (110: Operation timed out)",
            "a..b could not be resolved (1: Format error)",
            "wrong ident",
            "unexpected DNS response for",
            "invalid DNS response",
        ] {
            weir.wait_for_log("error.log", line);
        }
        // Whoever would deceive has to guess a port and an id for each name.
        for n in 0..40 {
            get(&format!("name{n}.x"));
        }
        let (ports, ids) = dns.ports_and_ids();
        assert!(ports >= 30 && ids >= 40, "{ports} ports, {ids} ids for 40 names and more");
        // A client that goes away does not wait, and its lookup is given up.
        let mut gone = weir.connect();
        gone.send("GET /to/?h=never.x HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("the change", || dns.asked("never.x") == 2);
        drop(gone);
        assert_eq!(get("good.x"), 200);
    });
}

#[test]
fn servers_follow_their_names() {
    let (dns, b) = (Dns::start(), Backend::start());
    dns.say("moving.x", A, Say::Code(2));
    dns.say("_http._tcp.service.x", SRV, Say::Hosts(vec![(9, 1, 1, "none.x")]));
    let weir = start(
        Driver::usual(),
        2,
        &format!(
            "resolver 127.0.0.1:{} ipv6=off valid=1s; resolver_timeout 500ms;
             upstream moving {{ zone a 64k; server moving.x:{} resolve; }}
             upstream service {{ zone b 64k; server service.x resolve service=http; }}
             server {{ listen 127.0.0.1:%PORT0%; add_header X-To $upstream_addr always;
                 add_header X-Name $upstream_last_server_name always;
                 location / {{ proxy_pass http://moving; }}
                 location /s {{ proxy_pass http://service; }} }}",
            dns.port, b.port
        ),
    );
    assert_eq!(weir.get("/").status, 502);
    weir.wait_for_log("error.log", "moving.x could not be resolved (2: Server failure)");
    weir.wait_for_log("error.log", "service http of service.x could not be resolved");
    dns.say("moving.x", A, Say::Addresses(vec![HERE], 1));
    wait_until("the change", || weir.get("/").status == 200);
    assert_eq!(weir.get("/").header("X-Name"), Some("moving.x"));
    let other = Ipv4Addr::new(127, 0, 0, 2);
    dns.say("moving.x", A, Say::Addresses(vec![other], 1));
    let to = format!("{other}:{}", b.port);
    wait_until("the change", || weir.get("/").header("X-To") == Some(&to));
    dns.say("moving.x", A, Say::Code(3));
    wait_until("the change", || weir.get("/").status == 502);
    // Hosts of a lower priority are for when no other lives.
    let dead = Port::reserve();
    let (first, second) = ((1, 1, dead.number(), "one.x"), (2, 5, b.port, "two.x"));
    dns.say("_http._tcp.service.x", SRV, Say::Hosts(vec![second, first]));
    dns.say("one.x", A, Say::Addresses(vec![HERE], 1));
    dns.say("two.x", A, Say::Addresses(vec![HERE], 1));
    wait_until("the change", || weir.get("/s").status == 200);
    let to = format!("127.0.0.1:{}", b.port);
    let response = weir.get("/s");
    assert!(response.header("X-To").unwrap().ends_with(&to), "{:?}", response.header("X-To"));
    assert_eq!(response.header("X-Name"), Some("two.x"));
}

#[test]
fn a_reload_keeps_addresses() {
    let (dns, b) = (Dns::start(), Backend::start());
    dns.say("kept.x", A, Say::Addresses(vec![HERE], 3600));
    let config = |extra: &str| {
        format!(
            "worker_processes 1; events {{}} http {{ resolver 127.0.0.1:{} ipv6=off;
             upstream u {{ zone u 64k; {extra} server kept.x:{} resolve; }}
             server {{ listen 127.0.0.1:%PORT0%; location / {{ proxy_pass http://u; }} }} }}",
            dns.port, b.port
        )
    };
    let mut weir = Site::new(built_binary(), Driver::usual()).config(&config("")).start();
    wait_until("the change", || weir.get("/").status == 200);
    for extra in ["", "least_conn;", "server 127.0.0.1:1 backup;"] {
        dns.say("kept.x", A, Say::Never);
        weir.set_config(&config(extra));
        weir.reload();
        assert_eq!(weir.get("/").status, 200, "{extra}");
    }
    assert_eq!(dns.asked("kept.x"), 1);
}

#[test]
fn what_configurations_are_told() {
    let refused = |http: &str| {
        let site = Site::new(built_binary(), Driver::usual())
            .http(&format!("{http}\nserver {{ listen 127.0.0.1:%PORT0%; }}"));
        String::from_utf8_lossy(&site.run(&["-t"]).stderr).into_owned()
    };
    let server =
        |line: &str| format!("resolver 127.0.0.1; upstream u {{ zone z 64k; server {line}; }}");
    for (http, message) in [
        ("resolver valid=1s;".to_owned(), "no name servers defined"),
        ("resolver 127.0.0.1 ipv4=maybe;".to_owned(), "invalid parameter: ipv4=maybe"),
        ("resolver 127.0.0.1; resolver 127.0.0.1;".to_owned(), "directive is duplicate"),
        (
            "resolver 127.0.0.1; upstream u { server a.x resolve; }".to_owned(),
            "resolving names at run time requires upstream \"u\" to be in shared memory",
        ),
        (server("a.x service=http"), "requires \"resolve\" parameter"),
        (server("a.x:80 resolve service=http"), "may not have port"),
        (server("127.0.0.1 resolve service=http"), "requires domain name"),
        (server("a.x resolve service="), "service is empty"),
    ] {
        let output = refused(&http);
        assert!(output.contains(message), "{http}: {output}");
    }
}
