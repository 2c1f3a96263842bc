//! Secrets of the configuration, passwords and tokens are in no log, no error page, no record of
//! slow requests and no dump of the configuration, at the level `debug` either.

use testkit::{Driver, Port, Response, Site, built_binary, each_driver};

use crate::auth_ldap::{basic, slapd, url};

const ISSUED: &str = include_str!("auth_jwt.json");

/// Passwords as clients send them: in Base64, which logs must not have either.
const PASSWORDS: [(&str, &str); 4] = [
    ("anna", "anna-secret"),
    ("anna", "wrong-canary"),
    ("nobody", "nobody-canary"),
    ("plain", "file-canary"),
];

struct Canaries(Vec<String>);

impl Canaries {
    fn new(issued: &serde_json::Value) -> Canaries {
        let mut all: Vec<String> = ["finder-secret", "unbound-canary", "provider-canary"]
            .map(str::to_owned)
            .into_iter()
            .collect();
        for (user, password) in PASSWORDS {
            all.push(password.to_owned());
            let sent = basic(user, password);
            all.push(sent.trim_end().rsplit(' ').next().unwrap().to_owned());
        }
        for key in ["secret", "decrypt"] {
            let text = issued[key].to_string();
            for part in text.split("\"k\":\"").skip(1) {
                all.push(part.split('"').next().unwrap().to_owned());
            }
        }
        for token in issued["tokens"].as_object().unwrap().values() {
            // The header says nothing, and others may have it.
            all.extend(token.as_str().unwrap().split('.').skip(1).map(str::to_owned));
        }
        all.retain(|canary| canary.len() >= 8);
        Canaries(all)
    }

    #[track_caller]
    fn are_not_in(&self, place: &str, text: &str) {
        for canary in &self.0 {
            assert!(!text.contains(canary), "{canary} in {place}: {text}");
        }
    }
}

fn site(driver: Driver, conf: &str, issued: &serde_json::Value) -> Site {
    Site::new(built_binary(), driver)
        .file("html/a.txt", b"hello")
        .file("conf/passwords", "plain:{PLAIN}file-canary\nodd:{UNKNOWN}file-canary\n")
        .file("conf/public.json", issued["public"].to_string())
        .file("conf/secret.json", issued["secret"].to_string())
        .file("conf/decrypt.json", issued["decrypt"].to_string())
        .file("conf/broken.json", format!("{{\"keys\":[{}", issued["secret"]))
        .config(conf)
}

fn everything(response: &Response) -> String {
    format!("{:?} {}", response.headers, String::from_utf8_lossy(&response.body))
}

