//! <https://exslt.org/math/>: numbers, and the least and greatest among nodes.

use std::hash::{BuildHasher, RandomState};

use super::function;
use crate::error::Result;
use crate::value::{N, Value, text_number};
use crate::xpath::functions::nodes;
use crate::xpath::{Cx, Function};

const MATH: &str = "http://exslt.org/math";

pub(super) static FUNCTIONS: &[Function] = &[
    function(MATH, "min", (1, 1), |cx, args| extreme(cx, args, Extreme::Least)),
    function(MATH, "max", (1, 1), |cx, args| extreme(cx, args, Extreme::Greatest)),
    function(MATH, "lowest", (1, 1), |cx, args| those_at(cx, args, Extreme::Least)),
    function(MATH, "highest", (1, 1), |cx, args| those_at(cx, args, Extreme::Greatest)),
    function(MATH, "abs", (1, 1), |cx, args| one(cx, args, f64::abs)),
    function(MATH, "sqrt", (1, 1), |cx, args| one(cx, args, f64::sqrt)),
    function(MATH, "log", (1, 1), |cx, args| one(cx, args, f64::ln)),
    function(MATH, "sin", (1, 1), |cx, args| one(cx, args, f64::sin)),
    function(MATH, "cos", (1, 1), |cx, args| one(cx, args, f64::cos)),
    function(MATH, "tan", (1, 1), |cx, args| one(cx, args, f64::tan)),
    function(MATH, "asin", (1, 1), |cx, args| one(cx, args, f64::asin)),
    function(MATH, "acos", (1, 1), |cx, args| one(cx, args, f64::acos)),
    function(MATH, "atan", (1, 1), |cx, args| one(cx, args, f64::atan)),
    function(MATH, "exp", (1, 1), |cx, args| one(cx, args, f64::exp)),
    function(MATH, "power", (2, 2), |cx, args| two(cx, args, power)),
    function(MATH, "atan2", (2, 2), |cx, args| two(cx, args, f64::atan2)),
    function(MATH, "constant", (2, 2), |cx, args| {
        Ok(Value::Number(constant(&cx.text_of(&args[0]), cx.number_of(&args[1]))))
    }),
    function(MATH, "random", (0, 0), |_, _| Ok(Value::Number(random()))),
];

fn one(cx: &Cx, args: &[Value], of: impl Fn(f64) -> f64) -> Result<Value> {
    Ok(Value::Number(of(cx.number_of(&args[0]))))
}

