//! The `openssl` program: its commands, and the servers that it is.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Runs `openssl` in a folder, with the words of `line`; it must succeed. Gives what it writes.
pub fn openssl(dir: &Path, line: &str) -> Vec<u8> {
    let args = line.split_whitespace();
    let output = Command::new("openssl").args(args).current_dir(dir).output();
    let output = output.unwrap_or_else(|e| panic!("cannot run openssl: {e}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {line}: {told}");
    output.stdout
}

/// `openssl ocsp` as a server on a port of its own; ended with its value.
pub struct OcspServer {
    child: Child,
    port: u16,
}

impl OcspServer {
    /// Starts it in a folder; `how` names its files.
    pub fn start(dir: &Path, how: &str) -> OcspServer {
        let mut child = Command::new("openssl")
            .args(["ocsp", "-port", "0"])
            .args(how.split_whitespace())
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run openssl: {e}"));
        let mut told = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut line = String::new();
        // `ACCEPT [::]:PORT PID=…`
        let port = loop {
            line.clear();
            let length = told.read_line(&mut line).unwrap_or(0);
            assert!(length > 0, "openssl ocsp {how} does not serve");
            let address = line.strip_prefix("ACCEPT ").and_then(|l| l.split_whitespace().next());
            if let Some(port) = address.and_then(|a| a.rsplit(':').next()) {
                break port.parse().unwrap_or_else(|_| panic!("no port: {line}"));
            }
        };
        // It writes a line a request, and dies if nobody takes it.
        std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
        OcspServer { child, port }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for OcspServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
