//! `auth_oidc` against a provider that lies on request.

mod certified;
mod fleet;
mod provider;

use serde_json::json;
use testkit::{Driver, Response, Site, Weir, built_binary, each_driver, refused};

use provider::{Browser, CANARIES, Provider, arguments, certificates};

const CONF: &str = "
    add_header X-Claims '$oidc_claim_sub|$oidc_claim_email' always;
    add_header X-Access '$oidc_access_token';
    auth_jwt_claim_set $city address locality;
    add_header X-City $city;
    add_header X-Userinfo '$oidc_userinfo';
    keyval_zone zone=sessions:1m;
    map $host $by_host { app.test app; off.test off; none.test none; default ''; }
    oidc_provider main {
        issuer https://127.0.0.1:%PORT1%;
        client_id me;
        client_secret secret-canary;
        ssl_trusted_certificate root.pem;
        session_store sessions;
        logout_uri /logout;
        post_logout_uri /bye.txt;
        logout_token_hint on;
        frontchannel_logout_uri /front;
        backchannel_logout_uri /back;
        MORE
    }
    oidc_provider app {
        issuer https://127.0.0.1:%PORT1%;
        client_id me;
        client_secret_file secret;
        ssl_trusted_certificate root.pem;
        redirect_uri https://app.test/cb;
        cookie_name APP;
        extra_auth_args prompt=login;
        logout_uri /app-logout;
    }
    server {
        listen 127.0.0.1:%PORT0%;
        http2 on;
        root html;
        location / { auth_oidc main; auth_jwt off token=$oidc_id_token; }
        location /by/ { auth_oidc $by_host; alias html/; }
        location = /cb { auth_oidc $by_host; }
        location = /app-logout { auth_oidc app; }
        location = /bye.txt { auth_oidc off; }
        location /expires/ { auth_oidc main; expires 1h; alias html/; }
        location /own/ { auth_oidc main; add_header Cache-Control max-age=5; alias html/; }
        location /any/ { satisfy any; deny all; auth_oidc main; alias html/; }
        location /inside/ { auth_oidc main; internal_redirect /inner/a.txt; }
        location /inner/ { internal; alias html/; }
    }
    server {
        listen 127.0.0.1:%PORT1% ssl;
        ssl_certificate provider.pem;
        ssl_certificate_key provider.key;
        access_log off;
        location / { proxy_pass http://127.0.0.1:BACKEND; }
    }";

struct World {
    weir: Weir,
    provider: Provider,
    issuer: String,
}

fn start(driver: Driver, more: &str) -> World {
    start_with(driver, CONF, more, 1)
}

fn start_with(driver: Driver, conf: &str, more: &str, workers: usize) -> World {
    let [root, certificate, key] = certificates();
    let mut site = Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .file("html/bye.txt", "bye")
        .file("conf/root.pem", root)
        .file("conf/provider.pem", certificate)
        .file("conf/provider.key", key)
        .file("conf/secret", "secret-canary\n");
    let issuer = format!("https://127.0.0.1:{}", site.port(1));
    let provider = Provider::start(issuer.clone());
    let conf = conf.replace("BACKEND", &provider.port.to_string()).replace("MORE", more);
    let user = if os::process::geteuid().is_root() { "user root;" } else { "" };
    let conf = format!(
        "{user} worker_processes {workers}; error_log logs/error.log debug; events {{}}
         http {{ access_log logs/access.log; {conf} }}"
    );
    World { weir: site.config(&conf).start(), provider, issuer }
}

/// Runs a test with a new server on epoll and on io_uring, and looks for secrets in its logs.
fn each_world(more: &str, test: impl Fn(&World) + Sync) {
    each_driver(|driver| {
        let world = start(driver, more);
        test(&world);
        let cookies = world.provider.state.lock().unwrap().bodies.clone();
        let logs = ["error.log", "access.log"].map(|name| world.weir.log(name));
        for log in logs {
            for canary in CANARIES {
                assert!(!log.contains(canary), "{canary} in {log}");
            }
            for body in &cookies {
                let verifier = arguments(body).get("code_verifier").cloned();
                assert!(verifier.is_none_or(|verifier| !log.contains(&verifier)), "{log}");
            }
        }
    });
}

fn claims(response: &Response) -> &str {
    response.header("X-Claims").unwrap_or_default()
}

#[test]
fn users_sign_in_and_return_to_their_page() {
    each_world("", |World { weir, provider, issuer }| {
        let mut browser = Browser::default();
        let address = json!({"locality": "Oslo"});
        provider.set(|state| drop(state.claims.insert("address".to_owned(), address)));
        let response = browser.get(weir, "/a.txt?b=//c");
        let location = response.header("Location").unwrap();
        assert_eq!(response.header("Cache-Control"), Some("no-store"));
        assert!(location.starts_with(&format!("{issuer}/auth?response_type=code")), "{location}");
        let args = arguments(location.split_once('?').unwrap().1);
        assert_eq!(args["redirect_uri"], "http://localhost/oidc_callback");
        assert_eq!((&*args["code_challenge_method"], args["state"].len()), ("S256", 43));
        let callback = provider.sign_in(location);
        let response = browser.get(weir, &format!("/oidc_callback?{callback}"));
        assert_eq!(response.status, 302, "{}", weir.error_log());
        assert_eq!(response.header("Location"), Some("http://localhost/a.txt?b=//c"));
        assert_eq!(browser.cookies.len(), 1, "the login's cookie is gone");
        assert_eq!(browser.cookies["NGX_OIDC_SESSION"].len(), 43);
        let page = browser.get(weir, "/a.txt");
        assert_eq!((page.status, claims(&page), page.text().as_str()), (200, "alice|", "hello"));
        assert_eq!(page.header("X-Access"), Some("access-canary"));
        assert_eq!(page.header("X-City"), Some("Oslo"));
        assert_eq!(browser.get(weir, "/inside/a.txt").status, 200);
        assert_eq!(claims(&browser.get(weir, "/inside/a.txt")), "alice|");
        assert_eq!(browser.get(weir, "/any/a.txt").status, 200);
        // A reload keeps sessions; one document was fetched for all.
        assert_eq!(provider.count("/.well-known/openid-configuration"), 1);
        weir.reload();
        assert_eq!(browser.get(weir, "/a.txt").status, 200);
        // A cookie with another case, or of another session, is none.
        for name in ["ngx_oidc_session", "NGX_OIDC_SESSION2"] {
            let cookie = format!("Cookie: {name}={}\r\n", browser.cookies["NGX_OIDC_SESSION"]);
            assert_eq!(weir.request("GET", "/a.txt", &cookie).status, 302, "{name}");
        }
        let forged = format!("Cookie: NGX_OIDC_SESSION={}\r\n", "A".repeat(43));
        assert_eq!(weir.request("GET", "/a.txt", &forged).status, 302);
    });
}

/// Browsers otherwise show pages after the logout, and shared caches show them to others.
#[test]
fn pages_of_users_are_not_cached_by_a_guess() {
    each_world("", |World { weir, provider, .. }| {
        let mut browser = Browser::default();
        browser.sign_in(weir, provider, "/a.txt");
        for (path, want) in [
            ("/a.txt", Some("private, no-cache")),
            ("/inside/a.txt", Some("private, no-cache")),
            ("/any/a.txt", Some("private, no-cache")),
            ("/expires/a.txt", Some("max-age=3600")),
            ("/own/a.txt", Some("max-age=5")),
            ("/bye.txt", None),
        ] {
            let page = browser.get(weir, path);
            assert_eq!((page.status, page.header("Cache-Control")), (200, want), "{path}");
            assert!(page.all("Cache-Control").count() <= 1, "{path}");
        }
    });
}

#[test]
fn the_table_has_no_token_and_no_secret_of_a_browser() {
    let more = "} server { listen 127.0.0.1:%PORT2%; location /api { api; } } \
                map $uri $y { default ''; ";
    each_world(more, |World { weir, provider, issuer }| {
        let mut browser = Browser::default();
        browser.sign_in(weir, provider, "/a.txt");
        // Logouts of sessions that somebody made up do not fill it.
        let iss = issuer.replace(':', "%3A").replace('/', "%2F");
        for sid in ["a", "b", "c"] {
            assert_eq!(weir.get(&format!("/front?iss={iss}&sid={sid}")).status, 200);
        }
        let mut conn = testkit::Conn::tcp(weir.port(2));
        conn.send("GET /api/9/http/keyvals/sessions HTTP/1.0\r\n\r\n");
        let table = conn.response().text();
        assert!(table.contains("\"session:"), "{table}");
        assert_eq!(table.matches("\"logout:").count(), 1, "{table}");
        for secret in CANARIES.iter().copied().chain([&*browser.cookies["NGX_OIDC_SESSION"]]) {
            assert!(!table.contains(secret), "{secret} in {table}");
        }
    });
}

#[test]
fn requests_that_are_no_navigations_get_401() {
    each_world("", |World { weir, .. }| {
        let html = "Accept: text/html\r\n";
        for (method, headers, status) in [
            ("GET", "", 302),
            ("HEAD", html, 302),
            ("GET", "Accept: */*\r\n", 302),
            ("GET", "Sec-Fetch-Mode: navigate\r\nAccept: text/html\r\n", 302),
            ("GET", "Sec-Fetch-Mode: cors\r\nAccept: text/html\r\n", 401),
            ("GET", "Sec-Fetch-Mode: no-cors\r\n", 401),
            ("GET", "Accept: application/json\r\n", 401),
            ("GET", "X-Requested-With: XMLHttpRequest\r\nAccept: */*\r\n", 401),
            ("POST", "Accept: text/html\r\nContent-Length: 0\r\n", 401),
            ("OPTIONS", html, 401),
        ] {
            let response = weir.request(method, "/a.txt", headers);
            assert_eq!(response.status, status, "{method} {headers}");
            let challenge = response.header("WWW-Authenticate");
            assert_eq!(challenge, (status == 401).then_some("OIDC realm=\"main\""));
            assert_eq!(response.header("Set-Cookie").is_some(), status == 302);
        }
    });
}

#[test]
fn tabs_have_logins_of_their_own_and_none_is_replayed() {
    each_world("", |World { weir, provider, .. }| {
        let mut browser = Browser::default();
        let [one, two] = ["/a.txt?1", "/a.txt?2"].map(|page| {
            let response = browser.get(weir, page);
            provider.sign_in(response.header("Location").unwrap())
        });
        let before = browser.clone();
        let back = |browser: &mut Browser, args: &str| {
            browser.get(weir, &format!("/oidc_callback?{args}"))
        };
        assert_eq!(back(&mut browser, &two).header("Location"), Some("http://localhost/a.txt?2"));
        let first = browser.cookies["NGX_OIDC_SESSION"].clone();
        assert_eq!(back(&mut browser, &one).header("Location"), Some("http://localhost/a.txt?1"));
        // The secret changed with the second login, and the first one is of no use now.
        assert_ne!(browser.cookies["NGX_OIDC_SESSION"], first);
        let old = format!("Cookie: NGX_OIDC_SESSION={first}\r\n");
        assert_eq!(weir.request("GET", "/a.txt", &old).status, 302);
        let tokens = provider.count("/token");
        // The browser has dropped the cookie; one that kept it; another browser.
        assert_eq!(back(&mut browser, &one).status, 400);
        assert_eq!(back(&mut before.clone(), &one).status, 400);
        assert_eq!(back(&mut Browser::default(), &two).status, 400);
        for bad in ["", "code=x", "state=x", "code=a&state=b", "code=a&code=b&state=c", "%zz"] {
            assert_eq!(back(&mut browser, bad).status, 400, "{bad}");
        }
        let post = browser.send(weir, "POST", "/oidc_callback", "Content-Length: 0\r\n");
        assert_eq!(post.status, 405);
        assert_eq!(provider.count("/token"), tokens, "nothing of it reached the provider");
        assert_eq!(browser.get(weir, "/a.txt").status, 200);
        // Left logins do not fill the browser's cookies.
        let mut lost = Browser::default();
        (0..20).for_each(|_| assert_eq!(lost.get(weir, "/a.txt").status, 302));
        assert_eq!(lost.cookies.len(), 8);
    });
}

#[test]
fn only_pages_of_this_server_are_returned_to() {
    each_world("", |World { weir, provider, .. }| {
        for target in ["//evil.test/a", "/%5Cevil.test", "http://evil.test/a.txt", "/a.txt"] {
            let mut conn = weir.connect();
            conn.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            let response = conn.response();
            let args = provider.sign_in(response.header("Location").unwrap());
            let cookie = response.header("Set-Cookie").unwrap().split(';').next().unwrap();
            let cookie = format!("Cookie: {cookie}\r\n");
            let response = weir.request("GET", &format!("/oidc_callback?{args}"), &cookie);
            let location = response.header("Location").unwrap();
            let path = location.strip_prefix("http://localhost/").expect(location);
            assert!(!path.starts_with(['/', '\\']), "{location}");
        }
    });
}

#[test]
fn lies_of_the_provider_are_refused() {
    each_world("userinfo on;", |World { weir, provider, issuer }| {
        let mut browser = Browser::default();
        assert_eq!(browser.sign_in(weir, provider, "/a.txt").status, 302);
        assert_eq!(claims(&browser.get(weir, "/a.txt")), "alice|a@b.test");
        let info = browser.get(weir, "/a.txt").header("X-Userinfo").unwrap().to_owned();
        assert_eq!(info, r#"{"email":"a@b.test","sub":"alice"}"#);
        let refused = |what: &str, status| {
            let mut browser = Browser::default();
            let response = browser.sign_in(weir, provider, "/a.txt");
            assert_eq!(response.status, status, "{what}");
            assert!(!browser.cookies.contains_key("NGX_OIDC_SESSION"), "{what}");
        };
        for (claim, value) in [
            ("iss", json!("https://evil.test")),
            ("iss", json!(format!("{issuer}/"))),
            ("aud", json!("other")),
            ("aud", json!(["me", "other"])),
            ("azp", json!("other")),
            ("nonce", json!("x")),
            ("nonce", json!(null)),
            ("exp", json!(1)),
            ("iat", json!(9_000_000_000_u64)),
            ("at_hash", json!("x")),
            ("sub", json!(null)),
        ] {
            provider.set(|state| drop(state.claims.insert(claim.to_owned(), value.clone())));
            refused(&format!("{claim} {value}"), 502);
            provider.set(|state| state.claims.clear());
        }
        for (member, value) in [
            ("id_token", json!(null)),
            ("id_token", json!("a.b.c")),
            ("access_token", json!(null)),
            ("token_type", json!("DPoP")),
        ] {
            provider.set(|state| drop(state.tokens.insert(member.to_owned(), value.clone())));
            refused(&format!("{member} {value}"), 502);
            provider.set(|state| state.tokens.clear());
        }
        provider.set(|state| state.userinfo = Some(json!({"sub": "bob"})));
        refused("user info of another user", 502);
        provider.set(|state| state.userinfo = None);
        for (error, status) in [("invalid_grant", 400), ("invalid_client", 502)] {
            provider.set(|state| state.error = Some(error.to_owned()));
            refused(error, status);
            provider.set(|state| state.error = None);
        }
        let mut browser = Browser::default();
        for (error, status) in [("access_denied", 403), ("temporarily_unavailable", 503)] {
            let location = browser.get(weir, "/a.txt").header("Location").unwrap().to_owned();
            let args = arguments(location.split_once('?').unwrap().1);
            let path = format!("/oidc_callback?error={error}&state={}", args["state"]);
            assert_eq!(browser.get(weir, &path).status, status, "{error}");
        }
        weir.wait_for_log("error.log", "the provider refused: temporarily_unavailable");
        let log = weir.error_log();
        assert!(log.contains("token refused: aud is not this client"), "{log}");
    });
}

#[test]
fn new_keys_are_fetched_a_bounded_number_of_times() {
    each_world("", |World { weir, provider, .. }| {
        // A key that the provider has not published: the set was just fetched, and is not again.
        provider.set(|state| state.key = 1);
        assert_eq!(Browser::default().sign_in(weir, provider, "/a.txt").status, 502);
        assert_eq!(Browser::default().sign_in(weir, provider, "/a.txt").status, 502);
        assert_eq!(provider.count("/keys"), 1);
        provider.set(|state| state.key = 0);
        assert_eq!(Browser::default().sign_in(weir, provider, "/a.txt").status, 302);
    });
}

#[test]
fn a_provider_that_is_away_or_another_one_is_an_error() {
    each_world("", |World { weir, provider, .. }| {
        provider.set(|state| state.status = 500);
        assert_eq!(Browser::default().get(weir, "/a.txt").status, 503);
        // Requests in the next seconds do not ask again.
        assert_eq!(Browser::default().get(weir, "/a.txt").status, 503);
        assert_eq!(provider.count("/.well-known/openid-configuration"), 1);
        weir.wait_for_log("error.log", "sent status 500");
    });
    each_world("", |World { weir, provider, .. }| {
        let other = json!("https://evil.test");
        provider.set(|state| drop(state.metadata.insert("issuer".to_owned(), other)));
        assert_eq!(Browser::default().get(weir, "/a.txt").status, 502);
        weir.wait_for_log("error.log", "the issuer is not the configured one");
    });
}

#[test]
fn expired_tokens_are_refreshed_once() {
    each_world("", |World { weir, provider, .. }| {
        let expires = |s: u64| {
            provider.set(|state| drop(state.tokens.insert("expires_in".to_owned(), json!(s))));
        };
        let mut browser = Browser::default();
        expires(0);
        browser.sign_in(weir, provider, "/a.txt");
        expires(3600);
        let before = provider.count("/token");
        std::thread::scope(|scope| {
            let tabs: Vec<_> = (0..8)
                .map(|_| {
                    let mut tab = browser.clone();
                    scope.spawn(move || tab.get(weir, "/a.txt").status)
                })
                .collect();
            tabs.into_iter().for_each(|tab| assert_eq!(tab.join().unwrap(), 200));
        });
        assert_eq!(provider.count("/token"), before + 1);
        assert_eq!(claims(&browser.get(weir, "/a.txt")), "alice|");
        // The provider is away, and then ends the session.
        for (status, error, answer) in [(0, Some("invalid_grant"), 302), (500, None, 503)] {
            let mut browser = Browser::default();
            expires(0);
            browser.sign_in(weir, provider, "/a.txt");
            provider.set(|state| {
                state.status = status;
                state.error = error.map(str::to_owned);
            });
            assert_eq!(browser.get(weir, "/a.txt").status, answer);
            provider.set(|state| {
                state.status = 0;
                state.error = None;
            });
        }
        // A refreshed token of another user.
        let mut browser = Browser::default();
        browser.sign_in(weir, provider, "/a.txt");
        provider.set(|state| drop(state.claims.insert("sub".to_owned(), json!("bob"))));
        assert_eq!(browser.get(weir, "/a.txt").status, 502);
    });
}

#[test]
fn one_worker_of_several_refreshes() {
    each_driver(|driver| {
        let World { weir, provider, .. } = start_with(driver, CONF, "", 4);
        for _ in 0..4 {
            let expires = |s: u64| {
                provider.set(|state| drop(state.tokens.insert("expires_in".to_owned(), json!(s))));
            };
            let mut browser = Browser::default();
            expires(0);
            browser.sign_in(&weir, &provider, "/a.txt");
            expires(3600);
            let before = provider.count("/token");
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    let (mut tab, weir) = (browser.clone(), &weir);
                    scope.spawn(move || assert_eq!(tab.get(weir, "/a.txt").status, 200));
                }
            });
            assert_eq!(provider.count("/token"), before + 1);
        }
    });
}

