//! The project's own tasks: `cargo xtask VERB`. Continuous integration runs the same commands as a
//! person. Standard library only, so that it builds in seconds on a fresh machine.

#![forbid(unsafe_code)]

mod asan;
mod bench;
mod ci;
mod circles;
mod directives;
mod fuzz;
mod licences;
mod new_module;
mod package;
mod quick;
mod run;
mod rust_source;
mod sbom;
mod site;
mod testing;
mod tidy;
mod tiers;
mod trained;
mod vscode;
mod workspace;

use std::process::ExitCode;

use workspace::Workspace;

/// The result of a verb: findings, one a line, ready to print.
type Findings = Result<(), Vec<String>>;

/// A verb with its line of help.
struct Verb {
    name: &'static str,
    arguments: &'static str,
    help: &'static str,
    run: fn(&Workspace, &[String]) -> Findings,
}

const VERBS: &[Verb] = &[
    Verb {
        name: "ci",
        arguments: "[OPTIONS]",
        help: "everything a change has to pass; what ./x test runs; options as those of tests",
        run: ci::run,
    },
    Verb {
        name: "quick",
        arguments: "[CRATE...]",
        help: "format, lints and tests of the crates that changed, with one area end to end",
        run: quick::run,
    },
    Verb {
        name: "tests",
        arguments: "[PROGRAM...] [OPTIONS]",
        help: "runs the tests, and failed ones again, alone; --help lists the options",
        run: testing::run,
    },
    Verb {
        name: "directives",
        arguments: "[--check]",
        help: "makes docs/directives.md from the binary's tables; --check compares",
        run: directives::run,
    },
    Verb {
        name: "new-module",
        arguments: "NAME",
        help: "the skeleton of an HTTP module, entered into the list",
        run: new_module::run,
    },
    Verb {
        name: "bench",
        arguments: "[LOAD...] [OPTIONS]",
        help: "weir beside nginx and a bare responder; --help lists the loads",
        run: bench::run,
    },
    Verb {
        name: "fuzz",
        arguments: "TARGET|all [[--seconds] SECONDS]",
        help: "coverage-guided fuzzing; without a target lists them",
        run: fuzz::run,
    },
    Verb {
        name: "licences",
        arguments: "",
        help: "licences, denied crates and sources of dependencies, as deny.toml has them",
        run: licences::run,
    },
    Verb {
        name: "sbom",
        arguments: "[FILE]",
        help: "the packages of the shipped program with licences and checksums, as CycloneDX",
        run: sbom::run,
    },
    Verb {
        name: "site",
        arguments: "[FOLDER]",
        help: "checks all links of the documentation, and makes it HTML, in target/site",
        run: site::run,
    },
    Verb {
        name: "vscode",
        arguments: "[FILE]",
        help: "the extension for Visual Studio Code as a package, target/weir.vsix",
        run: vscode::run,
    },
    Verb {
        name: "package",
        arguments: "[check] [deb|rpm|image|static]... [--trained | --program FILE] \
                    [--out FOLDER] [-- CARGO ARGUMENTS]",
        help: "what people install; check tries the packages in a minimal Debian, as root",
        run: package::run,
    },
    Verb {
        name: "trained",
        arguments: "[CARGO ARGUMENTS]",
        help: "the server for release, built by the profile of a load",
        run: trained::run,
    },
    Verb {
        name: "image",
        arguments: "[--program FILE] [--out FOLDER] [-- CARGO ARGUMENTS]",
        help: "an OCI image as a layout of files",
        run: package::run_image,
    },
    Verb {
        name: "asan",
        arguments: "[PACKAGE...]",
        help: "tests of the crates with unsafe code under AddressSanitizer (nightly)",
        run: asan::run,
    },
    Verb {
        name: "tiers",
        arguments: "",
        help: "no crate depends on one below it; each foreign one has its reason",
        run: |ws, _| tiers::run(ws),
    },
    Verb {
        name: "circles",
        arguments: "[CRATE...]",
        help: "each crate's largest circle of imports; none has more than eight modules",
        run: circles::run,
    },
    Verb {
        name: "tidy",
        arguments: "[--fix]",
        help: "sizes, columns, unsafe, unwrap, leftovers; --fix mends what needs no thought",
        run: tidy::run,
    },
];

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let Some(verb) = VERBS.iter().find(|v| v.name == name) else {
        eprintln!("usage: cargo xtask VERB [ARGUMENTS]\n");
        for v in VERBS {
            eprintln!("  {:<30} {}", format!("{} {}", v.name, v.arguments), v.help);
        }
        let asked_for_help = matches!(name.as_str(), "help" | "--help" | "-h");
        return if asked_for_help { ExitCode::SUCCESS } else { ExitCode::from(2) };
    };
    match (verb.run)(&Workspace::here(), &rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("xtask {}: {} finding(s)", verb.name, findings.len());
            ExitCode::FAILURE
        }
    }
}
