//! An archive with a program that needs no library: for systems without packages, and for any C
//! library.

use std::fs;
use std::path::{Path, PathBuf};

use super::{apart, compressed, server, tar};
use crate::run;
use crate::workspace::Workspace;

/// Builds the program for release with its C library in it: musl where the toolchain has its
/// standard library, glibc otherwise.
pub fn build(ws: &Workspace, more: &[String]) -> Result<PathBuf, String> {
    let arch = std::env::consts::ARCH;
    let of = |library: &str| format!("{arch}-unknown-linux-{library}");
    let has_std = |triple: &str| {
        let args = ["--print", "target-libdir", "--target", triple];
        let folder = run::output(ws, "rustc", &args).unwrap_or_default();
        Path::new(folder.trim()).is_dir()
    };
    let triple = if has_std(&of("musl")) { of("musl") } else { of("gnu") };
    // By a setting and not by RUSTFLAGS: those of the environment would be lost.
    let flags = format!("target.{triple}.rustflags=[\"-C\",\"target-feature=+crt-static\"]");
    let mut words = vec!["build", "--release", "-p", "weir", "--bin", "weir"];
    words.extend(["--target", &triple, "--config", &flags]);
    words.extend(more.iter().map(String::as_str));
    run::run(ws, "cargo", &words)?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| ws.root().join("target"), PathBuf::from);
    Ok(ws.root().join(target).join(triple).join("release/weir"))
}

/// Writes the archive; returns its path.
pub fn write(
    ws: &Workspace,
    version: &str,
    built: &Path,
    work: &Path,
    out: &Path,
) -> Result<PathBuf, String> {
    let path = built.to_string_lossy();
    let headers = run::output(ws, "objdump", &["-p", &path])?;
    if headers.lines().any(|line| line.trim_start().starts_with("NEEDED")) {
        return Err(format!("{path} needs libraries: it was not built with crt-static"));
    }
    let (program, _) = apart(ws, built, work)?;
    let mut entries = server(ws, &program)?;
    // An account of Debian's; elsewhere workers are nobody.
    entries.iter_mut().for_each(|entry| entry.without("user www-data;\n"));
    let archive = compressed(ws, work, &tar::write(&entries)?)?;
    let path = out.join(format!("weir-{version}-{}-static.tar.gz", std::env::consts::ARCH));
    fs::write(&path, archive).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}
