//! The kinds of work of the load `turns`: configuration, files and request of each.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use super::png;

/// How a kind of work is requested.
#[derive(Clone, Copy)]
pub enum Ask {
    /// `GET` of a path with a header line; the response has this status.
    Get(&'static str, &'static str, u16),
    /// `POST` of the site's file `body` to a path; the response is a 201.
    Post(&'static str),
    /// A full TLS handshake and nothing else.
    Handshake,
    /// HUP, until a new worker responds. Its turns are counted from its start.
    Reload,
}

/// A kind of work.
pub struct Work {
    pub name: &'static str,
    pub ask: Ask,
    /// Lines of the `http` and the `server` block.
    pub http: String,
    pub server: String,
    /// Whether the server needs an RSA certificate rather than an ECDSA one.
    pub rsa: bool,
    /// The least length of the response, so that it is known to be the work's.
    pub bytes: usize,
    /// Writes the files that it needs below the site.
    pub files: fn(&Path) -> io::Result<()>,
    /// Milliseconds that a turn may take for a known reason, and the reason.
    pub known: Option<(f64, &'static str)>,
}

impl Work {
    fn new(name: &'static str, ask: Ask) -> Self {
        let (http, server) = (String::new(), String::new());
        Self { name, ask, http, server, rsa: false, bytes: 0, files: |_| Ok(()), known: None }
    }

    fn get(name: &'static str, path: &'static str) -> Self {
        Self::new(name, Ask::Get(path, "X: y", 200))
    }

    fn http(self, text: impl Into<String>) -> Self {
        Self { http: text.into(), ..self }
    }

    fn server(self, text: impl Into<String>) -> Self {
        Self { server: text.into(), ..self }
    }

