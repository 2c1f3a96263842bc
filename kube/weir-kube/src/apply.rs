//! From a rendered configuration to a server that runs it: files, tests, reloads, and servers of
//! upstreams by the API.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use render::conf::Shape;
use render::{Objects, Options, Refused, Rendered, Server};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::api;

/// The exit statuses of `weir reload` if the server took the configuration, or did not.
const SERVES: i32 = 0;
const REFUSED: i32 = 1;

/// The exit status of `weir reload` if the server could not be asked.
const NOT_ASKED: i32 = 2;

/// The exit status of `weir reload` if fewer workers serve than are configured.
const SOME_SERVE: i32 = 3;

/// How often a server is asked in all that gives no answer. The last answer counts, because a
/// reload of a configuration that is in effect changes nothing.
const ATTEMPTS: u32 = 3;

/// The first pause before it is asked again, and the longest one.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// Writes the files of a configuration. Their names change with their contents: what exists stays.
pub fn write_files(folder: &Path, rendered: &Rendered) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let below = folder.join("files");
    std::fs::create_dir_all(&below)?;
    for (name, contents) in &rendered.files {
        let path = folder.join(name);
        if path.exists() {
            continue;
        }
        // Never half a file under the name that the configuration has.
        let part = path.with_extension("part");
        let _ = std::fs::remove_file(&part);
        // Keys are read by the master, the others by workers, too, which may be another user.
        let mode = if name.ends_with(".key") { 0o600 } else { 0o644 };
        let mut open = std::fs::OpenOptions::new();
        let mut file = open.write(true).create_new(true).mode(mode).open(&part)?;
        io::Write::write_all(&mut file, contents)?;
        std::fs::rename(&part, &path)?;
    }
    Ok(())
}

