//! `weir config --json`: the form that crossplane's `parse` gives.

use std::process::Command;

use testkit::Folder;

fn folder(name: &str, files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new(name);
    for (name, text) in files {
        folder.write(name, text);
    }
    folder
}

/// The exit code and the output, for the file `main.conf` of a folder.
fn json(folder: &Folder) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let run = command.current_dir(folder.path()).args(["config", "--json", "main.conf"]).output();
    let run = run.expect("run weir");
    (run.status.code(), String::from_utf8(run.stdout).expect("it is text"))
}

#[test]
fn files_are_told_apart_and_words_kept() {
    let folder = folder(
        "good",
        &[
            (
                "main.conf",
                "# comment\nevents { }\nhttp {\n  include inc/*.conf;\n  include inc/b.conf;\n\
                 if ($a ~ \"x(\\.y)\\\"\") { return 200 'it\\'s ${x}'; }\n}\n",
            ),
            ("inc/b.conf", "gzip on;"),
            ("inc/a.conf", "include deep/c.conf;"),
            ("deep/c.conf", "types { text/html html htm; }"),
        ],
    );
    let (code, out) = json(&folder);
    assert_eq!(code, Some(0), "{out}");
    let want = concat!(
        r#"{"status":"ok","errors":[],"config":["#,
        r#"{"file":"main.conf","status":"ok","errors":[],"parsed":["#,
        r#"{"directive":"events","line":2,"args":[],"block":[]},"#,
        r#"{"directive":"http","line":3,"args":[],"block":["#,
        r#"{"directive":"include","line":4,"args":["inc/*.conf"],"includes":[1,2]},"#,
        r#"{"directive":"include","line":5,"args":["inc/b.conf"],"includes":[2]},"#,
        r#"{"directive":"if","line":6,"args":["$a","~","x(\\.y)\""],"block":["#,
        r#"{"directive":"return","line":6,"args":["200","it's ${x}"]}]}]}]},"#,
        r#"{"file":"inc/a.conf","status":"ok","errors":[],"parsed":["#,
        r#"{"directive":"include","line":1,"args":["deep/c.conf"],"includes":[3]}]},"#,
        r#"{"file":"inc/b.conf","status":"ok","errors":[],"parsed":["#,
        r#"{"directive":"gzip","line":1,"args":["on"]}]},"#,
        r#"{"file":"deep/c.conf","status":"ok","errors":[],"parsed":["#,
        r#"{"directive":"types","line":1,"args":[],"block":["#,
        r#"{"directive":"text/html","line":1,"args":["html","htm"]}]}]}]}"#,
        "\n"
    );
    assert_eq!(out, want);
}

#[test]
fn a_program_in_lua_is_an_argument() {
    let text = "set_by_lua_block $a {\n  return \"}\"\n}\ngzip on;";
    let (code, out) = json(&folder("lua", &[("main.conf", text)]));
    let want = concat!(
        r#""parsed":[{"directive":"set_by_lua_block","line":1,"args":["$a","\n  return \"}\"\n"]},"#,
        r#"{"directive":"gzip","line":4,"args":["on"]}]"#
    );
    assert!(code == Some(0) && out.contains(want), "{out}");
}

#[test]
fn faults_are_of_their_file() {
    let folder = folder(
        "bad",
        &[("main.conf", "include none.conf;\ninclude bad.conf;\ngzip on;"), ("bad.conf", "a {\n")],
    );
    let (code, out) = json(&folder);
    assert_eq!(code, Some(1));
    for part in [
        r#"{"status":"failed","errors":[{"file":"main.conf","error":"open() \"none.conf\" failed"#,
        r#"{"directive":"include","line":1,"args":["none.conf"],"includes":[]}"#,
        r#"{"directive":"gzip","line":3,"args":["on"]}"#,
        r#"{"file":"bad.conf","status":"failed","errors":[{"error":"unexpected end of file"#,
        r#""line":2}],"parsed":[]}"#,
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    // Other commands have their file behind -c.
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let run =
        command.current_dir(folder.path()).args(["config", "--json", "-c", "main.conf"]).output();
    assert_eq!(run.expect("run weir").stdout, out.as_bytes());
    // A circle ends.
    let circle = self::folder("circle", &[("main.conf", "include main.conf;")]);
    assert_eq!(json(&circle).0, Some(0));
}

#[test]
fn it_says_how_it_is_used() {
    for args in [&["config"][..], &["config", "--yaml"], &["config", "--json", "a", "b"]] {
        let run = Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().expect("run weir");
        assert_eq!(run.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&run.stderr).contains("Usage: weir config"));
    }
}