#[test]
fn secrets_are_in_no_log_and_no_page() {
    let issued: serde_json::Value = serde_json::from_str(ISSUED).unwrap();
    let canaries = Canaries::new(&issued);
    each_driver(|driver| {
        let (port, unused) = (Port::reserve(), Port::reserve());
        let slapd = slapd(port.number(), "", &[], "");
        let (url, away) = (url(port.number()), format!("127.0.0.1:{}", unused.number()));
        let finder = "binddn cn=finder,dc=example,dc=com; binddn_passwd";
        let conf = format!(
            "worker_processes 1; error_log logs/error.log debug; events {{ }} http {{
             access_log logs/access.log; slow_request_time 0;
             log_format json escape=json '{{\"request\":\"$request\",\"user\":\"$remote_user\",'
                 '\"sub\":\"$jwt_claim_sub\"}}';
             access_log logs/json.log json;
             limit_auth_zone zone=guesses:64k rate=1000r/s;
             ldap_server main {{ {url} {finder} finder-secret; require valid_user; }}
             ldap_server unbound {{ {url} {finder} unbound-canary; require valid_user; }}
             ldap_server sealed {{ {url} {finder} finder-secret; starttls on; }}
             ldap_server away {{ url ldap://{away}/dc=x?uid?sub; {finder} finder-secret; }}
             oidc_provider lost {{ issuer https://{away}; client_id me;
                 client_secret provider-canary; }}
             server {{ listen 127.0.0.1:%PORT0%; root html;
                 location /basic/ {{ auth_basic a; auth_basic_user_file passwords;
                     limit_auth zone=guesses; alias html/; }}
                 location /ldap/ {{ auth_ldap a; auth_ldap_servers main; alias html/; }}
                 location /unbound/ {{ auth_ldap a; auth_ldap_servers unbound; alias html/; }}
                 location /sealed/ {{ auth_ldap a; auth_ldap_servers sealed; alias html/; }}
                 location /away/ {{ auth_ldap a; auth_ldap_servers away; alias html/; }}
                 location /jwt/ {{ auth_jwt a; auth_jwt_key_file public.json;
                     auth_jwt_key_file secret.json; alias html/; }}
                 location /encrypted/ {{ auth_jwt a; auth_jwt_type encrypted;
                     auth_jwt_key_file decrypt.json; alias html/; }}
                 location /nested/ {{ auth_jwt a; auth_jwt_type nested; alias html/;
                     auth_jwt_key_file public.json; auth_jwt_key_file decrypt.json; }}
                 location /fetched/ {{ auth_jwt a; auth_jwt_key_request /broken; alias html/; }}
                 location = /broken {{ internal; alias conf/broken.json; }}
                 location /cookie/ {{ auth_jwt a token=$cookie_token; alias html/;
                     auth_jwt_key_file public.json; auth_jwt_key_file secret.json; }}
                 location /proxied/ {{ auth_jwt a; auth_jwt_key_file public.json;
                     proxy_set_header X-Token $http_authorization; proxy_pass http://{away}; }}
                 location /oidc/ {{ auth_oidc lost; alias html/; }}
                 location /api/ {{ api; }} }} }}"
        );
        let site = site(driver, &conf, &issued);
        let dump = site.run(&["-T"]);
        assert!(dump.status.success(), "{dump:?}");
        canaries.are_not_in("-T", &String::from_utf8_lossy(&[dump.stdout, dump.stderr].concat()));
        let weir = site.start();
        let ask = |path: &str, headers: &str| {
            let response = weir.request("GET", path, headers);
            canaries.are_not_in(path, &everything(&response));
            response.status
        };
        for place in ["basic", "ldap", "unbound", "sealed", "away"] {
            let path = format!("/{place}/a.txt");
            let all: Vec<u16> = PASSWORDS.map(|(u, p)| ask(&path, &basic(u, p))).into();
            match place {
                "basic" => assert_eq!(all, [401, 401, 401, 200]),
                "ldap" => assert_eq!(all, [200, 401, 401, 401]),
                _ => assert_eq!(all, [503; 4], "{place}"),
            }
        }
        assert_eq!(ask("/basic/a.txt", &basic("odd", "wrong-canary")), 401);
        let mut accepted = 0;
        for token in issued["tokens"].as_object().unwrap().values() {
            let token = token.as_str().unwrap();
            let cut = &token[..token.len() - 2];
            for place in ["jwt", "encrypted", "nested", "fetched", "proxied"] {
                for token in [token, cut] {
                    let headers = format!("Authorization: Bearer {token}\r\n");
                    accepted += u32::from(ask(&format!("/{place}/a.txt"), &headers) == 200);
                }
            }
            ask("/cookie/a.txt", &format!("Cookie: token={token}\r\n"));
            ask("/oidc/a.txt", "Sec-Fetch-Mode: navigate\r\n");
        }
        assert!(accepted > 5, "{accepted}");
        for path in ["/api/9/weir/slow_requests", "/api/9/http/server_zones"] {
            canaries.are_not_in(path, &everything(&weir.get(path)));
        }
        let logs = ["error.log", "access.log", "json.log"];
        let text = weir.stop_and_read("error.log");
        assert!(text.contains("[debug]") && text.contains("JSON Web Token refused"), "{text}");
        assert!(text.contains("ldap_server \"unbound\": the bind as binddn failed"), "{text}");
        for log in logs {
            canaries.are_not_in(log, &weir.log(log));
        }
        drop(slapd);
    });
}
