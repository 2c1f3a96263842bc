//! Test programs that passed whole and have not changed since: they are not run again.
//!
//! A program is the same while its file is, because cargo does not write the file again where a
//! change does not reach it. A program that starts the server also needs the same server. A test
//! may look at more than that: with another file of the repository (but for Rust code), another
//! package or kernel of the system, other rights or another search path, all programs run. With a
//! variable of ours in the environment, which may choose tests, all programs run as well.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::output::Outcome;
use super::program::Program;
use crate::workspace::Workspace;

/// The file below the root with the programs that passed. Its first line is a hash of what all of
/// them may look at; each other line is a program.
const FILE: &str = "target/tests-passed";
/// The server that tests of these start.
const SERVER: &str = "target/debug/weir";
/// The package with the end-to-end tests. Those of other workspaces start the server as well.
const PACKAGE: &str = "weir";
/// A package whose tests look at the project's Rust code.
const READS_CODE: &str = "xtask";
/// What users are told of a change, which no test reads.
const NEWS: &str = "CHANGELOG.md";
/// Files that change with the packages and the kernel of a Debian system.
const SYSTEM: &[&str] = &["/var/lib/dpkg/status", "/proc/sys/kernel/osrelease"];
/// The lines about this process with its rights: tests that lack one pass without a look.
const RIGHTS: &[&str] = &["Uid:", "CapEff:", "Seccomp:"];
/// The device that tests with a file system of their own open.
const DEVICE: &str = "/dev/fuse";

/// A program that passed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Passed {
    /// Of its files, as they were before it ran.
    stamp: Stamp,
    tests: usize,
    ignored: usize,
}

/// Names, lengths and times of change of the files that a program consists of.
pub type Stamp = String;

/// The programs that passed, by their names.
pub struct Unchanged {
    root: PathBuf,
    /// A hash of what all programs may look at; `None` if nothing is to be noted.
    around: Option<String>,
    passed: BTreeMap<String, Passed>,
}

impl Unchanged {
    /// Reads which programs passed in the same surroundings.
    pub fn read(ws: &Workspace) -> Result<Unchanged, String> {
        let root = ws.root().to_owned();
        let is_ours = |name: &OsStr| name.to_string_lossy().starts_with("WEIR_");
        if std::env::vars_os().any(|(name, _)| is_ours(&name)) {
            return Ok(Unchanged { root, around: None, passed: BTreeMap::new() });
        }
        let around = around(ws)?;
        let text = fs::read_to_string(root.join(FILE)).unwrap_or_default();
        let passed = match text.split_once('\n') {
            Some((first, lines)) if first == around => lines.lines().filter_map(entry).collect(),
            _ => BTreeMap::new(),
        };
        Ok(Unchanged { root, around: Some(around), passed })
    }

    /// Nothing has passed yet, in a workspace with this root.
    #[cfg(test)]
    pub fn none(root: &Path) -> Unchanged {
        Unchanged { root: root.to_owned(), around: None, passed: BTreeMap::new() }
    }

    /// The outcome of a program that passed before and has not changed.
    pub fn outcome(&self, program: &Program) -> Option<Outcome> {
        let passed = self.passed.get(&program.name)?;
        let is_same = self.stamp(program).is_some_and(|stamp| stamp == passed.stamp);
        is_same.then(|| Outcome { passed: passed.tests, ignored: passed.ignored, failed: vec![] })
    }

    /// Notes how a program ended. One with a failed test is run again next time, even if the test
    /// passed alone, and so is one whose files are not those of `before` any more: somebody has
    /// built beside the tests, and it is not known which of the two has passed.
    pub fn note(&mut self, program: &Program, before: Option<Stamp>, outcome: &Outcome) {
        self.passed.remove(&program.name);
        let is_same = before.is_some() && before == self.stamp(program);
        if let Some(stamp) = before.filter(|_| is_same && outcome.failed.is_empty()) {
            let passed = Passed { stamp, tests: outcome.passed, ignored: outcome.ignored };
            self.passed.insert(program.name.clone(), passed);
        }
    }

    /// Writes the file for the next run.
    pub fn write(&self) -> Result<(), String> {
        let Some(around) = &self.around else { return Ok(()) };
        let mut text = format!("{around}\n");
        for (name, Passed { stamp, tests, ignored }) in &self.passed {
            let _ = writeln!(text, "{name} {tests} {ignored} {stamp}");
        }
        fs::write(self.root.join(FILE), text).map_err(|e| format!("{FILE}: {e}"))
    }

    /// The stamp of a program's files; `None` if it is run in any case.
    pub fn stamp(&self, program: &Program) -> Option<Stamp> {
        let package = program.name.split('/').next()?;
        if package == READS_CODE {
            return None;
        }
        let own = stamp(&program.path)?;
        // The members of this workspace lie in these folders.
        let members = ["crates", "lab"].map(|folder| self.root.join(folder));
        let is_member = members.iter().any(|folder| program.folder.starts_with(folder));
        if package != PACKAGE && is_member {
            return Some(own);
        }
        Some(format!("{own} {}", stamp(&self.root.join(SERVER))?))
    }
}

/// A file's name, length and time of change in nanoseconds.
fn stamp(path: &Path) -> Option<Stamp> {
    let (name, about) = (path.file_name()?.to_str()?, fs::metadata(path).ok()?);
    let changed = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{name} {} {}", about.len(), changed.as_nanos()))
}

