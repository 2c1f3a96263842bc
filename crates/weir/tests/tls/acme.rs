//! Certificates by ACME, from pebble.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::acme_site::{
    HTTP, STATUS, acme_process, certificate, config, holds, issuer, server, with_pebble,
};
use crate::memory_search::holds_in_memory;
use crate::tls::Client;
use testkit::{Driver, Json, Port, Site, Weir, built_binary, each_driver, wait_until};

/// The file of the folder whose name ends so.
fn file(folder: &Path, end: &str) -> Option<std::path::PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| path.to_string_lossy().ends_with(end))
}

#[test]
fn a_certificate_comes_by_http() {
    each_driver(|driver| {
        let (site, pebble) = with_pebble(driver, |_| {});
        let http = issuer(&pebble, "one", "%PREFIX%/state", "contact a@b.test;")
            + HTTP
            + STATUS
            + &server("a.test www.a.test", "one");
        let weir = site.config(&config(pebble.dns_port(), &http)).start();
        let der = certificate(&weir, "a.test");
        assert!(holds(&der, b"www.a.test"));
        let body = Client::of("www.a.test").get(weir.port(1), "/").body;
        assert_eq!(body, b"www.a.test");
        // A path that is no challenge is served as ever.
        weir.answers_with(&[
            ("GET", "/.well-known/acme-challenge/unknown", 301),
            ("GET", "/", 301),
        ]);
        let folder = weir.prefix().join("state");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        for end in ["account.key", "account.url", ".crt", ".key", ".state", ".lock"] {
            let path = file(&folder, end).unwrap_or_else(|| panic!("no {end}"));
            assert_eq!(mode(&path), 0o600, "{end}");
        }
        assert!(file(&folder, ".next.key").is_none() && file(&folder, ".challenges").is_none());
        assert_eq!(pebble.orders(), 1);
    });
}

/// Certificates and orders in the status, the API and Prometheus's table, before and behind the
/// first certificate.
#[test]
fn the_status_tells_of_orders() {
    each_driver(|driver| {
        let port = Port::reserve();
        let at = Some(port.number());
        let (site, mut pebble) = with_pebble(driver, |settings| settings.port = at);
        pebble.end();
        let http = issuer(&pebble, "one", "%PREFIX%/state", "")
            + HTTP
            + STATUS
            + &server("a.test www.a.test", "one");
        let mut weir = site.config(&config(pebble.dns_port(), &http)).start();
        let get = |weir: &Weir, path: &str| {
            let mut conn = testkit::Conn::tcp(weir.port(2));
            conn.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
            conn.response().text()
        };
        let order = |weir: &Weir| {
            let all = Json::parse(&get(weir, "/api/9/weir/certificates"));
            let [name] = all.names()[..] else { panic!("{all:?}") };
            assert!(name.starts_with("one/a.test-"), "{name}");
            name.to_owned()
        };
        weir.wait_for_log("error.log", "next attempt in");
        let name = order(&weir);
        let state = get(&weir, &format!("/api/9/weir/certificates/{name}"));
        for part in
            ["\"servers\":\"a.test\"", "\"issued\":false", "\"failures\":1", "next attempt in"]
        {
            assert!(state.contains(part), "{part}: {state}");
        }
        let of_metrics = |weir: &Weir, family: &str| {
            let text = get(weir, "/metrics");
            let start = format!("weir_certificate_{family}{{certificate=\"{name}\"}} ");
            let found = text.lines().find_map(|line| line.strip_prefix(&start));
            found.map(|number| number.parse::<u64>().unwrap())
        };
        assert_eq!(of_metrics(&weir, "issued"), Some(0));
        assert_eq!(of_metrics(&weir, "failures"), Some(1));
        assert_eq!(of_metrics(&weir, "expires_seconds"), None);
        // One that is not there is no certificate of the TLS module's list.
        assert!(get(&weir, "/").contains("\"ssl\":{\"certificates\":[]}"));
        pebble.go_on();
        fs::remove_file(weir.prefix().join("state/one.account.state")).unwrap();
        weir.restart();
        certificate(&weir, "a.test");
        wait_until("the order to be over", || of_metrics(&weir, "issued") == Some(1));
        assert_eq!(of_metrics(&weir, "failures"), Some(0));
        let now = base::time::unix_secs();
        let expires = of_metrics(&weir, "expires_seconds").unwrap();
        assert!((now..now + 4000).contains(&expires), "{expires}");
        wait_until("a time of renewal", || {
            of_metrics(&weir, "renewal_seconds").is_some_and(|at| (now..expires).contains(&at))
        });
        let status = get(&weir, "/");
        let listed =
            format!("\"ssl\":{{\"certificates\":[{{\"file\":\"{name}\",\"servers\":\"a.test\"");
        assert!(status.contains(&listed), "{status}");
        assert!(status.contains("\"acme\":{\"certificates\":[{\"order\":\"one/a.test-"));
        assert!(get(&weir, "/api/9/weir/certificates/none").contains("CertificateNotFound"));
    });
}

