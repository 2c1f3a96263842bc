//! `weir lsp`: a session of an editor's over pipes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use testkit::Folder;

struct Project(Folder);

impl Project {
    fn new(name: &str) -> Project {
        let folder = Folder::new(name);
        fs::create_dir(folder.join("sites")).expect("make a folder");
        Project(folder)
    }

    /// Writes a file; gives its address.
    fn write(&self, name: &str, text: &str) -> String {
        self.0.write(name, text);
        self.uri(name)
    }

    fn uri(&self, name: &str) -> String {
        format!("file://{}", self.0.join(name).display())
    }
}

struct Editor {
    server: Child,
    output: BufReader<ChildStdout>,
    asked: u64,
    /// Notices that came before an answer.
    notices: Vec<Value>,
}

impl Editor {
    fn start() -> Editor {
        let mut server = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run weir");
        let output = BufReader::new(server.stdout.take().expect("it has an output"));
        Editor { server, output, asked: 0, notices: Vec::new() }
    }

    fn ready() -> Editor {
        let mut editor = Editor::start();
        let abilities = editor.ask("initialize", json!({"capabilities": {}}));
        assert_eq!(abilities["result"]["capabilities"]["hoverProvider"], true);
        editor.tell("initialized", json!({}));
        editor
    }

    fn raw(&mut self, text: &str) {
        let input = self.server.stdin.as_mut().expect("it has an input");
        input.write_all(text.as_bytes()).expect("write to the server");
    }

    fn send(&mut self, message: &Value) {
        let body = message.to_string();
        self.raw(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    }

    fn read(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("read a head") > 0, "it has ended");
            match line.trim().split_once(": ") {
                Some((_, value)) => length = value.parse().expect("a length"),
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).expect("read a message");
        serde_json::from_slice(&body).expect("it is JSON")
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.read();
            if message["id"] == id {
                return message;
            }
            self.notices.push(message);
        }
    }

    fn open(&mut self, uri: &str, text: &str) {
        let document = json!({"uri": uri, "languageId": "nginx", "version": 1, "text": text});
        self.tell("textDocument/didOpen", json!({"textDocument": document}));
    }

    fn change(&mut self, uri: &str, text: &str) {
        let changes = json!([{"text": text}]);
        let document = json!({"uri": uri, "version": 2});
        let params = json!({"textDocument": document, "contentChanges": changes});
        self.tell("textDocument/didChange", params);
    }

    /// The messages of the next diagnostics of a text, each with its line.
    fn faults(&mut self, uri: &str) -> Vec<String> {
        loop {
            let at = self.notices.iter().position(|notice| notice["params"]["uri"] == uri);
            if let Some(at) = at {
                let notice = self.notices.remove(at);
                let list = notice["params"]["diagnostics"].as_array().expect("a list").clone();
                let text = |d: &Value| {
                    let line = &d["range"]["start"]["line"];
                    let part = |name: &str| d[name].as_str().expect("a text").replace('"', "");
                    format!("{line} {} {}", part("source"), part("message"))
                };
                return list.iter().map(text).collect();
            }
            let message = self.read();
            self.notices.push(message);
        }
    }

    /// Asks about the place of `|` in a text that is open without it.
    fn about(&mut self, question: &str, uri: &str, marked: &str) -> Value {
        let before = marked.split('|').next().expect("a mark");
        let line = before.matches('\n').count();
        let character = before.rsplit('\n').next().map_or(0, str::len);
        let position = json!({"line": line, "character": character});
        let params = json!({"textDocument": {"uri": uri}, "position": position});
        self.ask(&format!("textDocument/{question}"), params)["result"].clone()
    }

    fn labels(&mut self, uri: &str, marked: &str) -> Vec<String> {
        let items = self.about("completion", uri, marked)["items"].clone();
        let items = items.as_array().expect("a list").clone();
        items.iter().map(|item| item["label"].as_str().expect("a text").to_owned()).collect()
    }

    fn end(mut self) {
        assert_eq!(self.ask("shutdown", Value::Null)["result"], Value::Null);
        self.tell("exit", Value::Null);
        assert!(self.server.wait().expect("it ends").success());
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

const MAIN: &str =
    "events {}\nhttp {\n  upstream app { server 127.0.0.1:1; }\n  include sites/*;\n}\n";

#[test]
fn faults_follow_the_text() {
    let folder = Project::new("faults");
    folder.write("nginx.conf", MAIN);
    let site = "server {\n  listen 127.0.0.1:8080;\n  gzipp on;\n}\n";
    let uri = folder.write("sites/a.conf", site);
    let mut editor = Editor::ready();
    editor.open(&uri, site);
    let faults = editor.faults(&uri);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("2 weir -t unknown directive gzipp"), "{faults:?}");
    assert!(faults[0].contains("gzip"), "{faults:?}");

    // The text of the editor counts, and not the file's.
    editor.change(&uri, "server {\n  listen 127.0.0.1:8080;\n  gzip on;\n}\n");
    assert_eq!(editor.faults(&uri), [""; 0]);
    editor.change(&uri, "server {\n  error_log off;\n  gzip\n}\n");
    let faults = editor.faults(&uri);
    assert!(faults.iter().any(|f| f.starts_with("3 weir -t unexpected }")), "{faults:?}");
    assert!(faults.iter().any(|f| f.starts_with("1 weir lint ")), "{faults:?}");

    // A fault in another file is told of that file, until it is gone.
    let main = folder.uri("nginx.conf");
    let wrong = MAIN.replace("upstream app", "upsteam app");
    folder.write("nginx.conf", &wrong);
    editor.change(&uri, "server { listen 127.0.0.1:8080; }\n");
    assert_eq!(editor.faults(&uri), [""; 0]);
    let faults = editor.faults(&main);
    assert!(faults[0].starts_with("2 weir -t unknown directive upsteam"), "{faults:?}");
    folder.write("nginx.conf", MAIN);
    editor.tell("textDocument/didSave", json!({"textDocument": {"uri": uri}}));
    assert_eq!(editor.faults(&main), [""; 0]);
    editor.end();
}

