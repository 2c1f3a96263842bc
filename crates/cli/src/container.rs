//! `weir container [SWITCHES]`: the server as the process of a container, with the habits of
//! nginx's image: the scripts of `/docker-entrypoint.d` run, and templates of configuration are
//! filled in from the environment. Templates need no shell.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use clap::Arg;
use conf::pattern::Pattern;
use server::environ::Environ;
use server::layout::layout;
use server::start;

use crate::declared::{Command, PLAIN, Run};
use crate::entry_scripts::{self, Scripts, Variables};
use crate::error::Error;
use crate::{line, manual, switches};

/// Folders of templates within folders of templates.
const DEPTH_MAX: usize = 16;

/// `weir container`
pub(crate) const COMMAND: Command = Command {
    name: "container",
    doc: "fill in configuration templates from the environment, then serve",
    about: "For containers: the same as the entry point of nginx's image. Each \
            templates/NAME.template next to the configuration file becomes conf.d/NAME, with \
            ${VARIABLES} replaced by the environment's, and the scripts of /docker-entrypoint.d \
            run before and after, in the order of their names. The switches are those of the \
            server.",
    args: || {
        let program = Arg::new("PROGRAM").help("The word nginx or weir, as for nginx's image");
        [program].into_iter().chain(line::switches("vVtTqspecg")).collect()
    },
    files: &[
        ("templates/*.template", "Templates, next to the configuration file."),
        ("conf.d/", "The filled-in files."),
        ("/docker-entrypoint.d/*.sh", "Scripts that are run, if they are executable."),
        ("/docker-entrypoint.d/*.envsh", "Scripts that a shell reads, to set variables."),
    ],
    environment: &[
        ("NGINX_ENVSUBST_TEMPLATE_DIR", "The folder of templates."),
        ("NGINX_ENVSUBST_TEMPLATE_SUFFIX", "The end of their names, .template by default."),
        ("NGINX_ENVSUBST_OUTPUT_DIR", "The folder of the filled-in files."),
        ("NGINX_ENVSUBST_FILTER", "A regular expression: only such variables are replaced."),
        ("NGINX_ENTRYPOINT_LOCAL_RESOLVERS", "Set: NGINX_LOCAL_RESOLVERS has the name servers."),
        ("NGINX_ENTRYPOINT_QUIET_LOGS", "Set: no lines about scripts and written files."),
        ("WEIR_ENTRYPOINT_DIR", "The folder of scripts, if it is another one."),
    ],
    examples: &[("weir container -g 'daemon off;'", "The server in the foreground.")],
    run: Run::Switches(run),
    ..PLAIN
};

/// Runs the command with the arguments after its name. The first may be the name of a program, as
/// for the image of nginx.
fn run(args: &[OsString]) -> ExitCode {
    let is_program = |arg: &&OsString| matches!(arg.to_str(), Some("nginx" | "weir"));
    let own = if args.first().as_ref().is_some_and(is_program) { &args[1..] } else { args };
    let done = switches::parse(own.iter().cloned()).and_then(|typed| Ok((typed, prepare()?)));
    match done {
        Ok((typed, _)) if manual::show(&typed) => ExitCode::SUCCESS,
        Ok((_, Some(variables))) => restart(own, &variables),
        Ok((typed, None)) => start::run(&typed, std::env::args_os().collect(), Environ::capture()),
        Err(error) => error.report("container", 1),
    }
}

/// Runs the scripts and fills in the templates. Gives the variables if scripts have changed some.
fn prepare() -> Result<Option<Variables>, Error> {
    let quiet = std::env::var_os("NGINX_ENTRYPOINT_QUIET_LOGS").is_some();
    let folder = std::env::var_os("WEIR_ENTRYPOINT_DIR").filter(|folder| !folder.is_empty());
    let folder = folder.unwrap_or_else(|| entry_scripts::FOLDER.into());
    let mut scripts = Scripts::of(Path::new(&folder), std::env::vars_os().collect(), quiet)?;
    scripts.before_templates()?;
    let filled = Templates::of_environment(&scripts.variables)?.fill()?;
    if !quiet {
        filled.iter().for_each(|path| eprintln!("weir container: wrote {}", path.display()));
    }
    scripts.after_templates()?;
    Ok(scripts.changed.then_some(scripts.variables))
}

/// Runs the server in the place of this process, with other variables.
fn restart(switches: &[OsString], variables: &Variables) -> ExitCode {
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = process::Command::new(&program);
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    let error = command.args(switches).env_clear().envs(variables).exec();
    eprintln!("weir container: {}: {error}", program.display());
    ExitCode::FAILURE
}

/// Templates of configuration files.
struct Templates {
    /// Where they are.
    folder: PathBuf,
    /// The end of their names, which the files do not have.
    suffix: Vec<u8>,
    /// The folder that the filled templates are written to.
    output: PathBuf,
    /// The values of variables.
    values: HashMap<Vec<u8>, Vec<u8>>,
}

