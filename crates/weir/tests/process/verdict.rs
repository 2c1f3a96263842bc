//! `weir reload` and `weir diff`: the verdict comes from the server itself, and what is refused
//! costs no request.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{BINARY, SERVER, config, is_root, site};
use crate::load::Clients;
use testkit::{Driver, Site, Weir, each_driver, wait_until};

const PID: &str = "pid logs/weir.pid;";

/// Runs a command on the site of a server.
fn command(weir: &Weir, words: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(words).arg("-p").arg(weir.prefix()).args(["-c", "conf/weir.conf"]);
    command.output().unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn text(output: &Output) -> String {
    let all = [output.stdout.clone(), output.stderr.clone()].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// A change that breaks a configuration.
struct Broken {
    main: String,
    http: String,
    outcome: &'static str,
    reason: &'static str,
}

fn broken(http: &str, reason: &'static str) -> Broken {
    let http = format!("{SERVER}\n{http}");
    Broken { main: String::new(), http, outcome: "refused", reason }
}

fn broken_main(main: &str, outcome: &'static str, reason: &'static str) -> Broken {
    Broken { main: main.to_owned(), http: SERVER.to_owned(), outcome, reason }
}

/// The changes that reading the file finds.
fn found_by_reading() -> Vec<Broken> {
    let tls = "server { listen 127.0.0.1:%PORT1% ssl; ssl_certificate no.pem; \
               ssl_certificate_key no.key; }";
    let unreachable = "server { listen 127.0.0.1:%PORT1%; \
                       location / { proxy_pass http://nowhere.invalid; } }";
    vec![
        broken("server {", "unexpected end of file, expecting"),
        broken("nonsense;", "unknown directive \"nonsense\""),
        broken(tls, "no.pem"),
        broken(unreachable, "host not found in upstream \"nowhere.invalid\""),
        broken("include missing.conf;", "missing.conf\" failed (2: No such file"),
        broken("server { location ~ \"(\" { } }", "does not compile"),
        broken("access_log no/such/folder.log;", "folder.log\" failed (2: No such file"),
        broken("access_log logs/a.log nothing;", "unknown log format \"nothing\""),
        broken("limit_req zone=none;", "\"none\""),
        broken("limit_req_zone $uri zone=z:400000g rate=1r/s;", "invalid zone size"),
        broken_main("pid no/such/folder.pid;", "refused", "folder.pid\" failed (2: No such file"),
        broken_main(
            "load_module modules/none.so; nonsense on;",
            "refused",
            "unknown directive \"nonsense\"",
        ),
    ]
}

/// The changes that only the start of workers and the running listeners show.
fn found_by_the_server(weir: &Weir, busy: u16) -> Vec<Broken> {
    let elsewhere = format!("server {{ listen 127.0.0.1:{busy}; }}");
    let mut all = vec![
        broken(&elsewhere, "failed (98: Address already in use)"),
        Broken { http: String::new(), ..broken_main("", "refused", "no longer listens on any") },
        broken_main(
            "working_directory /no/such/folder;",
            "rolled-back",
            "chdir(\"/no/such/folder\") failed (2: No such file or directory)",
        ),
    ];
    if is_root() {
        let closed = weir.prefix().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let reason = "closed\") failed (13: Permission denied)";
        all.push(broken_main("working_directory %PREFIX%/closed;", "rolled-back", reason));
    }
    all
}

#[test]
fn broken_changes_are_refused_and_the_old_configuration_serves() {
    each_driver(|driver| {
        let start = config(1, PID, SERVER);
        let site = Site::new(BINARY, driver).file("html/a.txt", b"hello").config(&start);
        let mut weir = site.allow("").start();
        let clients = Clients::start(weir.port(0), 2);
        let holder = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let busy = holder.local_addr().unwrap().port();
        let mut all = found_by_reading();
        all.extend(found_by_the_server(&weir, busy));
        assert!(all.len() >= 15);
        for change in all {
            let main = if change.main.contains("pid ") { "" } else { PID };
            weir.set_config(&config(1, &format!("{main} {}", change.main), &change.http));
            let workers = weir.workers();
            refuses(&weir, &change);
            assert_eq!(weir.workers(), workers, "{}", change.reason);
            let before = clients.answered();
            wait_until("more answers", || clients.answered() > before + 4);
        }
        weir.set_config(&start);
        let reloaded = command(&weir, &["reload"]);
        assert_eq!(code(&reloaded), Some(0), "{}", text(&reloaded));
        clients.finish();
    });
}

fn refuses(weir: &Weir, change: &Broken) {
    let output = command(weir, &["reload", "--json", "--pid", &pid_file(weir)]);
    let told = text(&output);
    let what = format!("{} {}: {told}", change.main, change.http);
    assert_eq!(code(&output), Some(1), "{what}");
    let json = String::from_utf8_lossy(&output.stdout).replace("\\\"", "\"");
    assert!(json.contains(&format!("\"outcome\":\"{}\"", change.outcome)), "{what}");
    let reasons = json.split("\"reasons\":").nth(1).unwrap_or_default();
    assert!(reasons.contains(change.reason), "{} is not in {what}", change.reason);
}

fn pid_file(weir: &Weir) -> String {
    weir.prefix().join("logs/weir.pid").to_string_lossy().into_owned()
}

/// A file system without room for a file; gone when this is dropped.
struct Full<'a>(&'a Path);

impl Drop for Full<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Needs the right to mount; where that is not to be had, it says so and passes.
#[test]
fn a_full_disk_for_logs() {
    let mut weir = site(1, PID, SERVER).allow("").start();
    let at = weir.prefix().join("full");
    fs::create_dir(&at).unwrap();
    let options = "nr_inodes=1,size=4k,mode=777";
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", options, "weir-test"])
        .arg(&at)
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        eprintln!("SKIPPED: no file system can be mounted here");
        return;
    }
    let _full = Full(&at);
    let clients = Clients::start(weir.port(0), 2);
    weir.set_config(&config(1, PID, &format!("{SERVER} access_log %PREFIX%/full/a.log;")));
    refuses(&weir, &broken("", "a.log\" failed (28: No space left on device)"));
    assert!(weir.get("/a.txt").status == 200 && clients.finish() > 0);
}

