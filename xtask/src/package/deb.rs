//! Debian packages, by dpkg-deb.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::{self, Content, Entry};
use crate::run;
use crate::workspace::Workspace;

/// A package.
pub struct Deb<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
    /// `amd64` and the like, or `all`.
    pub architecture: &'a str,
    /// Lines of its control file beyond those of every package: `Depends: …`.
    pub control: &'a [String],
    /// Its description: a line, and the text below.
    pub description: (&'a str, &'a str),
    /// Its scripts by name.
    pub scripts: &'a [(&'a str, String)],
    /// Its files.
    pub entries: &'a [Entry],
}

/// Writes the package to a folder; returns its path.
pub fn write(ws: &Workspace, deb: &Deb<'_>, work: &Path, out: &Path) -> Result<PathBuf, String> {
    let root = work.join(format!("deb-{}", deb.name));
    files::write(&root, deb.entries)?;
    let control = root.join("DEBIAN");
    let failed = |e: std::io::Error| format!("cannot write {}: {e}", control.display());
    let mut meta = vec![Entry::file("control", text(deb))];
    let names = deb.entries.iter().filter(|entry| entry.is_configuration);
    let conffiles: String = names.map(|entry| format!("/{}\n", entry.path)).collect();
    if !conffiles.is_empty() {
        meta.push(Entry::file("conffiles", conffiles));
    }
    meta.push(Entry::file("md5sums", sums(ws, &root, deb.entries)?));
    for (name, script) in deb.scripts {
        meta.push(Entry::program(name, script.clone().into_bytes()));
    }
    files::write(&control, &meta)?;
    let file = out.join(format!("{}_{}_{}.deb", deb.name, deb.version, deb.architecture));
    let (from, to) = (root.to_string_lossy(), file.to_string_lossy());
    run::output(ws, "dpkg-deb", &["--root-owner-group", "-Zxz", "--build", &from, &to])?;
    fs::remove_dir_all(&root).map_err(failed)?;
    Ok(file)
}

/// The maker of the packages, by Debian's variables.
pub fn maintainer() -> String {
    let or = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let (name, address) =
        (or("DEBFULLNAME", "The Weir project"), or("DEBEMAIL", "weir@example.org"));
    format!("{name} <{address}>")
}

fn text(deb: &Deb<'_>) -> String {
    let Deb { name, version, architecture, control, description: (line, more), .. } = deb;
    let content = |entry: &Entry| match &entry.content {
        Content::File(bytes) => bytes.len(),
        _ => 0,
    };
    let size = deb.entries.iter().map(content).sum::<usize>().div_ceil(1024);
    let more: String = more.lines().map(|line| format!(" {line}\n")).collect();
    let control: String = control.iter().map(|line| format!("{line}\n")).collect();
    format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: {}\nInstalled-Size: {size}\nPriority: optional\n{control}\
         Description: {line}\n{more}",
        maintainer()
    )
}

fn sums(ws: &Workspace, root: &Path, entries: &[Entry]) -> Result<String, String> {
    let mut out = String::new();
    for entry in entries.iter().filter(|entry| matches!(entry.content, Content::File(_))) {
        let path = root.join(&entry.path);
        let line = run::output(ws, "md5sum", &[&path.to_string_lossy()])?;
        let sum = line.split_whitespace().next().unwrap_or_default();
        out.push_str(&format!("{sum}  {}\n", entry.path));
    }
    Ok(out)
}

/// The libraries that a program needs, as packages: what dpkg-shlibdeps finds.
pub fn libraries(ws: &Workspace, program: &Path, work: &Path) -> Result<String, String> {
    // It wants to stand in a source package.
    let folder = work.join("shlibdeps");
    files::write(
        &folder,
        &[Entry::file("debian/control", "Source: weir\n\nPackage: weir\nArchitecture: any\n")],
    )?;
    let script = "cd \"$1\" && dpkg-shlibdeps -O \"$2\"";
    let words = ["-c", script, "sh", &folder.to_string_lossy(), &program.to_string_lossy()];
    let found = run::output(ws, "sh", &words)?;
    let line = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    line.map(str::to_owned).ok_or_else(|| "dpkg-shlibdeps names no libraries".to_owned())
}
