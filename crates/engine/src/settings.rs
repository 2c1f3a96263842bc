//! Values of the configuration: made and merged level by level, found by type.

use std::any::{Any, TypeId};
use std::rc::Rc;

use conf::ConfError;

/// Where a configuration value lives and how it inherits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Once, for the whole `http` block; never merged.
    Main,
    /// `http` and `server`.
    Server,
    /// `http`, `server`, `location` and what nests in them.
    Location,
}

/// A module's configuration at one level.
///
/// A level in which no directive of the module stands has no value of its own: it shares its
/// parent's, so `merge` runs only where something was set (and once at the `http` level, against
/// the default).
pub trait Conf: Default + 'static {
    /// Fills what this level left unset from the enclosing level.
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError>;
}

/// Takes the fields that `$own` leaves open from the enclosing level, for the merge of a [`Conf`].
#[macro_export]
macro_rules! inherit {
    ($own:ident, $prev:ident: $($field:ident)+) => {
        $(if $own.$field.is_none() { $own.$field.clone_from(&$prev.$field); })+
    };
}

type MergeFn = fn(&mut dyn Any, &dyn Any) -> Result<(), ConfError>;

/// A configuration type as the engine handles it: by type id, created and merged through pointers.
pub struct ConfType {
    /// At which levels it lives.
    pub scope: Scope,
    pub(crate) id: fn() -> TypeId,
    pub(crate) create: fn() -> Rc<dyn Any>,
    pub(crate) merge: MergeFn,
}

fn create_of<T: Conf>() -> Rc<dyn Any> {
    Rc::new(T::default())
}

fn merge_of<T: Conf>(own: &mut dyn Any, prev: &dyn Any) -> Result<(), ConfError> {
    match (own.downcast_mut::<T>(), prev.downcast_ref::<T>()) {
        (Some(own), Some(prev)) => own.merge(prev),
        _ => Ok(()),
    }
}

impl ConfType {
    /// The entry of `T` for [`Module::confs`].
    pub const fn of<T: Conf>(scope: Scope) -> ConfType {
        ConfType { scope, id: TypeId::of::<T>, create: create_of::<T>, merge: merge_of::<T> }
    }
}

/// The resolved configuration values of one level, found by type.
#[derive(Clone, Default)]
pub struct ConfSet(pub(crate) Rc<[(TypeId, Rc<dyn Any>)]>);

impl ConfSet {
    /// The value of type `T`; `None` only where no module registered it.
    pub fn get<T: 'static>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.0.iter().find(|(i, _)| *i == id).and_then(|(_, v)| v.downcast_ref())
    }

    /// The same as a counted pointer, for handlers that keep their configuration.
    pub fn get_rc<T: 'static>(&self) -> Option<Rc<T>> {
        let id = TypeId::of::<T>();
        let (_, v) = self.0.iter().find(|(i, _)| *i == id)?;
        v.clone().downcast().ok()
    }
}
