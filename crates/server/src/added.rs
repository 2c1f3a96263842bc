//! Modules that a build of the program has beyond those of the project (`weir build --with …`).

use std::sync::OnceLock;

use http::Module;
use http::build::Modules;

/// A module from outside the project.
pub struct Added {
    /// The name of its crate.
    pub name: &'static str,
    /// The version of its crate.
    pub version: &'static str,
    /// Its table.
    pub module: &'static Module,
}

/// Added modules stand before this one: behind the project's handlers of the access phase and
/// before those that look for files; and before the filters of the project.
const BEFORE: &str = "random_index";

struct Installed {
    added: &'static [Added],
    modules: Modules,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// Puts the added modules into the list.
///
/// # Errors
/// Two modules, or two directives, of one name: what to tell who built the program.
pub fn install(added: &'static [Added]) -> Result<(), String> {
    if added.is_empty() {
        return Ok(());
    }
    let modules = join(http_modules::MODULES, added)?;
    let installed = Installed { added, modules: Box::leak(modules.into_boxed_slice()) };
    INSTALLED.set(installed).map_err(|_| "modules were added twice".to_owned())
}

fn join(own: Modules, added: &[Added]) -> Result<Vec<&'static Module>, String> {
    let mut list: Vec<&'static Module> = own.to_vec();
    let place = list.iter().position(|m| m.name == BEFORE).unwrap_or(list.len());
    for (i, new) in added.iter().enumerate() {
        let Added { name, module, .. } = new;
        for other in &list {
            if other.name == module.name {
                return Err(format!("module \"{}\" of {name} is built in already", module.name));
            }
            let taken = |d: &&conf::table::Directive<http::Cx>| {
                other.directives.iter().any(|o| o.name == d.name)
            };
            if let Some(d) = module.directives.iter().find(taken) {
                return Err(format!(
                    "directive \"{}\" of {name} belongs to module \"{}\" already",
                    d.name, other.name
                ));
            }
        }
        // Made once a process, and needed to its end.
        list.insert(place + i, Box::leak(Box::new(module.added())));
    }
    Ok(list)
}

/// All modules of this program, in order.
pub fn modules() -> Modules {
    INSTALLED.get().map_or(http_modules::MODULES, |i| i.modules)
}

/// The modules from outside.
pub fn added() -> &'static [Added] {
    INSTALLED.get().map_or(&[], |i| i.added)
}

#[cfg(test)]
mod tests {
    use super::*;

    static HELLO: Module = Module { name: "hello", ..Module::EMPTY };
    static WORLD: Module = Module { name: "world", ..Module::EMPTY };
    static INDEX: Module = Module { name: "index", ..Module::EMPTY };

    fn of(module: &'static Module) -> Added {
        Added { name: "crate", version: "1.0.0", module }
    }

    #[test]
    fn the_order_given_is_kept_before_the_modules_of_files() {
        let list = join(http_modules::MODULES, &[of(&HELLO), of(&WORLD)]).unwrap();
        let at = |name| list.iter().position(|m| m.name == name).unwrap();
        assert_eq!(at("world"), at("hello") + 1);
        assert_eq!(at(BEFORE), at("world") + 1);
        assert!(at("access") < at("hello") && at("static") > at("world"));
        assert_eq!(list.len(), http_modules::MODULES.len() + 2);
    }

    #[test]
    fn names_that_are_taken_are_refused() {
        let said = |added: &[Added]| join(http_modules::MODULES, added).err().unwrap();
        assert_eq!(said(&[of(&INDEX)]), "module \"index\" of crate is built in already");
        assert_eq!(
            said(&[of(&HELLO), of(&HELLO)]),
            "module \"hello\" of crate is built in already"
        );
    }
}
