//! The blocks of HTTP while they are read: locations, `if` and `limit_except` within their levels.

use std::any::TypeId;
use std::rc::Rc;

use bytes::Bytes;
use conf::table::Contexts;
use conf::{ConfError, Node, Word};
use engine::addresses::ListenAddress;
use engine::names::ServerName;
use engine::regex::Regex;

pub use engine::LoadEnv;

use crate::module::Conf;
use crate::request::Request;
use crate::server::location::LocKind;

/// The apply pass of an `http` block.
pub type Cx = engine::Cx<Request>;

/// The values set inside one block of HTTP.
pub(crate) type Level = engine::cx::Level<Request>;

/// A location as it was written, before merging.
pub(crate) struct LocationDraft {
    pub kind: LocKind,
    pub name: Bytes,
    pub regex: Option<Rc<Regex>>,
    pub level: Level,
    pub at: Word,
    /// An `if` whose instructions end the request: its settings are for that answer.
    pub ends: bool,
}

/// The parts of a block of HTTP that are no directive's value.
#[derive(Default)]
pub struct Block {
    pub(crate) names: Vec<ServerName>,
    /// `listen`, in a server.
    pub(crate) listens: Vec<ListenAddress>,
    pub(crate) locations: Vec<LocationDraft>,
    /// Blocks that only switch configuration: `if`, in order of appearance.
    pub(crate) ifs: Vec<LocationDraft>,
    /// `limit_except` with the methods that it does not limit.
    pub(crate) limit_except: Option<(Vec<Bytes>, Box<LocationDraft>)>,
    /// The location's own kind and name; `None` above locations.
    location: Option<(LocKind, Bytes)>,
}

impl Block {
    /// The names of a server, as `server_name` has them.
    pub fn server_names(&self) -> &[ServerName] {
        &self.names
    }

    /// The inside of a location.
    pub(crate) fn of_location(location: Option<(LocKind, Bytes)>) -> Block {
        Block { location, ..Block::default() }
    }
}

/// Questions of setters about the locations around their directive.
pub trait LocationCx {
    /// Kind and name of the location that the directive stands in; `None` above locations.
    fn location(&self) -> Option<&(LocKind, Bytes)>;

    /// Applies an `if` block of the rewrite module: gives the module's own value in it, and the
    /// index by which the location finds the configuration inside it at run time, or `None` where
    /// the block sets nothing but that value.
    ///
    /// # Errors
    /// The first directive in the block that is wrong.
    fn if_block<T: Conf>(&mut self, node: &Node) -> Result<(T, Option<usize>), ConfError>;

    /// Declares that the `if` block of that index always ends the request itself.
    fn if_ends(&mut self, index: usize);
}

impl LocationCx for Cx {
    fn location(&self) -> Option<&(LocKind, Bytes)> {
        self.around().find_map(|l| l.block.location.as_ref())
    }

    fn if_block<T: Conf>(&mut self, node: &Node) -> Result<(T, Option<usize>), ConfError> {
        let here = if self.here() == Contexts::SERVER {
            Contexts::IF_SERVER
        } else {
            Contexts::IF_LOCATION
        };
        let me = self.location().cloned();
        let mut level = self.block(node, here, Block::of_location(me.clone()))?;
        let inner = std::mem::take(level.get::<T>());
        level.set.retain(|(id, _)| *id != TypeId::of::<T>());
        if level.set.is_empty() {
            return Ok((inner, None));
        }
        let draft = LocationDraft {
            kind: LocKind::If,
            name: me.map(|m| m.1).unwrap_or_default(),
            regex: None,
            level,
            at: node.name.clone(),
            ends: false,
        };
        let ifs = &mut self.top().block.ifs;
        ifs.push(draft);
        Ok((inner, Some(ifs.len() - 1)))
    }

    fn if_ends(&mut self, index: usize) {
        if let Some(block) = self.top().block.ifs.get_mut(index) {
            block.ends = true;
        }
    }
}
