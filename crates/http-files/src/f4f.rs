//! `f4f`: Adobe's HTTP Dynamic Streaming. `/filmSeg1-Frag7` is a part of the file `filmSeg1.f4f`,
//! which the index `filmSeg1.f4x` has the place of.

use std::ops::Range;

use ::mp4::Fault;
use ::mp4::hds::{Extent, Name, find};
use bytes::Bytes;
use conf::ConfError;
use conf::table::{Args, Directive};
use conf::value::set_size;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::files::{self, OpenFile};
use http::module::{Conf, ConfType, LocView, Module, PhaseHandler, Pipeline, Scope, Step, Verdict};
use http::output::Body;
use http::request::Request;
use http_wire::h1::Method;
use mem::Chain;

use crate::handled_here::handled_here;
use crate::mp4::walk::{Trouble, fill};
use crate::mp4::{log, reader};
use crate::static_file::{not_a_file, not_opened, send_file};

/// The module's table.
pub static MODULE: Module = Module {
    confs: &[ConfType::of::<F4fConf>(Scope::Location), ConfType::of::<F4fHandler>(Scope::Location)],
    ..Module::of::<F4fConf>("f4f", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    handled_here::<F4fHandler>(
        "f4f",
        "Serves fragments of Adobe's HTTP Dynamic Streaming: NAMESegN-FragM, from .f4f files with \
         an .f4x index.",
    ),
    directive(
        "f4f_buffer_size",
        HSL,
        Args::T1,
        "512k",
        "The maximum size of an .f4x index, else 500.",
        |cx, n| set_size(&mut cx.loc::<F4fConf>().buffer_size, n),
    ),
];

engine::settings! {
    struct F4fConf {
        buffer_size: Option<usize>,
    }
}

/// The handler stands in a location, which is not inherited.
#[derive(Default)]
struct F4fHandler;

impl Conf for F4fHandler {}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<F4fHandler>() {
        let buffer_size = l.conf::<F4fConf>().buffer_size.unwrap_or(512 << 10);
        p.content_handler = Some(Box::new(F4f { buffer_size }));
    }
    Ok(())
}

struct F4f {
    buffer_size: usize,
}

impl PhaseHandler for F4f {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let Some(name) = Name::parse(&r.target.uri) else {
            // The manifest, for example.
            return Step::Now(Verdict::Next);
        };
        match not_a_file(r, &[Method::Get, Method::Head]) {
            Some(verdict) => Step::Now(verdict),
            None => Step::Wait(Box::pin(self.answer(r, name))),
        }
    }
}

impl F4f {
    async fn answer(&self, r: &mut Request, name: Name) -> Verdict {
        let path = r.map_path();
        // An alias may have replaced the end of the URI, too.
        if Name::parse(&path) != Some(name) {
            return Verdict::Next;
        }
        let segment = &path[..path.len() - name.suffix_len];
        let (index_path, path) = ([segment, b".f4x"].concat(), [segment, b".f4f"].concat());
        let index = match open(r, &index_path).await {
            Ok(index) => index,
            Err(verdict) => return verdict,
        };
        let at = match self.place(r, &index, name).await {
            Ok(Some(at)) => at,
            Ok(None) => {
                let path = base::log::lossy(&index_path);
                let m = format_args!("\"{path}\" has no fragment {}", name.fragment);
                r.log(base::log::Level::Error, m);
                return Verdict::Status(404);
            }
            Err(trouble) => {
                log(r, &index_path, trouble);
                return Verdict::Status(500);
            }
        };
        let file = match open(r, &path).await {
            Ok(file) => file,
            Err(verdict) => return verdict,
        };
        match extent(r, &file, at).await {
            Ok(range) => {
                r.flags.root_tested = !r.flags.error_page;
                send(r, &file, range)
            }
            Err(trouble) => {
                log(r, &path, trouble);
                Verdict::Status(500)
            }
        }
    }

    /// The place of a fragment, from an index; read in a thread.
    async fn place(
        &self,
        r: &mut Request,
        index: &OpenFile,
        name: Name,
    ) -> Result<Option<u64>, Trouble> {
        let len = index.meta().size;
        if len > self.buffer_size as u64 {
            let advice = "you may want to increase f4f_buffer_size";
            return Err(Fault::of_file(format!("f4f index is too large:{len}, {advice}")).into());
        }
        let mut read = reader(index, r.loc.core.directio_alignment as usize);
        let found = r.on_disk(move || {
            let bytes = fill(&mut read, 0, len as usize)?;
            Ok::<_, Trouble>(find(&bytes, &name)?)
        });
        found.await.map_err(Trouble::Io)?
    }
}

/// The bytes of a fragment that begins at a place; read in a thread.
async fn extent(r: &mut Request, file: &OpenFile, at: u64) -> Result<Range<u64>, Trouble> {
    let len = file.meta().size;
    let mut read = reader(file, r.loc.core.directio_alignment as usize);
    let found = r.on_disk(move || {
        let mut extent = Extent::new(at, len)?;
        loop {
            let wanted = extent.wanted();
            let bytes = fill(&mut read, wanted.start, (wanted.end - wanted.start) as usize)?;
            if let Some(range) = extent.feed(&bytes)? {
                return Ok::<_, Trouble>(range);
            }
        }
    });
    found.await.map_err(Trouble::Io)?
}

async fn open(r: &mut Request, path: &[u8]) -> Result<OpenFile, Verdict> {
    match files::open(r, path).await {
        Ok(file) if file.meta().is_file() => Ok(file),
        Ok(_) => Err(Verdict::Status(404)),
        Err(e) => Err(not_opened(r, path, &e)),
    }
}

fn send(r: &mut Request, file: &OpenFile, range: Range<u64>) -> Verdict {
    let verdict = send_file(r, file);
    let mut body = Chain::new();
    file.append_to(&mut body, range.start, range.end);
    r.out.content_type = Some(Bytes::from_static(b"video/f4f"));
    r.out.content_length = Some(body.len());
    r.out.body = Body::Chain(body);
    verdict
}
