//! `image_filter`: images tested, measured, resized, cropped and turned on their way out.
//!
//! The whole image is taken into memory and worked on in a thread, before the response's head is
//! written: only then are its type and length known, and whether it is an image at all.

mod header;
mod work;

use std::future::Future;
use std::pin::Pin;

use base::log::Level;
use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::template::Template;
use conf::{ConfError, Node, Word, value};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, LocView, Module, Pipeline, Verdict};
use http::output::{Body, NotWhole, WholeBody};
use http::request::Request;
use http_wire::h1::Method;

use header::Kind;
use work::{Shape, Wanted};

/// The module's table.
pub static MODULE: Module = Module::of::<ImageConf>("image_filter", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "image_filter",
        LOCATION,
        Args::T123,
        "off",
        "What to do with images: test, size, resize W H, crop W H, rotate 90|180|270.",
        image_filter,
    ),
    directive(
        "image_filter_buffer",
        HSL,
        Args::T1,
        "1m",
        "The maximum size of an image file in bytes, else 415.",
        |cx, n| value::set_size(&mut cx.loc::<ImageConf>().buffer, n),
    ),
    directive(
        "image_filter_max_pixels",
        HSL,
        Args::T1,
        "50000000",
        "The maximum number of pixels of an image, else 415.",
        |cx, n| value::set_num(&mut cx.loc::<ImageConf>().pixels_max, n),
    ),
    directive(
        "image_filter_interlace",
        HSL,
        Args::FLAG,
        "off",
        "Without effect (`on` gives a warning): images are written non-interlaced.",
        |cx, n| {
            value::set_flag(&mut cx.loc::<ImageConf>().interlace, n)?;
            if cx.loc::<ImageConf>().interlace == Some(true) {
                let m =
                    "images are written without interlacing: they look the same, but appear later";
                conf::warn(&n.name, m);
            }
            Ok(())
        },
    ),
    directive(
        "image_filter_jpeg_quality",
        HSL,
        Args::T1,
        "75",
        "The quality of transformed JPEG images, 1 to 100.",
        |cx, n| number(cx, n, 1, |conf| &mut conf.jpeg_quality),
    ),
    directive(
        "image_filter_webp_quality",
        HSL,
        Args::T1,
        "80",
        "The quality of transformed WebP images, 1 to 100: the precision of colours.",
        |cx, n| number(cx, n, 1, |conf| &mut conf.webp_quality),
    ),
    directive(
        "image_filter_sharpen",
        HSL,
        Args::T1,
        "0",
        "The sharpening of transformed images, in percent.",
        |cx, n| number(cx, n, 0, |conf| &mut conf.sharpen),
    ),
    directive(
        "image_filter_transparency",
        HSL,
        Args::FLAG,
        "on",
        "Keeps the transparency of palette images.",
        |cx, n| value::set_flag(&mut cx.loc::<ImageConf>().transparency, n),
    ),
];

const LOCATION: conf::table::Contexts = conf::table::Contexts::LOCATION;

/// A number, or a text that gives one.
#[derive(Clone)]
enum Number {
    Fixed(u32),
    Evaluated(Template),
}

impl Number {
    /// The number for a request; 0 if the value is not a number.
    fn of(&self, r: &mut Request) -> u32 {
        match self {
            Number::Fixed(n) => *n,
            Number::Evaluated(template) => parse(&r.eval(template)),
        }
    }
}

/// A positive number; `-` is as much as there may be, and all else nothing.
fn parse(text: &[u8]) -> u32 {
    match text {
        b"-" => u32::MAX,
        text => base::ascii::parse_u64(text).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
    }
}

/// The treatment of images.
#[derive(Clone)]
enum Treatment {
    Off,
    Test,
    Size,
    Resize(Number, Number),
    Crop(Number, Number),
    Rotate,
}

#[derive(Default)]
struct ImageConf {
    what: Option<Treatment>,
    /// `image_filter rotate`, by itself or beside `resize` and `crop`.
    angle: Option<Number>,
    buffer: Option<usize>,
    pixels_max: Option<u64>,
    interlace: Option<bool>,
    jpeg_quality: Option<Number>,
    webp_quality: Option<Number>,
    sharpen: Option<Number>,
    transparency: Option<bool>,
}

impl Conf for ImageConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.what.is_none() {
            self.what.clone_from(&prev.what);
            self.angle.clone_from(&prev.angle);
        }
        engine::inherit!(self, prev: buffer pixels_max interlace transparency);
        engine::inherit!(self, prev: jpeg_quality webp_quality sharpen);
        Ok(())
    }
}

