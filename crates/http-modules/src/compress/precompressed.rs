//! Files that lie compressed beside their originals: `gzip_static`, `brotli_static` and
//! `zstd_static`, which go through the same choice as the filters do.

use std::task::{Poll, ready};

use base::log::Level;
use conf::{ConfError, Node};
use http::files::{self, OpenError, OpenFile};
use http::module::{Dry, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http_wire::h1::Method;

use super::Coding;
use crate::gzip::negotiate::Accept;
use crate::static_file::{self, EACCES, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOTDIR};

/// Installs the handler for all of them; the modules of the codings have the directives.
pub static MODULE: Module =
    Module { name: "precompressed", install: Some(install), ..Module::EMPTY };

/// The condition under which a compressed file is sent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// Never.
    #[default]
    Off,
    /// The compressed file goes to clients that accept the coding.
    On,
    /// The compressed file goes to all clients.
    Always,
}

/// A directive's setter.
///
/// # Errors
/// The value is none of the three words, or stands there twice.
pub(crate) fn set_mode(field: &mut Option<Mode>, n: &Node) -> Result<(), ConfError> {
    let modes = &[("off", Mode::Off), ("on", Mode::On), ("always", Mode::Always)];
    conf::value::set_enum(field, n, modes)
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let all = [
        (Coding::Zstd, crate::zstd::statics(l)),
        (Coding::Brotli, crate::brotli::statics(l)),
        (Coding::Gzip, crate::gzip::statics::mode(l)),
    ];
    let modes: Vec<_> = all.into_iter().filter(|(_, mode)| *mode != Mode::Off).collect();
    if !modes.is_empty() {
        p.content.push(Box::new(Precompressed { modes, accept: Accept::of(l) }));
    }
    Ok(())
}

struct Precompressed {
    /// The codings, in the order of preference.
    modes: Vec<(Coding, Mode)>,
    accept: Accept,
}

impl PhaseHandler for Precompressed {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if !r.method_is(&[Method::Get, Method::Head]) || r.target.uri.last() == Some(&b'/') {
            return Step::Now(Verdict::Next);
        }
        files::step(r, |r| self.choose(r))
    }
}

/// A coding whose file might be sent.
struct Candidate {
    coding: Coding,
    mode: Mode,
    weight: u16,
}

impl Candidate {
    fn is_taken(&self) -> bool {
        self.mode == Mode::Always || self.weight > 0
    }
}

impl Precompressed {
    fn choose(&self, r: &mut Request) -> Poll<Verdict> {
        let mut candidates: Vec<_> = self.candidates(r).collect();
        // Stable: among equal weights the order of preference stays.
        candidates.sort_by_key(|c| std::cmp::Reverse(c.weight));
        let mut path = r.map_path();
        let original = path.len();
        for candidate in &candidates {
            // Caches have to know that others might get the file that this client does not take.
            let hidden = !candidate.is_taken();
            if hidden && (!self.accept.vary || r.out.vary_encoding) {
                continue;
            }
            path.truncate(original);
            path.extend_from_slice(candidate.coding.suffix());
            let opened = ready!(files::try_open(r, &path));
            let by = candidate.coding.directive();
            crate::file_notes::note(r, by, &path, opened.as_ref().map(OpenFile::meta));
            let file = match opened {
                Ok(file) => file,
                Err(e) => {
                    if !hidden {
                        log_failure(r, &path, &e);
                    }
                    continue;
                }
            };
            if candidate.mode == Mode::On {
                r.out.vary_encoding |= self.accept.vary;
            }
            if hidden || file.meta().is_dir() {
                continue;
            }
            return Poll::Ready(send(r, &path, &file, candidate.coding));
        }
        Poll::Ready(Verdict::Next)
    }

    fn candidates(&self, r: &mut Request) -> impl Iterator<Item = Candidate> + use<'_> {
        let weights: Vec<_> = self.modes.iter().map(|(c, _)| self.accept.weight(r, *c)).collect();
        let all = self.modes.iter().zip(weights);
        all.map(|(&(coding, mode), weight)| Candidate { coding, mode, weight })
    }
}

fn send(r: &mut Request, path: &[u8], file: &OpenFile, coding: Coding) -> Verdict {
    if !file.meta().is_file() {
        let path = base::log::lossy(path);
        r.log(Level::Crit, format_args!("\"{path}\" is not a regular file"));
        return Verdict::Status(404);
    }
    r.flags.root_tested = !r.flags.error_page;
    let verdict = static_file::send_file(r, file);
    r.out.add("Content-Encoding", coding.value());
    verdict
}

fn log_failure(r: &Request, path: &[u8], e: &OpenError) {
    let level = match e.errno() {
        Some(ENOENT | ENOTDIR | ENAMETOOLONG) => return,
        Some(EACCES | EMLINK | ELOOP) => Level::Error,
        _ => Level::Crit,
    };
    r.log_os(level, format_args!("{} \"{}\"", e.what, base::log::lossy(path)), &e.error);
}
