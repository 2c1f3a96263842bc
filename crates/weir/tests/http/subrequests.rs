//! Subrequests over real connections: `addition`, `auth_request`, `mirror`.

use testkit::{Driver, Site, Weir, built_binary, each_driver};

fn site(driver: Driver, server: &str) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/page.html", "page")
        .file("html/empty.html", "")
        .file("html/page.txt", "text")
        .file("html/head.html", "<head>")
        .file("html/large.html", vec![b'x'; 300_000])
        .http(server)
        .start()
}

#[test]
fn bodies_before_and_behind() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "log_format sub '$uri';
             server {
                 listen 127.0.0.1:%PORT0%;
                 add_before_body /head.html;
                 add_after_body /foot;
                 location /foot { return 200 '<foot $uri $request_uri $request_method>'; }
                 location /off/ { alias html/; add_before_body ''; add_after_body ''; }
                 location /before/ { alias html/; add_before_body /large.html; add_after_body ''; }
                 location /types/ { alias html/; addition_types text/plain; types { text/plain txt; text/html html; } }
                 location /coded/ { alias html/; gzip on; gzip_min_length 1; }
                 location /missing/ { alias html/; add_after_body /nowhere; }
                 location /deep/ { alias html/; add_before_body /deep/page.html; }
                 location /closed/ { alias html/; add_after_body /close; }
                 location /close { return 444; }
                 location /logged/ { alias html/; log_subrequest on; access_log logs/sub.log sub;
                                     add_before_body /logged/page.txt; add_after_body /page.txt; }
             }",
        );
        let get = |path: &str| {
            let r = weir.get(path);
            assert_eq!(r.status, 200, "{path}");
            r.text()
        };
        assert_eq!(get("/page.html?a=b"), "<head>page<foot /foot /page.html?a=b GET>");
        assert_eq!(get("/empty.html"), "<head><foot /foot /empty.html GET>");
        assert_eq!(get("/page.txt"), "text");
        assert_eq!(get("/types/page.txt"), "<head>text<foot /foot /types/page.txt GET>");
        assert_eq!(get("/off/page.html"), "page");
        let large = get("/before/page.html");
        assert_eq!((large.len(), &large[299_999..]), (300_004, "xpage"));
        let whole = weir.get("/page.html");
        assert_eq!(whole.header("content-length"), None);
        assert!(whole.header("etag").is_some_and(|e| e.starts_with("W/")));
        // No part of a page has a head of its own, nor a page of its parts alone.
        assert!(get("/missing/page.html").contains("page<html>\r\n<head><title>404 Not Found"));
        // A page that is a part of itself has no more parts there: only a client's request has.
        assert_eq!(get("/deep/page.html"), "pagepage<foot /foot /deep/page.html GET>");
        // A subrequest that is not answered is no end of a page.
        let closed = weir.raw("GET /closed/page.html HTTP/1.1\r\nHost: a\r\n\r\n");
        let closed = String::from_utf8_lossy(&closed);
        assert!(closed.contains("<head>") && !closed.ends_with("0\r\n\r\n"), "{closed}");
        let coded = weir.request("GET", "/coded/page.html", "Accept-Encoding: gzip\r\n");
        assert_eq!(coded.header("content-encoding"), Some("gzip"));
        assert!(!coded.body.windows(6).any(|w| w == b"<head>"), "parts are coded with the whole");
        get("/logged/page.html");
        weir.wait_for_log("sub.log", "/logged/page.html");
        assert_eq!(weir.log("sub.log"), "/logged/page.txt\n/logged/page.html\n");
        weir.wait_for_log("error.log", "subrequest: \"/nowhere\"");
    });
}

