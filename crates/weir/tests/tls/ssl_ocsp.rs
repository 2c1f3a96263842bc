//! Stapled OCSP responses, and the look-up of clients' certificates: with `openssl ocsp` as the
//! responder and `openssl s_client` as the client.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::openssl::{OcspServer, openssl};
use testkit::{Driver, Site, Weir, built_binary, each_driver, listener, wait_until};

const EXTENSIONS: &str = "[req]\ndistinguished_name = dn\n[dn]\n\
    [ca]\nbasicConstraints = critical, CA:true\n\
    [leaf]\nsubjectAltName = DNS:a.test\n\
    [responder]\nextendedKeyUsage = OCSPSigning\nnoCheck = yes\n";

/// A CA, its responder, the server's certificate and those of clients; made once.
fn pki() -> &'static Path {
    static PKI: OnceLock<PathBuf> = OnceLock::new();
    PKI.get_or_init(|| {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ssl_ocsp");
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("ext.cnf"), EXTENSIONS).unwrap();
        let key = |name: &str, how: &str| {
            let kind = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -config ext.cnf";
            openssl(&dir, &format!("req {kind} -keyout {name}.key -subj /CN={name} {how}"));
        };
        key("ca", "-x509 -out ca.pem -days 30 -extensions ca");
        let mut index = String::new();
        let names = ["server", "good", "revoked", "unknown", "responder"];
        for (serial, name) in names.into_iter().enumerate() {
            key(name, &format!("-out {name}.csr"));
            let kind = if name == "responder" { "responder" } else { "leaf" };
            let how = format!("-extfile ext.cnf -extensions {kind} -set_serial {serial} -days 30");
            let ca = "-CA ca.pem -CAkey ca.key";
            openssl(&dir, &format!("x509 -req -in {name}.csr {ca} {how} -out {name}.pem"));
            let (state, revoked) = match name {
                "revoked" => ("R", "240101000000Z"),
                "unknown" => continue,
                _ => ("V", ""),
            };
            let until = "400101000000Z";
            index += &format!("{state}\t{until}\t{revoked}\t{serial:02}\tunknown\t/CN={name}\n");
        }
        std::fs::write(dir.join("index.txt"), index).unwrap();
        let chain = ["server.pem", "ca.pem"].map(|f| std::fs::read(dir.join(f)).unwrap());
        std::fs::write(dir.join("chain.pem"), chain.concat()).unwrap();
        dir
    })
}

fn responder() -> OcspServer {
    let who = "-rsigner responder.pem -rkey responder.key";
    OcspServer::start(pki(), &format!("-index index.txt -CA ca.pem -ndays 1 {who}"))
}

fn site(driver: Driver, main: &str, http: &str) -> Weir {
    let dir = pki().display();
    let config = format!(
        "{main}\nevents {{}}\nhttp {{\n\
         ssl_certificate {dir}/chain.pem; ssl_certificate_key {dir}/server.key;\n{http}\n}}\n"
    );
    Site::new(built_binary(), driver).config(&config).start()
}

const ONE_WORKER: &str = "worker_processes 1; error_log logs/error.log info;";
/// That they share what they know.
const TWO_WORKERS: &str = "worker_processes 2; error_log logs/error.log info;";

fn of_client(name: &str) -> String {
    format!("-cert {name}.pem -key {name}.key")
}

/// `openssl s_client`, connected with one request.
fn client(weir: &Weir, port: usize, how: &str) -> Child {
    let address = format!("127.0.0.1:{}", weir.port(port));
    let mut child = Command::new("openssl")
        .args(["s_client", "-ign_eof", "-status", "-servername", "a.test", "-connect", &address])
        .args(how.split_whitespace())
        .current_dir(pki())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // A client that was turned away is gone.
    let _ = input.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    child.stdin = Some(input);
    child
}

/// All that it tells in the end.
fn connect(weir: &Weir, port: usize, how: &str) -> String {
    let mut child = client(weir, port, how);
    let mut told = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut told).unwrap();
    child.wait().unwrap();
    String::from_utf8_lossy(&told).into_owned()
}

