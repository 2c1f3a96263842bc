//! Scripts outside the server, as the `njs` command runs them: from a file, from the command line,
//! or line by line.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::fault::{Fault, FaultKind};
use crate::host::{Facts, Host, Level};
use crate::ids::TimerId;
use crate::instance::Instance;
use crate::program::{Import, Program, Sources};
use crate::state::Limits;

pub use crate::globals::NJS_VERSION;

/// The world of a script outside the server: a writer for what it logs, and timers.
struct Outside<'a> {
    out: &'a mut dyn Write,
    /// Timers by their times; those of one time in the order in which they were started.
    timers: BTreeSet<(Instant, u64)>,
}

/// How scripts are run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Folders in which imports are looked up after the importing file's own.
    pub paths: Vec<PathBuf>,
    /// `process.argv`
    pub arguments: Vec<String>,
}

impl Host for Outside<'_> {
    fn log(&mut self, level: Level, text: &str) {
        let mark = match level {
            Level::Info => "",
            Level::Warn => "W: ",
            Level::Error => "E: ",
        };
        // The reader has closed its end: the script runs on.
        let _ = writeln!(self.out, "{mark}{text}");
    }

    fn start_timer(&mut self, timer: TimerId, after_ms: u64) {
        let now = Instant::now();
        let at = now.checked_add(Duration::from_millis(after_ms));
        // A time that cannot be expressed never comes.
        if let Some(at) = at {
            self.timers.insert((at, timer.0));
        }
    }

    fn stop_timer(&mut self, timer: TimerId) {
        self.timers.retain(|(_, id)| *id != timer.0);
    }
}

/// Outside the server, a script may run as long as it likes.
fn limits() -> Limits {
    let never = Duration::from_secs(u64::from(u32::MAX));
    Limits { memory_bytes: 1 << 30, stack_bytes: 1 << 20, stretch: never, cpu: never }
}

fn facts(settings: &Settings) -> Rc<Facts> {
    Rc::new(Facts { arguments: settings.arguments.clone(), ..Facts::default() })
}

/// Runs a module from a file, with all its timers.
///
/// # Errors
/// The first exception or unhandled rejection.
pub fn run_file(file: &Path, settings: &Settings, out: &mut dyn Write) -> Result<(), Fault> {
    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let import = Import { name: String::new(), path: path.to_string_lossy().into_owned() };
    let paths = settings.paths.clone();
    let sources = Sources { imports: vec![import], paths, objects: Vec::new() };
    let program = Rc::new(Program::compile(&sources)?);
    let mut host = Outside { out, timers: BTreeSet::new() };
    let mut instance = Instance::new(program, limits(), facts(settings), &mut host)?;
    finish(&mut instance, &mut host)
}

/// Runs a script from a text, with all its timers. Nothing is printed that it does not print.
///
/// # Errors
/// As for [`run_file`].
pub fn run_text(text: &str, settings: &Settings, out: &mut dyn Write) -> Result<(), Fault> {
    let mut host = Outside { out, timers: BTreeSet::new() };
    let program = Rc::new(Program::default());
    let mut instance = Instance::new(program, limits(), facts(settings), &mut host)?;
    instance.evaluate(&mut host, "<input>", text)?;
    finish(&mut instance, &mut host)
}