/// Reads a number that is at least `least`, or a text with variables.
fn read(
    cx: &mut Cx,
    word: &Word,
    fits: impl Fn(u32) -> bool,
    what: &str,
) -> Result<Number, ConfError> {
    let template = cx.template(word)?;
    match template.as_const() {
        None => Ok(Number::Evaluated(template)),
        Some(text) if fits(parse(text)) => Ok(Number::Fixed(parse(text))),
        Some(_) => Err(ConfError::at(word, format!("invalid {what} \"{}\"", word.lossy()))),
    }
}

fn number(
    cx: &mut Cx,
    n: &Node,
    least: u32,
    field: fn(&mut ImageConf) -> &mut Option<Number>,
) -> Result<(), ConfError> {
    let number = read(cx, n.arg(0)?, |number| number >= least, "value")?;
    *field(cx.loc()) = Some(number);
    Ok(())
}

fn image_filter(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let what = match (word.bytes(), &n.args[1..]) {
        (b"off", []) => Treatment::Off,
        (b"test", []) => Treatment::Test,
        (b"size", []) => Treatment::Size,
        (b"rotate", [angle]) => {
            let angle = read(cx, angle, |a| matches!(a, 90 | 180 | 270), "parameter")?;
            let conf = cx.loc::<ImageConf>();
            conf.angle = Some(angle);
            match conf.what.take() {
                Some(what @ (Treatment::Resize(..) | Treatment::Crop(..))) => what,
                _ => Treatment::Rotate,
            }
        }
        (way @ (b"resize" | b"crop"), [width, height]) => {
            let width = read(cx, width, |n| n > 0, "parameter")?;
            let height = read(cx, height, |n| n > 0, "parameter")?;
            match way {
                b"crop" => Treatment::Crop(width, height),
                _ => Treatment::Resize(width, height),
            }
        }
        _ => {
            let m = format!("invalid parameter \"{}\"", word.lossy());
            return Err(ConfError::at(word, m));
        }
    };
    cx.loc::<ImageConf>().what = Some(what);
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<ImageConf>();
    let Some(what) = conf.what.clone().filter(|what| !matches!(what, Treatment::Off)) else {
        return Ok(());
    };
    let fixed = |number: &Option<Number>, default| number.clone().unwrap_or(Number::Fixed(default));
    let filter = Filter {
        what,
        angle: fixed(&conf.angle, 0),
        jpeg_quality: fixed(&conf.jpeg_quality, 75),
        webp_quality: fixed(&conf.webp_quality, 80),
        sharpen: fixed(&conf.sharpen, 0),
        transparency: conf.transparency.unwrap_or(true),
        buffer: conf.buffer.unwrap_or(1 << 20),
        pixels_max: conf.pixels_max.unwrap_or(50_000_000),
    };
    p.header_filters.push(Box::new(move |r: &mut Request| filter.header(r)));
    Ok(())
}

#[derive(Clone)]
struct Filter {
    what: Treatment,
    angle: Number,
    jpeg_quality: Number,
    webp_quality: Number,
    sharpen: Number,
    transparency: bool,
    buffer: usize,
    pixels_max: u64,
}

/// The response was refused already: the page that says so is no image, and is no fault.
#[derive(Default)]
struct Refused(bool);

impl Filter {
    fn header(&self, r: &mut Request) -> Verdict {
        // A redirect or an error is no image, and the client is to have it.
        let is_image = (200..300).contains(&r.status());
        if !is_image || r.ctx::<Refused>().is_some_and(|refused| refused.0) {
            return Verdict::Next;
        }
        let kind = r.out.content_type.as_deref().unwrap_or_default();
        if base::ascii::starts_with_ignore_case(kind, b"multipart/x-mixed-replace") {
            let m = format_args!("image filter: multipart/x-mixed-replace response");
            r.log(Level::Error, m);
            return self.refuse(r);
        }
        r.out.allow_ranges = false;
        r.out.remove(b"Accept-Ranges");
        r.out.remove(b"Refresh");
        let at_hand = matches!(&r.out.body, Body::Chain(chain) if !chain.is_empty());
        if r.target.method == Method::Head && !at_hand {
            // An upstream sends none: what it would be, and its length, is not known.
            r.out.content_length = None;
            if let Treatment::Size = self.what {
                r.out.content_type = Some(Bytes::from_static(JSON));
                r.out.charset = None;
            }
            return Verdict::Next;
        }
        r.out.whole = Some(Box::new(self.clone()));
        Verdict::Next
    }