fn is_stapled(told: &str) -> bool {
    assert!(told.contains("OCSP response: "), "{told}");
    let stapled = told.contains("OCSP Response Status: successful");
    assert_eq!(stapled, !told.contains("OCSP response: no response sent"), "{told}");
    stapled
}

#[test]
fn staples_are_fetched_and_shown() {
    let responder = responder();
    let port = responder.port();
    each_driver(|driver| {
        let weir = site(
            driver,
            ONE_WORKER,
            &format!(
                "ssl_stapling on; ssl_stapling_responder http://127.0.0.1:{port}/;
                 server {{ listen 127.0.0.1:%PORT0% ssl; return 200 body; }}
                 server {{ listen 127.0.0.1:%PORT1% ssl; ssl_stapling_verify on; return 200; }}
                 server {{ listen 127.0.0.1:%PORT2% ssl; ssl_stapling off; return 200; }}"
            ),
        );
        // The first handshake has it fetched.
        assert!(connect(&weir, 0, "").contains("\r\n\r\nbody"));
        for how in ["-tls1_3", "-tls1_2"] {
            wait_until("the staple", || is_stapled(&connect(&weir, 0, how)));
            wait_until("the staple", || is_stapled(&connect(&weir, 1, how)));
            assert!(!is_stapled(&connect(&weir, 2, how)));
        }
        let told = connect(&weir, 0, "");
        assert!(told.contains("Cert Status: good"), "{told}");
    });
}

/// Each has its place: by the file's name, and as the text itself.
#[test]
fn certificates_of_variables_are_stapled() {
    let responder = responder();
    let port = responder.port();
    let dir = pki();
    let text = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
    let (chain, key) = (text("chain.pem"), text("server.key"));
    let dir = dir.display();
    each_driver(|driver| {
        let config = format!(
            "{ONE_WORKER}\nevents {{}}\nhttp {{\n\
             ssl_stapling on; ssl_stapling_responder http://127.0.0.1:{port}/;\n\
             map $ssl_server_name $chain {{ default \"data:{chain}\"; }}\n\
             map $ssl_server_name $key {{ default \"data:{key}\"; }}\n\
             map $ssl_server_name $file {{ default {dir}/chain.pem; none {dir}/server.pem; }}\n\
             ssl_certificate_key $key;\n\
             server {{ listen 127.0.0.1:%PORT0% ssl; ssl_certificate $file; }}\n\
             server {{ listen 127.0.0.1:%PORT1% ssl; ssl_certificate $chain; }}\n\
             server {{ listen 127.0.0.1:%PORT2% ssl; ssl_stapling off; ssl_certificate $file; }}\n\
             }}\n"
        );
        let weir = Site::new(built_binary(), driver).config(&config).start();
        for port in [0, 1] {
            wait_until("the staple", || is_stapled(&connect(&weir, port, "")));
            assert!(connect(&weir, port, "").contains("Cert Status: good"));
        }
        assert!(!is_stapled(&connect(&weir, 2, "")));
        // Without its issuer it cannot be asked for, which is said once.
        for _ in 0..3 {
            assert!(!is_stapled(&connect(&weir, 0, "-servername none")));
        }
        let log = weir.stop_and_read("error.log");
        assert_eq!(log.matches("ignored, issuer certificate not found").count(), 1, "{log}");
    });
}

#[test]
fn a_file_is_shown_as_it_is() {
    let dir = pki();
    let who = "-rsigner responder.pem -rkey responder.key";
    openssl(dir, "ocsp -issuer ca.pem -cert revoked.pem -no_nonce -reqout file.req");
    openssl(
        dir,
        &format!("ocsp -index index.txt -CA ca.pem {who} -reqin file.req -respout file.der"),
    );
    each_driver(|driver| {
        let weir = site(
            driver,
            ONE_WORKER,
            &format!(
                "ssl_stapling on; ssl_stapling_file {}/file.der;
                 server {{ listen 127.0.0.1:%PORT0% ssl; return 200 body; }}",
                dir.display()
            ),
        );
        let told = connect(&weir, 0, "");
        assert!(is_stapled(&told) && told.contains("Cert Status: revoked"), "{told}");
    });
}

