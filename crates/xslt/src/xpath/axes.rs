//! The nodes of axes.

use super::{Axis, Test};
use crate::atoms::Atom;
use crate::tree::{Doc, Id, Kind, NONE, ROOT};

/// Gives each node of an axis to `visit`, in the order of the axis, until that is `false`.
pub(super) fn walk(doc: &Doc, from: Id, axis: Axis, visit: &mut dyn FnMut(Id) -> bool) {
    let node = doc.node(from);
    match axis {
        Axis::SelfNode => {
            visit(from);
        }
        Axis::Parent => {
            if node.parent != NONE {
                visit(node.parent);
            }
        }
        Axis::Child => all(doc.children(from), visit),
        Axis::Attribute if node.kind == Kind::Element => all(doc.attributes(from), visit),
        Axis::Namespace if node.kind == Kind::Element => {
            all(doc.declared(ROOT).chain(doc.in_scope(from)), visit);
        }
        Axis::Attribute | Axis::Namespace => {}
        Axis::Ancestor => all(doc.ancestors(from), visit),
        Axis::AncestorOrSelf => all(std::iter::once(from).chain(doc.ancestors(from)), visit),
        Axis::Descendant => all(children_in(doc, from + 1..node.end), visit),
        Axis::DescendantOrSelf => {
            let below = children_in(doc, from + 1..node.end);
            all(std::iter::once(from).chain(below), visit);
        }
        Axis::FollowingSibling => all(along(doc, from, |doc, id| doc.node(id).next), visit),
        Axis::PrecedingSibling => all(along(doc, from, |doc, id| doc.node(id).prev), visit),
        // Behind an attribute come the children of its element.
        Axis::Following => {
            let begin = if node.kind.is_beside() { from + 1 } else { node.end };
            all(children_in(doc, begin..doc.len()), visit);
        }
        Axis::Preceding => {
            let above = if node.kind.is_beside() { node.parent } else { from };
            let ancestors: Vec<Id> = doc.ancestors(from).collect();
            let before = children_in(doc, 0..above).rev();
            all(before.filter(|id| !ancestors.contains(id)), visit);
        }
    }
}

fn all(nodes: impl Iterator<Item = Id>, visit: &mut dyn FnMut(Id) -> bool) {
    for id in nodes {
        if !visit(id) {
            return;
        }
    }
}

fn children_in(doc: &Doc, range: std::ops::Range<Id>) -> impl DoubleEndedIterator<Item = Id> + '_ {
    range.filter(|id| !doc.node(*id).kind.is_beside())
}

fn along(doc: &Doc, from: Id, step: fn(&Doc, Id) -> Id) -> impl Iterator<Item = Id> + '_ {
    let next = move |id: Id| Some(step(doc, id)).filter(|id| *id != NONE);
    std::iter::successors(next(from), move |id| next(*id))
}

/// Whether a node meets a test on an axis.
pub(super) fn meets(doc: &Doc, id: Id, axis: Axis, test: &Test) -> bool {
    let node = doc.node(id);
    let is_principal = || match axis {
        Axis::Attribute => node.kind == Kind::Attribute,
        Axis::Namespace => node.kind == Kind::Namespace,
        _ => node.kind == Kind::Element,
    };
    match test {
        Test::Node => true,
        Test::Any => is_principal(),
        Test::Name(name) => node.name == *name && is_principal(),
        Test::Namespace(uri) => node.name.uri == *uri && *uri != Atom::EMPTY && is_principal(),
        Test::Text => node.kind.is_text(),
        Test::Comment => node.kind == Kind::Comment,
        Test::Pi(target) => {
            node.kind == Kind::Pi && target.is_none_or(|target| target == node.name.local)
        }
    }
}
