//! Several servers of which each has a copy of the folder (`state_path … sync=`), which Redis keeps
//! the same.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Instant;

use testkit::pebble::{Pebble, Settings};
use testkit::{Driver, Peer, Site, Weir, built_binary, signal, wait_for, wait_until};

use crate::acme_kills::{at_each_state, is_settled};
use crate::acme_site::gateway::Gateway;
use crate::acme_site::{HTTP, STATUS, Shared, certificate, config, issuer_at, server};

const KEY: &str = "0123456789abcdef0123456789abcdef\n";

/// Runs a command on Redis; the answer.
fn run(redis: &Peer, command: &str) -> Vec<u8> {
    let mut to = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    to.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    to.read_to_end(&mut answer).unwrap();
    answer
}

fn is_locked(redis: &Peer) -> bool {
    run(redis, "EXISTS acme:{a:one}:l").starts_with(b":1")
}

/// The configuration of a server: the authority is at `uri`.
fn text(pebble: &Pebble, uri: &str, redis: &Peer, folder: &Shared) -> String {
    let trusted = format!("ssl_trusted_certificate {};", pebble.trusted().display());
    let path = format!("{} sync=secret", folder.0.display());
    let http = issuer_at(uri, "one", path, &trusted) + HTTP + STATUS + &server("a.test", "one");
    let shared = format!("shared_state redis://127.0.0.1:{} prefix=acme;\n", redis.port());
    shared + &config(pebble.dns_port(), &http)
}

fn site(secret: &str) -> Site {
    let site = Site::new(built_binary(), Driver::usual()).file("conf/secret", secret);
    site.allow("acme process * exited on signal 9")
}

