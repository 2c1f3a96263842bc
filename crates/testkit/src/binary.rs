//! The server's binary, for the tests that start it.

use std::path::{Path, PathBuf};

/// The program `weir` in the folder above the running test's: for `target/debug/deps/http-1a2b` it
/// is `target/debug/weir`.
///
/// Cargo builds it before the tests of the package `weir`, because it is that package's own binary.
/// Elsewhere nobody builds it, so tests that start the server belong in `crates/weir/tests`.
///
/// # Panics
/// If there is no such program, with the command that builds it.
pub fn built_binary() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the running test");
    let profile = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    let binary = profile.join("weir");
    assert!(
        binary.exists(),
        "{} is not built. Tests of the package weir have it built by cargo; before others: \
         cargo build -p weir, with this profile and target folder",
        binary.display()
    );
    binary
}
