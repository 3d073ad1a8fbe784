//! What a cell keeps in its metadata store: routes, destinations, shard control, leases, idempotency records, ingresses.
//!
//! Each kind of record has one file: its key, its JSON form, and the rules a change must keep. Every change goes through
//! [`cas::Records`], which reads, lets a pure function decide the next record, checks the rules, and swaps by version; a lost
//! race starts over. Nothing here is on the path of a message.

pub mod cas;
pub mod destination;
pub mod idempotency;
pub mod ingress;
pub mod route;
pub mod shard_control;
