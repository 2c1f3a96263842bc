//! The crate that is compiled: a manifest, and a `main` that names the modules.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::options::{From, With};

use crate::error::Error;

/// The name of the crate and of its program: not `weir`, so that it can be compiled into a folder
/// that has the server of the sources.
pub(crate) const PROGRAM: &str = "weir-with-modules";

/// A module that is built in.
pub(crate) struct Module {
    /// The name of its crate.
    pub(crate) name: String,
    /// The text behind the name in the manifest.
    requirement: String,
    /// Its folder, where it has one.
    path: Option<PathBuf>,
    /// Its version, once cargo has chosen.
    pub(crate) version: String,
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)?;
        match &self.path {
            Some(path) => write!(f, " from {}", path.display()),
            None => Ok(()),
        }
    }
}

impl Module {
    /// Finds a requested module.
    ///
    /// # Errors
    /// There is no crate of that name in that folder.
    pub(crate) fn find(with: &With) -> Result<Module, Error> {
        let name = with.name.clone();
        let (requirement, path) = match &with.from {
            From::Registry => (quoted("*"), None),
            From::Version(version) => (quoted(version), None),
            From::Path(path) => {
                let shown = path.display();
                let path =
                    fs::canonicalize(path).map_err(|e| Error::usage(format!("{shown}: {e}")))?;
                let manifest = path.join("Cargo.toml");
                let text = fs::read_to_string(&manifest).map_err(Error::file(&manifest))?;
                match package(&text, "name") {
                    Some(found) if found == name => {}
                    Some(found) => {
                        return Err(Error::usage(format!(
                            "{shown} is the crate {found}, not {name}"
                        )));
                    }
                    None => {
                        return Err(Error::usage(format!(
                            "{}: no package found",
                            manifest.display()
                        )));
                    }
                }
                let folder =
                    path.to_str().ok_or_else(|| Error::usage(format!("{shown}: not UTF-8")))?;
                (format!("{{ path = {} }}", quoted(folder)), Some(path))
            }
        };
        Ok(Module { name, requirement, path, version: String::new() })
    }
}

/// A string of TOML or Rust.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A text of the `[package]` section of a manifest.
fn package(manifest: &str, key: &str) -> Option<String> {
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[package]").skip(1);
    lines.by_ref().take_while(|line| !line.starts_with('[')).find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
    })
}

/// The version of the interface in the project's sources.
///
/// # Errors
/// It cannot be read.
pub(crate) fn interface_of(sources: &Path) -> Result<String, Error> {
    let manifest = sources.join("crates/module/Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(Error::file(&manifest))?;
    package(&text, "version")
        .ok_or_else(|| Error::usage(format!("{}: no version there", manifest.display())))
}

/// Writes the crate, but for the versions of its modules.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn write(folder: &Path, sources: &Path, modules: &[Module]) -> Result<(), Error> {
    let made = folder.join("src");
    fs::create_dir_all(&made).map_err(Error::file(&made))?;
    put(&folder.join("Cargo.toml"), &manifest(sources, modules)?)?;
    // The versions that weir itself was tested with; those of the modules are added.
    let (lock, own) = (folder.join("Cargo.lock"), sources.join("Cargo.lock"));
    if own.is_file() {
        fs::copy(&own, &lock).map_err(Error::file(&lock))?;
    }
    write_main(folder, modules)
}

/// Writes its `main`.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_main(folder: &Path, modules: &[Module]) -> Result<(), Error> {
    put(&folder.join("src/main.rs"), &main(modules))
}

/// Writes a file unless it has the text already, so that cargo need not compile it again.
fn put(file: &Path, text: &str) -> Result<(), Error> {
    if fs::read(file).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    fs::write(file, text).map_err(Error::file(&file))
}

/// The manifest of the workspace, whose profiles the generated one repeats: cargo reads profiles
/// from the manifest at the root of a build alone.
const WORKSPACE: &str = include_str!("../../../../Cargo.toml");

/// The profiles of the workspace, which stand at the end of its manifest.
fn profiles() -> &'static str {
    WORKSPACE.find("[profile.release]").map_or("", |at| &WORKSPACE[at..])
}

