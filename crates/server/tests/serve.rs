//! `weir serve`: a site without a configuration file.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use testkit::{Conn, Port, Response, signal, wait_for};

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
            .stdout(Stdio::null())
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

    /// Ctrl-C, as a person stops it.
    fn interrupt(mut self) {
        signal(self.child.id(), "INT");
        let child = &mut self.child;
        let status = wait_for("the end", || child.try_wait().expect("asked"));
        assert!(status.success(), "{status}");
        assert!(!self.folder().exists(), "its folder of temporary files went with it");
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
fn without_a_folder_there_is_a_welcome_page() {
    let served = Served::start(&[]);
    let page = served.get("/");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("Content-Type").map(|t| t.starts_with("text/html")), Some(true));
    assert!(page.text().contains(env!("CARGO_PKG_VERSION")), "{}", page.text());
    served.interrupt();
}

#[test]
fn a_folder_is_served_and_listed_when_asked() {
    let folder = std::env::temp_dir().join(format!("weir $serve-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a b.txt"), "hello").unwrap();
    let path = folder.to_string_lossy();

    let served = Served::start(&[&path]);
    assert_eq!(served.get("/a%20b.txt").body, b"hello");
    assert_eq!(served.get("/").status, 403);
    served.interrupt();

    let served = Served::start(&[&path, "--browse"]);
    let list = served.get("/");
    assert_eq!(list.status, 200);
    assert!(list.text().contains("a%20b.txt"), "{}", list.text());
    served.interrupt();
    fs::remove_dir_all(&folder).unwrap();
}
