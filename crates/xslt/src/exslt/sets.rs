//! <https://exslt.org/set/>: sets of nodes.

use std::collections::HashSet;

use super::function;
use crate::error::Result;
use crate::value::{N, Value};
use crate::xpath::functions::nodes;
use crate::xpath::{Cx, Function};

const SETS: &str = "http://exslt.org/sets";

pub(super) static FUNCTIONS: &[Function] = &[
    function(SETS, "difference", (2, 2), |cx, args| two(cx, args, |a, b| shared(a, b, false))),
    function(SETS, "intersection", (2, 2), |cx, args| two(cx, args, |a, b| shared(a, b, true))),
    function(SETS, "leading", (2, 2), |cx, args| two(cx, args, |a, b| leading(a, b).to_vec())),
    function(SETS, "trailing", (2, 2), |cx, args| two(cx, args, |a, b| trailing(a, b).to_vec())),
    function(SETS, "has-same-node", (2, 2), |cx, args| {
        let (some, others) = (nodes(cx, &args[0])?, nodes(cx, &args[1])?);
        Ok(Value::Bool(!shared(&some, &others, true).is_empty()))
    }),
    function(SETS, "distinct", (1, 1), distinct),
];

fn two(cx: &Cx, args: &[Value], of: impl Fn(&[N], &[N]) -> Vec<N>) -> Result<Value> {
    let (some, others) = (nodes(cx, &args[0])?, nodes(cx, &args[1])?);
    Ok(Value::nodes(of(&some, &others)))
}

/// Those of a sorted list that another one has, or has not.
fn shared(some: &[N], others: &[N], are_in: bool) -> Vec<N> {
    let mut others = others.iter().peekable();
    let mut kept = Vec::new();
    for n in some {
        while others.next_if(|other| *other < n).is_some() {}
        if (others.peek() == Some(&n)) == are_in {
            kept.push(*n);
        }
    }
    kept
}

/// The nodes before the first one of another list: all where that is empty, none where the first
/// one is not among them.
fn leading<'a>(some: &'a [N], others: &[N]) -> &'a [N] {
    let Some(first) = others.first() else { return some };
    some.binary_search(first).map_or(&[], |at| &some[..at])
}

/// The nodes behind the first one of another list; see [`leading`].
fn trailing<'a>(some: &'a [N], others: &[N]) -> &'a [N] {
    let Some(first) = others.first() else { return some };
    some.binary_search(first).map_or(&[], |at| &some[at + 1..])
}

/// The first node of each string-value.
fn distinct(cx: &Cx, args: &[Value]) -> Result<Value> {
    let all = nodes(cx, &args[0])?;
    let mut seen = HashSet::new();
    let first = all.iter().copied().filter(|n| seen.insert(cx.run.docs.value(*n)));
    Ok(Value::nodes(first.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: &[u32]) -> Vec<N> {
        ids.iter().map(|id| N { doc: id / 10, id: id % 10 }).collect()
    }

    #[test]
    fn sets_of_two() {
        type Ids = &'static [u32];
        // The lists, then: difference, intersection, leading, trailing.
        let cases: &[[Ids; 6]] = &[
            [&[], &[], &[], &[], &[], &[]],
            [&[], &[1], &[], &[], &[], &[]],
            [&[1, 2, 3, 4], &[], &[1, 2, 3, 4], &[], &[1, 2, 3, 4], &[1, 2, 3, 4]],
            [&[1, 2, 3, 4], &[3], &[1, 2, 4], &[3], &[1, 2], &[4]],
            [&[1, 2, 3, 4], &[2, 3], &[1, 4], &[2, 3], &[1], &[3, 4]],
            [&[1, 2, 3, 4], &[0, 3], &[1, 2, 4], &[3], &[], &[]],
            [&[1, 2, 3, 4], &[3, 17], &[1, 2, 4], &[3], &[1, 2], &[4]],
            [&[1, 12, 23], &[12, 21], &[1, 23], &[12], &[1], &[23]],
            [&[1, 2], &[5, 6], &[1, 2], &[], &[], &[]],
        ];
        for [some, others, difference, intersection, before, behind] in cases {
            let (some, others) = (list(some), list(others));
            assert_eq!(shared(&some, &others, false), list(difference), "{some:?} {others:?}");
            assert_eq!(shared(&some, &others, true), list(intersection), "{some:?} {others:?}");
            assert_eq!(leading(&some, &others), list(before), "{some:?} {others:?}");
            assert_eq!(trailing(&some, &others), list(behind), "{some:?} {others:?}");
        }
    }
}
