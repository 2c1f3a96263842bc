//! `limit_conn` and `limit_req` for requests.

pub mod conn;
pub mod req;

use common_modules::limits::Refusing;
use http::module::Verdict;

/// The answer to a refused request; with `dry_run` it goes on.
fn refused(refusing: &Refusing) -> Verdict {
    match refusing.dry_run() {
        true => Verdict::Next,
        false => Verdict::Status(refusing.status()),
    }
}
