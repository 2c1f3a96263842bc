//! Folders with all that is in them: deleting and copying. Others have their turn after each folder
//! and each large file.

use std::fs::DirEntry;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::log::Level;
use http::module::Verdict;
use http::place::{Place, copy};
use http::request::Request;

use super::failed;

/// A step of a walk through a tree.
enum Visit {
    Enter(PathBuf),
    /// All in it was visited.
    Leave(PathBuf),
}

/// What is in a folder, read before any of it is visited.
fn entries(dir: &Path) -> io::Result<Vec<DirEntry>> {
    std::fs::read_dir(dir)?.collect()
}

/// Removes a file, or a folder with all that is in it. What cannot be removed inside is logged, and
/// the rest removed all the same.
///
/// # Errors
/// The answer: the folder cannot be read, or is not empty in the end.
pub(super) async fn delete(r: &Request, path: &Path, is_dir: bool) -> Result<(), Verdict> {
    if !is_dir {
        return std::fs::remove_file(path).map_err(|e| failed(r, "unlink()", path, &e, 404));
    }
    let mut steps = vec![Visit::Enter(path.to_owned())];
    while let Some(step) = steps.pop() {
        match step {
            Visit::Enter(dir) => {
                let inside = match entries(&dir) {
                    Ok(list) => list,
                    Err(e) => {
                        unread(r, &dir, &e);
                        if dir == path {
                            return Err(Verdict::Status(500));
                        }
                        continue;
                    }
                };
                steps.push(Visit::Leave(dir));
                for entry in inside {
                    let inner = entry.path();
                    if entry.file_type().is_ok_and(|t| t.is_dir()) {
                        steps.push(Visit::Enter(inner));
                    } else if let Err(e) = std::fs::remove_file(&inner) {
                        let _ = failed(r, "unlink()", &inner, &e, 404);
                    }
                }
                event::task::yield_now().await;
            }
            Visit::Leave(dir) => {
                if let Err(e) = std::fs::remove_dir(&dir) {
                    let status = failed(r, "rmdir()", &dir, &e, 404);
                    if dir == path {
                        return Err(status);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Copies what is in the folder `from` into the folder `to`, which is there already: files and
/// folders, but no links and devices. What cannot be copied is logged.
///
/// # Errors
/// The answer: the folder cannot be read.
pub(super) async fn copy_into(r: &Request, from: &Path, to: &Path) -> Result<(), Verdict> {
    let mut steps = vec![Visit::Enter(from.to_owned())];
    while let Some(step) = steps.pop() {
        match step {
            Visit::Enter(dir) => {
                let inside = match entries(&dir) {
                    Ok(list) => list,
                    Err(e) => {
                        unread(r, &dir, &e);
                        if dir == from {
                            return Err(Verdict::Status(500));
                        }
                        continue;
                    }
                };
                for entry in inside {
                    visit(r, from, to, &entry, &mut steps).await;
                }
                event::task::yield_now().await;
            }
            Visit::Leave(dir) => keep_time(r, &dir, &moved(from, to, &dir)),
        }
    }
    Ok(())
}

async fn visit(r: &Request, from: &Path, to: &Path, entry: &DirEntry, steps: &mut Vec<Visit>) {
    let path = entry.path();
    let target = moved(from, to, &path);
    let Ok(kind) = entry.file_type() else { return };
    if kind.is_file() {
        if let Err(e) = copy(&path, &target, Place::default()).await {
            r.log(Level::Crit, format_args!("{e}"));
        }
    } else if kind.is_dir() {
        if let Err(e) = copy_folder(&path, &target) {
            let _ = failed(r, "mkdir()", &target, &e, 404);
        }
        steps.push(Visit::Leave(path.clone()));
        steps.push(Visit::Enter(path));
    }
}

/// Makes a folder with the permissions of another.
pub(super) fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    let mode = os::file::stat(from)?.mode & 0o777;
    std::fs::DirBuilder::new().mode(mode).create(to)
}

/// A path below `from`, below `to`.
fn moved(from: &Path, to: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix(from) {
        Ok(rest) => to.join(rest),
        Err(_) => to.to_owned(),
    }
}

/// Gives a copied folder the time of its original, now that nothing more comes into it.
fn keep_time(r: &Request, from: &Path, to: &Path) {
    let set = || {
        let meta = os::file::stat(from)?;
        os::file::set_mtime(os::file::open(to)?, meta.mtime_sec)
    };
    if let Err(e) = set() {
        r.log_os(Level::Alert, format_args!("futimens() \"{}\"", to.display()), &e);
    }
}

fn unread(r: &Request, dir: &Path, e: &io::Error) {
    r.log_os(Level::Crit, format_args!("opendir() \"{}\"", dir.display()), e);
}
