//! `userid` and `browser` over real connections.

use testkit::{Driver, Site, Weir, built_binary, each_driver, each_site, refused};

const HTTP: &str = r#"
map $args $uid_reset { default 0; again 1; log log; }
log_format uid "$uid_got|$uid_set|$modern_browser|$ancient_browser|$msie";
access_log logs/uid.log uid;
modern_browser gecko 1.0.0;
modern_browser msie 5.5;
modern_browser unlisted;
modern_browser_value modern;
ancient_browser Links Lynx netscape4;
server {
    listen 127.0.0.1:%PORT0%;
    root html;
    userid on;
    error_log logs/error.log notice;
    add_header X-Got $uid_got;
    add_header X-Set $uid_set;
    location /plain { return 200; }
    location /v1 { userid v1; userid_service 77; return 200; }
    location /log { userid log; return 200; }
    location /off { userid off; return 200; }
    location /all {
        userid_service 65534;
        userid_name id;
        userid_domain example.org;
        userid_path /all;
        userid_expires 365d;
        userid_flags secure httponly samesite=lax;
        userid_p3p 'policyref="/w3c/p3p.xml"';
        userid_mark t;
        return 200;
    }
    location /ssi/ { ssi on; }
    location /part { userid off; return 200 "got $uid_got set $uid_set"; }
    location /age { return 200 "$modern_browser|$ancient_browser|$msie"; }
    location /strict {
        ancient_browser_value old;
        modern_browser opera 9.0;
        return 200 "$modern_browser|$ancient_browser";
    }
}
"#;

fn site(driver: Driver) -> Weir {
    let page = b"<!--#include virtual=\"/part\" -->";
    Site::new(built_binary(), driver).file("html/ssi/p.html", page).http(HTTP).start()
}

fn get(weir: &Weir, uri: &str, cookie: &str) -> testkit::Response {
    weir.request("GET", uri, &format!("Cookie: a=b; {cookie}\r\n"))
}

/// The cookie's name and value.
fn cookie(answer: &testkit::Response) -> &str {
    let field = answer.header("Set-Cookie").expect("a cookie is set");
    field.split(';').next().unwrap_or_default()
}

#[test]
fn cookies() {
    each_site(site, |weir| {
        let first = weir.get("/plain");
        assert!(first.header("Set-Cookie").is_some_and(|c| c.ends_with("==; path=/")));
        let set = first.header("X-Set").unwrap_or_default().to_owned();
        // 127.0.0.1 in the machine's own order of bytes.
        let service = u32::from_ne_bytes([127, 0, 0, 1]);
        assert!(set.starts_with(&format!("uid={service:08X}")) && set.len() == 36, "{set}");
        assert!(first.header("X-Got").is_none());
        let own = cookie(&first).to_owned();
        assert_ne!(cookie(&weir.get("/plain")), own);

        let again = get(&weir, "/plain", &own);
        assert_eq!(again.header("X-Got"), Some(&set[..]));
        assert!(again.header("Set-Cookie").is_none() && again.header("X-Set").is_none());
        let upper = own.replace("uid", "UID");
        assert_eq!(get(&weir, "/plain", &upper).header("X-Got"), Some(&set[..]));
        assert_eq!(get(&weir, "/log", &own).header("X-Got"), Some(&set[..]));
        assert!(get(&weir, "/off", &own).header("X-Got").is_none());
        for uri in ["/log", "/off"] {
            let answer = weir.get(uri);
            assert!(answer.header("Set-Cookie").is_none() && answer.header("X-Set").is_none());
        }
        for args in ["again", "log"] {
            let answer = get(&weir, &format!("/plain?{args}"), &own);
            assert_ne!(cookie(&answer), own);
            assert_eq!(answer.header("X-Got"), Some(&set[..]));
        }
        let message = format!("userid cookie \"{set}\" was reset");
        let v1 = format!("uid={:08X}", 77);
        assert!(weir.get("/v1").header("X-Set").is_some_and(|s| s.starts_with(&v1)));

        for (bad, why) in [("uid=short", "too short"), ("uid=****AQAAAAEAAAACAwMDAg==", "invalid")]
        {
            assert!(get(&weir, "/plain", bad).header("Set-Cookie").is_some());
            let message = format!("client sent {why} userid cookie \"a=b; {bad}\"");
            weir.wait_for_log("error.log", &message);
        }
        assert_eq!(weir.stop_and_read("error.log").matches(&message).count(), 1);
    });
}

#[test]
fn what_a_cookie_says_besides() {
    each_site(site, |weir| {
        let all = weir.get("/all");
        let field = all.header("Set-Cookie").unwrap_or_default();
        let (value, rest) = field.split_once("; expires=").unwrap_or_default();
        assert!(value.starts_with("id=") && value.ends_with("t="), "{field}");
        let rest = rest.split_once(" GMT").map_or("", |(_, rest)| rest);
        let want = "; domain=example.org; path=/all; secure; httponly; samesite=lax";
        assert_eq!(rest, want, "{field}");
        assert_eq!(all.header("P3P"), Some("policyref=\"/w3c/p3p.xml\""));
        // A cookie without the mark is sent back with it, and means the same browser.
        let value = value.to_owned();
        let unmarked = value.replace("t=", "==");
        let marked = get(&weir, "/all", &unmarked);
        assert_eq!(cookie(&marked), value);
        assert_eq!(marked.header("X-Got"), marked.header("X-Set"));
        assert!(get(&weir, "/all", &value).header("Set-Cookie").is_none());

        // A page's parts see the page's cookie, and set none of their own.
        let page = weir.get("/ssi/p.html");
        let set = page.header("X-Set").unwrap_or_default();
        assert_eq!(page.text(), format!("got  set {set}"));
        assert_eq!(page.all("Set-Cookie").count(), 1);
    });
}

#[test]
fn ages_of_browsers() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver).http(HTTP).start();
        let age = |uri: &str, agent: &str| {
            weir.request("GET", uri, &format!("User-Agent: {agent}\r\n")).text()
        };
        let msie = |version| format!("Mozilla/4.0 (compatible; MSIE {version}; Windows NT 5.1)");
        assert_eq!(age("/age", &msie("6.0")), "modern||1");
        assert_eq!(age("/age", &msie("5.0")), "|1|1");
        assert_eq!(age("/age", "Mozilla/5.0 (X11; U; rv:1.8.0.5) Gecko"), "modern||");
        assert_eq!(age("/age", "Lynx/2.8"), "|1|");
        assert_eq!(age("/age", "Mozilla/4.72 [en] (X11)"), "|1|");
        assert_eq!(age("/age", "curl/8"), "modern||");
        assert_eq!(weir.get("/age").text(), "modern||");
        assert_eq!(age("/strict", "Opera/9.01 (X11)"), "modern|");
        assert_eq!(age("/strict", &msie("6.0")), "|old");
    });
}

#[test]
fn what_is_wrong_is_told() {
    refused(
        "*",
        &[
            ("userid yes;", "invalid value \"yes\""),
            ("userid_mark tt;", "value must be \"off\" or a single letter, digit or \"=\""),
            ("userid_expires soon;", "\"userid_expires\" directive invalid value"),
            ("userid_flags unsafe;", "invalid value \"unsafe\""),
            ("userid on; userid off;", "\"userid\" directive is duplicate"),
            ("modern_browser lynx 1;", "unknown browser name \"lynx\""),
            ("modern_browser opera 1a;", "invalid browser version \"1a\""),
            ("modern_browser opera;", "invalid parameter \"opera\""),
        ],
    );
}
