//! The same requests to nginx and to weir, with one configuration of all modules that both have:
//! the same answers, or a reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use compared::allowed::{self, ALLOWED, Allowed};
use compared::exchange::{self, Answer, Outcome};
use compared::generate::{self, Case};
use compared::{heads, heads_allowed, origin, site};
use testkit::rng::Rng;

use crate::deploy;
use crate::options::Options;
use crate::server::{Kind, Server, Setup};

const CONFIG: &str = include_str!("../configs/differential.conf");
const HEADS: &str = include_str!("../configs/differential-heads.conf");

/// Differences that are shown whole.
const SHOWN: usize = 20;

/// A comparison.
struct Load {
    template: &'static str,
    origin: u16,
    allowed: &'static [Allowed],
    case: Box<dyn FnMut(usize) -> Case>,
}

/// Runs the load with odd requests.
pub fn run(options: &Options, _: &str) -> crate::Outcome {
    let mut rng = Rng::new(options.seed);
    let case = Box::new(move |number| generate::case(&mut rng, number));
    let origin = origin::start()?;
    compare(options, Load { template: CONFIG, origin, allowed: ALLOWED, case })
}

/// Runs the load with odd responses of an upstream.
pub fn run_heads(options: &Options, _: &str) -> crate::Outcome {
    let seed = options.seed;
    let case = Box::new(move |number| heads::case(seed, number));
    let origin = heads::start(seed)?;
    let version = std::process::Command::new(&options.nginx).arg("-v").output();
    let version = version.map_err(|e| format!("{}: {e}", options.nginx.display()))?;
    heads_allowed::note_version(&String::from_utf8_lossy(&version.stderr));
    compare(options, Load { template: HEADS, origin, allowed: heads_allowed::ALLOWED, case })
}

fn compare(options: &Options, mut load: Load) -> crate::Outcome {
    let root = Root::new()?;
    site::write(&root.0)?;
    let origin = load.origin;
    let start = |kind| {
        let driver = options.driver.as_ref().filter(|_| kind == Kind::Weir);
        let setup = Setup {
            template: load.template,
            fill: vec![
                ("%ORIGIN%", origin.to_string()),
                ("%USE%", driver.map_or(String::new(), |driver| format!("use {driver};"))),
            ],
            root: Some(root.0.clone()),
            ..Setup::default()
        };
        Server::start(options, kind, &setup).map(|(server, _)| server)
    };
    let (nginx, weir) = (start(Kind::Nginx)?, start(Kind::Weir)?);
    let names = |server: &Server, name: &str| {
        let origin = format!("127.0.0.1:{origin}");
        vec![
            (format!(":{}", server.port), ":PORT"),
            (origin, "ORIGIN"),
            (server.prefix().display().to_string(), "PREFIX"),
            (format!("{name}/"), "SERVER/"),
            (format!("<center>{name}</center>"), "<center>SERVER</center>"),
        ]
    };
    let (of_nginx, of_weir) = (names(&nginx, "nginx"), names(&weir, "weir"));
    let trees = (nginx.prefix().join("dav"), weir.prefix().join("dav"));
    let mut seen = Seen::of(load.allowed);
    for number in 0..options.requests {
        let case = (load.case)(number);
        if options.only.is_some_and(|only| only != number) && !seen.needs(&case) {
            continue;
        }
        let (nginx, weir) = std::thread::scope(|scope| {
            let nginx = scope.spawn(|| exchange::exchange(nginx.port, &case, &of_nginx));
            (nginx.join(), exchange::exchange(weir.port, &case, &of_weir))
        });
        let nginx = nginx.map_err(|_| "the thread of nginx's side panicked")??;
        let weir = named(weir?);
        if options.only == Some(number) {
            println!("nginx: {:#?}\nweir: {:#?}", shown(&nginx), shown(&weir));
        }
        let known = seen.compare(&case, &nginx, &weir);
        // Each case begins with equal trees, so that a difference is not met again.
        let other = seen.needs(&case) && seen.compare_trees(&case, known, &trees.0, &trees.1);
        if other || known && seen.needs(&case) {
            copy_tree(&trees.0, &trees.1)?;
        }
    }
    let alerts = weir.alerts();
    if alerts > 0 {
        return Err(format!("{alerts} alerts of weir's: {}", weir.complaints()));
    }
    seen.report(options)
}

