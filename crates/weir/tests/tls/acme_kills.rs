//! Kills at every state of an order: it is made once, and comes to its end.
//!
//! The authority's answer to a request is held back, so that it has done what it was asked for and
//! nobody knows. Then something is killed:
//!
//! | request | state of the order, for the process that comes after |
//! | --- | --- |
//! | `/dir`, `/nonce-plz` | there is no account |
//! | `/sign-me-up` | the account exists, its address is unknown |
//! | `/order-plz` | the order exists, its address is unknown |
//! | `/my-order/`, `/authZ/` | its address is on disk |
//! | `/chalZ/` | the challenge is shown, and the authority looks |
//! | `/authZ/` again | the authority looks, or has looked |
//! | `/my-order/` again | the order is ready |
//! | `/finalize-order/` | the authority has the request for the certificate |
//! | `/my-order/` for the third time | the certificate is made, its address is unknown |
//! | `/certZ/` | the certificate is issued, and nobody has it |
//! | `/my-account/`, `/list-orderz/` | the order exists, and is being looked for |
//!
//! The steps of the installation behind are those of `acme::folder`'s own test.

use std::sync::Arc;

use crate::acme_site::gateway::Gateway;
use crate::acme_site::{
    HTTP, Shared, acme_process, certificate, config, issuer_at, server, with_pebble,
};
use testkit::pebble::{Pebble, Settings};
use testkit::{Driver, Site, Weir, built_binary, wait_for, wait_until};

/// The requests of an order: the path, and which one with this path it is.
const STATES: [(&str, usize); 12] = [
    ("/dir", 1),
    ("/nonce-plz", 1),
    ("/sign-me-up", 1),
    ("/order-plz", 1),
    ("/my-order/", 1),
    ("/authZ/", 1),
    ("/chalZ/", 1),
    ("/authZ/", 2),
    ("/my-order/", 2),
    ("/finalize-order/", 1),
    ("/my-order/", 3),
    ("/certZ/", 1),
];

/// The requests that look for an order whose address is unknown; its own is the last.
const SEARCH: [&str; 3] = ["/my-account/", "/list-orderz/", "/my-order/"];

fn site_text(pebble: &Pebble, gateway: &Gateway, folder: &Shared) -> String {
    let uri = format!("https://acme.test:{}/dir", gateway.port);
    let trusted = format!("ssl_trusted_certificate {};", pebble.trusted().display());
    let http = issuer_at(&uri, "one", &folder.0, &trusted) + HTTP + &server("a.test", "one");
    config(pebble.dns_port(), &http)
}

/// A site, an authority that refuses nothing, the way between them, and a folder of this name.
fn scene(name: &str) -> (Site, Arc<Pebble>, Gateway, Shared) {
    let (site, pebble) = with_pebble(Driver::usual(), |settings| settings.nonces_refused = 0);
    let pebble = Arc::new(pebble);
    let gateway = Gateway::start(&pebble);
    let folder = Shared::new(name);
    let site = site.config(&site_text(&pebble, &gateway, &folder));
    (site, pebble, gateway, folder)
}

/// Runs `attempt` for each request of an order, whose answer the gateway holds. Each makes one
/// order, and no order has requests of other kinds.
pub(crate) fn at_each_state(pebble: &Pebble, gateway: &Gateway, mut attempt: impl FnMut()) {
    for (path, number) in STATES {
        let (orders, asked) = (pebble.orders(), pebble.asked().len());
        gateway.close(path, number);
        attempt();
        let calls = pebble.asked().split_off(asked);
        assert_eq!(pebble.orders() - orders, 1, "orders at {path} {number}: {calls:?}");
        for call in calls.iter().map(String::as_str) {
            let is_held = STATES.iter().any(|(path, _)| *path == call) || SEARCH.contains(&call);
            // A pebble newer than Debian's is asked for renewal information behind the order.
            assert!(is_held || call.contains("renewalInfo"), "{call} is held by no attempt");
        }
    }
}

/// The whole of the folder is that of an order that is over.
pub(crate) fn is_settled(folder: &Shared) {
    wait_until("the order to be over", || !folder.state(".crt").is_empty());
    wait_until("nothing of it to be left", || {
        [".next.key", ".next.crt", ".challenges"].iter().all(|end| folder.file(end).is_none())
    });
}

/// Kills at each state with `kill`, which leaves a server that serves.
fn killed(name: &str, kill: impl Fn(&mut Weir, &Gateway)) {
    let (site, pebble, gateway, folder) = scene(name);
    let site = site.allow("acme process").allow("worker process").allow("signal 9");
    let mut weir = site.start();
    weir.crash();
    at_each_state(&pebble, &gateway, || {
        let _ = std::fs::remove_dir_all(&folder.0);
        weir.start_again();
        gateway.open();
        gateway.wait();
        kill(&mut weir, &gateway);
        certificate(&weir, "a.test");
        is_settled(&folder);
        weir.crash();
    });
}

