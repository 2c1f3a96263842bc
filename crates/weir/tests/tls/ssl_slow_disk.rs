//! TLS and slow or broken disks: only the handshakes that ask for files wait.

use crate::disk::{ask, others_are_served};
use crate::tls::{Client, Pair};
use testkit::certificates::KeyKind;
use testkit::{Driver, Site, StallingFolder, Weir, built_binary, each_driver, pattern, wait_until};

fn site(driver: Driver) -> Option<(StallingFolder, Weir)> {
    let site = Site::new(built_binary(), driver);
    let mut files = Vec::new();
    for name in ["a.example", "b.example", "c.example"] {
        let pair = Pair::own(KeyKind::P256, name);
        files.push((format!("{name}.pem"), pair.pem().into_bytes()));
        files.push((format!("{name}.key"), pair.key.pem().into_bytes()));
    }
    let folder = StallingFolder::try_mount(&site.prefix().join("html/disk"), files)?;
    let site = Pair::own(KeyKind::P256, "fixed.example").on(site, "fixed");
    let weir = site
        .file("html/fast.txt", "fast")
        .file("html/fast.bin", pattern(300_000, 9))
        .config(
            "worker_processes 1; events {} http { access_log off;
            server { listen 127.0.0.1:%PORT0%; root html;
                client_body_buffer_size 1k; client_body_temp_path html/disk/body;
                location /body { proxy_pass https://127.0.0.1:%PORT2%; }
                location /up { proxy_pass https://127.0.0.1:%PORT2%;
                    proxy_ssl_certificate ../html/disk/$arg_n.pem;
                    proxy_ssl_certificate_key ../html/disk/$arg_n.key; } }
            server { listen 127.0.0.1:%PORT1% ssl; ssl_certificate_cache max=10 valid=1h;
                ssl_certificate ../html/disk/$ssl_server_name.pem;
                ssl_certificate_key ../html/disk/$ssl_server_name.key;
                location / { return 200 $ssl_server_name; } }
            server { listen 127.0.0.1:%PORT2% ssl; ssl_verify_client optional_no_ca;
                ssl_certificate fixed.pem; ssl_certificate_key fixed.key;
                location / { return 200 $ssl_client_s_dn; } } }",
        )
        .start();
    Some((folder, weir))
}

#[test]
fn handshakes_wait_for_the_disk_elsewhere() {
    each_driver(|driver| {
        let Some((disk, weir)) = site(driver) else { return };
        let get = |name: &str| Client::of(name).get(weir.port(1), "/").text();
        assert_eq!(get("c.example"), "c.example");
        disk.stall();
        std::thread::scope(|scope| {
            let client = scope.spawn(|| get("a.example"));
            let mut proxied = ask(&weir, "/up?n=b.example");
            wait_until("two that wait", || disk.waiting() >= 2);
            others_are_served(&weir);
            // What is kept needs no disk.
            assert_eq!(get("c.example"), "c.example");
            disk.go_on();
            assert_eq!(client.join().unwrap(), "a.example");
            assert_eq!(proxied.response().text(), "CN=b.example");
        });
        assert_eq!(get("a.example"), "a.example");
    });
}

#[test]
fn a_body_that_cannot_be_read_is_no_fault_of_the_server() {
    each_driver(|driver| {
        let Some((disk, weir)) = site(driver) else { return };
        disk.break_reads(true);
        let mut conn = weir.connect();
        conn.send("POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n");
        conn.send(pattern(50_000, 1));
        assert_eq!(conn.response().status, 500);
        let line = weir.wait_for_log("error.log", "(5: Input/output error)");
        assert!(line.contains("POST /body"), "{line}");
        disk.break_reads(false);
    });
}
