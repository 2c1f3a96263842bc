//! Programs that help in a measurement: backends, other proxies, yardsticks.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::server::{free_port, new_folder};
use crate::{Outcome, proc};

/// A helping process on one CPU; its folder goes with it.
pub struct Helper {
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// Its own folder.
    pub prefix: PathBuf,
    child: Child,
}

impl Helper {
    /// Starts a bare server of ours, which gets a free port and these words.
    pub fn bare(options: &Options, cpu: u8, name: &str, words: &[&str]) -> Outcome<Self> {
        let port = free_port()?;
        let mut arguments = vec![port.to_string()];
        arguments.extend(words.iter().map(ToString::to_string));
        let program = options.floor.with_file_name(name);
        Self::start(cpu, &program, &arguments, port, new_folder()?)
    }

    /// Starts it, and waits until it listens.
    pub fn start(
        cpu: u8,
        program: &Path,
        arguments: &[String],
        port: u16,
        at: PathBuf,
    ) -> Outcome<Self> {
        let output = fs::File::create(at.join("output.txt")).map_err(|e| e.to_string())?;
        let child = Command::new("taskset")
            .args(["-c", &cpu.to_string()])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let mut helper = Self { port, prefix: at, child };
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = helper.child.try_wait().is_ok_and(|ended| ended.is_some());
            if ended || began.elapsed() > Duration::from_secs(10) {
                let said = fs::read_to_string(helper.prefix.join("output.txt"));
                let said = said.unwrap_or_default();
                return Err(format!("{} does not listen: {said}", program.display()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(helper)
    }

    /// The process ids of the whole tree.
    pub fn pids(&self) -> Vec<u32> {
        proc::tree(self.child.id())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        for pid in self.pids() {
            proc::signal(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.prefix);
    }
}