#[test]
fn the_acme_process_is_killed() {
    killed("helper", |weir, gateway| {
        let pid = wait_for("the acme process", || acme_process(weir));
        weir.signal_to(pid, "KILL");
        wait_until("its successor", || acme_process(weir).is_some_and(|new| new != pid));
        gateway.go_on();
    });
}

#[test]
fn the_whole_server_is_killed() {
    killed("server", |weir, gateway| {
        weir.crash();
        gateway.go_on();
        weir.start_again();
    });
}

/// Killed once more while its successor looks for the order that the authority has made.
#[test]
fn the_search_for_an_order_is_killed() {
    let (site, pebble, gateway, folder) = scene("search");
    let mut weir = site.start();
    weir.crash();
    for (made, path) in SEARCH.into_iter().enumerate() {
        gateway.close("/order-plz", 1);
        let _ = std::fs::remove_dir_all(&folder.0);
        for held in [path, ""] {
            weir.start_again();
            gateway.open();
            gateway.wait();
            weir.crash();
            gateway.close(held, 1);
        }
        weir.start_again();
        gateway.open();
        certificate(&weir, "a.test");
        is_settled(&folder);
        weir.crash();
        assert_eq!(pebble.orders(), made + 1, "{path}");
    }
}

/// An account has more orders than the authority lists at once: three, by default.
#[test]
fn an_order_among_many_is_found() {
    let (site, pebble) = with_pebble(Driver::usual(), |settings| settings.nonces_refused = 0);
    let pebble = Arc::new(pebble);
    let gateway = Gateway::start(&pebble);
    let folder = Shared::new("many");
    let first = site_text(&pebble, &gateway, &folder);
    let more: String = ["b.test", "c.test", "d.test"].map(|name| server(name, "one")).concat();
    let all = |last: &str| first.replacen(HTTP, &format!("{HTTP}{more}{last}"), 1);
    let mut weir = site.config(&all("")).start();
    gateway.open();
    for name in ["a.test", "b.test", "c.test", "d.test"] {
        certificate(&weir, name);
    }
    is_settled(&folder);
    weir.crash();
    gateway.close("/order-plz", 1);
    weir.set_config(&all(&server("e.test", "one")));
    weir.start_again();
    gateway.open();
    gateway.wait();
    weir.crash();
    gateway.go_on();
    weir.start_again();
    certificate(&weir, "e.test");
    assert_eq!(pebble.orders(), 5);
}

#[test]
fn workers_are_killed() {
    killed("workers", |weir, gateway| {
        for pid in weir.workers() {
            weir.signal_to(pid, "KILL");
        }
        // The answer comes to the process that has asked.
        gateway.go_on();
    });
}

#[test]
fn the_acme_process_ends_with_a_master_that_is_killed() {
    let (site, pebble, gateway, folder) = scene("master");
    gateway.close("/chalZ/", 1);
    let mut weir = site.start();
    gateway.open();
    gateway.wait();
    let acme = wait_for("the acme process", || acme_process(&weir));
    assert!(folder.is_locked(Some(acme)));
    weir.signal("KILL");
    weir.wait_for_end();
    wait_until("the acme process to end", || acme_process(&weir).is_none());
    assert!(!folder.is_locked(None));
    // Workers serve on, as nginx's do.
    assert!(!weir.processes().is_empty());
    weir.crash();
    gateway.go_on();
    weir.start_again();
    certificate(&weir, "a.test");
    assert_eq!(pebble.orders(), 1);
}

/// The host that leads is killed at each state: the other one on the folder ends the order.
#[test]
fn the_host_that_leads_is_killed() {
    let mut second = Site::new(built_binary(), Driver::usual());
    // The validator comes to the host that follows.
    let mut settings = Settings::new(second.port(0), second.port(1));
    settings.nonces_refused = 0;
    let pebble = Arc::new(Pebble::start(settings));
    let gateway = Gateway::start(&pebble);
    let folder = Shared::new("leader");
    let text = site_text(&pebble, &gateway, &folder);
    let mut first = Site::new(built_binary(), Driver::usual()).config(&text).start();
    first.crash();
    let mut second = second.config(&text).start();
    second.crash();
    at_each_state(&pebble, &gateway, || {
        let _ = std::fs::remove_dir_all(&folder.0);
        first.start_again();
        let leader = wait_for("the acme process", || acme_process(&first));
        wait_until("the first host to lead", || folder.is_locked(Some(leader)));
        second.start_again();
        wait_for("the other acme process", || acme_process(&second));
        gateway.open();
        gateway.wait();
        first.crash();
        gateway.go_on();
        certificate(&second, "a.test");
        let successor = wait_for("the acme process", || acme_process(&second));
        wait_until("the second host to lead", || folder.is_locked(Some(successor)));
        is_settled(&folder);
        second.crash();
    });
}
