//! The workspace's root, files and members.

use std::fs;
use std::path::{Path, PathBuf};

/// The checkout that xtask was built from.
pub struct Workspace {
    root: PathBuf,
}

/// A member: its folder below the root and its manifest.
pub struct Member {
    /// The folder's path below the root, `crates/base`.
    pub dir: String,
    /// The folder's own name, `base`: the name our tiers use.
    pub name: String,
    /// Each dependency of the manifest that lies in the workspace, by folder name.
    pub dependencies: Vec<Dependency>,
}

/// One line of a manifest that names another member.
pub struct Dependency {
    /// The folder name of the member that is depended upon.
    pub name: String,
    /// Under `[dev-dependencies]`: tests may look further than the code they test.
    pub dev: bool,
}

impl Workspace {
    /// The workspace around this very program (its manifest's parent folder).
    pub fn here() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().unwrap_or(manifest).to_path_buf();
        Self { root }
    }

    /// The root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that cargo builds in.
    pub fn target(&self) -> PathBuf {
        let named =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        self.root().join(named)
    }

    /// The text of a file below the root.
    pub fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(self.root.join(path)).map_err(|e| format!("{path}: {e}"))
    }

    /// Writes a file below the root.
    pub fn write(&self, path: &str, text: &str) -> Result<(), String> {
        fs::write(self.root.join(path), text).map_err(|e| format!("{path}: {e}"))
    }

    /// Every file below the root that is ours, as paths with `/`, sorted: build output, version
    /// control and fuzzing's findings are left out.
    pub fn files(&self) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        self.walk(&self.root, &mut found)?;
        found.sort();
        Ok(found)
    }

    fn walk(&self, dir: &Path, found: &mut Vec<String>) -> Result<(), String> {
        const SKIPPED: &[&str] = &["target", ".git", "corpus", "artifacts"];
        let fail = |e: std::io::Error| format!("{}: {e}", dir.display());
        for entry in fs::read_dir(dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name();
            let kind = entry.file_type().map_err(fail)?;
            if kind.is_dir() {
                if !SKIPPED.iter().any(|s| name == *s) {
                    self.walk(&entry.path(), found)?;
                }
            } else if kind.is_file()
                && let Ok(below) = entry.path().strip_prefix(&self.root)
            {
                found.push(below.to_string_lossy().into_owned());
            }
        }
        Ok(())
    }

    /// The members, in the order of their folders.
    pub fn members(&self) -> Result<Vec<Member>, String> {
        let mut members = Vec::new();
        for file in self.files()? {
            let Some(dir) = file.strip_suffix("/Cargo.toml") else { continue };
            let name = dir.rsplit('/').next().unwrap_or(dir).to_string();
            let manifest = self.read(&file)?;
            if !manifest.contains("[package]") {
                // A workspace beside this one.
                continue;
            }
            let dependencies = dependencies(&manifest);
            members.push(Member { dir: dir.to_string(), name, dependencies });
        }
        Ok(members)
    }
}

/// The dependencies a manifest names, other people's included, by the name before the `=` or
/// after `package =` (`weir-` is cut off). A line reader: our manifests are plain.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').trim().to_string();
            // `[dependencies.base]` is a dependency of its own.
            if let Some((kind, name)) = section.rsplit_once('.')
                && kind.ends_with("dependencies")
            {
                found.push(Dependency {
                    name: short(name),
                    dev: kind.ends_with("dev-dependencies"),
                });
            }
            continue;
        }
        if !section.ends_with("dependencies") || line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim().split('.').next().unwrap_or_default();
        let name = value
            .split_once("package")
            .and_then(|(_, rest)| rest.split('"').nth(1))
            .unwrap_or(key.trim_matches('"'));
        found.push(Dependency { name: short(name), dev: section.ends_with("dev-dependencies") });
    }
    found
}

fn short(name: &str) -> String {
    name.strip_prefix("weir-").unwrap_or(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::dependencies;

    #[test]
    fn dependencies_are_read_in_every_shape() {
        let manifest = "[package]\nname = \"weir-net\"\n[dependencies]\nbase.workspace = true\n\
                        x = { package = \"weir-os\", path = \"../os\" }\n# event = 1\n\
                        [dev-dependencies]\ntestkit = { workspace = true }\n\
                        [target.'cfg(unix)'.dependencies]\nmem.workspace = true\n\
                        [dependencies.conf]\nworkspace = true\n";
        let seen: Vec<(String, bool)> =
            dependencies(manifest).into_iter().map(|d| (d.name, d.dev)).collect();
        let want =
            [("base", false), ("os", false), ("testkit", true), ("mem", false), ("conf", false)];
        assert_eq!(seen, want.map(|(n, d)| (n.to_string(), d)));
    }
}
