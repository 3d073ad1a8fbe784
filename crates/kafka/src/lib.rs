//! Kafka as a destination of messages, and as a source of records that schedule them.
//!
//! One home for the client library: settings and secrets ([`settings`]), what a topic is ([`topic`]), what errors mean
//! ([`outcome`]), and the few calls that the safe bindings lack ([`native`]). The worker and the gateway know none of it; they
//! see the ports.

mod channel;
mod client;
mod destination;
mod native;
mod outcome;
mod record;
mod settings;
mod side;
mod source;
mod target;
mod topic;

pub use channel::NowMs;
pub use destination::{Connections, KafkaDestination, KafkaOptions};
pub use settings::ReadEnvironment;
pub use source::KafkaSources;
pub use target::KafkaTargets;
