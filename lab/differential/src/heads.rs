//! Heads of upstreams: an upstream sends heads drawn from lists, to both servers alike, in each
//! protocol; both have to pass on the same.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::generate::Case;
use super::site::gzip;
use crate::Outcome;
use testkit::rng::Rng;

/// The locations, one for each protocol and treatment of responses.
const PLACES: &[&str] = &[
    "http",
    "http",
    "fastcgi",
    "scgi",
    "uwsgi",
    "http-kept",
    "fastcgi-kept",
    "scgi-kept",
    "uwsgi-kept",
    "http-fields",
    "http-filters",
    "http-filters",
    "http-charset",
    "fastcgi-charset",
    "http-pages",
    "fastcgi-pages",
];

const STATUSES: &[&str] = &[
    "200 OK",
    "200 OK",
    "200 OK",
    "200 OK",
    "200 Fine",
    "200",
    "201 Created",
    "204 No Content",
    "206 Partial Content",
    "301 Moved Permanently",
    "302 Found",
    "303 See Other",
    "304 Not Modified",
    "307 Temporary Redirect",
    "400 Bad Request",
    "401 Unauthorized",
    "403 Forbidden",
    "404 Not Found",
    "404 ",
    "410 Gone",
    "416 Range Not Satisfiable",
    "429 Too Many Requests",
    "500 Internal Server Error",
    "503 Service Unavailable",
    "999 Own",
];

/// Names with the values to draw from.
const FIELDS: &[(&str, &[&str])] = &[
    ("Content-Type", TYPES),
    ("Content-Type", TYPES),
    ("Content-Type", TYPES),
    ("Last-Modified", DATES),
    ("Last-Modified", DATES),
    ("ETag", &["\"abc\"", "W/\"abc\"", "abc", "", "\"a\"\"b\""]),
    ("Date", DATES),
    ("Server", &["origin", "origin/1.0 (x)", ""]),
    (
        "Expires",
        &["Thu, 01 Jan 2099 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:01 GMT", "0", "-1", "x"],
    ),
    ("Cache-Control", CONTROLS),
    ("Cache-Control", CONTROLS),
    ("X-Accel-Expires", &["0", "60", "@4000000000", "x", "-1", "off"]),
    ("X-Accel-Redirect", &["/inner?a=b", "@named", "/../x", "inner", "/missing"]),
    ("X-Accel-Limit-Rate", &["0", "1000000", "x", ""]),
    ("X-Accel-Buffering", &["yes", "no", "NO", "maybe"]),
    ("X-Accel-Charset", &["utf-8", "koi8-r", "unknown", ""]),
    ("Vary", &["*", "Accept", "Accept-Encoding", "X-Y, Accept", "x-y ,*", ""]),
    ("Set-Cookie", COOKIES),
    ("Set-Cookie", COOKIES),
    ("Location", LOCATIONS),
    ("Location", LOCATIONS),
    ("Refresh", &["5; url=http://origin.test/next", "5", "0; URL=/next"]),
    ("WWW-Authenticate", &["Basic realm=\"x\"", "Negotiate"]),
    ("Accept-Ranges", &["bytes", "none", ""]),
    ("Content-Range", &["bytes 0-3/40", "bytes */40"]),
    ("Connection", &["close", "keep-alive", "X-One", "Close, x"]),
    ("Keep-Alive", &["timeout=5"]),
    ("X-One", &["1", "", "a, b", "caf\u{e9}", "tab\there"]),
    ("X-One", &["2", "a  b", "\"q\"", "a;b=c"]),
    ("Link", &["</a>; rel=preload", "</b>"]),
    ("P3P", &["CP=\"x\""]),
    ("Pragma", &["no-cache", "x"]),
    ("Age", &["0", "5", "x"]),
    ("Content-Disposition", &["attachment; filename=\"a\""]),
    ("Content-Language", &["en"]),
    ("Content-Location", &["/elsewhere"]),
    ("X-Pad", &["avoid browser bug"]),
    ("X-Powered-By", &["PHP/8"]),
    ("Upgrade", &["h2c"]),
    ("Allow", &["GET, HEAD"]),
    ("Trailer", &["X-T"]),
    ("Status", &["201 Said", "404"]),
    ("Strict-Transport-Security", &["max-age=1"]),
];

