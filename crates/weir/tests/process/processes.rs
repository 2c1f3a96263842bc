//! Master and workers: titles, signals, limits, ends.

use crate::common::{self, SERVER, is_root, proc_field, site};
use testkit::wait_for;

fn status_line(pid: u32, name: &str) -> String {
    proc_field(pid, "status", name)
}

fn title(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

#[test]
fn a_server_starts_serves_and_stops() {
    let mut weir = site(2, "", SERVER).start();
    assert_eq!(weir.get("/a.txt").body, b"hello");
    assert!(title(weir.pid()).starts_with("weir: master process "), "{}", title(weir.pid()));
    let workers = weir.workers();
    assert_eq!(workers.len(), 2);
    for &pid in &workers {
        assert_eq!(title(pid), "weir: worker process");
        if is_root() {
            assert!(!status_line(pid, "Uid").contains("0\t"), "{}", status_line(pid, "Uid"));
            assert_eq!(status_line(pid, "CapEff"), "0000000000000000");
        }
    }
    let pid_file = weir.prefix().join("logs/weir.pid");
    assert_eq!(std::fs::read_to_string(&pid_file).unwrap(), format!("{}\n", weir.pid()));
    weir.signal("TERM");
    assert_eq!(weir.wait_for_end().code(), Some(0));
    assert!(!pid_file.exists());
    let log = weir.log("error.log");
    for text in ["start worker process ", "signal 15 (SIGTERM) received from ", ": exit"] {
        assert!(log.contains(text), "{text}\n{log}");
    }
}

#[test]
fn a_graceful_stop_finishes_what_has_begun() {
    let mut weir = site(1, "", SERVER).start();
    let worker = weir.workers()[0];
    let mut conn = weir.connect();
    conn.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n");
    // The worker must have accepted the connection before it leaves.
    let mut other = weir.connect();
    other.send("GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(other.response().body, b"hello");
    weir.signal("QUIT");
    wait_for("the worker's title", || title(worker).contains("shutting down").then_some(()));
    wait_for("the port's end", || {
        std::net::TcpStream::connect(("127.0.0.1", weir.port(0))).is_err().then_some(())
    });
    conn.send("\r\n");
    let response = conn.response();
    assert_eq!(response.body, b"hello");
    assert_eq!(response.header("Connection"), Some("close"));
    assert_eq!(weir.wait_for_end().code(), Some(0));
    assert!(weir.log("error.log").contains("gracefully shutting down"));
}

#[test]
fn a_leaving_worker_has_its_time() {
    let mut weir = site(1, "worker_shutdown_timeout 100ms;", SERVER).start();
    let mut conn = weir.connect();
    conn.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n");
    assert_eq!(weir.get("/a.txt").body, b"hello");
    let began = std::time::Instant::now();
    weir.signal("QUIT");
    assert_eq!(weir.wait_for_end().code(), Some(0));
    assert!(began.elapsed() >= std::time::Duration::from_millis(90));
    assert!(conn.is_closed());
}

#[test]
fn a_worker_that_dies_is_replaced() {
    let weir = site(2, "", SERVER).allow("exited on signal 9").start();
    let before = weir.workers();
    weir.signal_to(before[0], "KILL");
    weir.wait_for_log("error.log", &format!("worker process {} exited on signal 9", before[0]));
    wait_for("another worker", || {
        let now = weir.workers();
        (now.len() == 2 && !now.contains(&before[0])).then_some(())
    });
    assert!(weir.workers().contains(&before[1]));
    assert_eq!(weir.get("/a.txt").body, b"hello");
    // A worker that ends by a signal, of any sender, is replaced as well.
    weir.signal_to(before[1], "TERM");
    weir.wait_for_log("error.log", &format!("worker process {} exited with code 0", before[1]));
    wait_for("another worker", || (weir.workers().len() == 2).then_some(()));
}

#[test]
fn a_server_whose_workers_cannot_begin_ends() {
    let site = site(2, "working_directory /no/such/folder;", SERVER);
    let globals = "daemon off; pid logs/weir.pid; error_log logs/error.log info;";
    let (code, _) = common::outcome(&site.run(&["-g", globals]));
    assert_eq!(code, Some(1));
    let log = std::fs::read_to_string(site.prefix().join("logs/error.log")).unwrap();
    for text in [
        "chdir(\"/no/such/folder\") failed (2: No such file or directory)",
        "exited with fatal code 2 and cannot be respawned",
        "no worker process is left",
    ] {
        assert!(log.contains(text), "{text}\n{log}");
    }
    assert_eq!(log.matches("start worker process ").count(), 2, "{log}");
    assert!(!site.prefix().join("logs/weir.pid").exists());
}

#[test]
fn workers_are_as_the_configuration_wants_them() {
    let cpu = status_line(std::process::id(), "Cpus_allowed_list");
    let cpu: usize = cpu.split(['-', ',']).next().unwrap().parse().unwrap();
    let mask = format!("1{}", "0".repeat(cpu));
    let main = format!(
        "worker_rlimit_nofile 222; worker_rlimit_core 1m; worker_priority 5; \
         worker_cpu_affinity {mask}; working_directory /tmp;"
    );
    let mut weir = site(1, &main, SERVER);
    weir = weir.allow("worker_connections exceed");
    let weir = weir.start();
    let worker = weir.workers()[0];
    assert_eq!(weir.get("/a.txt").body, b"hello");
    let limits = |name| proc_field(worker, "limits", name);
    assert!(limits("Max open files").starts_with("222"), "{}", limits("Max open files"));
    assert!(limits("Max core file size").starts_with("1048576"));
    assert_eq!(status_line(worker, "Cpus_allowed_list"), cpu.to_string());
    assert_eq!(std::fs::read_link(format!("/proc/{worker}/cwd")).unwrap().to_str(), Some("/tmp"));
    assert_eq!(common::nice(worker), Some(5));
}

#[test]
fn one_process_does_it_all() {
    let mut weir = site(1, "master_process off;", SERVER).start();
    assert_eq!(weir.processes().len(), 1);
    assert_eq!(weir.get("/a.txt").body, b"hello");
    let mut kept = weir.connect();
    kept.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n");
    assert_eq!(weir.get("/a.txt").body, b"hello");
    weir.write("new/b.txt", b"new");
    weir.set_config(&common::config(
        1,
        "master_process off;",
        "server { listen 127.0.0.1:%PORT0%; root new; }",
    ));
    weir.signal("HUP");
    weir.wait_for_log("error.log", "reconfiguring");
    wait_for("the new configuration", || (weir.get("/b.txt").status == 200).then_some(()));
    kept.send("\r\n");
    // A request in progress is answered by the old configuration.
    assert_eq!(kept.response().body, b"hello");
    assert_eq!(weir.get("/a.txt").status, 404);
    weir.signal("QUIT");
    assert_eq!(weir.wait_for_end().code(), Some(0));
    assert!(!weir.prefix().join("logs/weir.pid").exists());
}

#[test]
fn logs_are_opened_again() {
    let weir = site(1, "", SERVER).start();
    let logs = weir.prefix().join("logs");
    std::fs::rename(logs.join("error.log"), logs.join("error.log.1")).unwrap();
    weir.signal("USR1");
    wait_for("the new log", || logs.join("error.log").exists().then_some(()));
    let worker = weir.workers()[0];
    // Logged in the file used until then.
    weir.wait_for_log("error.log.1", &format!(" {worker}#{worker}: reopening logs"));
    if is_root() {
        use std::os::unix::fs::MetadataExt;
        // The workers open it as their own user.
        assert_ne!(std::fs::metadata(logs.join("error.log")).unwrap().uid(), 0);
    }
    assert!(weir.log("error.log.1").contains("reopening logs"));
    weir.signal_to(worker, "USR1");
    weir.wait_for_log("error.log", "signal 10 (SIGUSR1) received from ");
}

#[test]
fn a_busy_worker_survives_the_signals_it_does_not_know() {
    let weir = site(1, "", SERVER).start();
    let worker = weir.workers()[0];
    for name in ["HUP", "USR2", "ALRM", "IO", "WINCH"] {
        weir.signal_to(worker, name);
    }
    weir.wait_for_log("error.log", "signal 1 (SIGHUP) received from ");
    assert_eq!(weir.get("/a.txt").body, b"hello");
    assert_eq!(weir.workers(), [worker]);
}
