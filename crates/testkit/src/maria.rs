//! A MariaDB server for a test: a folder, a socket and a port of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Port, wait_for};

/// A database `weir` that the user `weir` with the password `weir` may use, with a table `car` of
/// 1,000 rows: `id`, `name` (`car 1`, …) and `price`. Ends, and its folder goes, when dropped,
/// or with the process of the test.
pub struct Maria {
    child: Child,
    folder: PathBuf,
    port: Port,
}

/// Ends the server and removes its folder when its standard input ends: also where a test keeps the
/// database in a static, which nothing drops, or is killed.
const KEEPER: &str =
    r#"folder=$1; shift; "$@" & cat > /dev/null; kill -9 $!; wait $!; rm -rf "$folder""#;

const SQL: &str = "\
CREATE DATABASE weir;
CREATE USER 'weir'@'127.0.0.1' IDENTIFIED BY 'weir';
CREATE USER 'weir'@'localhost' IDENTIFIED BY 'weir';
GRANT ALL ON weir.* TO 'weir'@'127.0.0.1';
GRANT ALL ON weir.* TO 'weir'@'localhost';
CREATE TABLE weir.car (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(64), price DECIMAL(10,2));
INSERT INTO weir.car SELECT seq, CONCAT('car ', seq), seq * 1.5 FROM weir.seq_1_to_1000;
";

impl Maria {
    /// Makes the database and starts the server.
    ///
    /// # Panics
    /// Where MariaDB is not installed, or does not start.
    pub fn start() -> Maria {
        let port = Port::reserve();
        let name = format!("weir-maria-{}-{}", std::process::id(), port.number());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder for the database");
        let data = format!("--datadir={}", folder.join("data").display());
        let made = Command::new("mariadb-install-db")
            .args(["--no-defaults", &data, "--user=root", "--skip-test-db"])
            .arg("--auth-root-authentication-method=normal")
            .arg(format!("--tmpdir={}", folder.display()))
            .output()
            .expect("MariaDB is installed (Debian's mariadb-server-core; ./x test installs it)");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "mariadb-install-db: {said}");
        let sql = folder.join("init.sql");
        fs::write(&sql, SQL).expect("a file for the statements");
        let log = fs::File::create(folder.join("log")).expect("a file for the log");
        let child = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(&folder)
            .args(["mariadbd", "--no-defaults", &data, "--user=root", "--bind-address=127.0.0.1"])
            .arg(format!("--socket={}", folder.join("socket").display()))
            .arg(format!("--pid-file={}", folder.join("pid").display()))
            .arg(format!("--port={}", port.number()))
            .arg(format!("--tmpdir={}", folder.display()))
            .arg(format!("--init-file={}", sql.display()))
            .args(["--skip-name-resolve", "--max-connections=600", "--back-log=600"])
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M"])
            .stdin(Stdio::piped())
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let maria = Maria { child, folder, port };
        wait_for("the database", || {
            let log = maria.log();
            assert!(!log.contains("[ERROR]"), "mariadbd: {log}");
            maria.client("select count(*) from car").filter(|out| out.trim() == "1000")
        });
        maria
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Runs statements as root through the system's client; `None` where it fails.
    pub fn client(&self, sql: &str) -> Option<String> {
        let out = Command::new("mariadb")
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
            .arg(format!("--socket={}", self.socket().display()))
            .args(["--execute", sql, "weir"])
            .output()
            .expect("MariaDB's client is installed (Debian's mariadb-client-core)");
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
    }

    fn log(&self) -> String {
        fs::read_to_string(Path::new(&self.folder).join("log")).unwrap_or_default()
    }
}

impl Drop for Maria {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
