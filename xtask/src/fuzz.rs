//! Fuzzing by one command: see `lab/fuzz/README.md`.

use std::fs;
use std::process::Command;

use crate::Findings;
use crate::workspace::Workspace;

/// Seconds for a target by default.
const SECONDS_DEFAULT: &str = "60";

/// `fuzz TARGET [[--seconds] SECONDS]`; `all` runs each target for that long.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let targets = targets(ws).map_err(|e| vec![e])?;
    let (chosen, seconds) = match args {
        [target] => (target, SECONDS_DEFAULT),
        [target, seconds] => (target, seconds.as_str()),
        [target, option, seconds] if option == "--seconds" => (target, seconds.as_str()),
        _ => return Err(vec![format!("targets: all, {}", targets.join(", "))]),
    };
    if seconds.parse::<u32>().is_err() {
        return Err(vec![format!("\"{seconds}\" is no number of seconds")]);
    }
    let chosen: Vec<_> =
        targets.iter().filter(|target| chosen == "all" || *target == chosen).collect();
    if chosen.is_empty() {
        return Err(vec![format!("targets: all, {}", targets.join(", "))]);
    }
    let findings: Vec<_> =
        chosen.iter().filter_map(|target| fuzz(ws, target, seconds).err()).collect();
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

/// The targets, from the names of their binaries.
fn targets(ws: &Workspace) -> Result<Vec<String>, String> {
    let files = ws.files()?;
    let names = files.iter().filter_map(|file| file.strip_prefix("lab/fuzz/src/bin/"));
    Ok(names.filter_map(|name| name.strip_suffix(".rs")).map(str::to_owned).collect())
}

fn fuzz(ws: &Workspace, target: &str, seconds: &str) -> Result<(), String> {
    let directory = ws.root().join("lab/fuzz");
    for kind in ["corpus", "artifacts"] {
        let path = directory.join(kind).join(target);
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    println!("== {target}, {seconds} s");
    // Cargo reads the instrumentation's flags from the directory it is run in.
    let mut command = Command::new("cargo");
    command
        .current_dir(&directory)
        .args(["run", "--quiet", "--release", "--bin", target, "--"])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix=artifacts/{target}/"))
        .args(["-timeout=10", "-print_final_stats=1"]);
    let dictionary = format!("dictionaries/{target}.dict");
    if directory.join(&dictionary).is_file() {
        command.arg(format!("-dict={dictionary}"));
    }
    command.arg(format!("corpus/{target}"));
    let seeds = format!("seeds/{target}");
    if directory.join(&seeds).is_dir() {
        command.arg(seeds);
    }
    let status = command.status().map_err(|e| format!("cannot run cargo: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{target}: {status}; the input is in lab/fuzz/artifacts/{target}"))
    }
}
