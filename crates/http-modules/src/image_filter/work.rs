//! Decoding, changing and encoding; done in a thread.

use std::io::Cursor;

use image::codecs::{gif, jpeg, png, webp};
use image::imageops::{self, FilterType};
use image::{DynamicImage, ExtendedColorType, Frame, ImageEncoder, ImageFormat, ImageReader};
use image::{ImageError, Limits, RgbaImage};

use super::header::{Kind, Size};

/// The way in which an image is fitted to its size.
#[derive(Clone, Copy)]
pub enum Shape {
    /// Not at all.
    Whole,
    /// Into a box of that width and height, as a whole.
    Resize((u32, u32)),
    /// So that it fills the box; what hangs over is cut off.
    Crop((u32, u32)),
}

/// The work to do on an image.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub shape: Shape,
    /// Degrees against the clock; 0 is none.
    pub angle: u32,
    /// Percent.
    pub sharpen: u32,
    pub transparency: bool,
    pub jpeg_quality: u8,
    pub webp_quality: u8,
    pub pixels_max: u64,
}

/// The result of the work.
pub enum Done {
    /// Nothing was to do.
    AsIs(Vec<u8>),
    /// A new image of the same kind.
    Changed(Vec<u8>),
}

impl Wanted {
    /// Whether an image is as it is wanted.
    pub fn is_met(&self, size: &Size) -> bool {
        match self.shape {
            Shape::Whole => false,
            Shape::Resize((width, height)) | Shape::Crop((width, height)) => {
                let fits = size.width <= width && size.height <= height;
                fits && self.angle == 0 && !size.padded
            }
        }
    }
}

/// Does it.
pub fn work(kind: Kind, bytes: Vec<u8>, wanted: &Wanted) -> Result<Done, ImageError> {
    let decoded = decode(kind, &bytes, wanted.pixels_max)?;
    let has_palette = kind == Kind::Gif;
    let mut image = decoded.into_rgba8();
    let (width, height) = image.dimensions();
    // The header may have told less than there is.
    if wanted.is_met(&Size { width, height, padded: kind == Kind::Jpeg }) {
        return Ok(Done::AsIs(bytes));
    }
    drop(bytes);
    if has_palette && !wanted.transparency {
        image.pixels_mut().for_each(|pixel| pixel.0[3] = 255);
    }
    image = scaled(image, wanted.shape);
    image = match wanted.angle {
        90 => imageops::rotate270(&image),
        180 => imageops::rotate180(&image),
        270 => imageops::rotate90(&image),
        _ => image,
    };
    if let Shape::Crop((width, height)) = wanted.shape {
        image = cut(image, width, height);
    }
    if wanted.sharpen > 0 {
        image = sharpened(&image, wanted.sharpen);
    }
    encode(kind, image, wanted).map(Done::Changed)
}

fn decode(kind: Kind, bytes: &[u8], pixels_max: u64) -> Result<DynamicImage, ImageError> {
    let format = match kind {
        Kind::Jpeg => ImageFormat::Jpeg,
        Kind::Gif => ImageFormat::Gif,
        Kind::Png => ImageFormat::Png,
        Kind::WebP => ImageFormat::WebP,
    };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    let side = u32::try_from(pixels_max).unwrap_or(u32::MAX);
    (limits.max_image_width, limits.max_image_height) = (Some(side), Some(side));
    // Sixteen bits for each of four colours is the most that a pixel takes, and decoders want
    // about as much for themselves.
    limits.max_alloc = Some(pixels_max.saturating_mul(16).max(1 << 20));
    reader.limits(limits);
    reader.decode()
}

/// An image's size once it is no longer than `most` in one direction; the other one follows.
fn follow(length: u32, other: u32, most: u32) -> (u32, u32) {
    let other = u64::from(other) * u64::from(most) / u64::from(length.max(1));
    (most, (other as u32).max(1))
}

/// The size that an image is scaled to.
fn size_for((width, height): (u32, u32), shape: Shape) -> (u32, u32) {
    let (mut w, mut h) = (width, height);
    match shape {
        Shape::Whole => {}
        Shape::Resize((width_max, height_max)) => {
            if w > width_max {
                (w, h) = follow(w, h, width_max);
            }
            if h > height_max {
                (h, w) = follow(h, w, height_max);
            }
        }
        Shape::Crop((width_max, height_max)) => {
            let narrow = u64::from(w) * u64::from(height_max) < u64::from(h) * u64::from(width_max);
            if narrow && w > width_max {
                (w, h) = follow(w, h, width_max);
            } else if !narrow && h > height_max {
                (h, w) = follow(h, w, height_max);
            }
        }
    }
    (w, h)
}

