//! `cargo xtask package` and `cargo xtask image`: what people install.

mod alone;
mod deb;
mod files;
mod image;
mod rpm;
mod sha256;
mod tar;

use std::fs;
use std::path::{Path, PathBuf};

use crate::Findings;
use crate::run;
use crate::trained;
use crate::workspace::Workspace;
use files::Entry;

/// The text about the server in packages.
const DESCRIPTION: &str = "\
Weir is a memory-safe web server, reverse proxy, cache and load balancer
that reads nginx.conf as it stands. It tests, explains and compares
configurations, and tells whether a reload was taken over.
";

/// The arguments of both verbs.
struct Asked {
    /// A program that is there already.
    program: Option<PathBuf>,
    /// The program is built by the profile of a load: see [`trained`].
    is_trained: bool,
    /// The folder of the results.
    out: PathBuf,
    /// The kinds of packages.
    kinds: Vec<String>,
    /// Arguments for cargo.
    cargo: Vec<String>,
}

const KINDS: &[&str] = &["deb", "rpm", "image", "static"];
/// Of one build; the static program is another one, and is asked for.
const USUAL: &[&str] = &["deb", "rpm", "image"];

/// Makes packages of all kinds, or of those named; or checks them.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let done = match args.split_first() {
        Some((word, rest)) if word == "check" => check(ws, rest),
        _ => made(ws, args, USUAL),
    };
    done.map_err(|e| vec![e])
}

/// Makes the packages for Debian and the image, and tries them in a minimal root.
fn check(ws: &Workspace, args: &[String]) -> Result<(), String> {
    made(ws, args, &["deb", "image"])?;
    let out = asked(ws, args)?.out;
    run::run(ws, "packaging/check", &[&out.to_string_lossy()])
}

/// Makes the image alone.
pub fn run_image(ws: &Workspace, args: &[String]) -> Findings {
    made(ws, args, &["image"]).map_err(|e| vec![e])
}

fn asked(ws: &Workspace, args: &[String]) -> Result<Asked, String> {
    let (mut program, mut out, mut kinds) = (None, ws.root().join("target/package"), Vec::new());
    let mut args = args.iter();
    let (mut cargo, mut is_trained) = (Vec::new(), false);
    while let Some(arg) = args.next() {
        let mut value = || args.next().map(PathBuf::from).ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--program" => program = Some(value()?),
            "--trained" => is_trained = true,
            "--out" => out = value()?,
            "--" => cargo.extend(args.by_ref().cloned()),
            kind if KINDS.contains(&kind) => kinds.push(kind.to_owned()),
            other => {
                let all = KINDS.join("|");
                return Err(format!(
                    "{other}: usage: [{all}]... [--trained | --program FILE] [--out FOLDER] \
                     [-- CARGO ARGS]"
                ));
            }
        }
    }
    if is_trained && program.is_some() {
        return Err("--trained builds the program that --program would name".to_owned());
    }
    if is_trained && kinds.iter().any(|kind| kind == "static") {
        return Err("--trained is for the program that is linked as usual, not static".to_owned());
    }
    let out = ws.root().join(out);
    Ok(Asked { program, is_trained, out, kinds, cargo })
}

fn made(ws: &Workspace, args: &[String], kinds: &[&str]) -> Result<(), String> {
    let asked = asked(ws, args)?;
    let wants = |kind: &str| match asked.kinds.is_empty() {
        true => kinds.contains(&kind),
        false => asked.kinds.iter().any(|k| k == kind),
    };
    let (out, work) = (&asked.out, asked.out.join("work"));
    fs::create_dir_all(&work).map_err(|e| format!("cannot make {}: {e}", work.display()))?;
    let mut results = Vec::new();
    if wants("static") {
        let built = match &asked.program {
            Some(program) => program.clone(),
            None => alone::build(ws, &asked.cargo)?,
        };
        results.push(alone::write(ws, &version(ws)?, &built, &work, out)?);
    }
    if USUAL.iter().any(|kind| wants(kind)) {
        results.extend(usual(ws, &asked, &wants, &work)?);
    }
    let _ = fs::remove_dir_all(&work);
    sums(out)?;
    results.iter().for_each(|path| println!("{}", path.display()));
    Ok(())
}