/// Reads scripts line by line and prints the value of each, or its exception. A line that is an
/// incomplete script is continued by the next. Ends at the end of the input, or with `.exit`.
///
/// # Errors
/// The engine cannot be made.
pub fn interact(
    input: &mut dyn BufRead,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<(), Fault> {
    let mut host = Outside { out, timers: BTreeSet::new() };
    let program = Rc::new(Program::default());
    let mut instance = Instance::new(program, limits(), facts(settings), &mut host)?;
    let mut text = String::new();
    loop {
        let _ = write!(host.out, "{}", if text.is_empty() { ">> " } else { ".. " });
        let _ = host.out.flush();
        let mut line = String::new();
        let ended = !matches!(input.read_line(&mut line), Ok(1..));
        if ended || (text.is_empty() && line.trim() == ".exit") {
            let _ = writeln!(host.out);
            return instance.exit(&mut host);
        }
        text.push_str(&line);
        if text.trim().is_empty() {
            text.clear();
            continue;
        }
        let result = instance.evaluate(&mut host, "<input>", &text);
        match result {
            Err(fault) if is_incomplete(&fault) && !line.trim().is_empty() => continue,
            Err(fault) => {
                let _ = writeln!(host.out, "{}", thrown(&fault));
            }
            Ok(shown) => {
                let _ = writeln!(host.out, "{shown}");
                if let Err(fault) = turn(&mut instance, &mut host) {
                    let _ = writeln!(host.out, "{}", thrown(&fault));
                }
            }
        }
        text.clear();
    }
}

/// Whether more lines could make a script of a text.
fn is_incomplete(fault: &Fault) -> bool {
    let message = &fault.message;
    message.starts_with("SyntaxError")
        && [
            "unexpected end of",
            "unexpected token in expression: ''",
            "expecting '}'",
            "expecting ')'",
            "expecting ']'",
        ]
        .iter()
        .any(|end| message.contains(end))
}

/// An exception as the `njs` command prints it.
pub fn thrown(fault: &Fault) -> String {
    match fault.kind {
        FaultKind::Rejected => {
            format!("Thrown:\nTypeError: unhandled promise rejection: {}", fault.message)
        }
        _ => format!("Thrown:\n{fault}"),
    }
}

/// Runs timers until there are none, then the exit hook.
fn finish(instance: &mut Instance, host: &mut Outside<'_>) -> Result<(), Fault> {
    turn(instance, host)?;
    instance.exit(host)
}

fn turn(instance: &mut Instance, host: &mut Outside<'_>) -> Result<(), Fault> {
    while let Some((at, timer)) = host.timers.pop_first() {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        instance.timer_fired(host, TimerId(timer))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Settings, interact, run_text, thrown};

    fn shell(input: &str) -> String {
        let mut out = Vec::new();
        interact(&mut input.as_bytes(), &Settings::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn printed(text: &str) -> String {
        let mut out = Vec::new();
        if let Err(fault) = run_text(text, &Settings::default(), &mut out) {
            out.extend_from_slice(thrown(&fault).as_bytes());
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_answered_with_their_values() {
        assert_eq!(shell("var a = 1\na *= 2\n'x'\n"), ">> undefined\n>> 2\n>> 'x'\n>> \n");
        assert_eq!(shell("function f() {\nreturn 1 }\nf()\n"), ">> .. undefined\n>> 1\n>> \n");
        assert!(shell("throw new Error('no')\n").contains("Thrown:\nError: no\n"));
    }

    #[test]
    fn timers_run_in_the_order_of_their_times() {
        let text = "setTimeout(() => console.log('b'), 2); setTimeout(x => console.log(x), 1, 'a')";
        assert_eq!(printed(text), "a\nb\n");
        assert_eq!(printed("clearTimeout(setTimeout(() => console.log('never')))"), "");
    }

    #[test]
    fn levels_have_marks() {
        assert_eq!(printed("console.warn('a', 1); console.error('b')"), "W: a\nW: 1\nE: b\n");
    }

    /// As in njs's own engine; QuickJS takes bytes alone under nginx.
    #[test]
    fn cryptography_takes_text_as_its_bytes() {
        let text = "const hmac = {name: 'HMAC', hash: 'SHA-256'};
            async function signed(bytes) {
                const key = await crypto.subtle.importKey('raw', bytes('k'), hmac, false, ['sign']);
                const signature = await crypto.subtle.sign(hmac, key, bytes('text'));
                return Buffer.from(signature).toString('hex');
            }
            Promise.all([x => x, x => new TextEncoder().encode(x)].map(signed))
                .then(([a, b]) => console.log(a === b && a.length));";
        assert_eq!(printed(text), "64\n");
    }

    #[test]
    fn rejections_and_hooks() {
        let rejected = printed("Promise.reject(new Error('no'))");
        assert_eq!(rejected, "Thrown:\nTypeError: unhandled promise rejection: Error: no");
        assert_eq!(printed("njs.on('exit', () => console.log('bye'))"), "bye\n");
    }
}
