//! The user of the workers: unless another is named, one without privilege who owns none of the
//! served files, as servers are deployed.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use crate::Outcome;

/// A user as `/etc/passwd` and `/etc/group` have it.
struct User {
    name: String,
    group: String,
    uid: u32,
    gid: u32,
}

static USER: OnceLock<User> = OnceLock::new();

/// Sets the workers' user. Only root can change users: for anybody else, nothing is set.
pub fn set_user(name: &str) -> Outcome {
    if rustix::process::getuid().is_root() {
        let _ = USER.set(find(name)?);
    }
    Ok(())
}

fn find(name: &str) -> Outcome<User> {
    let fields = |line: &str| line.split(':').map(str::to_string).collect::<Vec<_>>();
    let rows = |path: &str| -> Outcome<Vec<Vec<String>>> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
        Ok(text.lines().map(fields).collect())
    };
    let number = |row: &[String], at: usize| row.get(at).and_then(|n| n.parse::<u32>().ok());
    let users = rows("/etc/passwd")?;
    let user = users.iter().find(|row| row[0] == name);
    let (uid, gid) = user
        .and_then(|row| Some((number(row, 2)?, number(row, 3)?)))
        .ok_or_else(|| format!("no user is called {name:?}"))?;
    let groups = rows("/etc/group")?;
    let group = groups.iter().find(|row| number(row, 2) == Some(gid));
    let group = group.ok_or_else(|| format!("the group {gid} of {name:?} has no name"))?[0].clone();
    Ok(User { name: name.to_string(), group, uid, gid })
}

/// The `user` line of configurations; empty where only the caller's own user can run workers.
pub fn user_line() -> String {
    USER.get().map_or_else(String::new, |user| format!("user {} {};", user.name, user.group))
}

/// The same for another user.
pub fn line_of(name: &str) -> String {
    match (USER.get(), find(name)) {
        (Some(_), Ok(user)) => format!("user {} {};", user.name, user.group),
        _ => String::new(),
    }
}

/// The name and the group of the workers' user, where that is set.
pub fn names() -> Option<(&'static str, &'static str)> {
    USER.get().map(|user| (user.name.as_str(), user.group.as_str()))
}

/// Gives a file or a folder that the workers write to them.
pub fn give(path: &Path) -> io::Result<()> {
    let Some(user) = USER.get() else { return Ok(()) };
    std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))
}