fn manifest(sources: &Path, modules: &[Module]) -> Result<String, Error> {
    let of = |name: &str| -> Result<String, Error> {
        let path = sources.join("crates").join(name);
        let text =
            path.to_str().ok_or_else(|| Error::usage(format!("{}: not UTF-8", path.display())))?;
        Ok(quoted(text))
    };
    let mut text = format!(
        "# Written by \"weir build\".\n[package]\nname = \"{PROGRAM}\"\n\
         version = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n[workspace]\n\n\
         [[bin]]\nname = \"{PROGRAM}\"\npath = \"src/main.rs\"\n\n[dependencies]\n"
    );
    text.push_str(&format!("weir-cli = {{ path = {} }}\n", of("cli")?));
    for module in modules {
        text.push_str(&format!("{} = {}\n", module.name, module.requirement));
    }
    text.push_str(&format!(
        "\n# Modules name the interface by its version; it is the one of these sources.\n\
         [patch.crates-io]\nweir-module = {{ path = {} }}\n",
        of("module")?
    ));
    text.push_str("\n[profile.dev]\ndebug = \"line-tables-only\"\n\n");
    text.push_str(profiles());
    Ok(text)
}

fn main(modules: &[Module]) -> String {
    let mut text = String::from(
        "//! Written by \"weir build\".\n#![forbid(unsafe_code)]\n\nuse weir_cli::Added;\n\n\
         static ADDED: &[Added] = &[\n",
    );
    for Module { name, version, .. } in modules {
        let krate = name.replace('-', "_");
        let (name, version) = (quoted(name), quoted(version));
        text.push_str(&format!(
            "    Added {{ name: {name}, version: {version}, module: &{krate}::MODULE }},\n"
        ));
    }
    text.push_str("];\n\nfn main() -> std::process::ExitCode {\n    weir_cli::run(ADDED)\n}\n");
    text
}

/// The version that `cargo tree` gives for a crate: `NAME vVERSION (PATH)`.
pub(crate) fn version_in(tree: &str, name: &str) -> Option<String> {
    tree.lines().find_map(|line| {
        let mut words = line.split(' ');
        let version = (words.next()? == name).then(|| words.next())??;
        Some(version.strip_prefix('v')?.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_package() {
        let text = "[lib]\nname = \"x\"\n\n[package]\nversion = \"1\"\nname = \"weir-y\"\n\
                    [dependencies]\nname=\"z\"\n";
        assert_eq!(package(text, "name").as_deref(), Some("weir-y"));
        assert_eq!(package("[package]\n[lib]\nname = \"x\"\n", "name"), None);
    }

    #[test]
    fn the_generated_manifest_has_the_profiles() {
        let text = manifest(Path::new("/src"), &[]).unwrap();
        for section in ["[profile.dev]", "[profile.release]", "[profile.quick]"] {
            assert!(text.contains(section), "{section} in {text}");
        }
        assert_eq!(profiles().lines().filter(|line| *line == "[workspace]").count(), 0);
    }

    #[test]
    fn versions_are_read_from_the_tree() {
        let tree = "weir-with-modules v0.0.0 (/x)\nweir-ab v0.3.1 (/y)\nweir-a v1.2.3\n";
        assert_eq!(version_in(tree, "weir-a").as_deref(), Some("1.2.3"));
        assert_eq!(version_in(tree, "weir-ab").as_deref(), Some("0.3.1"));
        assert_eq!(version_in(tree, "weir"), None);
    }

    #[test]
    fn modules_stand_in_main_in_their_order() {
        let of = |name: &str| Module {
            name: name.to_owned(),
            requirement: quoted("*"),
            path: None,
            version: "1.0.0".to_owned(),
        };
        let text = main(&[of("weir-b"), of("weir-a")]);
        let (b, a) = (text.find("&weir_b::MODULE").unwrap(), text.find("&weir_a::MODULE").unwrap());
        assert!(b < a);
        let manifest = manifest(Path::new("/s p\"ace"), &[of("weir-b")]).unwrap();
        assert!(manifest.contains("weir-cli = { path = \"/s p\\\"ace/crates/cli\" }"));
        assert!(manifest.contains("\nweir-b = \"*\"\n"));
    }
}