#[test]
fn a_text_without_a_file_is_checked_by_itself() {
    let mut editor = Editor::ready();
    editor.open("untitled:1", "location / {\n  autoindex on\n}\n");
    let faults = editor.faults("untitled:1");
    assert!(faults[0].starts_with("2 weir -t unexpected }"), "{faults:?}");
    editor.tell("textDocument/didClose", json!({"textDocument": {"uri": "untitled:1"}}));
    assert_eq!(editor.faults("untitled:1"), [""; 0]);
    editor.end();
}

#[test]
fn completions_fit_their_context() {
    let folder = Project::new("complete");
    let main = folder.write("nginx.conf", MAIN);
    let site = "map $host $own { default 1; }\nserver {\n  location @back { return 204; }\n  \
                location / {\n    gzip on;\n    proxy_pass http://app;\n    try_files $uri @back;\n  }\n}\n";
    let uri = folder.write("sites/a.conf", site);
    let mut editor = Editor::ready();
    editor.open(&uri, site);
    editor.open(&main, MAIN);
    let at = |place: &str| site.replacen(place, &format!("{place}|"), 1);
    let has = |labels: &[String], name: &str| labels.iter().any(|label| label == name);

    let labels = editor.labels(&uri, &at("location / {\n    gz"));
    assert!(has(&labels, "proxy_pass") && has(&labels, "alias") && !has(&labels, "listen"));
    let labels = editor.labels(&uri, &at("server {\n  "));
    assert!(has(&labels, "listen") && has(&labels, "location") && !has(&labels, "alias"));
    let labels = editor.labels(&uri, &format!("|{site}"));
    assert!(has(&labels, "upstream") && !has(&labels, "worker_processes"), "it is in http");
    let labels = editor.labels(&main, &format!("|{MAIN}"));
    assert!(has(&labels, "worker_processes") && !has(&labels, "location"));
    assert_eq!(editor.labels(&uri, &at("gzip o")), ["on", "off"]);
    assert_eq!(editor.labels(&uri, &at("http://")), ["app"]);
    assert_eq!(editor.labels(&uri, &at("$uri @")), ["@back"]);
    let labels = editor.labels(&uri, &at("try_files $u"));
    assert!(has(&labels, "own") && has(&labels, "request_uri"));
    assert_eq!(editor.labels(&uri, &at("$own { de")), [""; 0], "the lines of a map are data");
    editor.end();
}

