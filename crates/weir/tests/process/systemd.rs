//! systemd: notifications of readiness, reloads and the end; sockets that it opened.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{BINARY, site};
use testkit::{listener, wait_for};

/// A server whose parent plays systemd.
struct Service {
    child: Child,
    manager: UnixDatagram,
    _site: testkit::Site,
}

impl Service {
    fn start(listener: Option<TcpListener>, http: &str) -> Service {
        let site = site(1, "pid logs/weir.pid; error_log logs/error.log info;", http);
        let socket = site.prefix().join("notify.sock");
        let manager = UnixDatagram::bind(&socket).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // A shell moves the socket to descriptor 3 and sets LISTEN_PID.
        let pass = if listener.is_some() {
            "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\""
        } else {
            "exec \"$@\""
        };
        let stdin = listener.map_or(Stdio::null(), |l| Stdio::from(std::os::fd::OwnedFd::from(l)));
        let child = Command::new("/bin/sh")
            .args(["-c", pass, "sh", BINARY, "-c", "conf/weir.conf", "-g", "daemon off;", "-p"])
            .arg(site.prefix())
            .env("NOTIFY_SOCKET", &socket)
            .stdin(stdin)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Service { child, manager, _site: site }
    }

    fn told(&self) -> String {
        let mut buf = [0; 512];
        let n = self.manager.recv(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..n]).into_owned()
    }

    fn signal(&self, name: &str) {
        testkit::signal(self.child.id(), name);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.signal("TERM");
            let _ = self.child.wait();
        }
    }
}

#[test]
fn states_are_told() {
    let service = Service::start(None, "server { listen unix:%PREFIX%/s.sock; root html; }");
    let ready = format!("READY=1\nMAINPID={}\n", service.child.id());
    assert!(service.told().starts_with(&ready));
    service.signal("HUP");
    let reloading = service.told();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert!(service.told().starts_with(&ready));
    service.signal("QUIT");
    assert!(service.told().starts_with("STOPPING=1\n"));
}

#[test]
fn sockets_are_taken_over() {
    let (listener, port) = listener();
    // Before the server is there, the connection waits.
    let mut early = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let http = format!("server {{ listen 127.0.0.1:{port}; root html; }}");
    let mut service = Service::start(Some(listener), &http);
    assert!(service.told().starts_with("READY=1\n"));
    std::io::Write::write_all(&mut early, b"GET /a.txt HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut early, &mut text).unwrap();
    assert!(text.ends_with("\r\n\r\nhello"), "{text}");
    service.signal("QUIT");
    let status = wait_for("the server's end", || service.child.try_wait().unwrap());
    assert!(status.success());
}