fn two(cx: &Cx, args: &[Value], of: impl Fn(f64, f64) -> f64) -> Result<Value> {
    Ok(Value::Number(of(cx.number_of(&args[0]), cx.number_of(&args[1]))))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extreme {
    Least,
    Greatest,
}

impl Extreme {
    /// The least or greatest number; NaN where there is none, or where one is NaN.
    fn of(self, numbers: &[f64]) -> f64 {
        let better = |best: f64, number: f64| match self {
            _ if number.is_nan() || best.is_nan() => f64::NAN,
            Extreme::Least => best.min(number),
            Extreme::Greatest => best.max(number),
        };
        numbers.iter().copied().reduce(better).unwrap_or(f64::NAN)
    }
}

fn numbers(cx: &Cx, nodes: &[N]) -> Vec<f64> {
    nodes.iter().map(|n| text_number(&cx.run.docs.value(*n))).collect()
}

fn extreme(cx: &Cx, args: &[Value], extreme: Extreme) -> Result<Value> {
    Ok(Value::Number(extreme.of(&numbers(cx, &nodes(cx, &args[0])?))))
}

/// The nodes whose number is the least or greatest one.
fn those_at(cx: &Cx, args: &[Value], extreme: Extreme) -> Result<Value> {
    let all = nodes(cx, &args[0])?;
    let numbers = numbers(cx, &all);
    let best = extreme.of(&numbers);
    let those = all.iter().zip(numbers).filter(|(_, number)| *number == best);
    Ok(Value::nodes(those.map(|(n, _)| *n).collect()))
}

/// C's `pow()` has numbers where EXSLT says that what is made of NaN is NaN.
fn power(base: f64, exponent: f64) -> f64 {
    if base.is_nan() || exponent.is_nan() { f64::NAN } else { base.powf(exponent) }
}

/// A constant, cut off (not rounded) after so many characters, of which the point is one; NaN for
/// an unknown name. `SQRRT2` is what the specification writes.
fn constant(name: &str, characters: f64) -> f64 {
    let digits = match name {
        "PI" => "3.14159265358979323846264338327950288",
        "E" => "2.71828182845904523536028747135266250",
        "SQRRT2" => "1.41421356237309504880168872420969808",
        "LN2" => "0.69314718055994530941723212145817657",
        "LN10" => "2.30258509299404568401799145468436421",
        "LOG2E" => "1.44269504088896340735992468100189214",
        "SQRT1_2" => "0.70710678118654752440084436210484904",
        _ => return f64::NAN,
    };
    // What is below 1, or NaN, leaves nothing.
    let length = (characters.max(0.0) as usize).min(digits.len());
    digits[..length].parse().unwrap_or(f64::NAN)
}

/// A number from 0 up to, but not including, 1.
fn random() -> f64 {
    // Each state has keys of its own, the first of them from the system.
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_same(got: f64, want: f64, what: &str) {
        assert!(got == want || got.is_nan() && want.is_nan(), "{what}: {got}, not {want}");
    }

    #[test]
    fn extremes() {
        for (numbers, least, greatest) in [
            (&[1.0, 5.0, -3.0, 5.0][..], -3.0, 5.0),
            (&[7.0], 7.0, 7.0),
            (&[], f64::NAN, f64::NAN),
            (&[1.0, f64::NAN, 2.0], f64::NAN, f64::NAN),
            (&[f64::NAN, 2.0], f64::NAN, f64::NAN),
            (&[f64::NEG_INFINITY, 2.0], f64::NEG_INFINITY, 2.0),
        ] {
            assert_same(Extreme::Least.of(numbers), least, &format!("{numbers:?}"));
            assert_same(Extreme::Greatest.of(numbers), greatest, &format!("{numbers:?}"));
        }
    }

    #[test]
    fn constants() {
        for (name, characters, want) in [
            ("PI", 10.0, "3.14159265"),
            ("PI", 1.0, "3"),
            ("PI", 2.0, "3"),
            ("PI", 3.7, "3.1"),
            ("PI", 0.0, "NaN"),
            ("PI", -1.0, "NaN"),
            ("PI", f64::NAN, "NaN"),
            ("E", 5.0, "2.718"),
            ("SQRRT2", 5.0, "1.414"),
            ("LN2", 5.0, "0.693"),
            ("LN2", 1.0, "0"),
            ("LN10", 5.0, "2.302"),
            ("LOG2E", 5.0, "1.442"),
            ("SQRT1_2", 5.0, "0.707"),
            ("SQRT2", 5.0, "NaN"),
            ("pi", 5.0, "NaN"),
        ] {
            assert_eq!(constant(name, characters).to_string(), want, "{name} {characters}");
        }
        for (name, want) in [
            ("PI", std::f64::consts::PI),
            ("E", std::f64::consts::E),
            ("SQRRT2", std::f64::consts::SQRT_2),
            ("LN2", std::f64::consts::LN_2),
            ("LN10", std::f64::consts::LN_10),
            ("LOG2E", std::f64::consts::LOG2_E),
            ("SQRT1_2", std::f64::consts::FRAC_1_SQRT_2),
        ] {
            for characters in [100.0, f64::INFINITY] {
                assert_same(constant(name, characters), want, name);
            }
        }
    }

    #[test]
    fn powers() {
        for (base, exponent, want) in [
            (2.0, 10.0, 1024.0),
            (-2.0, 0.5, f64::NAN),
            (0.0, 0.0, 1.0),
            (f64::NAN, 0.0, f64::NAN),
            (1.0, f64::NAN, f64::NAN),
        ] {
            assert_same(power(base, exponent), want, &format!("{base} {exponent}"));
        }
    }

    #[test]
    fn random_numbers_differ() {
        let all: Vec<f64> = (0..1000).map(|_| random()).collect();
        assert!(all.iter().all(|number| (0.0..1.0).contains(number)));
        assert!(all.windows(2).all(|two| two[0] != two[1]));
        let mean = all.iter().sum::<f64>() / 1000.0;
        assert!((0.4..0.6).contains(&mean), "{mean}");
    }
}
