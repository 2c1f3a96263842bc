//! The memory that sessions of all workers share.

use std::rc::Rc;

use conf::{ConfError, Node};
use engine::settings::Conf;
use engine::{Cx, Session};
use tls::session_cache::{CacheSetting, SharedZone};
use tls::{SharedKeys, SharedSessions};

/// The name of the memory for ticket keys; no directive can give a zone this name.
const KEYS: &[u8] = b" ticket keys";

/// The zones of `ssl_session_cache`, and the random keys of tickets.
#[derive(Default)]
pub struct SslShared {
    zones: Vec<(Vec<u8>, SharedSessions)>,
    keys: Option<SharedKeys>,
}

impl Conf for SslShared {}

impl SslShared {
    /// Reads `ssl_session_cache`, and makes the zones that it names.
    ///
    /// # Errors
    /// A word is wrong, the zone is somebody else's, or there is no memory.
    pub fn set_cache<S: Session>(
        cx: &mut Cx<S>,
        node: &Node,
        setting: &mut Option<CacheSetting>,
    ) -> Result<(), ConfError> {
        let words = node.args.iter().map(conf::Word::bytes);
        let read = setting.get_or_insert_default().read(words);
        let zones = read.map_err(|bad| ConfError::at(&node.args[bad.index], bad.to_string()))?;
        for (index, SharedZone { name, bytes }) in zones {
            let word = &node.args[index];
            cx.declare_zone(word, &name, Some(bytes), "ssl_session_cache")?;
            if cx.main::<SslShared>().zone(&name).is_some() {
                continue;
            }
            let zone = match cx.env.zones.kept::<SharedSessions>(&name) {
                Some(kept) => kept.carried_over(),
                None => SharedSessions::new(&name, bytes)
                    .map_err(|e| ConfError::at(word, failed(bytes, &e)))?,
            };
            cx.env.zones.put(&name, Rc::new(zone.clone()));
            cx.main::<SslShared>().zones.push((name, zone));
        }
        Ok(())
    }

    /// Makes the memory for ticket keys, or takes over that of the configuration before.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn make_keys<S: Session>(cx: &mut Cx<S>, node: &Node) -> Result<(), ConfError> {
        if cx.main::<SslShared>().keys.is_some() {
            return Ok(());
        }
        cx.declare_zone(&node.name, KEYS, None, "ssl_session_tickets")?;
        let keys = match cx.env.zones.kept::<SharedKeys>(KEYS) {
            Some(kept) => kept.carried_over(),
            None => {
                SharedKeys::new().map_err(|e| ConfError::at(&node.name, failed(KEYS_BYTES, &e)))?
            }
        };
        cx.env.zones.put(KEYS, Rc::new(keys.clone()));
        cx.main::<SslShared>().keys = Some(keys);
        Ok(())
    }

    pub(super) fn zone(&self, name: &[u8]) -> Option<&SharedSessions> {
        self.zones.iter().find(|(known, _)| known == name).map(|(_, zone)| zone)
    }

    pub(super) fn keys(&self) -> Option<&SharedKeys> {
        self.keys.as_ref()
    }
}

/// The size of the memory for keys, for messages.
const KEYS_BYTES: usize = 4096;

fn failed(bytes: usize, error: &std::io::Error) -> String {
    format!("mmap(MAP_ANON|MAP_SHARED, {bytes}) failed {}", base::log::os_error(error))
}
