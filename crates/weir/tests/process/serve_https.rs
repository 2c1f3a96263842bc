//! `weir serve --https` and `weir trust`, judged by curl.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use crate::common::{BINARY, is_root};
use testkit::{Folder, Port, signal, wait_for};

/// A running server; ended with the test.
struct Served {
    child: Child,
    port: u16,
    said: String,
}

impl Served {
    /// Starts it with `data` as the folder of the user's data.
    fn start(data: &Folder, arguments: &[&str]) -> Served {
        let port = Port::reserve().number();
        let mut child = Command::new(BINARY)
            .args(["serve", "--https", "-q", "--port", &port.to_string()])
            .args(arguments)
            .env("XDG_DATA_HOME", data.path())
            .env_remove("SUDO_UID")
            .stdout(Stdio::piped())
            .spawn()
            .expect("weir serve starts");
        let mut said = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        while !said.contains("Ctrl-C") {
            assert!(out.read_line(&mut said).expect("read it") > 0, "it ended: {said}");
        }
        let served = Served { child, port, said };
        wait_for("weir serve to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(self.child.id(), "INT");
            let _ = self.child.wait();
        }
    }
}

/// Runs curl; gives its exit status, and what it printed.
fn curl(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new("curl").args(["-sS", "--noproxy", "*"]).args(arguments).output();
    let output = output.expect("run curl");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn site() -> (Folder, Folder) {
    let (data, folder) = (Folder::new("data"), Folder::new("https"));
    folder.write("a.txt", "hello");
    (data, folder)
}

#[test]
fn localhost_is_served_by_https_with_an_authority_of_the_user() {
    let (data, folder) = site();
    let served = Served::start(&data, &[&folder.to_string_lossy()]);
    let authority = data.join("weir/authority.crt");
    let ca = authority.to_string_lossy().into_owned();
    let port = served.port;
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{port}/a.txt");
        let format = "\n%{http_version}";
        let answer = curl(&["--cacert", &ca, "-w", format, &url]);
        assert_eq!(answer, (Some(0), "hello\n2".to_owned()), "{host}");
        // The system does not know the authority.
        assert_eq!(curl(&[&url]).0, Some(60));
    }
    // The certificate is for this machine, and not for other names that lead to it.
    let other = format!("other.localhost:{port}:127.0.0.1");
    let url = format!("https://other.localhost:{port}/a.txt");
    assert_eq!(curl(&["--cacert", &ca, "--resolve", &other, &url]).0, Some(60));
    let plain = format!("http://localhost:{port}/a.txt?x");
    let moved = curl(&["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", &plain]);
    assert_eq!(moved.1, format!("301 https://localhost:{port}/a.txt?x"));
    assert!(served.said.contains(&format!(" at https://localhost:{port}/\n")), "{}", served.said);
    assert!(served.said.contains(&format!("has installed {ca}.\n")), "{}", served.said);
    let key = fs::metadata(data.join("weir/authority.key")).expect("it is there");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    drop(served);
    // Another run has another certificate of the same authority.
    let before = fs::read(&authority).expect("read it");
    let served = Served::start(&data, &[&folder.to_string_lossy()]);
    assert_eq!(fs::read(&authority).expect("read it"), before);
    let url = format!("https://localhost:{}/a.txt", served.port);
    assert_eq!(curl(&["--cacert", &ca, &url]), (Some(0), "hello".to_owned()));
}

#[test]
fn addresses_of_others_are_not_certified() {
    let (data, _) = site();
    let run = Command::new(BINARY)
        .args(["serve", "--https", "--listen", "192.0.2.99:8443"])
        .env("XDG_DATA_HOME", data.path())
        .output()
        .expect("run weir");
    let error = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(!run.status.success() && error.contains("192.0.2.99"), "{error}");
}

/// The system's own program changes the store, in a mount namespace where the store is a copy.
#[test]
fn trust_changes_the_system_s_store() {
    let programs = ["/usr/sbin/update-ca-certificates", "/usr/bin/unshare"];
    let has = |path: &&str| std::path::Path::new(path).exists();
    if !is_root() || !programs.iter().all(has) {
        return;
    }
    let (data, folder) = site();
    let served = Served::start(&data, &[&folder.to_string_lossy()]);
    let url = format!("https://localhost:{}/a.txt", served.port);
    let copy = data.join("copy");
    let script = format!(
        "set -e
        cp -a /etc/ssl/certs {copy}
        mount -t tmpfs none /etc/ssl/certs
        cp -a {copy}/. /etc/ssl/certs
        mount -t tmpfs none /usr/local/share/ca-certificates
        ask() {{ curl -sS --noproxy '*' {url} 2>/dev/null || echo refused; }}
        ask; echo
        {BINARY} trust; ask; echo
        mkfifo {copy}.fifo
        {BINARY} serve --https --port {second} -q {folder} >{copy}.fifo & server=$!
        while read -r line; do
            echo \"$line\"; case $line in *Ctrl-C*) break;; esac; done <{copy}.fifo
        curl -sS --noproxy '*' --retry 50 --retry-connrefused https://localhost:{second}/a.txt
        echo; kill $server; wait $server
        {BINARY} trust --remove; ask; echo
        {BINARY} trust --remove",
        copy = copy.display(),
        second = Port::reserve().number(),
        folder = folder.display(),
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "timeout", "120", "sh", "-c", &script]);
    let output = command.env("XDG_DATA_HOME", data.path()).env_remove("SUDO_UID").output();
    let output = output.expect("run unshare");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("Operation not permitted") && said.is_empty() {
        return;
    }
    let ca = data.join("weir/authority.crt");
    let ca = ca.display();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.first(), Some(&"refused"), "{said}{error}");
    let at = |line: &str| lines.iter().position(|other| *other == line).expect("the line");
    let (trusts, no_longer) = (
        at(&format!("this system trusts {ca}")),
        at(&format!("this system no longer trusts {ca}")),
    );
    assert!(lines[trusts..no_longer].contains(&"hello"), "{said}{error}");
    assert!(!said.contains("Browsers warn of its certificate"), "{said}");
    assert_eq!(lines[no_longer + 1], "refused", "{said}{error}");
    assert_eq!(lines.last(), Some(&"the system's store does not have the certificate"));
}

#[test]
fn trust_prints_the_command_for_others_than_root() {
    let setpriv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let store = std::path::Path::new("/usr/local/share/ca-certificates");
    if !is_root() || !store.is_dir() || Command::new("setpriv").arg("true").output().is_err() {
        return;
    }
    let data = Folder::new("trust");
    fs::set_permissions(&*data, fs::Permissions::from_mode(0o777)).expect("open it");
    let run = |option: &[&str]| {
        let mut command = Command::new(setpriv[0]);
        command.args(&setpriv[1..]).args([BINARY, "trust"]).args(option);
        let output = command.env("XDG_DATA_HOME", data.path()).output().expect("run weir");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let ca = data.join("weir/authority.crt");
    let name = "/usr/local/share/ca-certificates/weir-authority-65534.crt";
    let (code, text) = run(&[]);
    let want = format!("  sudo cp {} {name} && sudo update-ca-certificates\n", ca.display());
    assert!(code == Some(1) && text.ends_with(&want), "{text}");
    let (code, text) = run(&["--remove"]);
    let want = format!("  sudo rm {name} && sudo update-ca-certificates --fresh\n");
    assert!(code == Some(1) && text.ends_with(&want), "{text}");
}
