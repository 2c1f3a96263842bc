//! A server that `weir build` made with the three modules of this folder, on every event driver: a
//! configuration as it is written for the module, many clients at once, several workers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::{Maria, Site, built_binary, each_driver};

/// The folder of the project.
fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The server with the modules, built once for all tests.
fn binary() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> PathBuf {
    let (project, folder) = (project(), project().join("target/with-modules"));
    std::fs::create_dir_all(&folder).unwrap();
    let output = folder.join("weir");
    let mut command = Command::new(built_binary());
    command.arg("build").arg("--weir").arg(&project).arg("--folder").arg(&folder).arg("--debug");
    // The project's compiled libraries serve this program, too.
    command.arg("--target-dir").arg(project.join("target"));
    for name in ["mysql", "content-digest", "first-alive"] {
        let path = project.join("modules").join(name);
        command.arg(format!("--with=weir-{name}={}", path.display()));
    }
    let out = command.arg("--output").arg(&output).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("module weir-mysql 0.1.0 from "), "{said}");
    output
}

/// The configuration that the project's users are shown, with an address and a port of the test's.
const CONFIG: &str = r#"events { }

http {
    server {
        listen 127.0.0.1:%PORT0%;

        mysql_host  127.0.0.1;
        mysql_port  %MYSQL%;
        mysql_user  weir;
        mysql_pass  weir;
        mysql_db    weir;
        mysql_query "select * from car";

        location /mwb { mysql_with_block; }
        location /mwt { mysql_with_thread; }
        location /few {
            mysql_connections 2 queue=2;
            mysql_query "select sleep(0.3)";
            mysql_with_thread;
        }
        location /digest { content_digest on; return 200 "hello"; }
        location /alive { proxy_pass http://sites; }
    }
    upstream sites { first_alive; server 127.0.0.1:%PORT1%; server 127.0.0.1:%PORT2%; }
    server { listen 127.0.0.1:%PORT2%; location / { return 200 "second"; } }
}
"#;

fn maria() -> &'static Maria {
    static MARIA: OnceLock<Maria> = OnceLock::new();
    MARIA.get_or_init(Maria::start)
}

fn config() -> String {
    CONFIG.replace("%MYSQL%", &maria().port().to_string())
}

#[test]
fn all_three_modules_work_in_it() {
    each_driver(|driver| {
        let weir = Site::new(binary(), driver).config(&config()).start();
        for path in ["/mwb", "/mwt"] {
            let answer = weir.get(path);
            assert_eq!(answer.status, 200, "{path}");
            assert_eq!(answer.text().matches("\"id\":").count(), 1000, "{path}");
        }
        assert_eq!(weir.get("/alive").text(), "second");
        assert!(weir.request("GET", "/digest", "").header("Trailer").is_some());
    });
}

#[test]
fn those_that_find_no_connection_hear_it_and_the_others_are_answered() {
    each_driver(|driver| {
        let weir = Site::new(binary(), driver).config(&config()).start();
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| weir.get("/few").status)).collect();
            asked.into_iter().map(|a| a.join().unwrap()).collect()
        });
        let of = |status| statuses.iter().filter(|s| **s == status).count();
        // Two ask, two wait; a late one may find room.
        assert!(of(200) >= 4 && of(503) >= 1 && of(200) + of(503) == 8, "{statuses:?}");
        assert!(weir.error_log().contains("too many requests wait for a connection"));
        assert!(!weir.error_log().contains("event loop was held"));
    });
}

#[test]
fn what_it_says_about_itself() {
    let run = |args: &[&str]| {
        let out = Command::new(binary()).args(args).output().unwrap();
        String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
    };
    let version = run(&["-V"]);
    let at = |name: &str| version.find(&format!("--add-module={name}@0.1.0")).unwrap();
    assert!(at("weir-mysql") < at("weir-content-digest"));
    assert!(at("weir-content-digest") < at("weir-first-alive"));
    let site = Site::new(binary(), testkit::Driver::usual());
    let site = site.config(&format!("load_module modules/ngx_http_mysql_module.so; {}", config()));
    let out = site.run(&["-T"]);
    let dump = String::from_utf8_lossy(&out.stdout);
    assert!(dump.contains("mysql_pass  ***;"), "{dump}{}", String::from_utf8_lossy(&out.stderr));
    assert!(!dump.contains("mysql_pass  weir"), "{dump}");
}

#[test]
fn the_plain_server_says_what_it_lacks() {
    let site = Site::new(built_binary(), testkit::Driver::usual());
    let site = site.config(&format!("load_module modules/ngx_http_mysql_module.so; {}", config()));
    let out = site.run(&["-t"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    assert!(said.contains("module \"http_mysql\" is not built in"), "{said}");
}
