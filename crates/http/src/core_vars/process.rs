//! `$request_id`.

use base::ascii::write_hex;

use crate::request::Request;

/// Thirty-two hexadecimal digits that no other request has.
pub(super) fn request_id(_: &mut Request, out: &mut Vec<u8>) -> bool {
    write_hex(out, &engine::ids::next());
    true
}
