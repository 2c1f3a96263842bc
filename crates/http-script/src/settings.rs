//! The functions that a location calls.

use conf::ConfError;
use engine::settings::Conf;
use script_modules::Function;

/// How `js_body_filter` gets its pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PieceType {
    Text,
    Buffer,
}

engine::settings! {
    /// The handlers and filters that nested locations inherit.
    pub(crate) struct Handlers {
        pub access: Option<Function>,
        pub header_filter: Option<Function>,
        pub body_filter: Option<(Function, PieceType)>,
    }
}

impl Handlers {
    /// All functions.
    pub fn all(&self) -> impl Iterator<Item = &Function> {
        let body_filter = self.body_filter.as_ref().map(|(function, _)| function);
        self.access.iter().chain(&self.header_filter).chain(body_filter)
    }
}

/// `js_content`: apart, because a nested location does not inherit it.
#[derive(Default)]
pub(crate) struct Content(pub Option<Function>);

impl Conf for Content {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.0.is_none() {
            self.0.clone_from(&prev.0);
        }
        Ok(())
    }
}
