//! `weir fmt`: files, streams, exit codes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Output, Stdio};

use testkit::Folder;

use crate::common::BINARY;

const UGLY: &str = "events{}\nhttp {\nserver {# one\nlisten 80 ;\n} }\n";
const NEAT: &str = "events {}\nhttp {\n    server { # one\n        listen 80;\n    }\n}\n";

fn fmt(args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(BINARY);
    command.arg("fmt").args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("run weir");
    // It may not read its input.
    let _ = child.stdin.take().expect("it has an input").write_all(input.as_bytes());
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn files_are_formatted_in_place() {
    let folder = Folder::new("fmt");
    let ugly = folder.write("ugly.conf", UGLY);
    fs::set_permissions(&ugly, fs::Permissions::from_mode(0o640)).unwrap();
    let ugly = ugly.to_string_lossy().into_owned();
    assert_eq!(fmt(&["--check", &ugly], ""), (Some(1), format!("{ugly}\n"), String::new()));
    assert_eq!(fmt(&["--stdout", &ugly], ""), (Some(0), NEAT.to_owned(), String::new()));
    assert_eq!(fs::read_to_string(&ugly).unwrap(), UGLY);
    assert_eq!(fmt(&[&ugly], ""), (Some(0), String::new(), String::new()));
    assert_eq!(fs::read_to_string(&ugly).unwrap(), NEAT);
    let before = fs::metadata(&ugly).unwrap();
    assert_eq!(before.mode() & 0o7777, 0o640);
    // A formatted file is not written again.
    assert_eq!(fmt(&["--check", &ugly], "").0, Some(0));
    assert_eq!(fmt(&[&ugly], "").0, Some(0));
    assert_eq!(fs::metadata(&ugly).unwrap().ino(), before.ino());
    for args in [&[][..], &["-"], &["--stdout"]] {
        assert_eq!(fmt(args, UGLY), (Some(0), NEAT.to_owned(), String::new()));
    }
}

#[test]
fn a_file_with_an_error_stays_as_it_was() {
    let folder = Folder::new("bad-fmt");
    let bad = folder.write("bad.conf", "http {\n  a\n}\n").to_string_lossy().into_owned();
    let good = folder.write("good.conf", "a  ;").to_string_lossy().into_owned();
    let (code, out, err) = fmt(&[&bad, &good, "/no/such.conf"], "");
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains(&format!("unexpected \"}}\" in {bad}:3\n")), "{err}");
    assert!(err.contains("weir fmt: /no/such.conf: No such file"), "{err}");
    assert_eq!(fs::read_to_string(&bad).unwrap(), "http {\n  a\n}\n");
    assert_eq!(fs::read_to_string(&good).unwrap(), "a;\n");
    assert_eq!(fmt(&["--check", "--stdout"], "").0, Some(2));
}