    fn refuse(&self, r: &mut Request) -> Verdict {
        r.ctx_mut::<Refused>().0 = true;
        Verdict::Status(415)
    }

    /// The work that the request asks for; `None` where that makes no sense.
    fn wanted(&self, r: &mut Request) -> Option<Wanted> {
        let angle = self.angle.of(r);
        let mut size = |width: &Number, height: &Number| {
            let size = (width.of(r), height.of(r));
            (size.0 > 0 && size.1 > 0).then_some(size)
        };
        let shape = match &self.what {
            Treatment::Resize(width, height) => Shape::Resize(size(width, height)?),
            Treatment::Crop(width, height) => Shape::Crop(size(width, height)?),
            _ if matches!(angle, 90 | 180 | 270) => Shape::Whole,
            _ => return None,
        };
        Some(Wanted {
            shape,
            angle,
            sharpen: self.sharpen.of(r).min(100),
            transparency: self.transparency,
            jpeg_quality: self.jpeg_quality.of(r).min(100) as u8,
            webp_quality: self.webp_quality.of(r).min(100) as u8,
            pixels_max: self.pixels_max,
        })
    }

    async fn work(&self, r: &mut Request, body: Result<Vec<u8>, NotWhole>) -> Verdict {
        let image = match body {
            Ok(image) => image,
            Err(NotWhole::TooLong) => {
                r.log(Level::Error, format_args!("image filter: too big response"));
                return self.refuse(r);
            }
            Err(NotWhole::Broken) => return Verdict::Status(502),
        };
        let kind = Kind::of(&image);
        if let Treatment::Size = self.what {
            let found = kind.and_then(|kind| Some((kind, header::measure(kind, &image)?)));
            return json(r, found.map(|(kind, size)| (kind, size.width, size.height)));
        }
        let Some(kind) = kind else { return self.refuse(r) };
        r.out.content_type = Some(Bytes::from_static(kind.content_type().as_bytes()));
        if let Treatment::Test = self.what {
            return give(r, image);
        }
        let Some(wanted) = self.wanted(r) else { return self.refuse(r) };
        let size = header::measure(kind, &image);
        if size.as_ref().is_some_and(|size| wanted.is_met(size)) {
            return give(r, image);
        }
        if size.is_some_and(|s| u64::from(s.width) * u64::from(s.height) > self.pixels_max) {
            r.log(Level::Error, format_args!("image filter: too many pixels"));
            return self.refuse(r);
        }
        match event::pool::run_blocking(move || work::work(kind, image, &wanted)).await {
            Ok(Ok(work::Done::AsIs(image))) => give(r, image),
            Ok(Ok(work::Done::Changed(image))) => {
                r.out.weaken_etag();
                give(r, image)
            }
            Ok(Err(why)) => {
                r.log(Level::Error, format_args!("image filter: {why}"));
                self.refuse(r)
            }
            Err(why) => {
                r.log(Level::Error, format_args!("image filter: {why}"));
                Verdict::Status(500)
            }
        }
    }
}

impl WholeBody for Filter {
    fn bytes_max(&self) -> usize {
        self.buffer
    }

    fn run<'a>(
        self: Box<Self>,
        r: &'a mut Request,
        body: Result<Vec<u8>, NotWhole>,
    ) -> Pin<Box<dyn Future<Output = Verdict> + 'a>> {
        Box::pin(async move { self.work(r, body).await })
    }
}

fn give(r: &mut Request, body: Vec<u8>) -> Verdict {
    r.out.content_length = Some(body.len() as u64);
    let mut chain = mem::Chain::new();
    chain.push_bytes(Bytes::from(body));
    r.out.body = Body::Chain(chain);
    Verdict::Next
}

const JSON: &[u8] = b"application/json";

/// `image_filter size`
fn json(r: &mut Request, found: Option<(Kind, u32, u32)>) -> Verdict {
    let text = match found {
        Some((kind, width, height)) => {
            let kind = kind.name();
            format!(
                "{{ \"img\" : {{ \"width\": {width}, \"height\": {height}, \"type\": \"{kind}\" }} \
                 }}\r\n"
            )
        }
        None => "{}\r\n".to_owned(),
    };
    r.out.clear_entity();
    r.set_status(200);
    r.out.content_type = Some(Bytes::from_static(JSON));
    give(r, text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (text, want) in
            [("1", 1), ("-", u32::MAX), ("", 0), ("0", 0), ("-1", 0), ("x", 0), ("4294967296", 0)]
        {
            assert_eq!(parse(text.as_bytes()), want, "{text}");
        }
    }
}
