//! `tests`: builds the tests of the workspace, runs them, and repeats the failed ones alone.
//!
//! A test that fails is run once more by its name, with nothing beside it. If it fails again, it
//! failed. If it passes, it is *unsteady*: it is named at the end and its output is kept, because
//! one test among thousands that failed for reasons of the machine should not hold back a day's
//! work. A few unsteady tests are a list to work off; more than [`UNSTEADY_MAX`] fail the run.
//!
//! A program that passed and has not changed since counts as passed without a run; `--all` runs it.

mod load;
mod options;
mod output;
mod program;
mod schedule;
#[cfg(test)]
mod scripted;
mod unchanged;

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::workspace::Workspace;
use crate::{Findings, run};
use options::Options;
use output::Failure;
use program::Program;
use unchanged::Unchanged;

/// More unsteady tests than these fail the run: then it is the machine or the tests that is broken.
const UNSTEADY_MAX: usize = 3;

/// The folder below `target` with the outputs of tests that failed.
const KEPT: &str = "target/tests";

/// `tests [PROGRAM...] [OPTIONS]`: see [`options::HELP`].
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    with_others(ws, args, &[])
}

/// The same, and the tests of other workspaces beside them, each by its arguments for cargo.
pub fn with_others(ws: &Workspace, args: &[String], others: &[Vec<String>]) -> Findings {
    let Some(options) = Options::read(args).map_err(|e| vec![e])? else {
        print!("{}", options::HELP);
        return Ok(());
    };
    let (mut programs, mut findings) = (Vec::new(), Vec::new());
    for cargo in std::iter::once(&options.cargo).chain(others) {
        match program::build(ws, cargo) {
            Ok(more) => programs.extend(more),
            Err(e) => findings.push(e),
        }
    }
    programs.retain(|program| options.wants(&program.name));
    if programs.is_empty() {
        findings.push("no test program of that name".to_owned());
        return Err(findings);
    }
    programs.iter_mut().for_each(|program| program.variables.clone_from(&options.variables));
    let mut unchanged = Unchanged::read(ws).map_err(|e| vec![e])?;
    let _busy = options.busy.then(load::Busy::on_each_processor);
    for round in 1..=options.rounds {
        if options.rounds > 1 {
            println!("== round {round} of {}", options.rounds);
        }
        let report = Report::of(&programs, &options, &mut unchanged, &ws.root().join(KEPT));
        findings.extend(unchanged.write().err());
        // Before the report, whose last line counts.
        if options.doc && options.programs.is_empty() {
            let doc = ["test", "--workspace", "--doc", "--quiet"];
            findings.extend(run::run(ws, "cargo", &doc).err());
        }
        findings.extend(report.print());
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

/// Builds the tests of the workspace, and with them the product.
pub fn build(ws: &Workspace) -> Findings {
    program::build(ws, &Options::default().cargo).map(drop).map_err(|e| vec![e])
}

/// A test, by its program.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Test {
    program: String,
    /// `None` is the program as a whole: it ended before its tests did, or has no list of them.
    name: Option<String>,
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.program, self.name.as_deref().unwrap_or("(the whole program)"))
    }
}

/// The result of a run of all programs.
#[derive(Default, Debug)]
struct Report {
    passed: usize,
    /// Those of the passed that did not run, because their programs have not changed.
    unchanged: usize,
    ignored: usize,
    /// Failed twice.
    failed: Vec<Test>,
    /// Failed beside others, and passed alone.
    unsteady: Vec<Test>,
}

