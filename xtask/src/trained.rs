//! `cargo xtask trained`: the server for release, optimized by the profile of a load.
//!
//! The program is built twice: first with counters in it, which a load fills, then with the counts,
//! by which the compiler lays out code, inlines and foresees branches (`-Cprofile-generate` and
//! `-Cprofile-use` of rustc). A function that the load does not reach counts as one that is never
//! called, and becomes small instead of fast. So the load is broad: files, kept and closed
//! connections, TLS, HTTP/2 and 3, compression, a proxy and a cache, limits, tables, scripts,
//! `stream`, and connections that move to other workers.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::workspace::Workspace;
use crate::{Findings, run};

/// Seconds of each load.
const SECONDS: &str = "4";

/// One process: no other user has to be allowed to write its counts.
const CONFIG: &str = "\
daemon off; master_process off; pid weir.pid; error_log error.log;
events { worker_connections 1024; }
http {
    include mime.types;
    access_log access.log; sendfile on; tcp_nopush on; keepalive_requests 1000000;
    gzip_types text/css;
    proxy_cache_path cache keys_zone=pages:1m;
    limit_req_zone $binary_remote_addr zone=rate:1m rate=1000000r/s;
    keyval_zone zone=table:1m state=pairs.json;
    keyval $arg_k $found zone=table;
    map $uri $kind { default page; ~[.]css$ style; }
    js_import site.js;
    upstream origin { server 127.0.0.1:%PORT1%; keepalive 32; }
    server {
        listen 127.0.0.1:%PORT0%;
        listen 127.0.0.1:%PORT2% ssl; http2 on;
        listen 127.0.0.1:%PORT2% quic;
        ssl_certificate own.crt; ssl_certificate_key own.key;
        root html;
        location = /ok { return 200 \"OK\"; }
        location /packed/ { alias html/; gzip on; }
        location /old/ { rewrite ^/old/(.*)$ /$1 last; }
        location /passed/ { proxy_pass http://origin/; proxy_set_header Host $host; }
        location /cached/ { proxy_pass http://origin/; proxy_cache pages; proxy_cache_valid 1m; }
        location /limited/ { alias html/; limit_req zone=rate burst=1000; add_header X-Kind $kind; }
        location /found/ { alias html/; add_header X-Found $found; }
        location = /scripted { js_content site.page; }
    }
    server { listen 127.0.0.1:%PORT1%; root html; access_log off; }
}
stream { server { listen 127.0.0.1:%PORT3%; proxy_pass 127.0.0.1:%PORT1%; } }
";

const SCRIPT: &str = "\
function page(r) {
    r.headersOut['X-Kind'] = r.variables.kind;
    r.return(200, `${r.headersIn.host} ${r.method} ${r.args.k}\\n`);
}
export default { page };
";

/// Builds it, and prints its path. Arguments are cargo's, the same for both builds.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    trained(ws, args).map(|program| println!("{}", program.display())).map_err(|e| vec![e])
}

/// Builds it; its path.
pub fn trained(ws: &Workspace, args: &[String]) -> Result<PathBuf, String> {
    let triple = host(ws)?;
    let merge = profdata(ws, &triple)?;
    for tool in ["wrk", "h2load", "openssl"] {
        if !run::succeeds(ws, "sh", &["-c", &format!("command -v {tool}")]) {
            return Err(format!("{tool} is missing: apt-get install wrk nghttp2-client openssl"));
        }
    }
    let folder = ws.root().join("target/trained");
    let (counts, site) = (folder.join("counts"), folder.join("site"));
    for old in [&counts, &site] {
        let _ = fs::remove_dir_all(old);
        fs::create_dir_all(old).map_err(|e| format!("{}: {e}", old.display()))?;
    }
    let generate = format!("-Cprofile-generate={}", counts.display());
    // With the second flag workers write their counts, too, when they end.
    let counting = [&generate, "--cfg=weir_counts"];
    // The counts are per function, so the first build needs none of the optimizer's last steps,
    // which take most of a build's time.
    let quick =
        ["--config", "profile.release.lto=\"off\"", "--config", "profile.release.codegen-units=16"];
    let quick: Vec<String> =
        quick.map(str::to_owned).into_iter().chain(args.iter().cloned()).collect();
    let program = build(ws, &triple, &folder.join("counting"), &counting, &quick)?;
    // Not optimized: it is a load that the server need not wait for.
    let loads = ["--bin", "h3load", "--bin", "bench", "--bin", "floor"];
    let packages = ["build", "--quiet", "-p", "weir-bench-tools", "-p", "weir-bench"];
    run::run(ws, "cargo", &[&packages[..], &loads].concat())?;
    train(ws, &program, &site)?;
    moves(ws, &program, &counts)?;
    let profile = folder.join("weir.profdata");
    let (profile, counts) = (profile.to_string_lossy(), counts.to_string_lossy());
    run::run(ws, &merge.to_string_lossy(), &["merge", "-o", &profile, &counts])?;
    // Cargo would keep what it has compiled with the counts before: it does not know their file.
    let optimized = folder.join("optimized");
    let _ = fs::remove_dir_all(&optimized);
    build(ws, &triple, &optimized, &[&format!("-Cprofile-use={profile}")], args)
}

/// The triple that rustc compiles for.
fn host(ws: &Workspace) -> Result<String, String> {
    let version = run::output(ws, "rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// The program that merges counts; it has to be of the compiler's own LLVM.
fn profdata(ws: &Workspace, triple: &str) -> Result<PathBuf, String> {
    let sysroot = run::output(ws, "rustc", &["--print", "sysroot"])?;
    let path = Path::new(sysroot.trim()).join("lib/rustlib").join(triple).join("bin/llvm-profdata");
    match path.is_file() {
        true => Ok(path),
        false => Err("llvm-profdata is missing: rustup component add llvm-tools".to_owned()),
    }
}

/// Builds the server with flags for rustc. With a triple given, they are for the server alone, and
/// not for the programs that the build runs.
fn build(
    ws: &Workspace,
    triple: &str,
    target: &Path,
    flags: &[&str],
    more: &[String],
) -> Result<PathBuf, String> {
    let flags = format!("target.{triple}.rustflags={flags:?}");
    let folder = target.to_string_lossy();
    let mut words = vec!["build", "--release", "-p", "weir", "--bin", "weir"];
    words.extend(["--target", triple, "--target-dir", &folder, "--config", &flags]);
    words.extend(more.iter().map(String::as_str));
    run::run(ws, "cargo", &words)?;
    Ok(target.join(triple).join("release/weir"))
}

/// A server that is ended with the value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the loads against the program that counts.
fn train(ws: &Workspace, program: &Path, site: &Path) -> Result<(), String> {
    let ports = ports()?;
    write_site(ws, site, ports)?;
    let mut command = Command::new(program);
    command.arg("-p").arg(site).args(["-c", "nginx.conf"]).stdin(Stdio::null());
    let mut server = Server(command.spawn().map_err(|e| format!("{}: {e}", program.display()))?);
    let mut tries = 0;
    while TcpStream::connect(("127.0.0.1", ports[0])).is_err() {
        if tries == 100 || !matches!(server.0.try_wait(), Ok(None)) {
            return Err(format!("it does not serve: see {}", site.join("error.log").display()));
        }
        tries += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    loads(ws, ports)?;
    // A graceful end is one at which the counters are written.
    let pid = server.0.id().to_string();
    run::run(ws, "kill", &["-QUIT", &pid])?;
    let status = server.0.wait().map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("the server under the load: {status}")) }
}

/// Reloads under connections of all kinds, so that these move from worker to worker.
fn moves(ws: &Workspace, program: &Path, counts: &Path) -> Result<(), String> {
    let program = program.to_string_lossy();
    // Processes that end at the same time add to the same files. The user is the one that may write
    // them.
    let file = format!("LLVM_PROFILE_FILE={}/%4m.profraw", counts.display());
    let bench = ws.target().join("debug/bench");
    let bench = bench.to_string_lossy();
    let mut words = vec![&*file, &*bench, "moves", "--weir", &*program, "--driver", "epoll"];
    words.extend(["--clients", "100", "--reloads", "40", "--upgrades", "0", "--user", "root"]);
    run::output(ws, "env", &words).map(|_| ())
}

/// Ports that are free.
fn ports() -> Result<[u16; 4], String> {
    let all = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0"));
    let mut ports = [0; 4];
    for (port, socket) in ports.iter_mut().zip(&all) {
        let address = socket.as_ref().ok().and_then(|socket| socket.local_addr().ok());
        *port = address.ok_or("no port is free")?.port();
    }
    Ok(ports)
}

fn write_site(ws: &Workspace, site: &Path, ports: [u16; 4]) -> Result<(), String> {
    let mut config = CONFIG.to_owned();
    for (number, port) in ports.iter().enumerate() {
        config = config.replace(&format!("%PORT{number}%"), &port.to_string());
    }
    let types = fs::read(ws.root().join("conf/mime.types"));
    let types = types.map_err(|e| format!("conf/mime.types: {e}"))?;
    let line = "a { color: #123456; margin: 0 1px 2px 3px; } /* a rule of a style sheet */\n";
    let text = |bytes: usize| line.as_bytes().iter().copied().cycle().take(bytes).collect();
    let files: [(&str, Vec<u8>); 8] = [
        ("nginx.conf", config.into_bytes()),
        ("site.js", SCRIPT.into()),
        ("pairs.json", b"{\"one\":\"1\",\"two\":\"2\"}".to_vec()),
        ("mime.types", types),
        ("html/1k.css", text(1 << 10)),
        ("html/20k.css", text(20 << 10)),
        ("html/1m.css", text(1 << 20)),
        ("html/index.html", b"<h1>A page</h1>\n".to_vec()),
    ];
    fs::create_dir_all(site.join("html")).map_err(|e| e.to_string())?;
    for (name, bytes) in files {
        fs::write(site.join(name), bytes).map_err(|e| format!("{name}: {e}"))?;
    }
    let (key, certificate) = (site.join("own.key"), site.join("own.crt"));
    let (key, certificate) = (key.to_string_lossy(), certificate.to_string_lossy());
    let mut words = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    words.extend(["-nodes", "-subj", "/CN=localhost", "-days", "2"]);
    words.extend(["-keyout", &key, "-out", &certificate]);
    run::output(ws, "openssl", &words).map(|_| ())
}

/// The loads, one after the other.
fn loads(ws: &Workspace, [http, _, https, stream]: [u16; 4]) -> Result<(), String> {
    let (plain, tls) = (format!("http://127.0.0.1:{http}"), format!("https://127.0.0.1:{https}"));
    let paths = [
        "/ok",
        "/1k.css",
        "/",
        "/20k.css",
        "/1m.css",
        "/missing",
        "/old/1k.css",
        "/packed/20k.css",
        "/passed/1k.css",
        "/passed/1m.css",
        "/cached/1k.css",
        "/cached/20k.css",
        "/limited/1k.css",
        "/found/1k.css?k=two",
        "/scripted?k=one",
    ];
    let wrk = |url: String, fields: &[&str]| {
        let mut words = vec!["-t1", "-c32", "-d", SECONDS];
        fields.iter().for_each(|field| words.extend(["-H", field]));
        words.push(&url);
        run::output(ws, "wrk", &words).map(|_| ())
    };
    for path in paths {
        wrk(format!("{plain}{path}"), &["Accept-Encoding: gzip", "User-Agent: Mozilla/5.0"])?;
    }
    for (field, path) in [("Connection: close", "/1k.css"), ("Range: bytes=100-299", "/1m.css")] {
        wrk(format!("{plain}{path}"), &[field])?;
    }
    for url in [format!("{tls}/1k.css"), format!("http://127.0.0.1:{stream}/1k.css")] {
        wrk(url.clone(), &[])?;
        wrk(url, &["Connection: close"])?;
    }
    // Handshakes, new and resumed, of both versions.
    let address = format!("127.0.0.1:{https}");
    for version in ["-tls1_2", "-tls1_3"] {
        for kind in ["-new", "-reuse"] {
            let mut words = vec!["s_time", "-connect", &address, "-www", "/1k.css"];
            words.extend([version, kind, "-time", SECONDS]);
            run::output(ws, "openssl", &words)?;
        }
    }
    for path in ["/1k.css", "/20k.css", "/passed/1k.css"] {
        let url = format!("{tls}{path}");
        run::output(ws, "h2load", &["-n20000", "-c8", "-m16", &url])?;
    }
    let h3load = ws.target().join("debug/h3load");
    let h3load = h3load.to_string_lossy();
    let port = https.to_string();
    for (path, bytes) in [("/1k.css", 1 << 10), ("/1m.css", 1 << 20), ("/passed/1k.css", 1 << 10)] {
        let length = (bytes as u32).to_string();
        let words = [port.as_str(), "4", "16", SECONDS, path, &length];
        run::output(ws, &h3load, &words)?;
    }
    let words = [port.as_str(), "4", "1", SECONDS, "/1k.css", "1024", "close=on"];
    run::output(ws, &h3load, &words).map(|_| ())
}
