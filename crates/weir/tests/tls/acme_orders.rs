//! Many certificates, accounts that are bound or get another key, and renewal by the authority's
//! word.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::acme_site::{
    HTTP, Shared, config, holds, issuer, issuer_at, server, try_certificate, with_pebble,
};
use crate::tls::{self, Client};
use testkit::{Driver, Site, Weir, built_binary, each_driver, wait_for, wait_until};

/// Waits for a certificate with this name. A worker from before a reload, which knows no such
/// server, shows the default one's.
fn certificate(weir: &Weir, name: &str) -> Vec<u8> {
    let of_name = |der: &Vec<u8>| holds(der, name.as_bytes());
    wait_for("a certificate", || try_certificate(weir, name).filter(of_name))
}

#[test]
fn a_hundred_names_over_twenty_certificates() {
    each_driver(|driver| {
        let (site, pebble) = with_pebble(driver, |_| {});
        let folder = Shared::new(&format!("hundred-{}", driver.name()));
        let names = |i: usize| (0..5).map(move |n| format!("n{n}.s{i}.test"));
        let servers: String =
            (0..20).map(|i| server(&names(i).collect::<Vec<_>>().join(" "), "one")).collect();
        let http = issuer(&pebble, "one", &folder.0, "") + HTTP + &servers;
        let weir = site.config(&config(pebble.dns_port(), &http)).start();
        for i in 0..20 {
            let der = certificate(&weir, &format!("n0.s{i}.test"));
            assert!(names(i).all(|name| holds(&der, name.as_bytes())), "s{i}");
        }
        assert_eq!((pebble.orders(), pebble.accounts()), (20, 1));
    });
}

/// Orders of one name by ALPN wait for each other: validators ask for a certificate by name alone.
#[test]
fn several_certificates_of_one_name_by_alpn() {
    let (site, pebble) = with_pebble(Driver::usual(), |settings| settings.nonces_refused = 0);
    let folder = Shared::new("one-name");
    let alpn = |name: &str| issuer(&pebble, name, &folder.0, "challenge tls-alpn-01;");
    let servers: String = [("a", "one"), ("b", "one"), ("c", "two")]
        .map(|(host, issuer)| server(&format!("{host}.n.test n.test"), issuer))
        .concat();
    let http = alpn("one") + &alpn("two") + HTTP + &servers;
    let weir = site.config(&config(pebble.dns_port(), &http)).start();
    for host in ["a.n.test", "b.n.test", "c.n.test"] {
        certificate(&weir, host);
    }
    assert_eq!(pebble.orders(), 3);
    assert!(!weir.stop_and_read("error.log").contains("next attempt in"));
}

/// The key of the account, and its address.
fn account(folder: &Shared) -> (String, String) {
    (folder.state("account.key"), folder.state("account.url"))
}

#[test]
fn an_account_gets_another_key() {
    let (site, pebble) = with_pebble(Driver::usual(), |_| {});
    let folder = Shared::new("rollover");
    let text = |names: &[&str], more: &str| {
        let servers: String = names.iter().map(|name| server(name, "one")).collect();
        let http = issuer(&pebble, "one", &folder.0, more) + HTTP + &servers;
        config(pebble.dns_port(), &http)
    };
    let mut weir = site.config(&text(&["a.test"], "")).start();
    certificate(&weir, "a.test");
    let (first, url) = account(&folder);
    // Of another kind.
    weir.set_config(&text(&["a.test", "b.test"], "account_key ecdsa:384;"));
    weir.reload();
    certificate(&weir, "b.test");
    let (second, same) = account(&folder);
    assert!(second != first && same == url, "{same}");
    // Another one of the same kind, because the operator wants it.
    fs::write(folder.0.join("account.rollover"), "").unwrap();
    weir.set_config(&text(&["a.test", "b.test", "c.test"], "account_key ecdsa:384;"));
    weir.reload();
    certificate(&weir, "c.test");
    let (third, same) = account(&folder);
    assert!(third != second && same == url);
    assert!(folder.file("account.rollover").is_none());
    // Killed behind the server's answer: the new key waits beside the old one.
    fs::write(folder.0.join("account.key"), &second).unwrap();
    fs::write(folder.0.join("account.next.key"), &third).unwrap();
    weir.set_config(&text(&["a.test", "d.test"], "account_key ecdsa:384;"));
    weir.reload();
    certificate(&weir, "d.test");
    assert_eq!(account(&folder), (third, url));
    assert!(folder.file("account.next.key").is_none());
    assert_eq!((pebble.accounts(), pebble.orders()), (1, 4));
    let log = weir.stop_and_read("error.log");
    let keys = log.matches("the account has another key").count();
    assert_eq!(keys, 3);
}