#[test]
fn users_sign_out() {
    each_world("", |World { weir, provider, issuer }| {
        let mut browser = Browser::default();
        browser.sign_in(weir, provider, "/a.txt");
        // A link of another site asks first; its form is no better.
        for (method, headers) in [
            ("GET", "Sec-Fetch-Site: cross-site\r\n"),
            ("POST", "Sec-Fetch-Site: same-site\r\nContent-Length: 0\r\n"),
            ("POST", "Origin: https://evil.test\r\nContent-Length: 0\r\n"),
        ] {
            let page = browser.send(weir, method, "/logout", headers);
            assert_eq!(page.status, 200);
            assert!(page.text().contains("<form method=\"post\">"), "{}", page.text());
            assert_eq!(browser.get(weir, "/a.txt").status, 200);
        }
        let kept = browser.clone();
        let origin = "Origin: http://localhost\r\nContent-Length: 0\r\n";
        let response = browser.send(weir, "POST", "/logout", origin);
        let location = response.header("Location").unwrap();
        assert_eq!(response.status, 303);
        let (url, args) = location.split_once('?').unwrap();
        let args = arguments(args);
        assert_eq!(url, format!("{issuer}/bye"));
        assert_eq!(args["post_logout_redirect_uri"], "http://localhost/bye.txt");
        assert_eq!((&*args["client_id"], args["id_token_hint"].split('.').count()), ("me", 3));
        assert!(browser.cookies.is_empty());
        for mut browser in [browser, kept] {
            assert_eq!(browser.get(weir, "/a.txt").status, 302);
        }
        assert_eq!(weir.get("/bye.txt").text(), "bye");
        assert_eq!(weir.request("PUT", "/logout", "Content-Length: 0\r\n").status, 405);
    });
}