#[test]
fn the_other_challenges_wildcards_and_addresses() {
    each_driver(|driver| {
        let (site, pebble) = with_pebble(driver, |_| {});
        let port = pebble.records_port();
        let script = format!(
            "#!/bin/sh\npython3 - \"$@\" <<'END'\nimport json, sys, urllib.request\n\
             verb, host, value = sys.argv[1:]\n\
             what = 'set-txt' if verb == 'present' else 'clear-txt'\n\
             data = json.dumps({{'host': host, 'value': value}}).encode()\n\
             urllib.request.urlopen('http://127.0.0.1:{port}/' + what, data)\nEND\n"
        );
        testkit::write_script(&site.prefix().join("conf/dns.sh"), &script);
        let http = issuer(&pebble, "alpn", "%PREFIX%/s1", "challenge tls-alpn-01;")
            + &issuer(&pebble, "dns", "%PREFIX%/s2", "challenge dns-01 exec=dns.sh;")
            + &issuer(&pebble, "off", "off", "account_key rsa:2048;")
            + HTTP
            + &server("b.test", "alpn 127.0.0.1 b.test key=rsa:2048")
            + &server("*.w.test w.test", "dns")
            + &server("h.test", "off h.test 127.0.0.1 key=ecdsa:256");
        let weir = site.config(&config(pebble.dns_port(), &http)).start();
        let address = [0x87, 4, 127, 0, 0, 1];
        let der = certificate(&weir, "b.test");
        assert!(holds(&der, b"b.test") && holds(&der, &address));
        let der = certificate(&weir, "x.w.test");
        assert!(holds(&der, b"*.w.test"));
        assert!(holds(&certificate(&weir, "h.test"), &address));
        // Without a folder, a reload goes on with what is in memory.
        weir.reload();
        let again = certificate(&weir, "h.test");
        weir.reload();
        assert_eq!(certificate(&weir, "h.test"), again);
        assert_eq!(pebble.orders(), 3);
        // Validators alone speak the protocol of challenges.
        let client = Client::of("b.test").with_alpn(&["acme-tls/1"]);
        assert!(client.try_connect(weir.port(1)).is_err());
    });
}

#[test]
fn restarts_and_reloads_order_nothing() {
    let (site, pebble) = with_pebble(Driver::usual(), |_| {});
    let http = issuer(&pebble, "one", "%PREFIX%/state", "") + HTTP + &server("a.test", "one");
    let mut weir = site.config(&config(pebble.dns_port(), &http)).start();
    let first = certificate(&weir, "a.test");
    weir.reload();
    assert_eq!(certificate(&weir, "a.test"), first);
    weir.restart();
    assert_eq!(certificate(&weir, "a.test"), first);
    // A folder of nginx-acme has no more than these.
    let folder = weir.prefix().join("state");
    for end in [".state", ".lock"] {
        fs::remove_file(file(&folder, end).unwrap()).unwrap();
    }
    weir.restart();
    assert_eq!(certificate(&weir, "a.test"), first);
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn a_certificate_is_renewed_while_it_is_served() {
    let (site, pebble) = with_pebble(Driver::usual(), |settings| settings.validity_s = 8);
    let http = issuer(&pebble, "one", "%PREFIX%/state", "") + HTTP + &server("a.test", "one");
    let weir = site.config(&config(pebble.dns_port(), &http)).start();
    let first = certificate(&weir, "a.test");
    let port = weir.port(1);
    let stop = Arc::new(AtomicBool::new(false));
    let load = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(Client::of("a.test").get(port, "/").status, 200);
                count += 1;
            }
            count
        }
    });
    wait_until("another certificate", || certificate(&weir, "a.test") != first);
    stop.store(true, Ordering::Relaxed);
    assert!(load.join().unwrap() > 0, "a handshake failed");
    let second = certificate(&weir, "a.test");
    for _ in 0..20 {
        assert_ne!(certificate(&weir, "a.test"), first, "a worker shows the old one");
    }
    drop(second);
}

