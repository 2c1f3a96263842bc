//! The example configurations of the documentation load, and show every directive.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use conf::table::Contexts;
use testkit::certificates::{Draft, Extension, Key, KeyKind, ListDraft, der};
use testkit::mmdb::{Value, mmdb};
use testkit::{Driver, Site};

const BINARY: &str = env!("CARGO_BIN_EXE_weir");

/// Directives that no configuration which loads can have, each with the reason.
const NOT_SHOWN: &[(&str, &str)] = &[
    ("ssl_engine", "it is refused: there are no engines"),
    ("js_load_http_native_module", "it is refused: scripts load no machine code"),
    ("js_load_stream_native_module", "it is refused: scripts load no machine code"),
];

/// A stylesheet.
const SHEET: &str = "<xsl:stylesheet version=\"1.0\" \
                     xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\"/>";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples")
}

/// The examples with their names, sorted.
fn examples() -> Vec<(String, String)> {
    let entries = fs::read_dir(folder()).expect("read the folder").flatten();
    let is_conf = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|e| e == "conf");
    let mut all: Vec<_> = entries
        .filter(is_conf)
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).expect("read an example");
            (entry.file_name().into_string().expect("a plain name"), text)
        })
        .collect();
    all.sort();
    all
}

/// A folder with the files that examples name.
fn site() -> Site {
    let issuer = "CN=Example authority";
    let authority = Key::generate(KeyKind::P256);
    let own = Draft::new(issuer, issuer, &authority).with(Extension::basic(true, None).critical());
    let pem = |certificate: &[u8]| der::pem("CERTIFICATE", certificate);
    let list = der::pem("X509 CRL", &ListDraft::new(issuer).sign(&authority));
    let group = der::sequence(&[&der::element(2, &[0x7f; 256]), &der::element(2, &[2])]);
    let mut site = Site::new(BINARY, Driver::usual())
        .file("logs/made", "")
        .file("conf/tls/ca.crt", pem(&own.sign(&authority)))
        .file("conf/tls/hashed/5ed36f99.0", pem(&own.sign(&authority)))
        .file("conf/tls/ca.crl", list)
        .file("conf/tls/passwords", "secret\n")
        .file("conf/tls/ticket.key", [7; 80])
        .file("conf/tls/dhparam.pem", der::pem("DH PARAMETERS", &group))
        // A response of OCSP that says "try later".
        .file("conf/tls/ocsp.der", [0x30, 3, 0x0a, 1, 3])
        .file("conf/keys.json", "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\"}")
        .file("conf/entities.dtd", "<!ENTITY nbsp \"&#160;\">\n")
        .file("conf/articles.xsl", SHEET)
        .file("conf/layout.xsl", SHEET)
        .file("conf/listing.xsl", include_str!("../../../../docs/examples/listing.xsl"))
        .file("conf/scripts.js", include_str!("../../../../docs/examples/scripts.js"))
        .file("conf/stream-scripts.js", include_str!("../../../../docs/examples/stream-scripts.js"))
        .file("conf/texts.json", include_str!("../../../../docs/examples/texts.json"))
        .file("conf/mime.types", include_str!("../../../../conf/mime.types"));
    for name in ["example.com", "client"] {
        let key = Key::generate(KeyKind::P256);
        let alt = Extension::alt_names(&[(0x82, name.as_bytes())]);
        let draft = Draft::new(&format!("CN={name}"), issuer, &key).with(alt);
        site = site
            .file(&format!("conf/tls/{name}.crt"), pem(&draft.sign(&authority)))
            .file(&format!("conf/tls/{name}.key"), key.pem());
    }
    for (file, kind) in [("city", "GeoLite2-City"), ("asn", "GeoLite2-ASN")] {
        let record = Value::Map(vec![]);
        site = site.file(&format!("geo/{file}.mmdb"), mmdb(kind, [192, 0, 2, 1], &record));
    }
    site
}

#[test]
fn examples_load() {
    let mut site = site();
    let all = examples();
    assert!(all.len() >= 20, "{} examples", all.len());
    for (name, text) in all {
        let file = format!("conf/{name}");
        site = site.file(&file, &text);
        let output = site.run(&["-t", "-q", "-e", "stderr", "-c", &file]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {told}");
    }
}

/// The words of an example: names and values, `;`, `{` and `}`.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => 2 + rest[1..].find(first).expect("it is closed"),
            ';' | '{' | '}' => 1,
            _ => rest
                .find(|c: char| c == ';' || c.is_whitespace())
                .expect("a directive ends with a semicolon"),
        };
        if first != '#' {
            words.push(rest[..length].to_owned());
        }
        rest = rest[length..].trim_start();
    }
    words
}

/// The directives of an example with the contexts that they stand in.
fn shown(text: &str, found: &mut HashSet<(String, Contexts)>) {
    let mut contexts = vec![Some(Contexts::MAIN)];
    let mut directive: Option<String> = None;
    for word in words(text) {
        let context = *contexts.last().expect("blocks are balanced");
        match word.as_str() {
            ";" | "{" => {
                let name = directive.take().expect("a directive has a name");
                if word == "{" {
                    contexts.push(context.and_then(|context| context.inside(&name)));
                }
                found.extend(context.map(|context| (name, context)));
            }
            "}" => drop(contexts.pop()),
            _ => {
                directive.get_or_insert(word);
            }
        }
    }
    assert_eq!(contexts, [Some(Contexts::MAIN)], "blocks are balanced");
}

#[test]
fn every_directive_is_shown() {
    let output = Command::new(BINARY).arg("dump-directives").output().expect("run weir");
    let dump = String::from_utf8(output.stdout).expect("text");
    let mut found = HashSet::new();
    for (_, text) in examples() {
        shown(&text, &mut found);
    }
    let mut missing = Vec::new();
    for line in dump.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let (name, contexts, module) = (fields[0], fields[1], fields[5]);
        let places = || contexts.split(' ').filter_map(Contexts::of_word);
        let fits = |(n, context): &(String, Contexts)| {
            n == name && places().any(|place| place.intersects(*context))
        };
        let shown = found.iter().any(fits);
        let excepted = NOT_SHOWN.iter().any(|(n, _)| *n == name);
        assert!(!(shown && excepted), "{name} is shown, and need not be excepted");
        if !shown && !excepted {
            missing.push(format!("{name} of {module} in one of: {contexts}"));
        }
    }
    assert!(dump.lines().count() > 700, "{dump}");
    assert!(missing.is_empty(), "no example in docs/examples has:\n{}", missing.join("\n"));
}
