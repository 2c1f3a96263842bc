//! The types of modules, and what is read of a server's block beside settings.

use conf::table::Contexts;
use engine::addresses::ListenAddress;
use mail_proto::Protocol;

use crate::session::MailSession;

/// The table of a module.
pub type Module = engine::Module<MailSession>;
/// The ordered list of modules.
pub type Modules = engine::module::Modules<MailSession>;
/// The state while directives are applied.
pub type Cx = engine::Cx<MailSession>;

/// The rest of a block while it is read.
#[derive(Default)]
pub struct Block {
    /// Its addresses.
    pub listens: Vec<ListenAddress>,
    /// `protocol`
    pub protocol: Option<Protocol>,
    /// The protocol of the ports that it listens on; `protocol` comes before it.
    pub by_port: Option<Protocol>,
}

/// `mail` and `server`.
pub const MS: Contexts = Contexts::MAIL.or(Contexts::MAIL_SERVER);