#[test]
fn a_status_allows_or_refuses() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "server {
                 listen 127.0.0.1:%PORT0%;
                 location /open/ { alias html/; auth_request /yes; }
                 location /closed/ { alias html/; auth_request /no; }
                 location /who/ { alias html/; auth_request /ask; }
                 location /broken/ { alias html/; auth_request /odd; }
                 location /lost/ { alias html/; auth_request /nowhere; }
                 location /off/ { location /off/in/ { auth_request off; alias html/; } auth_request /no; }
                 location /set/ { auth_request /given; auth_request_set $user $sent_http_x_user;
                                  auth_request_set $from $uri; alias html/;
                                  add_header X-User '$user $from $uri'; }
                 location /any/ { satisfy any; deny all; auth_request /yes; alias html/; }
                 location /body/ { auth_request /yes; proxy_pass http://127.0.0.1:%PORT0%/echo; }
                 location = /echo { client_max_body_size 1k; return 200 \"$content_length\"; }
                 location = /yes { internal; return 204; }
                 location = /no { return 403; }
                 location = /odd { return 500; }
                 location = /ask { add_header X-A 1 always; proxy_pass http://127.0.0.1:%PORT0%/realm; }
                 location = /realm { add_header WWW-Authenticate 'Basic realm=\"a\"' always; return 401; }
                 location = /given { proxy_pass http://127.0.0.1:%PORT0%/user; }
                 location = /user { add_header X-User mary; return 200 ok; }
             }",
        );
        let status = |path: &str| weir.get(path).status;
        assert_eq!(status("/open/page.html"), 200);
        assert_eq!(status("/closed/page.html"), 403);
        assert_eq!(status("/broken/page.html"), 500);
        assert_eq!(status("/lost/page.html"), 500);
        assert_eq!(status("/off/page.html"), 403);
        assert_eq!(status("/off/in/page.html"), 200);
        assert_eq!(status("/any/page.html"), 200);
        assert_eq!(status("/yes"), 404);
        let who = weir.get("/who/page.html");
        assert_eq!((who.status, who.header("www-authenticate")), (401, Some("Basic realm=\"a\"")));
        assert_eq!(who.header("x-a"), None);
        weir.wait_for_log("error.log", "auth request unexpected status: 500");
        weir.wait_for_log("error.log", "auth request unexpected status: 404");
        // The body is the request's own: the one that asks has none, and leaves it to be read.
        let post = "POST /body/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\n12345";
        let answer = String::from_utf8_lossy(&weir.raw(post)).into_owned();
        assert!(answer.ends_with("\r\n\r\n5"), "{answer}");
    });
}

#[test]
fn copies_of_requests() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "log_format body '$request_method $uri $args $http_x_a $request_body';
             server {
                 listen 127.0.0.1:%PORT0%;
                 location /x { mirror /one; mirror /two; proxy_pass http://127.0.0.1:%PORT0%/main; }
                 location /plain { mirror /one; mirror_request_body off; return 200 plain; }
                 location /page.html { mirror /one; }
                 location /off { mirror off; return 200 off; }
                 location = /one { internal; proxy_pass http://127.0.0.1:%PORT0%/copy?one; }
                 location = /two { internal; proxy_pass http://127.0.0.1:%PORT0%/slow; }
                 location = /copy { access_log logs/copy.log body; proxy_pass http://127.0.0.1:%PORT0%/end; }
                 location = /slow { limit_rate 1; access_log logs/slow.log body; alias html/page.html; }
                 location = /main { return 200 main; }
                 location = /end { return 200 end; }
             }",
        );
        let request = "POST /x?a HTTP/1.1\r\nHost: a\r\nX-A: y\r\nContent-Length: 4\r\n\
                       Connection: close\r\n\r\nbody";
        let answer = String::from_utf8_lossy(&weir.raw(request)).into_owned();
        assert!(answer.ends_with("\r\n\r\nmain"), "{answer}");
        assert_eq!(weir.wait_for_log("copy.log", "/copy"), "POST /copy one?a y body");
        assert_eq!(weir.get("/page.html").text(), "page");
        weir.wait_for_log("copy.log", "GET /copy one ");
        assert_eq!(weir.get("/off").text(), "off");
    });
}

#[test]
fn actions_behind_answers() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "log_format post '$uri $body_bytes_sent $request_uri';
             access_log logs/post.log post;
             server {
                 listen 127.0.0.1:%PORT0%;
                 location /page.html { post_action /done; }
                 location /named { post_action @done; return 200 named; }
                 location /passed { post_action /pass; return 200 passed; }
                 location /lost { post_action /nowhere; return 200 lost; }
                 location /done { return 200 HIDDEN; }
                 location @done { return 404; }
                 location /pass { proxy_pass http://127.0.0.1:%PORT0%/large.html?$body_bytes_sent; }
             }",
        );
        // All over one connection: nothing of an action is on it.
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let all = ["/page.html", "/named", "/passed", "/lost"].map(get).concat();
        let last = "GET /page.html HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let answers = String::from_utf8_lossy(&weir.raw(format!("{all}{last}"))).into_owned();
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 5, "{answers}");
        assert!(!answers.contains("HIDDEN") && answers.ends_with("\r\n\r\npage"), "{answers}");
        let log = weir.wait_for_log("post.log", "/lost");
        assert_eq!(log, "/nowhere 4 /lost");
        for line in ["/done 4 /page.html", "/named 5 /named", "/pass 6 /passed"] {
            assert_eq!(weir.wait_for_log("post.log", line), line);
        }
        weir.wait_for_log("post.log", " /large.html?6");
    });
}
