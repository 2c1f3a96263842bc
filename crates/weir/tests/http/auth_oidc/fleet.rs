//! Sessions over two servers that share them through a Redis.

use testkit::{Driver, Peer, Site, Weir, built_binary, signal, wait_until};

use super::provider::{Browser, Provider, certificates};
use super::{CONF, claims};

/// Two servers, of which the first is in front of the provider, too.
fn two(redis: &Peer) -> (Weir, Weir, Provider) {
    let [root, certificate, key] = certificates();
    let site = || {
        Site::new(built_binary(), Driver::usual())
            .file("html/a.txt", "hello")
            .file("html/bye.txt", "bye")
            .file("conf/root.pem", &root)
            .file("conf/provider.pem", &certificate)
            .file("conf/provider.key", &key)
            .file("conf/secret", "secret-canary\n")
    };
    let (mut first, second) = (site(), site());
    let issuer = format!("https://127.0.0.1:{}", first.port(1));
    let provider = Provider::start(issuer.clone());
    let user = if os::process::geteuid().is_root() { "user root;" } else { "" };
    let conf = CONF
        .replace("BACKEND", &provider.port.to_string())
        .replace("MORE", "")
        .replace("issuer https://127.0.0.1:%PORT1%", &format!("issuer {issuer}"))
        .replace("zone=sessions:1m;", "zone=sessions:1m timeout=1h sync;");
    let whole = |http: &str| {
        let engine = format!("redis://127.0.0.1:{} prefix=oidc interval=20ms", redis.port());
        let status = "server { listen 127.0.0.1:%PORT2%; location / { stub_status json; } }";
        format!(
            "{user} worker_processes 2; shared_state {engine} timeout=400ms; events {{}}
             http {{ {http} {status} }}"
        )
    };
    let provider_at = conf.find("server {\n        listen 127.0.0.1:%PORT1%").unwrap();
    let first = first.config(&whole(&conf)).start();
    let second = second.config(&whole(&conf[..provider_at])).start();
    (first, second, provider)
}

#[test]
fn a_session_of_one_server_is_known_on_both() {
    let redis = Peer::redis();
    let (first, second, provider) = two(&redis);
    let mut browser = Browser::default();
    let location = browser.get(&first, "/a.txt").header("Location").unwrap().to_owned();
    let callback = provider.sign_in(&location);
    assert_eq!(browser.get(&first, &format!("/oidc_callback?{callback}")).status, 302);
    let is_in = |browser: &Browser, weir: &Weir| {
        // A browser of its own: a redirect to the provider would give it a cookie more.
        let page = browser.clone().get(weir, "/a.txt");
        page.status == 200 && claims(&page) == "alice|" && page.text() == "hello"
    };
    assert!(is_in(&browser, &first));
    wait_until("the other server knows the session", || is_in(&browser, &second));
    // Without Redis both serve on.
    signal(redis.pid(), "STOP");
    assert!(is_in(&browser, &first) && is_in(&browser, &second));
    signal(redis.pid(), "CONT");
    // A logout on one server is one on both.
    let stolen = browser.clone();
    assert_eq!(browser.get(&second, "/logout").status, 302);
    assert!(!is_in(&stolen, &second));
    wait_until("the session is over on the first one", || !is_in(&stolen, &first));
}