/// Removes files that no configuration names any more.
fn remove_others(folder: &Path, rendered: &Rendered) {
    let wanted: BTreeSet<PathBuf> = rendered.files.keys().map(|name| folder.join(name)).collect();
    for entry in std::fs::read_dir(folder.join("files")).into_iter().flatten().flatten() {
        if !wanted.contains(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Counters for `/metrics`.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Reloads.
    pub reloads: u64,
    /// Reloads that failed.
    pub failed_reloads: u64,
    /// Changes of servers by the API.
    pub endpoint_changes: u64,
    /// Objects that are refused because they do not load.
    pub refused: u64,
}

/// The server, and what it runs.
#[derive(Debug)]
pub struct Applier {
    weir: String,
    folder: PathBuf,
    status: String,
    pid: PathBuf,
    child: Option<Child>,
    /// It is not known whether the server runs the configuration of the file. The one before is in
    /// `running.conf`.
    is_unsettled: bool,
    /// The pause before it is applied again, and the end of the pause.
    pause: Duration,
    again: Instant,
    shape: Shape,
    upstreams: BTreeMap<String, Vec<Server>>,
    stream_upstreams: BTreeMap<String, Vec<Server>>,
    /// Upstreams whose servers the API changed: a reload keeps the servers in the zone of an
    /// upstream whose text is the same as at the load before, although the API changed them since.
    touched: BTreeSet<(&'static str, String)>,
    /// For `/metrics`.
    pub counts: Counts,
}

/// The fate of a configuration.
#[derive(Debug)]
enum Verdict {
    /// It is in effect.
    Serves,
    /// It is not: the one before is. With the reason.
    Refused(String),
    /// The server was not asked this time. With the reason.
    NotAsked(String),
    /// The server was asked, and did not say. With the reason.
    Unknown(String),
}

/// What [`Applier::apply`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing had changed.
    Nothing,
    /// Servers of upstreams, by the API.
    Endpoints,
    /// The configuration.
    Reload,
}

impl Applier {
    /// A server that is not started yet.
    pub fn new(weir: &str, options: &Options) -> Applier {
        Applier {
            weir: weir.to_owned(),
            folder: PathBuf::from(&options.folder),
            status: options.status.clone(),
            pid: PathBuf::from(&options.temp).join("weir.pid"),
            child: None,
            is_unsettled: false,
            pause: Duration::ZERO,
            again: Instant::now(),
            shape: Shape::default(),
            upstreams: BTreeMap::new(),
            stream_upstreams: BTreeMap::new(),
            touched: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// Whether it is not known which configuration the server runs, and the time has come to apply
    /// it again.
    pub fn is_due_again(&self) -> bool {
        self.is_unsettled && Instant::now() >= self.again
    }

    /// It is known which configuration the server runs, and the file is that one.
    fn settle(&mut self) {
        let _ = std::fs::remove_file(self.running());
        (self.is_unsettled, self.pause) = (false, Duration::ZERO);
    }

    fn conf(&self) -> PathBuf {
        self.folder.join("nginx.conf")
    }

    /// The configuration before the one of the file, while it is not known which of them runs.
    fn running(&self) -> PathBuf {
        self.folder.join("running.conf")
    }

    /// Renders objects and brings the server up to date. Objects whose configuration does not load
    /// are added to `refused`, and the others are served.
    ///
    /// # Errors
    /// The configuration does not load for a reason that no object has, or the server does not
    /// take it: the old one stays.
    pub async fn apply(
        &mut self,
        objects: &Objects,
        options: &Options,
        refused: &mut Refused,
    ) -> Result<(Rendered, Applied), String> {
        let mut rendered = render::render(objects, options, refused);
        if self.child.is_some() && !self.is_unsettled && rendered.shape == self.shape {
            match self.change_endpoints(&rendered).await {
                Ok(false) => return Ok((rendered, Applied::Nothing)),
                Ok(true) => {
                    // A new start has the same servers.
                    let _ = std::fs::write(self.conf(), &rendered.conf);
                    return Ok((rendered, Applied::Endpoints));
                }
                Err(message) => log(&format!("endpoints by the API: {message}; reloading")),
            }
        }
        loop {
            write_files(&self.folder, &rendered).map_err(|e| format!("files: {e}"))?;
            let Err(message) = self.load(&rendered.conf).await else { break };
            let Some(object) = rendered.culprit(&message).cloned() else {
                return Err(format!("the configuration does not load: {message}"));
            };
            if refused.contains_key(&object) {
                return Err(format!("{object} is refused, and yet: {message}"));
            }
            log(&format!("{object} does not load: {message}"));
            refused.insert(object, message);
            rendered = render::render(objects, options, refused);
        }
        self.counts.refused = refused.len() as u64;
        remove_others(&self.folder, &rendered);
        self.shape = rendered.shape;
        self.upstreams.clone_from(&rendered.upstreams);
        self.stream_upstreams.clone_from(&rendered.stream_upstreams);
        self.touched.retain(|(kind, name)| match *kind {
            "http" => rendered.upstreams.contains_key(name),
            _ => rendered.stream_upstreams.contains_key(name),
        });
        for (kind, name) in &self.touched {
            let all =
                if *kind == "http" { &rendered.upstreams } else { &rendered.stream_upstreams };
            let Some(servers) = all.get(name) else { continue };
            change(&self.status, &servers_path(kind, name), servers).await?;
        }
        Ok((rendered, Applied::Reload))
    }

    /// Has the server run a configuration. The first line of why it does not names a line of the
    /// configuration, if one is to blame.
    ///
    /// A server that runs reads it once: no test goes before, because the server's verdict has the
    /// same lines, and a test of thousands of Ingresses takes as long as their reload.
    async fn load(&mut self, conf: &str) -> Result<(), String> {
        let ended = match &mut self.child {
            Some(child) => child.try_wait().map_err(|e| e.to_string())?.is_some(),
            None => true,
        };
        if ended {
            self.test(conf).await?;
            std::fs::write(self.conf(), conf).map_err(|e| e.to_string())?;
            let child =
                Command::new(&self.weir).arg("-c").arg(self.conf()).kill_on_drop(false).spawn();
            self.child = Some(child.map_err(|e| format!("{}: {e}", self.weir))?);
            self.wait_until_it_serves().await?;
            // A new process has read the file as it is.
            self.settle();
            return Ok(());
        }
        // While it is not known whether the file loads, the one before is kept.
        if !self.is_unsettled {
            std::fs::rename(self.conf(), self.running()).map_err(|e| e.to_string())?;
        }
        match self.reload(conf).await {
            Verdict::Serves => {
                self.settle();
                Ok(())
            }
            Verdict::Unknown(message) => {
                self.is_unsettled = true;
                self.pause = (self.pause * 2).clamp(AGAIN, AGAIN_MAX);
                self.again = Instant::now() + self.pause;
                Err(message)
            }
            // The server runs on with the old one: so does a new start.
            Verdict::Refused(message) | Verdict::NotAsked(message) => {
                std::fs::rename(self.running(), self.conf()).map_err(|e| e.to_string())?;
                if self.is_unsettled {
                    // An earlier one without an answer may run instead: the next one is loaded
                    // even if it has the shape of the file.
                    self.shape = Shape::default();
                }
                self.settle();
                Err(message)
            }
        }
    }

    /// Tests a configuration before the server is started with it.
    async fn test(&self, conf: &str) -> Result<(), String> {
        let path = self.folder.join("next.conf");
        std::fs::write(&path, conf).map_err(|e| e.to_string())?;
        let arguments = ["-t", "-q", "-c"];
        let output = Command::new(&self.weir).args(arguments).arg(&path).output().await;
        let _ = std::fs::remove_file(&path);
        let output = output.map_err(|e| format!("{}: {e}", self.weir))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(first_error(&String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// Has the server read a configuration. It is asked once only where it gave no answer before:
    /// the caller comes again.
    async fn reload(&mut self, conf: &str) -> Verdict {
        self.counts.reloads += 1;
        let attempts = if self.is_unsettled { 1 } else { ATTEMPTS };
        let mut verdict = match std::fs::write(self.conf(), conf) {
            Ok(()) => self.ask().await,
            Err(e) => Verdict::NotAsked(e.to_string()),
        };
        let mut may_serve = self.is_unsettled;
        for attempt in 1.. {
            // A server that cannot be asked any more may still do what it was asked before.
            verdict = match verdict {
                Verdict::NotAsked(message) if may_serve => Verdict::Unknown(message),
                other => other,
            };
            let Verdict::Unknown(message) = &verdict else { break };
            if attempt >= attempts {
                break;
            }
            may_serve = true;
            log(&format!("reload: {message}; asking again"));
            tokio::time::sleep(AGAIN).await;
            verdict = self.ask().await;
        }
        self.counts.failed_reloads += u64::from(!matches!(verdict, Verdict::Serves));
        verdict
    }

    /// Has the server read its file.
    async fn ask(&self) -> Verdict {
        let mut command = Command::new(&self.weir);
        command.args(["reload", "--json", "-c"]).arg(self.conf()).arg("--pid").arg(&self.pid);
        let output = match command.output().await {
            Ok(output) => output,
            Err(e) => return Verdict::NotAsked(format!("{}: {e}", self.weir)),
        };
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let reasons = told["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let reasons: Vec<&str> = reasons.collect();
        let message = match (reasons.is_empty(), &told["outcome"]) {
            (false, _) => first_error(&reasons.join("\n")),
            (true, Value::String(outcome)) => format!("weir reload: {outcome}"),
            _ => first_error(&String::from_utf8_lossy(&output.stderr)),
        };
        match (output.status.code(), told["outcome"].as_str()) {
            (Some(SERVES), _) => Verdict::Serves,
            (Some(SOME_SERVE), _) => {
                // It is in effect.
                log(&format!("{} of {} workers serve", told["serving"], told["configured"]));
                Verdict::Serves
            }
            // That test is one of the command, because it could not ask the server.
            (Some(NOT_ASKED), _) | (Some(REFUSED), Some("test-failed")) => {
                Verdict::NotAsked(message)
            }
            (Some(REFUSED), Some(_)) => Verdict::Refused(message),
            // Whatever ended the command, the server may have been asked.
            _ => Verdict::Unknown(message),
        }
    }

    async fn wait_until_it_serves(&mut self) -> Result<(), String> {
        loop {
            if tokio::net::TcpStream::connect(&self.status).await.is_ok() {
                return Ok(());
            }
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait().map_err(|e| e.to_string())?
            {
                self.child = None;
                return Err(format!("the server ended at its start: {status}"));
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Sends the differences of upstreams; returns whether there are any.
    async fn change_endpoints(&mut self, rendered: &Rendered) -> Result<bool, String> {
        let mut any = false;
        for (kind, new) in [("http", &rendered.upstreams), ("stream", &rendered.stream_upstreams)] {
            let old = if kind == "http" { &mut self.upstreams } else { &mut self.stream_upstreams };
            for (name, servers) in new {
                if old.get(name) == Some(servers) {
                    continue;
                }
                any = true;
                self.touched.insert((kind, name.clone()));
                let path = servers_path(kind, name);
                self.counts.endpoint_changes += change(&self.status, &path, servers).await?;
                old.insert(name.clone(), servers.clone());
            }
        }
        Ok(any)
    }

    /// The server's process ends by itself only if something is wrong.
    pub async fn ended(&mut self) -> String {
        match &mut self.child {
            Some(child) => match child.wait().await {
                Ok(status) => format!("the server ended: {status}"),
                Err(error) => error.to_string(),
            },
            None => std::future::pending().await,
        }
    }

    /// Ends the server when its requests are answered: after `worker_shutdown_timeout` at the
    /// latest, for which the pod's `terminationGracePeriodSeconds` has room.
    pub async fn quit(&mut self) {
        let Some(child) = &mut self.child else { return };
        // The server's own file may be one that it has refused, and does not load here either.
        let conf = self.folder.join("quit.conf");
        let text = format!("pid \"{}\"; error_log stderr; events {{}}\n", self.pid.display());
        if let Err(e) = std::fs::write(&conf, text) {
            return log(&format!("{}: {e}", conf.display()));
        }
        let mut command = Command::new(&self.weir);
        let output = command.args(["-s", "quit", "-c"]).arg(conf).output().await;
        match output {
            Ok(output) if output.status.success() => drop(child.wait().await),
            // It would be waited for in vain.
            Ok(output) => log(&first_error(&String::from_utf8_lossy(&output.stderr))),
            Err(e) => log(&format!("{}: {e}", self.weir)),
        }
    }
}

fn servers_path(kind: &str, name: &str) -> String {
    format!("/api/9/{kind}/upstreams/{name}/servers")
}

/// Makes the servers of an upstream those that are wanted: new ones first, so that there is always
/// one to ask.
async fn change(address: &str, path: &str, wanted: &[Server]) -> Result<u64, String> {
    let now = api::json(address, "GET", path, None).await?;
    let mut have: BTreeMap<String, Value> = BTreeMap::new();
    for server in now.as_array().into_iter().flatten() {
        let Some(name) = server["server"].as_str() else { continue };
        have.insert(name.to_owned(), server.clone());
    }
    let mut changes = 0;
    for server in wanted {
        match have.remove(&server.address) {
            None => {
                let body = json!({
                    "server": server.address,
                    "weight": server.weight,
                    "max_fails": 0,
                    "down": server.down,
                });
                api::json(address, "POST", path, Some(&body)).await?;
                changes += 1;
            }
            Some(old) if old["weight"] != server.weight || old["down"] != server.down => {
                let body = json!({ "weight": server.weight, "down": server.down });
                let one = format!("{path}/{}", old["id"]);
                api::json(address, "PATCH", &one, Some(&body)).await?;
                changes += 1;
            }
            Some(_) => {}
        }
    }
    for old in have.values() {
        api::json(address, "DELETE", &format!("{path}/{}", old["id"]), None).await?;
        changes += 1;
    }
    Ok(changes)
}

/// The first message of an error's text.
fn first_error(text: &str) -> String {
    let line = text.lines().find(|l| l.contains("[emerg]")).or_else(|| text.lines().next());
    line.unwrap_or("no message").trim().to_owned()
}

/// A line on standard error.
pub fn log(message: &str) {
    eprintln!("weir-kube: {message}");
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Statuses of the list for a test that fails in the place of a question, and for a command
    /// that is killed.
    const TEST_FAILED: u8 = 11;
    const KILLED: u8 = 19;

    /// A program in the place of the server: `weir reload` ends with the next status of a list and
    /// prints it, and a server runs on.
    fn stand_in(folder: &Path, statuses: &[u8]) -> String {
        let list: Vec<String> = statuses.iter().map(u8::to_string).collect();
        std::fs::write(folder.join("statuses"), list.join("\n") + "\n").unwrap();
        let path = folder.join("weir");
        let text = format!(
            r#"#!/bin/sh
cd {}
case $1 in
reload)
    n=$(head -n 1 statuses)
    sed -i 1d statuses
    case $n in
    {TEST_FAILED}) outcome=test-failed ;;
    {KILLED}) kill -9 $$ ;;
    *) outcome=answered ;;
    esac
    echo "{{\"outcome\":\"$outcome\",\"reasons\":[\"said $n\"]}}"
    exit $((n % 10)) ;;
esac
"#,
            folder.display()
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    /// The files of the folder after some reloads, and their outcomes.
    async fn reloads(name: &str, statuses: &[u8], confs: &[&str]) -> (Vec<String>, Applier) {
        let folder = std::env::temp_dir().join(format!("weir-kube-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let options = Options { folder: folder.display().to_string(), ..Options::default() };
        let mut applier = Applier::new(&stand_in(&folder, statuses), &options);
        // Some process that runs on stands for the server.
        let server = Command::new("sleep").arg("3600").kill_on_drop(true).spawn();
        applier.child = Some(server.unwrap());
        std::fs::write(applier.conf(), "first").unwrap();
        let mut outcomes = Vec::new();
        for conf in confs {
            let outcome = applier.load(conf).await.err().unwrap_or_default();
            let file = std::fs::read_to_string(applier.conf()).unwrap();
            outcomes.push(format!("{outcome}:{file}"));
        }
        assert!(!folder.join("running.conf").exists() || applier.is_unsettled);
        std::fs::remove_dir_all(&folder).unwrap();
        (outcomes, applier)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_brings_the_file_before_back() {
        let (outcomes, applier) = reloads("refusal", &[0, 1, 2, 3], &["a", "b", "c", "d"]).await;
        assert_eq!(outcomes, [":a", "said 1:a", "said 2:a", ":d"]);
        assert_eq!((applier.counts.reloads, applier.counts.failed_reloads), (4, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_the_server_is_asked_again() {
        let (outcomes, applier) = reloads("again", &[4, 0, 4, 4, 1], &["a", "b"]).await;
        assert_eq!(outcomes, [":a", "said 1:a"]);
        assert!(!applier.is_unsettled);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_may_be_in_effect_stays_and_the_one_before_is_kept() {
        let (outcomes, applier) = reloads("unknown", &[4, 4, 4], &["a"]).await;
        assert_eq!(outcomes, ["said 4:a"]);
        assert!(applier.is_unsettled);
        // The next verdict settles it: a new start has one that is known to load.
        let (outcomes, applier) = reloads("settled", &[4, 4, 4, 1, 0], &["a", "b", "c"]).await;
        assert_eq!(outcomes, ["said 4:a", "said 1:first", ":c"]);
        assert!(!applier.is_unsettled);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_be_asked_any_more_has_refused_nothing() {
        for status in [2, TEST_FAILED] {
            let said = format!("said {status}");
            // Without an earlier question the one before runs.
            let (outcomes, applier) = reloads("not-asked", &[status], &["a"]).await;
            assert_eq!(outcomes, [format!("{said}:first")]);
            assert!(!applier.is_unsettled);
            // After a question without an answer it may not.
            let statuses = [4, status, status, status, 1];
            let (outcomes, applier) = reloads("late", &statuses, &["a", "b", "c"]).await;
            let expected = [format!("{said}:a"), format!("{said}:b"), "said 1:first".to_owned()];
            assert_eq!(outcomes, expected);
            assert!(!applier.is_unsettled);
        }
        // The command may have asked before it was killed.
        let (outcomes, _) = reloads("killed", &[KILLED; 3], &["a"]).await;
        assert_eq!(outcomes, ["no message:a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unsettled_server_is_asked_once_at_a_time_and_more_and_more_rarely() {
        let (_, applier) = reloads("pause", &[4; 5], &["a", "a", "a"]).await;
        assert_eq!(applier.pause, 4 * AGAIN);
        assert!(!applier.is_due_again());
        tokio::time::advance(applier.pause).await;
        assert!(applier.is_due_again());
        let (_, applier) = reloads("longest", &[4; 12], &["a"; 10]).await;
        assert_eq!(applier.pause, AGAIN_MAX);
    }

    #[tokio::test]
    async fn a_new_start_settles() {
        let (_, mut applier) = reloads("start", &[4; 3], &["a"]).await;
        std::fs::create_dir_all(&applier.folder).unwrap();
        applier.weir = stand_in(&applier.folder, &[]);
        std::fs::write(applier.running(), "first").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        applier.status = listener.local_addr().unwrap().to_string();
        applier.child.as_mut().unwrap().kill().await.unwrap();
        applier.load("b").await.unwrap();
        assert!(!applier.is_unsettled && !applier.running().exists());
        assert_eq!(std::fs::read_to_string(applier.conf()).unwrap(), "b");
        applier.ended().await;
        std::fs::remove_dir_all(&applier.folder).unwrap();
    }
}
