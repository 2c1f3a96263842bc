//! A master without the privileges of root: in a user namespace, or without capabilities, as
//! containers have it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{BINARY, SERVER, config, is_root, proc_field};
use testkit::{Site, each_driver, is_alive, wait_until};

/// Root of a user namespace that has no other user, and may not set groups.
const NAMESPACE: &str = "unshare -U -r";

/// Root without a single capability, as `docker run --cap-drop=ALL` has it.
const NO_CAPABILITY: &str = "setpriv --bounding-set=-all";

/// Whether this machine allows it.
fn works(wrapper: &str) -> bool {
    let words: Vec<&str> = wrapper.split(' ').chain(["true"]).collect();
    let tried = Command::new(words[0]).args(&words[1..]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// A site whose server runs below the wrapper.
fn site(wrapper: &str, driver: testkit::Driver) -> Site {
    let site = Site::new(BINARY, driver);
    let script = site.prefix().join("weir.sh");
    fs::write(&script, format!("#!/bin/sh\nexec {wrapper} \"{BINARY}\" \"$@\"\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    site.with_binary(script).config(&config(1, "user root;", SERVER))
}

#[test]
fn starts_without_the_privilege_to_set_groups() {
    for wrapper in [NAMESPACE, NO_CAPABILITY] {
        if !works(wrapper) {
            eprintln!("{wrapper}: not allowed here");
            continue;
        }
        each_driver(|driver| {
            let weir = site(wrapper, driver).file("html/index.html", "hello").start();
            assert_eq!(weir.get("/").body, b"hello");
            weir.wait_for_log("error.log", "initgroups for user root (0:0) failed (1: ");
        });
    }
}

#[test]
fn a_default_folder_that_cannot_be_given_away_is_no_reason_to_fail() {
    if !is_root() || !works(NO_CAPABILITY) {
        return;
    }
    let given = |folder: &Path| {
        fs::create_dir(folder).unwrap();
        std::os::unix::fs::chown(folder, Some(65_534), None).unwrap();
    };
    each_driver(|driver| {
        let site = site(NO_CAPABILITY, driver).file("html/index.html", "hello");
        given(&site.prefix().join("client_body_temp"));
        let weir = site.start();
        assert_eq!(weir.get("/").body, b"hello");
        weir.wait_for_log("error.log", "[warn]");
        weir.wait_for_log("error.log", "/client_body_temp\" failed (1: Operation not permitted)");
    });
    // A folder that the configuration names has to be right.
    let site = site(NO_CAPABILITY, testkit::Driver::usual());
    given(&site.prefix().join("bodies"));
    let named = "client_body_temp_path %PREFIX%/bodies; server { listen 127.0.0.1:%PORT0%; }";
    let site = site.config(&config(1, "user root;", named));
    let refused = site.run(&["-g", "daemon off;"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("bodies\" failed (1: "));
}

/// The user that a process's memory belongs to: root's, if it is hidden from its own user.
fn memory_owner(pid: u32) -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(format!("/proc/{pid}/environ")).expect("the process's files").uid()
}

#[test]
fn workers_gain_no_privileges_and_hide_their_memory() {
    let text = |main: &str| {
        let cache = "proxy_cache_path %PREFIX%/cache keys_zone=k:1m;";
        config(1, main, &format!("{cache} {SERVER}"))
    };
    each_driver(|driver| {
        let mut weir = Site::new(BINARY, driver).config(&text("")).start();
        let all = weir.processes().into_iter().filter(|pid| *pid != weir.pid());
        for pid in all {
            // The processes of caches begin when the server is up, and one of them ends.
            wait_until("a process to renounce privileges", || {
                proc_field(pid, "status", "NoNewPrivs") == "1" || !is_alive(pid)
            });
        }
        if is_root() {
            let worker = weir.workers()[0];
            assert_eq!(proc_field(worker, "status", "CapBnd"), "0".repeat(16));
            assert_eq!(memory_owner(worker), 0);
        }
        // The master starts new binaries.
        assert_eq!(proc_field(weir.pid(), "status", "NoNewPrivs"), "0");
        for main in ["worker_rlimit_core 1m;", "working_directory %PREFIX%;"] {
            weir.set_config(&text(main));
            let workers = weir.workers();
            weir.reload();
            weir.wait_until_left(&workers);
            let worker = weir.workers()[0];
            let user = proc_field(worker, "status", "Uid");
            let user = user.split_whitespace().next().expect("a user").parse();
            assert_eq!(Ok(memory_owner(worker)), user, "{main}");
        }
    });
}