fn scaled(image: RgbaImage, shape: Shape) -> RgbaImage {
    let (width, height) = size_for(image.dimensions(), shape);
    if (width, height) == image.dimensions() {
        return image;
    }
    imageops::resize(&image, width, height, FilterType::Triangle)
}

/// Cuts off what hangs over, half of it on either side.
fn cut(image: RgbaImage, width_max: u32, height_max: u32) -> RgbaImage {
    let (width, height) = image.dimensions();
    let (left, top) = (width.saturating_sub(width_max), height.saturating_sub(height_max));
    if left == 0 && top == 0 {
        return image;
    }
    imageops::crop_imm(&image, left / 2, top / 2, width - left, height - top).to_image()
}

/// Takes from each pixel what its neighbours have, and gives it more of its own.
fn sharpened(image: &RgbaImage, percent: u32) -> RgbaImage {
    let share = percent as f32 / 400.0;
    let (width, height) = image.dimensions();
    RgbaImage::from_fn(width, height, |x, y| {
        let mut pixel = *image.get_pixel(x, y);
        let beside = [
            (x.saturating_sub(1), y),
            ((x + 1).min(width - 1), y),
            (x, y.saturating_sub(1)),
            (x, (y + 1).min(height - 1)),
        ];
        for colour in 0..3 {
            let own = f32::from(pixel.0[colour]);
            let others: f32 =
                beside.iter().map(|(x, y)| f32::from(image.get_pixel(*x, *y).0[colour])).sum();
            pixel.0[colour] = (own + share * (4.0 * own - others)).clamp(0.0, 255.0) as u8;
        }
        pixel
    })
}

fn encode(kind: Kind, mut image: RgbaImage, wanted: &Wanted) -> Result<Vec<u8>, ImageError> {
    let (width, height) = image.dimensions();
    let mut out = Vec::new();
    match kind {
        Kind::Jpeg => {
            let rgb = DynamicImage::ImageRgba8(image).into_rgb8();
            let encoder = jpeg::JpegEncoder::new_with_quality(&mut out, wanted.jpeg_quality);
            encoder.write_image(&rgb, width, height, ExtendedColorType::Rgb8)?;
        }
        Kind::Png => {
            let encoder = png::PngEncoder::new(&mut out);
            // An opaque image needs no alpha channel.
            if image.pixels().all(|pixel| pixel.0[3] == 255) {
                let rgb = DynamicImage::ImageRgba8(image).into_rgb8();
                encoder.write_image(&rgb, width, height, ExtendedColorType::Rgb8)?;
            } else {
                encoder.write_image(&image, width, height, ExtendedColorType::Rgba8)?;
            }
        }
        Kind::Gif => {
            gif::GifEncoder::new_with_speed(&mut out, 10).encode_frame(Frame::new(image))?;
        }
        Kind::WebP => {
            rounded(&mut image, wanted.webp_quality);
            let encoder = webp::WebPEncoder::new_lossless(&mut out);
            encoder.write_image(&image, width, height, ExtendedColorType::Rgba8)?;
        }
    }
    Ok(out)
}