const TYPES: &[&str] = &[
    "text/html",
    "text/plain",
    "text/plain; charset=utf-8",
    "text/plain;charset=utf-8",
    "text/html; charset=\"koi8-r\"",
    "text/html;  Charset=UTF-8",
    "text/html; a=b; charset=x",
    "text/html;charset=",
    "text/html; charset=koi8-r; a=b",
    "application/json",
    "image/png",
    "TEXT/HTML",
    "text/plain ;charset=utf-8",
    "text/html;",
    "",
];

const DATES: &[&str] = &[
    "Wed, 01 Jan 2020 00:00:00 GMT",
    "Wed, 01 Jan 2020 00:00:00 GMT",
    "Wednesday, 01-Jan-20 00:00:00 GMT",
    "Wed Jan  1 00:00:00 2020",
    "Thu, 01 Jan 2037 00:00:00 GMT",
    "Wed, 1 Jan 2020 00:00:00 GMT",
    "yesterday",
    "",
];

const CONTROLS: &[&str] = &[
    "max-age=60",
    "max-age=0",
    "no-cache",
    "no-store",
    "private",
    "public, max-age=60",
    "s-maxage=60, max-age=0",
    "max-age=60, stale-while-revalidate=60",
    "Max-Age=60",
    "max-age=x",
    "must-revalidate",
    "",
];

const COOKIES: &[&str] = &[
    "a=1; Path=/; Domain=origin.test",
    "a=2",
    "A = 3 ; path=/",
    "a= ",
    "a",
    "b=4; path=/x; HttpOnly",
    "ab=5",
    "",
];

const LOCATIONS: &[&str] =
    &["http://origin.test/next", "/next", "next", "//other.test/next", "http://127.0.0.1/next", ""];

/// Lines that are no field, or one in an odd form.
const ODD: &[&[u8]] = &[
    b"X-One:nospace",
    b"X-One:   many   ",
    b"X-One:\ttab\t",
    b"x-one: small",
    b"X_One: under",
    b"X-One : space before",
    b"X One: space within",
    b": no name",
    b"no colon",
    b"X-Two: a\r\n folded",
    b"X-Two: a\r\n\tfolded",
    b"X-Two: nul\0here",
    b"X-Two: a\rb",
    b"X-\xe9: letter",
    b"X-Two: \x01control",
    b"LAST-MODIFIED: Wed, 01 Jan 2020 00:00:00 GMT",
    b"content-TYPE: text/plain",
];

/// The request of one case, with the upstream's answer in it.
pub fn case(seed: u64, number: usize) -> Case {
    let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
    let place = rng.pick(PLACES);
    let head = rng.percent(12);
    let method = if head { "HEAD" } else { "GET" };
    let mut fields = String::new();
    for (chance, line) in [
        (30, "Accept-Encoding: gzip\r\n"),
        (8, "If-Modified-Since: Wed, 01 Jan 2020 00:00:00 GMT\r\n"),
        (8, "If-None-Match: \"abc\"\r\n"),
        (8, "Range: bytes=0-3\r\n"),
        (5, "X-Y: z\r\n"),
    ] {
        if rng.percent(chance) {
            fields += line;
        }
    }
    let version = if rng.percent(8) { "1.0" } else { "1.1" };
    let mut bytes = Vec::new();
    // The second one of those that are stored may come from the cache.
    let times = if place.ends_with("kept") { 2 } else { 1 };
    for n in 1..=times {
        let keep = if n < times { "keep-alive" } else { "close" };
        let request = format!(
            "{method} /{place}/case/{number} HTTP/{version}\r\nHost: a.test\r\nConnection: \
             {keep}\r\n{fields}\r\n"
        );
        bytes.extend_from_slice(request.as_bytes());
    }
    let methods = vec![method.to_owned(); times];
    Case { number, bytes, methods, cut: false, said: said(&mut rng, place) }
}

