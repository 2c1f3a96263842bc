//! Content codings: which of `zstd`, `br` and `gzip` a response goes out in.
//!
//! The modules of the codings have the directives; here their offers meet. Of the codings that a
//! location offers for a response and the client names in `Accept-Encoding`, the one with the
//! greatest weight is taken (RFC 9110 12.5.3); where weights are equal, the first of [`Coding`]'s
//! order. As in nginx, `*` names no coding: who sends it seldom means more than that anything will
//! do, and what has no coding will.

pub mod body;
pub mod coder;
pub mod idle;
pub mod level;
pub(crate) mod precompressed;
pub mod settings;
pub mod weight;

use bytes::Bytes;
use conf::ConfError;
use http::module::{LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http::types::TypeList;

use self::body::{Body, Make, Plan};
use crate::gzip::negotiate::Accept;
use crate::{brotli, gzip, zstd};

/// Installs the filter for all codings; it stands where gzip's filter does in nginx.
pub static MODULE: Module = Module { name: "compress", install: Some(install), ..Module::EMPTY };

/// A content coding, in the order of preference: what costs least for what it saves comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Coding {
    /// RFC 8878
    Zstd,
    /// RFC 7932
    Brotli,
    /// RFC 1952
    Gzip,
}

impl Coding {
    /// Its name in `Accept-Encoding` and `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    /// The value of `Content-Encoding`.
    pub fn value(self) -> Bytes {
        Bytes::from_static(self.name().as_bytes())
    }

    /// The directive that looks for files in this coding.
    pub fn directive(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd_static",
            Coding::Brotli => "brotli_static",
            Coding::Gzip => "gzip_static",
        }
    }

    /// The suffix of a file's name for its content in this coding.
    pub fn suffix(self) -> &'static [u8] {
        match self {
            Coding::Zstd => b".zst",
            Coding::Brotli => b".br",
            Coding::Gzip => b".gz",
        }
    }
}

/// A coding that a location offers.
pub struct Offer {
    /// The coding that is offered.
    pub coding: Coding,
    /// For responses of these types,
    pub types: TypeList,
    /// that are no shorter than this.
    pub min_length: u64,
    /// How the response is compressed.
    pub plan: Plan,
    /// Makes the compressor for a response, whose length is given where it is known.
    pub make: Box<dyn Fn(Option<u64>) -> Make>,
}

/// The type that is compressed whatever `…_types` say.
pub(crate) const DEFAULT_TYPE: &str = "text/html";

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let offers = [zstd::offer(l), brotli::offer(l), gzip::offer(l)];
    let offers: Vec<Offer> = offers.into_iter().flatten().collect();
    if !offers.is_empty() {
        let choice = Choice { accept: Accept::of(l), offers };
        p.header_filters.push(Box::new(move |r: &mut Request| {
            choice.run(r);
            Verdict::Next
        }));
    }
    Ok(())
}

struct Choice {
    accept: Accept,
    /// The codings, in the order of preference.
    offers: Vec<Offer>,
}

impl Choice {
    fn run(&self, r: &mut Request) {
        if !matches!(r.status(), 200 | 403 | 404)
            || r.flags.header_only
            || r.out.header(b"Content-Encoding").is_some_and(|coding| !coding.is_empty())
        {
            return;
        }
        let (mut best, mut weight) = (None, 0);
        for offer in &self.offers {
            let short = r.out.content_length.is_some_and(|len| len < offer.min_length);
            if short || !offer.types.has(&r.out) {
                continue;
            }
            r.out.vary_encoding |= self.accept.vary;
            let of_this = self.accept.weight(r, offer.coding);
            if of_this > weight {
                (best, weight) = (Some(offer), of_this);
            }
        }
        let Some(offer) = best else { return };
        let make = (offer.make)(r.out.content_length);
        r.out.add("Content-Encoding", offer.coding.value());
        r.out.body_changes();
        r.out.weaken_etag();
        r.out.filters.push(Box::new(Body::new(offer.coding, offer.plan.clone(), make)));
    }
}

/// The ratio by which a response was compressed.
#[derive(Default)]
pub(crate) struct Ratio {
    coding: Option<Coding>,
    before: u64,
    after: u64,
}

/// Writes the ratio of a response that went out in a coding, for `$gzip_ratio` and its like.
pub(crate) fn write_ratio_of(r: &Request, coding: Coding, out: &mut Vec<u8>) -> bool {
    match r.ctx::<Ratio>() {
        Some(&Ratio { coding: Some(of), before, after }) if of == coding && after > 0 => {
            write_ratio(before, after, out);
            true
        }
        _ => false,
    }
}

/// With two digits behind the point, rounded.
fn write_ratio(before: u64, after: u64, out: &mut Vec<u8>) {
    let before = u128::from(before);
    let thousandths = (before * 1000 / u128::from(after)) as u64;
    let hundredths = thousandths / 10 + u64::from(thousandths % 10 > 4);
    base::ascii::write_u64(out, hundredths / 100);
    out.push(b'.');
    out.push(b'0' + (hundredths / 10 % 10) as u8);
    out.push(b'0' + (hundredths % 10) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_rounded() {
        for (before, after, want) in [
            (2125, 1000, "2.13"),
            (2124, 1000, "2.12"),
            (999, 500, "2.00"),
            (1, 3, "0.33"),
            (64, 25, "2.56"),
        ] {
            let mut out = Vec::new();
            write_ratio(before, after, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