/// The encoder of WebP loses nothing, so quality is lost before it: colours are told apart by fewer
/// bits the lower it is.
fn rounded(image: &mut RgbaImage, quality: u8) {
    let bits = (100 - quality.min(100)).div_ceil(20).min(4);
    let half = (1u8 << bits) / 2;
    for pixel in image.pixels_mut() {
        for colour in &mut pixel.0[..3] {
            *colour = colour.saturating_add(half) >> bits << bits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::Rgba;

    fn wanted(shape: Shape, angle: u32) -> Wanted {
        Wanted {
            shape,
            angle,
            sharpen: 0,
            transparency: true,
            jpeg_quality: 75,
            webp_quality: 80,
            pixels_max: 1_000_000,
        }
    }

    /// An image with one red corner, above on the left.
    fn image(kind: Kind, width: u32, height: u32) -> Vec<u8> {
        let red = |x, y| x < width / 2 && y < height / 2;
        let image = RgbaImage::from_fn(width, height, |x, y| {
            if red(x, y) { Rgba([255, 0, 0, 255]) } else { Rgba([0, 0, 255, 255]) }
        });
        encode(kind, image, &wanted(Shape::Whole, 0)).unwrap()
    }

    fn changed(kind: Kind, bytes: &[u8], wanted: &Wanted) -> RgbaImage {
        match work(kind, bytes.to_vec(), wanted).unwrap() {
            Done::Changed(bytes) => {
                assert_eq!(Kind::of(&bytes), Some(kind));
                decode(kind, &bytes, 1_000_000).unwrap().into_rgba8()
            }
            Done::AsIs(_) => panic!("nothing was done"),
        }
    }

    fn is_red(image: &RgbaImage, x: u32, y: u32) -> bool {
        let [red, _, blue, _] = image.get_pixel(x, y).0;
        red > 180 && blue < 80
    }

    const KINDS: [Kind; 4] = [Kind::Jpeg, Kind::Gif, Kind::Png, Kind::WebP];

    #[test]
    fn sizes() {
        for (from, shape, want) in [
            ((100, 50), Shape::Resize((50, 50)), (50, 25)),
            ((100, 50), Shape::Resize((u32::MAX, 10)), (20, 10)),
            ((100, 1), Shape::Resize((10, 10)), (10, 1)),
            ((10, 10), Shape::Resize((50, 50)), (10, 10)),
            ((100, 50), Shape::Crop((50, 50)), (100, 50)),
            ((100, 50), Shape::Crop((20, 20)), (40, 20)),
            ((50, 100), Shape::Crop((20, 20)), (20, 40)),
            ((100, 50), Shape::Whole, (100, 50)),
        ] {
            assert_eq!(size_for(from, shape), want);
        }
    }

    #[test]
    fn every_kind_is_scaled_cut_and_turned() {
        for kind in KINDS {
            let bytes = image(kind, 80, 40);
            let small = changed(kind, &bytes, &wanted(Shape::Resize((20, 20)), 0));
            assert_eq!(small.dimensions(), (20, 10), "{kind:?}");
            assert!(is_red(&small, 1, 1) && !is_red(&small, 18, 8), "{kind:?}");
            let cut = changed(kind, &bytes, &wanted(Shape::Crop((20, 20)), 0));
            assert_eq!(cut.dimensions(), (20, 20), "{kind:?}");
            // A quarter turn against the clock: what was above on the left is below on the left.
            let turned = changed(kind, &bytes, &wanted(Shape::Whole, 90));
            assert_eq!(turned.dimensions(), (40, 80), "{kind:?}");
            assert!(is_red(&turned, 2, 77) && !is_red(&turned, 2, 2), "{kind:?}");
            let turned = changed(kind, &bytes, &wanted(Shape::Whole, 180));
            assert!(is_red(&turned, 77, 37), "{kind:?}");
            let turned = changed(kind, &bytes, &wanted(Shape::Whole, 270));
            assert!(is_red(&turned, 37, 2), "{kind:?}");
            let same = work(kind, bytes.clone(), &wanted(Shape::Resize((80, 40)), 0)).unwrap();
            assert!(matches!(same, Done::AsIs(_)) || kind == Kind::Jpeg, "{kind:?}");
        }
    }

    #[test]
    fn quality_and_sharpness_make_a_difference() {
        let noise = RgbaImage::from_fn(64, 64, |x, y| {
            let n = (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(2_246_822_519)) >> 13;
            let of = |shift: u32| (x + y + (n >> shift & 7)) as u8;
            Rgba([of(0), of(5), of(9), 255])
        });
        let len = |kind, jpeg_quality, webp_quality| {
            let wanted = Wanted { jpeg_quality, webp_quality, ..wanted(Shape::Whole, 0) };
            encode(kind, noise.clone(), &wanted).unwrap().len()
        };
        assert!(len(Kind::Jpeg, 20, 80) < len(Kind::Jpeg, 90, 80));
        assert!(len(Kind::WebP, 75, 20) < len(Kind::WebP, 75, 100));
        assert_ne!(sharpened(&noise, 80), noise);
        let flat = RgbaImage::from_pixel(8, 8, Rgba([9, 99, 199, 255]));
        assert_eq!(sharpened(&flat, 100), flat);
    }

    #[test]
    fn bombs_and_rubbish() {
        for kind in KINDS {
            let bytes = image(kind, 200, 200);
            let few = Wanted { pixels_max: 100, ..wanted(Shape::Resize((10, 10)), 0) };
            assert!(work(kind, bytes.clone(), &few).is_err(), "{kind:?}");
            let cut = bytes[..bytes.len() / 2].to_vec();
            // Half an image may be shown or refused, but not more.
            let _ = work(kind, cut, &wanted(Shape::Resize((10, 10)), 0));
            let rubbish = [&bytes[..20], &[0x5a; 400][..]].concat();
            assert!(work(kind, rubbish, &wanted(Shape::Resize((10, 10)), 0)).is_err());
        }
    }
}
