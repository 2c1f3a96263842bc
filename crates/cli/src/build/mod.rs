//! `weir build`: a server with modules from outside. It writes a small crate whose `main` names the
//! modules, and calls cargo.

mod options;
mod project;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::ArgMatches;

use crate::declared::{Command as Declared, PLAIN, Run};
use crate::error::Error;
use options::Options;
use project::Module;

/// `weir build`
pub(crate) const COMMAND: Declared = Declared {
    name: "build",
    doc: "compile a server with your own modules",
    about: "For modules in Rust that are not part of Weir: docs/modules.md explains how to write \
            one. Compiles a server with the modules that you name, in the order given. It needs \
            cargo and Weir's sources.",
    args: options::args,
    files: &[("~/.cache/weir-build/", "Compiled code, so that the next build is quick.")],
    environment: &[
        ("CARGO", "The program cargo."),
        ("XDG_CACHE_HOME", "The folder of weir-build, in place of ~/.cache."),
    ],
    examples: &[(
        "weir build --with weir-hello=../weir-hello -o weir-hello-server",
        "A server with a module of a folder.",
    )],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let done = Options::read(matches).and_then(|options| build(&options));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report("build", 1),
    }
}

fn build(options: &Options) -> Result<(), Error> {
    let say = |text: String| println!("weir build: {text}");
    let sources = sources(options)?;
    say(format!("sources of weir {} in {}", server::VERSION, sources.display()));
    need_cargo()?;
    let folder = match &options.folder {
        Some(folder) => folder.clone(),
        None => cache()?,
    };
    let mut modules = Vec::new();
    for with in &options.with {
        modules.push(Module::find(with)?);
    }
    project::write(&folder, &sources, &modules)?;
    let interface = project::interface_of(&sources)?;
    let target = match &options.target {
        Some(target) => std::path::absolute(target).map_err(Error::file(target))?,
        None => folder.join("target"),
    };
    let cargo = Cargo { folder: &folder, target: &target, offline: options.offline, interface };
    let tree = cargo.output(&["tree", "--depth", "1", "--prefix", "none", "--edges", "normal"])?;
    for module in &mut modules {
        module.version = project::version_in(&tree, &module.name).ok_or_else(|| {
            Error::system(format!("cargo does not name the version of {}", module.name))
        })?;
        say(format!("module {module}"));
    }
    project::write_main(&folder, &modules)?;
    let profile = options.profile;
    say(format!("cargo build --profile {} in {}", profile.name(), folder.display()));
    cargo.run(&["build", "--profile", profile.name()])?;
    let made = target.join(profile.folder());
    put(&made.join(project::PROGRAM), &options.output)?;
    say(format!("{} is ready; its -V lists the modules", options.output.display()));
    Ok(())
}

/// The folder with the project's sources: as named, else around the present folder, else where this
/// program was built.
fn sources(options: &Options) -> Result<PathBuf, Error> {
    let is_there = |folder: &Path| folder.join("crates/module/Cargo.toml").is_file();
    let absolute = |folder: &Path| fs::canonicalize(folder).map_err(Error::file(&folder));
    if let Some(named) = &options.sources {
        return match is_there(named) {
            true => absolute(named),
            false => Err(Error::system(format!("{}: no weir sources found", named.display()))),
        };
    }
    let here = std::env::current_dir().unwrap_or_default();
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_owned);
    let around = here.ancestors().map(Path::to_owned);
    match around.chain(built_in).find(|folder| is_there(folder)) {
        Some(folder) => absolute(&folder),
        None => Err(Error::system(format!(
            "the sources of weir {} are neither here nor where this program was built: get them, \
             and name their folder with --weir",
            server::VERSION
        ))),
    }
}

fn need_cargo() -> Result<(), Error> {
    let found = Command::new(cargo()).arg("--version").stdout(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::system(format!("\"cargo --version\" failed ({status})"))),
        Err(e) => {
            Err(Error::system(format!("cargo, which compiles the server, cannot be run: {e}")))
        }
    }
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The folder for compiled code, so that the next build is quick.
fn cache() -> Result<PathBuf, Error> {
    let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
    let base = base
        .ok_or_else(|| Error::system("HOME is not set: name a folder to build in with --folder"))?;
    Ok(base.join("weir-build"))
}

struct Cargo<'a> {
    folder: &'a Path,
    target: &'a Path,
    offline: bool,
    /// The version of `weir-module` that there is.
    interface: String,
}

impl Cargo<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(self.folder).args(args);
        // As asked, or the folder's own; whatever the environment has.
        command.env("CARGO_TARGET_DIR", self.target);
        // As the project's own `.cargo/config.toml` has it, which counts for builds in its folder.
        command.env("AWS_LC_SYS_NO_JITTER_ENTROPY", "1");
        if self.offline {
            command.arg("--offline");
        }
        command
    }

    fn output(&self, args: &[&str]) -> Result<String, Error> {
        let out = self.command(args).stderr(Stdio::inherit()).output();
        let out = out.map_err(|e| Error::system(format!("cargo cannot be run: {e}")))?;
        if !out.status.success() {
            return Err(Error::system(format!(
                "cargo found no compatible versions (see above); these sources have weir-module {}",
                self.interface
            )));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    fn run(&self, args: &[&str]) -> Result<(), Error> {
        let status = self
            .command(args)
            .status()
            .map_err(|e| Error::system(format!("cargo cannot be run: {e}")))?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::system(format!(
                "cargo failed ({status}); what it compiled is in {}",
                self.folder.display()
            ))),
        }
    }
}

/// Puts the program in its place: whole, or not at all, and also where the old one is running.
fn put(made: &Path, output: &Path) -> Result<(), Error> {
    let mut beside = output.as_os_str().to_owned();
    beside.push(OsStr::new(".new"));
    let beside = PathBuf::from(beside);
    fs::copy(made, &beside).map_err(Error::file(output))?;
    fs::rename(&beside, output).map_err(Error::file(output))
}
