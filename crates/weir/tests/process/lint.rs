//! `weir lint`: exit codes and forms of output.

use std::process::{Command, Output};

use testkit::Folder;

/// Writes a file; gives its path as an argument.
fn write(folder: &Folder, name: &str, text: &str) -> String {
    folder.write(name, text).to_string_lossy().into_owned()
}

fn lint(args: &[&str]) -> (Option<i32>, String, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_weir")).arg("lint").args(args).output();
    let Output { status, stdout, stderr } = run.expect("run weir");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    (status.code(), text(stdout), text(stderr))
}

const FAULT: &str = "server {\n  error_log off;\n}\n";

#[test]
fn findings_are_told_with_their_place() {
    let folder = Folder::new("text");
    write(&folder, "site.conf", FAULT);
    let main = write(&folder, "main.conf", "events {}\nhttp { include site.conf; }\n");
    let (code, out, err) = lint(&[&main]);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    let place = format!("{}/site.conf:2:13: warning: ", folder.display());
    assert!(out.starts_with(&place) && out.contains(" [error-log-off]\n1 found;"), "{out}");

    let fine = write(&folder, "fine.conf", "events {}\nhttp { server { listen 80; } }\n");
    assert_eq!(lint(&[&fine]), (Some(0), "nothing found\n".to_owned(), String::new()));
    let text = FAULT.replace(";", "; # weir:ignore error-log-off it is wanted");
    let quiet = write(&folder, "quiet.conf", &text);
    assert_eq!(lint(&[&quiet]).0, Some(0));
}

#[test]
fn machines_read_it_too() {
    let folder = Folder::new("forms");
    let file = write(&folder, "a \"b\".conf", FAULT);
    let name = file.replace('"', "\\\"");
    let (code, out, _) = lint(&[&file, "--format", "json"]);
    assert_eq!(code, Some(1));
    let start =
        format!("[{{\"rule\":\"error-log-off\",\"severity\":\"warning\",\"file\":\"{name}\",");
    assert!(out.starts_with(&start), "{out}");
    assert!(out.contains("\"line\":2,\"column\":13,\"message\":\"this is a file"), "{out}");

    let (code, out, _) = lint(&["--format=sarif", &file]);
    assert_eq!(code, Some(1));
    for part in [
        "\"version\":\"2.1.0\"",
        "\"name\":\"weir lint\"",
        "\"ruleId\":\"error-log-off\",\"level\":\"warning\"",
        "/a%20%22b%22.conf\"},\"region\":{\"startLine\":2,\"startColumn\":13}",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let open = out.matches(['{', '[']).count();
    assert_eq!(open, out.matches(['}', ']']).count(), "{out}");

    let (_, out, _) = lint(&["--format=github", &file]);
    assert!(out.starts_with("::warning file=") && out.contains(",line=2,col=13,title="), "{out}");
    let empty = write(&folder, "fine.conf", "events {}\n");
    assert_eq!(lint(&["--format=json", &empty]), (Some(0), "[]\n".to_owned(), String::new()));
}

#[test]
fn what_cannot_be_read_is_told_apart() {
    let folder = Folder::new("bad");
    let (code, out, err) = lint(&["/no/such.conf"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("No such file or directory"), "{err}");
    let broken = write(&folder, "broken.conf", "http {\n");
    let (code, _, err) = lint(&[&broken]);
    assert_eq!(code, Some(2));
    assert!(err.contains("unexpected end of file, expecting \"}\" in "), "{err}");
    assert_eq!(lint(&["--format", "xml", &broken]).0, Some(2));
    // A misspelt name keeps the file from loading, a directive of another module is passed over.
    let names = "http { lua_package_path x; worker_x 1; server { prxoy_pass a; api; } }\n";
    let unknown = write(&folder, "unknown.conf", names);
    let (code, out, _) = lint(&[&unknown]);
    assert_eq!(code, Some(1));
    assert_eq!(out.matches(": error: unknown directive ").count(), 2, "{out}");
    assert!(out.contains("\"prxoy_pass\": the file does not load [unknown-directive]"), "{out}");
}

#[test]
fn rules_are_listed() {
    let (code, out, _) = lint(&["--rules"]);
    assert_eq!(code, Some(0));
    assert!(out.lines().any(|line| line.starts_with("alias-traversal ")), "{out}");
    assert!(out.lines().count() >= 20, "{out}");
}