fn status(weir: &Weir) -> String {
    let mut to = TcpStream::connect(("127.0.0.1", weir.port(2))).unwrap();
    to.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    to.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn three_servers_make_one_order() {
    let redis = Peer::redis();
    let mut sites: Vec<_> = (0..3).map(|_| site(KEY)).collect();
    // The validator comes to one of them.
    let (http, tls) = (sites[1].port(0), sites[1].port(1));
    let pebble = Pebble::start(Settings::new(http, tls));
    let folders = ["first", "second", "third"].map(Shared::new);
    let uri = pebble.directory();
    let nodes: Vec<_> = sites
        .into_iter()
        .zip(&folders)
        .map(|(site, folder)| site.config(&text(&pebble, &uri, &redis, folder)).start())
        .collect();
    let all = served_by_all(&nodes);
    assert!(all.iter().all(|one| *one == all[0]), "each has the same");
    assert_eq!((pebble.orders(), pebble.accounts()), (1, 1));
    let key = folders.each_ref().map(|folder| folder.state(".key"));
    assert!(key[0].contains("PRIVATE KEY") && key.iter().all(|one| *one == key[0]));
    // Redis has the files, and nobody can read them there.
    let kept = run(&redis, "HGETALL acme:{a:one}:d");
    let has = |part: &[u8]| memchr::memmem::find(&kept, part).is_some();
    assert!(has(b"account.key") && !has(b"PRIVATE") && !has(b"BEGIN"));
    // Without Redis, certificates stay in use, over a restart as well.
    signal(redis.pid(), "STOP");
    let mut first = nodes.into_iter().next().unwrap();
    first.crash();
    first.start_again();
    assert_eq!(certificate(&first, "a.test"), all[0]);
    first.wait_for_log("error.log", "the shared folder is away");
    signal(redis.pid(), "CONT");
}

/// Waits until all servers have the certificate, and prints how long that took since the end of the
/// order. The log of the server that placed the order has that time.
fn served_by_all(nodes: &[Weir]) -> Vec<Vec<u8>> {
    let has_issued = |weir: &Weir| {
        let log = weir.log("error.log");
        log.lines().any(|line| line.contains("acme: certificate") && line.ends_with("issued"))
    };
    wait_until("the end of the order", || nodes.iter().any(has_issued));
    let ended = Instant::now();
    let all = nodes.iter().map(|weir| certificate(weir, "a.test")).collect();
    let ms = ended.elapsed().as_millis();
    println!("{} servers serve the certificate {ms} ms after the order's end", nodes.len());
    all
}

/// A server that proves by TXT records is stopped between their making and their removal, and
/// another one ends the order: no record stays.
#[test]
fn no_txt_record_stays_when_another_server_takes_over() {
    let redis = Peer::redis();
    let mut sites = [site(KEY), site(KEY)];
    let mut settings = Settings::new(sites[1].port(0), sites[1].port(1));
    settings.nonces_refused = 0;
    let pebble = Arc::new(Pebble::start(settings));
    let gateway = Gateway::start(&pebble);
    let uri = format!("https://acme.test:{}/dir", gateway.port);
    let folders = ["first", "second"].map(Shared::new);
    // The program runs as the user of the acme process.
    let below = testkit::Folder::new("calls");
    std::fs::set_permissions(&*below, PermissionsExt::from_mode(0o777)).unwrap();
    let calls = below.join("calls");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}\npython3 - \"$@\" <<'END'\n\
         import json, sys, urllib.request\nverb, host, value = sys.argv[1:]\n\
         what = 'set-txt' if verb == 'present' else 'clear-txt'\n\
         data = json.dumps({{'host': host, 'value': value}}).encode()\n\
         urllib.request.urlopen('http://127.0.0.1:{}/' + what, data)\nEND\n",
        calls.display(),
        pebble.records_port(),
    );
    let [first, second] = [0, 1].map(|i| {
        testkit::write_script(&sites[i].prefix().join("conf/dns.sh"), &script);
        let text = text(&pebble, &uri, &redis, &folders[i]);
        text.replace("accept_terms", "challenge dns-01 exec=dns.sh; accept_terms")
    });
    let [one, two] = sites;
    // The authority has looked at the records, and the server does not know.
    gateway.close("/chalZ/", 1);
    let one = one.config(&first).start();
    wait_until("the first server to lead", || is_locked(&redis));
    gateway.open();
    gateway.wait();
    let acme = wait_for("the acme process", || crate::acme_site::acme_process(&one));
    signal(acme, "STOP");
    run(&redis, "DEL acme:{a:one}:l");
    gateway.go_on();
    let two = two.config(&second).start();
    certificate(&two, "a.test");
    is_settled(&folders[1]);
    let of = |verb: &str| -> Vec<String> {
        let text = std::fs::read_to_string(&calls).unwrap_or_default();
        let of_verb = text.lines().filter_map(|line| line.strip_prefix(verb));
        of_verb.map(str::to_owned).collect()
    };
    let (made, removed) = (of("present "), of("cleanup "));
    assert!(!made.is_empty() && made.iter().all(|record| removed.contains(record)), "{made:?}");
    signal(acme, "CONT");
}

/// The server that leads is killed at each state: another one ends the order.
#[test]
fn the_server_that_leads_is_killed() {
    let redis = Peer::redis();
    let mut second = site(KEY);
    let mut settings = Settings::new(second.port(0), second.port(1));
    settings.nonces_refused = 0;
    let pebble = Arc::new(Pebble::start(settings));
    let gateway = Gateway::start(&pebble);
    let uri = format!("https://acme.test:{}/dir", gateway.port);
    let folders = ["first", "second"].map(Shared::new);
    let of = |folder: &Shared| text(&pebble, &uri, &redis, folder);
    let mut first = site(KEY).config(&of(&folders[0])).start();
    first.crash();
    let mut second = second.config(&of(&folders[1])).start();
    second.crash();
    at_each_state(&pebble, &gateway, || {
        for folder in &folders {
            let _ = std::fs::remove_dir_all(&folder.0);
        }
        run(&redis, "FLUSHALL");
        first.start_again();
        wait_until("the first server to lead", || is_locked(&redis));
        second.start_again();
        wait_until("the second one to follow", || status(&second).contains("another server"));
        gateway.open();
        gateway.wait();
        first.crash();
        // It ends by its lifetime, else.
        run(&redis, "DEL acme:{a:one}:l");
        gateway.go_on();
        certificate(&second, "a.test");
        is_settled(&folders[1]);
        second.crash();
    });
}