impl Report {
    /// Runs the programs but those that passed before and have not changed, and then each failed
    /// test once more with nothing beside it.
    fn of(
        programs: &[Program],
        options: &Options,
        unchanged: &mut Unchanged,
        kept: &Path,
    ) -> Report {
        // A folder of the last run would show failures that are none any more.
        let _ = fs::remove_dir_all(kept);
        let mut report = Report::default();
        let (mut to_run, mut stamps) = (Vec::new(), Vec::new());
        for program in programs {
            match unchanged.outcome(program).filter(|_| options.leaves_unchanged()) {
                Some(outcome) => {
                    report.unchanged += outcome.passed;
                    report.passed += outcome.passed;
                    report.ignored += outcome.ignored;
                }
                None => {
                    to_run.push(program);
                    stamps.push(unchanged.stamp(program));
                }
            }
        }
        let left_out = programs.len() - to_run.len();
        if left_out > 0 {
            println!("== {left_out} programs passed before and have not changed (--all runs them)");
        }
        let began = Instant::now();
        let outcomes = schedule::run(&to_run, options, |program, outcome| {
            keep(kept, program, &outcome.failed, "");
        });
        println!("== ran once in {:.0} s", began.elapsed().as_secs_f64());
        for ((program, outcome), before) in to_run.into_iter().zip(outcomes).zip(stamps) {
            unchanged.note(program, before, &outcome);
            report.passed += outcome.passed;
            report.ignored += outcome.ignored;
            for failure in outcome.failed {
                report.repeat(program, failure, options, kept);
            }
        }
        report
    }

    fn repeat(&mut self, program: &Program, failure: Failure, options: &Options, kept: &Path) {
        let test = Test { program: program.name.clone(), name: failure.test.clone() };
        println!("== again, alone: {test}");
        let again = match &failure.test {
            Some(name) => program.run(std::slice::from_ref(name), 1),
            // Tests that had ended are not repeated.
            None => program.run(&failure.unfinished, options.threads),
        };
        if again.failed.is_empty() {
            self.passed += again.passed;
            self.unsteady.push(test);
        } else {
            keep(kept, program, &again.failed, "-again");
            self.failed.push(test);
        }
    }

    /// Prints the report; its last line is the one that counts, `N passed, N failed`. Returns the
    /// reasons why the run failed.
    fn print(&self) -> Vec<String> {
        if !self.unsteady.is_empty() {
            println!("== unsteady (failed, and passed alone; outputs in {KEPT}):");
            self.unsteady.iter().for_each(|test| println!("   {test}"));
        }
        if !self.failed.is_empty() {
            println!("== failed twice (outputs in {KEPT}):");
            self.failed.iter().for_each(|test| println!("   {test}"));
        }
        let findings = self.findings();
        let ignored = match self.ignored {
            0 => String::new(),
            ignored => format!(", {ignored} skipped"),
        };
        let unchanged = match self.unchanged {
            0 => String::new(),
            unchanged => format!(", {unchanged} of them before, unchanged"),
        };
        println!("{} passed, {} failed{ignored}{unchanged}", self.passed, self.failed.len());
        findings
    }

    fn findings(&self) -> Vec<String> {
        let mut findings: Vec<String> =
            self.failed.iter().map(|test| format!("failed: {test}")).collect();
        if self.unsteady.len() > UNSTEADY_MAX {
            let unsteady = self.unsteady.len();
            findings.push(format!("{unsteady} unsteady tests; {UNSTEADY_MAX} are tolerated"));
        }
        findings
    }
}

/// Shows the ends of the outputs and writes them whole to files of their own.
fn keep(folder: &Path, program: &Program, failures: &[Failure], suffix: &str) {
    /// The end of an output that is shown, in bytes: the panic's message and the server's log.
    const SHOWN: usize = 6000;

    for failure in failures {
        let name = failure.test.as_deref().unwrap_or("whole");
        let file = format!("{}-{name}{suffix}.txt", program.name).replace(['/', ':', ' '], "-");
        let written = fs::create_dir_all(folder)
            .and_then(|()| fs::write(folder.join(&file), &failure.output));
        if let Err(e) = written {
            eprintln!("{file} is not kept: {e}");
        }
        let mut from = failure.output.len().saturating_sub(SHOWN);
        while !failure.output.is_char_boundary(from) {
            from += 1;
        }
        println!("---- {} {name}\n{}\n----", program.name, &failure.output[from..]);
    }
}

