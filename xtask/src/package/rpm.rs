//! RPM packages, by rpmbuild.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::{self, Content, Entry};
use crate::run;
use crate::workspace::Workspace;

/// Writes the package to a folder; returns its path.
pub fn write(
    ws: &Workspace,
    version: &str,
    entries: &[Entry],
    work: &Path,
    out: &Path,
) -> Result<PathBuf, String> {
    let (root, top) = (work.join("rpm-root"), work.join("rpm"));
    files::write(&root, entries)?;
    let spec = work.join("weir.spec");
    let text = spec_text(version, entries, &root);
    fs::write(&spec, text).map_err(|e| format!("cannot write {}: {e}", spec.display()))?;
    let top_dir = format!("_topdir {}", top.display());
    let rpm_dir = format!("_rpmdir {}", out.display());
    let name = "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm";
    let spec = spec.to_string_lossy();
    let words = ["-bb", "--quiet", "-D", &top_dir, "-D", &rpm_dir, "-D", name, &spec];
    run::output(ws, "rpmbuild", &words)?;
    let machine = std::env::consts::ARCH;
    Ok(out.join(format!("weir-{version}-1.{machine}.rpm")))
}

fn spec_text(version: &str, entries: &[Entry], root: &Path) -> String {
    let mut list = String::new();
    for entry in entries {
        let Entry { path, mode, content, is_configuration } = entry;
        let kind = match content {
            Content::Folder => "%dir ",
            _ if *is_configuration => "%config(noreplace) ",
            _ => "",
        };
        let attributes = match content {
            Content::Link(_) => String::new(),
            _ => format!("%attr({mode:04o}, root, root) "),
        };
        list.push_str(&format!("{attributes}{kind}/{path}\n"));
    }
    let root = root.display();
    format!(
        "%global debug_package %{{nil}}\n%global __os_install_post %{{nil}}\n\
         Name: weir\nVersion: {version}\nRelease: 1\nSummary: Web server that reads nginx.conf\n\
         License: MIT OR Apache-2.0\n\n%description\n{}\n%install\nmkdir -p %{{buildroot}}\n\
         cp -a {root}/. %{{buildroot}}/\n\n%post\n\
         if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi\n\n\
         %preun\nif [ \"$1\" = 0 ] && [ -d /run/systemd/system ]; then\n\
         systemctl --quiet disable --now weir.service || true\nfi\n\n%files\n{list}",
        super::DESCRIPTION
    )
}
