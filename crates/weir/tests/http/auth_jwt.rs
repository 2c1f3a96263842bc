//! `auth_jwt`, with keys and tokens of another issuer: `auth_jwt.json` is by joserfc 1.6.5.

use std::net::TcpListener;

use testkit::{
    Conn, Driver, Response, Site, Weir, built_binary, each_driver, each_site, wait_until,
};

const ISSUED: &str = include_str!("auth_jwt.json");

fn issued(path: &[&str]) -> serde_json::Value {
    let all: serde_json::Value = serde_json::from_str(ISSUED).expect("valid JSON");
    path.iter().fold(all, |value, name| value[*name].clone())
}

fn token(name: &str) -> String {
    issued(&["tokens", name]).as_str().expect("a token").to_owned()
}

const CONF: &str = "
    auth_jwt_key_file public.json;
    auth_jwt_key_file secret.json;
    auth_jwt_claim_set $job info 'job title';
    auth_jwt_claim_set $aud aud;
    auth_jwt_header_set $deep deep er;
    map $jwt_claim_sub $is_alice { alice 1; default 0; }
    add_header X-Sub '$jwt_claim_sub' always;
    add_header X-Set '$job|$aud|$deep|$jwt_header_alg' always;
    add_header X-Payload '$jwt_payload' always;
    server {
        listen 127.0.0.1:%PORT0%;
        location / { auth_jwt 'the \"realm\"'; alias html/; }
        location /off/ { auth_jwt off; alias html/; }
        location /plain/ { alias html/; }
        location /cookie/ { auth_jwt c token=$cookie_token; alias html/; }
        location /leeway/ { auth_jwt l; auth_jwt_leeway 200y; alias html/; }
        location /alice/ { auth_jwt a; auth_jwt_require $is_alice; alias html/; }
        location /scope/ { auth_jwt a; auth_jwt_require $is_alice error=403; alias html/; }
        location /any/ { satisfy any; allow 127.0.0.1; deny all; auth_jwt a; alias html/; }
        location /either/ { satisfy any; deny all; auth_jwt a; alias html/; }
        location /both/ { allow all; auth_jwt a; alias html/; }
        location /encrypted/ {
            auth_jwt e; auth_jwt_type encrypted; auth_jwt_key_file decrypt.json; alias html/;
        }
        location /nested/ {
            auth_jwt n; auth_jwt_type nested; alias html/;
            auth_jwt_key_file decrypt.json; auth_jwt_key_file public.json;
        }
        location /by-kid/ { auth_jwt k; auth_jwt_key_file kid-$jwt_header_kid.json; alias html/; }
        location /by-arg/ { auth_jwt k; auth_jwt_key_file $arg_f; alias html/; }
        location /except/ { limit_except POST { auth_jwt x; } alias html/; }
        location /asks/ {
            auth_jwt r; auth_jwt_key_file decrypt.json; auth_jwt_key_request /keys/public.json;
            alias html/;
        }
        location /keeps/ {
            auth_jwt r; auth_jwt_key_file decrypt.json; auth_jwt_key_request /keys/$arg_k;
            auth_jwt_key_cache 1h; alias html/;
        }
        location /keys/ {
            internal; alias keys/; log_subrequest on; access_log logs/keys.log;
            subrequest_output_buffer_size 16k;
        }
        location /early/ {
            auth_jwt e; if ($jwt_claim_sub != alice) { return 402; } alias html/;
        }
    }";

fn site(driver: Driver) -> Site {
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .file("conf/public.json", issued(&["public"]).to_string())
        .file("conf/secret.json", issued(&["secret"]).to_string())
        .file("keys/public.json", issued(&["public"]).to_string())
        .file("keys/bad.json", "{")
        .file("conf/kid-oct.json", issued(&["secret"]).to_string())
        .file("conf/decrypt.json", issued(&["decrypt"]).to_string())
        .http(CONF)
}

fn start(driver: Driver) -> Weir {
    site(driver).start()
}