/// Makes a folder with the content of another one, and nothing else.
fn copy_tree(from: &Path, to: &Path) -> crate::Outcome {
    let failed = |e: std::io::Error| format!("{} to {}: {e}", from.display(), to.display());
    let made = fs::remove_dir_all(to).and_then(|()| fs::create_dir(to));
    // Files that workers have written stay theirs.
    made.and_then(|()| deploy::give(to)).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let new = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            fs::create_dir(&new).map_err(failed)?;
            copy_tree(&path, &new)?;
        } else {
            fs::copy(&path, &new).and_then(|_| deploy::give(&new)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Gives the field that names the server one name.
fn named(mut outcome: Outcome) -> Outcome {
    for answer in &mut outcome.answers {
        for (name, value) in &mut answer.fields {
            if name == "Server" && value == "weir" {
                *value = "nginx".into();
            }
        }
    }
    outcome
}

/// The folder of the files that both serve.
struct Root(PathBuf);

impl Root {
    fn new() -> crate::Outcome<Self> {
        let path = std::env::temp_dir().join(format!("weir-differential-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Default)]
struct Seen {
    known: &'static [Allowed],
    cases: usize,
    requests: usize,
    allowed: BTreeMap<usize, usize>,
    statuses: BTreeMap<String, usize>,
    different: usize,
}

impl Seen {
    fn of(known: &'static [Allowed]) -> Self {
        Self { known, ..Self::default() }
    }

    /// Cases that change the tree are sent even where one case alone is run.
    fn needs(&self, case: &Case) -> bool {
        case.bytes.windows(5).any(|w| w == b"/dav/")
    }

    /// Whether they differ for a known reason.
    fn compare(&mut self, case: &Case, nginx: &Outcome, weir: &Outcome) -> bool {
        self.cases += 1;
        self.requests += case.methods.len();
        for answer in &nginx.answers {
            *self.statuses.entry(answer.status().to_string()).or_default() += 1;
        }
        let (nginx, weir) = (&untimed(case, nginx), &untimed(case, weir));
        if nginx == weir {
            return false;
        }
        let known = allowed::reasons(self.known, case, nginx, weir);
        match &known {
            Some(why) => why.iter().for_each(|at| *self.allowed.entry(*at).or_default() += 1),
            None => {
                self.different += 1;
                if self.different <= SHOWN {
                    show(case, nginx, weir);
                }
            }
        }
        known.is_some()
    }

    /// Whether the trees differ that PUT, MOVE and the like left behind. `known` says that the
    /// answers differ for a known reason: a change that one server made, the other may not have
    /// made.
    fn compare_trees(&mut self, case: &Case, known: bool, nginx: &Path, weir: &Path) -> bool {
        let (nginx, weir) = (tree(nginx), tree(weir));
        let differ = nginx != weir;
        if differ && !known && !allowed::goes_into_itself(case) {
            self.different += 1;
            println!("\n--- case {} leaves different files", case.number);
            println!("{}", case.bytes.escape_ascii());
            println!("  nginx: {:?}\n  weir:  {:?}", sizes(&nginx), sizes(&weir));
        }
        differ
    }

    fn report(&self, options: &Options) -> crate::Outcome {
        let Self { cases, requests, different, .. } = self;
        println!("{requests} requests on {cases} connections, seed {}", options.seed);
        let statuses: Vec<_> = self.statuses.iter().map(|(s, n)| format!("{s}: {n}")).collect();
        println!("answers of nginx's by status: {}", statuses.join(", "));
        for (index, allowed) in self.known.iter().enumerate() {
            let count = self.allowed.get(&index).copied().unwrap_or(0);
            println!("  {count:5} differ because {}", allowed.reason);
        }
        match different {
            0 => Ok(()),
            n => Err(format!("{n} differences without a reason")),
        }
    }
}

/// A file put on a server has its own time, and a tag with that.
fn untimed(case: &Case, outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    if case.bytes.windows(5).any(|w| w == b"/dav/") {
        for (name, value) in outcome.answers.iter_mut().flat_map(|a| &mut a.fields) {
            if matches!(name.as_str(), "ETag" | "Last-Modified") {
                *value = "TIMED".into();
            }
        }
    }
    outcome
}

/// Files by name, `None` for a folder.
type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// The bytes of each file.
fn sizes(tree: &Tree) -> BTreeMap<&str, Option<usize>> {
    tree.iter().map(|(name, bytes)| (name.as_str(), bytes.as_ref().map(Vec::len))).collect()
}

fn tree(root: &Path) -> Tree {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            if path.is_dir() {
                found.insert(name, None);
                left.push(path);
            } else {
                found.insert(name, fs::read(&path).ok());
            }
        }
    }
    found
}

fn show(case: &Case, nginx: &Outcome, weir: &Outcome) {
    println!("\n--- case {} differs{}", case.number, if case.cut { ", cut" } else { "" });
    let (begin, end) = case.bytes.split_at(case.bytes.len().min(900));
    println!("{}", begin.escape_ascii());
    if !end.is_empty() {
        println!("… {}", end[end.len().saturating_sub(100)..].escape_ascii());
    }
    if !case.said.is_empty() {
        println!("  upstream: {}", case.said.escape_ascii());
    }
    let (a, b) = (shown(nginx), shown(weir));
    for line in a.iter().filter(|line| !b.contains(line)) {
        println!("  nginx: {line}");
    }
    for line in b.iter().filter(|line| !a.contains(line)) {
        println!("  weir:  {line}");
    }
    if a.iter().all(|line| b.contains(line)) && b.iter().all(|line| a.contains(line)) {
        println!("  order, nginx: {a:?}\n  order, weir:  {b:?}");
    }
}

fn shown(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    for (n, answer) in outcome.answers.iter().enumerate() {
        let Answer { line, fields, body, trailers, whole } = answer;
        lines.push(format!("{n} {line}"));
        lines.extend(fields.iter().map(|(name, value)| format!("{n} {name}: {value}")));
        let long = body.len() > 700;
        lines.push(format!(
            "{n} body {}: {}",
            body.len(),
            body[..body.len().min(700)].escape_ascii()
        ));
        if long {
            lines.push(format!("{n} … {}", body[body.len() - 100..].escape_ascii()));
        }
        lines.extend(trailers.iter().map(|t| format!("{n} trailer {t}")));
        if !whole {
            lines.push(format!("{n} not whole"));
        }
    }
    if !outcome.rest.is_empty() {
        lines.push(format!("rest: {}", outcome.rest[..outcome.rest.len().min(300)].escape_ascii()));
    }
    lines.push(format!("{:?}", outcome.end));
    lines
}
