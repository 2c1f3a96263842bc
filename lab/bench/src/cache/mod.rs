//! Loads of the cache: its promises under trouble. Each is a file here; they share an origin
//! ([`origin`]) and a client that reads every answer to its last byte.

mod disks;
mod full;
mod kills;
mod lock;
mod million;
pub mod origin;
mod purges;

use std::path::Path;
use std::time::Duration;

use crate::http_client::Client;
use crate::server::Setup;

pub use disks::run as disks;
pub use full::run as full;
pub use kills::run as kills;
pub use lock::run as lock;
pub use million::restart;
pub use purges::run as purge;

const CONFIG: &str = include_str!("../../configs/cache.conf");

/// The limit of a client's waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with a cache in `folder` before an origin. `path` are parameters behind the zone's
/// name, `directives` those of the location.
fn setup(workers: usize, origin: u16, folder: &Path, path: &str, directives: &str) -> Setup {
    Setup {
        template: CONFIG,
        connections: 4096,
        fill: vec![
            ("%WORKERS%", workers.to_string()),
            ("%FOLDER%", folder.display().to_string()),
            ("%PATH%", path.to_string()),
            ("%ORIGIN%", origin.to_string()),
            ("%CACHE%", directives.to_string()),
        ],
        cpus: if workers == 1 { "0" } else { "0-1" },
        ..Setup::default()
    }
}

/// A client of the server, which keeps its connection where it may.
fn client(port: u16) -> Client {
    Client::new(port, None, PATIENCE)
}
