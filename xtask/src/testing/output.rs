//! The output of a test program, as Rust's own harness writes it.

/// The result of one run of a program.
#[derive(Default, Debug)]
pub struct Outcome {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that were skipped because they are marked so.
    pub ignored: usize,
    /// Tests that failed, or the program as a whole.
    pub failed: Vec<Failure>,
}

/// A test that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its name; `None` is the program as a whole, which ended before its tests did.
    pub test: Option<String>,
    /// The tests that had not ended, of a program that failed as a whole; none, where they are not
    /// known.
    pub unfinished: Vec<String>,
    /// What was printed.
    pub output: String,
}

impl Outcome {
    /// Reads a program's output. `succeeded` is its exit status, `end` tells how it ended, and
    /// `tests` are the tests that were to run.
    pub fn read(text: &str, succeeded: bool, end: &str, tests: &[String]) -> Outcome {
        let (passed, failed, ignored) = counts(text).unwrap_or_default();
        if succeeded {
            // A program without the harness says nothing: it is one test.
            let passed = if counts(text).is_some() { passed } else { 1 };
            return Outcome { passed, ignored, failed: Vec::new() };
        }
        let names = failed_names(text);
        if !names.is_empty() && names.len() == failed {
            let failures = names.iter().map(|name| failure(text, name)).collect();
            return Outcome { passed, ignored, failed: failures };
        }
        let ended: Vec<&str> = text.lines().filter_map(ended).collect();
        let unfinished = tests.iter().filter(|test| !ended.contains(&test.as_str()));
        let failure = Failure {
            test: None,
            unfinished: unfinished.cloned().collect(),
            output: format!("{text}\n{end}"),
        };
        let passed = text.lines().filter(|line| line.ends_with(" ... ok")).count();
        Outcome { passed, ignored: 0, failed: vec![failure] }
    }
}

/// Passed, failed and ignored tests by the line `test result: ok. 3 passed; 0 failed; 0 ignored`.
fn counts(text: &str) -> Option<(usize, usize, usize)> {
    let line = text.lines().rev().find(|line| line.starts_with("test result: "))?;
    let count = |word: &str| {
        let before = line.split([';', '.']).find(|part| part.trim_end().ends_with(word))?;
        before.split_whitespace().next()?.parse().ok()
    };
    Some((count("passed")?, count("failed")?, count("ignored")?))
}

/// The names in the last list, which is headed `failures:` and indented by four spaces.
fn failed_names(text: &str) -> Vec<&str> {
    let Some(at) = text.rfind("\nfailures:\n") else { return Vec::new() };
    let list = text[at..].lines().skip(2);
    list.map_while(|line| line.strip_prefix("    ")).collect()
}

/// The failure of a test with its part of the output: `---- NAME stdout ----` begins it.
fn failure(text: &str, name: &str) -> Failure {
    let begin = format!("---- {name} stdout ----\n");
    let output = text.split_once(&begin).map_or("", |(_, rest)| {
        let ends = ["\n---- ", "\nfailures:\n"].map(|end| rest.find(end));
        &rest[..ends.into_iter().flatten().min().unwrap_or(rest.len())]
    });
    Failure { test: Some(name.to_owned()), unfinished: Vec::new(), output: output.to_owned() }
}

/// The name of the test whose end a line tells: `test NAME ... ok`, or `FAILED`, or `ignored`.
fn ended(line: &str) -> Option<&str> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let is_result = ["ok", "FAILED", "ignored"].iter().any(|word| result.starts_with(word));
    is_result.then(|| name.trim_end_matches(" - should panic"))
}

#[cfg(test)]
mod tests {
    use super::{Failure, Outcome};

    const FAILED: &str = "\nrunning 3 tests\n\
        test a ... ok\ntest m::b ... FAILED\ntest c ... FAILED\n\
        \nfailures:\n\n---- m::b stdout ----\nleft: 1\n\n---- c stdout ----\nright: 2\n\n\
        \nfailures:\n    c\n    m::b\n\n\
        test result: FAILED. 1 passed; 2 failed; 4 ignored; 0 measured; 0 filtered out\n";

    #[test]
    fn failed_tests_have_their_output() {
        let outcome = Outcome::read(FAILED, false, "exit status: 101", &[]);
        assert_eq!((outcome.passed, outcome.ignored), (1, 4));
        let failed: Vec<_> =
            outcome.failed.iter().map(|f| (f.test.as_deref(), f.output.trim())).collect();
        assert_eq!(failed, [(Some("c"), "right: 2"), (Some("m::b"), "left: 1")]);
    }

    #[test]
    fn a_program_that_dies_names_the_tests_that_had_not_ended() {
        let text = "running 3 tests\ntest a - should panic ... ok\ntest b ... ok\n";
        let tests = ["a", "b", "c"].map(str::to_owned);
        let outcome = Outcome::read(text, false, "signal: 6", &tests);
        let unfinished = vec!["c".to_owned()];
        let output = format!("{text}\nsignal: 6");
        assert_eq!(outcome.failed, [Failure { test: None, unfinished, output }]);
        assert_eq!(outcome.passed, 2);
    }

    #[test]
    fn a_program_without_the_harness_is_one_test() {
        let outcome = Outcome::read("", true, "", &[]);
        assert_eq!((outcome.passed, outcome.failed.len()), (1, 0));
        let outcome = Outcome::read("panicked", false, "exit status: 101", &[]);
        assert_eq!((outcome.passed, outcome.failed.len()), (0, 1));
    }

    #[test]
    fn an_empty_program_has_no_tests() {
        let text =
            "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured\n";
        assert_eq!(Outcome::read(text, true, "", &[]).passed, 0);
    }
}
