//! nginx-openid-connect and nginx-saml, by their own tests in Perl.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::{Folder, built_binary, copy_program};

use super::{is_root, projects, run};

/// Runs a test of a project, with the library of nginx's tests where the project has none of its
/// own; `count` is the number of its checks.
fn suite(project: &Path, library: Option<&Path>, test: &str, count: usize) {
    let folder = Folder::new("suite");
    let copy = folder.join("project");
    run(Command::new("cp").arg("-a").arg(project).arg(&copy));
    if let Some(library) = library {
        run(Command::new("cp").arg("-a").arg(library).arg(copy.join("t/lib")));
    }
    // HS256 wants a key of 32 bytes (RFC 7518 section 3.2), and weir insists on them.
    let path = copy.join("t").join(test);
    let text = fs::read_to_string(&path).unwrap();
    let long = text.replace("'test-jwt-secret'", "'test-jwt-secret-of-thirty-two-bytes'");
    fs::write(&path, long).unwrap();
    let (binary, tmp) = (folder.join("server"), folder.join("tmp"));
    copy_program(&built_binary(), &binary);
    fs::create_dir(&tmp).unwrap();
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300"]);
    // The library refuses some things to root, and has folders that other users cannot read.
    if is_root() {
        run(Command::new("chown").args(["-R", "65534:65534"]).arg(folder.path()));
        command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command.args(["perl", test]).current_dir(copy.join("t"));
    command.env("TEST_NGINX_BINARY", &binary).env("TMPDIR", &tmp).env("HOME", &tmp);
    command.env("TEST_NGINX_UNSAFE", "1").env("PERL_HASH_SEED", "0");
    // It looks for lines of the log as soon as it has an answer, when they may not be written yet.
    let mut tries = 3;
    loop {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let failed: Vec<_> = text.lines().filter(|line| line.starts_with("not ok")).collect();
        tries -= 1;
        if !failed.is_empty() && failed.iter().all(|line| line.ends_with(" log")) && tries > 0 {
            continue;
        }
        let passed = text.lines().filter(|line| line.starts_with("ok ")).count();
        assert!(failed.is_empty(), "{}\n{text}\n{errors}", failed.join("\n"));
        assert_eq!(passed, count, "{text}\n{errors}");
        return;
    }
}

#[test]
fn nginx_openid_connect_passes_its_tests() {
    let Some([project]) = projects(["nginx-openid-connect"]) else { return };
    suite(&project, None, "oidc_session.t", 128);
}

#[test]
fn nginx_saml_passes_its_tests() {
    let Some([project, library]) = projects(["nginx-saml", "nginx-tests/lib"]) else { return };
    suite(&project, Some(&library), "js_saml.t", 136);
}
