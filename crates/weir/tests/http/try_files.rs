//! `try_files` in all kinds of locations.

use testkit::{Site, built_binary, each_driver, refused};

#[test]
fn the_first_that_is_there() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .file("html/found.html", "found")
            .file("html/fallback.html", "fallback")
            .file("html/dir/index.html", "index of dir")
            .file("html/dir/alias-re.html", "below alias")
            .http(
                "server {
                     listen 127.0.0.1:%PORT0%;
                     location / { try_files $uri $uri.html /fallback.html; }
                     location /folders/ { try_files /nope/ /dir/ =404; }
                     location /file/ { try_files /found.html/ /dir =418; }
                     location /short/ { try_files /short $uri =404; }
                     location /named/ { try_files $uri @other; }
                     location @other { try_files /found.html =500; }
                     location /args/ { try_files $uri /fallback.html?a=b; }
                     location /al/ { alias html/; try_files $uri /nope =404; }
                     location ~ /alias-re.html$ { alias html/dir; try_files $uri =404; }
                     location /nested/ { alias html/; location ~ html { try_files $uri =404; } }
                     location /outer/ { try_files /found.html =404;
                                        location /outer/in/ { } }
                     location /circle/ { try_files $uri /circle/again; }
                     location /cached/ { open_file_cache max=10; try_files /found.html =404; }
                     location = /close { try_files $uri =444; }
                 }",
            )
            .start();
        for (path, want) in [
            ("/found.html", "found"),
            ("/found", "found"),
            ("/nope", "fallback"),
            ("/named/x", "found"),
            ("/args/x", "fallback"),
            ("/al/found.html", "found"),
            ("/alias-re.html", "below alias"),
            ("/nested/found.html", "found"),
            ("/outer/x", "found"),
            ("/cached/x", "found"),
            ("/cached/y", "found"),
        ] {
            let r = weir.get(path);
            assert_eq!((r.status, &r.text()[..]), (200, want), "{path}");
        }
        for (path, status) in [
            ("/folders/x", 301),
            ("/file/x", 418),
            ("/short/x", 404),
            ("/al/x", 404),
            ("/outer/in/x", 404),
            ("/circle/x", 500),
        ] {
            assert_eq!(weir.get(path).status, status, "{path}");
        }
        assert_eq!(weir.raw("GET /close HTTP/1.0\r\n\r\n"), b"");
        let line = "rewrite or internal redirection cycle while internally redirecting";
        weir.wait_for_log("error.log", line);
    });
}

#[test]
fn what_is_wrong_is_told() {
    refused(
        "server { listen 127.0.0.1:%PORT0%; * }",
        &[
            ("try_files $uri;", "invalid number of arguments in \"try_files\" directive"),
            ("try_files $uri =1000;", "invalid code \"=1000\""),
            ("try_files $uri =x;", "invalid code \"=x\""),
            ("try_files $uri =404; try_files $uri =404;", "\"try_files\" directive is duplicate"),
        ],
    );
}

/// As in nginx 1.22.
#[test]
fn the_path_info_outlasts_try_files() {
    let text = "server { listen 127.0.0.1:%PORT0%; root html;
        location ~ [.]php {
            fastcgi_split_path_info ^(.+[.]php)(/.*)$;
            try_files $fastcgi_script_name =404;
            add_header X-Info '$fastcgi_script_name|$fastcgi_path_info|$uri';
        }
        location ~ [.]phtml {
            fastcgi_split_path_info ^(.+[.]phtml)(/.*)$;
            try_files /a.php =404;
            add_header X-Info '$fastcgi_script_name|$fastcgi_path_info|$uri';
        } }";
    testkit::each_driver(|driver| {
        let site = Site::new(built_binary(), driver).file("html/a.php", "script");
        let weir = site.http(text).start();
        let info = |path: &str| weir.get(path).header("X-Info").map(str::to_owned);
        assert_eq!(info("/a.php/in/fo").as_deref(), Some("/a.php|/in/fo|/a.php"));
        assert_eq!(info("/a.php").as_deref(), Some("/a.php||/a.php"));
        assert_eq!(info("/b.phtml/in").as_deref(), Some("/a.php||/a.php"));
        assert_eq!(weir.get("/none.php/in").status, 404);
    });
}
