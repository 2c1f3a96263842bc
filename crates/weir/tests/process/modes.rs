//! Files and folders that the server makes: permissions and owners, beside those of nginx.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{BINARY, is_root};
use testkit::{Folder, Port, wait_for};

const NGINX: &str = "/usr/sbin/nginx";

/// All files that nginx and weir both make. `%ONLY_WEIR%` and `%ONLY_WEIR_HTTP%` are missing in
/// nginx 1.22.
const CONFIG: &str = r#"
%USER%
worker_processes 1;
pid run/server.pid;
error_log logs/error.log info;
events {}
http {
    access_log logs/access.log;
    client_body_temp_path temp/body 1;
    proxy_temp_path temp/proxy;
    fastcgi_temp_path temp/fastcgi;
    uwsgi_temp_path temp/uwsgi;
    scgi_temp_path temp/scgi;
    proxy_cache_path cache levels=1:2 keys_zone=k:1m use_temp_path=off;
    server {
        listen 127.0.0.1:%PORT%;
        listen unix:%PREFIX%/run/server.sock;
        root html;
        location /late { access_log open/$arg_n.log; return 204; }
        location /cached { proxy_cache k; proxy_cache_valid 1h; proxy_cache_key one;
            proxy_pass http://127.0.0.1:%PORT%/page; }
        location /stored { proxy_store %PREFIX%/open/stored; proxy_pass http://127.0.0.1:%PORT%/page; }
        location /stored-mode {
            proxy_store %PREFIX%/open/stored-mode; proxy_store_access group:rw all:r;
            proxy_pass http://127.0.0.1:%PORT%/page;
        }
        location /kept { client_body_in_file_only on; proxy_pass http://127.0.0.1:%PORT%/page; }
        location /page { return 200 "page"; }
        location /dav/ {
            root open; dav_methods PUT MKCOL COPY; create_full_put_path on;
        }
        location /dav-mode/ {
            root open; dav_methods PUT MKCOL; create_full_put_path on; dav_access group:rw all:r;
        }
        %ONLY_WEIR%
    }
    %ONLY_WEIR_HTTP%
}
"#;

/// A server's own folder; both servers get the same.
fn prepare(name: &str, config: &str, port: u16) -> Folder {
    let prefix = Folder::new(name);
    for folder in ["logs", "run", "temp", "html", "open", "open/dav", "open/dav-mode", "conf"] {
        fs::create_dir_all(prefix.join(folder)).expect("a folder");
    }
    for (folder, mode) in [("", 0o755), ("open", 0o777), ("open/dav", 0o777)] {
        open_to(&prefix.join(folder), mode);
    }
    open_to(&prefix.join("open/dav-mode"), 0o777);
    let text = config
        .replace("%PREFIX%", &prefix.to_string_lossy())
        .replace("%USER%", if is_root() { "user nobody nogroup;" } else { "" })
        .replace("%PORT%", &port.to_string());
    prefix.write("conf/server.conf", text);
    prefix
}

fn open_to(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
}

/// A server that runs, under an umask of its own.
struct Server {
    prefix: Folder,
    port: Port,
    child: Child,
}

impl Server {
    fn start(binary: &str, name: &str, config: &str, umask: &str, daemon: bool) -> Server {
        let port = Port::reserve();
        let prefix = prepare(name, config, port.number());
        let mode = if daemon { "daemon on;" } else { "daemon off;" };
        let child = Command::new("sh")
            .args(["-c", "umask $0; exec \"$@\"", umask, binary, "-p"])
            .arg(prefix.path())
            .args(["-c", "conf/server.conf", "-e", "logs/first.log", "-g", mode])
            .stderr(Stdio::null())
            .spawn()
            .expect("the server's program");
        let mut server = Server { prefix, port, child };
        if daemon {
            // While it has the process that it left, nginx ignores that its binary has changed.
            server.child.wait().expect("the first process");
        }
        wait_for("the server", || {
            server.pid("run/server.pid")?;
            TcpStream::connect(("127.0.0.1", server.port.number())).ok()
        });
        server
    }

    fn pid(&self, file: &str) -> Option<u32> {
        fs::read_to_string(self.prefix.join(file)).ok()?.trim().parse().ok()
    }

    fn ask(&self, method: &str, path: &str, fields: &str, body: &str) -> u16 {
        let mut client = TcpStream::connect(("127.0.0.1", self.port.number())).expect("connected");
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{fields}\
             Connection: close\r\n\r\n{body}"
        );
        client.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("answered");
        answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// Makes the server create all of its files.
    fn work(&self) {
        for (method, path, fields, body, status) in [
            ("GET", "/late?n=late", "", "", 204),
            ("GET", "/cached", "", "", 200),
            ("GET", "/stored", "", "", 200),
            ("GET", "/stored-mode", "", "", 200),
            ("POST", "/kept", "", "body", 200),
            ("PUT", "/dav/new/folder/file", "", "text", 201),
            ("MKCOL", "/dav/made/", "", "", 201),
            ("COPY", "/dav/new/folder/file", "Destination: /dav/copy\r\n", "", 204),
            ("PUT", "/dav-mode/new/folder/file", "", "text", 201),
            ("MKCOL", "/dav-mode/made/", "", "", 201),
        ] {
            assert_eq!(self.ask(method, path, fields, body), status, "{method} {path}");
        }
        // These may come after the answer.
        for file in ["open/stored", "open/stored-mode"] {
            wait_for(file, || self.prefix.join(file).exists().then_some(()));
        }
        let is_kept = |name: &String| {
            // A key's hash; files in the making have longer names, and an index has its own.
            name.starts_with("cache/") && name.rsplit('/').next().is_some_and(|n| n.len() == 32)
        };
        wait_for("the cached file", || self.made().keys().any(is_kept).then_some(()));
    }

    /// Makes the server start another program in its place, which leaves the old one's pid file
    /// beside its own.
    fn upgrade(&self) {
        let old = self.pid("run/server.pid").expect("a pid file");
        testkit::signal(old, "USR2");
        wait_for("the new program", || {
            let moved = self.pid("run/server.pid.oldbin") == Some(old);
            (moved && self.pid("run/server.pid").is_some_and(|new| new != old)).then_some(())
        });
    }

    /// The files and folders by name, with permissions and owner.
    fn made(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        look(&self.prefix, &self.prefix, &mut all);
        all
    }

    fn stop(mut self) {
        // Both before either goes: the old program takes its file back when the new one ends.
        let files = ["run/server.pid.oldbin", "run/server.pid"];
        let pids: Vec<u32> = files.iter().filter_map(|file| self.pid(file)).collect();
        for pid in pids {
            testkit::signal(pid, "TERM");
            wait_for("its end", || {
                let _ = self.child.try_wait();
                (!testkit::is_alive(pid)).then_some(())
            });
        }
        let _ = self.child.wait();
    }
}

fn look(prefix: &Path, folder: &Path, all: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let facts = fs::symlink_metadata(&path).expect("facts");
        let kind = match facts.file_type() {
            t if t.is_dir() => "folder",
            t if t.is_socket() => "socket",
            _ => "file",
        };
        let mut name = path.strip_prefix(prefix).expect("below it").to_string_lossy().into_owned();
        if name.starts_with("temp/") {
            // Temporary files have arbitrary numbers.
            let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
            name = name.chars().map(digits).collect();
        }
        all.insert(
            name,
            format!("{kind} {:04o} {}:{}", facts.mode() & 0o7777, facts.uid(), facts.gid()),
        );
        if facts.is_dir() {
            look(prefix, &path, all);
        }
    }
}

/// Files that weir makes besides, and may.
const OWN: [(&str, &str); 6] = [
    // The control socket.
    ("run/server.pid.sock", "socket 0600"),
    ("run/server.pid.oldbin.sock", "socket 0600"),
    // The folder that `proxy_pass` would use without `proxy_temp_path`.
    ("proxy_temp", "folder 0700"),
    // Debian's nginx writes it before it forks; others have no umask then, as weir.
    ("run/server.pid", "file 0644"),
    // The cache's index, which the cache manager makes.
    ("cache/.weir.index/", "file 0600"),
    ("cache/.weir.index", "folder 0700"),
];

#[test]
fn permissions_and_owners_are_nginx_s() {
    if !Path::new(NGINX).exists() {
        eprintln!("no {NGINX}: nothing to compare with");
        return;
    }
    let config = CONFIG.replace("%ONLY_WEIR%", "").replace("%ONLY_WEIR_HTTP%", "");
    let mut differ = Vec::new();
    for umask in ["0", "022", "077"] {
        for daemon in [true, false] {
            let what = format!("umask {umask}, daemon {daemon}");
            let [theirs, ours] = [(NGINX, "nginx"), (BINARY, "weir")].map(|(binary, name)| {
                let server = Server::start(binary, name, &config, umask, daemon);
                server.work();
                if daemon {
                    server.upgrade();
                }
                let made = server.made();
                server.stop();
                made
            });
            let names: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
            for name in names {
                let (theirs, ours) = (theirs.get(name), ours.get(name));
                let allowed = OWN.iter().find(|own| name.starts_with(own.0));
                if theirs != ours
                    && allowed.is_none_or(|own| !ours.is_some_and(|ours| ours.starts_with(own.1)))
                {
                    differ.push(format!("{what}: {name}: nginx {theirs:?}, weir {ours:?}"));
                }
            }
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
}

/// Directives that nginx 1.22 has not.
#[test]
fn others_cannot_write_a_state_file() {
    let config = CONFIG.replace("%ONLY_WEIR%", "location /api { api write=on; }").replace(
        "%ONLY_WEIR_HTTP%",
        "upstream u { zone u 64k; state %PREFIX%/open/servers.conf; }",
    );
    let server = Server::start(BINARY, "state", &config, "0", true);
    let added = "{\"server\":\"127.0.0.1:1\"}";
    assert_eq!(server.ask("POST", "/api/9/http/upstreams/u/servers", "", added), 201);
    let made = server.made();
    let facts = made.get("open/servers.conf").expect("a state file");
    assert!(facts.starts_with("file 0644"), "{facts}");
    server.stop();
}
