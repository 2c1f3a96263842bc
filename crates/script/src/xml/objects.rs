//! `XMLDoc`, `XMLNode` and `XMLAttr`: objects whose properties are read from the tree.

use std::any::Any;
use std::cell::{Ref, RefCell, RefMut};
use std::collections::HashSet;
use std::rc::Rc;

use rquickjs::{Array, Ctx, Exception, Result, Value};

use super::tree::{DEPTH_MAX, Id, Kind, Name, Tree};
use crate::native::{self, Call, Exotic, Method};
use crate::raw;
use crate::state::Charge;
use crate::value::text;

/// A document with the memory that it takes.
pub struct Held {
    tree: RefCell<Tree>,
    charge: Charge,
}

type Shared = Rc<Held>;

/// A node of a document.
#[derive(Clone)]
pub struct NodeRef {
    document: Shared,
    pub id: Id,
}

struct Document(Shared);

struct Attributes(NodeRef);

impl NodeRef {
    /// The node that a value is: of a document, its root element.
    pub fn of(value: &Value<'_>) -> Option<NodeRef> {
        let document = native::with_exotic(value, |document: &Document| {
            let id = document.0.tree.borrow().root;
            NodeRef { document: document.0.clone(), id }
        });
        document.or_else(|| node(value))
    }

    /// Whether both are nodes of one document.
    pub(crate) fn is_of_same_document(&self, other: &NodeRef) -> bool {
        Rc::ptr_eq(&self.document, &other.document)
    }

    fn sibling(&self, id: Id) -> NodeRef {
        NodeRef { document: self.document.clone(), id }
    }

    /// The tree of its document.
    pub fn tree(&self) -> Ref<'_, Tree> {
        self.document.tree.borrow()
    }

    fn tree_mut(&self) -> RefMut<'_, Tree> {
        self.document.tree.borrow_mut()
    }

    /// Charges the script for what is put into the document.
    fn charge(&self, ctx: &Ctx<'_>, nodes: usize, bytes: usize) -> Result<()> {
        self.document.charge.add(ctx, nodes * super::NODE_BYTES + bytes)
    }

    fn to_js<'js>(&self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        native::exotic(ctx, "XMLNode", self.clone())
    }
}

/// The node that a value is.
pub fn node(value: &Value<'_>) -> Option<NodeRef> {
    native::with_exotic(value, NodeRef::clone)
}

/// A document as an object.
pub fn document<'js>(ctx: &Ctx<'js>, tree: Tree) -> Result<Value<'js>> {
    let bytes = tree.nodes.len() * super::NODE_BYTES + tree.text_bytes(tree.root);
    let charge = Charge::new(ctx, bytes)?;
    native::exotic(ctx, "XMLDoc", Document(Rc::new(Held { tree: RefCell::new(tree), charge })))
}

const METHODS: &[Method] = &[
    ("addChild", 1, |call| {
        let node = this(call)?;
        add_children(call.ctx(), &node, &[given_node(&call.arg(0))?])?;
        call.undefined()
    }),
    ("removeAllAttributes", 0, |call| {
        let node = this(call)?;
        if let Some(element) = node.tree_mut().element_mut(node.id) {
            element.attributes.clear();
        }
        call.undefined()
    }),
    ("removeAttribute", 1, |call| {
        set_attribute(call.ctx(), &this(call)?, &name_argument(call)?, None)?;
        call.undefined()
    }),
    ("removeChildren", 1, |call| {
        let (node, name) = (this(call)?, call.arg(0));
        let name = match name.is_undefined() || name.is_null() {
            true => String::new(),
            false if name.is_string() => text(&name)?,
            false => return Err(call.type_error("selector is not a string")),
        };
        remove_elements(&node, &name);
        call.undefined()
    }),
    ("removeText", 0, |call| {
        set_text(call.ctx(), &this(call)?, "")?;
        call.undefined()
    }),
    ("setAttribute", 2, |call| {
        let value = given(&call.arg(1))?;
        set_attribute(call.ctx(), &this(call)?, &name_argument(call)?, value)?;
        call.undefined()
    }),
    ("setText", 1, |call| {
        let value = given(&call.arg(0))?;
        set_text(call.ctx(), &this(call)?, &value.unwrap_or_default())?;
        call.undefined()
    }),
];

/// Adds the prototypes.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    native::prototype(ctx, "XMLDoc", &[])?;
    native::prototype(ctx, "XMLNode", METHODS)?;
    native::prototype(ctx, "XMLAttr", &[])?;
    Ok(())
}

fn this(call: &Call<'_, '_>) -> Result<NodeRef> {
    node(&call.this()).ok_or_else(|| call.type_error("\"this\" is not a XMLNode object"))
}

fn name_argument(call: &Call<'_, '_>) -> Result<String> {
    match call.arg(0).is_string() {
        true => text(&call.arg(0)),
        false => Err(call.type_error("\"name\" argument is not a string")),
    }
}

