//! What operators see: shards, lanes, routes, health.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A Delay Shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shard {
    /// Its route.
    pub route: String,
    /// Its partition of the route.
    pub partition: u32,
    /// `ACTIVE_FOR_COMMANDS` when all is well.
    pub lifecycle: String,
    /// Why, for other states.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The owner's epoch.
    pub owner_epoch: u64,
    /// The last applied log position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_position: Option<String>,
    /// Every deadline through this time is closed.
    pub closed_through: String,
    /// Every deadline through this time is closed, epoch milliseconds.
    pub closed_through_ms: i64,
    /// Live messages.
    pub active_messages: u64,
    /// How many there may be.
    pub active_messages_max: u64,
    /// Their bytes.
    pub active_bytes: u64,
    /// How many there may be.
    pub active_bytes_max: u64,
    /// Destination lanes.
    pub lanes: u32,
    /// How many there may be.
    pub lanes_max: u32,
    /// What happened since the shard was made.
    pub totals: Totals,
}

/// What happened in a shard since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// Messages scheduled.
    pub scheduled: u64,
    /// Times a message was moved.
    pub rescheduled: u64,
    /// Messages canceled.
    pub canceled: u64,
    /// Messages published.
    pub published: u64,
    /// Messages expired.
    pub expired: u64,
    /// Messages given up.
    pub dead_lettered: u64,
    /// Attempts admitted.
    pub admitted: u64,
    /// Attempts that another followed.
    pub retried: u64,
    /// Commands refused.
    pub commands_rejected: u64,
    /// Copies of commands that were decided before.
    pub commands_duplicate: u64,
    /// Records set aside.
    pub records_quarantined: u64,
    /// Owner records overtaken.
    pub mutations_stale: u64,
    /// Entries of owner records whose precondition no longer held.
    pub entries_failed: u64,
}

/// Every shard of this server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShardList {
    /// Ascending by route and partition.
    pub items: Vec<Shard>,
}

/// A destination lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lane {
    /// The shard's route.
    pub route: String,
    /// The shard's partition.
    pub shard: u32,
    /// The lane's number in the shard.
    pub lane: u32,
    /// The lane's id, hex.
    pub lane_id: String,
    /// The destination.
    pub destination: String,
    /// The destination's version.
    pub destination_version: u64,
    /// The destination's partition.
    pub partition: u32,
    /// `open`, or `paused` by an operator.
    pub gate: String,
    /// `ready`, `recovering` or `blocked`.
    pub readiness: String,
    /// Why it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it is blocked, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// `closed` when work flows, `open` while it pauses after failures, `half_open` while it probes.
    pub circuit: String,
    /// Failures of the lane since its last success.
    pub failures: u32,
    /// Messages waiting for their time.
    pub scheduled: u64,
    /// Messages waiting for another attempt.
    pub retrying: u64,
    /// Messages with an attempt under way.
    pub publishing: u64,
    /// Messages with an attempt nobody can vouch for.
    pub uncertain: u64,
    /// Messages claimed or sent.
    pub in_flight: u64,
    /// How long the first message that waits is overdue, in milliseconds; zero when none is.
    pub due_age_ms: i64,
}

/// Lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneList {
    /// Ascending by route, shard and lane.
    pub items: Vec<Lane>,
    /// What keeps shards from answering, one entry for each whose lanes are missing here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<String>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Route {
    /// Its name.
    pub name: String,
    /// Its incarnation.
    pub route: String,
    /// Its tenant.
    pub tenant: String,
    /// `active`, or `creating`.
    pub state: String,
    /// Its shards.
    pub shards: u32,
}

/// Every route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteList {
    /// Ascending by name.
    pub items: Vec<Route>,
}

/// Whether the server can do its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether every shard is active and the clock is trusted.
    pub ready: bool,
    /// What is not, in words.
    pub reasons: Vec<String>,
    /// The server's version.
    pub version: String,
    /// How far the server's clock may be off, in microseconds: part of every lateness.
    pub clock_bound_us: i64,
    /// Whether the kernel vouches for its clock.
    pub clock_synchronised: bool,
}