/// The verdict does not depend on an error log that can be written.
#[test]
fn without_an_error_log_there_is_a_verdict() {
    let lost = format!("{PID} error_log /dev/full;");
    let mut weir = site(2, &lost, SERVER).allow("").start();
    weir.set_config(&config(2, &format!("{lost} working_directory /no/folder;"), SERVER));
    let output = command(&weir, &["reload"]);
    let told = text(&output);
    assert_eq!(code(&output), Some(1), "{told}");
    assert!(told.contains("reload undone: no new worker could start"), "{told}");
    assert!(told.contains("chdir(\"/no/folder\") failed (2: No such file"), "{told}");
    weir.set_config(&config(1, &lost, SERVER));
    let output = command(&weir, &["reload"]);
    let want = "the new configuration serves: 1 of 1 workers, generation 2\n";
    assert_eq!((code(&output), text(&output).as_str()), (Some(0), want));
}

#[test]
fn several_ask_at_once_and_each_gets_a_verdict() {
    let weir = site(1, PID, SERVER).start();
    let before = weir.open_descriptors(weir.pid());
    let clients = Clients::start(weir.port(0), 2);
    let codes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..6).map(|_| scope.spawn(|| code(&command(&weir, &["reload"])))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(codes, [Some(0); 6]);
    assert!(clients.finish() > 0);
    wait_until("one worker", || weir.workers().len() == 1);
    // The master closes what it has of a worker when it has learned of its end. The count before
    // may have the socket of the report that it serves, which is closed a moment after.
    wait_until("what was opened is closed", || weir.open_descriptors(weir.pid()) <= before);
}

