//! `weir js`

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs the command in a folder of its own with these files, and an input.
fn weir_js(name: &str, files: &[(&str, &str)], args: &[&str], input: &str) -> Output {
    let folder = std::env::temp_dir().join(format!("weir-js-{}-{name}", std::process::id()));
    std::fs::create_dir_all(folder.join("lib")).unwrap();
    for (file, text) in files {
        std::fs::write(folder.join(file), text).unwrap();
    }
    let mut child = Command::new(testkit::built_binary())
        .arg("js")
        .args(args)
        .current_dir(&folder)
        .env_remove("NJS_PATH")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn runs_a_file_with_its_imports_and_arguments() {
    let main = "#!/usr/bin/env -S weir js\n\
                import lib from './lib/lib.js'; import fs from 'fs';\n\
                setTimeout(() => console.log(lib.twice(21), process.argv[2]), 1);\n\
                console.log(fs.readFileSync('data', 'utf8'));\n";
    let files = [
        ("main.mjs", main),
        ("lib/lib.js", "import deep from 'deep.js'; export default { twice: x => deep * x }"),
        ("lib/deep.js", "export default 2"),
        ("data", "read"),
    ];
    let output = weir_js("file", &files, &["main.mjs", "-x"], "");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout), "read\n42\n-x\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn modules_of_the_server_are_required_too() {
    let main = "const fs = require('fs');\n\
                console.log(typeof fs.readFileSync, require('fs') === fs);\n\
                try { require('http') } catch (e) { console.log(e.message) }\n";
    let output = weir_js("require", &[("main.js", main)], &["main.js"], "");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout), "function\ntrue\nCannot find module \"http\"\n");
}

#[test]
fn errors_have_their_places_and_a_status() {
    let files = [("main.js", "import a from './lib/a.js';\na.f();\n"), ("lib/a.js", "let x = ;\n")];
    let output = weir_js("syntax", &files, &["main.js"], "");
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("Thrown:\nSyntaxError: "), "{stderr}");
    assert!(stderr.contains("/lib/a.js:1:9"), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
    let files = [("main.js", "function f() {\n  throw new Error('no');\n}\nf();\n")];
    let output = weir_js("thrown", &files, &["main.js"], "");
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("Thrown:\nError: no\n    at f ("), "{stderr}");
    assert!(stderr.contains("main.js:2:13"), "{stderr}");
    let missing = weir_js("missing", &[("main.js", "import 'nowhere.js'")], &["main.js"], "");
    let stderr = text(&missing.stderr);
    assert!(stderr.contains("Cannot find module \"nowhere.js\""), "{stderr}");
}

#[test]
fn runs_texts_from_the_command_line_and_from_a_pipe() {
    let output = weir_js("c", &[], &["-c", "console.log(njs.engine)"], "");
    assert_eq!(text(&output.stdout), "QuickJS\n");
    let output = weir_js("pipe", &[], &[], "console.log(1 + 1)");
    assert_eq!(text(&output.stdout), "2\n");
    let output = weir_js("rejected", &[], &["-c", "Promise.reject(new Error('x'))"], "");
    let expected = "Thrown:\nTypeError: unhandled promise rejection: Error: x\n";
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn looks_for_modules_in_given_folders() {
    let files =
        [("main.js", "import a from 'a.js'; console.log(a)"), ("lib/a.js", "export default 'A'")];
    let output = weir_js("path", &files, &["--path", "lib", "main.js"], "");
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("A\n", Some(0)));
}
