//! Identities that follow from others (protocol registry §2.7).
//!
//! None of them is random: whoever knows the inputs knows the identity, so a replay or another node finds the same one.

use crate::hash::{Hash, Preimage};
use crate::id::{CommandId, IdBytes, MessageId};
use crate::position::SourcePosition;

/// The reservation that a `PrepareLarge` command makes.
#[must_use]
pub fn reservation_id(
    command: &impl IdBytes<CommandId>,
    message: &impl IdBytes<MessageId>,
    command_hash: &Hash,
) -> Hash {
    Preimage::new("nereus-delay-reservation-id-v1\0")
        .bytes(&command.id_bytes())
        .bytes(&message.id_bytes())
        .bytes(command_hash)
        .sha256()
}

/// The attempt that an admission record opens, body version 2: `admission` is where the record stands.
#[must_use]
pub fn attempt_id(
    message: &impl IdBytes<MessageId>,
    generation: u32,
    attempt: u32,
    admission: &SourcePosition,
) -> Hash {
    Preimage::new("nereus-delay-attempt-v2\0")
        .bytes(&message.id_bytes())
        .u32(generation)
        .u32(attempt)
        .bytes(&admission.to_bytes())
        .sha256()
}

/// The claim of body version 1.
#[must_use]
pub fn claim_id(
    store_incarnation: &[u8; 16],
    owner_epoch: u64,
    claim_sequence: u64,
    message: &impl IdBytes<MessageId>,
    generation: u32,
    lane_version: u64,
) -> Hash {
    Preimage::new("nereus-delay-claim-id-v1\0")
        .bytes(store_incarnation)
        .u64(owner_epoch)
        .u64(claim_sequence)
        .bytes(&message.id_bytes())
        .u32(generation)
        .u64(lane_version)
        .sha256()
}

/// The publish attempt of body version 1.
#[must_use]
pub fn publish_attempt_id(
    claim_id: &Hash,
    message: &impl IdBytes<MessageId>,
    generation: u32,
    attempt_no: u32,
) -> Hash {
    Preimage::new("nereus-delay-publish-attempt-id-v1\0")
        .bytes(claim_id)
        .bytes(&message.id_bytes())
        .u32(generation)
        .u32(attempt_no)
        .sha256()
}

/// The export of a dead letter.
#[must_use]
pub fn dlq_export_id(message: &impl IdBytes<MessageId>, generation: u32, terminal_revision: u64) -> Hash {
    Preimage::new("nereus-delay-dlq-export-id-v1\0")
        .bytes(&message.id_bytes())
        .u32(generation)
        .u64(terminal_revision)
        .sha256()
}

/// Logical identity of one expiry, body version 1 (protocol registry §2.5; the domain has no NUL).
#[must_use]
pub fn expiry_logical_id(message: &impl IdBytes<MessageId>, generation: u32, expire_at_ms: i64) -> Hash {
    Preimage::new("nereus-delay-expiry-logical-id-v1")
        .bytes(&message.id_bytes())
        .u32(generation)
        .i64(expire_at_ms)
        .sha256()
}

/// Logical identity of one numbered export attempt, body version 1 (protocol registry §2.5).
#[must_use]
pub fn dlq_export_attempt_logical_id(export_id: &Hash, attempt_no: u32) -> Hash {
    Preimage::new("nereus-delay-dlq-export-attempt-logical-id-v1\0").bytes(export_id).u32(attempt_no).sha256()
}

/// Logical identity of one piece of evidence about an export, body version 1 (protocol registry §2.5).
#[must_use]
pub fn dlq_export_evidence_logical_id(export_id: &Hash, evidence_id: &Hash) -> Hash {
    Preimage::new("nereus-delay-dlq-export-evidence-logical-id-v1\0").bytes(export_id).bytes(evidence_id).sha256()
}

/// Logical identity of one piece of evidence about an attempt, body version 1 (protocol registry §2.5).
#[must_use]
pub fn evidence_resolution_logical_id(attempt_id: &Hash, evidence_id: &Hash) -> Hash {
    Preimage::new("nereus-delay-evidence-resolution-logical-id-v1\0").bytes(attempt_id).bytes(evidence_id).sha256()
}

/// Logical identity of one target of a control operation, body version 1 (protocol registry §2.5): `kind` is the control kind of
/// an `APPLY_SHARD_CONTROL`, otherwise the mutation type.
#[must_use]
pub fn control_target_logical_id(operation_id: &Hash, target_index: u32, kind: u16) -> Hash {
    Preimage::new("nereus-delay-control-target-logical-id-v1\0")
        .bytes(operation_id)
        .u32(target_index)
        .u16(kind)
        .sha256()
}

/// Logical identity of one promise to delete, body version 1 (protocol registry §2.5; the domain has no NUL).
#[must_use]
pub fn retire_logical_id(resource_kind: u8, resource_identity_hash: &Hash, expected_version: u64) -> Hash {
    Preimage::new("nereus-delay-retire-logical-id-v1")
        .u8(resource_kind)
        .bytes(resource_identity_hash)
        .u64(expected_version)
        .sha256()
}

/// Hash of an exact resource identity: `identity` is its canonical encoding.
#[must_use]
pub fn resource_identity_hash(identity: &[u8]) -> Hash {
    Preimage::new("nereus-delay-resource-identity-v1\0").bytes(identity).sha256()
}

/// Identity of publish evidence, body version 1: `branch` is the canonical encoding of its selected branch.
#[must_use]
pub fn evidence_id(kind: u16, status: u16, branch: &[u8]) -> Hash {
    Preimage::new("nereus-delay-publish-evidence-v1\0").u16(kind).u16(status).bytes(branch).sha256()
}

/// Identity of a time fence, body version 1: `proof_time` is the canonical encoding of the trusted interval.
#[must_use]
pub fn time_fence_proof_id(
    shard: crate::id::ShardId,
    close_through_ms: i64,
    fence_key_version: u32,
    proof_time: &[u8],
) -> Hash {
    Preimage::new("nereus-delay-time-fence-proof-v1\0")
        .bytes(&shard.route.0)
        .u32(shard.partition)
        .i64(close_through_ms)
        .u32(fence_key_version)
        .lp32(proof_time)
        .sha256()
}
