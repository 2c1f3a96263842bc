//! Parts that tests of several modules use.

pub(crate) mod pair;
