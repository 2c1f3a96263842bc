//! The requests: drawn from lists, the same for the same seed.

use testkit::rng::Rng;

/// The bytes of one connection.
pub struct Case {
    /// Its number, from 0 on.
    pub number: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The methods of its requests, by which answers are read.
    pub methods: Vec<String>,
    /// The sending direction is closed behind the bytes; otherwise the server would wait for the
    /// rest.
    pub cut: bool,
    /// The upstream's answer, where that was drawn as well.
    pub said: Vec<u8>,
}

const FILES: &[&str] = &[
    "index.html",
    "plain.txt",
    "long.txt",
    "koi.txt",
    "style.css",
    "data.json",
    "empty.txt",
    "dot.gif",
    "noext",
    "",
    "nowhere",
    "folder",
    "folder/",
    "folder/a.txt",
    "spaced%20name.txt",
    "folder/b%20&%20%3Cc%3E.html",
    "%2e%2e/passwd",
    "long.txt?a=1",
    "./plain.txt",
    "folder/../plain.txt",
    "//plain.txt",
    "plain.txt/",
    "%70lain.txt",
    "plain.txt%00",
    "index.html#x",
];
const ROOTS: &[&str] = &[
    "/",
    "/expires/",
    "/epoch/",
    "/before/",
    "/noranges/",
    "/byregex/",
    "/gz/",
    "/charset/",
    "/add/",
    "/basic/",
    "/any/",
    "/deny/",
    "/only-get/",
    "/ifloc/",
    "/uid/",
    "/conn/",
    "/ratefile/",
    "/auth/",
    "/list/",
    "/noslash",
    "/named-host/",
    "/charsetvar/",
    "/sub/",
    "/subonce/",
];
const TARGETS: &[&str] = &[
    "/try/here.txt",
    "/try/nothing",
    "/try/folder",
    "/try/folder/",
    "/trynamed/x?q",
    "/trycode/x",
    "/trycode/here.txt",
    "/exact",
    "/exact/",
    "/prefixed/x",
    "/list/",
    "/listjson/",
    "/listxml/",
    "/listjsonp/?callback=cb",
    "/listjsonp/",
    "/film/a.flv",
    "/film/a.flv?start=20",
    "/film/a.flv?start=0",
    "/film/a.flv?start=9999",
    "/film/a.flv?start=x",
    "/film/a.mp4",
    "/film/a.mp4?start=1",
    "/film/none.mp4?start=1",
    "/sub/index.html?a=b",
    "/subonce/long.txt",
    "/rand/",
    "/noslash",
    "/noslash?x",
    "/errors/404.html",
    "/gs/a.txt",
    "/gs/b.txt",
    "/gs/only.txt",
    "/gsalways/a.txt",
    "/gsalways/b.txt",
    "/gsalways/only.txt",
    "/charsetvar/koi.txt?cs=koi8-r",
    "/charsetvar/plain.txt?cs=utf-8",
    "/ssi/plain.html",
    "/ssi/vars.html?a=1%3Cb%3E",
    "/ssi/set.html?a=%26x",
    "/ssi/raw.html?a=<>",
    "/ssi/if.html?a=1",
    "/ssi/if.html?a=xyz",
    "/ssi/if.html",
    "/ssi/include.html?a=q",
    "/ssi/block.html",
    "/ssi/proxied.html",
    "/ssi/date.html",
    "/ssi/broken.html",
    "/ssi/nowhere",
    "/nochunk/vars.html?a=x",
    "/auth/plain.txt?code=200",
    "/auth/plain.txt?code=401",
    "/auth/plain.txt?code=403",
    "/auth/plain.txt?code=500",
    "/auth/plain.txt?code=404",
    "/auth-check",
    "/secure/x?md5=jDUnG0IvHkY1uM4BRK6ZOQ&expires=2147483647",
    "/secure/x",
    "/secure/x?md5=xx&expires=1",
    "/secret/5e16ec5f02c3bbf1ab3b4b5ae76eb2cd/link",
    "/secret/x",
    "/ref/",
    "/rate/?k=a",
    "/rate/?k=b",
    "/rate/?k=c",
    "/rate/",
    "/ratefile/plain.txt?k=d",
    "/conn/plain.txt?k=a",
    "/vars?a=1&b=2",
    "/vars?ip=10.1.2.3&k=abc",
    "/vars/%7Euser%2Fx?k=zz",
    "/vars?ip=2001:db8::1&k=1",
    "/browser",
    "/rw/last/a%20b?y=2",
    "/rw/break/plain.txt",
    "/rw/redirect/x%20y?z=1",
    "/rw/permanent/x?gone",
    "/rw/loop",
    "/rw/args/x?one=1",
    "/rw/esc/a%26b",
    "/rw/2020/rest%2fx",
    "/rw/other?a=1",
    "/rw/other?a=xxy",
    "/rw/other?file=plain.txt",
    "/rw/other?none=plain.txt",
    "/rw/other?none=nothing&a=Xx",
    "/ret/?code=301&x=y",
    "/ret/?code=302",
    "/ret/?code=303&to=/there",
    "/ret/?code=303&to=",
    "/ret/?code=307",
    "/ret/?code=400",
    "/ret/?code=403",
    "/ret/?code=404",
    "/ret/?code=418",
    "/ret/?code=444",
    "/ret/?code=500",
    "/ret/?code=503",
    "/ret/?code=599",
    "/ret/",
    "/plain.txt?gone=1",
    "/ifloc/plain.txt?proxy=1",
    "/two/../one",
    "*",
    "/%",
    "/%zz",
    "/a%0ab",
    "/..",
    "/../x",
    "/a/../../x",
    "/?",
    "/??a",
    "/a b",
    "/plain.txt?a b",
    "http://one.test/plain.txt",
    "http://two.test/x",
    "http://one.test",
    "x",
    "https://one.test:443/vars",
    "//two.test/x",
    "/%c3%a9?%c3%a9",
    "/caf\u{e9}",
    "/vars?%00",
];
const ORIGIN: &[&str] = &[
    "echo",
    "echo?a=b%20c",
    "chunked",
    "close",
    "fields",
    "redirect",
    "internal",
    "named",
    "range",
    "gzipped",
    "badgzip",
    "bad",
    "empty",
    "short",
    "badchunk",
    "long",
    "204",
    "304",
    "status/404",
    "status/500",
    "status/301",
    "status/299",
    "a%20b%2Fc",
    "x//y/../z",
    "continue",
    "status/410",
];
const PROXIES: &[&str] = &[
    "/px/",
    "/pxraw/",
    "/pxstream/",
    "/pxrewrite/",
    "/pxmethod/",
    "/pxnopass/",
    "/gzproxied/",
    "/gunzip/",
    "/trailer/",
    "/mirror/",
    "/pxdead/",
    "/slice/",
];
const DAV: &[&str] = &[
    "/dav/a.txt",
    "/dav/new/deep/b.txt",
    "/dav/folder/",
    "/dav/folder",
    "/dav/folder/c.txt",
    "/dav/",
    "/dav/x/y/",
    "/dav/copied",
    "/dav/copied/",
    "/dav/moved.txt",
    "/dav/%2e%2e/out",
];
const DESTINATIONS: &[&str] = &[
    "/dav/moved.txt",
    "/dav/copied",
    "/dav/copied/",
    "http://one.test/dav/there/d.txt",
    "/dav/../out",
    "http://elsewhere.test/dav/x",
    "/dav/folder/e.txt",
    "dav/x",
    "",
    "/dav/%2e%2e/%2e%2e/x",
    "/dav/new/deep/b.txt",
    "/%00",
    "/dav/x/y/",
];
const HOSTS: &[&str] = &[
    "one.test",
    "one.test",
    "one.test",
    "one.test",
    "a.one.test",
    "ONE.test",
    "one.test:8080",
    "two.test",
    "re42.test",
    "rex.test",
    "nobody.test",
    "one.test.",
    "[::1]",
    "127.0.0.1",
];
/// Hosts that none of ours is named by, nor could be.
pub const BAD_HOSTS: &[&str] =
    &["", "a/b", "a b", "a\\b", "..", "one..test", "a\u{e9}", "[::1", "user@one.test", ":80"];
