//! Starting other programs.

use std::process::{Command, Stdio};

use crate::workspace::Workspace;

/// Runs a program in the workspace's root with its output on ours; the error names the command.
pub fn run(ws: &Workspace, program: &str, args: &[&str]) -> Result<(), String> {
    let shown = format!("{program} {}", args.join(" "));
    let status = Command::new(program)
        .args(args)
        .current_dir(ws.root())
        .status()
        .map_err(|e| format!("cannot run {shown}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

/// Runs a program in the workspace's root and returns its output.
pub fn output(ws: &Workspace, program: &str, args: &[&str]) -> Result<String, String> {
    let shown = format!("{program} {}", args.join(" "));
    let out = Command::new(program)
        .args(args)
        .current_dir(ws.root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cannot run {shown}: {e}"))?;
    if !out.status.success() {
        return Err(format!("{shown}: {}", out.status));
    }
    String::from_utf8(out.stdout).map_err(|_| format!("{shown}: its output is not UTF-8"))
}

/// Whether `program args` starts and ends well; its output is dropped.
pub fn succeeds(ws: &Workspace, program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .current_dir(ws.root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}