#[test]
fn another_server_or_none_is_told() {
    let mut weir = site(1, PID, SERVER).allow("unexpected \"}\"").start();
    weir.write("conf/other.conf", format!("{PID} events {{}}"));
    let prefix = weir.prefix().to_string_lossy().into_owned();
    let other = ["reload", "-p", &prefix, "-c", "conf/other.conf"];
    let output = Command::new(BINARY).args(other).output().unwrap();
    assert_eq!(code(&output), Some(2));
    assert!(text(&output).contains("conf/weir.conf, and not "), "{}", text(&output));
    weir.set_config(&config(1, "pid logs/none.pid;", SERVER));
    let output = command(&weir, &["reload"]);
    assert_eq!(code(&output), Some(2));
    assert!(text(&output).contains("no server runs with this pid file"), "{}", text(&output));
    // The pid file may move with a reload, and the socket moves with it.
    let output = command(&weir, &["reload", "--pid", &pid_file(&weir)]);
    assert_eq!(code(&output), Some(0), "{}", text(&output));
    assert!(!weir.prefix().join("logs/weir.pid.sock").exists());
    assert_eq!(code(&command(&weir, &["reload"])), Some(0));
    weir.signal("TERM");
    weir.wait_for_end();
    assert!(!weir.prefix().join("logs/none.pid.sock").exists());
    assert_eq!(code(&command(&weir, &["reload"])), Some(2));
    // A wrong file may be why it is not known whom to ask.
    weir.set_config(&config(1, "pid logs/none.pid; }", SERVER));
    let output = command(&weir, &["reload"]);
    assert_eq!(code(&output), Some(1));
    for part in ["unexpected \"}\"", "the configuration fails its test"] {
        assert!(text(&output).contains(part), "{}", text(&output));
    }
    assert_eq!(code(&command(&weir, &["reload", "now"])), Some(2));
}

/// A master in the place of a server's: it says which file it runs, and then answers like this.
pub(crate) fn stand_in(weir: &Weir, answers: Vec<&'static str>) {
    let file = weir.prefix().join("conf/weir.conf");
    let status = format!("ok\nfile: {}\n\n", file.display());
    let socket = weir.prefix().join("logs/other.pid.sock");
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let mut answers = answers.into_iter();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut question = String::new();
            stream.read_to_string(&mut question).unwrap();
            let answer = match question.trim() {
                "status" => &status,
                _ => answers.next().expect("no more questions"),
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
}

#[test]
fn a_missing_answer_is_told_from_a_missing_question() {
    let weir = site(1, PID, SERVER).start();
    stand_in(&weir, vec!["", "ok\nserving: 1\n", "refused\n\nno\n"]);
    let pid = weir.prefix().join("logs/other.pid").to_string_lossy().into_owned();
    for _ in 0..2 {
        let output = command(&weir, &["reload", "--json", "--pid", &pid]);
        assert_eq!(code(&output), Some(4), "{}", text(&output));
        assert!(text(&output).contains("\"outcome\":\"unknown\""), "{}", text(&output));
        assert!(text(&output).contains("without an answer"), "{}", text(&output));
    }
    assert_eq!(code(&command(&weir, &["reload", "--pid", &pid])), Some(1));
    let output = command(&weir, &["reload", "--json", "--pid", &format!("{pid}.no")]);
    assert_eq!(code(&output), Some(2), "{}", text(&output));
    assert!(text(&output).contains("\"outcome\":\"not-asked\""), "{}", text(&output));
}

#[test]
fn the_file_is_compared_with_what_runs() {
    let with = |line: &str| config(1, PID, &format!("{SERVER}\n{line}\ninclude more/*.conf;"));
    let site = Site::new(BINARY, Driver::usual()).file("html/a.txt", b"hello");
    let site = site.file("conf/more/a.conf", "# a\n").config(&with("server_tokens on;"));
    let mut weir = site.start();
    let same = command(&weir, &["diff"]);
    assert_eq!((code(&same), text(&same).as_str()), (Some(0), ""));
    weir.set_config(&with("server_tokens off;"));
    weir.write("conf/more/b.conf", "gzip on;\n");
    let output = command(&weir, &["diff"]);
    let told = text(&output);
    assert_eq!(code(&output), Some(1), "{told}");
    for part in
        ["\n-server_tokens on;\n+server_tokens off;\n", "--- running /dev/null\n", "+gzip on"]
    {
        assert!(told.contains(part), "{part:?} is not in {told}");
    }
    assert_eq!(code(&command(&weir, &["reload"])), Some(0));
    assert_eq!(code(&command(&weir, &["diff"])), Some(0));
    weir.set_config(&with("server_tokens on; }"));
    let output = command(&weir, &["diff", "--pid", &pid_file(&weir)]);
    assert!(text(&output).contains("+server_tokens on; }"), "{}", text(&output));
    assert_eq!(code(&output), Some(1));
}
