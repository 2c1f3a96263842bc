//! `weir serve`: a site without a configuration file.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::common::{BINARY, is_root};
use testkit::{Conn, Folder, Port, Response, Scripted, read_until, signal, wait_for};

/// A running `weir serve`; killed if the test fails before it ends.
struct Served {
    child: Child,
    port: Port,
    /// What it said at the start, and the rest.
    said: String,
    out: BufReader<ChildStdout>,
}

/// Reads what was said at the start. Until then the command tries which ports are free, and a
/// client could come to such a socket.
fn announcement(child: &mut Child) -> (String, BufReader<ChildStdout>) {
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut said = String::new();
    while !said.contains("Ctrl-C") {
        if out.read_line(&mut said).expect("read it") == 0 {
            let error = child.stderr.take().map(std::io::read_to_string);
            panic!("it ended at once: {said}{error:?}");
        }
    }
    (said, out)
}

impl Served {
    fn start(arguments: &[&str]) -> Served {
        Served::start_in(Path::new("."), arguments)
    }

    /// Starts it with that current folder.
    fn start_in(folder: &Path, arguments: &[&str]) -> Served {
        let port = Port::reserve();
        let mut child = Command::new(BINARY)
            .args(["serve", "--port"])
            .arg(port.number().to_string())
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir serve starts");
        let (said, out) = announcement(&mut child);
        let served = Served { child, port, said, out };
        let port = served.port.number();
        wait_for("weir serve to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
        served
    }

    fn get(&self, path: &str) -> Response {
        let mut conn = Conn::tcp(self.port.number());
        conn.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        conn.response()
    }

    /// Ctrl-C, as a person stops it. Gives what was said.
    fn interrupt(mut self) -> String {
        signal(self.child.id(), "INT");
        let child = &mut self.child;
        let status = wait_for("the end", || child.try_wait().expect("asked"));
        assert!(status.success(), "{status}");
        assert!(!self.folder().exists(), "its folder of temporary files went with it");
        let mut said = std::mem::take(&mut self.said);
        self.out.read_to_string(&mut said).expect("read what was said");
        said
    }

    fn folder(&self) -> PathBuf {
        std::env::temp_dir().join(format!("weir-serve-{}", self.child.id()))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A master that is killed would leave its worker.
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(self.child.id(), "TERM");
            let _ = self.child.wait();
        }
    }
}

#[test]
fn a_taken_address_is_told_at_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("take a port");
    let address = taken.local_addr().expect("its address").to_string();
    let run = Command::new(BINARY).args(["serve", "--listen", &address]).output();
    let run = run.expect("run weir");
    let (said, error) =
        (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let want = format!("weir serve: {address}: Address already in use (os error 98)");
    assert_eq!((run.status.code(), &*said), (Some(1), ""));
    assert!(error.starts_with(&want), "{error}");
    // The ports that follow may be taken as well, by tests that run beside this one.
    assert!(error == want.clone() + "\n" || error.contains("; port "), "{error}");
}

#[test]
fn in_an_empty_folder_there_is_a_welcome_page() {
    let folder = Folder::new("nothing");
    folder.write(".hidden", "");
    let served = Served::start_in(&folder, &[]);
    let page = served.get("/");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("Content-Type").map(|t| t.starts_with("text/html")), Some(true));
    assert!(page.text().contains(env!("CARGO_PKG_VERSION")), "{}", page.text());
    let said = served.interrupt();
    assert!(said.contains("serves its welcome page at http://127.0.0.1:"), "{said}");
    assert!(said.contains("This folder has no files"), "{said}");
}

