//! Programs that tests put somewhere to run them.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a program.
///
/// Another process writes the file: a child that some other test forks meanwhile has a copy of each
/// descriptor of this process until it executes its own program, and the kernel executes no file
/// that somebody has open for writing (`ETXTBSY`).
pub fn copy_program(from: &Path, to: &Path) {
    write_program(to, fs::File::open(from).expect("open the program").into(), b"");
}

/// Writes a script that can be executed, as [`copy_program`] does.
pub fn write_script(to: &Path, text: &str) {
    write_program(to, Stdio::piped(), text.as_bytes());
}

fn write_program(to: &Path, input: Stdio, text: &[u8]) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(to).stdin(input);
    let mut child = install.spawn().expect("run install");
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(text).expect("write the script");
    }
    assert!(child.wait().expect("wait for install").success(), "{} is not written", to.display());
}
