//! Server side includes over real connections.

use testkit::{Driver, Site, Weir, built_binary, each_driver};

/// Starts a server whose pages are the files given.
fn site(driver: Driver, pages: &[(&str, &str)], server: &str) -> Weir {
    let mut site = Site::new(built_binary(), driver);
    for (name, text) in pages {
        site = site.file(&format!("html/{name}"), text);
    }
    site.http(&format!("server {{ listen 127.0.0.1:%PORT0%; ssi on; {server} }}")).start()
}

/// Requests pages and checks each against its expected body.
fn check(weir: &Weir, expected: &[(&str, &str)]) {
    for &(uri, text) in expected {
        let r = weir.get(uri);
        assert_eq!((r.status, r.text().as_str()), (200, text), "{uri}");
    }
}

const ERROR: &str = "[an error occurred while processing the directive]";

#[test]
fn texts_and_conditions() {
    each_driver(|driver| {
        let weir = site(
            driver,
            &[
                (
                    "echo.html",
                    "<!--#echo var=\"arg_a\" --> <!--#echo var='ARG_A' encoding='none' --> \
                    <!--#echo var='arg_a' encoding='url' --> <!--#echo var='arg_b' --> \
                    <!--#echo var='nothing' default='' --><!--#echo var='mapped' default='d' -->",
                ),
                (
                    "set.html",
                    "<!--#set var='a' value='x$arg_a' --><!--#set var='b' value='${A}y\\$z\\n' -->\
                    <!--#echo var='b' encoding='none' --> <!--#set var='a' value=''--><!--#echo var='a'-->.",
                ),
                (
                    "if.html",
                    "<!--#if expr='$arg_a' -->set<!--#else -->unset<!--#endif --> \
                    <!--#if expr='$arg_a = one' -->1<!--#elif expr='$arg_a = two' -->2\
                    <!--#elif expr='$arg_a != three' -->other<!--#else -->3<!--#endif -->",
                ),
                (
                    "regex.html",
                    "<!--#if expr='$arg_a = /^(.)(?P<rest>.*)/' --><!--#echo var='1' -->|\
                    <!--#echo var='rest' --><!--#else -->no<!--#endif -->\
                    <!--#if expr='$arg_a = \\/x/' -->path<!--#endif -->",
                ),
                (
                    "wrong.html",
                    "<!--#nothing -->1<!--#echo -->2<!--#echo var='a' var='b' -->3<!--#echo x='y' -->4\
                    <!--#else -->5<!--#if expr='a b' -->6<!--#if expr='$a = /(/' -->7",
                ),
                (
                    "message.html",
                    "<!--#config errmsg='oops' --><!--#bad --><!--#config errmsg='' --><!--#bad -->",
                ),
                (
                    "date.html",
                    "<!--#config timefmt='%Y' --><!--#set var='y' value='$date_gmt' -->\
                    <!--#if expr='$y = /^20[0-9][0-9]$/' -->year<!--#endif --> <!--#config timefmt='%s' -->\
                    <!--#if expr='$date_local = /^[0-9]{10}$/' -->seconds<!--#endif -->",
                ),
                (
                    "skip.html",
                    "<!--#if expr='' --><!--#nothing --><!--#include virtual='/none' --> x\
                    <!--#endif -->end<!-",
                ),
                ("quiet/page.html", "<!--#nothing -->quiet"),
                ("short/page.html", "<!--#echo var='123456789' default='1' -->ok"),
                ("plain.txt", "<!--#nothing -->"),
            ],
            "location /quiet/ { ssi_silent_errors on; }
             location /short/ { ssi_value_length 8; ssi_silent_errors on; }
             location /modified/ { alias html/; ssi_last_modified on; }
             set $mapped 'from $uri';",
        );
        check(
            &weir,
            &[
                ("/echo.html?a=<%22>", "&lt;%22&gt; <%22> %3C%2522%3E (none) from%20/echo.html"),
                ("/set.html?a=1", "x1y$z\\n ."),
                ("/if.html", "unset other"),
                ("/if.html?a=one", "set 1"),
                ("/if.html?a=two", "set 2"),
                ("/if.html?a=three", "set 3"),
                ("/regex.html?a=one", "o|ne"),
                ("/regex.html", "no"),
                ("/regex.html?a=/x/", "/|x/path"),
                ("/message.html", "oops"),
                ("/date.html", "year seconds"),
                ("/skip.html", "end<!-"),
                ("/quiet/page.html", "quiet"),
                ("/short/page.html", "ok"),
                ("/plain.txt", "<!--#nothing -->"),
            ],
        );
        let wrong = weir.get("/wrong.html").text();
        let rest: String = wrong.split(ERROR).collect();
        assert_eq!((rest.as_str(), wrong.matches(ERROR).count()), ("1234567", 7), "{wrong}");
        for message in [
            "invalid SSI command: \"nothing\"",
            "mandatory \"var\" parameter is absent in \"echo\" SSI command",
            "duplicate \"var\" parameter in \"echo\" SSI command",
            "invalid parameter name: \"x\" in \"echo\" SSI command",
            "invalid context of SSI command: \"else\"",
            "invalid expression in \"a b\"",
            "regular expression \"(\" does not compile",
            "too long \"123456789...\" value of \"var\" parameter in \"echo\" SSI command",
        ] {
            weir.wait_for_log("error.log", message);
        }
        let r = weir.get("/if.html");
        let fields = ["content-length", "last-modified", "etag", "accept-ranges"];
        assert_eq!(fields.map(|f| r.header(f).is_some()), [false; 4]);
        let r = weir.get("/modified/if.html");
        assert!(
            r.header("last-modified").is_some()
                && r.header("etag").is_some_and(|e| e.starts_with("W/"))
        );
    });
}

