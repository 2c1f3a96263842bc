//! `weir serve`: a site without a configuration file.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use testkit::{Conn, Folder, Port, Response, Scripted, read_until, signal, wait_for};

/// A running `weir serve`; killed if the test fails before it ends.
struct Served {
    child: Child,
    port: Port,
}

impl Served {
    fn start(arguments: &[&str]) -> Served {
        let port = Port::reserve();
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--listen"])
            .arg(port.number().to_string())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir serve starts");
        wait_for("weir serve to listen", || {
            if child.try_wait().expect("asked").is_some() {
                let stderr = child.stderr.take().expect("it is piped");
                let said = std::io::read_to_string(stderr).unwrap_or_default();
                assert_eq!(said, "", "it ended at once");
            }
            TcpStream::connect(("127.0.0.1", port.number())).ok()
        });
        Served { child, port }
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
        let stdout = self.child.stdout.take().expect("it is piped");
        assert!(!self.folder().exists(), "its folder of temporary files went with it");
        std::io::read_to_string(stdout).expect("read what was said")
    }

    fn folder(&self) -> PathBuf {
        std::env::temp_dir().join(format!("weir-serve-{}", self.child.id()))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_taken_address_is_told_at_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("take a port");
    let address = taken.local_addr().expect("its address").to_string();
    let run =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(["serve", "--listen", &address]).output();
    let run = run.expect("run weir");
    let (said, error) =
        (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let want = format!("weir serve: {address}: Address already in use (os error 98)\n");
    assert_eq!((run.status.code(), &*said, &*error), (Some(1), "", want.as_str()));
}

#[test]
fn without_a_folder_there_is_a_welcome_page() {
    let served = Served::start(&[]);
    let page = served.get("/");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("Content-Type").map(|t| t.starts_with("text/html")), Some(true));
    assert!(page.text().contains(env!("CARGO_PKG_VERSION")), "{}", page.text());
    served.interrupt();
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
        (&["--listen", "192.0.2.1:x"], "is not an address to listen on"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("serve").args(args).output();
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
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
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