#[test]
fn words_are_explained_and_found() {
    let folder = Project::new("words");
    let main = folder.write("nginx.conf", MAIN);
    let site = "map $host $own { default 1; }\nserver {\n  location / {\n    proxy_pass http://app/$own;\n    \
                limit_req zone=z;\n    lua_code_cache on;\n  }\n}\nlimit_req_zone $host zone=z:1m rate=1r/s;\n";
    let uri = folder.write("sites/a.conf", site);
    let mut editor = Editor::ready();
    editor.open(&uri, site);
    editor.open(&main, MAIN);
    let at = |place: &str| site.replacen(place, &format!("{place}|"), 1);
    let mut hover = |marked: &str| {
        let text = editor.about("hover", &uri, marked)["contents"]["value"].clone();
        text.as_str().unwrap_or_default().to_owned()
    };
    let text = hover(&at("proxy_p"));
    let has = |part: &str| assert!(text.contains(part), "{text}");
    has("**proxy_pass** (proxy)");
    has("location if-in-location limit_except");
    assert!(!text.contains("(stream"), "the other engine's is left out: {text}");
    assert!(hover(&at("    lua_code")).contains("lua-nginx-module"));
    assert!(hover(&at("app/$o")).contains("`map $host $own`"));
    assert!(hover(&at("map $ho")).contains("built in"));
    assert_eq!(hover(&at("http:/")), "");

    let mut define = |uri: &str, marked: &str| {
        let found = editor.about("definition", uri, marked);
        let found = found.as_array().expect("a list").clone();
        let place = |one: &Value| (one["uri"].clone(), one["range"]["start"]["line"].clone());
        found.iter().map(place).collect::<Vec<_>>()
    };
    assert_eq!(define(&uri, &at("http://ap")), [(json!(main), json!(2))]);
    assert_eq!(define(&uri, &at("app/$o")), [(json!(uri), json!(0))]);
    assert_eq!(define(&uri, &at("limit_req zo")), [(json!(uri), json!(8))]);
    let include = MAIN.replacen("sites", "si|tes", 1);
    assert_eq!(define(&main, &include), [(json!(uri), json!(0))]);
    assert_eq!(define(&uri, &at("limi")), []);
    editor.end();
}

#[test]
fn malformed_messages_are_answered_and_passed_over() {
    let mut editor = Editor::start();
    assert_eq!(editor.ask("textDocument/hover", json!({}))["error"]["code"], -32002);
    for (text, code) in [
        ("X-Other: 1\r\n\r\n", -32700),
        ("Content-Length: 5\r\n\r\n{\"a\":", -32700),
        ("Content-Length: 2\r\n\r\n{}", -32600),
        ("Content-Length: 2\r\n\r\n[]", -32600),
        ("Content-Length: 4\r\n\r\n\"ab\"", -32600),
        ("Content-Length: 99999999999999999999\r\n\r\n", -32700),
    ] {
        editor.raw(text);
        assert_eq!(editor.read()["error"]["code"], code, "{text}");
    }
    editor.ask("initialize", Value::Null);
    assert_eq!(editor.ask("textDocument/implementation", json!(7))["error"]["code"], -32601);
    // Odd parameters of every method.
    for params in [json!(null), json!([]), json!({"textDocument": 1}), json!({"textDocument": {}})]
    {
        for method in ["didOpen", "didChange", "didSave", "didClose"] {
            editor.tell(&format!("textDocument/{method}"), params.clone());
        }
        for method in ["completion", "hover", "definition"] {
            let answer = editor.ask(&format!("textDocument/{method}"), params.clone());
            assert_eq!(answer["result"], Value::Null, "{method}");
        }
    }
    editor.open("untitled:1", "http { \u{1f600} 'a\\");
    for (line, character) in [(0, 7), (0, 8), (0, 99), (9, 9)] {
        let position = json!({"line": line, "character": character});
        let params = json!({"textDocument": {"uri": "untitled:1"}, "position": position});
        for method in ["completion", "hover", "definition"] {
            editor.ask(&format!("textDocument/{method}"), params.clone());
        }
    }
    assert!(!editor.faults("untitled:1").is_empty());
    editor.end();
}

#[test]
fn the_end_of_the_input_is_the_end() {
    let mut editor = Editor::ready();
    editor.raw("Content-Length: 100\r\n\r\n{");
    drop(editor.server.stdin.take());
    assert_eq!(editor.server.wait().expect("it ends").code(), Some(1));
}

#[test]
fn texts_are_formatted_outlined_and_fixed() {
    let folder = Project::new("changes");
    folder.write("nginx.conf", MAIN);
    let site = "server {\nlisten 127.0.0.1:8080;\n  error_log off; # x\n}\n";
    let uri = folder.write("sites/a.conf", site);
    let mut editor = Editor::ready();
    editor.open(&uri, site);
    let document = json!({"textDocument": {"uri": uri}});
    let answer = editor.ask("textDocument/formatting", document.clone());
    let new = answer["result"][0]["newText"].clone();
    assert_eq!(new, "server {\n    listen 127.0.0.1:8080;\n    error_log off; # x\n}\n");
    let answer = editor.ask("textDocument/documentSymbol", document.clone());
    assert_eq!(answer["result"][0]["name"], "server 127.0.0.1:8080");

    let mut actions = |line: u32| {
        let place = json!({"line": line, "character": 4});
        let range = json!({"start": place, "end": place});
        let params = json!({"textDocument": {"uri": uri}, "range": range, "context": {}});
        editor.ask("textDocument/codeAction", params)["result"].clone()
    };
    let found = actions(2);
    assert_eq!(found[0]["title"], "weir lint: fix error-log-off");
    let change = &found[0]["edit"]["changes"][&uri][0];
    assert_eq!(change["newText"], "/dev/null crit");
    assert_eq!(change["range"]["start"], json!({"line": 2, "character": 12}));
    assert_eq!(found[1]["kind"], "source.fixAll");
    let elsewhere = actions(1);
    assert_eq!(elsewhere.as_array().map(Vec::len), Some(1), "{elsewhere}");
    // What is formatted already, and what cannot be.
    editor.change(&uri, new.as_str().expect("a text"));
    assert_eq!(editor.ask("textDocument/formatting", document.clone())["result"], json!([]));
    editor.change(&uri, "server {");
    assert_eq!(editor.ask("textDocument/formatting", document)["result"], Value::Null);
    editor.end();
}

