//! njs-examples: each configuration with the requests that its page shows.

use std::fs;

use testkit::Folder;

use super::{Server, in_namespaces, projects, sh};

/// A configuration, and commands with a part of what each prints.
type Example = (&'static str, &'static [(&'static str, &'static str)]);

const COMPLETE: &[Example] = &[
    ("http/hello", &[("curl -s localhost/", "Hello world!"), ("curl -s localhost/version", ".")]),
    (
        "http/api/set_keyval",
        &[
            ("curl -s localhost/api/ro/7/http/keyvals/foo", "{}"),
            ("curl -s -w '%{http_code}' localhost/keyval -d '{\"a\":1}'", "200"),
            ("curl -s localhost/api/ro/7/http/keyvals/foo", r#"{"a":"1"}"#),
            ("curl -s localhost/keyval -d '{\"a\":2}'", "KeyvalKeyExists"),
            ("curl -s localhost/keyval?method=PATCH -d '{\"a\":2}'", ""),
            ("curl -s localhost/api/ro/7/http/keyvals/foo", r#"{"a":"2"}"#),
        ],
    ),
    (
        "http/async_var/auth_request",
        &[
            ("curl -s 'localhost/secure/abc?token=A'", "BACKEND A:/secure/abc"),
            ("curl -s 'localhost/secure/abcde?token=B'", "BACKEND B:/secure/abcde"),
        ],
    ),
    (
        "http/async_var/js_header_filter",
        &[
            ("curl -s 'localhost/secure/abc?token=A'", "BACKEND A:/secure/abc"),
            ("curl -s 'localhost/secure/abcde?token=B'", "BACKEND B:/secure/abcde"),
        ],
    ),
    (
        "http/authorization/auth_request",
        &[
            ("curl -s -w '%{http_code}' localhost/secure/B", "401"),
            (
                "curl -s -w '%{http_code}' localhost/secure/B -H Signature:fk9WRmw7Rl+NwVAA7Z9w",
                "401",
            ),
            (
                "curl -s localhost/secure/B -H Signature:fk9WRmw7Rl+NwVAA759+H2UqxNs=",
                "BACKEND:/secure/B",
            ),
        ],
    ),
    (
        "http/authorization/gen_hs_jwt",
        &[("curl -s localhost/jwt", "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.")],
    ),
    (
        "http/authorization/jwt",
        &[(
            "curl -s localhost/jwt -H \"Authorization: Bearer e30.$(printf '{\"sub\":\"alice\"}' | \
             base64 -w0 | tr +/ -_ | tr -d =).x\"",
            "alice",
        )],
    ),
    (
        "http/authorization/request_body",
        &[
            ("curl -s localhost/secure/B", "No signature"),
            ("curl -s 'localhost/secure/B?a=1' -H Signature:A", "Invalid signature"),
            (
                "s=$(curl -s 'localhost/secure/B?a=1' -H Signature:A | sed 's/.*: //'); curl -s \
                 'localhost/secure/B?a=1' -H \"Signature:$s\"",
                "BACKEND:/secure/B",
            ),
            (
                "s=$(curl -s localhost/secure/B -d a=1 -H Signature:A | sed 's/.*: //'); curl -s \
                 localhost/secure/B -d a=1 -H \"Signature:$s\"",
                "BACKEND:/secure/B",
            ),
        ],
    ),
    (
        "http/authorization/secure_link_hash",
        &[
            ("curl -s -o /dev/null -w '%{http_code}' 127.0.0.1/secure/r", "302"),
            ("curl -s -L 127.0.0.1/secure/r; echo $?", "47"),
            ("curl -s -c jar 127.0.0.1/secure/r; curl -s -b jar 127.0.0.1/secure/r", "PASSED"),
        ],
    ),
    (
        "http/certs/dynamic",
        &[
            (
                "curl -s -k --resolve www.example.com:443:127.0.0.1 https://www.example.com; echo $?",
                "35",
            ),
            (
                "curl -s localhost/kv -F cert=@CERTS/certs/www.example.com.cert.pem -F \
                 key=@CERTS/private/www.example.com.key.pem",
                "",
            ),
            ("curl -s localhost/kv/www.example.com.cert.pem", "BEGIN CERTIFICATE"),
            (
                "curl -s -k --resolve www.example.com:443:127.0.0.1 -o /dev/null -w \
                 '%{http_code}' https://www.example.com",
                "200",
            ),
            ("curl -s -o /dev/null -w '%{http_code}' localhost/clear", "200"),
        ],
    ),
    (
        "http/certs/subject_alternative",
        &[(
            "curl -s -k https://localhost/ --key CERTS/private/client.key.pem --cert \
             CERTS/certs/client.cert.pem --pass $(cat CERTS/../password)",
            r#"["7f000001","00000000000000000000000000000001","example.com","www2.example.com"]"#,
        )],
    ),
    (
        "http/complex_redirects",
        &[
            ("curl -s 'localhost/CCC?a=1'", "/CCC?a=1"),
            ("curl -s localhost:8090/map", "{}"),
            ("curl -s localhost:8090/add -d '{\"from\":\"/CCC\",\"to\":\"/AA\"}'", ""),
            ("curl -s 'localhost/CCC?a=1'", "/AA?a=1"),
            ("curl -s localhost:8090/remove -d '{\"from\":\"/CCC\"}'", ""),
            ("curl -s localhost/CCC", "/CCC"),
        ],
    ),
    (
        "http/decode_uri",
        &[
            ("curl -s -G localhost/foo --data-urlencode foo=привет | tr a-f A-F", "%D0%BF"),
            ("curl -s -G localhost/dec_foo --data-urlencode foo=привет", "привет"),
        ],
    ),
    (
        "http/join_subrequests",
        &[(
            "curl -s localhost/join",
            r#"[{"uri":"/foo","code":200,"body":"FOO"},{"uri":"/bar","code":200,"body":"BAR"}]"#,
        )],
    ),
    (
        "http/rate-limit/simple",
        &[
            ("for i in 1 2 3 4 5 6 7 8 9 10; do curl -s localhost; done", "hello world"),
            ("curl -s -i localhost", "429"),
            ("curl -s -i localhost", "Retry-After"),
        ],
    ),
    (
        "http/response/modify_set_cookie",
        &[
            ("curl -s -i 'localhost/modify_cookies?len=1'", "Set-Cookie: BB"),
            ("curl -s -i 'localhost/modify_cookies?len=3' | grep -c -i set-cookie", "2"),
        ],
    ),
    ("http/response/to_lower_case", &[("curl -s localhost/", "hello world")]),
    (
        "http/subrequests_chaining",
        &[
            ("curl -s localhost/start -H 'Authorization: Bearer secret'", "Token is 42"),
            ("curl -s localhost/start", "Error: token is not available"),
            ("curl -s localhost/start -H 'Authorization: Bearer secre'", "token is not available"),
        ],
    ),
    (
        "misc/aes_gcm",
        &[
            ("curl -s 'localhost/encrypt?key=mySecret' -d TEST", "cipher"),
            (
                "curl -s 'localhost/decrypt?key=mySecret' -d \"$(curl -s \
                 'localhost/encrypt?key=mySecret' -d TEST)\"",
                "TEST",
            ),
            (
                "curl -s 'localhost/decrypt?key=other' -d \"$(curl -s \
                 'localhost/encrypt?key=mySecret' -d TEST)\"",
                "decryption failed",
            ),
        ],
    ),
    (
        "misc/file_io",
        &[
            ("curl -s localhost/flush -X POST; curl -s -w '%{http_code}' localhost/read", "200"),
            ("curl -s localhost/push -d AAA; curl -s localhost/push -d BBB", ""),
            ("curl -s localhost/read", "AAABBB"),
            ("curl -s localhost/flush -X POST; curl -s -w '%{http_code}' localhost/read", "200"),
        ],
    ),
    (
        "stream/auth_request",
        &[
            ("printf 'MAGiKQZ' | timeout 5 bash -c \"$TCP\"", "BACKEND"),
            ("printf 'MAGiKQQ' | timeout 5 bash -c \"$TCP\" | wc -c", "0"),
        ],
    ),
    (
        "stream/detect_http",
        &[
            ("printf 'TEST\\r\\n' | timeout 5 bash -c \"$TCP\"", "TCPBACK"),
            ("curl -s localhost/", "HTTPBACK"),
        ],
    ),
    ("stream/inject_header", &[("curl -s localhost/", "my_foo")]),
];

/// Configurations that load, and that cannot do what their page shows: one asks a server of the
/// internet, one names a module that it does not import.
const LOADED: [&str; 2] = ["http/certs/fetch_https", "http/logging/num_requests"];

/// Sends its input to port 80, and prints what comes back.
const TCP: &str = "exec 3<>/dev/tcp/127.0.0.1/80; cat >&3; cat <&3";

/// Files that examples write below `/tmp`, whatever the settings.
const WRITTEN: &[&str] = &[
    "/tmp/njs_resolv.db",
    "/tmp/njs_storage",
    "/tmp/www.example.com.cert.pem",
    "/tmp/www.example.com.key.pem",
];

#[test]
fn njs_examples_do_what_their_pages_show() {
    let Some([project]) = projects(["njs-examples"]) else { return };
    in_namespaces("script_projects::examples::njs_examples_do_what_their_pages_show", || {
        sh(&format!("cp -a '{}/njs' /etc/nginx/", project.display()), &project);
        let mut failed = Vec::new();
        let loaded = LOADED.map(|name| (name, [].as_slice()));
        for (name, commands) in COMPLETE.iter().chain(&loaded) {
            WRITTEN.iter().for_each(|path| drop(fs::remove_file(path)));
            let conf = project.join(format!("conf/{name}.conf"));
            let folder = Folder::new("example");
            let port = if name.ends_with("subject_alternative") { 443 } else { 80 };
            let env = [("SECRET_KEY", "foo"), ("JWT_GEN_KEY", "foo")];
            let server = Server::start(&conf, &env, &folder, port);
            for (command, part) in *commands {
                let certs = "/etc/nginx/njs/http/certs/ca/intermediate";
                let command = command.replace("CERTS", certs);
                let got = sh(&format!("export TCP='{TCP}'; {command}"), &folder);
                if !got.contains(part) {
                    failed.push(format!("{name}: {command}\n{got}\n{}", server.log()));
                }
            }
        }
        WRITTEN.iter().for_each(|path| drop(fs::remove_file(path)));
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    });
}
