//! The JSON that server and clients exchange. The server's OpenAPI document is made from these types.
//!
//! Names are snake_case. Every time is there twice: as RFC 3339 UTC with milliseconds for people, and as a number in its `_ms`
//! twin for programs.

pub mod admin;
pub mod destination;
pub mod ingress;
pub mod kafka;
pub mod message;
pub mod pages;
pub mod problem;
pub mod topic;
