//! Sites with certificates by ACME, and means to disturb what goes on.

pub mod gateway;

use std::fs;
use std::path::{Path, PathBuf};

use testkit::pebble::{Pebble, Settings};
use testkit::{Driver, Folder, Site, Weir, built_binary, wait_for};

use crate::tls::Client;

/// A server of challenges by HTTP, through which nothing else comes.
pub const HTTP: &str = "server { listen 127.0.0.1:%PORT0%; deny all; return 301 https://else/; }\n";

/// A server that tells the state of orders.
pub const STATUS: &str = "server { listen 127.0.0.1:%PORT2%; location / { stub_status json; }\n\
     location /api { api; } location /metrics { prometheus; } }\n";

/// An `acme_issuer` of the server at `uri`; `more` are further directives.
pub fn issuer_at(uri: &str, name: &str, folder: impl AsRef<Path>, more: &str) -> String {
    format!(
        "acme_issuer {name} {{ uri {uri}; state_path {}; accept_terms_of_service; {more} }}\n",
        folder.as_ref().display()
    )
}

/// The same of pebble's.
pub fn issuer(pebble: &Pebble, name: &str, folder: impl AsRef<Path>, more: &str) -> String {
    let trusted = format!("ssl_trusted_certificate {};", pebble.trusted().display());
    issuer_at(&pebble.directory(), name, folder, &(trusted + more))
}

/// A server under TLS with a certificate of an issuer.
pub fn server(names: &str, certificate: &str) -> String {
    format!(
        "server {{ listen 127.0.0.1:%PORT1% ssl; server_name {names};\n\
         acme_certificate {certificate}; ssl_certificate $acme_certificate;\n\
         ssl_certificate_key $acme_certificate_key; return 200 $ssl_server_name; }}\n"
    )
}

/// A whole configuration with this name server.
pub fn config(dns_port: u16, http: &str) -> String {
    let resolver = format!("resolver 127.0.0.1:{dns_port} ipv6=off;");
    format!("worker_processes 2;\nevents {{}}\nhttp {{\n{resolver}\n{http}}}\n")
}

/// A site whose ports are known before its configuration is, and pebble for it.
pub fn with_pebble(driver: Driver, change: impl FnOnce(&mut Settings)) -> (Site, Pebble) {
    // A process that is just writing a file to a slow disk leaves when that is done; the master
    // kills what has not left after two seconds.
    let mut site = Site::new(built_binary(), driver).allow("acme process * exited on signal 9");
    let mut settings = Settings::new(site.port(0), site.port(1));
    change(&mut settings);
    (site, Pebble::start(settings))
}

/// The certificate of this name in DER, if there is one.
pub fn try_certificate(weir: &Weir, name: &str) -> Option<Vec<u8>> {
    Some(Client::of(name).try_connect(weir.port(1)).ok()?.1.certificate)
}

/// Waits for it.
pub fn certificate(weir: &Weir, name: &str) -> Vec<u8> {
    wait_for("a certificate", || try_certificate(weir, name))
}

/// The process that orders.
pub fn acme_process(weir: &Weir) -> Option<u32> {
    weir.processes().into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        holds(&line, b"acme process")
    })
}

pub fn holds(bytes: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(bytes, part).is_some()
}

/// A folder that several sites share, which is not there yet; gone with its value.
pub struct Shared(pub PathBuf, #[expect(dead_code, reason = "gone with it")] Folder);

impl Shared {
    pub fn new(name: &str) -> Shared {
        let above = Folder::new(name);
        Shared(above.join("acme"), above)
    }

    /// The file whose name ends so.
    pub fn file(&self, end: &str) -> Option<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with(end))
    }

    /// Its text; empty where there is none.
    pub fn state(&self, end: &str) -> String {
        self.file(end).and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
    }

    /// Whether the folder's lock is held, by this process where one is given.
    pub fn is_locked(&self, by: Option<u32>) -> bool {
        self.file(".lock").is_some_and(|path| is_locked(&path, by))
    }
}

/// Whether a file is locked, by this process where one is given.
pub fn is_locked(path: &Path, by: Option<u32>) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(inode) = fs::metadata(path).map(|meta| meta.ino()) else { return false };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().any(|line| {
        line.contains(&format!(":{inode} "))
            && by.is_none_or(|pid| line.contains(&format!(" {pid} ")))
    })
}
