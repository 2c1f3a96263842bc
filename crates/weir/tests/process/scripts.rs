//! What the tools say about scripts: `lint`, `explain`, `top`, and the status page.

use std::process::Command;

use testkit::{Driver, Json, Site, Weir, built_binary};

const SCRIPT: &str = "
let ready = true;
function hello(r) { r.return(200, 'hello'); }
function gate(r) { if (r.args.as === 'throw') throw new Error('gate'); }
function lang(r) { return 'de'; }
function headers(r) { }
function spins(r) { for (let i = 0; i < 300_000; i++); r.return(200, 'spun'); }
export default { hello, gate, lang, headers, spins, inner: { deep: hello } };
";

const HTTP: &str = "
    js_import main from t.js;
    js_set $lang main.lang;
    server {
        listen 127.0.0.1:%PORT0%;
        location / { js_access main.gate; js_header_filter main.headers; js_content main.hello; }
        location /lang { return 200 $lang; }
        location /spins { js_content main.spins; }
        location /status { stub_status json; }
    }";

fn start() -> Weir {
    Site::new(built_binary(), Driver::usual()).file("conf/t.js", SCRIPT).http(HTTP).start()
}

fn command(weir: &Weir, words: &[&str]) -> String {
    let mut command = Command::new(built_binary());
    command.args(words).arg("-p").arg(weir.prefix()).args(["-c", "conf/weir.conf"]);
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn lint_names_functions_that_no_module_exports() {
    let site = Site::new(built_binary(), Driver::usual()).file("conf/t.js", SCRIPT).config(
        "events {}
http {
    js_import main from t.js;
    js_set $lang main.lang;
    js_set $none main.none;
    server {
        listen 127.0.0.1:1;

        location / { js_access main.gate; js_content main.inner.deep; }
        location /a { js_content main.hallo; }
        location /b { js_header_filter other.headers; } # weir:ignore script-function a test
    }
}
stream {
    js_import t.js;
    server { listen 127.0.0.1:2; js_preread t.first; return $remote_addr; }
}",
    );
    let file = site.prefix().join("conf/weir.conf");
    let output = Command::new(built_binary()).arg("lint").arg(file).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let found: Vec<_> = told
        .lines()
        .filter(|line| line.ends_with("[script-function]"))
        .map(|line| line.split_once("conf/weir.conf:").unwrap().1)
        .collect();
    assert_eq!(
        found,
        [
            "5:18: warning: js_set: no module exports \"main.none\"; requests fail that need it \
             [script-function]",
            "10:34: warning: js_content: no module exports \"main.hallo\"; requests fail that need \
             it [script-function]",
            "16:45: warning: js_preread: no module exports \"t.first\"; requests fail that need it \
             [script-function]",
        ],
        "{told}"
    );
}

#[test]
fn explanations_name_the_functions_and_call_none() {
    let weir = start();
    let url = |path: &str| format!("http://127.0.0.1:{}{path}", weir.port(0));
    let told = command(&weir, &["explain", &url("/")]);
    for line in [
        "script     js_access: main.gate would be called\n",
        "script     js_content: main.hello would be called\n",
        "content    a handler of this location makes the response\n",
    ] {
        assert!(told.contains(line), "{told}");
    }
    let told = command(&weir, &["explain", &url("/lang")]);
    assert!(told.contains("script     js_set: main.lang would be called\n"), "{told}");
    let json = command(&weir, &["explain", &url("/"), "--json"]);
    let step = "\"step\":\"script\",\"directive\":\"js_access\",\"function\":\"main.gate\"";
    assert!(json.contains(step), "{json}");
}

/// The counters of a function, by the status page: calls, failures, microseconds.
fn counters(weir: &Weir, directive: &str) -> (u64, u64, u64) {
    let text = weir.get("/status").text();
    let json = Json::parse(&text);
    let Json::List(all) = json.at("js.functions") else { panic!("{text}") };
    let is_it = |of: &&Json| *of.at("directive") == Json::Text(directive.to_owned());
    let of = all.iter().find(is_it).unwrap();
    (of.number("calls"), of.number("failures"), of.number("cpu_us"))
}

#[test]
fn calls_are_counted() {
    let weir = start();
    assert_eq!(weir.get("/").text(), "hello");
    assert_eq!(weir.get("/?as=throw").status, 500);
    assert_eq!(weir.get("/lang").text(), "de");
    let (calls, failures, _) = counters(&weir, "js_access");
    assert_eq!((calls, failures), (2, 1));
    assert_eq!(counters(&weir, "js_set").0, 1);
    assert_eq!(weir.get("/spins").text(), "spun");
    let pid = weir.prefix().join("logs/weir.pid");
    let mut top = Command::new(built_binary());
    top.args(["top", "--count=1", "--interval", "100ms", "--pid"]).arg(pid);
    let view = String::from_utf8(top.output().unwrap().stdout).unwrap();
    let line = view.lines().find(|line| line.starts_with("main.gate ")).unwrap();
    assert!(line.contains(" js_access "), "{view}");
}
