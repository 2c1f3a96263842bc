//! `mp4`: films from a time on, and to a time (`?start=SECONDS&end=SECONDS`), which players can
//! seek in without having all of them. `mp4_limit_rate` sends a film about as fast as it is
//! watched.

pub(crate) mod walk;

use std::io;

use ::mp4::Window;
use bytes::Bytes;
use conf::table::{Args, Contexts, Directive};
use conf::value::{self, set_flag, set_msec, set_size};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::files::{self, OpenFile};
use http::module::{Conf, ConfType, LocView, Module, PhaseHandler, Pipeline, Scope, Step, Verdict};
use http::output::Body;
use http::request::Request;
use http_wire::h1::Method;
use mem::Chain;

use self::walk::{Film, Limits, Trouble};
use crate::static_file::{not_a_file, not_opened, send_file};

/// The module's table.
pub static MODULE: Module = Module {
    confs: &[ConfType::of::<Mp4Conf>(Scope::Location), ConfType::of::<Mp4Handler>(Scope::Location)],
    ..Module::of::<Mp4Conf>("mp4", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "mp4",
        Contexts::LOCATION,
        Args::NONE,
        "",
        "Serves the part of an MP4 file between the arguments `start` and `end`, in seconds.",
        |cx, _| {
            cx.loc::<Mp4Handler>().on = true;
            Ok(())
        },
    ),
    directive(
        "mp4_buffer_size",
        HSL,
        Args::T1,
        "512k",
        "The initial size of the buffer for an MP4 file's index (moov).",
        |cx, n| set_size(&mut cx.loc::<Mp4Conf>().buffer_size, n),
    ),
    directive(
        "mp4_max_buffer_size",
        HSL,
        Args::T1,
        "10m",
        "The maximum size of an MP4 file's index (moov), else 500.",
        |cx, n| set_size(&mut cx.loc::<Mp4Conf>().max_buffer_size, n),
    ),
    directive(
        "mp4_limit_rate",
        HSL,
        Args::T1,
        "off",
        "Limits the rate to the film's average bitrate times this factor; `on` is 1.1.",
        |cx, n| value::set_once(&mut cx.loc::<Mp4Conf>().limit_rate, n, factor),
    ),
    directive(
        "mp4_limit_rate_after",
        HSL,
        Args::T1,
        "60s",
        "The playing time at the start of a response that mp4_limit_rate does not limit.",
        |cx, n| set_msec(&mut cx.loc::<Mp4Conf>().limit_rate_after, n),
    ),
    directive(
        "mp4_start_key_frame",
        HSL,
        Args::FLAG,
        "off",
        "Starts at the key frame before `start`; an edit list hides the part before `start`.",
        |cx, n| set_flag(&mut cx.loc::<Mp4Conf>().start_key_frame, n),
    ),
];

engine::settings! {
    struct Mp4Conf {
        buffer_size: Option<usize>,
        max_buffer_size: Option<usize>,
        start_key_frame: Option<bool>,
        /// Thousandths of the average bitrate; 0 is no limit.
        limit_rate: Option<u64>,
        /// Milliseconds.
        limit_rate_after: Option<u64>,
    }
}

/// `on | off | FACTOR`, in thousandths.
fn factor(n: &Node) -> Result<u64, ConfError> {
    match n.arg(0)?.bytes() {
        b"on" => Ok(1100),
        b"off" => Ok(0),
        text => {
            let factor = milliseconds(text).filter(|thousandths| *thousandths > 0);
            factor.ok_or_else(|| ConfError::directive(n, "invalid value"))
        }
    }
}

/// Whether the handler stands in a location, which is not inherited.
#[derive(Default)]
struct Mp4Handler {
    on: bool,
}

impl Conf for Mp4Handler {}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<Mp4Handler>() {
        let conf = l.conf::<Mp4Conf>();
        p.content_handler = Some(Box::new(Mp4 {
            limits: Limits {
                buffer: conf.buffer_size.unwrap_or(512 << 10),
                moov_max: conf.max_buffer_size.unwrap_or(10 << 20) as u64,
                directive: "mp4_max_buffer_size",
            },
            key_frame: conf.start_key_frame.unwrap_or(false),
            rate: conf.limit_rate.unwrap_or(0),
            after_ms: conf.limit_rate_after.unwrap_or(60_000),
        }));
    }
    Ok(())
}

struct Mp4 {
    limits: Limits,
    key_frame: bool,
    /// Thousandths of the average bitrate; 0 is no limit.
    rate: u64,
    /// The playing time before the limit.
    after_ms: u64,
}

/// What a file was found to be.
struct Found {
    /// The part that is asked for; `None`: the file as it is.
    film: Option<Film>,
    /// The length of the whole film, in milliseconds, where it is needed and told.
    length_ms: Option<u64>,
}

impl PhaseHandler for Mp4 {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if let Some(verdict) = not_a_file(r, &[Method::Get, Method::Head]) {
            return Step::Now(verdict);
        }
        match self.window(r) {
            None if self.rate > 0 => Step::Wait(Box::pin(self.cut(r, None))),
            Some(window) => Step::Wait(Box::pin(self.cut(r, Some(window)))),
            None => files::step(r, |r| {
                let path = r.map_path();
                files::try_open(r, &path).map(|opened| match opened {
                    Ok(file) if file.meta().is_file() => whole(r, &file),
                    Ok(_) => Verdict::Next,
                    Err(e) => not_opened(r, &path, &e),
                })
            }),
        }
    }
}