fn with(weir: &Weir, path: &str, name: &str) -> Response {
    weir.request("GET", path, &format!("Authorization: Bearer {}\r\n", token(name)))
}

#[test]
fn tokens_open_locations_and_become_variables() {
    each_site(start, |weir| {
        for name in ["rsa", "ec", "oct"] {
            let response = with(&weir, "/a.txt", name);
            assert_eq!((response.status, &response.body[..]), (200, &b"hello"[..]), "{name}");
            assert_eq!(response.header("X-Sub"), Some("alice"));
        }
        let response = with(&weir, "/a.txt", "oct");
        assert_eq!(response.header("X-Set"), Some("cook|shop,api|x,y|HS256"));
        let lower = format!("authorization: bEARER  {}\r\n", token("oct"));
        assert_eq!(weir.request("GET", "/a.txt", &lower).status, 200);
        assert_eq!(weir.get("/off/a.txt").status, 200);
        assert_eq!(weir.get("/except/a.txt").status, 401);
        assert_eq!(with(&weir, "/except/a.txt", "oct").header("X-Sub"), Some("alice"));
        assert_eq!(weir.request("POST", "/except/a.txt", "").status, 405);
        let cookie = format!("Cookie: token={}\r\n", token("ec"));
        assert_eq!(weir.request("GET", "/cookie/a.txt", &cookie).status, 200);
        assert_eq!(with(&weir, "/cookie/a.txt", "ec").status, 401);
        // Its time is in 2001.
        assert_eq!(with(&weir, "/leeway/a.txt", "expired").status, 200);
        // A claim that is read before the access phase.
        assert_eq!(with(&weir, "/early/a.txt", "oct").status, 200);
        assert_eq!(with(&weir, "/early/a.txt", "forged").status, 402);
        assert_eq!(with(&weir, "/early/a.txt", "bob").status, 402);
    });
}

#[test]
fn refusals_say_what_a_client_can_mend() {
    each_site(start, |weir| {
        let realm = "Bearer realm=\"the \\\"realm\\\"\"";
        let challenge = |response: &Response| {
            assert_eq!(response.status, 401);
            assert_eq!(response.header("X-Sub"), None);
            response.header("WWW-Authenticate").expect("a challenge").to_owned()
        };
        assert_eq!(challenge(&weir.get("/a.txt")), realm);
        let basic = weir.request("GET", "/a.txt", "Authorization: Basic YTpi\r\n");
        assert_eq!(challenge(&basic), realm);
        let invalid = format!("{realm}, error=\"invalid_token\"");
        for value in ["x", "a.b.c", "eyJhbGciOiJub25lIn0.e30."] {
            let headers = format!("Authorization: Bearer {value}\r\n");
            assert_eq!(challenge(&weir.request("GET", "/a.txt", &headers)), invalid, "{value}");
        }
        assert_eq!(challenge(&with(&weir, "/a.txt", "forged")), invalid);
        let expired = format!("{invalid}, error_description=\"the token has expired\"");
        assert_eq!(challenge(&with(&weir, "/a.txt", "expired")), expired);
        let early = format!("{invalid}, error_description=\"the token is not valid yet\"");
        assert_eq!(challenge(&with(&weir, "/a.txt", "early")), early);
        // A token of another kind.
        challenge(&with(&weir, "/a.txt", "encrypted"));
        challenge(&with(&weir, "/encrypted/a.txt", "oct"));
        let log = weir.stop_and_read("error.log");
        assert!(log.contains("JSON Web Token refused: the signature is invalid"), "{log}");
        assert!(log.contains("its algorithm is none"), "{log}");
        assert!(!log.contains("eyJ"), "a token is in the log: {log}");
    });
}

#[test]
fn requirements_are_checked_after_the_token() {
    each_site(start, |weir| {
        assert_eq!(with(&weir, "/alice/a.txt", "oct").status, 200);
        assert_eq!(with(&weir, "/alice/a.txt", "bob").status, 401);
        assert_eq!(with(&weir, "/scope/a.txt", "oct").status, 200);
        let refused = with(&weir, "/scope/a.txt", "bob");
        assert_eq!(refused.status, 403);
        let challenge = refused.header("WWW-Authenticate").expect("a challenge");
        assert!(challenge.ends_with("error=\"insufficient_scope\""), "{challenge}");
        assert_eq!(with(&weir, "/scope/a.txt", "forged").status, 401);
    });
}