/// A value as text; `None` for null and undefined.
fn given(value: &Value<'_>) -> Result<Option<String>> {
    let is_none = value.is_undefined() || value.is_null();
    if is_none { Ok(None) } else { text(value).map(Some) }
}

/// The node that an argument must be.
fn given_node(value: &Value<'_>) -> Result<NodeRef> {
    NodeRef::of(value)
        .ok_or_else(|| Exception::throw_type(value.ctx(), "value is not XMLNode or XMLDoc"))
}

/// Appends copies of nodes.
fn add_children(ctx: &Ctx<'_>, node: &NodeRef, children: &[NodeRef]) -> Result<()> {
    for child in children {
        // The node itself may be the one that is copied into it.
        let from = child.tree().clone();
        raw::worked(from.nodes.len() * super::NODE_BYTES);
        native::go_on(ctx)?;
        if node.tree().depth(node.id) + from.height(child.id) > DEPTH_MAX {
            return Err(Exception::throw_range(ctx, "elements are nested too deep"));
        }
        node.charge(ctx, from.size(child.id), from.text_bytes(child.id))?;
        let mut tree = node.tree_mut();
        tree.append_copy(node.id, &from, child.id);
    }
    Ok(())
}

/// Removes elements of a local name, all if it is empty. They keep their parent, as a script may
/// still have them.
fn remove_elements(node: &NodeRef, local: &str) {
    let mut tree = node.tree_mut();
    let gone: HashSet<Id> = tree.elements(node.id, local).into_iter().collect();
    if let Some(element) = tree.element_mut(node.id) {
        element.children.retain(|id| !gone.contains(id));
    }
}

fn set_text(ctx: &Ctx<'_>, node: &NodeRef, value: &str) -> Result<()> {
    node.charge(ctx, 1, value.len())?;
    let mut tree = node.tree_mut();
    let child = (!value.is_empty()).then(|| tree.add(Some(node.id), Kind::Text(value.to_owned())));
    if let Some(element) = tree.element_mut(node.id) {
        element.children = child.into_iter().collect();
    }
    Ok(())
}

/// Sets an attribute, or removes it if there is no value.
fn set_attribute(ctx: &Ctx<'_>, node: &NodeRef, name: &str, value: Option<String>) -> Result<()> {
    if !is_qualified_name(name) {
        let message = format!("attribute name \"{name}\" is not valid");
        return Err(Exception::throw_type(ctx, &message));
    }
    let name = Name::of(name);
    node.charge(ctx, 0, name.local.len() + value.as_ref().map_or(0, String::len))?;
    let mut tree = node.tree_mut();
    let Some(element) = tree.element_mut(node.id) else { return Ok(()) };
    let at = element.attributes.iter().position(|(known, _)| *known == name);
    match (at, value) {
        (Some(at), Some(value)) => element.attributes[at].1 = value,
        (None, Some(value)) => element.attributes.push((name, value)),
        (Some(at), None) => {
            element.attributes.remove(at);
        }
        (None, None) => {}
    }
    Ok(())
}

/// Whether a text is a name that may have a prefix (Namespaces in XML 1.0, section 4).
fn is_qualified_name(name: &str) -> bool {
    let mut parts = name.split(':');
    let is_name = |part: &str| {
        let starts = |c: char| c == '_' || c.is_alphabetic();
        let continues = |c: char| starts(c) || c.is_numeric() || matches!(c, '-' | '.' | '\u{b7}');
        part.chars().next().is_some_and(starts) && part.chars().all(continues)
    };
    let valid = parts.by_ref().take(2).all(is_name);
    valid && parts.next().is_none()
}

fn string<'js>(ctx: &Ctx<'js>, value: &str) -> Result<Option<Value<'js>>> {
    raw::worked(value.len());
    Ok(Some(rquickjs::String::from_str(ctx.clone(), value)?.into_value()))
}

impl Exotic for Document {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn get<'js>(&self, ctx: &Ctx<'js>, name: &str) -> Result<Option<Value<'js>>> {
        let root = self.0.tree.borrow().root;
        let is_root = name == "$root"
            || self.0.tree.borrow().element(root).is_some_and(|element| element.name.local == name);
        let node = NodeRef { document: self.0.clone(), id: root };
        is_root.then(|| node.to_js(ctx)).transpose()
    }

    fn names(&self) -> Vec<String> {
        let tree = self.0.tree.borrow();
        tree.element(tree.root).map(|element| element.name.local.clone()).into_iter().collect()
    }
}

impl Exotic for Attributes {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn get<'js>(&self, ctx: &Ctx<'js>, name: &str) -> Result<Option<Value<'js>>> {
        match attribute(&self.0, name) {
            Some(value) => string(ctx, &value),
            None => Ok(None),
        }
    }

    fn names(&self) -> Vec<String> {
        let tree = self.0.tree();
        let attributes = tree.element(self.0.id).map_or(&[][..], |element| &element.attributes);
        attributes.iter().map(|(name, _)| name.local.clone()).collect()
    }
}

