//! Modules of a build of the program beyond those of the project (`weir build --with …`).

use std::sync::OnceLock;

use conf::{ConfError, Node};
use http::Module;
use http::module::Modules;

/// A module from outside the project.
pub struct Added {
    /// The name of its crate.
    pub name: &'static str,
    /// The version of its crate.
    pub version: &'static str,
    /// Its table.
    pub module: &'static Module,
}

struct Installed {
    added: &'static [Added],
    modules: Modules,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// Why the modules of a program cannot be installed; for its builder.
#[derive(Debug)]
pub enum NotInstalled {
    /// Two modules, or two directives, have one name.
    Clash(http_modules::Clash),
    /// The process has a list of modules already.
    Twice,
}

impl std::fmt::Display for NotInstalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotInstalled::Clash(clash) => clash.fmt(f),
            NotInstalled::Twice => f.write_str("modules were added twice"),
        }
    }
}

/// Joins the added modules to the project's own.
///
/// # Errors
/// See [`NotInstalled`].
pub fn install(modules: Modules, added: &'static [Added]) -> Result<(), NotInstalled> {
    let modules = match added {
        [] => modules,
        _ => http_modules::with(modules, added.iter().map(|a| a.module))
            .map_err(NotInstalled::Clash)?,
    };
    let installed = Installed { added, modules };
    INSTALLED.set(installed).map_err(|_| NotInstalled::Twice)
}

/// All modules of this program, in order.
pub fn modules() -> Modules {
    match INSTALLED.get() {
        Some(installed) => installed.modules,
        // Outside tests this would link all modules into a program with fewer.
        None if cfg!(test) => http_modules::MODULES,
        None => &[],
    }
}

/// The directives whose arguments are secrets: dumps and comparisons star them.
pub fn secrets() -> Vec<&'static str> {
    // Its address may have a password; it is a directive of the outermost level, in no module.
    let own = ["shared_state"];
    modules().iter().flat_map(|module| module.secrets).copied().chain(own).collect()
}

/// `load_module`: nothing is loaded at run time. A module that is not built in is warned of,
/// because distributions load many that no directive uses: such a directive fails by itself.
///
/// # Errors
/// The directive stands behind a block that needs all modules.
pub fn load_module(node: &Node, too_late: bool) -> Result<(), ConfError> {
    if too_late {
        return Err(ConfError::directive(node, "is specified too late"));
    }
    let file = node.arg(0)?;
    let name = name_of(file.bytes());
    if is_here(&name, modules(), added()) {
        return Ok(());
    }
    let mut m = format!("module \"{name}\" is not built in: its directives are unknown");
    if let Some(foreign) = conf::foreign::of_file(&name) {
        m.push_str(&format!("; in their place {}", foreign.advice));
    }
    conf::warn(file, m);
    Ok(())
}

/// Whether a `load_module` of this path names a module that is built in.
pub fn has_file(path: &[u8]) -> bool {
    is_here(&name_of(path), modules(), added())
}

/// The name of the module that a path such as `modules/ngx_http_image_filter_module.so` means.
pub fn name_of(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let file = text.rsplit('/').next().unwrap_or(&text);
    let name = file.strip_suffix(".so").unwrap_or(file);
    let name = ["ngx_", "lib"].iter().fold(name, |n, prefix| n.strip_prefix(prefix).unwrap_or(n));
    let name = name.strip_suffix("_module").unwrap_or(name);
    name.replace('-', "_")
}

/// Whether a module of that name is built in, with or without the parts that names vary in: nginx's
/// files have `http_`, and `_filter` where the documentation has not.
fn is_here(name: &str, modules: Modules, added: &[Added]) -> bool {
    if matches!(name, "stream" | "mail") {
        return true;
    }
    if let Some(of_stream) = name.strip_prefix("stream_") {
        return stream_modules::MODULES.iter().any(|m| m.name == of_stream);
    }
    let short = name.strip_prefix("http_").unwrap_or(name);
    let part = ["_filter", "_static"].iter().find_map(|part| short.strip_suffix(part));
    let bare = part.unwrap_or(short);
    modules.iter().any(|m| m.name == short || m.name == bare)
        || added.iter().any(|a| {
            let of_crate = a.name.replace('-', "_");
            of_crate == name || of_crate.strip_prefix("weir_") == Some(bare)
        })
}

/// The modules from outside.
pub fn added() -> &'static [Added] {
    INSTALLED.get().map_or(&[], |i| i.added)
}

#[cfg(test)]
mod tests {
    use super::*;

    static HELLO: Module = Module { name: "hello", ..Module::EMPTY };

    #[test]
    fn files_of_modules_are_known_by_name() {
        let name = name_of(b"/usr/lib/nginx/modules/ngx_http_random_index_module.so");
        assert_eq!(name, "http_random_index");
        let built_in = |name| is_here(name, http_modules::MODULES, &[]);
        assert!(built_in("http_random_index") && built_in("http_charset_filter"));
        assert!(built_in("http_headers_more_filter") && built_in("otel"));
        assert!(built_in("http_brotli_static") && built_in("http_zstd_filter"));
        assert!(built_in("http_brotli_filter") && built_in("http_zstd_static"));
        assert!(built_in("gzip") && built_in("mail") && !built_in("http_perl"));
        assert!(built_in("stream") && built_in("stream_geoip"));
        assert_eq!(built_in("stream_js"), cfg!(feature = "script"));
        let added = [Added { name: "weir-mysql", version: "1.0.0", module: &HELLO }];
        let with = |path: &[u8]| is_here(&name_of(path), &[], &added);
        assert!(with(b"modules/mysql.so") && with(b"weir-mysql") && with(b"libweir_mysql.so"));
        assert!(with(b"modules/ngx_http_mysql_module.so") && !with(b"modules/hello.so"));
    }
}
