//! Every byte that Nereus Delay puts on a wire or into a log, and nothing else.
//!
//! The crate is a set of pure functions: no I/O, no clock, no randomness, no async. What a value means is decided elsewhere
//! (`shard` applies records, `worker` writes them); here is only what bytes a value has, which bytes are a value, and what
//! identities and hashes follow from it. Two implementations that agree on this crate's vectors read each other's logs.
//!
//! Sections cited as "protocol registry §2.5" are those of `docs/protocol-registry.md`.
//!
//! Start at [`record::decode`]: it turns one value of the shard log into a [`record::LogRecord`].

pub mod canonical;
pub mod code;
pub mod command;
pub mod derived;
pub mod field;
pub mod frame;
pub mod hash;
pub mod id;
pub mod jitter;
pub mod lane;
pub mod mutation;
pub mod mutation_v1;
pub mod mutation_v2;
pub mod nulls;
pub mod policy;
pub mod position;
pub mod receipt;
pub mod receipt_frame;
pub mod record;
pub mod reference;
pub mod resource;
pub mod routing;
pub mod text;

mod framing;
mod reader;
mod schema;

/// Messages of protocol body version 1, generated from `proto/v1`: the registry's own types, field by field.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/nereus.delay.v1.rs"));
}

/// Messages of body version 2, generated from `proto/v2`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod v2 {
    include!(concat!(env!("OUT_DIR"), "/nereus.delay.v2.rs"));
}
