//! The server with the modules that serve files and no others, for `cargo xtask bench modules-off`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use http::module::Modules;

static FEW: Modules = &[
    &http::core_directives::MODULE,
    &http_modules::index::MODULE,
    &http_modules::static_file::MODULE,
    &http_modules::log::MODULE,
    &http_modules::not_modified::MODULE,
    &http_modules::headers::MODULE,
    &http_modules::range::MODULE,
];

fn main() -> ExitCode {
    weir_cli::run_of(FEW, &[])
}
