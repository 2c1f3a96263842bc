//! Echo backends, a client, and the server under test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The binary: `WEIR`, or the one that the main workspace built.
pub fn weir() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("WEIR") {
        return Some(path.into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    [target.join("debug/weir"), root.join("target/debug/weir")].into_iter().find(|p| p.exists())
}

/// A folder that is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Tests of one program run at once and may ask for one name, so each folder has a number.
    pub fn new(name: &str) -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-kube-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that answers with what it was asked: its name, the request line, and the fields.
///
/// `X-Reply-Status` and `X-Reply-Header: NAME=VALUE` in a request change the answer; a path that
/// begins with `/deny` is answered with 401.
pub struct Echo {
    pub port: u16,
    /// Request lines and fields, as they came.
    pub seen: Arc<Mutex<Vec<String>>>,
}

impl Echo {
    pub fn start(name: &'static str) -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let notes = notes.clone();
                std::thread::spawn(move || echo(name, stream, &notes));
            }
        });
        Echo { port, seen }
    }
}

fn echo(name: &str, stream: TcpStream, notes: &Mutex<Vec<String>>) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        let field = |name: &str| {
            head.lines().skip(1).find_map(|line| {
                let (n, value) = line.split_once(": ")?;
                n.eq_ignore_ascii_case(name).then_some(value)
            })
        };
        let len: usize = field("Content-Length").and_then(|v| v.parse().ok()).unwrap_or(0);
        let mut body = vec![0; len];
        reader.read_exact(&mut body).ok()?;
        notes.lock().unwrap().push(head.clone());
        let path = head.split(' ').nth(1).unwrap_or_default();
        let status = match field("X-Reply-Status") {
            Some(status) => status.to_owned(),
            None if path.starts_with("/deny") => "401".to_owned(),
            None => "200".to_owned(),
        };
        let mut extra = String::new();
        for line in head.lines() {
            if let Some((n, v)) = line.split_once(": ")
                && n.eq_ignore_ascii_case("X-Reply-Header")
                && let Some((name, value)) = v.split_once('=')
            {
                extra.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        let text = format!("backend: {name}\nbody: {len}\n{}", head.replace('\r', ""));
        let reply = format!(
            "HTTP/1.1 {status} Reply\r\nContent-Type: text/plain\r\nServer: echo\r\nX-User: ann\r\n\
             {extra}Content-Length: {}\r\n\r\n{text}",
            text.len()
        );
        let is_last = field("Connection").is_some_and(|v| v.eq_ignore_ascii_case("close"));
        writer.write_all(reply.as_bytes()).ok()?;
        if is_last {
            return None;
        }
    }
}

/// A response.
#[derive(Debug, Default)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    /// The values of a field, with commas between them.
    pub fn field(&self, name: &str) -> Option<String> {
        fields(&self.head, name)
    }

    /// The values of a field that the backend saw.
    pub fn seen(&self, name: &str) -> Option<String> {
        fields(&self.body, name)
    }

    fn read(bytes: &[u8]) -> Reply {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        Reply { status, head: head.replace('\r', ""), body: body.to_owned() }
    }
}

fn fields(text: &str, name: &str) -> Option<String> {
    let all: Vec<&str> = text
        .lines()
        .filter_map(|line| {
            let (n, value) =
                line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, "")))?;
            n.eq_ignore_ascii_case(name).then_some(value)
        })
        .collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Sends a request and reads until the end of the connection.
pub fn ask(port: u16, request: &str, from: &str) -> Reply {
    let socket = connect_from(from, port);
    let mut socket = socket.unwrap_or_else(|e| panic!("port {port}: {e}"));
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    // A connection that is reset has an answer before that, or none.
    let _ = socket.read_to_end(&mut bytes);
    Reply::read(&bytes)
}

/// The loopback has many addresses: the kernel takes that of the destination as the source.
fn connect_from(from: &str, port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect((from, port))
}

/// The same over TLS, by `openssl s_client`.
pub fn ask_tls(port: u16, name: &str, request: &str, client: Option<(&Path, &Path)>) -> Reply {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}")]);
    command.args(["-servername", name]);
    if let Some((certificate, key)) = client {
        command.arg("-cert").arg(certificate).arg("-key").arg(key);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("openssl");
    child.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    Reply::read(&out.stdout)
}

/// Makes a certificate with its key: `(certificate, key)` in PEM.
pub fn certificate(folder: &Path, name: &str, signed_by: Option<&str>) -> (String, String) {
    let at = |end: &str| folder.join(format!("{name}.{end}")).display().to_string();
    let subject = format!("/CN={name}");
    // Without the system's settings, which make a CA of each certificate.
    let settings = at("cnf");
    std::fs::write(&settings, "[req]\ndistinguished_name = dn\n[dn]\n").unwrap();
    let constraints = match name.ends_with("-ca") {
        true => "basicConstraints=critical,CA:TRUE",
        false => "basicConstraints=critical,CA:FALSE",
    };
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    command.args([
        "-nodes",
        "-days",
        "30",
        "-subj",
        &subject,
        "-keyout",
        &at("key"),
        "-out",
        &at("crt"),
    ]);
    command.args(["-config", &settings, "-addext", constraints]);
    command.args(["-addext", &format!("subjectAltName=DNS:{name}")]);
    if let Some(ca) = signed_by {
        let ca = |end: &str| folder.join(format!("{ca}.{end}")).display().to_string();
        command.args(["-CA", &ca("crt"), "-CAkey", &ca("key")]);
    }
    let out = command.output().expect("openssl");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let read = |end| std::fs::read_to_string(at(end)).unwrap();
    (read("crt"), read("key"))
}

/// Ports that nobody uses now, and that the system gives to no client meanwhile: it takes those
/// from 32768 on. Each is given out once by this process, and processes begin at different ones.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 10_000;
    [(); N].map(|()| {
        loop {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            let port = FIRST + (std::process::id().wrapping_mul(211).wrapping_add(next)) % COUNT;
            let port = u16::try_from(port).unwrap();
            if TcpListener::bind(("0.0.0.0", port)).is_ok() {
                return port;
            }
        }
    })
}

/// Tests a configuration; the error's text if it does not load.
pub fn test(weir: &Path, conf: &Path) -> Result<(), String> {
    let out = Command::new(weir).arg("-t").arg("-c").arg(conf).output().unwrap();
    match out.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}

/// The server.
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it and waits until it says that it is ready.
    pub fn start(weir: &Path, conf: &Path) -> Server {
        let log = conf.with_extension("log");
        let out = std::fs::File::create(&log).unwrap();
        let place = conf.with_extension("notify");
        let ready = UnixDatagram::bind(&place).unwrap();
        let child = Command::new(weir)
            .arg("-c")
            .arg(conf)
            .env("NOTIFY_SOCKET", &place)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let mut server = Server { child, log };
        // Until it is ready or has ended: either comes about.
        ready.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut message = [0; 1024];
        loop {
            if let Ok(len) = ready.recv(&mut message)
                && String::from_utf8_lossy(&message[..len]).lines().any(|line| line == "READY=1")
            {
                return server;
            }
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("the server ended with {status}: {}", server.log());
            }
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}
