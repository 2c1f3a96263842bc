//! The scripts of a container's start, `/docker-entrypoint.d`, with the rules of nginx's image:
//! `NAME.envsh` may change the environment, `NAME.sh` is run, and others are passed over. They run
//! in the order of their names, in which numbers count as numbers.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// The folder of nginx's image.
pub(crate) const FOLDER: &str = "/docker-entrypoint.d";

/// The script of nginx's image that fills in templates, which Weir does itself: scripts with names
/// before it run before the templates are filled in.
const TEMPLATES: &[u8] = b"20-envsubst-on-templates.sh";

/// Variables of the environment.
pub(crate) type Variables = BTreeMap<OsString, OsString>;

/// The scripts of a folder, and the environment as they leave it.
pub(crate) struct Scripts {
    /// The scripts, in the order in which they run.
    paths: Vec<PathBuf>,
    /// The variables, with the changes so far.
    pub(crate) variables: Variables,
    /// A script has changed a variable.
    pub(crate) changed: bool,
    quiet: bool,
}

impl Scripts {
    /// The scripts of a folder, which need not exist.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn of(folder: &Path, variables: Variables, quiet: bool) -> Result<Scripts, Error> {
        let mut paths = Vec::new();
        match fs::read_dir(folder) {
            Ok(entries) => {
                let files =
                    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
                paths.extend(files);
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::file(folder)(e)),
        }
        paths.sort_by(|a, b| by_version(name_of(a), name_of(b)));
        Ok(Scripts { paths, variables, changed: false, quiet })
    }

    /// Runs the scripts that come before the templates.
    ///
    /// # Errors
    /// A script cannot be run, or has failed.
    pub(crate) fn before_templates(&mut self) -> Result<(), Error> {
        let is_before = |path: &PathBuf| by_version(name_of(path), TEMPLATES) == Ordering::Less;
        let (first, rest) = std::mem::take(&mut self.paths).into_iter().partition(is_before);
        self.paths = rest;
        self.run(first)
    }

    /// Runs the others.
    ///
    /// # Errors
    /// As [`Scripts::before_templates`].
    pub(crate) fn after_templates(&mut self) -> Result<(), Error> {
        let rest = std::mem::take(&mut self.paths);
        self.run(rest)
    }

    fn run(&mut self, paths: Vec<PathBuf>) -> Result<(), Error> {
        for path in paths {
            let (name, shown) = (name_of(&path), path.display());
            let kind = [&b".envsh"[..], b".sh"].into_iter().find(|end| name.ends_with(end));
            let is_executable =
                fs::metadata(&path).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0);
            match kind {
                None => self.say(format_args!("ignoring {shown}")),
                Some(_) if !is_executable => {
                    self.say(format_args!("ignoring {shown}, not executable"));
                }
                Some(b".envsh") => {
                    self.say(format_args!("sourcing {shown}"));
                    self.source(&path)?;
                }
                Some(_) => {
                    self.say(format_args!("launching {shown}"));
                    let mut command = Command::new(&path);
                    let done = command.env_clear().envs(&self.variables).status();
                    succeeded(&path, done.map_err(|e| not_run(&path, &e))?)?;
                }
            }
        }
        Ok(())
    }

    /// Has a shell read the script, and takes the environment that it leaves.
    fn source(&mut self, path: &Path) -> Result<(), Error> {
        let shell = ["-c", ". \"$0\" >&2 && exec env -0"];
        let mut command = Command::new("/bin/sh");
        command.args(shell).arg(path).env_clear().envs(&self.variables);
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.map_err(|e| not_run(path, &e))?;
        succeeded(path, output.status)?;
        let variables = read_variables(&output.stdout);
        self.changed |= variables != self.variables;
        self.variables = variables;
        Ok(())
    }

    fn say(&self, text: std::fmt::Arguments<'_>) {
        if !self.quiet {
            eprintln!("weir container: {text}");
        }
    }
}

fn succeeded(path: &Path, status: std::process::ExitStatus) -> Result<(), Error> {
    match status.success() {
        true => Ok(()),
        false => Err(Error::peer(format!("{} failed: {status}", path.display()))),
    }
}

fn not_run(path: &Path, e: &io::Error) -> Error {
    let hint = match Path::new("/bin/sh").exists() {
        true => "",
        false => " (there is no shell in this image: use the one with a shell)",
    };
    Error::system(format!("{}: {e}{hint}", path.display()))
}

/// The output of `env -0`, less what the shell adds.
fn read_variables(text: &[u8]) -> Variables {
    let pairs = text.split(|byte| *byte == 0).filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..at], &pair[at + 1..]);
        Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec())))
    });
    let own = ["_", "SHLVL", "OLDPWD", "PWD"].map(OsStr::new);
    pairs.filter(|(name, _)| !own.contains(&name.as_os_str())).collect()
}

fn name_of(path: &Path) -> &[u8] {
    path.file_name().unwrap_or_default().as_bytes()
}

/// The order of `sort -V` for names: digits in a row count as a number.
fn by_version(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        let (text_a, text_b) = (digits(a, false), digits(b, false));
        let order = a[..text_a].cmp(&b[..text_b]);
        (a, b) = (&a[text_a..], &b[text_b..]);
        if order != Ordering::Equal || a.is_empty() || b.is_empty() {
            return order.then(a.len().cmp(&b.len()));
        }
        let (number_a, number_b) = (digits(a, true), digits(b, true));
        let value = |digits: &[u8]| {
            let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
            digits[zeros..].to_vec()
        };
        let (value_a, value_b) = (value(&a[..number_a]), value(&b[..number_b]));
        let order = value_a.len().cmp(&value_b.len()).then(value_a.cmp(&value_b));
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (&a[number_a..], &b[number_b..]);
    }
}

/// The length of the digits, or of what is none, at the start of a name.
fn digits(name: &[u8], are: bool) -> usize {
    name.iter().position(|byte| byte.is_ascii_digit() != are).unwrap_or(name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_by_their_numbers() {
        let mut names = ["30-c", "5-a", "20-b", "a", "020-a", "20", "20-envsubst-on-templates.sh"];
        names.sort_by(|a, b| by_version(a.as_bytes(), b.as_bytes()));
        assert_eq!(names[0], "5-a");
        assert_eq!(names[1], "20");
        assert_eq!(names[names.len() - 2..], ["30-c", "a"]);
    }

    #[test]
    fn the_environment_of_a_shell() {
        let read = read_variables(b"A=1\0B=x=y\n\0PWD=/\0_=/bin/env\0EMPTY=\0\0");
        let names: Vec<_> = read.iter().map(|(n, v)| (n.to_str(), v.to_str())).collect();
        let want = [("A", "1"), ("B", "x=y\n"), ("EMPTY", "")].map(|(n, v)| (Some(n), Some(v)));
        assert_eq!(names, want);
    }
}