#[test]
fn workers_do_not_hold_the_account_key() {
    // Made here and named by the configuration: the master reads such a file, too, at its start.
    let (site, pebble) = with_pebble(Driver::usual(), |_| {});
    let key = testkit::certificates::Key::generate(testkit::certificates::KeyKind::P256);
    let site = site.file("conf/account.pem", key.pem());
    let http = issuer(&pebble, "file", "%PREFIX%/s1", "account_key account.pem;")
        + &issuer(&pebble, "made", "%PREFIX%/s2", "")
        + HTTP
        + &server("a.test", "file")
        + &server("b.test", "made");
    let weir = site.config(&config(pebble.dns_port(), &http)).start();
    certificate(&weir, "a.test");
    certificate(&weir, "b.test");
    let own = key.pem();
    let made = fs::read_to_string(weir.prefix().join("s2/account.key")).unwrap();
    let before = weir.workers();
    weir.reload();
    certificate(&weir, "b.test");
    wait_until("the workers from before to end", || {
        let now = weir.workers();
        !now.is_empty() && !before.iter().any(|pid| now.contains(pid))
    });
    for pem in [own, made] {
        let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let mut der = Vec::new();
        assert!(base::base64::decode(base64.as_bytes(), &mut der));
        // The scalar in PKCS#8 is an octet string of 32 bytes.
        let at = memchr::memmem::find(&der, &[4, 32]).unwrap() + 2;
        let scalar = &der[at..at + 32];
        let reversed: Vec<u8> = scalar.iter().rev().copied().collect();
        let text = &base64.as_bytes()[base64.len() / 2..base64.len() / 2 + 24];
        for secret in [scalar, &reversed, text] {
            for pid in weir.workers() {
                assert!(!holds_in_memory(pid, secret), "a worker holds the key");
            }
            assert!(!holds_in_memory(weir.pid(), secret), "the master holds the key");
        }
        wait_until("the acme process holds it, so the search finds something", || {
            // The one before the reload may still be leaving.
            acme_process(&weir).is_some_and(|pid| holds_in_memory(pid, scalar))
        });
    }
}

#[test]
fn configurations_that_are_refused() {
    let block = |inner: &str| format!("acme_issuer x {{ {inner} }} resolver 127.0.0.1;");
    let with = |names: &str, certificate: &str| {
        format!(
            "resolver 127.0.0.1; acme_issuer x {{ uri https://a.test/; ssl_verify off; }}\n\
             server {{ listen 127.0.0.1:%PORT0%; server_name {names}; acme_certificate \
             {certificate}; }}"
        )
    };
    let cases: Vec<(String, &str)> = vec![
        (block(""), "acme_issuer: \"uri\" is missing"),
        (block("uri a.test;"), "invalid URL \"a.test\""),
        (block("uri https://a.test/; uri https://a.test/;"), "\"uri\" directive is duplicate"),
        (block("account_key ecdsa:234;"), "unsupported curve in \"ecdsa:234\""),
        (block("account_key rsa:1024;"), "unsupported key size in \"rsa:1024\""),
        (block("account_key none.key;"), "cannot load account key \"%PREFIX%/conf/none.key\""),
        (block("challenge dns-01;"), "\"dns-01\" must have the \"exec\" parameter"),
        (block("challenge http-01 exec=x;"), "invalid parameter \"exec=x\""),
        (block("challenge other;"), "unsupported challenge: other"),
        (block("external_account_key k data:!;"), "invalid base64url encoded value"),
        (block("external_account_key k none;"), "cannot load external account key"),
        (block("profile short need;"), "invalid value \"need\""),
        (block("nonsense;"), "unknown directive \"nonsense\""),
        (
            "acme_issuer x { uri https://a.test/; ssl_verify off; }".to_owned(),
            "acme_issuer: \"resolver\" is not configured",
        ),
        ("acme_shared_zone bad;".to_owned(), "must have \"zone\" parameter"),
        ("acme_shared_zone zone=a:bad;".to_owned(), "invalid zone size \"zone=a:bad\""),
        (with("a.test", "y"), "issuer \"y\" is missing"),
        (with("\"\"", "x"), "no identifiers found in \"server_name\""),
        (with("a.test", "x a..test"), "invalid server name: unexpected character '.'"),
        (with("www.a.*", "x"), "invalid server name: unexpected character '*'"),
        (with("*.a.test", "x"), "\"*.a.test\" can be proved by dns-01 alone"),
        (with("a.test", "x key=dsa"), "invalid \"key\" value"),
        (with("a.test", "x; acme_certificate x"), "\"acme_certificate\" directive is duplicate"),
    ];
    for (text, message) in &cases {
        let site = Site::new(built_binary(), Driver::usual()).http(text);
        let message = message.replace("%PREFIX%", &site.prefix().to_string_lossy());
        site.is_refused(&message);
    }
}