/// Makes the packages of the program that is linked as usual.
fn usual(
    ws: &Workspace,
    asked: &Asked,
    wants: &dyn Fn(&str) -> bool,
    work: &Path,
) -> Result<Vec<PathBuf>, String> {
    let built = match &asked.program {
        Some(program) => program.clone(),
        None if asked.is_trained => trained::trained(ws, &asked.cargo)?,
        None => build(ws, &asked.cargo)?,
    };
    let (program, debug) = apart(ws, &built, work)?;
    let out = &asked.out;
    let version = version(ws)?;
    let mut results = Vec::new();
    if wants("deb") {
        results.extend(debs(ws, &version, (&program, &debug), work, out)?);
    }
    if wants("rpm") {
        let mut entries = server(ws, &program)?;
        // An account of Debian's; elsewhere workers are nobody.
        entries.iter_mut().for_each(|entry| entry.without("user www-data;\n"));
        results.push(rpm::write(ws, &version, &entries, work, out)?);
    }
    if wants("image") {
        let page = text(ws, "packaging/index.html")?;
        results.extend(image::write(ws, &program, &page, out)?);
    }
    Ok(results)
}

/// Builds the server for release.
fn build(ws: &Workspace, more: &[String]) -> Result<PathBuf, String> {
    let mut words = vec!["build", "--release", "-p", "weir", "--bin", "weir"];
    words.extend(more.iter().map(String::as_str));
    run::run(ws, "cargo", &words)?;
    Ok(ws.target().join("release/weir"))
}

/// Splits a program into one without debug information, and that information. The first names the
/// second, so that debuggers find it.
fn apart(ws: &Workspace, built: &Path, work: &Path) -> Result<(PathBuf, PathBuf), String> {
    let (program, debug) = (work.join("weir"), work.join("weir.debug"));
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let (from, to, apart) = (path(built), path(&program), path(&debug));
    run::output(ws, "objcopy", &["--only-keep-debug", "--compress-debug-sections", &from, &apart])?;
    run::output(ws, "objcopy", &["--strip-unneeded", &from, &to])?;
    run::output(ws, "objcopy", &[&format!("--add-gnu-debuglink={apart}"), &to])?;
    Ok((program, debug))
}

fn version(ws: &Workspace) -> Result<String, String> {
    let manifest = text(ws, "Cargo.toml")?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    line.map(|rest| rest.trim_end_matches('"').to_owned()).ok_or("no version".to_owned())
}

fn text(ws: &Workspace, path: &str) -> Result<String, String> {
    fs::read_to_string(ws.root().join(path)).map_err(|e| format!("{path}: {e}"))
}

/// A file compressed as packages want it: the same bytes each time.
fn compressed(ws: &Workspace, work: &Path, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let path = work.join("compressed");
    let name = path.to_string_lossy();
    fs::write(&path, bytes).map_err(|e| format!("{name}: {e}"))?;
    run::output(ws, "gzip", &["-9nf", &name])?;
    let file = format!("{name}.gz");
    fs::read(&file).map_err(|e| format!("{file}: {e}"))
}

/// The files of the server in every package.
fn server(ws: &Workspace, program: &Path) -> Result<Vec<Entry>, String> {
    let bytes = fs::read(program).map_err(|e| format!("{}: {e}", program.display()))?;
    let name = program.to_string_lossy();
    let work = program.parent().unwrap_or(Path::new("."));
    let completions = |shell: &str| run::output(ws, &name, &["completions", shell]);
    let mut logs = Entry::folder("var/log/weir");
    logs.mode = 0o750;
    let mut entries = vec![
        Entry::program("usr/bin/weir", bytes),
        Entry::configuration("etc/weir/nginx.conf", text(ws, "packaging/nginx.conf")?),
        Entry::configuration("etc/weir/mime.types", text(ws, "conf/mime.types")?),
        Entry::configuration("etc/weir/conf.d/default.conf", text(ws, "packaging/default.conf")?),
        Entry::configuration("etc/logrotate.d/weir", text(ws, "packaging/weir.logrotate")?),
        Entry::file("lib/systemd/system/weir.service", text(ws, "packaging/weir.service")?),
        Entry::file("usr/share/bash-completion/completions/weir", completions("bash")?),
        Entry::file("usr/share/zsh/vendor-completions/_weir", completions("zsh")?),
        Entry::file("usr/share/fish/vendor_completions.d/weir.fish", completions("fish")?),
        Entry::file("usr/share/weir/html/index.html", text(ws, "packaging/index.html")?),
        Entry::file("usr/share/weir/grafana/weir.json", text(ws, "packaging/grafana/weir.json")?),
        Entry::file(
            "usr/share/weir/prometheus/weir.rules.yml",
            text(ws, "packaging/prometheus/weir.rules.yml")?,
        ),
        Entry::folder("var/lib/weir"),
        logs,
    ];
    entries.extend(manual(ws, &name, work)?);
    Ok(entries)
}

