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

#[test]
fn safe_changes_are_written_if_the_result_loads() {
    let folder = Folder::new("fix");
    let site = "server {\n  listen 8080; # the first\n  server_name a;\n  error_log off;\n  \
                ssl_protocols TLSv1 TLSv1.1 TLSv1.2;\n  root /a;\n  root /a;\n  \
                location ~ .css$ { expires 1d; } # weir:ignore ssrf none\n}\n\
                server { listen 8080; server_name b; }\n\
                server { listen 8443 ssl http2; listen 8444 http2; server_name c; ssl on; }\n";
    let fixed = "server {\n  listen 8080 default_server; # the first\n  server_name a;\n  \
                 error_log /dev/null crit;\n  ssl_protocols TLSv1.2;\n  root /a;\n  \
                 location ~ \\.css$ { expires 1d; }\n}\n\
                 server { listen 8080; server_name b; }\n";
    let path = write(&folder, "site.conf", site);
    let main_text = "events {}\nhttp { include site.conf; }\n";
    let main = write(&folder, "main.conf", main_text);
    let text = |path: &str| std::fs::read_to_string(path).expect("read it");

    // The certificate of the last server is missing, so that its `ssl` would keep it from loading.
    for args in [&["--fix", &*main][..], &["--fix", "--dry-run", &main]] {
        let (code, out, err) = lint(args);
        assert_eq!((code, out.as_str()), (Some(2), ""));
        assert!(
            err.contains("nothing is written: with the changes no \"ssl_certificate\""),
            "{err}"
        );
        assert_eq!(text(&path), site);
    }
    let whole: String = site.split_inclusive('\n').filter(|line| !line.contains("8443")).collect();
    write(&folder, "site.conf", &whole);
    let (code, out, err) = lint(&["--fix", "--dry-run", &main]);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    assert!(out.contains("\n-  error_log off;\n"), "{out}");
    assert!(out.contains("\n+  error_log /dev/null crit;\n"), "{out}");
    assert_eq!(text(&path), whole);
    let (code, out, err) = lint(&["--fix", &main]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert_eq!(out, format!("fixed {path}\nnothing found\n"));
    assert_eq!(text(&path), fixed);
    assert_eq!(lint(&["--fix", "--dry-run", &main]).0, Some(0));
    assert_eq!(text(&main), main_text);
    for wrong in [&["--dry-run", &*main][..], &["--fix", "--format", "json"]] {
        assert_eq!(lint(wrong).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_file_of_several_blocks_is_not_changed_for_one() {
    let folder = Folder::new("shared");
    let part = write(&folder, "part.conf", "listen 8080;\n");
    let main = write(
        &folder,
        "main.conf",
        "events {}\nhttp {\n  server { include part.conf; server_name a; }\n  \
         server { include part.conf; server_name b; }\n}\n",
    );
    let (code, out, err) = lint(&["--fix", &main]);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    assert!(out.contains("[implicit-default-server]\n1 found;"), "{out}");
    assert_eq!(std::fs::read_to_string(part).expect("read it"), "listen 8080;\n");
}

#[test]
fn rules_with_changes_are_marked() {
    let (_, rules, _) = lint(&["--rules"]);
    let page = include_str!("../../../../docs/LINT.md");
    let list = page.split("## Fixes").nth(1).expect("a section about fixes");
    let list = list.split("\n## ").next().expect("its text");
    let mut marked: Vec<&str> = rules
        .lines()
        .filter(|line| line.contains("(--fix)"))
        .map(|line| line.split(' ').next().expect("a name"))
        .collect();
    assert!(marked.len() >= 10, "{marked:?}");
    let mut named: Vec<&str> =
        list.split("\n| `").skip(1).filter_map(|l| l.split('`').next()).collect();
    marked.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, marked);
}
