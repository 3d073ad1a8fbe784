//! INITIAL_ROUTE_CONTROL_ACTIVATE: the first record of every partition (v2 §7).
//!
//! Genesis is signed by a key it carries itself, so its authority is its hash: the one in the route record and in the store's
//! identity. A log that starts with anything else is not ours.

use protocol::id::ShardId;
use protocol::mutation_v2::{ControlPayload, MutationBody, MutationV2, ShardControl};
use protocol::record::{LogRecord, RecordError};

use crate::commit::ShardIdentity;
use crate::state::constitution::{Constitution, Role};

/// Why a log's first record is not this shard's genesis. The shard must not be opened on such a log.
#[derive(Debug, thiserror::Error)]
pub enum GenesisRefusal {
    /// The record does not decode, or is of another type.
    #[error("the log starts with {found} instead of a genesis record")]
    NotGenesis {
        /// What it starts with.
        found: String,
    },
    /// A genesis, but another one than the route record names.
    #[error("the log starts with genesis {found} instead of {expected}")]
    OtherGenesis {
        /// Hash of the expected record, hex.
        expected: String,
        /// Hash of the record there, hex.
        found: String,
    },
    /// The right hash, but of another partition than the one being opened.
    #[error("the log starts with the genesis of shard {found} instead of {expected}")]
    OtherShard {
        /// The shard being opened.
        expected: ShardId,
        /// The shard that the record founds.
        found: ShardId,
    },
    /// The right hash under a signature that its own control key does not verify.
    #[error("the genesis record's signature does not verify under its own control key of version {key_version}")]
    Signature {
        /// The version it names.
        key_version: u32,
    },
}

/// Founds a shard's constitution on the log's first record.
///
/// # Errors
/// [`GenesisRefusal`] when the record is not the expected genesis.
pub(crate) fn begin(
    decoded: Result<LogRecord, RecordError>,
    expected: &ShardIdentity,
) -> Result<Constitution, GenesisRefusal> {
    let mutation = match decoded {
        Ok(LogRecord::MutationV2(mutation)) => mutation,
        Ok(LogRecord::MutationV1(_)) => return Err(not_genesis("a version 1 mutation".to_owned())),
        Ok(LogRecord::Command(command)) => return Err(not_genesis(format!("command {}", command.command_id))),
        Err(error) => return Err(not_genesis(format!("an unreadable record ({error})"))),
    };
    let MutationBody::ShardControl(ShardControl { payload: ControlPayload::Genesis(genesis), .. }) = &mutation.body
    else {
        return Err(not_genesis(format!("a {} record", mutation.mutation_type().name())));
    };
    if mutation.hash != expected.genesis_hash {
        return Err(GenesisRefusal::OtherGenesis { expected: hex(&expected.genesis_hash), found: hex(&mutation.hash) });
    }
    if genesis.shard != expected.shard {
        return Err(GenesisRefusal::OtherShard { expected: expected.shard, found: genesis.shard });
    }
    Constitution::found(genesis, mutation.hash)
        .filter(|constitution| verifies(constitution, &mutation))
        .ok_or(GenesisRefusal::Signature { key_version: mutation.signing_key_version })
}

fn verifies(constitution: &Constitution, mutation: &MutationV2) -> bool {
    constitution.verifying_key(mutation.signing_key_version, Role::Control).is_some_and(|key| mutation.verify(key))
}

fn not_genesis(found: String) -> GenesisRefusal {
    GenesisRefusal::NotGenesis { found }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
