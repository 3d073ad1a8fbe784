//! Real Kafka for tests, crash rounds and benchmarks: the shared broker that dev/services runs, brokers of one's own, and what
//! a producer, a consumer and an administrator do with them.

mod admin;
mod broker;
mod cluster;
mod writer;

use anyhow::Context as _;

pub use broker::{Broker, LIBRARIES_VARIABLE, PASSWORD, USER};
pub use cluster::{Cluster, Outgoing, Record, Tail};
pub use writer::Writer;

/// Reads what dev/services tells.
///
/// # Errors
/// When it is not there; the error says what to run.
#[expect(clippy::disallowed_methods, reason = "tests learn from dev/services where the servers are")]
pub fn variable(name: &str) -> anyhow::Result<String> {
    std::env::var(name)
        .with_context(|| format!("{name} is not set: this needs a real Kafka; run it as dev/services run -- COMMAND"))
}
