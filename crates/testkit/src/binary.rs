//! The server's binary, for tests outside of its own crate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The binary beside the running test, `target/PROFILE/weir`, built again where a source is newer.
///
/// Cargo gives the path of a binary (`CARGO_BIN_EXE_weir`) to tests of the same package alone, and
/// keeps the binary up to date only for those.
pub fn built_binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(find_or_build).clone()
}

fn find_or_build() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the running test");
    let profile = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    let binary = profile.join("weir");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of crates");
    let built = fs::metadata(&binary).and_then(|m| m.modified()).ok();
    if built.is_none_or(|built| built < newest(crates)) {
        build(crates, profile);
    }
    assert!(binary.exists(), "{} is not built: cargo build --bin weir", binary.display());
    binary
}

fn build(folder: &Path, profile: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(folder).args(["build", "--quiet", "--bin", "weir"]);
    // Beside the test, wherever that was built.
    command.args(
        profile
            .parent()
            .map(|target| target.as_os_str())
            .iter()
            .flat_map(|target| [std::ffi::OsStr::new("--target-dir"), target]),
    );
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let status = command.status().expect("cargo runs");
    assert!(status.success(), "cargo build --bin weir: {status}");
}

/// When the youngest source below `folder` was written.
fn newest(folder: &Path) -> SystemTime {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let times = entries.filter_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return Some(newest(&path));
        }
        path.extension().filter(|&e| e == "rs")?;
        entry.metadata().ok()?.modified().ok()
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}
