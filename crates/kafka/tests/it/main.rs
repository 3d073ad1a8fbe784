//! The Kafka adapter against a real broker, which dev/services runs.

mod destination;
mod source;
mod support;
mod target;
