//! `Accept`.

use http_wire::accept::weight;

/// A weight is in its limits; the order of elements means nothing; an element of another type
/// changes nothing, and a full one is the greatest.
pub fn run(data: &[u8]) {
    let of = |accept: &[u8]| weight(accept, b"text/plain", &[("version", "1")]);
    let found = of(data);
    assert!(found <= 1000);
    let mut elements: Vec<&[u8]> = data.split(|b| *b == b',').collect();
    elements.reverse();
    assert_eq!(of(&elements.join(&b',')), found, "another order");
    let separate = elements.iter().map(|element| of(element)).max();
    assert_eq!(separate, Some(found), "each on its own");
    assert_eq!(of(&[data, b",text/html"].concat()), found);
    assert_eq!(of(&[data, b",text/plain"].concat()), 1000);
    assert_eq!(weight(&data.to_ascii_uppercase(), b"TEXT/PLAIN", &[("version", "1")]), found);
}