#[test]
fn satisfy_combines_tokens_with_addresses() {
    each_site(start, |weir| {
        assert_eq!(weir.get("/any/a.txt").status, 200);
        // The address is enough; a forged token has no claims even so.
        let forged = with(&weir, "/any/a.txt", "forged");
        assert_eq!((forged.status, forged.header("X-Sub")), (200, None));
        assert_eq!(with(&weir, "/any/a.txt", "oct").header("X-Sub"), Some("alice"));
        assert_eq!(weir.get("/either/a.txt").status, 401);
        let either = with(&weir, "/either/a.txt", "oct");
        assert_eq!((either.status, either.header("WWW-Authenticate")), (200, None));
        assert_eq!(weir.get("/both/a.txt").status, 401);
        assert_eq!(with(&weir, "/both/a.txt", "oct").status, 200);
        assert_eq!(with(&weir, "/plain/a.txt", "oct").header("X-Sub"), None);
    });
}

#[test]
fn encrypted_and_nested_tokens() {
    each_site(start, |weir| {
        for name in ["encrypted", "encrypted_rsa"] {
            let response = with(&weir, "/encrypted/a.txt", name);
            assert_eq!(response.status, 200, "{name}");
            assert_eq!(response.header("X-Sub"), Some("alice"));
            let payload = response.header("X-Payload").expect("the plaintext");
            assert!(payload.starts_with("{\"iss\":"), "{payload}");
        }
        let response = with(&weir, "/nested/a.txt", "nested");
        assert_eq!((response.status, response.header("X-Sub")), (200, Some("alice")));
        let payload = response.header("X-Payload").expect("the signed token");
        assert_eq!(payload.split('.').count(), 3, "{payload}");
        assert_eq!(with(&weir, "/nested/a.txt", "encrypted").status, 401);
    });
}

#[test]
fn key_files_are_chosen_by_variables_and_read_again() {
    each_site(start, |weir| {
        assert_eq!(with(&weir, "/by-kid/a.txt", "oct").status, 200);
        assert_eq!(with(&weir, "/by-kid/a.txt", "forged").status, 401);
        assert_eq!(with(&weir, "/by-kid/a.txt", "ec").status, 500);
        assert_eq!(with(&weir, "/by-arg/a.txt?f=kid-oct.json", "oct").status, 200);
        assert_eq!(with(&weir, "/by-arg/a.txt?f=../conf/kid-oct.json", "oct").status, 500);
        assert_eq!(with(&weir, "/by-arg/a.txt?f=none.json", "oct").status, 500);
        // Keys that are replaced are noticed without a reload; an unreadable file changes nothing.
        weir.write("conf/secret.json", issued(&["other"]).to_string());
        wait_until("the new key", || with(&weir, "/a.txt", "forged").status == 200);
        wait_until("the end of the old key", || with(&weir, "/a.txt", "oct").status == 401);
        weir.write("conf/secret.json", "{");
        wait_until("an error", || {
            assert_eq!(with(&weir, "/a.txt", "forged").status, 200);
            weir.log("error.log").contains("the keys read before stay in use")
        });
    });
}

