//! Rust SDK of Nereus Delay.
//!
//! [`prepare`] fixes a command's identities, bytes and hash, purely; [`http`] talks to a server over HTTP/JSON with the types of
//! [`api`], which the server shares; [`duration`] and [`instant`] read times as people write them.

pub mod api;
pub mod duration;
pub mod http;
pub mod instant;
pub mod prepare;
