//! The files of the user's own authority, for HTTPS on this machine: `authority.key` and
//! `authority.crt` in the folder `weir` of the user's data.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use pki::issue::local;
use pki::issue::{Key, KeyKind};
use proto::acme::Identifier;

use crate::error::Error;

/// The files of a server's certificate and key, relative to the folder of one run.
pub(crate) const SERVER: [&str; 2] = ["server.crt", "server.key"];

pub(crate) struct Authority {
    folder: PathBuf,
    inner: local::Authority,
}

/// The folder of the authority of this user; of the user who called sudo, if that one has an
/// authority.
pub(crate) fn folder() -> Result<PathBuf, Error> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let below = |home: PathBuf| home.join(".local/share");
    let caller = || {
        let uid = std::env::var("SUDO_UID").ok().filter(|_| os::process::geteuid().is_root())?;
        let users = fs::read_to_string("/etc/passwd").ok()?;
        let line = users.lines().find(|line| line.split(':').nth(2) == Some(&uid))?;
        let folder = below(PathBuf::from(line.split(':').nth(5)?)).join("weir");
        folder.join("authority.key").is_file().then_some(folder)
    };
    let own = || absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(below));
    caller()
        .or_else(|| own().map(|data| data.join("weir")))
        .ok_or_else(|| Error::system("HOME is not set: there is no folder for the authority"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Writes a file with these permissions, if there is none of that name: whole, or not at all.
fn create(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        match fs::hard_link(&new, path) {
            // Another process was faster.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    })();
    let _ = fs::remove_file(&new);
    written.map_err(Error::file(path))
}

/// A key or certificate cannot be made.
fn unmade(error: impl std::fmt::Display) -> Error {
    Error::system(error.to_string())
}

impl Authority {
    /// The authority in that folder; made if there is none.
    ///
    /// # Errors
    /// Its files cannot be read or made, or others can read its key.
    pub(crate) fn open(folder: PathBuf) -> Result<Authority, Error> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&folder).map_err(Error::file(&folder))?;
        let (key, certificate) = (folder.join("authority.key"), folder.join("authority.crt"));
        if !key.exists() {
            let made = local::Authority::generate().map_err(unmade)?;
            create(&key, &made.key(), 0o600)?;
        }
        let meta = fs::metadata(&key).map_err(Error::file(&key))?;
        if meta.permissions().mode() & 0o077 != 0 {
            return Err(Error::system(format!(
                "{}: others than its owner can use it",
                key.display()
            )));
        }
        let text = fs::read(&key).map(zeroize::Zeroizing::new).map_err(Error::file(&key))?;
        let inner = local::Authority::from_key(&text);
        let inner = inner.map_err(|e| Error::system(format!("{}: {e}", key.display())))?;
        if !certificate.exists() {
            create(&certificate, &inner.certificate(now()).map_err(unmade)?, 0o644)?;
        }
        Ok(Authority { folder, inner })
    }

    /// The file of its certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("authority.crt")
    }

    /// The account that it belongs to.
    pub(crate) fn owner(&self) -> u32 {
        fs::metadata(&self.folder).map_or(0, |meta| meta.uid())
    }

    /// Writes a certificate and a key for a server on this machine and at these addresses.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn certify(&self, addresses: &[IpAddr], folder: &Path) -> Result<(), Error> {
        let own = ["127.0.0.1", "::1"].iter().filter_map(|ip| ip.parse().ok());
        let addresses = own.chain(addresses.iter().copied()).map(Identifier::Ip);
        let localhost = Identifier::Dns("localhost".to_owned());
        let names: Vec<Identifier> = [localhost].into_iter().chain(addresses).collect();
        let key = Key::generate(KeyKind::Ecdsa(256)).map_err(unmade)?;
        let certificate = self.inner.certify(&key, &names, now()).map_err(unmade)?;
        create(&folder.join(SERVER[0]), &certificate, 0o644)?;
        create(&folder.join(SERVER[1]), &key.to_pem(), 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    #[test]
    fn it_is_made_once_and_its_key_is_private() {
        let folder = Folder::new("authority");
        let own = folder.join("data/weir");
        let first = Authority::open(own.clone()).unwrap();
        let text = fs::read(first.certificate()).unwrap();
        let again = Authority::open(own.clone()).unwrap();
        assert_eq!(fs::read(again.certificate()).unwrap(), text);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&own), mode(&own.join("authority.key"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&own).unwrap().count(), 2);
        first.certify(&[], &folder).unwrap();
        assert_eq!(mode(&folder.join(SERVER[1])), 0o600);
        fs::set_permissions(own.join("authority.key"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Authority::open(own).is_err());
    }
}
