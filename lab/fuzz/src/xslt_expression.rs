//! Expressions of parameters of stylesheets, which may hold what a client sent.

use xslt::fuzzing::values;

/// The memory for a document and the values, in bytes.
const BYTES_MAX: usize = 1 << 20;

/// An evaluation goes as deep as its bounds allow: more than the stack of the main thread has.
const STACK_BYTES: usize = 1 << 30;

const DOCUMENT: &[u8] =
    b"<r xmlns:p='urn:p' xml:lang='en'><a n='1'>one<b>x</b></a><a n='2'>two<b>y\
    </b><b id='z'>z</b></a><c>2026-01-31T23:59:59Z</c><!--note--><?pi data?><p:d>-1.5</p:d></r>";

/// An expression: it is one in parentheses as well, each of its nodes is counted once, and it is
/// true or not.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Predicates in predicates take as long as they like.
    if text.len() > 300 || text.matches('[').count() > 3 {
        return;
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, || check(text)).expect("a thread").join().expect("no panic");
    });
}

fn check(text: &str) {
    // No prefix is known, and with it no function that reads the clock or makes random numbers.
    let Ok(found) = values(&[text], DOCUMENT, BYTES_MAX) else { return };
    let others = [
        format!("({text})"),
        format!("boolean({text}) = not(not({text}))"),
        format!("string({text})"),
    ];
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let Ok(others) = values(&others, DOCUMENT, BYTES_MAX) else { return };
    assert_eq!(others, [&*found[0], "true", &*found[0]], "{text}");
    let union = [format!("count({text})"), format!("count(({text}) | ({text}))")];
    if let Ok(counts) = values(&[&union[0], &union[1]], DOCUMENT, BYTES_MAX) {
        assert_eq!(counts[0], counts[1], "{text}");
    }
}
