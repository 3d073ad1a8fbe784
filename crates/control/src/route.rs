//! Ingress routes: a name, its log, its shards, and the genesis record of each.
//!
//! A route is made in two steps that any crash can interrupt: the record is written in state CREATING with the signed genesis
//! of every partition in it, and whoever finds an empty partition appends exactly those bytes before anything else; then the
//! route is ACTIVE (v2 §7).

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use protocol::id::{RouteId, ShardId};
use serde::{Deserialize, Serialize};

use crate::cas::Record;

/// How far a route has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteState {
    /// Its log may not exist yet, and partitions may be empty.
    Creating,
    /// Every partition has its genesis.
    Active,
}

/// Where a route's log is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RouteLog {
    /// A reserved topic of the embedded log.
    Embedded {
        /// Its name.
        topic: String,
        /// Its id, 32 hex digits.
        topic_id: String,
    },
}

/// The genesis of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenesisRecord {
    /// Mutation hash, 64 hex digits: the shard's identity.
    pub mutation_hash: String,
    /// The signed frame, base64.
    pub frame: String,
}

impl GenesisRecord {
    /// Keeps a frame.
    pub fn new(mutation_hash: &[u8; 32], frame: &[u8]) -> GenesisRecord {
        GenesisRecord { mutation_hash: HEXLOWER.encode(mutation_hash), frame: BASE64.encode(frame) }
    }

    /// The frame, `None` when the record was damaged.
    pub fn frame(&self) -> Option<Bytes> {
        BASE64.decode(self.frame.as_bytes()).ok().map(Into::into)
    }

    /// The mutation hash, `None` when the record was damaged.
    pub fn mutation_hash(&self) -> Option<[u8; 32]> {
        HEXLOWER.decode(self.mutation_hash.as_bytes()).ok()?.try_into().ok()
    }
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteRecord {
    /// The name people use.
    pub name: String,
    /// The incarnation's UUID, 32 hex digits.
    pub route: String,
    /// Whose messages it carries.
    pub tenant: String,
    /// How far it has come.
    pub state: RouteState,
    /// Where its log is.
    pub log: RouteLog,
    /// By partition.
    pub genesis: Vec<GenesisRecord>,
}

impl RouteRecord {
    /// The incarnation's UUID, `None` when the record was damaged.
    pub fn route_id(&self) -> Option<RouteId> {
        parse_uuid(&self.route).map(RouteId)
    }

    /// How many shards it has.
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.genesis.len()).unwrap_or(u32::MAX)
    }

    /// Its shards with their genesis, `None` when the record was damaged.
    pub fn shards(&self) -> Option<Vec<(ShardId, &GenesisRecord)>> {
        let route = self.route_id()?;
        let shard = |(partition, genesis)| (ShardId { route, partition }, genesis);
        Some((0..).zip(&self.genesis).map(shard).collect())
    }
}

impl Record for RouteRecord {
    const NAME: &'static str = "route";

    fn check_successor(&self, next: &RouteRecord) -> Result<(), String> {
        let fixed = RouteRecord { state: next.state, ..self.clone() };
        if fixed != *next {
            return Err("only the state of a route may change".to_owned());
        }
        if (self.state, next.state) == (RouteState::Active, RouteState::Creating) {
            return Err("an active route is never in creation again".to_owned());
        }
        Ok(())
    }
}

/// Key of a route's record.
pub fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Prefix of all routes.
pub const PREFIX: &str = "/nereus/routes/";

/// 16 bytes from 32 hex digits.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// 32 hex digits of 16 bytes.
pub fn format_uuid(bytes: &[u8; 16]) -> String {
    HEXLOWER.encode(bytes)
}
