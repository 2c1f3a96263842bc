//! An example of a filter: `content_digest on;` sends the SHA-256 of each body behind it, in a
//! trailer field as RFC 9530 has it, so that a client knows whether it got all of it right.
#![forbid(unsafe_code)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use weir_module::handler::Version;
use weir_module::prelude::*;

/// The module's table.
pub static MODULE: Module = Module {
    name: "content_digest",
    directives: &[directive(
        "content_digest",
        EVERYWHERE,
        Args::FLAG,
        "off",
        "Sends the SHA-256 of a body behind it, in the trailer Content-Digest (RFC 9530).",
        |cx, n| value::set_flag(&mut cx.loc::<DigestConf>().on, n),
    )],
    confs: &[ConfType::of::<DigestConf>(Scope::Location)],
    install: Some(install),
    ..Module::EMPTY
};

#[derive(Default)]
struct DigestConf {
    on: Option<bool>,
}

impl Conf for DigestConf {
    fn merge(&mut self, outer: &Self) -> Result<(), ConfError> {
        self.on = self.on.or(outer.on);
        Ok(())
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.conf::<DigestConf>().on == Some(true) {
        p.header_filters.push(Box::new(begin));
    }
    Ok(())
}

/// A body without bytes needs no digest, and one in HTTP/1.0 has no trailers.
fn begin(r: &mut Request) -> Verdict {
    if !r.flags.header_only && r.version() > Version::HTTP_10 && !r.out.body.is_empty() {
        r.out.expect_trailers = true;
        r.out.content_length = None;
        r.out.add("Trailer", Bytes::from_static(b"Content-Digest"));
        r.out.filters.push(Box::new(Hash(Sha256::new())));
    }
    Verdict::Next
}

struct Hash(Sha256);

impl BodyFilter for Hash {
    fn filter(&mut self, r: &mut Request, Piece { input, last, out }: Piece<'_>) -> FilterStep {
        for piece in input.iter() {
            if let Some(bytes) = piece.memory() {
                self.0.update(bytes);
            }
        }
        out.append(input);
        if last {
            let digest = STANDARD.encode(self.0.finalize_reset());
            let field = Bytes::from(format!("sha-256=:{digest}:"));
            r.out.trailers.push((Bytes::from_static(b"Content-Digest"), field));
        }
        FilterStep::Go
    }

    /// The digest is that of the bytes on the wire: behind compression, and with all parts of a
    /// page.
    fn is_coding(&self) -> bool {
        true
    }
}
