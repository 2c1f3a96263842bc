//! nginx-s3-gateway: its templates filled in as its container does, its own tests of the gateway
//! and of its modules, and a server of S3 that checks the signatures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::{Folder, built_binary, wait_until};

use super::{Server, in_namespaces, projects, run};

const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/script_projects/s3.mjs");
const TYPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf/mime.types");

/// Settings that its container has by default, and what its own test sets.
const SETTINGS: &[(&str, &str)] = &[
    ("PROXY_CACHE_MAX_SIZE", "10g"),
    ("PROXY_CACHE_INACTIVE", "60m"),
    ("PROXY_CACHE_SLICE_SIZE", "1m"),
    ("PROXY_CACHE_VALID_OK", "1h"),
    ("PROXY_CACHE_VALID_NOTFOUND", "1m"),
    ("PROXY_CACHE_VALID_FORBIDDEN", "30s"),
    ("CORS_ENABLED", "0"),
    ("CORS_ALLOWED_ORIGIN", "*"),
    ("CORS_ALLOW_PRIVATE_NETWORK_ACCESS", ""),
    ("DIRECTORY_LISTING_PATH_PREFIX", ""),
    ("LIMIT_METHODS_TO", "GET HEAD"),
    ("LIMIT_METHODS_TO_CSV", "GET, HEAD"),
    ("DNS_RESOLVERS", "127.0.0.1"),
    ("AWS_ACCESS_KEY_ID", "S3RVER"),
    ("AWS_SECRET_ACCESS_KEY", "S3RVER"),
    ("S3_BUCKET_NAME", "bucket-1"),
    ("S3_SERVER", "s3.test"),
    ("S3_SERVER_PORT", "9090"),
    ("S3_SERVER_PROTO", "http"),
    ("S3_STYLE", "virtual-v2"),
    ("S3_UPSTREAM", "bucket-1.s3.test:9090"),
    ("S3_HOST_HEADER", "bucket-1.s3.test:9090"),
    ("S3_REGION", "us-east-1"),
    ("S3_SERVICE", "s3"),
    ("DEBUG", "true"),
    ("HEADER_PREFIXES_TO_STRIP", "x-goog-;x-something-secret-"),
];

/// Signature, listing, index page, slash, stripped and added folder, as its own test has them.
const RUNS: &[[&str; 6]] = &[
    ["2", "0", "0", "0", "", ""],
    ["2", "1", "0", "0", "", ""],
    ["2", "0", "1", "0", "", ""],
    ["2", "1", "1", "1", "", ""],
    ["4", "0", "0", "0", "", ""],
    ["4", "1", "0", "1", "", ""],
    ["4", "0", "1", "1", "", ""],
    ["2", "0", "0", "0", "/my-bucket", ""],
    ["4", "0", "0", "0", "", "/b"],
    ["4", "0", "0", "0", "/tostrip", "/b"],
    ["2", "0", "0", "0", "", "/b"],
];

/// `envsubst`: names in the environment are replaced, as `$NAME` and `${NAME}`.
fn filled(template: &str, env: &[(&str, &str)]) -> String {
    let mut text = template.to_owned();
    // Names that begin with others go first.
    let mut env = env.to_vec();
    env.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    for (name, value) in env {
        text = text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value);
    }
    text
}

/// Fills the templates below a folder in, and gives files of the same names elsewhere.
fn fill(from: &Path, to: &Path, env: &[(&str, &str)]) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() {
            fill(&path, &to.join(name), env);
        } else if let Some(name) = name.strip_suffix(".template") {
            fs::create_dir_all(to).unwrap();
            let text = filled(&fs::read_to_string(&path).unwrap(), env);
            fs::write(to.join(name), text).unwrap();
        }
    }
}

/// The server of S3.
struct S3 {
    process: Child,
    output: PathBuf,
}

