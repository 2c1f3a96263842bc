//! The tests of the crates that hold `unsafe`, under AddressSanitizer and its leak check.

use std::process::Command;

use crate::Findings;
use crate::workspace::Workspace;

/// The crates that may hold `unsafe` (see the tidy check); `weir-script` with its engine in C.
const CRATES: [&str; 5] = ["weir-event", "weir-os", "weir-mem", "weir-shm", "weir-script"];

/// Sanitizers are still unstable, and wait for a target that is named.
const TOOLCHAIN: &str = "+nightly";

const FLAG: &str = "-Zsanitizer=address";

/// The same for code in C, by GCC or Clang: its checks call the runtime that rustc links.
const C_FLAG: &str = "-fsanitize=address -fno-omit-frame-pointer";

/// `asan [PACKAGE...]`: all tests of these packages, or of those with `unsafe`.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let target = host().map_err(|e| vec![e])?;
    let chosen: Vec<&str> =
        if args.is_empty() { CRATES.to_vec() } else { args.iter().map(String::as_str).collect() };
    let mut command = Command::new("cargo");
    command
        .args([TOOLCHAIN, "test", "--no-fail-fast", "--target", &target])
        .args(chosen.iter().flat_map(|package| ["--package", package]))
        .env("RUSTFLAGS", FLAG)
        .env("RUSTDOCFLAGS", FLAG)
        .env(format!("CFLAGS_{}", target.replace('-', "_")), C_FLAG)
        // Its artifacts are useless to other builds.
        .env("CARGO_TARGET_DIR", ws.root().join("target/asan"))
        .current_dir(ws.root());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(vec![format!("cargo {TOOLCHAIN} test under AddressSanitizer: {status}")]),
        Err(e) => Err(vec![format!("cannot run cargo: {e}")]),
    }
}

/// The triple of this machine, as the compiler names it.
fn host() -> Result<String, String> {
    let out = Command::new("rustc")
        .args([TOOLCHAIN, "-vV"])
        .output()
        .map_err(|e| format!("cannot run rustc: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| "asan wants a nightly compiler: rustup toolchain install nightly".to_owned())
}
