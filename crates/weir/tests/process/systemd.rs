//! systemd: notifications of readiness, reloads and the end; sockets that it opened.

use std::fs;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{BINARY, site};
use testkit::{Folder, listener, wait_for, wait_until};

/// A server whose parent plays systemd.
struct Service {
    child: Child,
    manager: UnixDatagram,
    site: testkit::Site,
}

impl Service {
    fn start(listener: Option<OwnedFd>, http: &str) -> Service {
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
        let stdin = listener.map_or(Stdio::null(), Stdio::from);
        let child = Command::new("/bin/sh")
            .args(["-c", pass, "sh", BINARY, "-c", "conf/weir.conf", "-g", "daemon off;", "-p"])
            .arg(site.prefix())
            .env("NOTIFY_SOCKET", &socket)
            .stdin(stdin)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Service { child, manager, site }
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
    let mut service = Service::start(Some(listener.into()), &http);
    assert!(service.told().starts_with("READY=1\n"));
    std::io::Write::write_all(&mut early, b"GET /a.txt HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut early, &mut text).unwrap();
    assert!(text.ends_with("\r\n\r\nhello"), "{text}");
    service.signal("QUIT");
    let status = wait_for("the server's end", || service.child.try_wait().unwrap());
    assert!(status.success());
}

#[test]
fn the_file_of_a_socket_stays_at_the_end() {
    let folder = Folder::new("managed");
    let path = folder.join("s.sock");
    let http = format!("server {{ listen unix:{}; root html; }}", path.display());
    for replaces_binary in [false, true] {
        let listener = UnixListener::bind(&path).unwrap();
        let mut service = Service::start(Some(listener.into()), &http);
        assert!(service.told().starts_with("READY=1\n"));
        let pid_file = service.site.prefix().join("logs/weir.pid");
        let master = || fs::read_to_string(&pid_file).ok()?.trim().parse::<u32>().ok();
        let first = master().unwrap();
        let mut last = first;
        if replaces_binary {
            service.signal("USR2");
            last = wait_for("another master", || master().filter(|pid| *pid != first));
            assert!(service.told().starts_with("READY=1\n"));
        }
        service.signal("QUIT");
        let status = wait_for("the server's end", || service.child.try_wait().unwrap());
        assert!(status.success());
        if replaces_binary {
            testkit::signal(last, "QUIT");
            wait_for("the new master's end", || (!pid_file.exists()).then_some(()));
            wait_until("its process's end", || !testkit::is_alive(last));
        }
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_reload_without_its_address_leaves_the_file_of_a_socket() {
    let folder = Folder::new("managed");
    let path = folder.join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let service = Service::start(
        Some(listener.into()),
        &format!("server {{ listen unix:{}; root html; }}", path.display()),
    );
    assert!(service.told().starts_with("READY=1\n"));
    let conf = service.site.prefix().join("conf/weir.conf");
    let text = fs::read_to_string(&conf).unwrap();
    let other = format!("{}.other", path.display());
    fs::write(&conf, text.replace(&path.display().to_string(), &other)).unwrap();
    service.signal("HUP");
    assert!(service.told().starts_with("RELOADING=1\n"));
    assert!(service.told().starts_with("READY=1\n"));
    assert!(path.exists() && Path::new(&other).exists());
    // Its own goes.
    drop(service);
    assert!(!Path::new(&other).exists() && path.exists());
}
