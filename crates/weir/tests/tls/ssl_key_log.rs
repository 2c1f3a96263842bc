//! `ssl_key_log` and `proxy_ssl_key_log`.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use crate::tls::{self, Client, Pair};
use rustls::KeyLog;
use testkit::certificates::KeyKind;
use testkit::{Driver, Site, Weir, built_binary, each_driver, wait_until};

fn site(driver: Driver) -> Site {
    Pair::own(KeyKind::P256, "a.example").on(Site::new(built_binary(), driver), "a").http(
        "ssl_certificate a.pem; ssl_certificate_key a.key;
        server { listen 127.0.0.1:%PORT1% ssl; ssl_key_log logs/keys; location / { return 204; } }
        server { listen 127.0.0.1:%PORT2% ssl; ssl_key_log logs/threads; ssl_handshake_threads on;
            location / { return 204; } }
        server { listen 127.0.0.1:%PORT0%;
            location /12 { proxy_pass https://127.0.0.1:%PORT1%; proxy_ssl_key_log logs/up;
                proxy_ssl_protocols TLSv1.2; }
            location /13 { proxy_pass https://127.0.0.1:%PORT1%; proxy_ssl_key_log logs/up; } }",
    )
}

/// The lines that the client writes of its own keys.
#[derive(Debug, Default)]
struct Own(Mutex<BTreeSet<String>>);

impl KeyLog for Own {
    fn log(&self, label: &str, random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let line = format!("{label} {} {}", hex(random), hex(secret));
        self.0.lock().unwrap().insert(line);
    }
}

fn lines(weir: &Weir, file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(weir.prefix().join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn mode(weir: &Weir, file: &str) -> u32 {
    std::fs::metadata(weir.prefix().join(file)).unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_keys_of_both_ends_are_the_same() {
    each_driver(|driver| {
        let weir = site(driver).start();
        for (port, file) in [(1, "logs/keys"), (2, "logs/threads")] {
            let own = Arc::new(Own::default());
            for version in tls::BOTH {
                let mut client = Client::with("a.example", &[version], None).with_sessions();
                let mut config = (*client.config).clone();
                config.key_log = own.clone();
                client.config = Arc::new(config);
                // The second session is resumed.
                for _ in 0..2 {
                    assert_eq!(client.get(weir.port(port), "/").status, 204);
                }
            }
            let own = own.0.lock().unwrap().clone();
            // Five secrets a session of TLS 1.3, one of 1.2.
            assert_eq!(own.len(), 12, "{own:?}");
            // The server derives the keys of early data, which did not come, as well.
            wait_until("the lines", || lines(&weir, file).len() > own.len());
            let mut lines = lines(&weir, file);
            lines.retain(|line| !line.starts_with("CLIENT_EARLY_TRAFFIC_SECRET "));
            assert_eq!(lines, own, "{file}");
            assert_eq!(mode(&weir, file), 0o600);
        }
    });
}

#[test]
fn keys_of_sessions_with_servers_are_written_and_files_are_reopened() {
    each_driver(|driver| {
        let weir = site(driver).start();
        weir.answers_with(&[("GET", "/12", 204), ("GET", "/13", 204)]);
        wait_until("the lines", || {
            let up = lines(&weir, "logs/up");
            up.len() == 6 && up == lines(&weir, "logs/keys")
        });
        for file in ["logs/up", "logs/keys"] {
            let path = weir.prefix().join(file);
            std::fs::rename(&path, path.with_extension("old")).unwrap();
        }
        weir.signal("USR1");
        wait_until("the new files", || {
            ["logs/up", "logs/keys"].iter().all(|file| weir.prefix().join(file).exists())
        });
        weir.wait_for_log("error.log", "reopening logs");
        // The worker may not have opened them again yet: its lines then go to the old files.
        wait_until("lines in the new files", || {
            weir.answers_with(&[("GET", "/13", 204)]);
            !lines(&weir, "logs/up").is_empty() && !lines(&weir, "logs/keys").is_empty()
        });
        assert_eq!((mode(&weir, "logs/up"), mode(&weir, "logs/keys")), (0o600, 0o600));
    });
}

#[test]
fn a_file_that_others_can_read_is_refused_and_the_setting_is_warned_of() {
    let site = site(Driver::Epoll);
    let output = site.run(&["-t"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    for name in ["ssl_key_log", "proxy_ssl_key_log"] {
        assert!(text.contains("[warn] "), "{text}");
        let warning = format!("\"{name}\" is on: whoever reads \"");
        assert!(text.contains(&warning), "{text}");
    }
    let path = site.prefix().join("logs/keys");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    site.is_refused("others than its owner have access to \"");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    assert!(site.run(&["-t"]).status.success());
}
