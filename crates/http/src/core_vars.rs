//! The core's variables.

use crate::vars::VarDef;

pub(crate) static VARIABLES: &[VarDef] = &[VarDef::new("uri", |r, out| {
    out.extend_from_slice(&r.uri);
    true
})];