#[test]
fn responders_that_fail_are_named_and_harm_nobody() {
    let (_silent, port) = listener();
    let dead = testkit::Port::reserve();
    each_driver(|driver| {
        let mut weir = site(
            driver,
            ONE_WORKER,
            &format!(
                "ssl_stapling on;
                 server {{ listen 127.0.0.1:%PORT0% ssl; return 200 body;
                           ssl_stapling_responder http://127.0.0.1:{port}/; }}
                 server {{ listen 127.0.0.1:%PORT1% ssl; return 200 body;
                           ssl_stapling_responder http://127.0.0.1:{}/; }}",
                dead.number()
            ),
        );
        for at in [0, 1] {
            let told = connect(&weir, at, "");
            assert!(!is_stapled(&told) && told.contains("\r\n\r\nbody"), "{told}");
        }
        let line = weir.wait_for_log("error.log", "Connection refused");
        let context = " while requesting certificate status, responder: 127.0.0.1, peer: ";
        assert!(line.contains(context) && line.contains("chain.pem\""), "{line}");
        // The one that is silent still is, and the worker does not wait for it.
        weir.signal("QUIT");
        assert!(weir.wait_for_end().success());
    });
}

#[test]
fn what_cannot_be_stapled_is_told_at_the_start() {
    let dir = pki().display();
    let told = |http: &str| {
        let text =
            format!("ssl_certificate {dir}/server.pem; ssl_certificate_key {dir}/server.key;");
        let site = Site::new(built_binary(), Driver::usual());
        let http = format!("{text} server {{ listen 127.0.0.1:%PORT0% ssl; {http} }}");
        let output = site.http(&http).run(&["-t"]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let trusted = format!("ssl_trusted_certificate {dir}/ca.pem; ssl_stapling on;");
    for (text, message) in [
        ("ssl_stapling on;".to_owned(), "issuer certificate not found for certificate \""),
        (trusted.clone(), "no OCSP responder URL in the certificate \""),
        (
            format!("{trusted} ssl_stapling_responder https://a.test/;"),
            "invalid URL prefix in OCSP responder \"https://a.test/\" in the certificate \"",
        ),
    ] {
        let (good, said) = told(&text);
        let message = format!("[warn] \"ssl_stapling\" ignored, {message}");
        assert!(good && said.contains(&message), "{text}: {said}");
    }
    for (text, message) in [
        ("ssl_stapling on; ssl_stapling_file none.der;", "none.der\") failed (2: No such file"),
        ("ssl_stapling on; ssl_stapling_file weir.conf;", "d2i_OCSP_RESPONSE_bio(\""),
        ("ssl_ocsp maybe;", "invalid value \"maybe\""),
        ("ssl_ocsp_cache shared:a;", "invalid OCSP cache \"shared:a\""),
        ("ssl_ocsp_cache shared:a:1k;", "OCSP cache \"shared:a:1k\" is too small"),
        ("ssl_ocsp_cache builtin;", "invalid OCSP cache \"builtin\""),
        ("ssl_ocsp_cache off; ssl_ocsp_cache off;", "is duplicate"),
        (
            "ssl_ocsp on; ssl_verify_client optional_no_ca;",
            "\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\"",
        ),
        (
            "ssl_ocsp on; ssl_ocsp_responder ftp://a/;",
            "invalid URL prefix in OCSP responder \"ftp://a/\" in \"ssl_ocsp_responder\"",
        ),
    ] {
        let (good, said) = told(text);
        assert!(!good && said.contains(message), "{text}: {said}");
    }
}

/// A proxy that counts what goes to a responder.
fn counting(responder: u16) -> (u16, &'static AtomicUsize) {
    let count: &'static AtomicUsize = Box::leak(Box::default());
    let (listener, port) = listener();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let mut server = std::net::TcpStream::connect(("127.0.0.1", responder)).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let _ = std::io::copy(&mut server, &mut client);
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
    });
    (port, count)
}

#[test]
fn clients_are_looked_up_and_remembered() {
    let responder = responder();
    let dead = testkit::Port::reserve();
    each_driver(|driver| {
        let (port, count) = counting(responder.port());
        let weir = site(
            driver,
            TWO_WORKERS,
            &format!(
                "ssl_client_certificate {}/ca.pem; ssl_verify_client optional;
                 ssl_session_tickets off;
                 add_header X-Verify $ssl_client_verify always;
                 ssl_ocsp on; ssl_ocsp_responder http://127.0.0.1:{port}/;
                 server {{ listen 127.0.0.1:%PORT0% ssl; return 200 body;
                           ssl_ocsp_cache shared:status:1m; }}
                 server {{ listen 127.0.0.1:%PORT1% ssl; return 200 body;
                           ssl_ocsp_responder http://127.0.0.1:{}/; }}
                 server {{ listen 127.0.0.1:%PORT2% ssl; return 200 body; ssl_ocsp off; }}",
                pki().display(),
                dead.number()
            ),
        );
        for round in 0..5 {
            if round == 4 {
                weir.reload();
            }
            for (name, status, verdict) in [
                ("good", "200", "SUCCESS"),
                ("revoked", "400", "FAILED:certificate revoked"),
                ("unknown", "400", "FAILED:certificate status unknown"),
            ] {
                let told = connect(&weir, 0, &of_client(name));
                assert!(told.contains(&format!("HTTP/1.1 {status} ")), "{name}: {told}");
                assert!(told.contains(&format!("X-Verify: {verdict}\r\n")), "{name}: {told}");
            }
        }
        assert_eq!(count.load(Ordering::SeqCst), 3, "each is asked for once");
        let line = weir.wait_for_log("error.log", "certificate revoked");
        let text = "client SSL certificate verify error: certificate revoked";
        assert!(line.contains(text), "{line}");
        // Nobody is asked for a client without a certificate.
        assert!(connect(&weir, 0, "").contains("X-Verify: NONE\r\n"));
        let told = connect(&weir, 1, &of_client("good"));
        assert!(told.contains("X-Verify: FAILED:certificate status request failed\r\n"), "{told}");
        weir.wait_for_log("error.log", "connect() failed (111: Connection refused)");
        assert!(connect(&weir, 2, &of_client("revoked")).contains("X-Verify: SUCCESS\r\n"));
        assert_eq!(count.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_silent_responder_holds_up_its_own_client_alone() {
    each_driver(|driver| {
        let (silent, port) = listener();
        let weir = site(
            driver,
            ONE_WORKER,
            &format!(
                "ssl_client_certificate {}/ca.pem; ssl_verify_client optional; ssl_ocsp leaf;
                 ssl_ocsp_responder http://127.0.0.1:{port}/;
                 server {{ listen 127.0.0.1:%PORT0% ssl; return 200 body; }}",
                pki().display()
            ),
        );
        std::thread::scope(|s| {
            let held = s.spawn(|| connect(&weir, 0, &of_client("good")));
            let (question, _) = silent.accept().unwrap();
            assert!(connect(&weir, 0, "").contains("\r\n\r\nbody"));
            // The end of the responder's connection is no answer.
            drop(question);
            let told = held.join().unwrap();
            assert!(told.contains("HTTP/1.1 400 "), "{told}");
        });
        weir.wait_for_log(
            "error.log",
            " while requesting certificate status, responder: 127.0.0.1, peer: ",
        );
        // A server that is to end does not wait for a responder.
        let mut child = client(&weir, 0, &of_client("good"));
        let _question = silent.accept().unwrap();
        drop(weir);
        child.wait().unwrap();
    });
}