const METHODS: &[&str] = &[
    "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "MKCOL", "PROPFIND", "FOO", "get",
    "LOCK", "CONNECT",
];
const ETAGS: &[&str] = &[
    "\"5e0be100-b\"",
    "W/\"5e0be100-b\"",
    "\"5e0be100-7d0\"",
    "*",
    "\"x\"",
    "\"x\", \"5e0be100-7d0\"",
    "",
    "garbage",
];
const DATES: &[&str] = &[
    "Wed, 01 Jan 2020 00:00:00 GMT",
    "Wed, 01 Jan 2020 00:00:01 GMT",
    "Tue, 31 Dec 2019 23:59:59 GMT",
    "Wednesday, 01-Jan-20 00:00:00 GMT",
    "Wed Jan  1 00:00:00 2020",
    "yesterday",
    "",
    "Thu, 31 Dec 2099 00:00:00 GMT",
];
const RANGES: &[&str] = &[
    "bytes=0-0",
    "bytes=0-9",
    "bytes=-5",
    "bytes=5-",
    "bytes=0-0,2-3",
    "bytes=0-99999",
    "bytes=100000-",
    "bytes=5-2",
    "bytes=",
    "bytes=a-b",
    "bytes=0-4,-3,7-",
    "lines=0-1",
    "bytes=0-0, 2-3 , 5-6",
    "bytes=-0",
    "bytes=-99999",
    "bytes=99999999999999999999-",
    "bytes=0-,0-,0-,0-",
    "bytes=1-2-3",
    "bytes= 0 - 1",
    "BYTES=0-1",
];
const CODINGS: &[&str] = &[
    "gzip",
    "gzip, deflate, br",
    "gzip;q=0",
    "*",
    "identity",
    "deflate",
    "gzip;q=0.5, *;q=0",
    "x-gzip",
    "GZIP",
    "",
];
const AGENTS: &[&str] = &[
    "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
    "Mozilla/5.0 (X11; U; rv:1.8) Gecko/2006",
    "Mozilla/4.72 [en] (X11; I)",
    "Links (2.1)",
    "Opera/9.0 (X11)",
    "a.example.org",
    "curl/8.0",
    "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)",
    "",
];
const ODD: &[&str] = &[
    "X-Kind: one",
    "X-Kind: two",
    "x-kind: Three",
    "X-Kind: none",
    "Referer: http://www.google.com/x",
    "Referer: http://example.org/page/1",
    "Referer: http://bad.test/",
    "Referer: garbage",
    "Referer: http://one.test/",
    "Cookie: c=1; d=2",
    "Cookie: a=b",
    "Cookie: who=AAAAAAAAAAAAAAAAAAAAAA==",
    "Cookie: who=short",
    "X-Real-IP: 10.1.2.3",
    "X-Real-IP: 192.0.2.1",
    "X-Real-IP: 2001:db8::5",
    "X-Real-IP: nonsense",
    "X-Forwarded-For: 1.2.3.4",
    "Authorization: Basic dXNlcjpzZWNyZXQ=",
    "Authorization: Basic dXNlcjp3cm9uZw==",
    "Authorization: Basic !!!",
    "Authorization: Bearer x",
    "Authorization: Basic bm9jb2xvbg==",
    "X-Under_score: u",
    "X_under: v",
    "X-Empty:",
    "X-Spaces:   a   b   ",
    "X Space: bad",
    ": no name",
    "NoColon",
    "X-Tab:\tx\t",
    "X-Bin: \u{1}\u{7f}",
    "X-Utf: \u{e9}",
    "Accept: text/html;q=0.5",
    "TE: trailers",
    "Upgrade: websocket",
    "Expect: 100-continue",
    "Expect: something",
    "Cache-Control: no-cache",
    "Via: 1.1 proxy",
    "Depth: 0",
    "Depth: infinity",
    "Depth: 1",
    "Overwrite: F",
    "Overwrite: T",
    "Overwrite: X",
    "Content-Range: bytes 0-1/2",
    "Date: Wed, 01 Jan 2020 00:00:00 GMT",
    "Content-Type: text/plain; charset=x",
    "Keep-Alive: timeout=5",
    "Proxy: x",
    "X-Accel-Redirect: /x",
    "Transfer-Encoding: identity",
    "Content-Length: x",
    "Content-Length: -1",
    "Content-Length: 5, 5",
    "Host: again.test",
    "If-Match: \"5e0be100-b\"",
];