impl Templates {
    /// The templates that the environment names, next to the configuration file otherwise.
    fn of_environment(variables: &Variables) -> Result<Templates, Error> {
        let home = Path::new(layout().prefix).join(layout().conf_path);
        let home = home.parent().unwrap_or(Path::new("")).to_owned();
        let value = |name: &str| variables.get(OsStr::new(name)).cloned();
        let named = |name: &str| value(name).filter(|value| !value.is_empty());
        let path = |name: &str, own: &str| named(name).map_or_else(|| home.join(own), Into::into);
        let filter = named("NGINX_ENVSUBST_FILTER").map(|text| {
            Pattern::new(text.as_bytes(), false)
                .map_err(|e| Error::usage(format!("NGINX_ENVSUBST_FILTER: {e}")))
        });
        let filter = filter.transpose()?;
        let passes = |name: &[u8]| match &filter {
            None => true,
            Some(filter) => filter.is_match(name).is_ok_and(|matches| matches),
        };
        let values = variables
            .iter()
            .map(|(name, value)| (name.clone().into_vec(), value.clone().into_vec()))
            .filter(|(name, _)| passes(name));
        let mut values: HashMap<_, _> = values.collect();
        if named("NGINX_ENTRYPOINT_LOCAL_RESOLVERS").is_some() {
            let text = fs::read("/etc/resolv.conf").unwrap_or_default();
            values.insert(b"NGINX_LOCAL_RESOLVERS".to_vec(), resolvers(&text));
        }
        let suffix = named("NGINX_ENVSUBST_TEMPLATE_SUFFIX");
        Ok(Templates {
            folder: path("NGINX_ENVSUBST_TEMPLATE_DIR", "templates"),
            suffix: suffix.unwrap_or_else(|| ".template".into()).into_vec(),
            output: path("NGINX_ENVSUBST_OUTPUT_DIR", "conf.d"),
            values,
        })
    }

    /// Writes the files of all templates; returns their paths.
    fn fill(&self) -> Result<Vec<PathBuf>, Error> {
        let mut written = Vec::new();
        if self.folder.is_dir() {
            self.fill_folder(Path::new(""), DEPTH_MAX, &mut written)?;
        }
        Ok(written)
    }

    fn fill_folder(
        &self,
        below: &Path,
        depth: usize,
        written: &mut Vec<PathBuf>,
    ) -> Result<(), Error> {
        let folder = self.folder.join(below);
        let list = fs::read_dir(&folder).map_err(Error::file(&folder))?;
        let mut names: Vec<OsString> = list.flatten().map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        for name in names {
            let path = folder.join(&name);
            if path.is_dir() {
                let depth = depth.checked_sub(1);
                let depth =
                    depth.ok_or_else(|| Error::usage(format!("{}: too deep", path.display())))?;
                self.fill_folder(&below.join(&name), depth, written)?;
                continue;
            }
            let Some(bare) = name.as_bytes().strip_suffix(&self.suffix[..]) else { continue };
            let to = self.output.join(below).join(OsStr::from_bytes(bare));
            let text = fs::read(&path).map_err(Error::file(&path))?;
            let parent = to.parent().unwrap_or(&self.output);
            fs::create_dir_all(parent).map_err(Error::file(parent))?;
            fs::write(&to, self.filled(&text)).map_err(Error::file(&to))?;
            written.push(to);
        }
        Ok(())
    }

    /// A text with `$NAME` and `${NAME}` replaced, where the environment has the variable: all
    /// others are the server's.
    fn filled(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = memchr::memchr(b'$', rest) {
            out.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            match name(&rest[1..]).and_then(|(name, len)| Some((self.values.get(name)?, len))) {
                Some((value, len)) => {
                    out.extend_from_slice(value);
                    rest = &rest[1 + len..];
                }
                None => {
                    out.push(b'$');
                    rest = &rest[1..];
                }
            }
        }
        out.extend_from_slice(rest);
        out
    }
}

/// The name of a variable behind its dollar, and the length with braces.
fn name(text: &[u8]) -> Option<(&[u8], usize)> {
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let (inner, braced) = match text.strip_prefix(b"{") {
        Some(inner) => (inner, true),
        None => (text, false),
    };
    let len = inner.iter().position(|b| !is_name(b)).unwrap_or(inner.len());
    let name = &inner[..len];
    if name.first().is_none_or(u8::is_ascii_digit) || braced && inner.get(len) != Some(&b'}') {
        return None;
    }
    Some((name, if braced { len + 2 } else { len }))
}

/// The name servers of a `resolv.conf`, as `resolver` takes them.
fn resolvers(text: &[u8]) -> Vec<u8> {
    let mut all: Vec<String> = Vec::new();
    for line in String::from_utf8_lossy(text).lines() {
        let mut words = line.split_whitespace();
        if let (Some("nameserver"), Some(address)) = (words.next(), words.next()) {
            let bare = address.split('%').next().unwrap_or(address);
            all.push(if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() });
        }
    }
    all.join(" ").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> String {
        let pairs = [("PORT", "80"), ("NAME", "a.example"), ("EMPTY", "")];
        let bytes = |text: &str| text.as_bytes().to_vec();
        let templates = Templates {
            folder: PathBuf::new(),
            suffix: Vec::new(),
            output: PathBuf::new(),
            values: pairs.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
        };
        String::from_utf8(templates.filled(text.as_bytes())).expect("it stays text")
    }

    #[test]
    fn variables_of_the_environment_are_replaced_and_no_others() {
        assert_eq!(filled("listen $PORT; n ${NAME}:$PORT$EMPTY;"), "listen 80; n a.example:80;");
        for same in ["$host", "${PORT", "$PORTS", "$", "a$", "${}", "$1PORT", "$ PORT"] {
            assert_eq!(filled(same), same);
        }
        assert_eq!(filled("$$PORT"), "$80");
    }

    #[test]
    fn name_servers() {
        let text = b"# c\nnameserver 10.0.0.1\nsearch a\nnameserver fe80::1%eth0\nnameserver\n";
        assert_eq!(resolvers(text), b"10.0.0.1 [fe80::1]");
    }
}