fn whole(r: &mut Request, file: &OpenFile) -> Verdict {
    r.flags.root_tested = !r.flags.error_page;
    send_file(r, file)
}

impl Mp4 {
    /// The part that the arguments ask for; `None`: the file as it is.
    fn window(&self, r: &Request) -> Option<Window> {
        let start = r.arg(b"start").and_then(milliseconds);
        let end = r.arg(b"end").and_then(milliseconds).filter(|end| *end > 0);
        if start.is_none() && end.is_none() {
            return None;
        }
        let start_ms = start.unwrap_or(0);
        let length_ms = end.map_or(0, |end| end.saturating_sub(start_ms));
        Some(Window { start_ms, length_ms, key_frame: self.key_frame })
    }

    /// Looks for the index and cuts it: in a thread, since the file may be anywhere in it, and an
    /// index has up to megabytes.
    async fn cut(&self, r: &mut Request, window: Option<Window>) -> Verdict {
        let path = r.map_path();
        let file = match files::open(r, &path).await {
            Ok(file) if file.meta().is_file() => file,
            Ok(_) => return Verdict::Next,
            Err(e) => return not_opened(r, &path, &e),
        };
        let (limits, align) = (self.limits, r.loc.core.directio_alignment as usize);
        let len = file.meta().size;
        let is_limited = self.rate > 0;
        let mut read = reader(&file, align);
        let mut task = move || {
            let length_ms = match is_limited {
                true => walk::length_ms(&mut read, len, limits)?,
                false => None,
            };
            let film = match &window {
                Some(window) => walk::film(&mut read, len, limits, window)?,
                None => None,
            };
            Ok(Found { film, length_ms })
        };
        let found = match r.pool() {
            Ok(None) => task(),
            Ok(Some(pool)) => match pool.run(task).await {
                Ok(found) => found,
                // It was logged.
                Err(_) => return Verdict::Status(500),
            },
            Err(_) => return Verdict::Status(500),
        };
        match found {
            Ok(Found { film, length_ms }) => {
                if let Some(ms) = length_ms.filter(|ms| *ms > 0) {
                    let bytes_in =
                        |ms_played: u64| u128::from(len) * u128::from(ms_played) / u128::from(ms);
                    let rate = bytes_in(1000) * u128::from(self.rate) / 1000;
                    r.client.rates.limit = Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1));
                    r.client.rates.after = u64::try_from(bytes_in(self.after_ms)).ok();
                }
                match film {
                    None => whole(r, &file),
                    Some(film) => send_film(r, &file, film),
                }
            }
            // A file that is no film, as a whole, has no bitrate.
            Err(Trouble::Fault(_)) if window.is_none() => whole(r, &file),
            Err(trouble) => {
                log(r, &path, trouble);
                Verdict::Status(500)
            }
        }
    }
}

/// A function that reads a part of a file, and may wait for the disk.
pub(crate) fn reader(
    file: &OpenFile,
    align: usize,
) -> impl FnMut(u64, usize) -> io::Result<Bytes> + Send + 'static {
    let (content, fd) = (file.content.clone(), file.fd.clone());
    move |pos, len| match (&content, &fd) {
        (Some(content), _) => {
            let from = (pos as usize).min(content.len());
            Ok(content.slice(from..content.len().min(from.saturating_add(len))))
        }
        (None, Some(fd)) => files::read_waiting(fd, pos, len, align),
        (None, None) => Ok(Bytes::new()),
    }
}

fn send_film(r: &mut Request, file: &OpenFile, film: Film) -> Verdict {
    let verdict = whole(r, file);
    let mut body = Chain::new();
    body.push_bytes(film.head);
    file.append_to(&mut body, film.data.start, film.data.end);
    r.out.content_length = Some(body.len());
    r.out.body = Body::Chain(body);
    verdict
}

/// Logs the reason that there is nothing to send.
#[cold]
pub(crate) fn log(r: &Request, path: &[u8], trouble: Trouble) {
    let level = base::log::Level::Error;
    let path = base::log::lossy(path);
    match trouble {
        Trouble::Fault(fault) => r.log(level, format_args!("{}", fault.named(&path))),
        Trouble::Io(e) => r.log_os(level, format_args!("pread() \"{path}\""), &e),
    }
}

/// Seconds with a fraction, of which players send more digits than have a meaning.
pub(crate) fn milliseconds(text: &[u8]) -> Option<u64> {
    let (mut value, mut places) = (0u64, None);
    for byte in text {
        match byte {
            b'.' if places.is_none() => places = Some(0),
            b'0'..=b'9' if places == Some(3) => {}
            b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
                places = places.map(|n| n + 1);
            }
            _ => return None,
        }
    }
    if text.is_empty() {
        return None;
    }
    let value = value.checked_mul(10u64.pow(3 - places.unwrap_or(0)))?;
    Some(value).filter(|ms| *ms <= i64::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_with_any_number_of_digits() {
        for (text, want) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("1.5", Some(1500)),
            ("1.", Some(1000)),
            (".25", Some(250)),
            ("12.3456789012345678901234567890", Some(12345)),
            ("", None),
            ("-1", None),
            ("1.2.3", None),
            ("1e3", None),
            ("99999999999999999999", None),
            ("9999999999999999", None),
        ] {
            assert_eq!(milliseconds(text.as_bytes()), want, "{text}");
        }
    }
}