/// The case of a number.
pub fn case(rng: &mut Rng, number: usize) -> Case {
    let mut case =
        Case { number, bytes: Vec::new(), methods: Vec::new(), cut: false, said: Vec::new() };
    let count = if rng.percent(12) { 2 + rng.below(4) } else { 1 };
    for n in 1..=count {
        request(rng, &mut case, n == count, count == 1);
    }
    if rng.percent(5) {
        damage(rng, &mut case);
    }
    case
}

fn damage(rng: &mut Rng, case: &mut Case) {
    let at = rng.below(case.bytes.len());
    match rng.below(4) {
        0 => case.bytes[at] = rng.below(256) as u8,
        1 => drop(case.bytes.remove(at)),
        2 => case.bytes.insert(at, b"\r\n \t\0:/%"[rng.below(8)]),
        _ => case.bytes.truncate(at + 1),
    }
    case.cut = true;
}

/// The target, with the method where they belong together. Requests that change the tree come
/// alone: an early end of a connection would lose some on one side.
fn target(rng: &mut Rng, alone: bool) -> (String, Option<&'static str>) {
    match rng.below(if alone { 100 } else { 85 }) {
        0..35 => (format!("{}{}", rng.pick(ROOTS), rng.pick(FILES)), None),
        35..62 => (rng.pick(TARGETS).to_string(), None),
        62..85 => (format!("{}{}", rng.pick(PROXIES), rng.pick(ORIGIN)), None),
        85..97 => {
            let methods = ["PUT", "PUT", "PUT", "DELETE", "MKCOL", "COPY", "MOVE", "GET"];
            (rng.pick(DAV).to_string(), Some(rng.pick(&methods)))
        }
        _ => (
            rng.pick(&["/post", "/readbody", "/rw/x", "/only-get/plain.txt"]).to_string(),
            Some("POST"),
        ),
    }
}

