//! The HTTP/JSON surface of Nereus Delay.
//!
//! `http` maps paths to services; `messages`, `destinations`, `ingress`, `topics` and `admin` are the services; `problem` turns
//! every failure into problem details. Every answer says which level it speaks for: queued is not scheduled, and a time-out is never
//! "not taken".

mod admin;
mod connections;
mod control_log;
pub mod decode;
mod destinations;
mod http;
mod idempotency;
mod ingress;
mod messages;
mod metrics;
pub mod openapi;
mod problem;
pub mod routes;
mod server;
mod state;
#[cfg(test)]
mod tests;
mod topics;

pub use destinations::DestinationDefaults;
pub use server::{Server, StartError};
pub use state::{FillRandom, Gateway, GatewayConfig, GatewayParts, ReadStorage, StorageFigures};
