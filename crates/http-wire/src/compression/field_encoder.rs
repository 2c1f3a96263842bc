//! The encoders of HPACK and QPACK, as a writer of heads sees them.

use crate::{h2::hpack, qpack};

/// Writes the fields of a header block of HTTP/2, or of a field section of HTTP/3.
pub trait FieldEncoder {
    /// Begins a block or section.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Writes `:status`; `code` has three digits.
    fn status(&mut self, code: u16, out: &mut Vec<u8>);

    /// Writes a field. `name` may have any case; `value` is written as it is.
    fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>);
}

macro_rules! encoder {
    ($encoder:ty) => {
        impl FieldEncoder for $encoder {
            #[inline]
            fn begin(&mut self, out: &mut Vec<u8>) {
                self.begin(out);
            }

            #[inline]
            fn status(&mut self, code: u16, out: &mut Vec<u8>) {
                self.status(code, out);
            }

            #[inline]
            fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
                self.field(name, value, out);
            }
        }
    };
}

encoder!(hpack::Encoder);
encoder!(qpack::Encoder);
