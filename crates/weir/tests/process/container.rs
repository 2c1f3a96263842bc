//! `weir container`: templates from the environment, and the server in the foreground.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use testkit::{Folder, Port, each_driver, signal, wait_for};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    fs::create_dir_all(folder.join("templates/more")).expect("make folders");
    folder
}

fn command(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(["container", "nginx", "-c", "nginx.conf", "-g", "daemon off;", "-e", "stderr", "-p"])
        .arg(folder.path())
        .env("NGINX_ENVSUBST_TEMPLATE_DIR", folder.join("templates"))
        .env("NGINX_ENVSUBST_OUTPUT_DIR", folder.join("conf.d"))
        .stderr(Stdio::piped());
    command
}

#[test]
fn templates_are_filled_in_and_the_server_runs() {
    each_driver(|driver| {
        let folder = folder(driver.name());
        let port = Port::reserve();
        let main = format!(
            "master_process off; pid weir.pid; events {{ use {}; }}\n\
             http {{ access_log off; client_body_temp_path t; proxy_temp_path t; include conf.d/*.conf; \
             include conf.d/more/*; }}",
            driver.name()
        );
        folder.write("nginx.conf", main);
        let template = "server { listen 127.0.0.1:${OWN_PORT}; location / { return 200 \
                        \"$OWN_TEXT $request_uri ${HIDDEN}\"; } }\n";
        let template = template.replace(" ${HIDDEN}", "");
        folder.write("templates/a.conf.template", template);
        folder.write("templates/b.conf", "no template");
        let more = folder.join("templates/more/c.conf.template");
        fs::write(more, "# $HIDDEN ${OWN_TEXT}\n").expect("write");
        let server = command(&folder)
            .env("OWN_PORT", port.number().to_string())
            .env("OWN_TEXT", "hello")
            .env("HIDDEN", "x")
            .env("NGINX_ENVSUBST_FILTER", "^OWN_")
            .spawn()
            .expect("run weir");
        let mut server = Running(server);
        wait_for("the server", || TcpStream::connect(("127.0.0.1", port.number())).ok().map(drop));
        let mut client = testkit::Conn::tcp(port.number());
        client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(client.response_to("GET").body, b"hello /x");
        let read = |name: &str| fs::read_to_string(folder.join("conf.d").join(name)).ok();
        assert_eq!(read("more/c.conf").as_deref(), Some("# $HIDDEN hello\n"));
        assert_eq!(read("b.conf"), None);
        signal(server.0.id(), "QUIT");
        assert!(server.0.wait().expect("it ends").success());
    });
}

/// Adds a script to a folder of them.
fn script(folder: &Folder, name: &str, mode: u32, text: &str) {
    fs::create_dir_all(folder.join("scripts")).expect("make the folder");
    let path = folder.join("scripts").join(name);
    fs::write(&path, text).expect("write a script");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set its mode");
}

#[test]
fn scripts_run_before_and_after_the_templates() {
    let folder = folder("scripts");
    let port = Port::reserve();
    folder.write(
        "nginx.conf",
        "master_process off; pid weir.pid; events { }\n\
         http { access_log off; client_body_temp_path t; proxy_temp_path t; \
         include conf.d/*.conf; }",
    );
    let template = "server { listen 127.0.0.1:$OWN_PORT; \
                    location / { return 200 '${env:OWN_TEXT}'; } }\n";
    folder.write("templates/a.conf.template", template);
    script(&folder, "5-set.envsh", 0o755, "echo talks; export OWN_TEXT=\"from $OWN_PORT\"\n");
    script(&folder, "10-first.sh", 0o755, "#!/bin/sh\necho \"$OWN_TEXT\" > \"$OUT/first\"\n");
    let copy = "#!/bin/sh\ncat \"$OUT/conf.d/a.conf\" > \"$OUT/later\"\n";
    script(&folder, "30-later.sh", 0o755, copy);
    script(&folder, "40-idle.sh", 0o644, "#!/bin/sh\nexit 1\n");
    script(&folder, "50-readme.txt", 0o755, "#!/bin/sh\nexit 1\n");
    let server = command(&folder)
        .env("WEIR_ENTRYPOINT_DIR", folder.join("scripts"))
        .env("OUT", folder.path())
        .env("OWN_PORT", port.number().to_string())
        .spawn()
        .expect("run weir");
    let mut server = Running(server);
    wait_for("the server", || TcpStream::connect(("127.0.0.1", port.number())).ok().map(drop));
    let mut client = testkit::Conn::tcp(port.number());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let text = format!("from {}", port.number());
    assert_eq!(client.response_to("GET").text(), text);
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    assert_eq!(read("first").trim(), text);
    assert!(read("later").contains(&format!("127.0.0.1:{}", port.number())), "{}", read("later"));
    signal(server.0.id(), "QUIT");
    assert!(server.0.wait().expect("it ends").success());
    let mut told = String::new();
    server.0.stderr.take().expect("its output").read_to_string(&mut told).expect("read");
    for line in ["sourcing", "launching", "40-idle.sh, not executable", "50-readme.txt\n", "talks"]
    {
        assert!(told.contains(line), "{line}: {told}");
    }
}

#[test]
fn a_script_that_fails_ends_the_container() {
    for (name, text) in [("1.sh", "#!/bin/sh\nexit 3\n"), ("1.envsh", "exit 3\n")] {
        let folder = folder("failing");
        folder.write("nginx.conf", "events { }\n");
        script(&folder, name, 0o755, text);
        let mut failing = command(&folder);
        let failing = failing.env("WEIR_ENTRYPOINT_DIR", folder.join("scripts"));
        let output = failing.output().expect("run weir");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains("failed: exit status: 3"), "{told}");
    }
}

#[test]
fn faults_are_told() {
    let folder = folder("faults");
    folder.write("templates/a.template", "");
    let output = command(&folder).env("NGINX_ENVSUBST_FILTER", "(").output().expect("run weir");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("NGINX_ENVSUBST_FILTER: "), "{told}");
    folder.write("conf.d", "no folder");
    let output = command(&folder).output().expect("run weir");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("conf.d"), "{told}");
}
