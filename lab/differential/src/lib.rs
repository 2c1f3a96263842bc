//! Requests and responses drawn from lists, what two servers made of them, and the differences that
//! have a reason.

#![forbid(unsafe_code)]

pub mod allowed;
pub mod exchange;
pub mod generate;
pub mod heads;
pub mod heads_allowed;
pub mod origin;
pub mod site;

/// Success, or the reason for which there is none.
type Outcome<T = ()> = Result<T, String>;
