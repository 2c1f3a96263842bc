//! Servers that get further names, and accounts whose address is lost.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::acme_site::{
    HTTP, Shared, certificate, config, holds, issuer, server, try_certificate, with_pebble,
};
use testkit::pebble::Pebble;
use testkit::{Driver, each_driver, wait_for, wait_until};

fn text(pebble: &Pebble, folder: &Shared, names: &str) -> String {
    let http = issuer(pebble, "one", &folder.0, "") + HTTP + &server(names, "one");
    config(pebble.dns_port(), &http)
}

#[test]
fn a_further_name_takes_no_certificate_from_the_others() {
    each_driver(|driver| {
        let (site, pebble) = with_pebble(driver, |_| {});
        let folder = Shared::new(&format!("further-{}", driver.name()));
        let mut weir = site.config(&text(&pebble, &folder, "a.test")).start();
        let first = certificate(&weir, "a.test");
        weir.set_config(&text(&pebble, &folder, "a.test b.test"));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let shown = scope.spawn(|| {
                let mut shown = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    shown.push(try_certificate(&weir, "a.test"));
                }
                shown
            });
            weir.reload();
            wait_for("a certificate of both", || {
                try_certificate(&weir, "b.test").filter(|der| holds(der, b"b.test"))
            });
            done.store(true, Ordering::Relaxed);
            let shown = shown.join().expect("the client");
            let failed = shown.iter().filter(|shown| shown.is_none()).count();
            assert_eq!(failed, 0, "of {} handshakes", shown.len());
        });
        assert_ne!(certificate(&weir, "a.test"), first);
    });
}

#[test]
fn while_the_authority_is_away_old_names_are_served() {
    let (site, mut pebble) = with_pebble(Driver::usual(), |_| {});
    let folder = Shared::new("away-names");
    let mut weir = site.config(&text(&pebble, &folder, "a.test")).start();
    let first = certificate(&weir, "a.test");
    let new = text(&pebble, &folder, "a.test b.test");
    pebble.end();
    weir.set_config(&new);
    let workers = weir.workers();
    weir.reload();
    weir.wait_until_left(&workers);
    weir.wait_for_log("error.log", "next attempt in");
    assert_eq!(try_certificate(&weir, "a.test").as_ref(), Some(&first));
    // A name that it does not cover has none.
    assert_eq!(try_certificate(&weir, "b.test"), None);
    weir.wait_for_log("error.log", "handshakes fail: ");
    // From the folder.
    weir.restart();
    assert_eq!(certificate(&weir, "a.test"), first);
    assert!(!weir.error_log().contains("another host"));
}

#[test]
fn an_account_whose_address_is_lost_is_found_by_its_key() {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let external = Some(("kid-1".to_owned(), key.to_owned()));
    let (site, pebble) = with_pebble(Driver::usual(), |settings| settings.external = external);
    let folder = Shared::new("lost");
    let text = |names: &str, more: &str| {
        let http = issuer(&pebble, "one", &folder.0, more) + HTTP + &server(names, "one");
        config(pebble.dns_port(), &http)
    };
    let site = site.file("conf/external.key", key);
    let bound = text("a.test", "external_account_key kid-1 external.key;");
    let mut weir = site.config(&bound).start();
    certificate(&weir, "a.test");
    let url = folder.state("account.url");
    fs::remove_file(folder.file("account.url").expect("the address")).expect("remove it");
    // A new account would have to be bound again.
    weir.set_config(&text("c.test", ""));
    weir.restart();
    certificate(&weir, "c.test");
    wait_until("the address", || folder.state("account.url") == url);
    assert_eq!(pebble.accounts(), 1);
    weir.wait_for_log("error.log", " found, issuer: \"one\"");
}
