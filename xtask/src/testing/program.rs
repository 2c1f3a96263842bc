//! Test programs: how they are built, listed and run.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::output::Outcome;
use crate::workspace::Workspace;

/// A program of which nothing is heard for so long is ended: a test of its hangs. Each ended test
/// is a line, and the longest takes a minute where the machine is busy.
const SILENCE: Duration = Duration::from_secs(400);

/// A test program.
pub struct Program {
    /// `PACKAGE/TARGET`, for example `weir-conf/parse`.
    pub name: String,
    /// The executable file.
    pub path: PathBuf,
    /// The folder of its package, in which it runs.
    pub folder: PathBuf,
    /// Variables of its environment.
    pub variables: Vec<(&'static str, &'static str)>,
}

/// Builds the tests that the arguments choose, and returns their programs in cargo's order.
pub fn build(ws: &Workspace, args: &[String]) -> Result<Vec<Program>, String> {
    let fixed = ["test", "--no-run", "--message-format", "json-render-diagnostics"];
    let fixed = fixed.map(str::to_owned);
    let out = Command::new("cargo")
        .args(fixed.iter().chain(args))
        .current_dir(ws.root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    if !out.status.success() {
        return Err(format!("cargo test --no-run: {}", out.status));
    }
    let mut programs: Vec<Program> =
        String::from_utf8_lossy(&out.stdout).lines().filter_map(from_message).collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// The program that a message of cargo's tells of, if it tells of one with tests.
fn from_message(line: &str) -> Option<Program> {
    let profile = line.split_once("\"profile\":{")?.1.split('}').next()?;
    if !profile.contains("\"test\":true") {
        return None;
    }
    let path = PathBuf::from(member(line, "executable")?);
    let folder = Path::new(member(line, "manifest_path")?).parent()?.to_path_buf();
    let target = member(line.split_once("\"target\":{")?.1, "name")?;
    // path+file:///…/crates/conf#weir-conf@0.1.0, or …/xtask#0.1.0 where the folder has the name.
    let (place, id) = member(line, "package_id")?.rsplit_once('#')?;
    let package = match id.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next()?,
    };
    let name = format!("{package}/{target}");
    Some(Program { name, path, folder, variables: Vec::new() })
}

/// The text of a member of a JSON object on one line; texts with escapes do not occur in these.
fn member<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("\"{name}\":\"");
    line.split_once(&begin)?.1.split('"').next()
}

impl Program {
    /// Runs tests by their exact names, or all where none is named.
    pub fn run(&self, tests: &[String], threads: usize) -> Outcome {
        let all = if tests.is_empty() { self.list() } else { tests.to_vec() };
        let mut command = self.command();
        if !tests.is_empty() {
            command.arg("--exact").args(tests);
        }
        command.env("RUST_TEST_THREADS", threads.to_string());
        match output_of(command, SILENCE) {
            Ok((text, Some(status))) => {
                Outcome::read(&text, status.success(), &status.to_string(), &all)
            }
            Ok((text, None)) => {
                let end = format!("ended: nothing was heard of it for {SILENCE:?}");
                Outcome::read(&text, false, &end, &all)
            }
            Err(e) => Outcome::read("", false, &format!("{}: {e}", self.path.display()), &all),
        }
    }

    /// The names of its tests; none for a program without Rust's own harness.
    fn list(&self) -> Vec<String> {
        let mut command = self.command();
        command.args(["--list", "--format", "terse"]);
        let Ok((text, _)) = output_of(command, SILENCE) else { return Vec::new() };
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        names.map(str::to_owned).collect()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.envs(self.variables.iter().copied());
        command
    }
}

/// The output of a command, both streams in one, with its status; without one, if nothing came for
/// that long and it was ended.
fn output_of(
    mut command: Command,
    silence: Duration,
) -> std::io::Result<(String, Option<ExitStatus>)> {
    let (reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // It has the writing ends: the reader's end is that of the last process with one.
    drop(command);
    let (text, is_whole) = read_until_silent(reader, silence);
    let status = finish(&mut child, is_whole)?;
    Ok((String::from_utf8_lossy(&text).into_owned(), status))
}

fn finish(child: &mut Child, is_whole: bool) -> std::io::Result<Option<ExitStatus>> {
    if is_whole {
        return child.wait().map(Some);
    }
    // Servers that its tests left behind may have the pipe, though it has ended.
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// All that is read, and whether the end came before the silence.
fn read_until_silent(mut reader: std::io::PipeReader, silence: Duration) -> (Vec<u8>, bool) {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(len @ 1..) = reader.read(&mut buffer) {
            if sender.send(buffer[..len].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut text = Vec::new();
    loop {
        match receiver.recv_timeout(silence) {
            Ok(piece) => text.extend_from_slice(&piece),
            Err(RecvTimeoutError::Disconnected) => return (text, true),
            Err(RecvTimeoutError::Timeout) => return (text, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{from_message, output_of};

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let message = |profile: &str, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\
                 \"path+file:///w/crates/conf#weir-conf@0.1.0\",\
                 \"manifest_path\":\"/w/crates/conf/Cargo.toml\",\
                 \"target\":{{\"kind\":[\"test\"],\"name\":\"parse\"}},\
                 \"profile\":{{\"opt_level\":\"0\",{profile}}},\"executable\":{executable}}}"
            )
        };
        let program = from_message(&message("\"test\":true", "\"/w/target/debug/deps/parse-1\""));
        let program = program.expect("a program");
        assert_eq!(program.name, "weir-conf/parse");
        assert_eq!(program.folder.to_str(), Some("/w/crates/conf"));
        assert_eq!(program.path.to_str(), Some("/w/target/debug/deps/parse-1"));
        assert!(from_message(&message("\"test\":false", "\"/w/target/debug/weir\"")).is_none());
        assert!(from_message(&message("\"test\":true", "null")).is_none());
        assert!(from_message("{\"reason\":\"build-finished\",\"success\":true}").is_none());
    }

    #[test]
    fn a_silent_program_is_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; exec sleep 1000"]);
        let (text, status) = output_of(command, Duration::from_millis(300)).expect("a shell");
        assert_eq!((text.as_str(), status), ("begun\n", None));
    }
}
