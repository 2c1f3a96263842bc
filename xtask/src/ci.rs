//! Everything a change has to pass, the quickest first.

use std::time::Instant;

use crate::workspace::Workspace;
use crate::{Findings, circles, directives, licences, run, sbom, site, testing, tidy, tiers};

/// The compiler release whose lints and formatting the tree is clean under. Another release may
/// know new lints: there they are shown, but do not fail.
const TOOLCHAIN: &str = "1.95";

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
    ("kube", |ws, exact| kube(ws, exact, &["--package", "weir-kube-render"])),
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
    findings.extend(testing::run(ws, &args).err().into_iter().flatten());
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

/// The modules of `modules/`, built as their authors would: outside of this workspace, against the
/// interface. The server that `weir build` makes of them is a test of the last one, which takes the
/// program `weir` from the common folder: cargo does not build it for another workspace.
fn modules(ws: &Workspace, exact: bool) -> Findings {
    let folder = ws.root().join("modules");
    // The versions that the project itself was tested with.
    let lock = folder.join("Cargo.lock");
    if !lock.exists() {
        std::fs::copy(ws.root().join("Cargo.lock"), &lock).map_err(|e| vec![e.to_string()])?;
    }
    let manifest = folder.join("Cargo.toml").display().to_string();
    // The project's own: the libraries of others are compiled once for all.
    let target = ws.root().join("target").display().to_string();
    let of = |command: &'static str| [command, "--manifest-path", &manifest];
    let target = ["--target-dir", &target];
    cargo(ws, &[&["build", "--quiet", "--package", "weir"][..], &target].concat())?;
    let lints: &[&str] = if exact { &["--", "-D", "warnings"] } else { &[] };
    with_tool(ws, exact, "rustfmt", &[&of("fmt")[..], &["--all", "--check"]].concat())?;
    let clippy = [&of("clippy")[..], &["--workspace"], &target, lints].concat();
    with_tool(ws, exact, "clippy", &clippy)?;
    let tests = ["--no-doc", "--", "--manifest-path", &manifest, "--workspace"];
    let tests = tests.iter().chain(&target).map(|arg| (*arg).to_owned());
    testing::run(ws, &tests.collect::<Vec<_>>())
}

/// The Kubernetes controller, a workspace of its own. Its tests start the server that was built
/// before, from the common folder.
fn kube(ws: &Workspace, exact: bool, packages: &[&str]) -> Findings {
    let manifest = ws.root().join("kube/Cargo.toml").display().to_string();
    let target = ws.root().join("target").display().to_string();
    let common = ["--manifest-path", &manifest, "--target-dir", &target];
    let format = ["fmt", "--manifest-path", &manifest, "--all", "--check"];
    with_tool(ws, exact, "rustfmt", &format)?;
    let lints: &[&str] = if exact { &["--", "-D", "warnings"] } else { &[] };
    let clippy = [&["clippy", "--quiet", "--all-targets"], &common[..], packages, lints].concat();
    with_tool(ws, exact, "clippy", &clippy)?;
    let tests = ["--no-doc", "--", "--locked"].iter().chain(&common).chain(packages);
    testing::run(ws, &tests.map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
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
