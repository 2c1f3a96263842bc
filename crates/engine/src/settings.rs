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
    /// Fills what this level left unset from the enclosing level. Without it nothing is inherited.
    ///
    /// # Errors
    /// The settings of the levels do not go together.
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        let _ = prev;
        Ok(())
    }
}

/// A setting, or a group of settings, that is taken from the enclosing level where it is unset.
pub trait Inherit {
    /// Fills what is unset from the enclosing level.
    fn inherit(&mut self, prev: &Self);
}

impl<T: Clone> Inherit for Option<T> {
    fn inherit(&mut self, prev: &Self) {
        if self.is_none() {
            self.clone_from(prev);
        }
    }
}

impl<T: Inherit + Default + 'static> Conf for T {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.inherit(prev);
        Ok(())
    }
}

/// Declares the settings of a level, each of which is inherited by itself: the struct with its
/// `Default`, and its [`Inherit`], which makes it a [`Conf`].
#[macro_export]
macro_rules! settings {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$m:meta])* $field_vis:vis $field:ident : $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Default)]
        $vis struct $name { $($(#[$m])* $field_vis $field: $type,)* }

        impl $crate::settings::Inherit for $name {
            fn inherit(&mut self, prev: &Self) {
                $crate::inherit!(self, prev: $($field)*);
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident($field_vis:vis $type:ty);) => {
        $(#[$meta])*
        #[derive(Default)]
        $vis struct $name($field_vis $type);

        impl $crate::settings::Inherit for $name {
            fn inherit(&mut self, prev: &Self) {
                $crate::inherit!(self, prev: 0);
            }
        }
    };
}

/// Takes these fields, where they are unset, from the enclosing level: for the merge of a [`Conf`]
/// that has others as well.
#[macro_export]
macro_rules! inherit {
    ($own:ident, $prev:ident: $($field:tt)*) => {
        $($crate::settings::Inherit::inherit(&mut $own.$field, &$prev.$field);)*
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
pub struct ConfSet(Rc<[(TypeId, Rc<dyn Any>)]>);

impl ConfSet {
    /// A value of each type.
    pub(crate) fn new(mut values: Vec<(TypeId, Rc<dyn Any>)>) -> ConfSet {
        values.sort_unstable_by_key(|(id, _)| *id);
        ConfSet(values.into())
    }

    /// The value of a type by its id.
    #[inline]
    pub(crate) fn find(&self, id: TypeId) -> Option<&Rc<dyn Any>> {
        let at = self.0.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// The value of type `T`; `None` only where no module registered it.
    pub fn get<T: 'static>(&self) -> Option<&T> {
        self.find(TypeId::of::<T>())?.downcast_ref()
    }

    /// The value of type `T`, as code asks for it that its module's table lists it for.
    ///
    /// # Panics
    /// If no module lists `T` in its `confs`: a mistake in the module's table, found by any test.
    #[allow(clippy::panic)]
    pub fn listed<T: 'static>(&self) -> Rc<T> {
        match self.get_rc() {
            Some(conf) => conf,
            None => panic!("{} is in no module's table", std::any::type_name::<T>()),
        }
    }

    /// The same as a counted pointer, for handlers that keep their configuration.
    pub fn get_rc<T: 'static>(&self) -> Option<Rc<T>> {
        self.find(TypeId::of::<T>())?.clone().downcast().ok()
    }
}
