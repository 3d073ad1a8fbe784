//! Destinations as people name them, and the profile versions that messages are bound to.
//!
//! A change makes a new version in state ACTIVATING, is applied by every shard, and only then becomes the one that new messages
//! bind. A crash in between leaves an activating version, which is finished by repeating the request.

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use protocol::mutation_v2::DestinationProfile;
use protocol::policy::RetryPolicy;
use serde::{Deserialize, Serialize};

use crate::cas::Record;

/// How far a version has come. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionState {
    /// Some shards may not have applied it yet.
    Activating,
    /// Every shard has applied it.
    Active,
    /// Every shard refuses new messages for it; those it has are delivered.
    Deprecated,
}

/// One version of a destination's profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestinationVersion {
    /// From 1.
    pub version: u64,
    /// How far it has come.
    pub state: VersionState,
    /// The request it was made from, normalised: the same request again makes no new version.
    pub spec: serde_json::Value,
    /// The canonical profile, base64.
    pub profile: String,
    /// Its semantic hash, 64 hex digits.
    pub semantic_hash: String,
    /// The canonical retry policy it refers to, base64.
    pub retry_policy: String,
    /// When it was made, epoch milliseconds.
    pub created_at_ms: i64,
}

impl DestinationVersion {
    /// The profile, `None` when the record was damaged.
    pub fn profile(&self) -> Option<DestinationProfile> {
        DestinationProfile::decode(&decode_base64(&self.profile)?).ok()
    }

    /// The semantic hash, `None` when the record was damaged.
    pub fn semantic_hash(&self) -> Option<[u8; 32]> {
        HEXLOWER.decode(self.semantic_hash.as_bytes()).ok()?.try_into().ok()
    }

    /// The retry policy, `None` when the record was damaged.
    pub fn retry_policy(&self) -> Option<RetryPolicy> {
        RetryPolicy::decode(&decode_base64(&self.retry_policy)?).ok()
    }
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestinationRecord {
    /// The name people use; also the profile id.
    pub name: String,
    /// Ascending by version, at least one.
    pub versions: Vec<DestinationVersion>,
    /// Whether an operator wants its gate closed. Every shard's log follows, at the latest at the next start.
    pub paused: bool,
}

impl DestinationRecord {
    /// The version that new messages bind: the newest active one.
    pub fn current(&self) -> Option<&DestinationVersion> {
        self.versions.iter().rev().find(|version| version.state == VersionState::Active)
    }

    /// A version.
    pub fn version(&self, version: u64) -> Option<&DestinationVersion> {
        self.versions.iter().find(|candidate| candidate.version == version)
    }
}

impl Record for DestinationRecord {
    const NAME: &'static str = "destination";

    fn check_successor(&self, next: &DestinationRecord) -> Result<(), String> {
        if next.name != self.name {
            return Err("a destination keeps its name".to_owned());
        }
        for old in &self.versions {
            let Some(new) = next.version(old.version) else {
                return Err(format!("version {} may not disappear", old.version));
            };
            let fixed = DestinationVersion { state: new.state, ..old.clone() };
            if fixed != *new {
                return Err(format!("version {} is immutable", old.version));
            }
            if new.state < old.state {
                return Err(format!("version {} was {:?} and cannot be {:?} again", old.version, old.state, new.state));
            }
        }
        if !next.versions.is_sorted_by(|a, b| a.version < b.version) {
            return Err("versions ascend".to_owned());
        }
        Ok(())
    }
}

/// Keeps bytes in a record.
pub fn encode_base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

fn decode_base64(text: &str) -> Option<Bytes> {
    BASE64.decode(text.as_bytes()).ok().map(Into::into)
}

/// Key of a destination's record.
pub fn key(tenant: &str, name: &str) -> String {
    format!("{}{name}", prefix(tenant))
}

/// Prefix of a tenant's destinations.
pub fn prefix(tenant: &str) -> String {
    format!("/nereus/destinations/{tenant}/")
}