#[test]
fn another_file_of_the_key_is_another_account() {
    use testkit::certificates::{Key, KeyKind};
    let (site, pebble) = with_pebble(Driver::usual(), |_| {});
    let folder = Shared::new("file");
    let text = |names: &str, file: &str| {
        let http = issuer(&pebble, "one", &folder.0, &format!("account_key {file};"));
        config(pebble.dns_port(), &(http + HTTP + &server(names, "one")))
    };
    let site = site.file("conf/1.pem", Key::generate(KeyKind::P256).pem());
    let site = site.file("conf/2.pem", Key::generate(KeyKind::P256).pem());
    let mut weir = site.config(&text("a.test", "1.pem")).start();
    certificate(&weir, "a.test");
    let url = folder.state("account.url");
    weir.set_config(&text("b.test", "2.pem"));
    weir.reload();
    certificate(&weir, "b.test");
    assert_ne!(folder.state("account.url"), url);
    assert_eq!(pebble.accounts(), 2);
}

const EXTERNAL_KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

#[test]
fn an_account_is_bound_to_one_made_elsewhere() {
    let external = Some(("kid-1".to_owned(), EXTERNAL_KEY.to_owned()));
    let (site, pebble) = with_pebble(Driver::usual(), |settings| settings.external = external);
    let folder = Shared::new("external");
    let text = |more: &str| {
        let http = issuer(&pebble, "one", &folder.0, more) + HTTP + &server("a.test", "one");
        config(pebble.dns_port(), &http)
    };
    let site = site.file("conf/external.key", EXTERNAL_KEY);
    let mut weir = site.config(&text("")).start();
    weir.wait_for_log("error.log", "the server wants an \"external_account_key\"");
    // Of another identifier: the settings have changed, so it is tried at once.
    weir.set_config(&text("external_account_key kid-2 external.key;"));
    weir.reload();
    weir.wait_for_log("error.log", "making an account: ");
    assert_eq!((pebble.accounts(), try_certificate(&weir, "a.test")), (0, None));
    weir.set_config(&text("external_account_key kid-1 external.key;"));
    weir.reload();
    certificate(&weir, "a.test");
    assert_eq!((pebble.accounts(), pebble.orders()), (1, 1));
}

/// A moment so many seconds from now, as RFC 3339 has it.
fn moment(secs: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    base::time::format_utc_ms((now + secs).cast_unsigned() * 1000)
}