#[test]
fn logouts_end_here_if_the_provider_has_none_or_is_away() {
    let signed_out = |weir: &Weir| {
        let page = weir.get("/app-logout");
        assert_eq!((page.status, page.header("Cache-Control")), (200, Some("no-store")));
        assert!(page.text().contains("Signed out"), "{}", page.text());
    };
    each_world("", |World { weir, provider, .. }| {
        let none = json!(null);
        provider.set(|state| drop(state.metadata.insert("end_session_endpoint".to_owned(), none)));
        signed_out(weir);
        // There is a page to return to.
        let mut browser = Browser::default();
        browser.sign_in(weir, provider, "/a.txt");
        let response = browser.get(weir, "/logout");
        assert_eq!(response.header("Location"), Some("http://localhost/bye.txt"));
    });
    each_world("", |World { weir, provider, .. }| {
        provider.set(|state| state.status = 500);
        signed_out(weir);
        weir.wait_for_log("error.log", "logout: 127.0.0.1 sent status 500");
    });
}

#[test]
fn users_sign_in_over_http2() {
    each_world("", |World { weir, provider, .. }| {
        let mut client = testkit::h2::Client::tcp(weir.port(0));
        let login = client.request("GET", "/a.txt", &[("accept", "text/html")], b"");
        let args = provider.sign_in(login.header("location").unwrap());
        let set = login.header("set-cookie").unwrap().split(';').next().unwrap();
        let path = format!("/oidc_callback?{args}");
        let back = client.request("GET", &path, &[("cookie", "a=b"), ("cookie", set)], b"");
        let location = back.header("location").unwrap();
        assert!(location.starts_with("http://") && location.ends_with("/a.txt"), "{location}");
        let session = back.all("set-cookie").find(|set| set.starts_with("NGX_OIDC_SESSION="));
        let session = session.unwrap().split(';').next().unwrap();
        let page = client.request("GET", "/a.txt", &[("cookie", "a=b"), ("cookie", session)], b"");
        assert_eq!((page.status, page.header("x-claims")), (200, Some("alice|")));
    });
}

