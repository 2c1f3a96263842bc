//! `auth_require` and `internal_redirect`: access by variables, and another location behind it.

use testkit::{Site, Weir, built_binary, each_driver, refused};

fn get(weir: &Weir, path: &str) -> (u16, String) {
    let response = weir.get(path);
    (response.status, String::from_utf8_lossy(&response.body).trim().to_owned())
}

#[test]
fn access_is_denied_unless_all_values_are_set() {
    each_driver(|driver| {
        let text = "map $arg_role $admin { admin 1; none 0; }
            server { listen 127.0.0.1:%PORT0%;
                auth_require $arg_user;
                location / { root html; }
                location /two { auth_require $arg_user $admin; auth_require $arg_late error=451; root html; }
                location /off { auth_require off; root html; }
                location /any { satisfy any; deny all; root html; }
                location /read { auth_require off; limit_except GET { auth_require $arg_user error=410; }
                    root html; } }";
        let site = Site::new(built_binary(), driver).file("html/x.txt", b"x");
        let weir = site.http(text).start();
        for (path, status) in [
            ("/?user=a", 403),
            ("/x.txt?user=a", 200),
            ("/x.txt", 403),
            ("/x.txt?user=0", 403),
            ("/x.txt?user=", 403),
            ("/x.txt?user=00", 200),
            ("/two?user=a&role=admin", 451),
            ("/two?user=a&role=admin&late=1", 404),
            ("/two?user=a&role=none&late=1", 403),
            ("/two?role=admin&late=1", 403),
            ("/off", 404),
            ("/any", 403),
            ("/any?user=a", 404),
            ("/read", 404),
        ] {
            assert_eq!(weir.get(path).status, status, "{path}");
        }
        assert_eq!(weir.request("DELETE", "/read", "").status, 410);
        let line = weir.wait_for_log("error.log", "auth_require");
        assert!(line.contains("access forbidden by \"auth_require\", client: 127.0.0.1"), "{line}");
    });
}

#[test]
fn redirects_come_after_access_was_checked() {
    each_driver(|driver| {
        let text = "server { listen 127.0.0.1:%PORT0%;
                internal_redirect $arg_to;
                auth_require $arg_user;
                location / { root html; }
                location /in { internal; auth_require off; return 200 \"in $uri $args $request_uri\"; }
                location @named { auth_require off; try_files /none =418; }
                location /named { internal_redirect @named; root html; } }
            server { listen 127.0.0.1:%PORT1%; internal_redirect @all;
                location / { return 200 not; }
                location @all { return 200 \"all $uri\"; } }
            server { listen 127.0.0.1:%PORT2%; location /a { internal_redirect /b; root html; }
                location /b { internal_redirect /a; root html; }
                location /c { internal_redirect @none; root html; } }";
        let weir = Site::new(built_binary(), driver).http(text).start();
        let none = (403, String::new());
        assert_eq!(get(&weir, "/?to=/in").0, none.0, "access comes first");
        let found = get(&weir, "/?user=a&to=/in/x");
        assert_eq!(found, (200, "in /in/x  /?user=a&to=/in/x".to_owned()));
        assert_eq!(get(&weir, "/?user=a&to=").0, 403);
        assert_eq!(get(&weir, "/in").0, 404);
        assert_eq!(get(&weir, "/named?user=a").0, 418);
        assert_eq!(get(&weir, "/named").0, 403);
        let conn = |port, path: &str| {
            let mut conn = testkit::Conn::tcp(weir.port(port));
            conn.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
            conn.response().status
        };
        assert_eq!((conn(1, "/x"), conn(2, "/a"), conn(2, "/c")), (200, 500, 500));
        weir.wait_for_log("error.log", "cycle while internally redirecting to");
        weir.wait_for_log("error.log", "could not find named location \"@none\"");
    });
}

#[test]
fn numbers_choose_values() {
    each_driver(|driver| {
        let text =
            "num_map $arg_n $kind { 80 \"http $uri\"; <=1023 low; 8080-8090 proxy; default other; }
            num_map $arg_n $bare { 1 one; volatile; }
            server { listen 127.0.0.1:%PORT0%; return 200 \"$kind|$bare|\"; }";
        let weir = Site::new(built_binary(), driver).http(text).start();
        for (n, value) in [
            ("80", "http /x||"),
            ("1", "low|one|"),
            ("8085", "proxy||"),
            ("x", "other||"),
            ("", "other||"),
        ] {
            assert_eq!(get(&weir, &format!("/x?n={n}")).1, value);
        }
    });
}

#[test]
fn what_is_wrong_is_told() {
    refused(
        "*",
        &[
            ("auth_require error=403;", "\"auth_require\" directive has no values in"),
            ("auth_require $uri error=200;", "invalid error code \"error=200\" in"),
            ("auth_require $uri error=403 error=404;", "duplicate parameter \"error\" in"),
            ("auth_require off; auth_require $uri;", "cannot stand beside \"auth_require off\" in"),
            ("server { internal_redirect @a; internal_redirect @b; }", "is duplicate in"),
            ("num_map $uri $x { 1-x a; }", "invalid number or range \"1-x\" in"),
        ],
    );
}
