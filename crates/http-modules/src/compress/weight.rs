//! Weights of codings in `Accept-Encoding`.

use http::request::Request;
use http_wire::accept::{FULL, thousandths};
use http_wire::h1::FieldId;

use super::Coding;

/// The weight that the client gives to a coding: 0 where it does not take it.
pub fn of(r: &Request, coding: Coding) -> u16 {
    r.header(FieldId::AcceptEncoding).map_or(0, |accept| in_list(accept, coding.name().as_bytes()))
}

/// The weight of `name` in a list, in thousandths. What cannot be read counts as 0, and what is not
/// there too.
pub fn in_list(accept: &[u8], name: &[u8]) -> u16 {
    let Some(rest) = behind_name(accept, name) else { return 0 };
    let rest = trim_spaces(rest);
    match rest.first() {
        None | Some(b',') => FULL,
        Some(b';') => match trim_spaces(&rest[1..]) {
            [] => FULL,
            [b'q' | b'Q', b'=', weight @ ..] => {
                let end = weight.iter().position(|b| matches!(b, b',' | b' '));
                thousandths(&weight[..end.unwrap_or(weight.len())])
            }
            _ => 0,
        },
        Some(_) => 0,
    }
}

/// The text behind the first element of a list that begins with `name`.
fn behind_name<'a>(list: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut from = 0;
    loop {
        let at = list[from..].windows(name.len()).position(|w| w.eq_ignore_ascii_case(name))?;
        let at = from + at;
        from = at + name.len();
        if at == 0 || matches!(list[at - 1], b',' | b' ') {
            return Some(&list[from..]);
        }
    }
}

fn trim_spaces(text: &[u8]) -> &[u8] {
    let len = text.iter().take_while(|b| **b == b' ').count();
    &text[len..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_codings() {
        for (text, gzip, br) in [
            ("gzip", 1000, 0),
            ("GZIP", 1000, 0),
            ("deflate, gzip", 1000, 0),
            ("gzip, deflate, br", 1000, 1000),
            ("gzip;q=1", 1000, 0),
            ("gzip; q=0.001", 1, 0),
            ("gzip;q=1.000, br;q=1.", 1000, 1000),
            ("gzip ; Q=0.5, deflate, br ;q=0.25", 500, 250),
            ("x-gzip, gzip", 1000, 0),
            ("br;q=1.0,gzip;q=0.8", 800, 1000),
            ("gzip;q=0.5 , br", 500, 1000),
            ("gzip;", 1000, 0),
            ("brotli, sbr, br", 0, 0),
            ("sbr, br", 0, 1000),
            ("", 0, 0),
            ("gz", 0, 0),
            ("b", 0, 0),
            ("x-gzip", 0, 0),
            ("gzipx", 0, 0),
            ("*", 0, 0),
            ("gzip;q=0", 0, 0),
            ("gzip;q=0.000", 0, 0),
            ("gzip; q=0.0", 0, 0),
            ("gzip;q=2", 0, 0),
            ("gzip;q=1.001", 0, 0),
            ("gzip;q=0.0001", 0, 0),
            ("gzip;q=", 0, 0),
            ("gzip;q=0.x", 0, 0),
            ("gzip;v=1", 0, 0),
            ("gzip=1", 0, 0),
        ] {
            let of = |name: &[u8]| in_list(text.as_bytes(), name);
            assert_eq!((of(b"gzip"), of(b"br")), (gzip, br), "{text}");
        }
    }
}
