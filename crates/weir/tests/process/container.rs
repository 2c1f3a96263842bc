//! `weir container`: templates from the environment, and the server in the foreground.

use std::fs;
use std::net::TcpStream;
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
