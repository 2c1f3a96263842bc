//! `weir trust`: puts the certificate of the user's own authority into the system's store, or takes
//! it out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use clap::ArgMatches;

use crate::authority::{self, Authority};
use crate::declared::{Command, Run};
use crate::error::Error;
use crate::line;

/// `weir trust`
pub(crate) const COMMAND: Command = Command {
    name: "trust",
    doc: "have this machine trust the certificates of weir serve --https",
    about: "For local development over HTTPS. Installs the certificate of your own authority, \
            which is made if there is none, into the system's store; root may do that. For other \
            users it prints the command. The authority certifies names and addresses of this \
            machine and of private networks only, and its key never leaves your folder.",
    args: || vec![line::option("remove", "Take the certificate out of the store again")],
    exit: &[("0", "the store is as asked for"), ("1", "it is not; the output has the command")],
    files: &[
        ("~/.local/share/weir/authority.crt", "The certificate of the authority."),
        ("~/.local/share/weir/authority.key", "Its key."),
    ],
    environment: &[
        ("XDG_DATA_HOME", "The folder of weir/authority.crt, in place of ~/.local/share."),
        ("SUDO_UID", "Set by sudo: the authority of this user is installed, if there is one."),
    ],
    examples: &[
        ("weir trust", "Print the command that installs the certificate, or as root install it."),
        ("weir trust --remove", "The reverse."),
    ],
    run: Run::Parsed(run),
};

fn run(matches: &ArgMatches) -> ExitCode {
    let remove = matches.get_flag("remove");
    let done = authority::folder().and_then(Authority::open).and_then(|authority| {
        let store = Store::find();
        match (store, os::process::geteuid().is_root()) {
            (Some(store), true) => store.change(&authority, remove),
            (Some(store), false) => Err(Error::system(store.command(&authority, remove))),
            (None, _) => Err(Error::system(unknown(&authority))),
        }
    });
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => error.report("trust", 1),
    }
}

fn unknown(authority: &Authority) -> String {
    format!(
        "no store of this system is known here: import {} as an authority for websites",
        authority.certificate().display()
    )
}

/// A store of certificates.
enum Store {
    /// A folder for files, and the program that reads them.
    Folder { path: &'static str, update: &'static str, fresh: bool },
    /// p11-kit's program.
    Trust,
}

/// Folders of distributions: Debian and Alpine, Fedora, SUSE, Arch.
const FOLDERS: [Store; 4] = [
    Store::Folder {
        path: "/usr/local/share/ca-certificates",
        update: "update-ca-certificates",
        // Without it, what is left of a certificate that is gone stays.
        fresh: true,
    },
    Store::Folder {
        path: "/etc/pki/ca-trust/source/anchors",
        update: "update-ca-trust",
        fresh: false,
    },
    Store::Folder {
        path: "/etc/pki/trust/anchors",
        update: "update-ca-certificates",
        fresh: false,
    },
    Store::Folder {
        path: "/etc/ca-certificates/trust-source/anchors",
        update: "update-ca-trust",
        fresh: false,
    },
];

/// The file of a program.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A user's PATH may lack the folders of root's programs.
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut all = std::env::split_paths(&path).chain(more).map(|folder| folder.join(name));
    all.find(|file| file.is_file())
}

/// The name of an authority's certificate in a store: that of its owner.
fn file_name(authority: &Authority) -> String {
    format!("weir-authority-{}.crt", authority.owner())
}

/// Whether the system's store has the certificate.
pub(crate) fn is_trusted(authority: &Authority) -> bool {
    let Ok(own) = fs::read(authority.certificate()) else { return false };
    FOLDERS.iter().any(|store| match store {
        Store::Folder { path, .. } => {
            let there = fs::read(Path::new(path).join(file_name(authority)));
            there.is_ok_and(|there| there == own)
        }
        Store::Trust => false,
    })
}

impl Store {
    fn find() -> Option<Store> {
        let is_there = |store: &Store| match store {
            Store::Folder { path, update, .. } => {
                Path::new(path).is_dir() && program(update).is_some()
            }
            Store::Trust => program("trust").is_some(),
        };
        FOLDERS.into_iter().chain([Store::Trust]).find(is_there)
    }

    /// The program that reads the folder, and its arguments after a change.
    fn update(&self, authority: &Authority, remove: bool) -> Vec<String> {
        let certificate = || authority.certificate().display().to_string();
        match self {
            Store::Folder { update, fresh, .. } if remove && *fresh => {
                vec![(*update).to_owned(), "--fresh".to_owned()]
            }
            Store::Folder { update, .. } => vec![(*update).to_owned()],
            Store::Trust if remove => {
                vec!["trust".to_owned(), "anchor".to_owned(), "--remove".to_owned(), certificate()]
            }
            Store::Trust => vec!["trust".to_owned(), "anchor".to_owned(), certificate()],
        }
    }

    /// The command for a shell.
    fn command(&self, authority: &Authority, remove: bool) -> String {
        let certificate = authority.certificate();
        let update = self.update(authority, remove).join(" ");
        let first = match self {
            Store::Folder { path, .. } if remove => {
                format!("sudo rm {path}/{} && ", file_name(authority))
            }
            Store::Folder { path, .. } => {
                format!("sudo cp {} {path}/{} && ", certificate.display(), file_name(authority))
            }
            Store::Trust => String::new(),
        };
        format!("only root may change the system's store:\n  {first}sudo {update}")
    }

    /// Changes the store; returns what was done.
    fn change(&self, authority: &Authority, remove: bool) -> Result<String, Error> {
        let certificate = authority.certificate();
        if let Store::Folder { path, .. } = self {
            let there = Path::new(path).join(file_name(authority));
            match remove {
                true if !there.exists() => {
                    return Ok("the system's store does not have the certificate".to_owned());
                }
                true => fs::remove_file(&there).map_err(Error::file(&there))?,
                false => fs::copy(&certificate, &there).map(|_| ()).map_err(Error::file(&there))?,
            }
        }
        let words = self.update(authority, remove);
        let (name, arguments) = words.split_first().ok_or_else(|| Error::system("no program"))?;
        let file =
            program(name).ok_or_else(|| Error::system(format!("{name} is not installed")))?;
        let output = process::Command::new(&file).args(arguments).output();
        let output = output.map_err(Error::file(&file))?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::system(format!("{} failed: {error}", words.join(" "))));
        }
        let shown = certificate.display();
        Ok(match remove {
            true => format!("this system no longer trusts {shown}"),
            false => format!(
                "this system trusts {shown}\n\
                 Browsers that have a store of their own (Firefox, Chrome) need it imported there \
                 as well."
            ),
        })
    }
}