#[cfg(test)]
mod tests {
    use super::scripted::Scripted;
    use super::{Options, Report, Test, Unchanged};

    fn report(scripted: &Scripted) -> Report {
        let options = Options { threads: 2, jobs: 2, ..Options::default() };
        let mut unchanged = Unchanged::none(scripted.folder());
        let kept = scripted.folder().join("kept");
        Report::of(&[scripted.program()], &options, &mut unchanged, &kept)
    }

    fn names(tests: &[Test]) -> Vec<&str> {
        tests.iter().map(|test| test.name.as_deref().unwrap_or("whole")).collect()
    }

    #[test]
    fn a_test_that_fails_twice_fails_the_run() {
        let scripted = Scripted::new("twice", &["right", "broken"]).always_fails("broken");
        let report = report(&scripted);
        assert_eq!((report.passed, names(&report.failed)), (1, vec!["broken"]));
        assert_eq!(report.findings().len(), 1);
        let kept = |name: &str| std::fs::read_to_string(scripted.folder().join("kept").join(name));
        assert!(kept("scripted-twice-broken.txt").is_ok_and(|text| text.contains("broken fails")));
        assert!(kept("scripted-twice-broken-again.txt").is_ok());
    }

    #[test]
    fn a_test_that_passes_alone_is_unsteady() {
        let report = report(&Scripted::new("once", &["a", "b"]).fails_once("b"));
        assert_eq!((report.passed, names(&report.unsteady)), (2, vec!["b"]));
        assert!(report.failed.is_empty() && report.findings().is_empty());
    }

    #[test]
    fn four_unsteady_tests_fail_the_run_and_three_do_not() {
        let tests = ["a", "b", "c", "d", "e"];
        for (unsteady, findings) in [(3, 0), (4, 1)] {
            let mut scripted = Scripted::new(&format!("unsteady-{unsteady}"), &tests);
            for test in &tests[..unsteady] {
                scripted = scripted.fails_once(test);
            }
            let report = report(&scripted);
            assert_eq!((report.passed, report.unsteady.len()), (5, unsteady));
            assert_eq!(report.findings().len(), findings, "{unsteady}");
        }
    }

    #[test]
    fn what_passed_is_counted_again_and_what_was_unsteady_is_run_again() {
        for (once, unchanged_tests) in [(false, 2), (true, 0)] {
            let mut scripted = Scripted::new(&format!("before-{once}"), &["a", "b"]);
            if once {
                scripted = scripted.fails_once("b");
            }
            let mut unchanged = Unchanged::none(scripted.folder());
            let mut program = scripted.program();
            program.folder = scripted.folder().join("crates");
            std::fs::create_dir(&program.folder).expect("a folder");
            let options = Options { threads: 2, jobs: 2, ..Options::default() };
            let kept = scripted.folder().join("kept");
            let programs = [program];
            let first = Report::of(&programs, &options, &mut unchanged, &kept);
            assert_eq!((first.passed, first.unchanged), (2, 0));
            let second = Report::of(&programs, &options, &mut unchanged, &kept);
            assert_eq!((second.passed, second.unchanged), (2, unchanged_tests));
            let all = Options { all: true, ..options };
            assert_eq!(Report::of(&programs, &all, &mut unchanged, &kept).unchanged, 0);
        }
    }

    #[test]
    fn a_program_that_dies_is_run_again_for_the_tests_that_had_not_ended() {
        let scripted = Scripted::new("dies", &["a", "b", "c"]).dies_once_before("b");
        let report = report(&scripted);
        assert_eq!((report.passed, names(&report.unsteady)), (3, vec!["whole"]));
        let scripted = Scripted::new("dies-again", &["a", "b"]).always_dies_before("b");
        let report = self::report(&scripted);
        assert_eq!((report.passed, names(&report.failed)), (1, vec!["whole"]));
    }
}