#[test]
fn a_configuration_of_nginx_is_judged() {
    let text = "load_module modules/ngx_http_image_filter_module.so;\
                load_module modules/ngx_http_echo_module.so; load_module none.so;\
                load_module modules/ngx_http_brotli_static_module.so;\
                load_module modules/ngx_http_lua_module.so;\nevents {}\nhttp {\n  \
                geoip2 a.mmdb { $country default=XX country iso_code; auto_reload 5m; }\n  \
                map $a $b { lua_x 1; }\n  server { ssl_protocols TLSv1 TLSv1.2;\n  \
                content_by_lua_block { ngx.say(\"}\") }\n  nonsense 1; }\n}\n";
    let folder = folder("migrate", &[("main.conf", text), ("good.conf", "events {}\nhttp {}\n")]);
    let migrate = |file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let run = command.current_dir(folder.path()).args(["migrate", file]).output();
        let run = run.expect("run weir");
        (run.status.code(), String::from_utf8(run.stdout).expect("it is text"))
    };
    let (code, out) = migrate("main.conf");
    assert_eq!(code, Some(1), "{out}");
    for part in [
        "\nRefused: 3\n",
        "  ngx_http_lua_module.so: of lua-nginx-module, which is not built in; use ",
        "  content_by_lua_block: of lua-nginx-module, which is not built in; use ",
        "      main.conf:7\n",
        "  nonsense: unknown to nginx 1.31 and to this server\n",
        "  main.conf:1: ngx_http_brotli_static_module.so is built in: remove load_module\n",
        "  main.conf:1: none.so is not built in, and no directive of it is used: remove it\n",
        "  main.conf:6: TLSv1 is insecure, and Weir does not support it: ",
        "  TLS (ssl_protocols)\n    TLS 1.0, TLS 1.1 and SSL are not supported",
    ] {
        assert!(out.contains(part), "{part:?} is not in {out}");
    }
    let (code, out) = migrate("good.conf");
    assert!(code == Some(0) && out.contains("\nNothing is refused: "), "{out}");
    assert_eq!(migrate("none.conf").0, Some(2));
    // The sections come by risk.
    let (_, out) = migrate("main.conf");
    let at = |part: &str| out.find(part).unwrap_or_else(|| panic!("{part:?} is not in {out}"));
    let order = ["\nRefused", "\nBehaves differently", "\nWorks, and", "\nNothing to do: "].map(at);
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn sign_in_by_scripts_is_written_as_directives_that_load() {
    let text = "events {}\nhttp {\n  map $host $oidc_authz_endpoint { default \
                https://127.0.0.1:1/realms/a/protocol/openid-connect/auth; }\n\
                map $host $oidc_client { default me; }\n\
                map $host $oidc_client_secret { default 'a \"b'; }\n}\n";
    let folder = folder("sign-in", &[("main.conf", text)]);
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let run = command.current_dir(folder.path()).args(args).output().expect("run weir");
        let text = [run.stdout, run.stderr].concat();
        (run.status.code(), String::from_utf8(text).expect("it is text"))
    };
    let (code, out) = run(&["migrate", "main.conf"]);
    let head =
        "Sign-in by a script, which directives do here: 1\n  main.conf:3: nginx-openid-connect\n";
    assert!(code == Some(0) && out.contains(head), "{out}");
    let (_, written) = out.split_once(head).expect("it is there");
    let (written, _) = written.split_once("\n\n").expect("its end");
    let (provider, location) = written.split_once("# in the locations").expect("two parts");
    let (_, location) = location.split_once('\n').expect("a line");
    let conf = format!(
        "pid pid; events {{}} http {{ access_log off; {provider}\n server {{ listen 127.0.0.1:8080; location / {{\n\
         {location}\n}} }} }}"
    );
    folder.write("new.conf", &conf);
    let bundle = ["-t", "-e", "stderr", "-p", ".", "-c", "new.conf"];
    let (code, out) = run(&bundle);
    assert!(code == Some(0), "{conf}\n{out}");
}

#[test]
fn certain_changes_of_a_move_are_written() {
    let old = "load_module modules/ngx_http_echo_module.so;\nevents {}\nhttp {\n  upstream u {\n    \
               consistent_hash $uri;  # keys\n    server 127.0.0.1:1;\n  }\n  server {\n    \
               listen 127.0.0.1:8080 http2;\n    spdy_headers_comp 1;\n    \
               location / { proxy_pass http://u; }\n  }\n}\n";
    let new = "events {}\nhttp {\n  upstream u {\n    hash $uri consistent;  # keys\n    \
               server 127.0.0.1:1;\n  }\n  server {\n    listen 127.0.0.1:8080;\n    http2 on;\n    \
               location / { proxy_pass http://u; }\n  }\n}\n";
    let bad = format!("{old}nonsense;\n");
    let folder = folder("fix", &[("main.conf", old), ("bad.conf", &bad)]);
    let migrate = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let run = command.current_dir(folder.path()).arg("migrate").args(args).output();
        let run = run.expect("run weir");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
        (run.status.code(), text(run.stdout), text(run.stderr))
    };
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("read it");
    let (code, out, err) = migrate(&["main.conf", "--fix", "--dry-run"]);
    assert!(
        code == Some(1) && out.contains("\n-    consistent_hash $uri;  # keys\n"),
        "{out}{err}"
    );
    assert!(!out.contains("Refused") && text("main.conf") == old, "{out}");
    let (code, out, err) = migrate(&["main.conf", "--fix"]);
    assert!(code == Some(0) && out.starts_with("fixed main.conf\n"), "{out}{err}");
    assert_eq!(text("main.conf"), new);
    let (code, _, err) = migrate(&["bad.conf", "--fix"]);
    assert!(
        code == Some(2) && err.contains("nothing is written: with the changes unknown"),
        "{err}"
    );
    assert_eq!(text("bad.conf"), bad);
    assert_eq!(migrate(&["-", "--fix"]).0, Some(2));
}
