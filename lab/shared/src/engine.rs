//! A Redis of the system's package, on CPU 1.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use rig::helper::Helper;
use rig::server::{free_port, new_folder};
use rig::{Outcome, proc};
use rustix::process::Signal;

/// A Redis whose port stays the same when it is started again.
pub(crate) struct Engine {
    pub port: u16,
    helper: Option<Helper>,
}

impl Engine {
    pub fn start() -> Outcome<Engine> {
        let mut engine = Engine { port: free_port()?, helper: None };
        engine.begin()?;
        Ok(engine)
    }

    /// Starts it, without data.
    pub fn begin(&mut self) -> Outcome {
        let (folder, port) = (new_folder()?, self.port);
        let conf = folder.join("redis.conf");
        let text = format!(
            "bind 127.0.0.1\nport {port}\nsave \"\"\nappendonly no\ndir {}\n\
             repl-diskless-sync-delay 0\n",
            folder.display()
        );
        fs::write(&conf, text).map_err(|e| format!("{}: {e}", conf.display()))?;
        let arguments = [conf.display().to_string()];
        let program = Path::new("redis-server");
        self.helper = Some(Helper::start(1, program, &arguments, port, folder)?);
        Ok(())
    }

    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.helper = None;
    }

    pub fn signal(&self, signal: Signal) {
        let pids = self.helper.iter().flat_map(Helper::pids);
        pids.for_each(|pid| proc::signal(pid, signal));
    }

    /// Runs a command; the first line of the answer.
    pub fn run(&self, command: &str) -> Outcome<String> {
        let run = || {
            let mut to = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            to.set_read_timeout(Some(Duration::from_secs(5)))?;
            to.write_all(format!("{command}\r\n").as_bytes())?;
            let mut line = String::new();
            BufReader::new(to).read_line(&mut line)?;
            Ok(line.trim_end().to_owned())
        };
        run().map_err(|e: std::io::Error| format!("redis: {command}: {e}"))
    }

    /// Runs a command that has to succeed.
    pub fn order(&self, command: &str) -> Outcome {
        match self.run(command)? {
            answer if answer == "+OK" => Ok(()),
            answer => Err(format!("redis: {command}: {answer}")),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A stopped one would not hear that it is to end.
        self.signal(Signal::CONT);
    }
}
