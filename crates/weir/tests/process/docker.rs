//! `weir docker`: containers become servers, by the answers that Docker's engine gives.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::verdict::stand_in;
use testkit::{Driver, Folder, Site, Weir, built_binary, wait_until};

/// An engine that answers as Docker's does: a list that tests change, and events.
struct Engine {
    list: Arc<Mutex<String>>,
    listeners: Arc<Mutex<Vec<UnixStream>>>,
}

impl Engine {
    fn start(socket: &Path) -> Engine {
        let listener = UnixListener::bind(socket).unwrap();
        let list = Arc::new(Mutex::new("[]".to_owned()));
        let listeners = Arc::new(Mutex::new(Vec::new()));
        let (current, streams) = (list.clone(), listeners.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let asked = lines.next().unwrap().unwrap();
                // Go's servers answer requests of HTTP/1.0 so.
                let head = "HTTP/1.0 200 OK\r\nApi-Version: 1.43\r\n\
                            Content-Type: application/json\r\nServer: Docker/24.0.7 (linux)\r\n\r\n";
                let mut stream = stream;
                stream.write_all(head.as_bytes()).unwrap();
                if asked.starts_with("GET /containers/json ") {
                    stream.write_all(current.lock().unwrap().as_bytes()).unwrap();
                } else {
                    assert!(asked.starts_with("GET /events?"), "{asked}");
                    streams.lock().unwrap().push(stream);
                }
            }
        });
        Engine { list, listeners }
    }

    /// Other containers run now.
    fn change(&self, containers: &[String]) {
        *self.list.lock().unwrap() = format!("[{}]", containers.join(","));
        let event = "{\"status\":\"start\",\"Type\":\"container\",\"Action\":\"start\"}\n";
        self.listeners.lock().unwrap().retain_mut(|s| s.write_all(event.as_bytes()).is_ok());
    }

    /// The engine restarts: all who listen are cut.
    fn restart(&self) {
        self.listeners.lock().unwrap().clear();
    }
}

