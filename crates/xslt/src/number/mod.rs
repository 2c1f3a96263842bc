//! Numbers as text: those of `xsl:number` and of `format-number()`.

mod decimal;
mod numbering;

pub(crate) use decimal::{DecimalFormat, format_number};
pub(crate) use numbering::{Grouping, format_numbers};

/// Decimal digits with a separator between groups, and with other digits for those of ASCII.
fn grouped(digits: &str, separator: Option<char>, size: usize, zero: char) -> String {
    let mut out = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.bytes().enumerate() {
        let left = digits.len() - at;
        if let Some(separator) = separator
            && size > 0
            && at > 0
            && left.is_multiple_of(size)
        {
            out.push(separator);
        }
        let value = u32::from(digit.wrapping_sub(b'0'));
        let other = u32::from(zero).checked_add(value).and_then(char::from_u32);
        out.push(other.unwrap_or(char::from(digit)));
    }
    out
}
