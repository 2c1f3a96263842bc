//! The skeleton of an HTTP module, in the order in which every module file is written; and that of
//! a crate for one outside of the project.

mod outside;

use crate::workspace::Workspace;
use crate::{Findings, run};

const FOLDER: &str = "crates/http-modules/src";

/// The skeleton of a new module: it builds, is clean under the lints, and does nothing.
const SKELETON: &str = r#"//! `@NAME@`: what it is for, in a line.

use conf::table::{Args, Directive};
use conf::{ConfError, Node, value};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline, Verdict};
use http::request::Request;

/// The module's table.
pub static MODULE: Module = Module::of::<@TYPE@Conf>("@NAME@", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "@NAME@",
    HSL,
    Args::FLAG,
    "off",
    "What it does, in one line: it stands in docs/directives.md.",
    set_on,
)];

engine::settings! {
    struct @TYPE@Conf {
        on: Option<bool>,
    }
}

fn set_on(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    value::set_flag(&mut cx.loc::<@TYPE@Conf>().on, n)
}

/// Where it is off, nothing is installed, and a request pays nothing.
fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.conf::<@TYPE@Conf>().on == Some(true) {
        p.access.push(Box::new(handle));
    }
    Ok(())
}

fn handle(_: &mut Request) -> Verdict {
    Verdict::Next
}

#[cfg(test)]
mod tests {
    use http::module::Conf;

    use super::@TYPE@Conf;

    #[test]
    fn a_location_takes_what_it_leaves_open_from_its_server() {
        let server = @TYPE@Conf { on: Some(true) };
        let (mut open, mut off) = (@TYPE@Conf::default(), @TYPE@Conf { on: Some(false) });
        assert!(open.merge(&server).is_ok() && off.merge(&server).is_ok());
        assert_eq!((open.on, off.on), (Some(true), Some(false)));
    }
}
"#;

/// Writes the skeleton and enters the module into the list.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let done = match args {
        [name] => write(ws, name),
        [option, folder] if option == "--outside" => outside::write(ws, folder),
        _ => Err("usage: new-module NAME | --outside FOLDER".to_string()),
    };
    done.map_err(|e| vec![e])
}

fn write(ws: &Workspace, name: &str) -> Result<(), String> {
    check_name(name)?;
    let (file, list) = (format!("{FOLDER}/{name}.rs"), format!("{FOLDER}/lib.rs"));
    if ws.root().join(&file).exists() || ws.root().join(format!("{FOLDER}/{name}")).exists() {
        return Err(format!("{file} is there already"));
    }
    let entered = enter(&ws.read(&list)?, name)
        .ok_or_else(|| format!("{list}: no list of modules found to enter {name} into"))?;
    ws.write(&file, &skeleton(name))?;
    ws.write(&list, &entered)?;
    run::run(ws, "cargo", &["fmt", "--package", "weir-http-modules"])?;
    println!("{file} is written, and stands last in the list of {list}.");
    println!("The list is the order of handlers and filters: move it to its place.");
    println!("Then: cargo xtask directives, for the reference page.");
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if fits { Ok(()) } else { Err(format!("{name:?}: lower case, digits and _ make a name")) }
}

fn skeleton(name: &str) -> String {
    SKELETON.replace("@NAME@", name).replace("@TYPE@", &type_name(name))
}

fn type_name(name: &str) -> String {
    name.split('_')
        .flat_map(|part| {
            let (first, rest) = part.split_at(part.len().min(1));
            [first.to_ascii_uppercase(), rest.to_string()]
        })
        .collect()
}

/// The text of `lib.rs` with the module declared and at the end of `MODULES`.
fn enter(lib: &str, name: &str) -> Option<String> {
    let declared = lib.find("pub mod ")?;
    let list = lib.find("static MODULES")?;
    let end = list + lib[list..].find("];")?;
    let before = lib[..end].trim_end();
    let comma = if before.ends_with([',', '[']) { "" } else { "," };
    // The formatter puts declarations in order and breaks the list.
    Some(format!(
        "{}pub mod {name};\n{}{comma} &{name}::MODULE{}",
        &lib[..declared],
        &before[declared..],
        &lib[end..]
    ))
}

#[cfg(test)]
mod tests {
    use super::{check_name, enter, skeleton};

    #[test]
    fn the_list_gets_the_module_at_its_end() {
        let list = "pub static MODULES: Modules =\n    &[&index::MODULE];\n";
        let lib = format!("//! x\npub mod index;\n\n{list}");
        let list = "pub static MODULES: Modules =\n    &[&index::MODULE, &limit_req::MODULE];\n";
        let want = format!("//! x\npub mod limit_req;\npub mod index;\n\n{list}");
        assert_eq!(enter(&lib, "limit_req").as_deref(), Some(want.as_str()));
        assert!(enter("nothing here", "x").is_none());
    }

    #[test]
    fn names_of_types_follow() {
        let text = skeleton("limit_req");
        assert!(text.contains("struct LimitReqConf") && text.contains("Conf>(\"limit_req\","));
        assert!(!text.contains('@'));
    }

    #[test]
    fn only_names_of_modules_are_names() {
        assert!(check_name("limit_req").is_ok());
        assert!(["", "X", "a-b", "../x", "9a"].iter().all(|name| check_name(name).is_err()));
    }
}
