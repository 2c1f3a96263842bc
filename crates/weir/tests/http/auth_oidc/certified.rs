//! `auth_oidc` with a certified provider, the npm package `oidc-provider` on Node. The variable
//! `WEIR_OIDC_PROVIDER` names the folder `node_modules` that has it; without it, the test is
//! skipped.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use testkit::{Conn, Driver, Response, Site, Weir, built_binary, each_driver, wait_until};

use super::provider::{Browser, arguments, certificates};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/auth_oidc/provider.mjs");

const CONF: &str = "
    add_header X-Claims '$oidc_claim_sub|$oidc_claim_email';
    oidc_provider main {
        issuer https://127.0.0.1:%PORT1%;
        client_id me;
        client_secret secret-canary;
        ssl_trusted_certificate root.pem;
        scope openid email;
        userinfo on;
        logout_uri /logout;
        post_logout_uri /bye.txt;
        backchannel_logout_uri /back;
    }
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        location / { auth_oidc main; }
        location = /bye.txt { auth_oidc off; }
    }
    server {
        listen 127.0.0.1:%PORT1% ssl;
        ssl_certificate provider.pem;
        ssl_certificate_key provider.key;
        location / {
            proxy_pass http://127.0.0.1:%PORT2%;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto https;
        }
    }";

/// The provider with its users' cookies.
struct Node {
    process: Child,
    port: u16,
    issuer: String,
    cookies: BTreeMap<String, String>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Node {
    fn start(modules: &str, method: &str, weir: &Weir) -> Node {
        let (port, issuer) = (weir.port(2), format!("https://127.0.0.1:{}", weir.port(1)));
        let mut process = Command::new("node")
            .args([SCRIPT, modules, &port.to_string(), &issuer])
            .args([&format!("http://127.0.0.1:{}", weir.port(0)), method])
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let out = process.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("the provider says that it is ready");
        assert_eq!(line, "ready\n");
        Node { process, port, issuer, cookies: BTreeMap::new() }
    }

    /// A request to a URL of the provider, as the TLS in front of it forwards it.
    fn send(&mut self, method: &str, url: &str, body: &str) -> Response {
        let path = url.strip_prefix(&self.issuer).unwrap_or(url);
        let host = self.issuer.strip_prefix("https://").expect("an origin");
        let pairs: Vec<_> = self.cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let mut conn = Conn::tcp(self.port);
        conn.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Proto: https\r\n\
             Accept: text/html\r\nCookie: {}\r\nConnection: close\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
            pairs.join("; "),
            body.len()
        ));
        let response = conn.response();
        for set in response.all("Set-Cookie") {
            let (name, rest) = set.split_once('=').expect("a cookie");
            let value = rest.split(';').next().unwrap_or_default();
            match value.is_empty() {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        response
    }

    /// Follows redirects within the provider, fills in its forms, and returns the URL that it
    /// redirects to in the end.
    fn follow(&mut self, url: &str) -> String {
        let mut response = self.send("GET", url, "");
        for _ in 0..20 {
            if let Some(location) = response.header("Location").map(str::to_owned) {
                if !location.starts_with('/') && !location.starts_with(&self.issuer) {
                    return location;
                }
                response = self.send("GET", &location, "");
                continue;
            }
            let page = response.text();
            assert_eq!(response.status, 200, "{page}");
            let action = page.split("action=\"").nth(1).and_then(|rest| rest.split('"').next());
            let action = action.unwrap_or_else(|| panic!("no form: {page}")).to_owned();
            let xsrf = page.split("name=\"xsrf\" value=\"").nth(1);
            let xsrf = xsrf.and_then(|rest| rest.split('"').next()).unwrap_or_default();
            let body = match page.contains("name=\"login\"") {
                true => "prompt=login&login=alice&password=x".to_owned(),
                false if xsrf.is_empty() => "prompt=consent".to_owned(),
                false => format!("xsrf={xsrf}&logout=yes"),
            };
            response = self.send("POST", &action, &body);
        }
        panic!("the provider does not come to an end");
    }
}

fn sign_in(browser: &mut Browser, node: &mut Node, weir: &Weir) {
    let response = browser.get(weir, "/a.txt?x");
    assert_eq!(response.status, 302, "{}", weir.error_log());
    let callback = node.follow(response.header("Location").expect("a login"));
    let path = callback.strip_prefix("http://localhost").expect("the redirect URI");
    let response = browser.get(weir, path);
    assert_eq!(response.status, 302, "{}", weir.error_log());
    assert_eq!(response.header("Location"), Some("http://localhost/a.txt?x"));
    let page = browser.get(weir, "/a.txt?x");
    assert_eq!(page.header("X-Claims"), Some("alice|alice@b.test"), "{}", weir.error_log());
}

fn site(driver: Driver) -> Site {
    let [root, certificate, key] = certificates();
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .file("html/bye.txt", "bye")
        .file("conf/root.pem", root)
        .file("conf/provider.pem", certificate)
        .file("conf/provider.key", key)
        .http(CONF)
}

#[test]
fn a_certified_provider_signs_users_in_and_out() {
    let Ok(modules) = std::env::var("WEIR_OIDC_PROVIDER") else {
        return eprintln!("SKIPPED: WEIR_OIDC_PROVIDER names no folder with oidc-provider");
    };
    each_driver(|driver| {
        let weir = site(driver).start();
        let method = match driver == Driver::usual() {
            true => "client_secret_post",
            false => "client_secret_basic",
        };
        let mut node = Node::start(&modules, method, &weir);
        let mut browser = Browser::default();
        sign_in(&mut browser, &mut node, &weir);
        // Access tokens live for a second, and refresh tokens are used once.
        let token = |line: &str| line.contains("POST /token");
        let count = || weir.log("access.log").lines().filter(|line| token(line)).count();
        wait_until("three refreshes", || {
            assert_eq!(browser.get(&weir, "/a.txt").status, 200, "{}", weir.error_log());
            count() >= 4
        });
        // A logout that begins here.
        let response = browser.get(&weir, "/logout");
        assert_eq!(response.status, 302);
        let end = response.header("Location").expect("the provider's logout").to_owned();
        let args = arguments(end.split_once('?').expect("arguments").1);
        assert_eq!(args["post_logout_redirect_uri"], "http://localhost/bye.txt");
        assert_eq!(node.follow(&end), "http://localhost/bye.txt");
        assert_eq!(browser.get(&weir, "/a.txt").status, 302);
        // One that begins there, with a logout token.
        sign_in(&mut browser, &mut node, &weir);
        let end = format!("{}/session/end?client_id=me&{}", node.issuer, {
            "post_logout_redirect_uri=http%3A%2F%2Flocalhost%2Fbye.txt"
        });
        assert_eq!(node.follow(&end), "http://localhost/bye.txt");
        weir.wait_for_log("error.log", "back-channel logout");
        assert_eq!(browser.get(&weir, "/a.txt").status, 302, "{}", weir.error_log());
    });
}