impl S3 {
    fn start(modules: &Path, data: &Path, folder: &Path) -> S3 {
        let (store, output) = (folder.join("store"), folder.join("s3.log"));
        fs::create_dir(&store).unwrap();
        let mut command = Command::new("node");
        command.arg(DRIVER).arg(modules).arg("9090").arg(data).arg(store);
        let file = fs::File::create(&output).unwrap();
        command.stdin(Stdio::null()).stderr(file.try_clone().unwrap()).stdout(file);
        let mut s3 = S3 { process: command.spawn().unwrap(), output };
        wait_until("the server of S3 is ready", || {
            assert!(s3.process.try_wait().unwrap().is_none(), "{}", s3.log());
            s3.log().contains("ready\n")
        });
        s3
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The gateway with one set of options, under its own test.
fn checked(project: &Path, data: &Path, s3: &S3, options: &[&str; 6]) {
    let [version, listing, index, slash, stripped, prefix] = *options;
    let mut env = SETTINGS.to_vec();
    env.extend([
        ("AWS_SIGS_VERSION", version),
        ("ALLOW_DIRECTORY_LIST", listing),
        ("PROVIDE_INDEX_PAGE", index),
        ("APPEND_SLASH_FOR_POSSIBLE_DIRECTORY", slash),
        ("STRIP_LEADING_DIRECTORY_PATH", stripped),
        ("PREFIX_LEADING_DIRECTORY_PATH", prefix),
    ]);
    let etc = Path::new("/etc/nginx");
    run(Command::new("sh").args(["-c", "rm -rf /etc/nginx/* /var/cache/nginx/*"]));
    for part in ["common", "oss"] {
        let from = project.join(part).join("etc/nginx");
        run(Command::new("cp").arg("-aT").arg(&from).arg(etc));
    }
    fs::copy(TYPES, etc.join("mime.types")).unwrap();
    fill(&etc.join("templates"), &etc.join("conf.d"), &env);
    let folder = Folder::new("gateway");
    let before = s3.log().len();
    let server = Server::start(&etc.join("nginx.conf"), &env, &folder, 80);
    let mut test = Command::new("bash");
    test.arg(project.join("test/integration/test_api.sh")).arg("http://localhost");
    test.arg(data).args(options);
    let output = test.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let asked = s3.log().split_off(before);
    assert!(output.status.success(), "{options:?}\n{said}\n{asked}\n{}", server.log());
    let kind = if version == "2" { "AWS" } else { "AWS4-HMAC-SHA256" };
    let served = asked.lines().filter(|line| line.split(' ').nth(1) == Some(kind)).count();
    assert!(served >= 1, "{options:?}: {asked}");
    // With version 2, it signs another resource when it looks for folders, which are not there.
    let refused = |line: &&str| line.starts_with("403 ") && !line.ends_with('/');
    let refused: Vec<_> = asked.lines().filter(refused).collect();
    assert!(refused.is_empty(), "{options:?}: {refused:?}");
}

#[test]
fn nginx_s3_gateway_passes_its_tests() {
    let Some([project, modules]) = projects(["nginx-s3-gateway", "s3rver/node_modules"]) else {
        return;
    };
    in_namespaces("script_projects::s3::nginx_s3_gateway_passes_its_tests", || {
        let folder = Folder::new("s3");
        // Its test writes one file with a name that no Windows has.
        let data = folder.join("test");
        run(Command::new("cp").arg("-a").arg(project.join("test")).arg(&data));
        let text = "We are but selling water next to a river.\n";
        fs::write(data.join("data/bucket-1/a/%@!*()=$#^&|.txt"), text).unwrap();
        let s3 = S3::start(&modules, &data.join("data/bucket-1"), &folder);
        for options in RUNS {
            checked(&project, &data, &s3, options);
        }
    });
}

/// A session's token, which one of its tests needs, and others go with and without.
const TOKENS: &[Option<&str>] = &[None, Some("unit_test")];

#[test]
fn nginx_s3_gateway_passes_its_unit_tests() {
    let Some([project]) = projects(["nginx-s3-gateway"]) else { return };
    let folder = project.join("test/unit");
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
        let is_common = entry.file_name() == "utils_test.js";
        let tokens = if is_common { &TOKENS[1..] } else { TOKENS };
        for token in tokens {
            let mut command = Command::new(built_binary());
            command.arg("js").arg("--path").arg(project.join("common/etc/nginx"));
            command.arg(entry.path()).current_dir(&folder).stdout(Stdio::null());
            for name in
                ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "S3_BUCKET_NAME", "S3_SERVER"]
            {
                command.env(name, "unit_test");
            }
            command.env("AWS_SIGS_VERSION", "4").env("S3_STYLE", "virtual-v2");
            command.env("DEBUG", "true").env("S3_SERVICE", "s3").env("S3_REGION", "test-1");
            command.env("S3_SERVER_PROTO", "https").env("S3_SERVER_PORT", "443");
            match *token {
                Some(token) => command.env("AWS_SESSION_TOKEN", token),
                None => command.env_remove("AWS_SESSION_TOKEN"),
            };
            run(&mut command);
            count += 1;
        }
    }
    assert!(count >= 9, "{count}");
}
