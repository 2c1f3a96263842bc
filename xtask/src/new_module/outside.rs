//! A crate with a module that is built against the interface alone.

use std::fs;
use std::path::Path;

use super::{check_name, type_name};
use crate::workspace::Workspace;

const MANIFEST: &str = r#"[package]
name = "weir-@CRATE@"
version = "0.1.0"
edition = "2024"

[dependencies]
weir-module = { version = "@VERSION@", path = "@INTERFACE@" }

# Its own project, wherever it stands.
[workspace]
"#;

/// The skeleton: a directive whose location answers with a greeting.
const SOURCE: &str = r#"//! `@NAME@`: what it is for, in a line.
#![forbid(unsafe_code)]

use weir_module::prelude::*;

/// The module's table: what `weir build` looks for.
pub static MODULE: Module = Module {
    name: "@NAME@",
    directives: &[directive(
        "@NAME@",
        LOCATION,
        Args::T1,
        "",
        "Answers with a greeting to NAME, which may have variables.",
        set,
    )],
    confs: &[ConfType::of::<@TYPE@Conf>(Scope::Location)],
    install: Some(install),
    ..Module::EMPTY
};

#[derive(Default)]
struct @TYPE@Conf {
    name: Option<Template>,
}

impl Conf for @TYPE@Conf {
    /// A location inherits the settings that it lacks from the level around it.
    fn merge(&mut self, outer: &Self) -> Result<(), ConfError> {
        if self.name.is_none() {
            self.name.clone_from(&outer.name);
        }
        Ok(())
    }
}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let name = cx.template(n.arg(0)?)?;
    value::set_once(&mut cx.loc::<@TYPE@Conf>().name, n, |_| Ok(name))
}

/// Where it is not written, nothing is installed, and a request pays nothing.
fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here::<@TYPE@Conf>()
        && let Some(name) = &l.conf::<@TYPE@Conf>().name
    {
        p.content_handler = Some(Box::new(@TYPE@ { name: name.clone() }));
    }
    Ok(())
}

struct @TYPE@ {
    name: Template,
}

impl PhaseHandler for @TYPE@ {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let name = r.eval(&self.name);
        let text = [b"hello, ", &name[..], b"\n"].concat();
        r.respond(200, Bytes::from_static(b"text/plain"), Bytes::from(text));
        Step::Now(Verdict::Done)
    }
}
"#;

const TEST: &str = r#"//! The module in the engine, over a real socket.

use weir_module::testing::{load, serve};
use weir_@NAME@::MODULE;

#[test]
fn it_greets() {
    let ran = serve(&MODULE, "location /hi { @NAME@ $arg_who; }", &["/hi?who=you", "/other"]);
    assert_eq!((ran.answers[0].status, ran.answers[0].text()), (200, "hello, you\n".to_string()));
    assert_eq!(ran.answers[1].status, 404);
}

#[test]
fn faults_in_a_configuration_are_named() {
    let said = load(&MODULE, "location /hi { @NAME@; }").unwrap_err();
    assert_eq!(said, "invalid number of arguments in \"@NAME@\" directive in test.conf:1");
}
"#;

/// Writes the crate into a folder that is not there yet, named as the crate is to be.
pub fn write(ws: &Workspace, folder: &str) -> Result<(), String> {
    let path = Path::new(folder);
    let base = path.file_name().and_then(|n| n.to_str()).ok_or("the folder has no name")?;
    let name = base.strip_prefix("weir-").unwrap_or(base).replace('-', "_");
    check_name(&name)?;
    if path.exists() {
        return Err(format!("{folder} is there already"));
    }
    let interface = ws.root().join("crates/module");
    let interface = fs::canonicalize(&interface).map_err(|e| format!("crates/module: {e}"))?;
    let version = version(&ws.read("crates/module/Cargo.toml")?)?;
    let fill = |text: &str| {
        text.replace("@CRATE@", &name.replace('_', "-"))
            .replace("@NAME@", &name)
            .replace("@TYPE@", &type_name(&name))
            .replace("@VERSION@", &version)
            .replace("@INTERFACE@", &interface.display().to_string())
    };
    for (file, text) in
        [("Cargo.toml", MANIFEST), ("src/lib.rs", SOURCE), ("tests/module.rs", TEST)]
    {
        let file = path.join(file);
        let parent = file.parent().unwrap_or(path);
        fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
        fs::write(&file, fill(text)).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    println!("{folder} is written; \"cargo test\" there runs its tests.");
    println!("A server that has it: weir build --with weir-{}={folder}", name.replace('_', "-"));
    Ok(())
}

/// Major and minor of the interface's version.
fn version(manifest: &str) -> Result<String, String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    let version =
        line.and_then(|rest| rest.strip_suffix('"')).ok_or("crates/module: no version")?;
    Ok(version.split('.').take(2).collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn modules_ask_for_the_minor_version() {
        assert_eq!(
            version("[package]\nname = \"x\"\nversion = \"0.3.12\"\n").as_deref(),
            Ok("0.3")
        );
        assert!(version("version.workspace = true\n").is_err());
    }
}