/// The program of a line.
fn entry(line: &str) -> Option<(String, Passed)> {
    let mut words = line.splitn(4, ' ');
    let name = words.next()?.to_owned();
    let (tests, ignored) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((name, Passed { tests, ignored, stamp: words.next()?.to_owned() }))
}

/// A hash of what a test may look at besides its own program.
fn around(ws: &Workspace) -> Result<String, String> {
    let mut hash = DefaultHasher::new();
    let ours = ws.files()?.into_iter().filter(|file| !file.ends_with(".rs") && file != NEWS);
    for file in ours {
        let bytes = fs::read(ws.root().join(&file)).map_err(|e| format!("{file}: {e}"))?;
        (file, bytes).hash(&mut hash);
    }
    SYSTEM.iter().map(|path| fs::read(path).ok()).for_each(|bytes| bytes.hash(&mut hash));
    let about = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rights = about.lines().filter(|line| RIGHTS.iter().any(|name| line.starts_with(name)));
    rights.for_each(|line| line.hash(&mut hash));
    Path::new(DEVICE).exists().hash(&mut hash);
    std::env::var_os("PATH").hash(&mut hash);
    ws.root().hash(&mut hash);
    Ok(format!("{:016x}", hash.finish()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::output::Outcome;
    use super::super::program::Program;
    use super::super::scripted::Scripted;
    use super::{SERVER, Unchanged, around, entry};
    use crate::workspace::Workspace;

    /// A root with a server, and a program in this folder below it.
    fn unchanged(scripted: &Scripted, name: &str, folder: &str) -> (Unchanged, Program) {
        let root = scripted.folder().to_owned();
        fs::create_dir_all(root.join("target/debug")).expect("a folder");
        fs::write(root.join(SERVER), "server").expect("a file");
        let mut program = scripted.program();
        program.name = name.to_owned();
        program.folder = root.join(folder);
        (Unchanged::none(&root), program)
    }

    fn passed(tests: usize) -> Outcome {
        Outcome { passed: tests, ..Outcome::default() }
    }

    fn note(unchanged: &mut Unchanged, program: &Program, outcome: &Outcome) {
        let before = unchanged.stamp(program);
        unchanged.note(program, before, outcome);
    }

    #[test]
    fn a_program_that_was_built_beside_its_run_is_not_kept() {
        let scripted = Scripted::new("beside", &["a"]);
        let (mut unchanged, program) = unchanged(&scripted, "weir/http", "crates/weir");
        let before = unchanged.stamp(&program);
        fs::write(unchanged.root.join(SERVER), "another server").expect("a file");
        unchanged.note(&program, before, &passed(1));
        assert!(unchanged.outcome(&program).is_none());
    }

    #[test]
    fn a_program_that_passed_is_known_until_its_file_changes() {
        let scripted = Scripted::new("known", &["a"]);
        let (mut unchanged, program) = unchanged(&scripted, "weir-conf/parse", "crates/conf");
        assert!(unchanged.outcome(&program).is_none());
        note(&mut unchanged, &program, &passed(3));
        assert_eq!(unchanged.outcome(&program).map(|outcome| outcome.passed), Some(3));
        // Another server is nothing to it.
        fs::write(unchanged.root.join(SERVER), "another server").expect("a file");
        assert!(unchanged.outcome(&program).is_some());
        fs::write(&program.path, "another program").expect("a file");
        assert!(unchanged.outcome(&program).is_none());
    }

    #[test]
    fn a_program_that_starts_the_server_is_new_with_it() {
        for (name, folder) in [("weir/http", "crates/weir"), ("weir-mysql/built", "modules/mysql")]
        {
            let scripted = Scripted::new(&name.replace('/', "-"), &["a"]);
            let (mut unchanged, program) = unchanged(&scripted, name, folder);
            note(&mut unchanged, &program, &passed(1));
            assert!(unchanged.outcome(&program).is_some(), "{name}");
            fs::write(unchanged.root.join(SERVER), "another server").expect("a file");
            assert!(unchanged.outcome(&program).is_none(), "{name}");
        }
    }

    #[test]
    fn failures_and_readers_of_code_are_not_kept() {
        let scripted = Scripted::new("failing", &["a"]).always_fails("a");
        let (mut unchanged, mut program) = unchanged(&scripted, "weir-conf/parse", "crates/conf");
        note(&mut unchanged, &program, &passed(1));
        note(&mut unchanged, &program, &program.run(&[], 1));
        assert!(unchanged.outcome(&program).is_none());
        program.name = "xtask/xtask".to_owned();
        note(&mut unchanged, &program, &passed(1));
        assert!(unchanged.outcome(&program).is_none());
    }

    #[test]
    fn what_is_written_is_read_and_other_surroundings_forget_it() {
        let ws = Workspace::here();
        assert_eq!(around(&ws), around(&ws));
        let line = "weir-conf/parse 21 1 parse-1f 1000 5";
        let (name, passed) = entry(line).expect("an entry");
        assert_eq!((name.as_str(), passed.tests, passed.ignored), ("weir-conf/parse", 21, 1));
        assert_eq!(passed.stamp, "parse-1f 1000 5");
        assert!(entry("weir-conf/parse x 1 y").is_none() && entry("").is_none());
    }
}
