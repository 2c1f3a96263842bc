//! Bad values of every directive that both have: nginx and weir refuse the same ones, in the same
//! words, or there is a reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::options::Options;

/// nginx's directives with their places.
const FACTS: &str = include_str!("../../../crates/conf/src/known.tsv");

/// The arguments behind each name: none, too many, and values that are wrong for a number, a size,
/// a time, a flag, a word or a pair of them; a name twice.
const VALUES: &[&str] = &[
    "",
    "abc",
    "-1",
    "0",
    "1x",
    "99999999999999999999",
    "\"\"",
    "10k",
    "5s",
    "on",
    "off",
    "/x",
    "a=b",
    "1k",
    "a b",
    "1 2",
    "1 x",
    "x=1 y",
    "0 0",
    "1 1k",
    "10m x=-1",
    "a b c d e f g h i",
];

/// The contexts of directives, with the text around them; the first that both have is taken.
const PLACES: &[(&str, &str, &str)] = &[
    ("main", "", "events {}"),
    ("events", "events {", "}"),
    ("http", "events {} http {", "}"),
    ("server", "events {} http { server {", "} }"),
    ("location", "events {} http { server { location / {", "} } }"),
    ("upstream", "events {} http { upstream u {", "} }"),
];

/// Directives that differ, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("aio", "`on` means threads"),
    ("directio_alignment", "other alignments fail at run time"),
    ("fastcgi_cache", "a zone without a path is told where a location uses it"),
    ("gzip_comp_level", "takes levels of other codings"),
    ("keepalive", "takes `shared`, and 0 for none"),
    ("listen", "a number that is no port is told to be one"),
    ("load_module", "modules are built in, and none is loaded at run time"),
    ("modern_browser", "nginx 1.22 crashes"),
    ("pid", "nginx takes an empty name for none"),
    ("proxy_cache", "a zone without a path is told where a location uses it"),
    ("resolver", "stands in `upstream` since nginx 1.27; a path is no host that is looked for"),
    ("scgi_cache", "a zone without a path is told where a location uses it"),
    ("uwsgi_cache", "a zone without a path is told where a location uses it"),
    ("variables_hash_bucket_size", "0 is too small for a table of nginx's alone"),
    ("variables_hash_max_size", "0 is too small for a table of nginx's alone"),
    ("worker_connections", "the words about 0 name no number of sockets, and the line"),
];

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    let folder = std::env::temp_dir().join(format!("weir-messages-{}", std::process::id()));
    fs::create_dir_all(folder.join("logs")).map_err(|e| e.to_string())?;
    let done = compare(options, &folder);
    let _ = fs::remove_dir_all(&folder);
    done
}

fn compare(options: &Options, folder: &Path) -> Outcome {
    let (mut compared, mut allowed, mut different) = (0, BTreeSet::new(), 0);
    for (name, before, after) in shared(&options.weir)? {
        for value in VALUES {
            let text = format!("{before} {name} {value}; {after}\n");
            let nginx = told(&options.nginx, folder, &text)?;
            if nginx.contains(&format!("unknown directive \"{name}\"")) {
                break;
            }
            let weir = told(&options.weir, folder, &text)?;
            compared += 1;
            if nginx == weir || placed_better(&nginx, &weir) {
                continue;
            }
            if ALLOWED.iter().any(|(allowed, _)| *allowed == name) {
                allowed.insert(name);
                continue;
            }
            different += 1;
            println!("{name} {value}\n  nginx: {nginx}\n  weir:  {weir}");
        }
    }
    println!("{compared} configurations; directives that differ for a reason:");
    for (name, why) in ALLOWED.iter().filter(|(name, _)| allowed.contains(name)) {
        println!("  {name}: {why}");
    }
    match different {
        0 => Ok(()),
        n => Err(format!("{n} differ without a reason")),
    }
}

/// Directives that both have, with the text around them.
fn shared(weir: &PathBuf) -> Outcome<Vec<(&'static str, &'static str, &'static str)>> {
    let dump = Command::new(weir).arg("dump-directives").output();
    let dump = dump.map_err(|e| format!("{}: {e}", weir.display()))?;
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    let mut found: Vec<(&str, &str, &str)> = Vec::new();
    for line in FACTS.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [_, name, places, args, ..] = *fields.as_slice() else { continue };
        if args.contains("block") || found.iter().any(|(known, ..)| *known == name) {
            continue;
        }
        let ours = |place: &str| {
            let mut lines = dump.lines().filter(|l| l.split('\t').next() == Some(name));
            lines.any(|l| l.split('\t').nth(1).is_some_and(|p| p.split(' ').any(|p| p == place)))
        };
        let both = |place: &str| places.split(' ').any(|p| p == place) && ours(place);
        if let Some((_, before, after)) = PLACES.iter().find(|(place, ..)| both(place)) {
            found.push((name, before, after));
        }
    }
    Ok(found)
}

/// The messages of `-t`: the emergencies, without times and the program's name.
fn told(binary: &Path, folder: &Path, text: &str) -> Outcome<String> {
    fs::write(folder.join("c.conf"), text).map_err(|e| e.to_string())?;
    let mut output = Command::new(binary);
    output.arg("-t").arg("-p").arg(folder).args(["-c", "c.conf"]);
    let output = output.output().map_err(|e| format!("{}: {e}", binary.display()))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = text.lines().filter_map(|line| {
        let (_, message) = line.split_once("[emerg] ")?;
        // A process's number, where the log's own form is used.
        let rest = message
            .split_once(": ")
            .filter(|(ids, _)| ids.bytes().all(|b| b.is_ascii_digit() || b == b'#'));
        Some(rest.map_or(message, |(_, rest)| rest))
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Whether weir's message is the same but with a place that nginx does not give.
fn placed_better(nginx: &str, weir: &str) -> bool {
    !nginx.is_empty() && weir.strip_prefix(nginx).is_some_and(|place| place.starts_with(" in "))
}