/// The value of the first attribute of a local name.
fn attribute(node: &NodeRef, local: &str) -> Option<String> {
    let tree = node.tree();
    let attributes = &tree.element(node.id)?.attributes;
    attributes.iter().find(|(name, _)| name.local == local).map(|(_, value)| value.clone())
}

/// The namespace of an element.
fn namespace(node: &NodeRef) -> Option<String> {
    let tree = node.tree();
    let prefix = &tree.element(node.id)?.name.prefix;
    let uri = tree.in_scope(node.id).get(prefix.as_str()).map(|uri| (*uri).to_owned());
    uri.filter(|uri| !uri.is_empty())
}

fn children<'js>(ctx: &Ctx<'js>, node: &NodeRef, local: &str) -> Result<Option<Value<'js>>> {
    let array = Array::new(ctx.clone())?;
    let ids = node.tree().elements(node.id, local);
    for (i, id) in ids.into_iter().enumerate() {
        native::go_on(ctx)?;
        array.set(i, node.sibling(id).to_js(ctx)?)?;
    }
    Ok(Some(array.into_value()))
}

fn first_child<'js>(ctx: &Ctx<'js>, node: &NodeRef, local: &str) -> Result<Option<Value<'js>>> {
    let id = node.tree().elements(node.id, local).first().copied();
    id.map(|id| node.sibling(id).to_js(ctx)).transpose()
}

impl Exotic for NodeRef {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn get<'js>(&self, ctx: &Ctx<'js>, name: &str) -> Result<Option<Value<'js>>> {
        match name {
            "$attrs" => {
                let has = self.tree().element(self.id).is_some_and(|e| !e.attributes.is_empty());
                has.then(|| native::exotic(ctx, "XMLAttr", Attributes(self.clone()))).transpose()
            }
            "$name" => {
                let name = self.tree().element(self.id).map(|e| e.name.local.clone());
                name.map_or(Ok(None), |name| string(ctx, &name))
            }
            "$ns" => namespace(self).map_or(Ok(None), |uri| string(ctx, &uri)),
            "$parent" => {
                let parent = self.tree().nodes[self.id].parent;
                parent.map(|id| self.sibling(id).to_js(ctx)).transpose()
            }
            "$tags" => children(ctx, self, ""),
            "$text" => string(ctx, &self.tree().text(self.id)),
            _ => {
                if let Some(local) = name.strip_prefix("$attr$") {
                    return match attribute(self, local) {
                        Some(value) => string(ctx, &value),
                        None => Ok(None),
                    };
                }
                if let Some(local) = name.strip_prefix("$tags$") {
                    return children(ctx, self, local);
                }
                first_child(ctx, self, name.strip_prefix("$tag$").unwrap_or(name))
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let tree = self.tree();
        let Some(element) = tree.element(self.id) else { return Vec::new() };
        let begins_with_text = element
            .children
            .first()
            .is_some_and(|id| matches!(tree.nodes[*id].kind, Kind::Text(_) | Kind::Comment(_)));
        [
            ("$name", true),
            ("$ns", namespace(self).is_some()),
            ("$attrs", !element.attributes.is_empty()),
            ("$text", begins_with_text),
            ("$tags", !tree.elements(self.id, "").is_empty()),
        ]
        .iter()
        .filter(|(_, has)| *has)
        .map(|(name, _)| (*name).to_owned())
        .collect()
    }

    fn set<'js>(&self, ctx: &Ctx<'js>, name: &str, value: Option<Value<'js>>) -> Result<bool> {
        let value = value.filter(|value| !value.is_undefined() && !value.is_null());
        if let Some(local) = name.strip_prefix("$attr$") {
            let value = value.map(|value| text(&value)).transpose()?;
            set_attribute(ctx, self, local, value)?;
        } else if name == "$text" {
            set_text(ctx, self, &value.map_or(Ok(String::new()), |value| text(&value))?)?;
        } else if name.starts_with("$tags") {
            let Some(array) = value.and_then(Value::into_array) else {
                return Err(Exception::throw_type(ctx, "setval is not an array"));
            };
            set_children(ctx, self, &array)?;
        } else if value.is_some() {
            let message = "XMLNode.$tag$xxx is not assignable, use addChild() or \
                           node.$tags = [node1, node2, ..] syntax";
            return Err(Exception::throw_type(ctx, message));
        } else {
            remove_elements(self, name.strip_prefix("$tag$").unwrap_or(name));
        }
        Ok(true)
    }
}

/// Replaces all children by copies of nodes, which may be among them.
fn set_children<'js>(ctx: &Ctx<'js>, node: &NodeRef, array: &Array<'js>) -> Result<()> {
    let children = native::elements(array).map(|value| given_node(&value?));
    let children: Vec<NodeRef> = children.collect::<Result<_>>()?;
    let before = {
        let mut tree = node.tree_mut();
        tree.element_mut(node.id).map(|element| std::mem::take(&mut element.children))
    };
    let result = add_children(ctx, node, &children);
    if result.is_err()
        && let (Some(element), Some(before)) = (node.tree_mut().element_mut(node.id), before)
    {
        element.children = before;
    }
    result
}