fn request(rng: &mut Rng, case: &mut Case, last: bool, alone: bool) {
    let (target, wanted) = target(rng, alone);
    let method = match wanted {
        Some(method) => method,
        None if rng.percent(14) => "HEAD",
        None if rng.percent(14) => rng.pick(METHODS),
        None => "GET",
    };
    let version = match rng.below(100) {
        0..82 => "HTTP/1.1",
        82..95 => "HTTP/1.0",
        _ => rng.pick(&[
            "HTTP/1.2",
            "HTTP/2.0",
            "HTTP/0.9",
            "http/1.1",
            "HTTP/1",
            "HTTP/1.1 ",
            "",
            "HTTQ/1.1",
            "HTTP/11.1",
        ]),
    };
    let space = if rng.percent(2) { "  " } else { " " };
    let line = if version.is_empty() {
        format!("{method} {target}\r\n")
    } else {
        format!("{method}{space}{target} {version}\r\n")
    };
    let mut head = latin1(&line);
    for field in fields(rng, method) {
        head.extend_from_slice(&latin1(&field));
        head.extend_from_slice(if rng.percent(2) { b"\n" } else { b"\r\n" });
    }
    if last {
        head.extend_from_slice(b"Connection: close\r\n");
    } else if rng.percent(10) {
        head.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    let has_body = matches!(method, "POST" | "PUT" | "PATCH") || rng.percent(4);
    let body = if has_body { body(rng, &mut head, case) } else { Vec::new() };
    head.extend_from_slice(b"\r\n");
    case.bytes.extend_from_slice(&head);
    case.bytes.extend_from_slice(&body);
    case.methods.push(method.to_string());
}

/// Each character is a byte.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| c as u32 as u8).collect()
}