    fn bytes(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    fn known(self, limit_ms: f64, reason: &'static str) -> Self {
        Self { known: Some((limit_ms, reason)), ..self }
    }

    fn files(self, files: fn(&Path) -> io::Result<()>) -> Self {
        Self { files, ..self }
    }
}

/// The kinds of work, each done by newly started servers.
pub fn works() -> Vec<Work> {
    [pages(), status(), groups(), crypto()].into_iter().flatten().collect()
}

/// Responses that are made or changed.
fn pages() -> Vec<Work> {
    let coded = |name, http: &str, coding| {
        Work::new(name, Ask::Get("/text.txt", coding, 200)).http(http).files(text)
    };
    let resized = "location = /image.png { image_filter resize 100 100; image_filter_buffer 20m; }";
    let styled = "location = /entries.xml { xslt_stylesheet %ROOT%/list.xsl; }";
    let listed = "location /many/ { autoindex on; }";
    let (br, gzip) = ("Accept-Encoding: br", "Accept-Encoding: gzip");
    vec![
        Work::get("a response of 2 bytes", "/return"),
        Work::get("ssi: 64,534 parts in 50 levels", "/ssi/0.html")
            .http("ssi on;")
            .files(ssi)
            .bytes(300_000),
        Work::get("a listing of 200,000 files", "/many/")
            .server(listed)
            .files(folder)
            .bytes(10_000_000)
            .known(16.0, "not examined yet; the folder itself is read on a thread"),
        coded("gzip 9 of 10 MB", "gzip on; gzip_types *; gzip_comp_level 9;", gzip),
        coded("brotli 6 of 10 MB", "brotli on; brotli_types *;", br),
        coded("brotli 11 of 10 MB", "brotli on; brotli_types *; brotli_comp_level 11;", br),
        coded("zstd of 10 MB", "zstd on; zstd_types *;", "Accept-Encoding: zstd"),
        Work::get("image_filter, 2000 x 2000", "/image.png").server(resized).files(image),
        Work::get("xslt, 5,000 entries", "/entries.xml")
            .server(styled)
            .files(entries)
            .bytes(200_000),
        Work::new(
            "map of 6,829 expressions",
            Ask::Get("/mapped", "User-Agent: agent-6828 Mobile/7", 200),
        )
        .http(map())
        .server("location = /mapped { return 200 \"$kind\\n\"; }"),
    ]
}

/// The server's own state.
fn status() -> Vec<Work> {
    let zones = |name, ask| Work::new(name, ask).server(zones());
    let shown = |name, path| zones(name, Ask::Get(path, "X: y", 200)).bytes(100_000);
    let api = "location /api/ { api write=on; }";
    let post = Ask::Post("/api/9/http/keyvals/many");
    vec![
        shown("prometheus, 5,000 zones", "/metrics"),
        shown("API, 5,000 zones", "/api/9/http/location_zones"),
        // The first one: it has few steps of the history yet.
        shown("overview, 5,000 zones", "/api/weir/v1/overview").bytes(500),
        zones("reload, 5,000 zones", Ask::Reload)
            .known(40.0, "no turn: the wait spans the start of the new worker"),
        Work::get("keyval, 100,000 keys listed", "/api/9/http/keyvals/many")
            .bytes(1_000_000)
            .http(table("state=%ROOT%/pairs.json"))
            .server(api)
            .files(|site| pairs(&site.join("pairs.json"), 100_000)),
        Work::new("keyval, 50,000 keys posted", post)
            .http(table(""))
            .server(api)
            .files(|site| pairs(&site.join("body"), 50_000))
            .known(16.0, "stored in pieces; what is left is not examined yet"),
    ]
}

/// The choice among many servers, of which none listens.
fn groups() -> Vec<Work> {
    let group = |name, method: &str| {
        let servers: String = (0..3_000).fold(String::new(), |mut all, n| {
            let _ = writeln!(all, "server 127.1.{}.{}:1 max_fails=0;", n / 200, n % 200 + 1);
            all
        });
        Work::new(name, Ask::Get("/passed", "X: y", 502))
            .http(format!("upstream many {{ zone many 8m; {method} {servers} }}"))
            .server("location = /passed { proxy_pass http://many; proxy_next_upstream off; }")
    };
    vec![
        group("hash consistent, 3,000 servers", "hash $request_id consistent;"),
        group("hash, 3,000 servers", "hash $request_id;"),
        group("random two, 3,000 servers", "random two;"),
        group("least_conn, 3,000 servers", "least_conn;"),
    ]
}

fn crypto() -> Vec<Work> {
    let tls = "listen 127.0.0.1:%TLS_PORT% ssl; ssl_certificate %CERTIFICATE%; \
               ssl_certificate_key %KEY%;";
    let first = |name, rsa| Work { rsa, ..Work::new(name, Ask::Handshake).server(tls) };
    vec![
        first("a worker's first handshake, ECDSA P-256", false),
        first("a worker's first handshake, RSA 2048", true),
    ]
}

fn zones() -> String {
    let mut text =
        "status_zone site; location = /metrics { prometheus; } location /api/ { api; }\n"
            .to_string();
    for n in 0..5_000 {
        let _ = writeln!(text, "location = /z{n} {{ status_zone zone{n}; return 204; }}");
    }
    text
}

fn map() -> String {
    let mut text = "map $http_user_agent $kind {\n default none;\n".to_string();
    for n in 0..6_829 {
        let _ = writeln!(text, "~*agent-{n}.*(Version|Mobile)/[0-9]+ kind{};", n % 50);
    }
    text + "}"
}

fn table(state: &str) -> String {
    format!("keyval_zone zone=many:32m {state}; keyval $arg_k $value zone=many;")
}

/// 50 pages, each with 1,290 parts and the next page.
fn ssi(site: &Path) -> io::Result<()> {
    let folder = site.join("ssi");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("part.txt"), "part\n")?;
    let part = "<!--#include virtual=\"/ssi/part.txt\" -->\n";
    for level in 0..50 {
        // 64,485 small parts and 49 pages.
        let own = part.repeat(if level == 49 { 1_275 } else { 1_290 });
        let next = match level {
            49 => String::new(),
            _ => format!("<!--#include virtual=\"/ssi/{}.html\" -->", level + 1),
        };
        fs::write(folder.join(format!("{level}.html")), own + &next)?;
    }
    Ok(())
}

fn folder(site: &Path) -> io::Result<()> {
    let folder = site.join("many");
    fs::create_dir_all(&folder)?;
    (0..200_000).try_for_each(|n| fs::File::create(folder.join(format!("file-{n}.txt"))).map(drop))
}

fn text(site: &Path) -> io::Result<()> {
    let page = fs::read(site.join("text.html"))?;
    let bytes: Vec<u8> = page.iter().copied().cycle().take(10 << 20).collect();
    fs::write(site.join("text.txt"), bytes)
}

fn image(site: &Path) -> io::Result<()> {
    fs::write(site.join("image.png"), png::grey(2000))
}

fn entries(site: &Path) -> io::Result<()> {
    let entries: String = (0..5_000).fold(String::new(), |mut all, n| {
        let time = "2026-01-01T00:00:00Z";
        let _ = writeln!(all, "<file mtime=\"{time}\" size=\"{n}\">file {n}.bin</file>");
        all
    });
    fs::write(site.join("entries.xml"), format!("<?xml version=\"1.0\"?>\n<list>{entries}</list>"))
}

fn pairs(path: &Path, count: usize) -> io::Result<()> {
    let pairs: Vec<String> = (0..count).map(|n| format!("\"k{n}\":\"v{}\"", n % 97)).collect();
    fs::write(path, format!("{{{}}}", pairs.join(",")))
}
