//! The merge pass: the configuration of a level, filled up from the level around it.

use std::any::{Any, TypeId};
use std::rc::Rc;

use conf::ConfError;

use crate::cx::Level;
use crate::module::Modules;
use crate::session::Session;
use crate::settings::{ConfSet, Scope};

/// A merged level: the value of every type, shared with the level around where nothing was set.
#[derive(Clone)]
pub struct Merged {
    /// The values that hold.
    pub set: ConfSet,
    /// The types that were set at this very level; empty where all of them are the outer level's.
    pub own: Vec<TypeId>,
}

impl Merged {
    /// The engine's own level: values that no directive set are the types' defaults.
    pub fn top<S: Session>(modules: Modules<S>, level: &Level<S>) -> Merged {
        let mut items: Vec<(TypeId, Rc<dyn Any>)> = Vec::new();
        for c in modules.iter().flat_map(|m| m.confs) {
            let id = (c.id)();
            let own = level.set.iter().find(|(i, _)| *i == id).map(|(_, v)| v.clone());
            items.push((id, own.unwrap_or_else(c.create)));
        }
        Merged { set: ConfSet::new(items), own: Vec::new() }
    }

    /// A level within `self`, in which the values of `level` were set.
    ///
    /// # Errors
    /// The errors of a type's merge.
    pub fn below<S: Session>(
        &self,
        modules: Modules<S>,
        level: &mut Level<S>,
    ) -> Result<Merged, ConfError> {
        let mut own = std::mem::take(&mut level.set);
        if own.is_empty() {
            return Ok(Merged { set: self.set.clone(), own: Vec::new() });
        }
        let mut items = Vec::new();
        for c in modules.iter().flat_map(|m| m.confs) {
            let id = (c.id)();
            let Some(prev) = self.set.find(id) else { continue };
            let value = match own.iter_mut().find(|(i, _)| *i == id) {
                Some((_, v)) if c.scope != Scope::Main => {
                    if let Some(v) = Rc::get_mut(v) {
                        (c.merge)(v, prev.as_ref())?;
                    }
                    v.clone()
                }
                _ => prev.clone(),
            };
            items.push((id, value));
        }
        let own = own.iter().map(|(id, _)| *id).collect();
        Ok(Merged { set: ConfSet::new(items), own })
    }

    /// Says whether a directive of this very level set something of `T`.
    pub fn sets<T: 'static>(&self) -> bool {
        self.own.contains(&TypeId::of::<T>())
    }
}
