//! An image of the Open Container Initiative: a layout of one layer with the program and the
//! libraries that it needs.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::Entry;
use super::{sha256, tar};
use crate::run;
use crate::workspace::Workspace;

/// The configuration in the image: logs go to the container's output.
const CONFIGURATION: &str = "\
user nobody;
worker_processes auto;
error_log stderr notice;
events {
}
http {
    access_log /dev/stdout;
    include mime.types;
    include /etc/weir/conf.d/*.conf;
}
";
const SITE: &str = "server {\n    listen 80;\n    root /usr/share/weir/html;\n}\n";
const USERS: &str = "root:x:0:0::/:/nologin\nnobody:x:65534:65534::/:/nologin\n";
const GROUPS: &str = "root:x:0:\nnobody:x:65534:\n";

/// The shell of the image that has one: a static program, from Debian's package busybox-static.
const BUSYBOX: &str = "/bin/busybox";

/// Writes the layouts as folders, without a shell and with one; returns their paths. The second is
/// left out on a machine without busybox.
pub fn write(
    ws: &Workspace,
    program: &Path,
    page: &str,
    out: &Path,
) -> Result<Vec<PathBuf>, String> {
    let without = layout(&entries(ws, program, page)?, &out.join("weir-image"))?;
    if !Path::new(BUSYBOX).exists() {
        eprintln!("no image with a shell: there is no {BUSYBOX} (Debian: busybox-static)");
        return Ok(vec![without]);
    }
    let mut all = entries(ws, program, page)?;
    all.extend(shell(ws)?);
    let with = layout(&all, &out.join("weir-image-shell"))?;
    Ok(vec![without, with])
}

/// Busybox and the links that are its programs.
fn shell(ws: &Workspace) -> Result<Vec<Entry>, String> {
    let bytes = fs::read(BUSYBOX).map_err(|e| format!("{BUSYBOX}: {e}"))?;
    let mut entries = vec![Entry::program("bin/busybox", bytes)];
    for library in libraries(ws, Path::new(BUSYBOX))? {
        let bytes = fs::read(&library).map_err(|e| format!("{library}: {e}"))?;
        entries.push(Entry::program(library.trim_start_matches('/'), bytes));
    }
    let applets = run::output(ws, BUSYBOX, &["--list"])?;
    let links = applets.lines().filter(|name| *name != "busybox");
    entries.extend(links.map(|name| Entry::link(&format!("bin/{name}"), "busybox")));
    Ok(entries)
}

/// The files of the image.
fn entries(ws: &Workspace, program: &Path, page: &str) -> Result<Vec<Entry>, String> {
    let read = |path: &Path| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let mime_types = read(&ws.root().join("conf/mime.types"))?;
    let mut closed = Entry::folder("tmp");
    closed.mode = 0o1777;
    let mut entries = vec![
        Entry::program("usr/bin/weir", read(program)?),
        Entry::file("etc/weir/nginx.conf", CONFIGURATION),
        Entry::file("etc/weir/mime.types", mime_types),
        Entry::file("etc/weir/conf.d/default.conf", SITE),
        Entry::file("etc/passwd", USERS),
        Entry::file("etc/group", GROUPS),
        Entry::file("usr/share/weir/html/index.html", page),
        Entry::folder("etc/weir/templates"),
        Entry::folder("docker-entrypoint.d"),
        // Where sites and templates for the image of nginx are mounted.
        Entry::link("etc/nginx", "weir"),
        Entry::folder("run/weir"),
        Entry::folder("var/lib/weir"),
        Entry::folder("var/log/weir"),
        closed,
    ];
    for library in libraries(ws, program)? {
        let path = library.trim_start_matches('/').to_owned();
        entries.push(Entry::program(&path, read(Path::new(&library))?));
    }
    let bundle = Path::new("/etc/ssl/certs/ca-certificates.crt");
    if bundle.exists() {
        entries.push(Entry::file("etc/ssl/certs/ca-certificates.crt", read(bundle)?));
    }
    Ok(entries)
}

/// Writes a layout of one layer.
fn layout(entries: &[Entry], root: &Path) -> Result<PathBuf, String> {
    let _ = fs::remove_dir_all(root);
    let layer = blob(root, &tar::write(entries)?)?;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = format!(
        "{{\"architecture\":\"{architecture}\",\"os\":\"linux\",\"config\":{{\
         \"ExposedPorts\":{{\"80/tcp\":{{}}}},\"Env\":[\"PATH=/usr/bin:/bin\"],\
         \"Entrypoint\":[\"/usr/bin/weir\",\"container\"],\"Cmd\":[\"-g\",\"daemon off;\"],\
         \"StopSignal\":\"SIGQUIT\"}},\"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"{}\"]}},\
         \"history\":[{{\"created_by\":\"cargo xtask image\"}}]}}",
        layer.digest
    );
    let config = blob(root, config.as_bytes())?;
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"{MANIFEST}\",\"config\":{},\"layers\":[{}]}}",
        config.descriptor("application/vnd.oci.image.config.v1+json"),
        layer.descriptor("application/vnd.oci.image.layer.v1.tar")
    );
    let manifest = blob(root, manifest.as_bytes())?;
    let annotated = manifest.descriptor(MANIFEST).replacen(
        '}',
        ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"latest\"}}",
        1,
    );
    let index = format!("{{\"schemaVersion\":2,\"manifests\":[{annotated}]}}");
    for (name, text) in [("index.json", index.as_str()), ("oci-layout", LAYOUT)] {
        let path = root.join(name);
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    Ok(root.to_owned())
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYOUT: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";

struct Blob {
    digest: String,
    len: usize,
}

impl Blob {
    fn descriptor(&self, media_type: &str) -> String {
        let Blob { digest, len } = self;
        format!("{{\"mediaType\":\"{media_type}\",\"digest\":\"{digest}\",\"size\":{len}}}")
    }
}

fn blob(root: &Path, bytes: &[u8]) -> Result<Blob, String> {
    let name = sha256::hex(bytes);
    let folder = root.join("blobs/sha256");
    let path = folder.join(&name);
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, bytes));
    written.map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok(Blob { digest: format!("sha256:{name}"), len: bytes.len() })
}

/// The files of the libraries that a program needs, its loader among them; none of a static one.
fn libraries(ws: &Workspace, program: &Path) -> Result<Vec<String>, String> {
    let program = program.to_string_lossy();
    if !run::succeeds(ws, "ldd", &[&program]) {
        return Ok(Vec::new());
    }
    let text = run::output(ws, "ldd", &[&program])?;
    let words =
        text.lines().filter_map(|line| line.split_whitespace().find(|w| w.starts_with('/')));
    Ok(words.map(str::to_owned).collect())
}
