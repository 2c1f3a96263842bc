//! The arguments of `weir build`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches};

use crate::error::Error;
use crate::line::{option, valued};

/// The declared arguments.
pub(crate) fn args() -> Vec<Arg> {
    let path = |name, value, doc| valued(name, value, doc).value_parser(ValueParser::path_buf());
    let with = "A crate of the registry, a version of one (1.2, =1.2.3), or one in a folder; may \
                be repeated";
    vec![
        valued("with", "CRATE[@VERSION|=PATH]", with)
            .action(ArgAction::Append)
            .value_parser(ValueParser::os_string())
            .required(true),
        path("output", "FILE", "The program to write [default: weir]").short('o'),
        path(
            "weir",
            "DIR",
            "Weir's sources [default: those around the current folder, or those that this program \
             was built from]",
        ),
        path("folder", "DIR", "Build folder [default: weir-build in the user's cache]"),
        path("target-dir", "DIR", "Cargo's target folder [default: in the build folder]"),
        option("release", "Fully optimized, for measurements and deployment; takes minutes")
            .overrides_with("debug"),
        option("debug", "Not optimized, with line numbers for debuggers").overrides_with("release"),
        option("offline", "Without network access"),
    ]
}

/// A requested module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct With {
    /// The name of its crate.
    pub(crate) name: String,
    /// Its source.
    pub(crate) from: From,
}

/// See [`With`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum From {
    /// The registry, any version.
    Registry,
    /// The registry, with a version as cargo reads it.
    Version(String),
    /// A folder.
    Path(PathBuf),
}

/// How the server is optimized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    /// Hardly optimized, which keeps the loop of writing a module short.
    Quick,
    /// As packages are: optimized as a whole while it is linked.
    Release,
    /// Not at all.
    Debug,
}

impl Profile {
    /// Its name in the manifest.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Profile::Quick => "quick",
            Profile::Release => "release",
            Profile::Debug => "dev",
        }
    }

    /// Its folder below cargo's target folder.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Profile::Debug => "debug",
            other => other.name(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// The modules, in order.
    pub(crate) with: Vec<With>,
    /// Where the program goes.
    pub(crate) output: PathBuf,
    /// `--weir`
    pub(crate) sources: Option<PathBuf>,
    pub(crate) folder: Option<PathBuf>,
    /// `--target-dir`
    pub(crate) target: Option<PathBuf>,
    /// `--release` or `--debug`
    pub(crate) profile: Profile,
    pub(crate) offline: bool,
}

impl Options {
    /// Reads the arguments.
    ///
    /// # Errors
    /// A module's specification is malformed.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Options, Error> {
        let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
        let with = matches.get_many::<OsString>("with").into_iter().flatten().map(with);
        let options = Options {
            with: with.collect::<Result<_, _>>()?,
            output: path("output").unwrap_or_else(|| PathBuf::from("weir")),
            sources: path("weir"),
            folder: path("folder"),
            target: path("target-dir"),
            profile: match (matches.get_flag("release"), matches.get_flag("debug")) {
                (true, _) => Profile::Release,
                (_, true) => Profile::Debug,
                _ => Profile::Quick,
            },
            offline: matches.get_flag("offline"),
        };
        for (i, module) in options.with.iter().enumerate() {
            if options.with[..i].iter().any(|other| other.name == module.name) {
                return Err(Error::usage(format!("{} is named twice", module.name)));
            }
        }
        Ok(options)
    }
}

fn with(spec: &OsString) -> Result<With, Error> {
    let bytes = spec.as_bytes();
    let end = bytes.iter().position(|b| matches!(b, b'@' | b'='));
    let (name, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
    let name = String::from_utf8_lossy(name).into_owned();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(fits) {
        return Err(Error::usage(format!("\"{name}\" is not the name of a crate")));
    }
    let from = match rest.split_first() {
        None => From::Registry,
        Some((_, [])) => {
            return Err(Error::usage(format!(
                "the version or path is missing in \"{}\"",
                spec.to_string_lossy()
            )));
        }
        Some((b'@', version)) => match std::str::from_utf8(version) {
            Ok(v) if v.chars().all(|c| c.is_ascii_alphanumeric() || ".=^~<>-+*, ".contains(c)) => {
                From::Version(v.to_owned())
            }
            _ => {
                return Err(Error::usage(format!(
                    "\"{}\" has no valid version",
                    spec.to_string_lossy()
                )));
            }
        },
        Some((_, path)) => From::Path(OsString::from_vec(path.to_vec()).into()),
    };
    Ok(With { name, from })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Options, Error> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let matches = crate::build::COMMAND.parse(&args);
        Options::read(&matches.map_err(|e| Error::usage(e.to_string()))?)
    }

    #[test]
    fn modules_and_where_they_come_from() {
        let args = [
            "--with",
            "a=../x=y",
            "--with=b@1.2",
            "--with",
            "c",
            "-o",
            "out",
            "--debug",
            "--target-dir=t",
        ];
        let options = read(&args).unwrap();
        let of = |name: &str, from| With { name: name.to_owned(), from };
        assert_eq!(
            options.with,
            [
                of("a", From::Path("../x=y".into())),
                of("b", From::Version("1.2".to_owned())),
                of("c", From::Registry)
            ]
        );
        assert_eq!(options.output, PathBuf::from("out"));
        assert_eq!(options.target, Some(PathBuf::from("t")));
        assert_eq!((options.profile, options.offline), (Profile::Debug, false));
        let profile = |args: &[&str]| read(args).ok().map(|o| o.profile.name());
        assert_eq!(profile(&["--with", "a"]), Some("quick"));
        assert_eq!(profile(&["--with", "a", "--release"]), Some("release"));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (args, said) in [
            (&[][..], "not provided:\n  --with <CRATE[@VERSION|=PATH]>"),
            (&["--with"], "a value is required for '--with <CRATE[@VERSION|=PATH]>'"),
            (&["--with", "../x"], "\"../x\" is not the name of a crate"),
            (&["--with", "a@"], "the version or path is missing in \"a@\""),
            (&["--with", "a@\"1"], "\"a@\"1\" has no valid version"),
            (&["--with", "a", "--with", "a=b"], "a is named twice"),
            (&["--fast"], "unexpected argument '--fast'"),
        ] {
            let error = read(args).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