/// A container that answers at a port of this machine, as the engine lists it.
fn container(name: &str, port: u16, labels: &str) -> String {
    format!(
        "{{\"Id\":\"8dfafdbc3a40\",\"Names\":[\"/{name}\"],\"Image\":\"img\",\"State\":\"running\",\
         \"Status\":\"Up 5 seconds\",\"Ports\":[{{\"PrivatePort\":{port},\"Type\":\"tcp\"}}],\
         \"Labels\":{{{labels}}},\"NetworkSettings\":{{\"Networks\":{{\"bridge\":\
         {{\"IPAddress\":\"127.0.0.1\",\"GlobalIPv6Address\":\"\"}}}}}}}}"
    )
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A site that includes the file, with two servers that stand for containers.
fn site() -> Weir {
    Site::new(built_binary(), Driver::usual())
        .file("conf/conf.d/none.conf", "")
        .http(
            "include conf.d/*.conf;
             server { listen 127.0.0.1:%PORT0% default_server; return 404; }
             server { listen 127.0.0.1:%PORT1%; return 200 \"one $http_host $http_x_more\"; }
             server { listen 127.0.0.1:%PORT2%; return 200 \"two $uri\"; }",
        )
        .allow("\"client_max_body_size\" directive invalid value")
        .start()
}

fn docker(weir: &Weir, socket: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["docker", "--listen", &format!("127.0.0.1:{}", weir.port(0)), "--socket"]);
    command.arg(socket).args(more).arg("-p").arg(weir.prefix()).args(["-c", "conf/weir.conf"]);
    command.args(["-g", "pid logs/weir.pid;", "-e", "stderr"]).stderr(Stdio::piped());
    command
}

fn ask(weir: &Weir, host: &str, path: &str) -> (u16, String) {
    let mut c = weir.connect();
    c.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    let response = c.response();
    (response.status, response.text())
}

#[test]
fn containers_come_and_go() {
    let folder = Folder::new("engine");
    let socket = folder.join("docker.sock");
    let engine = Engine::start(&socket);
    let weir = site();
    let output = weir.prefix().join("conf/conf.d/docker.conf");
    let one = container("one", weir.port(1), "\"weir.host\":\"a.example\"");
    engine.change(std::slice::from_ref(&one));
    let running = docker(&weir, &socket, &["--output", output.to_str().unwrap()]).spawn();
    let _running = Running(running.unwrap());
    wait_until("the first container", || ask(&weir, "a.example", "/").1 == "one a.example ");
    assert_eq!(ask(&weir, "b.example", "/").0, 404);
    // Another service below a path of the same name.
    let two = container("two", weir.port(2), "\"weir.host\":\"a.example\",\"weir.path\":\"/two/\"");
    engine.change(&[one.clone(), two.clone()]);
    wait_until("the second container", || ask(&weir, "a.example", "/two/x").1 == "two /two/x");
    // A container whose labels do not load is left out; the change beside it is not.
    let wrong = container(
        "wrong",
        weir.port(2),
        "\"weir.host\":\"c.example\",\"weir.directive.client_max_body_size\":\"much\"",
    );
    let more = container(
        "one",
        weir.port(1),
        "\"weir.host\":\"a.example\",\"weir.directive.proxy_set_header\":\"X-More yes\"",
    );
    engine.change(&[more.clone(), wrong, two.clone()]);
    wait_until("the change", || ask(&weir, "a.example", "/").1 == "one a.example yes");
    assert_eq!(ask(&weir, "c.example", "/").0, 404);
    assert_eq!(ask(&weir, "a.example", "/two/").1, "two /two/");
    // The engine restarts, and a container has gone meanwhile.
    engine.change(&[two]);
    engine.restart();
    wait_until("its end", || !ask(&weir, "a.example", "/").1.starts_with("one"));
    assert_eq!(ask(&weir, "a.example", "/two/").0, 200);
}

#[test]
fn once_and_printed() {
    let folder = Folder::new("once");
    let socket = folder.join("docker.sock");
    let engine = Engine::start(&socket);
    let weir = site();
    engine.change(&[
        container("one", weir.port(1), "\"weir.host\":\"a.example\""),
        container("bad", 80, "\"weir.host\":\"a b;c\""),
    ]);
    let printed = docker(&weir, &socket, &[]).output().unwrap();
    let (text, told) =
        (String::from_utf8_lossy(&printed.stdout), String::from_utf8_lossy(&printed.stderr));
    assert!(printed.status.success() && text.contains("server_name a.example;"), "{text}{told}");
    assert!(told.contains("container bad: weir.host: \"b;c\" is no name of a host"), "{told}");
    let output = weir.prefix().join("conf/conf.d/docker.conf");
    let arguments = ["--once", "--output", output.to_str().unwrap()];
    let done = docker(&weir, &socket, &arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // Workers of before may answer until they are told to leave.
    wait_until("the new configuration", || ask(&weir, "a.example", "/").1 == "one a.example ");
    assert_eq!(fs::read_to_string(output).unwrap(), text);
}

/// The file that the server may have read stays; once it has refused it, the one before is back.
#[test]
fn a_file_stays_until_there_is_a_verdict() {
    let folder = Folder::new("verdict");
    let socket = folder.join("docker.sock");
    let engine = Engine::start(&socket);
    let weir = site();
    let output = weir.prefix().join("conf/conf.d/docker.conf");
    let answers = vec!["", "", "refused\n\nno\n", "refused\n\nno\n", "ok\nserving: 1\n\n"];
    stand_in(&weir, answers);
    engine.change(&[container("one", weir.port(1), "\"weir.host\":\"a.example\"")]);
    let pid = weir.prefix().join("logs/other.pid").to_string_lossy().into_owned();
    let arguments = ["--output", output.to_str().unwrap(), "--pid", &pid];
    let once = docker(&weir, &socket, &[&arguments[..], &["--once"]].concat()).output().unwrap();
    assert!(!once.status.success(), "{}", String::from_utf8_lossy(&once.stderr));
    assert!(fs::read_to_string(&output).unwrap().contains("a.example"));
    fs::remove_file(&output).unwrap();
    let mut running = docker(&weir, &socket, &arguments).spawn().unwrap();
    let told = BufReader::new(running.stderr.take().unwrap());
    let _running = Running(running);
    let mut lines = told.lines().map_while(Result::ok);
    let mut wait = |part: &str| assert!(lines.any(|line| line.contains(part)), "{part}");
    wait("it is unknown whether it serves: the server ended the connection without an answer");
    // It is asked again, and nothing is left of what it refuses.
    wait("one is left as it was, because it does not load");
    let without = |text: String| !text.contains("a.example");
    wait_until("the file without it", || fs::read_to_string(&output).is_ok_and(without));
}

/// A test in the place of a question refuses nothing, because the server may have read the file
/// when it was asked before.
#[test]
fn a_test_that_fails_is_no_verdict_after_a_question() {
    let folder = Folder::new("tested");
    let socket = folder.join("docker.sock");
    let engine = Engine::start(&socket);
    let weir = site();
    stand_in(&weir, vec![""; 100]);
    engine.change(&[container("one", weir.port(1), "\"weir.host\":\"a.example\"")]);
    let output = weir.prefix().join("conf/conf.d/docker.conf");
    let pid = weir.prefix().join("logs/other.pid").to_string_lossy().into_owned();
    let arguments = ["--output", output.to_str().unwrap(), "--pid", &pid];
    let mut running = docker(&weir, &socket, &arguments).spawn().unwrap();
    let told = BufReader::new(running.stderr.take().unwrap());
    let _running = Running(running);
    let mut lines = told.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("it is unknown whether it serves")));
    fs::write(weir.prefix().join("conf/conf.d/other.conf"), "no_such_directive;\n").unwrap();
    fs::remove_file(weir.prefix().join("logs/other.pid.sock")).unwrap();
    let mut tests = 0;
    while tests < 3 {
        let line = lines.next().unwrap();
        assert!(!line.contains("is left as it was"), "{line}");
        tests += u32::from(line.contains("no_such_directive"));
    }
    assert!(fs::read_to_string(&output).unwrap().contains("a.example"));
}

#[test]
fn an_engine_that_is_away() {
    let weir = site();
    let missing = weir.prefix().join("no.sock");
    let done = docker(&weir, &missing, &[]).output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && told.contains("no.sock: No such file"), "{told}");
}
