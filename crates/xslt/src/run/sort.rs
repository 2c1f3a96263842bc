//! `xsl:sort` (XSLT, section 10).

use std::cmp::Ordering;
use std::rc::Rc;

use super::Run;
use super::exec::{Focus, Frame};
use crate::error::{Error, Result};
use crate::sheet::{Avt, Sort};
use crate::value::{N, text_number};
use crate::xpath::Cx;

/// How the keys of a sort compare.
struct Way {
    descending: bool,
    numbers: bool,
    case: Case,
}

/// What letters of either case are.
#[derive(Clone, Copy, PartialEq)]
enum Case {
    /// Different letters, in the order of their code points.
    Apart,
    /// The same, but for keys that are the same otherwise.
    UpperFirst,
    LowerFirst,
}

enum Key {
    Number(f64),
    Text(Rc<str>),
    /// The text without its case, and the text.
    Folded(String, Rc<str>),
}

impl Way {
    fn key(&self, text: Rc<str>) -> Key {
        match self.case {
            _ if self.numbers => Key::Number(text_number(&text)),
            Case::Apart => Key::Text(text),
            _ => Key::Folded(text.to_lowercase(), text),
        }
    }

    fn compare(&self, a: &Key, b: &Key) -> Ordering {
        let order = match (a, b) {
            // What is no number comes before all that are.
            (Key::Number(a), Key::Number(b)) => {
                a.partial_cmp(b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
            }
            (Key::Text(a), Key::Text(b)) => a.cmp(b),
            (Key::Folded(a, of_a), Key::Folded(b, of_b)) => a.cmp(b).then_with(|| {
                // In ASCII, upper case comes first.
                let order = of_a.cmp(of_b);
                if self.case == Case::LowerFirst { order.reverse() } else { order }
            }),
            _ => Ordering::Equal,
        };
        if self.descending { order.reverse() } else { order }
    }
}

fn text(avt: Option<&Avt>, cx: &Cx) -> Result<Option<Rc<str>>> {
    avt.map(|avt| avt.eval(cx)).transpose()
}

fn way(sort: &Sort, cx: &Cx) -> Result<Way> {
    let unknown = |what: &str, value: &str| Error::new(format!("unknown {what} \"{value}\""));
    let descending = match text(sort.order.as_ref(), cx)?.as_deref() {
        None | Some("ascending") => false,
        Some("descending") => true,
        Some(other) => return Err(unknown("order", other)),
    };
    let numbers = match text(sort.data_type.as_ref(), cx)?.as_deref() {
        None | Some("text") => false,
        Some("number") => true,
        Some(other) => return Err(unknown("data-type", other)),
    };
    let case = match text(sort.case_order.as_ref(), cx)?.as_deref() {
        Some("upper-first") => Case::UpperFirst,
        Some("lower-first") => Case::LowerFirst,
        Some(other) => return Err(unknown("case-order", other)),
        // With a language, words that differ in case alone stand together.
        None if sort.lang.is_some() => Case::LowerFirst,
        None => Case::Apart,
    };
    Ok(Way { descending, numbers, case })
}

impl Run<'_> {
    /// Nodes in the order that sorts ask for.
    pub(super) fn sorted(
        &self,
        nodes: Rc<Vec<N>>,
        sorts: &[Sort],
        frame: &Frame,
        focus: Focus,
    ) -> Result<Rc<Vec<N>>> {
        if sorts.is_empty() || nodes.len() < 2 {
            return Ok(nodes);
        }
        let cx = self.cx(frame, focus);
        let ways: Vec<Way> = sorts.iter().map(|sort| way(sort, &cx)).collect::<Result<_>>()?;
        let mut keyed: Vec<(Vec<Key>, N)> = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            let at_node =
                Cx { node: *node, current: *node, position: at + 1, size: nodes.len(), ..cx };
            let mut keys = Vec::with_capacity(sorts.len());
            for (sort, way) in sorts.iter().zip(&ways) {
                let text = match &sort.select {
                    Some(select) => select.text(&at_node)?,
                    None => Rc::from(&*self.docs.value(*node)),
                };
                keys.push(way.key(text));
            }
            keyed.push((keys, *node));
        }
        keyed.sort_by(|(a, _), (b, _)| {
            let orders = ways.iter().zip(a.iter().zip(b)).map(|(way, (a, b))| way.compare(a, b));
            orders.fold(Ordering::Equal, Ordering::then)
        });
        Ok(Rc::new(keyed.into_iter().map(|(_, node)| node).collect()))
    }
}
