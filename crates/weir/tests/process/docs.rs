//! The examples of the documentation load.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The examples of a page: the text between "```nginx" and "```".
fn examples(page: &str) -> Vec<&str> {
    let parts = page.split("```nginx\n").skip(1);
    parts.filter_map(|part| part.split("```").next()).collect()
}

/// An example as a whole configuration: most are parts of `http`.
fn whole(example: &str) -> String {
    let has_block = |line: &str| line.starts_with("stream {") || line.starts_with("http {");
    match example.lines().any(has_block) {
        true => format!("events {{}}\n{example}"),
        false => format!("events {{}}\nhttp {{\n{example}\n}}\n"),
    }
}

#[test]
fn examples_load() {
    let folder = testkit::Folder::new("docs");
    fs::create_dir(folder.join("logs")).expect("make a folder");
    folder.write("keys.json", "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\"}");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut count = 0;
    for entry in fs::read_dir(docs).expect("read the folder").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = fs::read_to_string(&path).expect("read a page");
        // The scripts of a page are the files that its examples import.
        for script in page.split("```javascript\n").skip(1) {
            let (first, _) = script.split_once('\n').unwrap_or_default();
            if let Some(name) = first.strip_prefix("// ").and_then(|line| line.split(',').next()) {
                folder.write(name, script.split("```").next().unwrap_or_default());
            }
        }
        for example in examples(&page) {
            let file = folder.write("weir.conf", whole(example));
            let output = Command::new(env!("CARGO_BIN_EXE_weir"))
                .args(["-t", "-q", "-e", "stderr", "-g", "pid weir.pid;", "-c"])
                .arg(&file)
                .arg("-p")
                .arg(folder.path())
                .output()
                .expect("run weir");
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {told}\n{example}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3, "{count} examples");
}
