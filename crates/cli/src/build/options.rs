//! The arguments of `weir build`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The text of `--help`.
pub const HELP: &str = "\
Usage: weir build --with CRATE[@VERSION|=PATH]... [OPTION...]

Compiles a server with the modules that you name, in the order given.

  --with CRATE           : a crate of the registry, its latest version
  --with CRATE@VERSION   : a version, as in a Cargo.toml: 1.2, =1.2.3
  --with CRATE=PATH      : a crate in a folder
  -o, --output FILE      : the program to write (default: weir)
  --weir DIR             : Weir's sources (default: the ones around the current folder, or
                           those that this program was built from)
  --folder DIR           : build folder (default: weir-build in the user's cache)
  --target-dir DIR       : cargo's target folder (default: target in the build folder)
  --release              : fully optimized, for measurements and deployment; takes minutes
  --debug                : not optimized, with line numbers for debuggers
  --offline              : without network access

Example:
  weir build --with weir-hello=../weir-hello -o weir-hello-server
";

/// A requested module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct With {
    /// The name of its crate.
    pub name: String,
    /// Its source.
    pub from: From,
}

/// See [`With`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum From {
    /// The registry, any version.
    Registry,
    /// The registry, with a version as cargo reads it.
    Version(String),
    /// A folder.
    Path(PathBuf),
}

/// How the server is optimized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Hardly optimized, which keeps the loop of writing a module short.
    Quick,
    /// As packages are: optimized as a whole while it is linked.
    Release,
    /// Not at all.
    Debug,
}

impl Profile {
    /// Its name in the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Quick => "quick",
            Profile::Release => "release",
            Profile::Debug => "dev",
        }
    }

    /// Its folder below cargo's target folder.
    pub fn folder(self) -> &'static str {
        match self {
            Profile::Debug => "debug",
            other => other.name(),
        }
    }
}

/// The options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The modules, in order.
    pub with: Vec<With>,
    /// Where the program goes.
    pub output: PathBuf,
    /// `--weir`
    pub sources: Option<PathBuf>,
    /// `--folder`
    pub folder: Option<PathBuf>,
    /// `--target-dir`
    pub target: Option<PathBuf>,
    /// `--release` or `--debug`
    pub profile: Profile,
    /// `--offline`
    pub offline: bool,
}

impl Options {
    /// Reads the arguments; `None` for help.
    ///
    /// # Errors
    /// A malformed argument.
    pub fn read(args: &[OsString]) -> Result<Option<Options>, String> {
        let mut options = Options {
            with: Vec::new(),
            output: PathBuf::from("weir"),
            sources: None,
            folder: None,
            target: None,
            profile: Profile::Quick,
            offline: false,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (name, joined) = split(arg);
            let mut value = |what: &str| -> Result<OsString, String> {
                let value = joined.clone().or_else(|| args.next().cloned());
                value.ok_or_else(|| format!("option \"{name}\" requires {what}"))
            };
            match name.as_str() {
                "--with" => options.with.push(with(&value("CRATE[@VERSION|=PATH]")?)?),
                "-o" | "--output" => options.output = value("file name")?.into(),
                "--weir" => options.sources = Some(value("directory name")?.into()),
                "--folder" => options.folder = Some(value("directory name")?.into()),
                "--target-dir" => options.target = Some(value("directory name")?.into()),
                "--release" => options.profile = Profile::Release,
                "--debug" => options.profile = Profile::Debug,
                "--offline" => options.offline = true,
                "-h" | "--help" => return Ok(None),
                _ => return Err(format!("invalid option: \"{name}\" (see weir build --help)")),
            }
        }
        if options.with.is_empty() {
            return Err("nothing to build with: name a module (see weir build --help)".into());
        }
        for (i, module) in options.with.iter().enumerate() {
            if options.with[..i].iter().any(|other| other.name == module.name) {
                return Err(format!("{} is named twice", module.name));
            }
        }
        Ok(Some(options))
    }
}

/// `--name=value` in its parts.
fn split(arg: &OsString) -> (String, Option<OsString>) {
    let bytes = arg.as_bytes();
    match bytes.iter().position(|b| *b == b'=') {
        Some(at) if bytes.starts_with(b"--") => {
            let value = OsString::from_vec(bytes[at + 1..].to_vec());
            (String::from_utf8_lossy(&bytes[..at]).into_owned(), Some(value))
        }
        _ => (arg.to_string_lossy().into_owned(), None),
    }
}

fn with(spec: &OsString) -> Result<With, String> {
    let bytes = spec.as_bytes();
    let end = bytes.iter().position(|b| matches!(b, b'@' | b'='));
    let (name, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
    let name = String::from_utf8_lossy(name).into_owned();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(fits) {
        return Err(format!("\"{name}\" is not the name of a crate"));
    }
    let from = match rest.split_first() {
        None => From::Registry,
        Some((_, [])) => {
            return Err(format!(
                "the version or path is missing in \"{}\"",
                spec.to_string_lossy()
            ));
        }
        Some((b'@', version)) => match std::str::from_utf8(version) {
            Ok(v) if v.chars().all(|c| c.is_ascii_alphanumeric() || ".=^~<>-+*, ".contains(c)) => {
                From::Version(v.to_owned())
            }
            _ => return Err(format!("\"{}\" has no valid version", spec.to_string_lossy())),
        },
        Some((_, path)) => From::Path(OsString::from_vec(path.to_vec()).into()),
    };
    Ok(With { name, from })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Option<Options>, String> {
        Options::read(&args.iter().map(OsString::from).collect::<Vec<_>>())
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
        let options = read(&args).unwrap().unwrap();
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
        let profile = |args: &[&str]| read(args).ok().flatten().map(|o| o.profile.name());
        assert_eq!(profile(&["--with", "a"]), Some("quick"));
        assert_eq!(profile(&["--with", "a", "--release"]), Some("release"));
        assert_eq!(read(&["--help"]), Ok(None));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (args, said) in [
            (&[][..], "nothing to build with: name a module (see weir build --help)"),
            (&["--with"], "option \"--with\" requires CRATE[@VERSION|=PATH]"),
            (&["--with", "../x"], "\"../x\" is not the name of a crate"),
            (&["--with", "a@"], "the version or path is missing in \"a@\""),
            (&["--with", "a@\"1"], "\"a@\"1\" has no valid version"),
            (&["--with", "a", "--with", "a=b"], "a is named twice"),
            (&["--fast"], "invalid option: \"--fast\" (see weir build --help)"),
        ] {
            assert_eq!(read(args).unwrap_err(), said);
        }
    }
}