/// The manual pages that the program writes: weir(8), and a page of section 1 for each command.
fn manual(ws: &Workspace, program: &str, work: &Path) -> Result<Vec<Entry>, String> {
    let folder = work.join("man");
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    // Of another version, which may have had other commands.
    match fs::remove_dir_all(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    run::output(ws, program, &["man", "--directory", &folder.to_string_lossy()])?;
    let names = fs::read_dir(&folder).map_err(failed)?.map(|entry| entry.map(|e| e.file_name()));
    let mut names: Vec<_> = names.collect::<Result<_, _>>().map_err(failed)?;
    names.sort();
    let mut entries = Vec::new();
    for name in names {
        let page = fs::read(folder.join(&name)).map_err(failed)?;
        let name = name.to_string_lossy();
        let section = name.rsplit('.').next().unwrap_or_default();
        let path = format!("usr/share/man/man{section}/{name}.gz");
        entries.push(Entry::file(&path, compressed(ws, work, &page)?));
    }
    Ok(entries)
}

/// The files of documentation that Debian asks of each package.
fn documents(ws: &Workspace, name: &str, work: &Path) -> Result<Vec<Entry>, String> {
    let folder = format!("usr/share/doc/{name}");
    let license = text(ws, "LICENSE-MIT")?;
    let copyright = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: weir\n\nFiles: *\nCopyright: the Weir project\n\
         License: Expat or Apache-2.0\n On Debian systems the Apache license is in\n \
         /usr/share/common-licenses/Apache-2.0; the other one reads:\n .\n{}",
        license.lines().map(paragraph).collect::<String>()
    );
    let log = compressed(ws, work, text(ws, "CHANGELOG.md")?.as_bytes())?;
    let version = version(ws)?;
    let of_debian = format!(
        "weir ({version}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n \
         -- {}  Thu, 01 Jan 2026 00:00:00 +0000\n",
        deb::maintainer()
    );
    Ok(vec![
        Entry::file(&format!("{folder}/copyright"), copyright),
        Entry::file(&format!("{folder}/NEWS.gz"), log),
        Entry::file(&format!("{folder}/changelog.gz"), compressed(ws, work, of_debian.as_bytes())?),
    ])
}

fn paragraph(line: &str) -> String {
    if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") }
}

fn debs(
    ws: &Workspace,
    version: &str,
    (program, debug): (&Path, &Path),
    work: &Path,
    out: &Path,
) -> Result<Vec<PathBuf>, String> {
    let architecture = run::output(ws, "dpkg", &["--print-architecture"])?;
    let architecture = architecture.trim();
    let script = |name: &str| text(ws, &format!("packaging/deb/{name}"));
    let mut entries = server(ws, program)?;
    entries.extend(documents(ws, "weir", work)?);
    let needed = deb::libraries(ws, program, work)?;
    let weir = deb::Deb {
        name: "weir",
        version,
        architecture,
        control: &[
            format!("Depends: {needed}"),
            "Suggests: logrotate".to_owned(),
            "Section: httpd".to_owned(),
        ],
        description: ("web server that reads nginx.conf", DESCRIPTION),
        scripts: &[
            ("postinst", script("weir.postinst")?),
            ("prerm", script("weir.prerm")?),
            ("postrm", script("weir.postrm")?),
        ],
        entries: &entries,
    };
    let bytes = fs::read(debug).map_err(|e| format!("{}: {e}", debug.display()))?;
    let mut entries = vec![Entry::file("usr/lib/debug/usr/bin/weir.debug", bytes)];
    entries.extend(documents(ws, "weir-dbg", work)?);
    let dbg = deb::Deb {
        name: "weir-dbg",
        control: &[format!("Depends: weir (= {version})"), "Section: debug".to_owned()],
        description: ("debug information of weir", "For debuggers and profilers.\n"),
        scripts: &[],
        entries: &entries,
        ..weir
    };
    let in_place = nginx(ws, work)?;
    Ok(vec![
        deb::write(ws, &weir, work, out)?,
        deb::write(ws, &dbg, work, out)?,
        in_place.write(ws, version, work, out)?,
    ])
}