#[test]
fn keys_come_from_subrequests() {
    each_site(start, |weir| {
        for name in ["rsa", "ec"] {
            let response = with(&weir, "/asks/a.txt", name);
            assert_eq!((response.status, response.header("X-Sub")), (200, Some("alice")), "{name}");
        }
        assert_eq!(with(&weir, "/asks/a.txt", "oct").status, 401);
        assert_eq!(weir.get("/asks/a.txt").status, 401);
        assert_eq!(weir.get("/keys/public.json").status, 404);
        for name in ["rsa", "ec", "oct", "rsa"] {
            let status = if name == "oct" { 401 } else { 200 };
            assert_eq!(with(&weir, "/keeps/a.txt?k=public.json", name).status, status, "{name}");
        }
        for bad in ["bad.json", "none.json"] {
            let path = format!("/keeps/a.txt?k={bad}");
            assert_eq!(with(&weir, &path, "rsa").status, 500, "{bad}");
        }
        // What was fetched is kept.
        weir.write("keys/public.json", "{");
        assert_eq!(with(&weir, "/keeps/a.txt?k=public.json", "rsa").status, 200);
        assert_eq!(with(&weir, "/asks/a.txt", "rsa").status, 500);
        weir.wait_for_log("error.log", "keys of \"/keys/none.json\": the status is 404");
        weir.wait_for_log("error.log", "keys of \"/keys/bad.json\": the keys: invalid JSON");
        // Three without the cache, one with it, two that failed, and one for the file of the end.
        let log = weir.stop_and_read("keys.log");
        let fetches = log.lines().filter(|line| !line.contains("GET /keys/"));
        assert_eq!(fetches.count(), 7, "{log}");
    });
}

/// Subrequests have no access phase, but those with a token of their own have its claims, as the
/// scripts of nginx-openid-connect expect. The locations of the keys inherit `auth_jwt` here.
#[test]
fn subrequests_have_the_claims_of_their_own_tokens() {
    const SCRIPT: &str = "
        async function asks(r) {
            const of = t => r.subrequest('/claims', 'token=' + t);
            const reply = await of(r.args.token);
            const again = await of(r.args.token);
            r.return(200, `${reply.status} ${reply.responseText} ${again.responseText}`);
        }
        function claims(r) { r.return(200, String(r.variables.jwt_claim_sub)); }
        export default {asks, claims};";
    each_driver(|driver| {
        for cache in ["", "auth_jwt_key_cache 1h;"] {
            let weir = Site::new(built_binary(), driver)
                .file("keys/public.json", issued(&["public"]).to_string())
                .file("keys/secret.json", issued(&["secret"]).to_string())
                .file("conf/t.js", SCRIPT)
                .http(&format!(
                    "js_import t from t.js;
                     server {{ listen 127.0.0.1:%PORT0%;
                         auth_jwt '' token=$arg_token; {cache}
                         auth_jwt_key_request /keys/public.json;
                         auth_jwt_key_request /keys/secret.json;
                         location = /asks {{ auth_jwt off; js_content t.asks; }}
                         location = /claims {{ internal; js_content t.claims; }}
                         location /keys/ {{ internal; alias keys/;
                             subrequest_output_buffer_size 16k; }} }}"
                ))
                .start();
            let asks = |token: &str| weir.get(&format!("/asks?token={token}")).text();
            for name in ["rsa", "ec", "oct"] {
                assert_eq!(asks(&token(name)), "200 alice alice", "{name}");
            }
            for name in ["forged", "expired"] {
                assert_eq!(asks(&token(name)), "200 undefined undefined", "{name}");
            }
            assert_eq!(asks(""), "200 undefined undefined");
            let log = weir.error_log();
            assert!(!log.contains("nested in-memory"), "{log}");
        }
    });
}

/// A subrequest runs the server's `set` again, whose variables it shares with its request.
#[test]
fn uris_of_keys_are_those_before_the_first_fetch() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .file("html/a.txt", "hello")
            .file("keys/public.json", issued(&["public"]).to_string())
            .file("keys/decrypt.json", issued(&["decrypt"]).to_string())
            .http(
                "server { listen 127.0.0.1:%PORT0%; root html;
                     set $right decrypt.json; set $wrong public.json;
                     location /right/ { set $right public.json; auth_jwt x; alias html/;
                         auth_jwt_key_request /keys/decrypt.json;
                         auth_jwt_key_request /keys/$right; }
                     location /wrong/ { set $wrong decrypt.json; auth_jwt x; alias html/;
                         auth_jwt_key_request /keys/decrypt.json;
                         auth_jwt_key_request /keys/$wrong; }
                     location /keys/ { internal; alias keys/;
                         subrequest_output_buffer_size 16k; } }",
            )
            .start();
        assert_eq!(with(&weir, "/right/a.txt", "rsa").status, 200);
        assert_eq!(with(&weir, "/wrong/a.txt", "rsa").status, 401);
    });
}

