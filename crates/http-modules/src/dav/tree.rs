//! Folders with all that is in them: deleting and copying. Runs in a thread.

use std::fs::DirEntry;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::log::Level;
use files::{Attributes, copy_file};

use super::work::Notes;

/// A step of a walk through a tree.
enum Visit {
    Enter(PathBuf),
    /// All in it was visited.
    Leave(PathBuf),
}

/// The entries of a folder, read before any of them is visited.
fn entries(dir: &Path) -> io::Result<Vec<DirEntry>> {
    std::fs::read_dir(dir)?.collect()
}

/// Whether a path, without a slash at its end, is a symbolic link.
pub(super) fn is_link(path: &Path) -> bool {
    os::file::lstat(path).is_ok_and(|meta| meta.is_link())
}

/// Removes a file, or a folder with all that is in it. What cannot be removed inside is logged, and
/// the rest removed all the same.
///
/// # Errors
/// The status: the folder cannot be read, or is not empty in the end.
pub(super) fn delete(path: &Path, is_dir: bool, notes: &mut Notes) -> Result<(), u16> {
    if !is_dir {
        return std::fs::remove_file(path).map_err(|e| notes.failed("unlink()", path, e, 404));
    }
    let mut steps = vec![Visit::Enter(path.to_owned())];
    while let Some(step) = steps.pop() {
        match step {
            Visit::Enter(dir) => {
                let inside = match entries(&dir) {
                    Ok(list) => list,
                    Err(e) => {
                        notes.trouble(Level::Crit, "opendir()", &dir, e);
                        if dir == path {
                            return Err(500);
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
                        notes.failed("unlink()", &inner, e, 404);
                    }
                }
            }
            Visit::Leave(dir) => {
                if let Err(e) = std::fs::remove_dir(&dir) {
                    let status = notes.failed("rmdir()", &dir, e, 404);
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
/// folders, but no links and devices. What cannot be copied is logged, and the rest copied all the
/// same.
///
/// # Errors
/// The status: something is missing, so that the original must stay.
pub(super) fn copy_into(from: &Path, to: &Path, notes: &mut Notes) -> Result<(), u16> {
    let mut steps = vec![Visit::Enter(from.to_owned())];
    let mut done = Ok(());
    while let Some(step) = steps.pop() {
        match step {
            Visit::Enter(dir) => match entries(&dir) {
                Ok(inside) => {
                    for entry in inside {
                        done = done.and(visit(from, to, &entry, &mut steps, notes));
                    }
                }
                Err(e) => {
                    notes.trouble(Level::Crit, "opendir()", &dir, e);
                    done = done.and(Err(500));
                }
            },
            Visit::Leave(dir) => keep_time(&dir, &moved(from, to, &dir), notes),
        }
    }
    done
}

fn visit(
    from: &Path,
    to: &Path,
    entry: &DirEntry,
    steps: &mut Vec<Visit>,
    notes: &mut Notes,
) -> Result<(), u16> {
    let path = entry.path();
    let target = moved(from, to, &path);
    let kind = entry.file_type().map_err(|e| notes.failed("lstat()", &path, e, 500))?;
    if kind.is_file() {
        copy_file(&path, &target, Attributes::default()).map_err(|e| notes.undone(&e))?;
    } else if kind.is_dir() {
        copy_folder(&path, &target).map_err(|e| notes.failed("mkdir()", &target, e, 500))?;
        steps.push(Visit::Leave(path.clone()));
        steps.push(Visit::Enter(path));
    }
    Ok(())
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
fn keep_time(from: &Path, to: &Path, notes: &mut Notes) {
    let set = || {
        let meta = os::file::stat(from)?;
        os::file::set_mtime(os::file::open(to)?, meta.mtime_sec)
    };
    if let Err(e) = set() {
        notes.trouble(Level::Alert, "futimens()", to, e);
    }
}