fn fields(rng: &mut Rng, method: &str) -> Vec<String> {
    let mut fields = Vec::new();
    match rng.below(100) {
        0..94 => fields.push(format!("Host: {}", rng.pick(HOSTS))),
        94..98 => fields.push(format!("Host: {}", rng.pick(BAD_HOSTS))),
        _ => {}
    }
    let mut maybe = |chance, name: &str, values: &[&str]| {
        if rng.percent(chance) {
            fields.push(format!("{name}: {}", rng.pick(values)));
        }
    };
    maybe(25, "Accept-Encoding", CODINGS);
    maybe(15, "Range", RANGES);
    maybe(6, "If-Range", &[ETAGS, DATES].concat());
    maybe(10, "If-None-Match", ETAGS);
    maybe(10, "If-Modified-Since", DATES);
    maybe(5, "If-Match", ETAGS);
    maybe(5, "If-Unmodified-Since", DATES);
    maybe(20, "User-Agent", AGENTS);
    if matches!(method, "COPY" | "MOVE") {
        maybe(92, "Destination", DESTINATIONS);
    }
    for _ in 0..rng.below(4) {
        if rng.percent(60) {
            fields.push(rng.pick(ODD).to_string());
        }
    }
    if rng.percent(1) {
        fields.push(format!("X-Long: {}", "l".repeat(500 + rng.below(3000))));
    }
    if rng.percent(1) {
        fields.extend((0..60 + rng.below(60)).map(|n| format!("X-Many-{n}: {}", "m".repeat(50))));
    }
    fields
}

fn body(rng: &mut Rng, head: &mut Vec<u8>, case: &mut Case) -> Vec<u8> {
    let len = [0, 1, 11, 64, 100, 101, 1000, 4096, 4097, 20_481][rng.below(10)];
    let body: Vec<u8> = b"a body of some length. ".iter().copied().cycle().take(len).collect();
    if rng.percent(30) {
        head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        let mut chunked = Vec::new();
        for chunk in body.chunks(1 + rng.below(3000)) {
            let ext = rng.pick(&["", "", "", ";x=y", " "]);
            chunked.extend_from_slice(format!("{:x}{ext}\r\n", chunk.len()).as_bytes());
            chunked.extend_from_slice(chunk);
            chunked.extend_from_slice(b"\r\n");
        }
        chunked.extend_from_slice(
            rng.pick(&["0\r\n\r\n", "0\r\n\r\n", "0\r\nX-T: t\r\n\r\n", "0;x\r\n\r\n"]).as_bytes(),
        );
        if rng.percent(8) {
            let broken = [
                "zz\r\n",
                "ffffffffffffffffff\r\n",
                "5\r\nab\r\n",
                "-1\r\n",
                "\r\n",
                "3 x\r\nabc\r\n",
            ];
            chunked = rng.pick(&broken).as_bytes().to_vec();
            case.cut = true;
        }
        return chunked;
    }
    let said = if rng.percent(4) { len + 5 } else { len };
    case.cut |= said > len;
    head.extend_from_slice(format!("Content-Length: {said}\r\n").as_bytes());
    body
}