/// The next request that arrives: its connection.
fn accepted(keys: &TcpListener) -> Conn {
    let mut conn = Conn::over(keys.accept().expect("a fetch").0);
    conn.read_until(b"\r\n\r\n");
    conn
}

#[test]
fn one_fetch_of_keys_is_for_all_who_wait() {
    each_driver(|driver| {
        let keys = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = keys.local_addr().expect("bound").port();
        let weir = Site::new(built_binary(), driver)
            .file("html/a.txt", "hello")
            .http(&format!(
                "server {{ listen 127.0.0.1:%PORT0%; root html;
                     location / {{ auth_jwt x; auth_jwt_key_request /keys?$arg_k;
                                   auth_jwt_key_cache 1h; }}
                     location /open/ {{ alias html/; }}
                     location = /keys {{ internal; proxy_pass http://127.0.0.1:{port}/; }} }}"
            ))
            .start();
        let ask = |k: &str| {
            let mut conn = weir.connect();
            let token = token("rsa");
            let head = format!("Host: a\r\nAuthorization: Bearer {token}\r\n\r\n");
            conn.send(format!("GET /a.txt?k={k} HTTP/1.1\r\n{head}"));
            conn
        };
        // All have arrived when another request behind them is answered.
        let arrived = || (0..2).for_each(|_| assert_eq!(weir.get("/open/a.txt").status, 200));
        let text = issued(&["public"]).to_string();
        let answer = |mut conn: Conn, status: &str| {
            let len = text.len();
            conn.send(format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n\r\n{text}"));
        };
        let statuses = |clients: Vec<Conn>| -> Vec<u16> {
            clients.into_iter().map(|mut client| client.response().status).collect()
        };
        let clients: Vec<Conn> = (0..20).map(|_| ask("1")).collect();
        arrived();
        answer(accepted(&keys), "200 OK");
        assert_eq!(statuses(clients), [200; 20]);
        // The client of the fetch leaves: another one fetches.
        let first = ask("2");
        let fetch = accepted(&keys);
        let clients: Vec<Conn> = (0..5).map(|_| ask("2")).collect();
        arrived();
        drop(first);
        answer(accepted(&keys), "200 OK");
        drop(fetch);
        assert_eq!(statuses(clients), [200; 5]);
        // A failure is everybody's.
        let clients: Vec<Conn> = (0..5).map(|_| ask("3")).collect();
        arrived();
        answer(accepted(&keys), "503 Away");
        assert_eq!(statuses(clients), [500; 5]);
        keys.set_nonblocking(true).expect("set");
        assert!(keys.accept().is_err(), "a fetch too many");
    });
}

#[test]
fn errors_of_keys_and_parameters_show_at_load() {
    each_driver(|driver| {
        for (conf, text) in [
            ("auth_jwt_key_file none.json;", "open() \"/"),
            ("auth_jwt_key_file bad.json;", "invalid keys in"),
            ("auth_jwt x token=y;", "invalid parameter \"token=y\""),
            ("auth_jwt x token=$;", "invalid parameter \"token=$\""),
            ("auth_jwt_require 1;", "invalid value \"1\""),
            ("auth_jwt_require error=403;", "needs a variable"),
            ("auth_jwt_require $uri error=500;", "invalid parameter \"error=500\""),
            ("auth_jwt_type any;", "invalid value \"any\""),
        ] {
            let output = Site::new(built_binary(), driver)
                .file("conf/bad.json", "{\"keys\":[{\"kty\":\"oct\"}]}")
                .http(conf)
                .run(&["-t", "-e", "stderr"]);
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && told.contains(text), "{conf}: {told}");
            assert!(told.contains(".conf:"), "{conf}: {told}");
        }
    });
}
