//! The program of a dns-01 challenge, which ends when nobody waits for it any more.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::log::os_error;
use os::signal::{Signal, kill_group};

/// The pauses between two looks at a program.
const LOOK: Duration = Duration::from_millis(20);

/// The state of a program, for its thread and for who waits for it.
#[derive(Default)]
struct Run {
    child: Option<Child>,
    /// Nobody waits for it any more.
    is_over: bool,
}

impl Run {
    /// Kills the program, with all that it has started. Its thread waits for its end.
    fn kill(&mut self) {
        // Until the child is waited for, its number is that of no other process.
        if let Some(child) = &self.child {
            let _ = kill_group(child.id().cast_signed(), Signal::KILL);
        }
    }

    fn start(&mut self, command: &mut Command) -> Result<(), String> {
        if self.is_over {
            return Err("was broken off".to_owned());
        }
        self.child = Some(command.spawn().map_err(|e| os_error(&e).to_string())?);
        Ok(())
    }

    /// How it ended, if it has.
    fn look(&mut self) -> Option<Result<ExitStatus, String>> {
        let child = self.child.as_mut()?;
        let ended = child.try_wait().map_err(|e| os_error(&e).to_string()).transpose();
        if ended.is_some() {
            self.child = None;
        }
        ended
    }
}

/// Breaks the program off when it is dropped.
struct Guard(Arc<Mutex<Run>>);

impl Drop for Guard {
    fn drop(&mut self) {
        let mut run = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        run.is_over = true;
        run.kill();
    }
}

/// Runs a program to its end. It fails if it exits with an error or runs for longer than `most`;
/// then, and when this work is dropped, it is killed.
pub(crate) async fn run<const N: usize>(
    program: &Path,
    args: [String; N],
    most: Duration,
) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let run = Arc::new(Mutex::new(Run::default()));
    let _guard = Guard(run.clone());
    let task = move || {
        let lock = || run.lock().unwrap_or_else(PoisonError::into_inner);
        lock().start(&mut command)?;
        let end = Instant::now() + most;
        let mut is_late = false;
        loop {
            let ended = lock().look();
            match ended {
                Some(_) if is_late => return Err("did not end in time".to_owned()),
                Some(ended) => return ended,
                None => {}
            }
            if !is_late && Instant::now() >= end {
                is_late = true;
                lock().kill();
            }
            std::thread::sleep(LOOK);
        }
    };
    let status = event::pool::run_blocking(task).await.map_err(|e| e.to_string())??;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::testing::until;
    use event::{Loop, Options};

    const LONG: Duration = Duration::from_secs(3600);

    fn is_alive(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // One that nobody has waited for yet is none either.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    #[test]
    fn a_program_ends_with_the_work() {
        let ran = Loop::new(Options::default()).unwrap().block_on(async {
            let folder = testkit::Folder::new("program");
            let (program, pid) = (folder.join("dns.sh"), folder.join("pid"));
            // What the program has started ends, too.
            let script = format!(
                "#!/bin/sh\nsleep 1000 &\necho $! > {0}.new\nmv {0}.new {0}\nwait\n",
                pid.display()
            );
            testkit::write_script(&program, &script);
            let read = || std::fs::read_to_string(&pid).ok()?.trim().parse::<i32>().ok();
            event::race(run(&program, [], LONG), until(|| read().is_some())).await;
            let pid = read().unwrap();
            until(|| !is_alive(pid)).await;
        });
        ran.unwrap();
    }

    #[test]
    fn ends_of_programs() {
        let ran = Loop::new(Options::default()).unwrap().block_on(async {
            let folder = testkit::Folder::new("program-ends");
            let program = folder.join("dns.sh");
            testkit::write_script(
                &program,
                "#!/bin/sh\ntest $1 = wait && exec sleep 1000\nexit $1\n",
            );
            let run = |arg: &str, most| {
                let (program, args) = (program.clone(), [arg.to_owned()]);
                async move { run(&program, args, most).await }
            };
            assert_eq!(run("0", LONG).await, Ok(()));
            assert_eq!(run("3", LONG).await, Err("exit status: 3".to_owned()));
            assert_eq!(run("wait", Duration::ZERO).await, Err("did not end in time".to_owned()));
        });
        ran.unwrap();
    }
}
