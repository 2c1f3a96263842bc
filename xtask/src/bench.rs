//! Builds the measured programs in release, then hands over to `lab/bench/`.

use crate::workspace::Workspace;
use crate::{Findings, run};

/// Runs the benchmarks with the arguments as they are.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let one = |e: String| vec![e];
    let mut build = vec!["build", "--release", "--quiet", "--bins"];
    build.extend(["--package", "weir", "--package", "weir-bench"]);
    build.extend(["--package", "weir-bench-tools"]);
    run::run(ws, "cargo", &build).map_err(one)?;
    if args.iter().any(|load| load == "modules-off") {
        let mut counted = vec!["build", "--release", "--quiet", "--package", "weir"];
        counted.extend(["--package", "weir-cli", "--bins", "--example", "few"]);
        counted.extend(["--features", "weir/valgrind"]);
        counted.extend(["--target-dir", "target/counted"]);
        run::run(ws, "cargo", &counted).map_err(one)?;
    }
    let mut command = vec!["run", "--release", "--quiet", "--package", "weir-bench", "--bin"];
    command.extend(["bench", "--"]);
    command.extend(args.iter().map(String::as_str));
    run::run(ws, "cargo", &command).map_err(one)
}
