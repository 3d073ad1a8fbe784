//! The Kafka adapter against a real broker, which dev/services runs.

mod credentials;
mod destination;
mod source;
mod support;
mod target;
