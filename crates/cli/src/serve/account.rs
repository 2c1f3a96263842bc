//! The account whose rights files are read with: a server that root starts must not show root's
//! files to everybody who asks.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::error::Error;

/// An account, by the names that the configuration takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) group: String,
    uid: u32,
    gid: u32,
}

/// The account that a server of root becomes: `named`, or the owner of the folder or file, or
/// nobody in the place of root.
///
/// # Errors
/// There is no such account, or it cannot reach the content.
pub(crate) fn choose(named: Option<&str>, content: Option<&Path>) -> Result<Account, Error> {
    let read = |path: &str| fs::read_to_string(path).map_err(Error::file(path));
    let (users, groups) = (read("/etc/passwd")?, read("/etc/group")?);
    let owner = content.and_then(|path| fs::metadata(path).ok()).map(|meta| meta.uid());
    let account = match named {
        Some(name) => by(&users, &groups, |user, _| user == name)
            .ok_or_else(|| Error::usage(format!("--user: there is no account \"{name}\"")))?,
        None => owner
            .filter(|uid| *uid != 0)
            .and_then(|owner| by(&users, &groups, |_, uid| uid == owner))
            .or_else(|| by(&users, &groups, |user, _| user == "nobody"))
            .ok_or_else(|| {
                Error::system("this system has no account nobody: name one with --user")
            })?,
    };
    match content.and_then(|path| obstacle(path, &account)) {
        None => Ok(account),
        Some(obstacle) => Err(Error::system(format!(
            "{} cannot be read by user {}, and a server that root starts gives up root's rights: \
             serve another folder, or name a user (--user root keeps them)",
            obstacle.display(),
            account.name
        ))),
    }
}

/// The first account of `/etc/passwd` that fits, with the name of its group.
fn by(users: &str, groups: &str, fits: impl Fn(&str, u32) -> bool) -> Option<Account> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid: u32 = fields.next()?.parse().ok()?;
        let group = groups.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(gid)).then_some(name)
        })?;
        let plain = |text: &str| {
            text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        };
        let is_it = fits(name, uid) && plain(name) && plain(group);
        is_it.then(|| Account { name: name.to_owned(), group: group.to_owned(), uid, gid })
    })
}

/// The first folder on the way to the content, or the content itself, that the account cannot read.
fn obstacle<'a>(path: &'a Path, account: &Account) -> Option<&'a Path> {
    if account.uid == 0 {
        return None;
    }
    let mut all: Vec<&Path> = path.ancestors().collect();
    all.reverse();
    all.into_iter().find(|step| {
        let Ok(meta) = fs::metadata(step) else { return true };
        // Search on the way; the content is read as well.
        let wanted = match (*step == path, meta.is_dir()) {
            (true, true) => 0o5,
            (true, false) => 0o4,
            _ => 0o1,
        };
        let shift = match (meta.uid() == account.uid, meta.gid() == account.gid) {
            (true, _) => 6,
            (false, true) => 3,
            _ => 0,
        };
        meta.permissions().mode() >> shift & wanted != wanted
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:100::/home/ann:/bin/sh\n\
                         odd name:x:7:100::/:/\nlost:x:8:999::/:/\nbad\n";
    const GROUPS: &str = "root:x:0:\nusers:x:100:ann\n";

    #[test]
    fn accounts_are_found() {
        let account = |uid| Account { name: "ann".into(), group: "users".into(), uid, gid: 100 };
        assert_eq!(by(USERS, GROUPS, |_, uid| uid == 1000), Some(account(1000)));
        assert_eq!(by(USERS, GROUPS, |name, _| name == "root").map(|a| a.uid), Some(0));
        for uid in [5, 7, 8] {
            assert_eq!(by(USERS, GROUPS, |_, u| u == uid), None, "{uid}");
        }
    }

    #[test]
    fn folders_that_the_account_cannot_enter_are_found() {
        let folder = Folder::new("obstacle");
        let inner = folder.join("inner");
        fs::create_dir(&inner).unwrap();
        let own = fs::metadata(&*folder).unwrap();
        let ann = |uid, gid| Account { name: "a".into(), group: "g".into(), uid, gid };
        let (stranger, owner) = (ann(own.uid() + 7, own.gid() + 7), ann(own.uid(), own.gid()));
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&folder, 0o711);
        mode(&inner, 0o755);
        assert_eq!(obstacle(&inner, &stranger), None);
        assert_eq!(obstacle(&folder, &stranger), Some(&*folder as &Path));
        mode(&folder, 0o700);
        assert_eq!(obstacle(&inner, &stranger), Some(&*folder as &Path));
        assert_eq!(obstacle(&inner, &owner), None);
        assert_eq!(obstacle(&inner, &ann(0, 0)), None);
        folder.write("f", "");
        mode(&folder, 0o755);
        let file = folder.join("f");
        mode(&file, 0o600);
        assert_eq!(obstacle(&file, &stranger), Some(&*file));
        mode(&file, 0o644);
        assert_eq!(obstacle(&file, &stranger), None);
    }
}
