//! The command line: output, streams, and exit codes.

use crate::common::{self, BINARY, SERVER, outcome, site};
use std::process::Command;

#[test]
fn help_and_versions_go_to_standard_error() {
    let run = |arg: &str| Command::new(BINARY).arg(arg).output().unwrap();
    let (code, text) = outcome(&run("-v"));
    assert_eq!((code, text.lines().count()), (Some(0), 1));
    assert!(text.starts_with("weir version: weir/"), "{text}");
    let (code, text) = outcome(&run("-V"));
    assert_eq!(code, Some(0));
    assert!(text.contains("\nnginx version: nginx/1.31.5\n"), "{text}");
    assert!(text.contains("\nconfigure arguments: --prefix="), "{text}");
    for arg in ["-h", "-?"] {
        let output = run(arg);
        let (code, text) = outcome(&output);
        assert_eq!(code, Some(0));
        assert!(text.contains("Usage: weir [-?hvVtTq] [-s signal]"), "{text}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(outcome(&run("-x")), (Some(1), "weir: invalid option: \"x\"\n".to_owned()));
}

#[test]
fn commands_print_to_standard_output() {
    let run = |args: &[&str]| Command::new(BINARY).args(args).output().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success() && !output.stdout.is_empty());
    }
    assert!(run(&["man"]).stdout.starts_with(b".TH WEIR 8"));
    let dump = String::from_utf8(run(&["dump-directives"]).stdout).unwrap();
    assert!(dump.lines().any(|line| line.starts_with("worker_processes\tmain\t1\t1\t")), "{dump}");
    assert_eq!(run(&["completions", "csh"]).status.code(), Some(2));
    assert_eq!(run(&["man", "x"]).status.code(), Some(1));
    let folder = testkit::Folder::new("pages");
    let path = folder.to_string_lossy().into_owned();
    assert!(run(&["man", "--directory", &path]).status.success());
    for (page, title) in [("weir.8", ".TH WEIR 8"), ("weir-serve.1", ".TH WEIR-SERVE 1")] {
        let text = std::fs::read_to_string(folder.join(page)).unwrap();
        assert!(text.starts_with(title), "{text}");
        let name = page.split('.').next().unwrap();
        if name != "weir" {
            let one = run(&["man", name.strip_prefix("weir-").unwrap()]);
            assert_eq!(String::from_utf8_lossy(&one.stdout), text);
        }
    }
}