#[test]
fn uses_are_found_and_renamed() {
    let folder = Project::new("uses");
    let main = folder.write("nginx.conf", MAIN);
    let site = "map $host $own { default \"a$host\"; }\nmap $own $to { b app; c other; }\n\
                server {\n  location ~ ^/(?<part>.*)$ {\n    proxy_pass http://app/${own}$part$owner;\n  }\n  \
                location / { proxy_pass http://$to; }\n}\n";
    let uri = folder.write("sites/a.conf", site);
    let mut editor = Editor::ready();
    editor.open(&uri, site);
    let at = |place: &str| site.replacen(place, &format!("{place}|"), 1);
    let places = |found: Value| -> Vec<(String, u64, u64)> {
        let list = found.as_array().expect("a list").clone();
        let place = |one: &Value| {
            let start = &one["range"]["start"];
            let number = |name: &str| start[name].as_u64().expect("a number");
            let uri = one["uri"].as_str().expect("a name").rsplit('/').next().map(str::to_owned);
            (uri.unwrap_or_default(), number("line"), number("character"))
        };
        list.iter().map(place).collect()
    };
    let of = |line, column| ("a.conf".to_owned(), line, column);
    let found = places(editor.about("references", &uri, &at("$host $ow")));
    assert_eq!(found, [of(0, 11), of(1, 5), of(4, 28)]);
    let found = places(editor.about("references", &uri, &at("(?<pa")));
    assert_eq!(found, [of(3, 18), of(4, 33)]);
    // A group by its name, and by a variable that names it.
    let found = places(editor.about("references", &uri, &at("http://ap")));
    let in_main = ("nginx.conf".to_owned(), 2, 11);
    assert_eq!(found, [in_main, of(1, 17), of(4, 22)]);

    let mut rename = |marked: &str, new: &str| {
        let before = marked.split('|').next().expect("a mark");
        let line = before.matches('\n').count();
        let character = before.rsplit('\n').next().map_or(0, str::len);
        let position = json!({"line": line, "character": character});
        let params = json!({"textDocument": {"uri": uri}, "position": position, "newName": new});
        editor.ask("textDocument/rename", params)
    };
    let answer = rename(&at("http://ap"), "web");
    let changes = &answer["result"]["changes"];
    assert_eq!(changes[&main][0]["newText"], "web");
    assert_eq!(changes[&uri].as_array().map(Vec::len), Some(2));
    let answer = rename(&at("$host $ow"), "$mine");
    assert_eq!(answer["result"]["changes"][&uri][2]["newText"], "mine");
    for (place, new, why) in [
        ("map $ho", "x", "is built in"),
        ("http://app/${own}$part$ow", "x", "is not defined"),
        ("$host $ow", "a b", "is no name"),
        ("$host $ow", "to", "exists already"),
        ("$host $ow", "host", "exists already"),
        ("serv", "x", "can be renamed"),
    ] {
        let message = rename(&at(place), new)["error"]["message"].clone();
        assert!(message.as_str().unwrap_or_default().contains(why), "{place}: {message}");
    }
    let prepared = editor.about("prepareRename", &uri, &at("$host $ow"));
    assert_eq!(prepared["placeholder"], "own");
    editor.end();
}

/// The extension for Visual Studio Code: its files are JSON, and its client understands the server.
#[test]
fn the_extension_talks_to_the_server() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../editors/vscode");
    for file in ["package.json", "language-configuration.json", "syntaxes/nginx.tmLanguage.json"] {
        let text = fs::read_to_string(folder.join(file)).expect("read a file of the extension");
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(json.is_object(), "{file}");
    }
    if Command::new("node").arg("--version").stdout(Stdio::null()).status().is_err() {
        // The machine has no JavaScript.
        return;
    }
    let check = Command::new("node").arg("--check").arg(folder.join("extension.js")).status();
    assert!(check.expect("run node").success());
    let test = Command::new("node")
        .arg(folder.join("test.js"))
        .arg(env!("CARGO_BIN_EXE_weir"))
        .output()
        .expect("run node");
    assert!(test.status.success(), "{}", String::from_utf8_lossy(&test.stderr));
}
