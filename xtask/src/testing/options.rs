//! The options of `cargo xtask tests`.

/// The text of `--help`.
pub const HELP: &str = "\
usage: cargo xtask tests [PROGRAM...] [OPTIONS]

Builds the tests of the workspace, runs them, and repeats each failed test alone. PROGRAM is a
package (weir-conf), or a package and a target (weir/cache).

  --rounds N       run everything N times
  --busy           beside one busy loop for each processor
  --all            also programs that passed and have not changed since
  --all-drivers    on epoll, io_uring, poll and select, also where the driver is not the subject
  --threads N      threads of a test program (or RUST_TEST_THREADS)
  --jobs N         test programs at a time
  --no-doc         without the examples of doc comments
  -- ARGUMENTS     for cargo, for example -p weir-conf to build no more
";

/// Programs at a time, and the threads of each: measured on two processors, on which most tests
/// wait for servers and clients rather than compute.
const JOBS: usize = 2;
const THREADS: usize = 4;

/// The variable that has each test run on every driver.
const ALL_DRIVERS: (&str, &str) = ("WEIR_TEST_ALL_DRIVERS", "1");

/// The options as given.
#[derive(Debug)]
pub struct Options {
    /// Packages or programs; all, where none is named.
    pub programs: Vec<String>,
    /// Programs that passed and have not changed run as well.
    pub all: bool,
    /// Runs of everything.
    pub rounds: usize,
    /// One busy loop for each processor runs beside the tests.
    pub busy: bool,
    /// Threads of a test program.
    pub threads: usize,
    /// Programs at a time.
    pub jobs: usize,
    /// With the examples of doc comments.
    pub doc: bool,
    /// Variables for the programs.
    pub variables: Vec<(&'static str, &'static str)>,
    /// Arguments for `cargo test --no-run`.
    pub cargo: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::env::var("RUST_TEST_THREADS").ok().and_then(|n| n.parse().ok());
        Options {
            programs: Vec::new(),
            all: false,
            rounds: 1,
            busy: false,
            threads: threads.unwrap_or(THREADS),
            jobs: JOBS,
            doc: true,
            variables: Vec::new(),
            cargo: vec!["--workspace".to_owned()],
        }
    }
}

impl Options {
    /// Reads the arguments; `None` asks for help.
    pub fn read(args: &[String]) -> Result<Option<Options>, String> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || {
                let value = args.next().and_then(|n| n.parse().ok()).filter(|&n: &usize| n > 0);
                value.ok_or_else(|| format!("{arg} wants a number above 0"))
            };
            match arg.as_str() {
                "-h" | "--help" => return Ok(None),
                "--rounds" => options.rounds = number()?,
                "--threads" => options.threads = number()?,
                "--jobs" => options.jobs = number()?,
                "--all" => options.all = true,
                "--busy" => options.busy = true,
                "--no-doc" => options.doc = false,
                "--all-drivers" => options.variables.push(ALL_DRIVERS),
                "--" => options.cargo = args.by_ref().cloned().collect(),
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}; see --help"));
                }
                program => options.programs.push(program.to_owned()),
            }
        }
        Ok(Some(options))
    }

    /// Whether programs that passed before may be left out: not if a program is named, or the tests
    /// are repeated or run in another way than always.
    pub fn leaves_unchanged(&self) -> bool {
        let is_usual = self.rounds == 1 && !self.busy && self.variables.is_empty();
        is_usual && !self.all && self.programs.is_empty()
    }

    /// Whether a program, `PACKAGE/TARGET`, is among those asked for.
    pub fn wants(&self, program: &str) -> bool {
        let package = program.split('/').next().unwrap_or_default();
        let is_named = |name: &String| name == program || name == package;
        self.programs.is_empty() || self.programs.iter().any(is_named)
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn read(args: &[&str]) -> Result<Option<Options>, String> {
        Options::read(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let options = read(&["weir/cache", "weir-conf", "--rounds", "3", "--", "-p", "weir"]);
        let options = options.ok().flatten().expect("options");
        assert_eq!(
            (options.rounds, options.cargo.as_slice()),
            (3, &["-p", "weir"].map(str::to_owned)[..])
        );
        assert!(options.wants("weir/cache") && options.wants("weir-conf/parse"));
        assert!(!options.wants("weir/http") && !options.wants("weir-base/weir_base"));
        let leaves = |args| read(args).ok().flatten().is_some_and(|o| o.leaves_unchanged());
        assert!(leaves(&[]) && leaves(&["--threads", "2"]));
        for all in [&["--all"][..], &["weir"], &["--rounds", "2"], &["--busy"], &["--all-drivers"]]
        {
            assert!(!leaves(all), "{all:?}");
        }
        assert!(read(&["--help"]).is_ok_and(|options| options.is_none()));
        for wrong in [&["--rounds"][..], &["--rounds", "0"], &["--jobs", "x"], &["--nothing"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