/// Renewal information (RFC 9773) comes from a server before pebble, whose version has none.
#[test]
fn a_certificate_is_renewed_when_the_authority_says() {
    const DAY: i64 = 86_400;
    each_driver(|driver| {
        let (site, pebble) = with_pebble(driver, |settings| settings.validity_s = 90 * 86_400);
        let mut front = Site::new(built_binary(), driver);
        let (port, files) = (front.port(0), pebble.folder().display().to_string());
        let url = |path: &str| format!("https://acme.test:{port}/{path}");
        let directory = format!(
            r#"{{"newNonce":"{}","newAccount":"{}","newOrder":"{}","renewalInfo":"{}"}}"#,
            url("nonce-plz"),
            url("sign-me-up"),
            url("order-plz"),
            url("ari")
        );
        let window = |from: i64| {
            let (start, end) = (moment(from), moment(from + DAY));
            format!(r#"{{"suggestedWindow":{{"start":"{start}","end":"{end}"}}}}"#)
        };
        let front = front
            .file("html/dir", directory)
            .file("html/ari.json", window(20 * DAY))
            .config(&format!(
                "events {{}} http {{ server {{ listen 127.0.0.1:%PORT0% ssl; root html;\n\
                 ssl_certificate {files}/acme.crt; ssl_certificate_key {files}/acme.key;\n\
                 location = /dir {{ }} location /ari/ {{ rewrite ^ /ari.json break; }}\n\
                 location / {{ proxy_pass https://127.0.0.1:{}; \n\
                 proxy_set_header Host $http_host; }} }} }}",
                pebble.port()
            ))
            .start();
        let folder = Shared::new(&format!("ari-{}", driver.name()));
        let trusted = format!("ssl_trusted_certificate {};", pebble.trusted().display());
        let http = issuer_at(&url("dir"), "one", &folder.0, &trusted) + HTTP;
        let text = config(pebble.dns_port(), &(http + &server("a.test", "one")));
        let weir = site.config(&text).start();
        let first = certificate(&weir, "a.test");
        let line = weir.wait_for_log("error.log", "is to be renewed from");
        assert!(line.contains("one/a.test-"), "{line}");
        weir.reload();
        assert_eq!(certificate(&weir, "a.test"), first);
        assert_eq!(pebble.orders(), 1);
        // The authority has changed its mind, and is asked at each start.
        front.write("html/ari.json", window(-DAY - 1));
        weir.reload();
        wait_until("another certificate", || certificate(&weir, "a.test") != first);
        assert_eq!(pebble.orders(), 2);
        assert_eq!(Client::of("a.test").get(weir.port(1), "/").status, 200);
    });
}

/// A handshake of the load: when it began, the worker, and the certificate.
type Handshake = (Instant, u32, Vec<u8>);

/// Ends the load, even where a test has failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A handshake, and the worker that it was with.
fn handshake(client: &Client, port: u16) -> std::io::Result<Handshake> {
    let began = Instant::now();
    let (mut conn, seen) = client.try_connect(port)?;
    conn.send("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    Ok((began, conn.response().text().parse().unwrap(), seen.certificate))
}

/// Handshakes without a pause until `stop`; none fails.
fn handshakes(client: &Client, port: u16, stop: &AtomicBool) -> Vec<Handshake> {
    let mut all = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        all.push(handshake(client, port).expect("a handshake failed"));
    }
    all
}

#[test]
fn every_worker_shows_a_new_certificate_within_a_second() {
    let (site, pebble) = with_pebble(Driver::usual(), |settings| {
        settings.validity_s = 14;
        // A request that is refused for its nonce is asked twice, and is counted here.
        settings.nonces_refused = 0;
    });
    let folder = Shared::new("workers");
    let server = server("a.test", "one").replace("ssl;", "ssl reuseport;");
    let http =
        issuer(&pebble, "one", &folder.0, "") + HTTP + &server.replace("$ssl_server_name", "$pid");
    let text = config(pebble.dns_port(), &http);
    let weir = site.config(&text.replace("worker_processes 2", "worker_processes 4")).start();
    let first = certificate(&weir, "a.test");
    let (stop, port) = (AtomicBool::new(false), weir.port(1));
    // The others see the first certificate within a second as well; until then they refuse.
    let client = Client::of("a.test");
    let mut without = weir.workers();
    wait_until("a certificate in every worker", || {
        let shown = handshake(&client, port).ok();
        without.retain(|&worker| shown.as_ref().is_none_or(|shown| shown.1 != worker));
        without.is_empty()
    });
    // The moment at which the authority is asked for the new certificate, before it answers.
    let fetched = || pebble.asked().iter().filter(|path| *path == "/certZ/").count();
    let (arrival, all) = std::thread::scope(|scope| {
        let version = |i: usize| if i == 0 { &tls::BOTH[..1] } else { &tls::BOTH[..] };
        let clients = (0..4).map(|i| Client::with("a.test", version(i % 2), None));
        let load: Vec<_> = clients
            .map(|client| {
                scope.spawn({
                    let stop = &stop;
                    move || handshakes(&client, port, stop)
                })
            })
            .collect();
        let ends = Stop(&stop);
        wait_until("the renewal", || fetched() == 2);
        let arrival = Instant::now();
        std::thread::sleep(Duration::from_millis(1500));
        drop(ends);
        let all: Vec<_> = load.into_iter().flat_map(|one| one.join().unwrap()).collect();
        (arrival, all)
    });
    let old = all.iter().filter(|(_, _, certificate)| *certificate == first);
    let last_old = old.map(|(began, ..)| *began).max().unwrap();
    let late = last_old.saturating_duration_since(arrival);
    println!("{} handshakes; the old certificate was shown for {} ms", all.len(), late.as_millis());
    assert!(late < Duration::from_secs(1), "{late:?}");
    for worker in weir.workers() {
        let is_new = |one: &&Handshake| one.1 == worker && one.2 != first;
        assert!(all.iter().any(|one| is_new(&one)), "{worker} shows the old one");
    }
}