/// `help` and `--help` are Weir's own words: they go to standard output, where a pager can have
/// them, in at most 80 columns.
#[test]
fn help_is_printed_to_standard_output() {
    let run = |args: &[&str]| Command::new(BINARY).args(args).output().unwrap();
    let text = |args: &[&str]| {
        let output = run(args);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let all = text(&["--help"]);
    assert_eq!(all, text(&["help"]));
    assert!(all.lines().all(|line| line.chars().count() <= 80), "{all}");
    assert!(all.contains("\n  validate ") && all.contains("\n  -t\n"), "{all}");
    let one = text(&["lint", "--help"]);
    assert_eq!(one, text(&["help", "lint"]));
    let short = text(&["lint", "-h"]);
    for part in ["\nUsage: weir lint [OPTIONS] [FILE]\n", "--format <NAME>", "sarif"] {
        assert!(one.contains(part) && short.contains(part), "{part}: {one}{short}");
    }
    assert!(one.contains("\nExit status:\n") && one.contains("\nExamples:\n"), "{one}");
    assert!(short.len() < one.len() && !short.contains("Exit status"), "{short}");
    assert!(!all.contains('\x1b') && !one.contains('\x1b'), "no colours without a terminal");
    let version = format!("weir {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&["version"]), version);
    assert_eq!(text(&["--version"]), version);
    assert!(text(&["version", "--build"]).contains("\nnginx version: nginx/1."));
}

#[test]
fn misspelt_commands_and_options_get_suggestions() {
    for (args, tip) in [
        (&["sevre"][..], "a similar subcommand exists: 'serve'"),
        (&["help", "sevre"], "a similar subcommand exists: 'serve'"),
        (&["--hepl"], "a similar argument exists: '--help'"),
        (&["lint", "--fromat", "json"], "a similar argument exists: '--format'"),
        (&["lint", "--format", "jsn"], "a similar value exists: 'json'"),
    ] {
        let output = Command::new(BINARY).args(args).output().unwrap();
        let (code, text) = outcome(&output);
        assert!(code == Some(2) && text.contains(tip), "{args:?}: {code:?} {text}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_program_called_nginx_answers_as_nginx() {
    use std::os::unix::process::CommandExt;
    let run = |arg: &str| Command::new(BINARY).arg0("nginx").arg(arg).output().unwrap();
    for switch in ["-v", "-V", "-h"] {
        let output = run(switch);
        let (code, text) = outcome(&output);
        let first = text.lines().next().unwrap_or_default();
        let version = first.strip_prefix("nginx version: nginx/").expect("nginx's line");
        assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{text}");
        assert_eq!(text.matches("nginx version:").count(), 1, "{text}");
        assert!(code == Some(0) && output.stdout.is_empty());
    }
    assert!(outcome(&run("-V")).1.contains("\nconfigure arguments: --prefix="));
    // Words of nginx's for what is none of its options.
    assert_eq!(outcome(&run("sevre")), (Some(1), "weir: invalid option: \"sevre\"\n".to_owned()));
}

#[test]
fn validate_is_the_switch_t() {
    let site = site(1, "", SERVER);
    let file = site.prefix().join("conf/weir.conf");
    let of = |args: &[&str]| {
        Command::new(BINARY).arg("validate").args(args).arg("-p").arg(site.prefix()).output()
    };
    let path = file.to_string_lossy();
    let wanted = outcome(&site.run(&["-t"]));
    assert_eq!(outcome(&of(&[&path]).unwrap()), wanted);
    assert_eq!(outcome(&of(&["-c", "conf/weir.conf"]).unwrap()), wanted);
    assert_eq!(outcome(&of(&[&path, "-q"]).unwrap()), (Some(0), String::new()));
    let dump = of(&[&path, "-q", "--dump"]).unwrap();
    assert!(dump.stdout.starts_with(b"# configuration file "));
    std::fs::write(&file, "nonsense on;").unwrap();
    let (code, text) = outcome(&of(&[&path]).unwrap());
    assert!(code == Some(1) && text.contains("unknown directive \"nonsense\" in "), "{text}");
}

#[test]
fn a_good_configuration_tests_well() {
    let site = site(1, "", SERVER);
    let file = site.prefix().join("conf/weir.conf");
    let file = file.display();
    let (code, text) = outcome(&site.run(&["-t"]));
    assert_eq!(code, Some(0));
    assert_eq!(
        text,
        format!(
            "weir: the configuration file {file} syntax is ok\n\
             weir: configuration file {file} test is successful\n"
        )
    );
    assert_eq!(outcome(&site.run(&["-t", "-q"])), (Some(0), String::new()));
    let output = site.run(&["-Tq"]);
    let dump = String::from_utf8(output.stdout).unwrap();
    let text = std::fs::read_to_string(site.prefix().join("conf/weir.conf")).unwrap();
    assert_eq!(dump, format!("# configuration file {file}:\n{text}\n"));
}

#[test]
fn a_bad_configuration_is_named_with_its_line() {
    let site = site(1, "error_log logs/own.log;", "servr {}");
    let file = site.prefix().join("conf/weir.conf");
    let file = file.display();
    let (code, text) = outcome(&site.run(&["-t"]));
    let message = format!("[emerg] unknown directive \"servr\" in {file}:5\n");
    assert_eq!(code, Some(1));
    assert_eq!(text, format!("weir: {message}weir: configuration file {file} test failed\n"));
    // The same without -t: nothing runs, and the first error log has the message.
    assert_eq!(outcome(&site.run(&[])), (Some(1), format!("weir: {message}")));
    let log = std::fs::read_to_string(site.prefix().join("logs/error.log")).unwrap();
    assert!(log.lines().all(|line| line.contains(": unknown directive \"servr\" in ")), "{log}");
    // Files are opened only when all is understood.
    assert!(!site.prefix().join("logs/own.log").exists());
}

#[test]
fn errors_come_in_the_order_of_the_text() {
    let http = "server { listen x:y; }\n";
    let site = site(1, "", &format!("{http}}}\nunknown_a; events {{"));
    let (_, text) = outcome(&site.run(&["-t"]));
    assert!(text.contains("in \"x:y\" of the \"listen\" directive"), "{text}");
    let site = self::site(1, "unknown_b;", http);
    let (_, text) = outcome(&site.run(&["-t"]));
    assert!(text.contains("unknown directive \"unknown_b\""), "{text}");
}

#[test]
fn directives_from_the_command_line() {
    let site = site(1, "pid logs/own.pid;", SERVER);
    let (code, text) = outcome(&site.run(&["-t", "-g", "pid x;"]));
    assert_eq!(code, Some(1));
    assert!(text.contains("\"pid\" directive is duplicate in "), "{text}");
    let (code, text) = outcome(&site.run(&["-t", "-g", "daemon off"]));
    assert_eq!(code, Some(1));
    assert!(text.contains("in command line\n"), "{text}");
    assert_eq!(outcome(&site.run(&["-t", "-g", "daemon off; error_log stderr;"])).0, Some(0));
}

#[test]
fn a_signal_needs_a_server() {
    let site = site(1, "pid logs/own.pid;", SERVER);
    let (code, text) = outcome(&site.run(&["-s", "reload"]));
    assert_eq!(code, Some(1));
    let pid = site.prefix().join("logs/own.pid");
    assert_eq!(
        text,
        format!(
            "weir: [error] open() \"{}\" failed (2: No such file or directory)\n",
            pid.display()
        )
    );
}

#[test]
fn a_test_binds_and_leaves_nothing_behind() {
    let (_taken, port) = testkit::listener();
    let http =
        format!("server {{ listen unix:%PREFIX%/s.sock; listen 127.0.0.1:{port}; root html; }}");
    let site = site(1, "", &http);
    // The address in use belongs to the server under test.
    assert_eq!(outcome(&site.run(&["-t"])).0, Some(0));
    assert!(!site.prefix().join("s.sock").exists());
    let http = "server { listen 192.0.2.77:80; }";
    let (code, text) = outcome(&common::site(1, "", http).run(&["-t"]));
    assert_eq!(code, Some(1));
    assert!(
        text.contains("bind() to 192.0.2.77:80 failed (99: Cannot assign requested address)"),
        "{text}"
    );
}

#[test]
fn an_error_log_that_cannot_be_opened_is_told_and_borne() {
    let site = site(1, "error_log stderr;", SERVER);
    let (code, text) = outcome(&site.run(&["-t", "-e", "no/such/folder.log"]));
    assert_eq!(code, Some(0));
    assert!(text.starts_with("weir: [alert] could not open error log file: open() \""), "{text}");
    let site = common::site(1, "error_log no/such/folder.log;", SERVER);
    let (code, text) = outcome(&site.run(&["-t"]));
    assert_eq!(code, Some(1));
    assert!(text.contains("folder.log\" failed (2: No such file or directory)"), "{text}");
}

#[test]
fn odd_files_are_errors() {
    let site = site(1, "", SERVER);
    for (arg, what) in [("none.conf", "failed (2: No such file"), ("conf", "directory")] {
        let (code, text) = outcome(&site.run(&["-t", "-c", arg]));
        assert_eq!(code, Some(1));
        assert!(text.contains("[emerg] ") && text.contains(what), "{text}");
    }
}

#[test]
fn a_start_that_fails_late_leaves_nothing() {
    let http = "server { listen unix:%PREFIX%/s.sock; root html; }";
    let site = site(1, "daemon off; pid no/such/folder.pid;", http);
    let (code, text) = outcome(&site.run(&[]));
    assert_eq!(code, Some(1));
    assert!(text.contains("folder.pid\" failed (2: No such file or directory)"), "{text}");
    assert!(!site.prefix().join("s.sock").exists());
}

#[test]
fn a_start_in_the_background_says_whether_the_server_runs() {
    let http = "server { listen unix:%PREFIX%/s.sock; root html; }";
    // The folder could be read by the test of the configuration, and cannot be written.
    let site = site(1, "daemon on; pid no/such/folder.pid;", http);
    let (code, text) = outcome(&site.run(&[]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("folder.pid\" failed (2: No such file or directory)"), "{text}");
    assert!(!site.prefix().join("s.sock").exists());
}

#[test]
fn a_second_start_tells_of_the_server_that_runs() {
    let weir = site(1, "pid logs/weir.pid;", SERVER).allow("").start();
    let mut second = Command::new(BINARY);
    second.arg("-p").arg(weir.prefix()).args(["-c", "conf/weir.conf", "-g", "daemon off;"]);
    let (code, text) = outcome(&second.output().unwrap());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("still could not bind()"), "{text}");
    let pid = std::fs::read_to_string(weir.prefix().join("logs/weir.pid")).unwrap();
    let told = format!("a server runs already, process {} of ", pid.trim());
    assert!(text.contains(&told) && text.contains("\"weir reload\""), "{text}");
}

#[test]
fn every_command_tells_how_it_is_used() {
    for command in ["serve", "lint", "config", "completions", "man", "dump-directives"] {
        for help in ["--help", "-h"] {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
                .args([command, help])
                .output()
                .expect("run weir");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{command} {help}");
            assert!(text.contains(&format!("\nUsage: weir {command}")), "{text}");
        }
    }
}

#[test]
fn what_is_wrong_is_said_in_nginx_s_words() {
    let a = "listen 127.0.0.1:1";
    let of_two = |one: &str, two: &str| format!("server {{ {a} {one}; }} server {{ {a} {two}; }}");
    let options = "duplicate listen options for 127.0.0.1:1 in ";
    let duplicate = |address: &str| format!("a duplicate listen {address} in ");
    for (http, want) in [
        (of_two("backlog=5", "backlog=5"), options.to_owned()),
        (of_two("reuseport", "reuseport"), options.to_owned()),
        (of_two("rcvbuf=1k", "sndbuf=1k"), options.to_owned()),
        (format!("server {{ {a}; {a}; }}"), duplicate("127.0.0.1:1")),
        ("server { listen 1; listen *:1 backlog=5; }".to_owned(), duplicate("0.0.0.0:1")),
        ("server { listen 1-3; listen 2; }".to_owned(), duplicate("0.0.0.0:2")),
        ("types_hash_max_size 1k;".to_owned(), "directive invalid number in ".to_owned()),
        ("output_buffers a 1k;".to_owned(), "directive invalid value in ".to_owned()),
        ("large_client_header_buffers 1 b;".to_owned(), "directive invalid value in ".to_owned()),
        ("client_body_temp_path a 4;".to_owned(), "directive invalid value in ".to_owned()),
        (
            "request_pool_size 64;".to_owned(),
            "the pool size must be no less than 112 in ".to_owned(),
        ),
        (
            "request_pool_size 120;".to_owned(),
            "the pool size must be a multiple of 16 in ".to_owned(),
        ),
    ] {
        let (code, text) = outcome(&site(1, "", &http).run(&["-t"]));
        assert!(code == Some(1) && text.contains(&want), "{http}: {text}");
    }
    for (one, two) in [("", "backlog=5"), ("backlog=5", ""), ("default_server", "")] {
        assert_eq!(outcome(&site(1, "", &of_two(one, two)).run(&["-t"])).0, Some(0), "{one} {two}");
    }
}

/// The place is that of the block whose settings do not fit together, or of the directive, once.
#[test]
fn messages_have_their_place() {
    let a = "server { listen 127.0.0.1:%PORT0%";
    for (http, want) in [
        (
            format!(
                "{a};\nlocation / {{ proxy_pass http://127.0.0.1:1;\nproxy_buffer_size 64k; }} }}"
            ),
            "\"proxy_buffers\" minus one buffer in %:6\n",
        ),
        (
            format!("fastcgi_buffers 1 4k;\n{a};\nlocation / {{ fastcgi_pass 127.0.0.1:1; }} }}"),
            "at least 2 \"fastcgi_buffers\" in %:7\n",
        ),
        (
            format!(
                "{a};\nlocation / {{ uwsgi_buffers 1 4k;\nif ($uri = /) {{\n\
                 uwsgi_pass 127.0.0.1:1; }} }} }}"
            ),
            "at least 2 \"uwsgi_buffers\" in %:7\n",
        ),
        (
            format!("{a} ssl; }}"),
            "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in %:5\n",
        ),
        (
            "server { listen 127.0.0.1:%PORT0%; server_name a*b; }\n\
             server { listen 127.0.0.1:%PORT0%; server_name b; }"
                .to_owned(),
            "invalid server name or wildcard \"a*b\" on 127.0.0.1:%PORT% in %:5\n",
        ),
    ] {
        let mut site = site(1, "", &http);
        let port = site.port(0).to_string();
        let (code, text) = outcome(&site.run(&["-t"]));
        let file = site.prefix().join("conf/weir.conf").display().to_string();
        let want = want.replace("%PORT%", &port).replace('%', &file);
        assert!(code == Some(1) && text.contains(&want), "{http}: {want} {text}");
    }
}

/// What nginx takes, too: a warning says what it comes to.
#[test]
fn odd_settings_load_with_a_warning() {
    for (http, want) in [
        ("output_buffers 128 512k;", "[warn] \"output_buffers\" are 16m in all at most in "),
        ("output_buffers 1 32m;", "[warn] \"output_buffers\" are 16m in all at most in "),
        ("server_name a*b;", "[warn] no host has the server name \"a*b\" in "),
        ("server_name a..b *.c.*;", "[warn] no host has the server name \"*.c.*\" in "),
    ] {
        let http = format!("server {{ listen 127.0.0.1:%PORT0%; {http} }}");
        let (code, text) = outcome(&site(1, "", &http).run(&["-t"]));
        assert!(code == Some(0) && text.contains(want), "{http}: {text}");
    }
}

#[test]
fn directives_of_other_modules_are_named_with_what_to_use_instead() {
    let lua = "location / { content_by_lua_block {\n -- don't\n ngx.say(\"}\") } }";
    for (http, want) in [
        (format!("server {{ {lua} }}"), "directive \"content_by_lua_block\" of lua-nginx-module"),
        ("vhost_traffic_status_zone;".into(), "of nginx-module-vts is not built in: use api, "),
        ("server { fancyindex on; }".into(), "of ngx-fancyindex is not built in: use autoindex"),
        ("server { ssl on; }".into(), "of nginx before 1.25.1 is not built in: use listen"),
        (
            "upstream u { fair; }".into(),
            "\"fair\" of nginx-upstream-fair is not built in: use least_conn",
        ),
        ("server { location / { perl x; } }".into(), "of weir: use map and rewrite"),
        (
            "proxy_cache_path c keys_zone=z:1m; server { proxy_cache_purge z $uri; }".into(),
            "\"proxy_cache_purge\" directive is not that of ngx_cache_purge: use a variable",
        ),
    ] {
        let site = site(1, "", &http);
        let (code, text) = outcome(&site.run(&["-t"]));
        assert!(code == Some(1) && text.contains(want), "{http}: {text}");
        let file = site.prefix().join("conf/weir.conf");
        assert!(text.contains(&format!(" in {}:5\n", file.display())), "{text}");
        assert!(!text.contains("did you mean"), "{text}");
    }
}

/// Distributions load modules by the dozen (`modules-enabled` of Debian): only their directives are
/// missing.
#[test]
fn modules_that_are_loaded_and_not_used_are_warned_of() {
    let load = |name: &str| format!("load_module modules/ngx_{name}_module.so;");
    for (name, http, wanted) in [
        (
            "http_lua",
            "",
            Some(
                "[warn] module \"http_lua\" is not built in: its directives are \
            unknown; in their place use map, split_clients, ",
            ),
        ),
        ("http_dav_ext", "", Some("[warn] module \"http_dav_ext\" is not built in")),
        (
            "http_made_up",
            "",
            Some(
                "[warn] module \"http_made_up\" is not built in: its directives \
            are unknown in ",
            ),
        ),
        ("http_xslt_filter", "", None),
        ("http_brotli_static", "brotli_static on;", None),
        ("http_brotli_filter", "brotli on;", None),
        ("http_zstd_static", "zstd_static on;", None),
        ("http_zstd_filter", "zstd on;", None),
        ("stream_geoip2", "", None),
    ] {
        let http = format!("{http} {SERVER}");
        let (code, text) = outcome(&site(1, &load(name), &http).run(&["-t"]));
        assert_eq!(code, Some(0), "{name}: {text}");
        match wanted {
            Some(wanted) => assert!(text.contains(wanted), "{name}: {text}"),
            None => assert!(!text.contains("[warn]"), "{name}: {text}"),
        }
    }
    let used = format!("echo_status 200; {SERVER}");
    let (code, text) = outcome(&site(1, &load("http_echo"), &used).run(&["-t"]));
    let wanted = "\"echo_status\" directive of echo-nginx-module";
    assert!(code == Some(1) && text.contains("echo-nginx-module"), "{wanted}: {text}");
}

/// Seeding from the jitter of the processor's clock takes 60 ms, on the loop of each worker.
#[test]
fn random_numbers_are_seeded_by_the_kernel_alone() {
    let program = std::fs::read(BINARY).unwrap();
    let has = |name: &str| memchr::memmem::find(&program, name.as_bytes()).is_some();
    assert!(has("CTR_DRBG_generate"), "the program has no symbols");
    assert!(!has("jent_read_entropy"), "built without the settings of .cargo/config.toml");
}

#[test]
fn a_signal_is_not_sent_to_another_program() {
    let site = site(1, "pid logs/weir.pid;", SERVER);
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = other.id();
    std::fs::write(site.prefix().join("logs/weir.pid"), format!("{pid}\n")).unwrap();
    let (code, text) = outcome(&site.run(&["-s", "stop"]));
    let alive = other.try_wait().unwrap().is_none();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(code, Some(1));
    let told = std::fs::read_to_string(site.prefix().join("logs/error.log")).unwrap();
    let line = "weir.pid\" is \"sleep\", and no server";
    assert!(told.contains(line), "{told} {text}");
    assert!(alive);
}