/// The package that puts weir in nginx's place.
struct InPlace {
    entries: Vec<Entry>,
    scripts: Vec<(&'static str, String)>,
}

fn nginx(ws: &Workspace, work: &Path) -> Result<InPlace, String> {
    let take_over = text(ws, "packaging/deb/take-over.sh")?;
    let script = |name: &str| {
        let text = text(ws, &format!("packaging/deb/weir-nginx.{name}"))?;
        Ok::<_, String>(text.replace("#TAKE_OVER#\n", &take_over))
    };
    let scripts = vec![
        ("preinst", script("preinst")?),
        ("postinst", script("postinst")?),
        ("postrm", script("postrm")?),
    ];
    let mut entries = vec![Entry::link("usr/sbin/nginx", "../bin/weir")];
    entries.extend(documents(ws, "weir-nginx", work)?);
    Ok(InPlace { entries, scripts })
}

impl InPlace {
    fn write(
        &self,
        ws: &Workspace,
        version: &str,
        work: &Path,
        out: &Path,
    ) -> Result<PathBuf, String> {
        let package = deb::Deb {
            name: "weir-nginx",
            version,
            architecture: "all",
            // Before it is unpacked, its script has weir test nginx's configuration.
            control: &[
                format!("Pre-Depends: weir (= {version})"),
                "Depends: nginx".to_owned(),
                "Section: httpd".to_owned(),
            ],
            description: (
                "weir in the place of nginx",
                "Diverts nginx's program: its configuration, unit, pid file and logs stay.\n\
                 A running server is replaced without a gap, and again when this package\n\
                 is removed.\n",
            ),
            scripts: &self.scripts,
            entries: &self.entries,
        };
        deb::write(ws, &package, work, out)
    }
}

/// Writes the checksums of the files in a folder, those of an image's blobs are their names.
fn sums(out: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", out.display());
    let mut lines = Vec::new();
    for entry in fs::read_dir(out).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_file() && name != "SHA256SUMS" {
            lines.push(format!("{}  {name}\n", sha256::hex(&fs::read(&path).map_err(failed)?)));
        }
    }
    lines.sort();
    fs::write(out.join("SHA256SUMS"), lines.concat()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::Command;

    /// Runs the script before `weir-nginx` is unpacked: its exit status, what it says, and what was
    /// done, in order. `weir` is a program that exits with `status`.
    fn preinst(name: &str, status: u8, config: bool, pid: &str) -> (i32, String, String) {
        let folder =
            std::env::temp_dir().join(format!("weir-preinst-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let at = |name: &str| folder.join(name).display().to_string();
        let program = |name: &str, text: String| {
            fs::write(at(name), format!("#!/bin/sh\n{text}\n")).expect("a file");
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).expect("its mode");
        };
        let done = at("done");
        program("weir", format!("echo \"${{0##*/}} $*\" >>{done}; exit {status}"));
        program("dpkg-divert", format!("echo divert >>{done}"));
        fs::write(at("pid"), pid).expect("a file");
        if config {
            fs::write(at("nginx.conf"), "").expect("a file");
        }
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/deb/weir-nginx.preinst");
        let text = fs::read_to_string(script).expect("the script");
        let text = text
            .replace("/usr/bin/weir", &at("weir"))
            .replace("/etc/nginx/nginx.conf", &at("nginx.conf"))
            .replace("/run/nginx.pid", &at("pid"));
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let mut run = Command::new("sh");
        let run = run.args(["-c", &text, "preinst", "install"]).env("PATH", path);
        let run = run.output().expect("run sh");
        let done = fs::read_to_string(done).unwrap_or_default().replace(&at(""), "");
        let _ = fs::remove_dir_all(&folder);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        (run.status.code().unwrap_or(-1), said, done)
    }

    #[test]
    fn nginx_stays_where_its_configuration_is_refused() {
        let (status, said, done) = preinst("refused", 1, true, "");
        assert_eq!((status, done.as_str()), (1, "nginx -t -q -c nginx.conf\n"));
        assert!(said.contains("weir refuses this configuration"), "{said}");
        let (status, said, done) = preinst("taken", 0, true, "");
        assert_eq!((status, said.as_str()), (0, ""));
        assert_eq!(done, "nginx -t -q -c nginx.conf\ndivert\n");
        let (status, _, done) = preinst("none", 1, false, "");
        assert_eq!((status, done.as_str()), (0, "divert\n"));
    }

    /// The configuration that a running server was started with is the one to test.
    #[test]
    fn the_running_configuration_is_tested() {
        let file = std::env::temp_dir().join(format!("weir-running-{}.conf", std::process::id()));
        fs::write(&file, "").expect("a file");
        let mut server = Command::new("sh");
        let server = server.args(["-c", "read x", "nginx", "-c"]).arg(&file);
        let mut server = server.stdin(std::process::Stdio::piped()).spawn().expect("a process");
        let (status, _, done) = preinst("running", 1, true, &server.id().to_string());
        drop(server.stdin.take());
        let _ = server.wait();
        assert_eq!((status, done), (1, format!("nginx -t -q -c {}\n", file.display())));
        let _ = fs::remove_file(file);
    }
}
