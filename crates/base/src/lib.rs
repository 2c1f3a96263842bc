//! Values that every other crate speaks in: the error log's front, cached time, small byte helpers.
#![forbid(unsafe_code)]