#[test]
fn includes() {
    each_driver(|driver| {
        let weir = site(
            driver,
            &[
                ("a/page.html", "<!--#include virtual=\"part.html?x=$arg_x\" -->|<!--#include file='part.html' -->|\
                    <!--#include virtual='/b%2fpart.html' -->"),
                ("a/part.html", "<a <!--#echo var='arg_x' --> <!--#echo var='uri' --> <!--#echo var='request_uri' -->>"),
                ("b/part.html", "<b>"),
                ("nested.html", "1<!--#include virtual='/nested2.html' -->5"),
                ("nested2.html", "2<!--#set var='seen' value='yes' --><!--#include virtual='/nested3.html' -->4"),
                ("nested3.html", "3<!--#echo var='seen' -->"),
                ("wait.html", "<!--#include virtual='/setter.html' wait='yes' --><!--#echo var='v' -->"),
                ("setter.html", "<!--#set var='v' value='set' -->"),
                ("into.html", "<!--#include virtual='/b/part.html' set='v' -->[<!--#echo var='v' encoding='none' -->]"),
                ("into404.html", "<!--#include virtual='/none' set='v' -->[<!--#echo var='v' -->]"),
                ("stub.html", "<!--#block name='one' -->stub <!--#echo var='uri' --><!--#endblock -->\
                    <!--#include virtual='/none.html' stub='one' -->|<!--#include virtual='/empty.html' stub='one' -->|\
                    <!--#include virtual='/b/part.html' stub='one' -->"),
                ("empty.html", ""),
                ("unsafe.html", "<!--#include virtual='/a/../../etc/passwd' --><!--#include virtual='' -->"),
                ("missing.html", "[<!--#include virtual='/none.html' -->]"),
                ("self.html", "<!--#include virtual='/self.html' -->."),
                ("twice.html", "<!--#include virtual='/twice.html' --><!--#include virtual='/twice.html' -->."),
                ("big.html", "<!--#include virtual='/large.txt' set='v' -->x"),
                ("coded.html", "<!--#include virtual='/b/part.html' -->page"),
                ("proxied.html", "<!--#include virtual='/pass/one' --> <!--#include virtual='/pass/two' -->"),
                ("mixed.html", "<!--#include virtual='/large.txt' --><!--#include virtual='/b/part.html' -->"),
            ],
            "log_not_found off;
             location = /none.html { return 404 none; }
             location = /large.txt { ssi off; alias html/large.txt; }
             location /coded { gzip on; gzip_min_length 1; alias html/coded.html; types { } default_type text/html; }
             location /pass/ { proxy_pass http://127.0.0.1:%PORT0%/back/; }
             location /back/ { default_type text/html; return 200 'back $uri $request_method $content_length'; }
             location = /post { client_max_body_size 1m; proxy_pass http://127.0.0.1:%PORT0%/posted; }
             location = /posted { default_type text/html; return 200 '<!--#include virtual=\"/none.html\" -->'; }",
        );
        weir.write("html/large.txt", vec![b'.'; 500_000]);
        check(
            &weir,
            &[
                (
                    "/a/page.html?x=1",
                    "<a 1 /a/part.html /a/page.html?x=1>|<a (none) /a/part.html /a/page.html?x=1>|<b>",
                ),
                ("/nested.html", "123yes45"),
                ("/wait.html", "set"),
                ("/into.html", "[<b>]"),
                ("/into404.html", "[]"),
                ("/stub.html", "none|stub /empty.html|<b>"),
                ("/unsafe.html", &format!("{ERROR}{ERROR}")),
                ("/missing.html", "[none]"),
                ("/proxied.html", "back /back/one GET  back /back/two GET "),
            ],
        );
        let mixed = weir.get("/mixed.html").text();
        assert_eq!((mixed.len(), mixed.ends_with(".<b>")), (500_003, true));
        // 50 deep, and no further.
        assert_eq!(weir.get("/self.html").text(), format!("{ERROR}{}", ".".repeat(51)));
        weir.wait_for_log("error.log", "subrequests cycle while processing \"/self.html\"");
        // A variable holds no more than the buffer's size: the page cannot be finished.
        let big = weir.raw("GET /big.html HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(String::from_utf8_lossy(&big), "");
        // Answers before it are sent.
        let big = weir.raw(
            "GET /none.html HTTP/1.1\r\nHost: a\r\n\r\nGET /big.html HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        assert_eq!(String::from_utf8_lossy(&big).matches("HTTP/1.1 ").count(), 1);
        weir.wait_for_log("error.log", "too big subrequest response");
        let coded = weir.request("GET", "/coded", "Accept-Encoding: gzip\r\n");
        assert_eq!(coded.header("content-encoding"), Some("gzip"));
        let head = weir.request("HEAD", "/nested.html", "");
        assert_eq!((head.status, head.body.len()), (200, 0));
    });
}

/// All that a page of tens of thousands of parts gives, which takes seconds of the processor.
fn whole(weir: &Weir, path: &str) -> Vec<u8> {
    let mut conn = weir.connect();
    conn.set_patience(4 * testkit::PATIENCE);
    conn.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    conn.read_to_end()
}

/// On one driver only, since it takes its time.
#[test]
fn a_tree_of_parts_has_an_end() {
    let many = |name: &str| format!("<!--#include virtual='/{name}.html' -->").repeat(300);
    let row = format!("r{}", many("dot"));
    let pages = [("page.html", &*many("row")), ("row.html", &*row), ("dot.html", ".")];
    let weir = site(Driver::ALL[0], &pages, "ssi_silent_errors on;");
    // Of 90,300 parts, each of a byte, there may be 64,535; then the response breaks off.
    let answer = whole(&weir, "/page.html");
    let text = String::from_utf8_lossy(&answer);
    let body = text.split_once("\r\n\r\n").expect("a head").1;
    let parts = body.bytes().filter(|b| matches!(b, b'.' | b'r')).count();
    assert!((50_000..=64_535).contains(&parts), "{parts}");
    assert!(!body.ends_with("\r\n0\r\n\r\n"), "the page seems whole");
    let refused = "too many subrequests while processing \"/";
    weir.wait_for_log("error.log", refused);
    let log = weir.log("error.log");
    assert_eq!(log.matches(refused).count(), 1, "{log}");
    let worker = weir.workers()[0];
    let status = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    assert!((1..100 << 10).contains(&peak), "{peak} kB");
}

/// A page that includes itself is a tree without end: the log has one line for each reason.
#[test]
fn a_page_that_includes_itself_ends_with_few_lines_in_the_log() {
    let text = "<!--#include virtual='/self.html' -->".repeat(10);
    let server = "ssi_silent_errors on; location = /ok { return 200 ok; }";
    let weir = site(Driver::ALL[0], &[("self.html", &*text)], server);
    let answer = whole(&weir, "/self.html");
    assert!(!answer.ends_with(b"\r\n0\r\n\r\n"), "the page seems whole");
    weir.wait_for_log("error.log", "too many subrequests while processing");
    let log = weir.log("error.log");
    for reason in ["too many subrequests", "subrequests cycle"] {
        assert_eq!(log.matches(reason).count(), 1, "{reason}: {log:.2000}");
    }
    assert_eq!(weir.get("/ok").text(), "ok");
}

/// A row of commands that each double a value would take all memory, and end the worker.
#[test]
fn values_have_a_longest_length() {
    let doubled = |times: usize| {
        let double = "<!--#set var='v' value='$v$v' -->".repeat(times);
        format!("<!--#set var='v' value='12345678' -->{double}|")
    };
    let many: String = (0..17).map(|n| format!("<!--#set var='w{n}' value='$v' -->")).collect();
    let many = format!("{}{many}<!--#echo var='w1' encoding='none' -->", doubled(13));
    let block = "<!--#block name='b' -->".to_owned()
        + &"0123456789abcdef".repeat(70_000)
        + "<!--#endblock -->[<!--#include virtual='/none.html' stub='b' -->]";
    let captured = "<!--#if expr=\"$v = /(?P<c>.+)/\" --><!--#endif -->\
                    <!--#echo var='c' encoding='none' -->";
    let captured = format!("{}{captured}", doubled(10));
    let wrong = "<!--#nonsense -->".repeat(500);
    let part = "x".repeat(100_000);
    each_driver(|driver| {
        let pages = [
            ("thirty.html", &*doubled(30)),
            ("fits.html", &*(doubled(13) + "<!--#echo var='v' -->")),
            ("less.html", &*doubled(8)),
            ("many.html", &*many),
            ("block.html", &*block),
            ("captured.html", &*captured),
            ("wrong.html", &*wrong),
            ("part.html", &*part),
            (
                "parts.html",
                "<!--#include virtual='/part.html' set='v' --><!--#set var='w' value='$v' -->\
                <!--#echo var='w' -->",
            ),
        ];
        let server = "subrequest_output_buffer_size 128k;
                      location = /less.html { ssi_variable_length 1k; }";
        let weir = site(driver, &pages, server);
        let worker = weir.workers()[0];
        let text = weir.get("/thirty.html").text();
        assert_eq!(text, format!("{}|", ERROR.repeat(17)));
        weir.wait_for_log("error.log", "the value of \"$v$v\" is too long");
        assert_eq!(weir.get("/less.html").text(), format!("{ERROR}|"));
        // Parts have a limit of their own.
        assert_eq!(weir.get("/parts.html").text(), part);
        let fits = weir.get("/fits.html").text();
        assert_eq!(fits, format!("|{}", "12345678".repeat(8192)));
        // All of them together have a limit, too: 15 of them, and what the entries take.
        let many = weir.get("/many.html").text();
        assert_eq!(many, format!("|{}{}", ERROR.repeat(3), "12345678".repeat(8192)));
        let block = weir.get("/block.html").text();
        assert_eq!(block, format!("{ERROR}[{ERROR}]"));
        let captured = weir.get("/captured.html").text();
        assert_eq!(captured, format!("|{}", "12345678".repeat(1024)));
        let wrong = weir.get("/wrong.html").text();
        assert_eq!(wrong, ERROR.repeat(500));
        weir.wait_for_log("error.log", "more errors of this page are not logged");
        let log = weir.log("error.log");
        assert_eq!(log.matches("invalid SSI command").count(), 100);
        assert_eq!(weir.workers(), [worker]);
    });
}