#[test]
fn without_a_word_the_current_folder_is_served() {
    let folder = Folder::new("current");
    folder.write("a.txt", "hello");
    folder.write("\u{fc}.txt", "hello");
    let served = Served::start_in(&folder, &[]);
    assert_eq!(served.get("/a.txt").body, b"hello");
    let list = served.get("/");
    assert_eq!(list.header("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(list.text().contains("a.txt") && list.text().contains(">\u{fc}.txt<"));
    let said = served.interrupt();
    let full = folder.canonicalize().unwrap();
    assert!(said.contains(&format!("serves {} at ", full.display())), "{said}");
    // Named, an empty folder is a folder.
    let empty = Folder::new("named");
    let served = Served::start(&[&empty.to_string_lossy()]);
    assert!(served.get("/").text().contains("<h1>/</h1>"));
    served.interrupt();
}

#[test]
fn a_file_is_served_and_nothing_else() {
    let folder = Folder::new("one");
    folder.write("a b$.txt", "hello");
    folder.write("other.txt", "secret");
    let served = Served::start(&[&folder.join("a b$.txt").to_string_lossy()]);
    let file = served.get("/a%20b%24.txt");
    assert_eq!(
        (file.status, file.header("Content-Type")),
        (200, Some("text/plain; charset=utf-8"))
    );
    assert_eq!(file.body, b"hello");
    let moved = served.get("/");
    let target = moved.header("Location").unwrap();
    assert_eq!((moved.status, target.ends_with("/a%20b%24.txt")), (302, true), "{target}");
    for path in ["/other.txt", "/a", "/..", "/a%20b%24.txt/"] {
        assert!(matches!(served.get(path).status, 400 | 404), "{path}");
    }
    let url = format!(" at http://127.0.0.1:{}/a%20b%24.txt\n", served.port.number());
    let said = served.interrupt();
    assert!(said.contains(&url), "{said}");
}

#[test]
fn unknown_paths_get_the_index_of_an_application() {
    let folder = Folder::new("spa");
    folder.write("index.html", "the application");
    folder.write("app.js", "code");
    std::fs::create_dir(folder.join("docs")).unwrap();
    std::fs::write(folder.join("docs/index.html"), "docs").unwrap();
    let path = folder.to_string_lossy();
    let served = Served::start(&[&path, "--spa"]);
    for (path, body) in [
        ("/", "the application"),
        ("/users/7?tab=1", "the application"),
        ("/app.js", "code"),
        ("/docs/", "docs"),
        ("/.env", ""),
    ] {
        let response = served.get(path);
        assert_eq!(response.status, if body.is_empty() { 404 } else { 200 }, "{path}");
        assert!(body.is_empty() || response.text() == body, "{path}: {}", response.text());
    }
    assert!(served.interrupt().contains("Unknown paths get index.html."));
}

/// Repositories and secrets lie in folders that people work in.
#[test]
fn hidden_names_are_served_on_request() {
    let folder = Folder::new("hidden");
    for name in [".git", ".well-known"] {
        std::fs::create_dir(folder.join(name)).unwrap();
        std::fs::write(folder.join(name).join("a"), "text").unwrap();
    }
    folder.write(".env", "secret");
    let path = folder.to_string_lossy();
    let of = |served: &Served| {
        ["/.env", "/.git/a", "/.well-known/a"].map(|path| served.get(path).status)
    };
    let served = Served::start(&[&path]);
    assert_eq!(of(&served), [404, 404, 200]);
    served.interrupt();
    let served = Served::start(&[&path, "--hidden"]);
    assert_eq!(of(&served), [200, 200, 200]);
    served.interrupt();
}

#[test]
fn text_is_compressed() {
    let folder = Folder::new("compressed");
    folder.write("a.css", "a { color: red }\n".repeat(200));
    let served = Served::start(&[&folder.to_string_lossy()]);
    for coding in ["gzip", "br", "zstd"] {
        let mut conn = Conn::tcp(served.port.number());
        let host = "Host: localhost\r\nConnection: close";
        conn.send(format!("GET /a.css HTTP/1.1\r\n{host}\r\nAccept-Encoding: {coding}\r\n\r\n"));
        let response = conn.response();
        assert_eq!(response.header("Content-Encoding"), Some(coding));
        assert!(response.body.len() < 300);
    }
    served.interrupt();
}

#[test]
fn requests_are_shown_in_lines() {
    let folder = Folder::new("lines");
    folder.write("a.txt", "hello");
    let path = folder.to_string_lossy();
    let served = Served::start(&[&path]);
    served.get("/a.txt");
    served.get("/%1b[2Jnone");
    let said = served.interrupt();
    assert!(said.contains(" 127.0.0.1 200 GET /a.txt 5 B 0."), "{said}");
    assert!(said.contains(" 127.0.0.1 404 GET /%1b[2Jnone "), "{said}");
    let lines = said.lines().filter(|line| line.contains(" GET ")).count();
    assert_eq!(lines, 2, "{said}");
    let served = Served::start(&[&path, "-q"]);
    served.get("/a.txt");
    let said = served.interrupt();
    assert!(!said.contains("GET") && said.contains("Errors are shown here."), "{said}");
}

/// Without a port named, the next free one is used, and that is said.
#[test]
fn a_taken_usual_port_is_avoided() {
    let taken = std::net::TcpListener::bind("127.0.0.1:8080");
    let mut child = Command::new(BINARY)
        .args(["serve", "/usr/share", "-q"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("weir serve starts");
    let (said, _out) = announcement(&mut child);
    let (_, port) = said.split_once("http://127.0.0.1:").expect("it has a URL");
    let port: u16 = port.split('/').next().and_then(|port| port.parse().ok()).expect("a port");
    // The socket listens from the choice of the port on, and the answer comes from the server.
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("the port is held");
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    signal(child.id(), "INT");
    assert!(wait_for("the end", || child.try_wait().expect("asked")).success());
    // Another program may have had the port before, and leave it now: nothing is to be seen then.
    if taken.is_ok() {
        assert!(said.contains("Port 8080 is taken: 80"), "{said}");
        assert!(!said.contains("http://127.0.0.1:8080/"), "{said}");
    }
}

/// A server of root has the rights of the folder's owner, or of nobody.
#[test]
fn root_s_own_files_are_not_served() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("rights");
    let private = |name: &str, owner: u32| {
        let path = folder.join(name);
        fs::write(&path, "text").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
    };
    private("root.txt", 0);
    private("daemon.txt", 1);
    folder.write("all.txt", "text");
    let path = folder.to_string_lossy();
    let of = |served: &Served| {
        ["/all.txt", "/root.txt", "/daemon.txt"].map(|path| served.get(path).status)
    };
    let served = Served::start(&[&path]);
    assert_eq!(of(&served), [200, 403, 403]);
    let said = served.interrupt();
    assert!(said.contains("runs with the rights of user nobody"), "{said}");
    std::os::unix::fs::chown(&*folder, Some(1), None).unwrap();
    let served = Served::start(&[&path]);
    assert_eq!(of(&served), [200, 403, 200]);
    let said = served.interrupt();
    assert!(said.contains("runs with the rights of user daemon"), "{said}");
    let served = Served::start(&[&path, "--user", "root"]);
    assert_eq!(of(&served), [200, 200, 200]);
    served.interrupt();
    // A folder that the account cannot reach is an error, not a site of refusals.
    fs::set_permissions(&*folder, fs::Permissions::from_mode(0o700)).unwrap();
    let run = Command::new(BINARY).args(["serve", &path, "--user", "nobody"]).output().unwrap();
    let error = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(error.contains(" cannot be read by user nobody"), "{error}");
    assert_eq!(run.status.code(), Some(1));
}

#[test]
fn a_folder_is_served_and_listed() {
    let folder = Folder::new("served $folder");
    folder.write("a b.txt", "hello");
    let path = folder.to_string_lossy();

    let served = Served::start(&[&path]);
    assert_eq!(served.get("/a%20b.txt").body, b"hello");
    let list = served.get("/");
    assert_eq!(list.status, 200);
    assert!(list.text().contains("a%20b.txt"), "{}", list.text());
    let address = format!("http://127.0.0.1:{}/", served.port.number());
    let said = served.interrupt();
    let full = folder.canonicalize().unwrap();
    assert!(said.contains(&format!("serves {} at {address}\n", full.display())), "{said}");
    assert!(said.contains("are listed (--no-browse: they are refused)"), "{said}");

    let served = Served::start(&[&path, "--no-browse"]);
    assert_eq!(served.get("/").status, 403);
    assert_eq!(served.get("/a%20b.txt").status, 200);
    let said = served.interrupt();
    assert!(said.contains("without an index.html are refused"), "{said}");
}

/// A server that answers with the head of the request.
fn mirror() -> Scripted {
    Scripted::start(|mut stream, _| {
        let Some(head) = read_until(&mut stream, |all| all.ends_with(b"\r\n\r\n")) else { return };
        let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", head.len());
        let _ = stream.write_all(&[start.as_bytes(), &head].concat());
    })
}

#[test]
fn requests_are_passed_on() {
    let server = mirror();
    let served = Served::start(&["--proxy", &server.port.to_string()]);
    let head = served.get("/a%20b?c=d").text();
    assert!(head.starts_with("GET /a%20b?c=d HTTP/1.1\r\n"), "{head}");
    for field in ["Host: localhost", "X-Forwarded-Proto: http", "X-Forwarded-For: 127.0.0.1"] {
        assert!(head.contains(&format!("\r\n{field}\r\n")), "{field}: {head}");
    }
    let (to, at) = (server.port, served.port.number());
    let said = served.interrupt();
    let line = format!("proxies http://127.0.0.1:{to} at http://127.0.0.1:{at}/\n");
    assert!(said.contains(&line), "{said}");

    let served = Served::start(&[&format!("--proxy=http://localhost:{}/app", server.port)]);
    let head = served.get("/x").text();
    assert!(head.starts_with("GET /app/x HTTP/1.1\r\n"), "{head}");
    served.interrupt();
}

#[test]
fn a_server_that_is_not_there_is_answered_for() {
    let nobody = Port::reserve();
    let served = Served::start(&["--proxy", &nobody.number().to_string()]);
    assert_eq!(served.get("/").status, 502);
    served.interrupt();
}

#[test]
fn what_cannot_be_served_is_refused() {
    for (args, message) in [
        (&["/no/such/folder"][..], "/no/such/folder: No such file or directory"),
        (&["--proxy", "ftp://localhost"], "\"ftp://localhost\" is not a URL to proxy"),
        (&["--proxy", "no-such-host.invalid"], "no address for \"no-such-host.invalid\""),
        (&["/tmp", "--proxy", "80"], "a folder or --proxy, not both"),
        (&["/tmp", "/usr"], "one folder or file at a time, not /tmp and /usr: serve the folder"),
        (&["/usr", "--spa"], "--spa: /usr has no index.html"),
        (&["/etc/passwd", "--no-browse"], "are for folders"),
        (&["--listen", "192.0.2.1:x"], "is not an address to listen on"),
    ] {
        let output = Command::new(BINARY).arg("serve").args(args).output();
        let output = output.expect("run weir");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(message), "{said}");
    }
}

/// HTTPS in one command, with pebble as the authority.
#[test]
fn domains_are_served_by_https() {
    use std::sync::Arc;

    use testkit::pebble::{Pebble, Settings};
    use testkit::{AnyCertificate, Peer};

    let (http, https) = (Port::reserve(), Port::reserve());
    let pebble = Pebble::start(Settings::new(http.number(), https.number()));
    let behind = Peer::start(
        "python3",
        "python3",
        &[("index.html", "behind")],
        &["-m", "http.server", "-b", "127.0.0.1", "%PORT%"],
    );
    let state = Folder::new("serve-state");
    let mut child = Command::new(BINARY)
        .args(["serve", "a.test", "www.a.test", "--proxy", &behind.port().to_string()])
        .args(["--listen", &format!("127.0.0.1:{}", https.number())])
        .args(["--http", &format!("127.0.0.1:{}", http.number())])
        .args(["--directory", &pebble.directory(), "--directory-ca"])
        .arg(pebble.trusted())
        .args(["--resolver", &format!("127.0.0.1:{}", pebble.dns_port())])
        .env("STATE_DIRECTORY", state.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir serve starts");
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .expect("versions")
    .dangerous()
    .with_custom_certificate_verifier(Arc::new(AnyCertificate))
    .with_no_client_auth();
    let config = Arc::new(config);
    let page = wait_for("a page under TLS", || {
        assert!(child.try_wait().expect("asked").is_none(), "it ended");
        let name = "www.a.test".try_into().expect("a name");
        let mut tls = rustls::ClientConnection::new(config.clone(), name).expect("a session");
        let mut sock = TcpStream::connect(("127.0.0.1", https.number())).ok()?;
        tls.complete_io(&mut sock).ok()?;
        let mut conn = Conn::over(rustls::StreamOwned::new(tls, sock));
        conn.send("GET / HTTP/1.1\r\nHost: www.a.test\r\nConnection: close\r\n\r\n");
        Some(conn.response())
    });
    assert_eq!((page.status, page.text().as_str()), (200, "behind"));
    let mut conn = Conn::tcp(http.number());
    conn.send("GET /x?y HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    let moved = conn.response();
    let target = format!("https://a.test:{}/x?y", https.number());
    assert_eq!((moved.status, moved.header("Location")), (301, Some(target.as_str())));
    let folder = std::env::temp_dir().join(format!("weir-serve-{}", child.id()));
    assert!(folder.exists());
    signal(child.id(), "INT");
    assert!(wait_for("the end", || child.try_wait().expect("asked")).success());
    assert!(!folder.exists(), "its folder of temporary files went with it");
    let said = std::io::read_to_string(child.stdout.take().expect("piped")).expect("read it");
    assert!(said.contains("https://a.test www.a.test:"), "{said}");
    assert!(fs::read_dir(&*state).expect("read it").next().is_some(), "the keys were kept");
}

#[test]
fn errors_have_pages_for_people() {
    let folder = Folder::new("errors");
    folder.write("a.txt", "hello");
    let check = |response: &Response, status: u16, words: &str| {
        let text = response.text();
        assert_eq!(
            (response.status, response.header("Content-Type")),
            (status, Some("text/html; charset=utf-8"))
        );
        assert!(text.contains(words), "{text}");
        let (_, id) = text.split_once(&format!("Status {status}, request ")).expect("an id");
        assert!(id.bytes().take_while(u8::is_ascii_hexdigit).count() == 32, "{text}");
    };
    let served = Served::start(&[&folder.to_string_lossy()]);
    let missing = served.get("/<b>none");
    check(&missing, 404, "<h1>Page not found</h1>");
    assert!(!missing.text().contains("none"));
    let mut conn = Conn::tcp(served.port.number());
    conn.send("POST /a.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    check(&conn.response(), 405, "Method not allowed");
    served.interrupt();
    let dead = Port::reserve();
    let served = Served::start(&["--proxy", &format!("127.0.0.1:{}", dead.number())]);
    let response = served.get("/");
    assert_eq!(response.status, 502);
    assert!(response.text().contains("<h1>Bad gateway</h1>"), "{}", response.text());
    served.interrupt();
}