/// A server that was stopped while it led writes nothing when it goes on.
#[test]
fn a_leader_that_was_stopped_is_fenced_off() {
    let redis = Peer::redis();
    let mut second = site(KEY);
    let mut settings = Settings::new(second.port(0), second.port(1));
    settings.nonces_refused = 0;
    let pebble = Arc::new(Pebble::start(settings));
    let gateway = Gateway::start(&pebble);
    let uri = format!("https://acme.test:{}/dir", gateway.port);
    let folders = ["first", "second"].map(Shared::new);
    gateway.close("/finalize-order/", 1);
    let first = site(KEY).config(&text(&pebble, &uri, &redis, &folders[0])).start();
    wait_until("the first server to lead", || is_locked(&redis));
    let second = second.config(&text(&pebble, &uri, &redis, &folders[1])).start();
    wait_until("the second one to follow", || status(&second).contains("another server"));
    gateway.open();
    gateway.wait();
    let acme = wait_for("the acme process", || crate::acme_site::acme_process(&first));
    signal(acme, "STOP");
    run(&redis, "DEL acme:{a:one}:l");
    gateway.go_on();
    let issued = certificate(&second, "a.test");
    is_settled(&folders[1]);
    signal(acme, "CONT");
    // It hears that it leads no more, and takes over what the other one has made.
    wait_until("the first server to follow", || {
        crate::acme_site::try_certificate(&first, "a.test").is_some_and(|one| one == issued)
    });
    assert_eq!(pebble.orders(), 1);
    assert_eq!(crate::acme_site::try_certificate(&second, "a.test"), Some(issued));
}

#[test]
fn another_key_is_named_and_a_missing_one_refused() {
    let redis = Peer::redis();
    let mut first = site(KEY);
    let pebble = Pebble::start(Settings::new(first.port(0), first.port(1)));
    let folders = ["first", "second"].map(Shared::new);
    let uri = pebble.directory();
    let first = first.config(&text(&pebble, &uri, &redis, &folders[0])).start();
    certificate(&first, "a.test");
    let other = KEY.replace('0', "1");
    let second = site(&other).config(&text(&pebble, &uri, &redis, &folders[1])).start();
    second.wait_for_log("error.log", "have another key than \"sync\" names");
    assert_eq!(pebble.orders(), 1, "it orders nothing");
    let whole = text(&pebble, &uri, &redis, &folders[1]);
    for (config, message) in [
        (whole.replace("sync=secret", "sync=none"), "none\": open() failed"),
        (whole.replace("sync=secret", "sync"), "invalid parameter \"sync\""),
        (whole.replacen("shared_state", "#", 1), "\"sync\" needs the directive \"shared_state\""),
    ] {
        let output = site("short").config(&config).is_refused("");
        assert!(output.contains(message), "{output}");
    }
    // Another issuer has the same path.
    let path = folders[1].0.display().to_string();
    let sync = " sync=secret";
    for (own, others) in [(sync, sync), ("", sync), (sync, "")] {
        let second = issuer_at(&uri, "two", format!("{path}{own}"), "");
        let config = whole.replacen(sync, others, 1);
        let config = config.replacen("acme_issuer", &(second + "acme_issuer"), 1);
        let output = site(KEY).config(&config).is_refused("this path, too, which excludes");
        assert!(output.contains("issuer \"two\" has"), "{output}");
    }
    let output = site("short").config(&whole).is_refused("");
    assert!(output.contains("it has fewer than 32 bytes"), "{output}");
}