/// The upstream's answer to a GET.
fn said(rng: &mut Rng, place: &str) -> Vec<u8> {
    let http = place.starts_with("http");
    let end: &[u8] = if rng.percent(4) { b"\n" } else { b"\r\n" };
    let mut out = Vec::new();
    let mut line = |text: &[u8]| {
        out.extend_from_slice(text);
        out.extend_from_slice(end);
    };
    let status = rng.pick(STATUSES);
    if http {
        line(format!("HTTP/1.{} {status}", usize::from(!rng.percent(10))).as_bytes());
    } else if rng.percent(70) {
        line(format!("Status: {status}").as_bytes());
    }
    let mut body: Vec<u8> = b"a body that is long enough \xc1\xc2".to_vec();
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for _ in 0..rng.below(7) {
        let (name, values) = FIELDS[rng.below(FIELDS.len())];
        let value: Vec<u8> = rng.pick(values).chars().map(|c| c as u32 as u8).collect();
        lines.push([name.as_bytes(), b": ", &value].concat());
    }
    if rng.percent(15) {
        lines.push(rng.pick(ODD).to_vec());
    }
    if rng.percent(12) {
        let coding = rng.pick(&["gzip", "gzip", "GZIP", "identity", "br", ""]);
        if coding.eq_ignore_ascii_case("gzip") {
            body = gzip(&body);
        }
        lines.push(format!("Content-Encoding: {coding}").into_bytes());
    }
    let len = body.len();
    match rng.below(100) {
        0..60 => lines.push(format!("Content-Length: {len}").into_bytes()),
        60..63 => lines.push(format!("Content-Length: {}", len - 3).into_bytes()),
        63..66 => lines.push(format!("Content-Length: {}", len + 3).into_bytes()),
        66..68 => {
            lines.push(format!("Content-Length: {}", rng.pick(&["x", "-1", "+9", ""])).into())
        }
        68..78 if http => {
            lines.push(b"Transfer-Encoding: chunked".to_vec());
            body = [format!("{len:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
        }
        _ => {}
    }
    // In any order.
    while !lines.is_empty() {
        line(&lines.remove(rng.below(lines.len())));
    }
    line(b"");
    out.extend_from_slice(&body);
    out
}

/// Starts the upstream on a free port, for as long as the process lives.
pub fn start(seed: u64) -> Outcome<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // The client may be gone.
                let _ = serve(stream, seed);
            });
        }
    });
    Ok(port)
}

fn serve(mut stream: TcpStream, seed: u64) -> std::io::Result<()> {
    let mut asked = Vec::new();
    let mut page = [0; 8192];
    while !is_whole(&asked) {
        match stream.read(&mut page)? {
            0 => return Ok(()),
            n => asked.extend_from_slice(&page[..n]),
        }
    }
    let text = String::from_utf8_lossy(&asked);
    let digits = text.split("/case/").nth(1).unwrap_or_default();
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    let said = case(seed, digits.parse().unwrap_or(0)).said;
    let is_head = text.starts_with("HEAD ") || text.contains("REQUEST_METHODHEAD");
    let is_head = is_head || text.replace('\0', "").contains("METHOD\u{4}HEAD");
    let is_head = is_head || text.contains("REQUEST_METHOD\0HEAD");
    let end = head_end(&said);
    let said = if is_head { &said[..end] } else { &said };
    match asked[0] {
        1 => {
            let out = record(6, said);
            stream.write_all(&[out, record(6, b""), record(3, &[0; 8])].concat())
        }
        _ => stream.write_all(said),
    }
}

/// Behind the empty line.
fn head_end(said: &[u8]) -> usize {
    let ends = [&b"\r\n\r\n"[..], b"\n\n"];
    let found = ends
        .iter()
        .filter_map(|end| said.windows(end.len()).position(|w| w == *end).map(|at| at + end.len()));
    found.min().unwrap_or(said.len())
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, len[0], len[1], 0, 0], content].concat()
}

/// Whether a request of any of the protocols is all there.
fn is_whole(asked: &[u8]) -> bool {
    match asked {
        [] | [0 | 1, _, _] | [0 | 1] | [0 | 1, _] => false,
        [1, ..] => asked.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]),
        [0, low, high, ..] => asked.len() >= 4 + usize::from(u16::from_le_bytes([*low, *high])),
        [b'0'..=b'9', ..] => asked.ends_with(b","),
        _ => asked.ends_with(b"\r\n\r\n"),
    }
}
