//! A test program for the tests of the runner: a shell script that behaves as Rust's own harness.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::program::Program;

/// A program with the tests of these names. It runs in a folder of its own, in which it notes
/// which test has failed already.
pub struct Scripted {
    name: String,
    tests: Vec<String>,
    /// Cases of the script: a test's name and what it does instead of passing.
    cases: String,
    folder: PathBuf,
}

impl Scripted {
    pub fn new(name: &str, tests: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("create a folder");
        let tests = tests.iter().map(|test| (*test).to_owned()).collect();
        Self { name: name.to_owned(), tests, cases: String::new(), folder }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn always_fails(self, test: &str) -> Self {
        self.case(test, &format!("fail {test}"))
    }

    pub fn fails_once(self, test: &str) -> Self {
        self.case(test, &format!("if first {test}; then fail {test}; else pass {test}; fi"))
    }

    pub fn always_dies_before(self, test: &str) -> Self {
        self.case(test, "kill -9 $$")
    }

    pub fn dies_once_before(self, test: &str) -> Self {
        self.case(test, &format!("if first {test}; then kill -9 $$; else pass {test}; fi"))
    }

    fn case(mut self, test: &str, commands: &str) -> Self {
        self.cases.push_str(&format!("{test}) {commands} ;;\n"));
        self
    }

    /// Writes the script. It knows `--list` and `--exact NAME...`.
    pub fn program(&self) -> Program {
        let tests = self.tests.join(" ");
        let script = format!(
            r#"#!/bin/sh
chosen="{tests}"
case $1 in
--list) for test in $chosen; do echo "$test: test"; done; exit ;;
--exact) shift; chosen=$* ;;
esac
passed=0 failed=
first() {{ [ ! -e "$1.failed" ] && : >"$1.failed"; }}
pass() {{ passed=$((passed + 1)); echo "test $1 ... ok"; }}
fail() {{ failed="$failed $1"; echo "test $1 ... FAILED"; }}
for test in $chosen; do
case $test in
{cases}*) pass "$test" ;;
esac
done
[ -n "$failed" ] || {{ echo "test result: ok. $passed passed; 0 failed; 0 ignored"; exit 0; }}
printf '\nfailures:\n\n'
for test in $failed; do printf -- '---- %s stdout ----\n%s fails\n\n' "$test" "$test"; done
printf '\nfailures:\n'
for test in $failed; do echo "    $test"; done
set -- $failed
echo "test result: FAILED. $passed passed; $# failed; 0 ignored"
exit 101
"#,
            cases = self.cases
        );
        let path = self.folder.join("program");
        write_program(&path, &script);
        let name = format!("scripted/{}", self.name);
        Program { name, path, folder: self.folder.clone(), variables: Vec::new() }
    }
}

/// Another process writes the file: a child that another test forks has a copy of each descriptor
/// of this process until it executes, and the kernel runs no file that is open for writing.
fn write_program(path: &Path, script: &str) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().expect("run install");
    let mut pipe = child.stdin.take().expect("its input");
    pipe.write_all(script.as_bytes()).expect("write the script");
    drop(pipe);
    assert!(child.wait().expect("wait for install").success(), "the script is not written");
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
