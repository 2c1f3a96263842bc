//! A Dovecot for a test: IMAP and POP3 with folders and ports of its own.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Port, wait_for};

/// A mail server with a box for every user, whose password is `secret`. Ends, and its folder goes,
/// when dropped, or with the process of the test.
pub struct Dovecot {
    child: Child,
    folder: PathBuf,
    imap: Port,
    pop3: Port,
}

/// Ends the server and removes its folder when its standard input ends.
const KEEPER: &str =
    r#"folder=$1; shift; "$@" & cat > /dev/null; kill $!; wait $!; rm -rf "$folder""#;

/// The owner of the boxes: never root, whose boxes Dovecot refuses.
struct Owner {
    user: String,
    group: String,
    uid: u32,
    gid: u32,
}

impl Owner {
    /// Nobody where the test is root's, and otherwise whoever runs it.
    fn of_boxes() -> Owner {
        let id = |what: &str| {
            let out = Command::new("id").arg(what).output().expect("coreutils are installed");
            String::from_utf8_lossy(&out.stdout).trim().to_owned()
        };
        match id("-u").parse() {
            Ok(0) | Err(_) => {
                let (user, group) = ("nobody".to_owned(), "nogroup".to_owned());
                Owner { user, group, uid: NOBODY, gid: NOBODY }
            }
            Ok(uid) => {
                let gid = id("-g").parse().expect("a number");
                Owner { user: id("-un"), group: id("-gn"), uid, gid }
            }
        }
    }

    fn is_nobody(&self) -> bool {
        self.uid == NOBODY
    }
}

/// The user and the group of Debian's `nobody`.
const NOBODY: u32 = 65_534;

/// The configuration: everything is below `folder`, the boxes are the owner's.
fn config(folder: &Path, owner: &Owner, (imap, pop3): (&Port, &Port)) -> String {
    let dir = folder.display();
    let of = |protocol: &str, port: &Port| {
        format!(
            "service {protocol}-login {{
                   chroot =
                   inet_listener {protocol} {{
                     address = 127.0.0.1
                     port = {}
                   }}
                   inet_listener {protocol}s {{
                     port = 0
                   }}
                 }}",
            port.number()
        )
    };
    let Owner { user, group, uid, gid } = owner;
    format!(
        "base_dir = {dir}/run
             state_dir = {dir}/state
             log_path = {dir}/log
             default_internal_user = {user}
             default_internal_group = {group}
             default_login_user = {user}
             protocols = imap pop3
             ssl = no
             disable_plaintext_auth = no
             mail_location = maildir:{dir}/mail/%u
             first_valid_uid = 1
             last_valid_uid = 0
             passdb {{
               driver = static
               args = password=secret
             }}
             userdb {{
               driver = static
               args = uid={uid} gid={gid} home={dir}/mail/%u
             }}
             service anvil {{
               chroot =
             }}
             {}
             {}",
        of("imap", imap),
        of("pop3", pop3)
    )
}

impl Dovecot {
    /// Starts it.
    ///
    /// # Panics
    /// Where Dovecot is not installed, or does not start.
    pub fn start() -> Dovecot {
        let (imap, pop3) = (Port::reserve(), Port::reserve());
        let name = format!("weir-dovecot-{}-{}", std::process::id(), imap.number());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("mail")).expect("a folder for mail");
        let owner = Owner::of_boxes();
        if owner.is_nobody() {
            std::os::unix::fs::chown(folder.join("mail"), Some(owner.uid), Some(owner.gid))
                .expect("root may give folders away");
        }
        let file = folder.join("dovecot.conf");
        fs::write(&file, config(&folder, &owner, (&imap, &pop3)))
            .expect("a file for the configuration");
        let child = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(&folder)
            .args(["dovecot", "-F", "-c"])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("said")).expect("a file for what it says"))
            .spawn()
            .expect("a shell starts");
        let dovecot = Dovecot { child, folder, imap, pop3 };
        wait_for(
            "Dovecot (Debian's dovecot-imapd and dovecot-pop3d; ./x test installs them)",
            || {
                let said = fs::read_to_string(dovecot.folder.join("said")).unwrap_or_default();
                assert!(!said.contains("Fatal") && !said.contains("not found"), "dovecot: {said}");
                let open = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
                (open(dovecot.imap()) && open(dovecot.pop3())).then_some(())
            },
        );
        dovecot
    }

    /// Its port of IMAP on 127.0.0.1.
    pub fn imap(&self) -> u16 {
        self.imap.number()
    }

    /// Its port of POP3.
    pub fn pop3(&self) -> u16 {
        self.pop3.number()
    }
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