#[test]
fn the_provider_signs_users_out() {
    each_world("", |World { weir, provider, issuer }| {
        let mut browser = Browser::default();
        browser.sign_in(weir, provider, "/a.txt");
        let front = |args: &str| weir.get(&format!("/front?{args}")).status;
        let iss = issuer.replace(':', "%3A").replace('/', "%2F");
        for (args, status) in [
            (format!("iss={iss}&sid=other"), 200),
            (format!("iss={iss}"), 400),
            ("iss=https://evil.test&sid=s1".to_owned(), 400),
            (String::new(), 200),
        ] {
            assert_eq!(front(&args), status, "{args}");
            assert_eq!(browser.get(weir, "/a.txt").status, 200, "{args}");
        }
        assert_eq!(front(&format!("iss={iss}&sid=s1")), 200);
        assert_eq!(browser.get(weir, "/a.txt").status, 302);
        // A new login is not ended by the old logout. The cookie alone is enough, too.
        browser.sign_in(weir, provider, "/a.txt");
        assert_eq!(browser.get(weir, "/a.txt").status, 200);
        assert_eq!(browser.get(weir, "/front").status, 200);
        assert_eq!(browser.get(weir, "/a.txt").status, 302);
    });
}

#[test]
fn the_provider_signs_users_out_by_itself() {
    each_world("", |World { weir, provider, issuer }| {
        let mut browser = Browser::default();
        let back = |token: &str| {
            let body = format!("logout_token={token}");
            let mut conn = weir.connect();
            conn.send(format!(
                "POST /back HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
                body.len()
            ));
            conn.response().status
        };
        browser.sign_in(weir, provider, "/a.txt");
        for changes in [
            json!({"sid": "s1", "nonce": "n"}),
            json!({"sid": "s1", "aud": "other"}),
            json!({"sid": "s1", "events": null}),
            json!({}),
        ] {
            assert_eq!(back(&provider.logout_token(issuer, "1", changes)), 400);
        }
        assert_eq!(back("a.b.c"), 400);
        assert_eq!(back(&provider.logout_token(issuer, "2", json!({"sid": "other"}))), 200);
        assert_eq!(browser.get(weir, "/a.txt").status, 200);
        let token = provider.logout_token(issuer, "3", json!({"sid": "s1", "sub": "alice"}));
        assert_eq!(back(&token), 200);
        assert_eq!(browser.get(weir, "/a.txt").status, 302);
        browser.sign_in(weir, provider, "/a.txt");
        assert_eq!(back(&token), 400, "it was used");
        assert_eq!(browser.get(weir, "/a.txt").status, 200);
        // All sessions of a user.
        assert_eq!(back(&provider.logout_token(issuer, "4", json!({"sub": "alice"}))), 200);
        assert_eq!(browser.get(weir, "/a.txt").status, 302);
        assert_eq!(weir.get("/back").status, 405);
    });
}

