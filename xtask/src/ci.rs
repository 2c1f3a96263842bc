//! Everything a change has to pass, the quickest first.

use std::time::Instant;

use crate::workspace::Workspace;
use crate::{Findings, circles, directives, licences, run, sbom, site, testing, tidy, tiers};

/// The compiler release whose lints and formatting the tree is clean under. Another release may
/// know new lints: there they are shown, but do not fail.
const TOOLCHAIN: &str = "1.95";

/// The part of the Kubernetes controller that every run tests.
const RENDERER: &[&str] = &["--package", "weir-kube-render"];

type Step = fn(&Workspace, bool) -> Findings;

/// The steps before the tests, with their names.
const STEPS: &[(&str, Step)] = &[
    ("format", |ws, exact| with_tool(ws, exact, "rustfmt", &["fmt", "--all", "--check"])),
    ("tiers", |ws, _| tiers::run(ws)),
    ("circles", |ws, _| circles::check(ws)),
    ("tidy", |ws, _| tidy::run(ws, &[])),
    ("site", |ws, _| site::run(ws, &[])),
    ("lints", lints),
    ("licences", |ws, _| licences::run(ws, &[])),
    ("sbom", |ws, _| sbom::run(ws, &["target/weir.cdx.json".to_owned()])),
    // Of the product and of all tests, in one go: the steps that follow find it done.
    ("build", |ws, _| testing::build(ws)),
    ("directives", |ws, _| directives::run(ws, &["--check".to_owned()])),
    ("modules", modules),
    ("fuzz targets", |ws, _| fuzz_targets(ws)),
    ("kube", |ws, exact| kube(ws, exact, RENDERER)),
];

/// Runs all steps, also when one fails: a long line should not hide a failing test. The arguments
/// are those of the tests, which come last, because their summary is the end of the output.
///
/// `--kube` also builds and tests the Kubernetes controller itself, whose client library takes as
/// long to build as a good part of the server: every run tests its renderer, which decides all.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let (whole, args): (Vec<String>, Vec<String>) =
        args.iter().cloned().partition(|arg| arg == "--kube");
    let version = run::output(ws, "rustc", &["--version"]).map_err(|e| vec![e])?;
    let exact = version.contains(&format!(" {TOOLCHAIN}."));
    if !exact {
        println!(
            "== {} is not {TOOLCHAIN}: lints and format inform, but do not fail",
            version.trim()
        );
    }
    let mut findings = Vec::new();
    for (name, step) in STEPS {
        let began = Instant::now();
        println!("== {name}");
        match step(ws, exact) {
            Ok(()) => println!("== {name}: fine ({:.1} s)", began.elapsed().as_secs_f64()),
            Err(more) => {
                println!("== {name}: {} finding(s), listed at the end", more.len());
                findings.extend(more);
            }
        }
    }
    if !whole.is_empty() {
        println!("== kube, whole");
        findings.extend(kube(ws, exact, &["--workspace"]).err().into_iter().flatten());
    }
    println!("== tests");
    let of_kube = if whole.is_empty() { RENDERER } else { &["--workspace"] };
    let others = [
        cargo_arguments(ws, "modules", &["--workspace"]),
        cargo_arguments(ws, "kube", &[&["--locked"], of_kube].concat()),
    ];
    findings.extend(testing::with_others(ws, &args, &others).err().into_iter().flatten());
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn cargo(ws: &Workspace, args: &[&str]) -> Findings {
    run::run(ws, "cargo", args).map_err(|e| vec![e])
}

/// Runs a cargo command whose tool may be missing, and counts its failure only under the
/// toolchain the tree was made with.
fn with_tool(ws: &Workspace, exact: bool, tool: &str, args: &[&str]) -> Findings {
    if !run::succeeds(ws, "cargo", &[args[0], "--version"]) {
        println!("== {tool} is not installed: left out");
        return Ok(());
    }
    match cargo(ws, args) {
        Err(findings) if !exact => {
            println!("== not counted: {}", findings.join("; "));
            Ok(())
        }
        other => other,
    }
}

/// The arguments that choose another workspace of the repository, with the folder that the
/// project's own has: the libraries of others are compiled once for all.
fn of_workspace(ws: &Workspace, name: &str) -> [String; 4] {
    let manifest = ws.root().join(name).join("Cargo.toml").display().to_string();
    let target = ws.root().join("target").display().to_string();
    ["--manifest-path".to_owned(), manifest, "--target-dir".to_owned(), target]
}

/// The arguments for a build of another workspace's tests.
fn cargo_arguments(ws: &Workspace, name: &str, more: &[&str]) -> Vec<String> {
    of_workspace(ws, name).into_iter().chain(more.iter().map(|arg| (*arg).to_owned())).collect()
}

/// The modules of `modules/`, built as their authors would: outside of this workspace, against the
/// interface. The server that `weir build` makes of them is a test of the last one, which takes the
/// program `weir` from the common folder: cargo does not build it for another workspace.
fn modules(ws: &Workspace, exact: bool) -> Findings {
    // The versions that the project itself was tested with.
    let lock = ws.root().join("modules/Cargo.lock");
    if !lock.exists() {
        std::fs::copy(ws.root().join("Cargo.lock"), &lock).map_err(|e| vec![e.to_string()])?;
    }
    let of = of_workspace(ws, "modules");
    let [manifest, path, target, folder] = of.each_ref().map(String::as_str);
    cargo(ws, &["build", "--quiet", "--package", "weir", target, folder])?;
    with_tool(ws, exact, "rustfmt", &["fmt", manifest, path, "--all", "--check"])?;
    let lints: &[&str] = if exact { &["--", "-D", "warnings"] } else { &[] };
    let clippy = [&["clippy", "--workspace", manifest, path, target, folder], lints].concat();
    with_tool(ws, exact, "clippy", &clippy)
}

/// The Kubernetes controller, a workspace of its own. Its tests start the server that was built
/// before, from the common folder.
fn kube(ws: &Workspace, exact: bool, packages: &[&str]) -> Findings {
    let of = of_workspace(ws, "kube");
    let [manifest, path, target, folder] = of.each_ref().map(String::as_str);
    with_tool(ws, exact, "rustfmt", &["fmt", manifest, path, "--all", "--check"])?;
    let lints: &[&str] = if exact { &["--", "-D", "warnings"] } else { &[] };
    let fixed = ["clippy", "--quiet", "--all-targets", manifest, path, target, folder];
    with_tool(ws, exact, "clippy", &[&fixed, packages, lints].concat())
}

/// Of the tests too, whose programs say where they unwrap and panic: clippy's own settings allow
/// only the test functions themselves.
fn lints(ws: &Workspace, exact: bool) -> Findings {
    let denied = if exact { &["--", "-D", "warnings"][..] } else { &["--"] };
    let all = ["clippy", "--workspace", "--quiet", "--all-targets"];
    with_tool(ws, exact, "clippy", &[&all, denied].concat())
}

/// The code of the fuzz targets, compiled without what needs a C++ compiler: a change of the crates
/// that they use would else be seen when somebody fuzzes next.
fn fuzz_targets(ws: &Workspace) -> Findings {
    let manifest = ["--manifest-path", "lab/fuzz/Cargo.toml", "--target-dir", "target"];
    cargo(ws, &[&["check", "--quiet", "--lib", "--no-default-features"], &manifest[..]].concat())
}
