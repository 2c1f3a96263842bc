//! `weir-kube`: the Kubernetes controller of Weir.

#![forbid(unsafe_code)]

mod api;
mod apply;
mod cluster;
mod diff;
mod flags;
mod health;
mod lead;
mod run;
mod status;
mod watch;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use flags::Settings;
use render::{Objects, Rendered};

const USAGE: &str = "usage: weir-kube COMMAND

  render FILE...    the configuration for objects in YAML, on standard output; with --folder=FOLDER
                    and --write, into that folder with all files it needs
  diff FILE...      what changes for these objects against ingress-nginx
  run               watch a cluster and keep a server up to date
  tables            the tables of annotations and keys, as Markdown
  help              this text

switches:
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, args) = match args.split_first() {
        Some((command, args)) => (command.as_str(), args),
        None => ("help", &args[..]),
    };
    let result = match command {
        "render" => render_files(args),
        "diff" => diff_files(args),
        "run" => flags::read(args).and_then(|(settings, rest)| match rest.first() {
            Some(word) => Err(format!("unexpected \"{word}\"")),
            None => run::run(settings),
        }),
        "tables" => {
            print!("{}", render::docs::tables());
            Ok(())
        }
        "help" | "-h" | "--help" => {
            print!("{USAGE}{}", flags::help());
            Ok(())
        }
        other => Err(format!("unknown command \"{other}\": see weir-kube help")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("weir-kube: {message}");
            ExitCode::FAILURE
        }
    }
}

fn read_files(files: &[String]) -> Result<Objects, String> {
    if files.is_empty() {
        return Err("no files: name files with objects, or - for standard input".to_owned());
    }
    let mut objects = Objects::default();
    for file in files {
        let text = match file.as_str() {
            "-" => std::io::read_to_string(std::io::stdin()),
            file => std::fs::read_to_string(file),
        };
        let text = text.map_err(|e| format!("{file}: {e}"))?;
        objects.read_yaml(&text).map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(objects)
}

fn render_files(args: &[String]) -> Result<(), String> {
    let (write, args): (Vec<_>, Vec<_>) = args.iter().cloned().partition(|arg| arg == "--write");
    let (settings, files) = flags::read(&args)?;
    let objects = read_files(&files)?;
    let rendered = render::render(&objects, &settings.options, &BTreeMap::new());
    report(&rendered);
    if write.is_empty() {
        print!("{}", rendered.conf);
        return Ok(());
    }
    write_all(&settings, &rendered).map_err(|e| format!("{}: {e}", settings.options.folder))
}

fn write_all(settings: &Settings, rendered: &Rendered) -> std::io::Result<()> {
    let folder = Path::new(&settings.options.folder);
    apply::write_files(folder, rendered)?;
    std::fs::create_dir_all(&settings.options.temp)?;
    std::fs::write(folder.join("nginx.conf"), &rendered.conf)
}

/// Events and the numbers of servers, on standard error.
fn report(rendered: &Rendered) {
    for event in &rendered.events {
        if event.warning {
            eprintln!("{}: {}: {}", event.object, event.reason, event.message);
        }
    }
    for (name, servers) in &rendered.upstreams {
        let servers: Vec<&str> = servers.iter().map(|s| s.address.as_str()).collect();
        eprintln!("upstream {name}: {}", servers.join(" "));
    }
}

fn diff_files(args: &[String]) -> Result<(), String> {
    let (settings, files) = flags::read(args)?;
    let objects = read_files(&files)?;
    print!("{}", diff::report(&objects, &settings.options));
    Ok(())
}