#[test]
fn providers_by_variable_and_cookies_under_https() {
    each_world("", |World { weir, provider, .. }| {
        let host = |host: &str| {
            let mut conn = weir.connect();
            conn.send(format!("GET /by/a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            conn.response()
        };
        assert_eq!((host("off.test").status, host("other.test").status), (200, 200));
        assert_eq!(host("none.test").status, 500);
        let response = host("app.test");
        let location = response.header("Location").unwrap();
        assert!(location.ends_with("&prompt=login"), "{location}");
        let set = response.header("Set-Cookie").unwrap();
        assert!(set.starts_with("__Host-APP_") && set.contains("; Path=/; Max-Age=1800; Secure;"));
        let args = provider.sign_in(location);
        // The callback's own host chooses no provider.
        let cookie = format!("Cookie: {}\r\n", set.split(';').next().unwrap());
        let response = weir.request("GET", &format!("/cb?{args}"), &cookie);
        assert_eq!(response.header("Location"), Some("https://app.test/by/a.txt"));
        let sets: Vec<_> = response.all("Set-Cookie").collect();
        let session = sets.iter().find(|set| set.starts_with("__Host-APP=")).unwrap();
        assert!(session.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax"), "{session}");
        // A session of one provider is none of another.
        let value = session.split(['=', ';']).nth(1).unwrap();
        let cookie = format!("Cookie: NGX_OIDC_SESSION={value}\r\n");
        assert_eq!(weir.request("GET", "/a.txt", &cookie).status, 302);
    });
}

#[test]
fn sessions_outlive_a_restart_in_a_state_file() {
    each_driver(|driver| {
        let conf = CONF.replace("zone=sessions:1m", "zone=sessions:1m state=sessions.json");
        let World { mut weir, provider, .. } = start_with(driver, &conf, "", 1);
        let mut browser = Browser::default();
        browser.sign_in(&weir, &provider, "/a.txt");
        weir.restart();
        assert_eq!(browser.get(&weir, "/a.txt").status, 200);
        let file = std::fs::read_to_string(weir.prefix().join("sessions.json")).unwrap();
        assert!(file.contains("session:"), "{file}");
        for canary in CANARIES {
            assert!(!file.contains(canary), "{canary} in {file}");
        }
    });
}

#[test]
fn secrets_are_not_dumped() {
    let [root, ..] = certificates();
    let conf = CONF.replace("BACKEND", "1").replace("MORE", "").replace(
        "ssl;\n        ssl_certificate provider.pem;\n        ssl_certificate_key provider.key;",
        ";",
    );
    let site = Site::new(built_binary(), Driver::usual())
        .file("conf/root.pem", root)
        .file("conf/secret", "secret-canary\n")
        .http(&conf);
    let output = site.run(&["-T"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("client_secret ***;") && !shown.contains("canary"), "{shown}");
}

#[test]
fn wrong_settings_are_refused() {
    let http = "oidc_provider p { * } server { listen 127.0.0.1:%PORT0%; auth_oidc p; }";
    let all = "issuer https://a.test; client_id b;";
    let with = |more: &str| format!("{all} {more}");
    for (text, message) in [
        ("client_id b;".to_owned(), "oidc_provider \"p\": no \"issuer\""),
        ("issuer https://a.test;".to_owned(), "oidc_provider \"p\": no \"client_id\""),
        ("issuer http://a.test; client_id b;".to_owned(), "\"http://a.test\" is no https:// URL"),
        (with("pkce off;"), "a client without a secret needs PKCE"),
        (with("redirect_uri http://a.test/cb;"), "is no https:// URL with a path"),
        (with("redirect_uri cb;"), "\"cb\" is no path"),
        (with("redirect_uri //evil.test/cb;"), "is no path"),
        (with("logout_uri /oidc_callback;"), "has two uses for \"/oidc_callback\""),
        (with("session_timeout 0;"), "\"session_timeout\" must not be 0"),
        (with("cookie_name 'a b';"), "\"a b\" is no name of a cookie"),
        (with("extra_auth_args state=x;"), "sets a parameter that the login sets itself"),
        (with("extra_auth_args response_mode=form_post;"), "response_mode other than query"),
        (with("scope 'a\"b';"), "is no scope"),
        (with("session_store none;"), "zero size shared memory zone \"none\""),
        (with("client_secret a; client_secret b;"), "is duplicate"),
        (with("client_secret_file none;"), "none\" failed (2: No such file"),
        (with("ssl_trusted_certificate none.pem;"), "none.pem"),
        (
            with("} server { listen 127.0.0.1:%PORT1%; auth_oidc q;"),
            "oidc_provider \"q\" is not defined",
        ),
        (
            with("} oidc_provider p { issuer https://a.test; client_id b;"),
            "duplicate oidc_provider",
        ),
        (
            with("session_store z; } keyval_zone zone=z:1m type=ip; map $uri $b { default c;"),
            "session_store \"z\" must have \"type=string\"",
        ),
    ] {
        refused(http, &[(&text, message)]);
    }
}
