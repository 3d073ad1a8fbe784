//! Parts of inputs that several kinds of cases share.

use bytes::Bytes;
use ed25519_dalek::{SigningKey, VerifyingKey};
use protocol::id::{MessageId, RouteId, ShardId, Uuid7};
use protocol::reference::{ProfileRef, RetryPolicyRef, TrustSetRef};
use protocol::resource::Resource;
use protocol::v1;

use super::json::{Node, Problem};

pub(super) const COMMAND_TYPES: [(&str, i128); 5] =
    [("SCHEDULE", 1), ("PREPARE_LARGE_SCHEDULE", 2), ("COMMIT_LARGE_SCHEDULE", 3), ("CANCEL", 4), ("RESCHEDULE", 5)];
pub(super) const ORDERING_MODES: [(&str, i128); 2] = [("BEST_EFFORT", 1), ("DELIVERY_TIME_FIFO", 2)];
pub(super) const ADAPTERS: [(&str, i128); 3] = [("KAFKA", 1), ("PULSAR", 2), ("EMBEDDED", 3)];

/// `route_incarnation_hex` and `partition`.
pub(super) fn shard(node: &Node<'_>) -> Result<ShardId, Problem> {
    let route = RouteId(node.get("route_incarnation_hex")?.array()?);
    Ok(ShardId { route, partition: node.get("partition")?.number()? })
}

pub(super) fn uuid(node: &Node<'_>) -> Result<Uuid7, Problem> {
    Uuid7::from_bytes(node.array()?).map_err(|error| Problem::refused("uuid", error))
}

pub(super) fn message_id(node: &Node<'_>) -> Result<MessageId, Problem> {
    MessageId::from_bytes(&node.bytes()?).map_err(|error| Problem::refused("message id", error))
}

pub(super) fn profile_ref(node: &Node<'_>) -> Result<ProfileRef, Problem> {
    Ok(ProfileRef {
        id: node.get("profile_id_hex")?.bytes()?,
        version: node.get("version")?.number()?,
        semantic_hash: node.get("semantic_hash_hex")?.array()?,
    })
}

pub(super) fn policy_ref(node: &Node<'_>) -> Result<RetryPolicyRef, Problem> {
    Ok(RetryPolicyRef {
        id: node.get("policy_id_hex")?.bytes()?,
        version: node.get("version")?.number()?,
        semantic_hash: node.get("semantic_hash_hex")?.array()?,
    })
}

pub(super) fn trust_set_ref(node: &Node<'_>) -> Result<TrustSetRef, Problem> {
    Ok(TrustSetRef { version: node.get("version")?.number()?, semantic_hash: node.get("semantic_hash_hex")?.array()? })
}

pub(super) fn resource(node: &Node<'_>) -> Result<Resource, Problem> {
    let cluster = |key: &str| Ok::<_, Problem>(node.get(key)?.text()?.into());
    // Where the adapter is not named it shows in the fields.
    let adapter = match node.maybe("adapter") {
        Some(adapter) => adapter.text()?,
        None if node.maybe("cluster_id").is_none() => "EMBEDDED",
        None if node.maybe("topic_uuid_hex").is_some() => "KAFKA",
        None => "PULSAR",
    };
    match adapter {
        "KAFKA" => {
            Ok(Resource::Kafka { cluster_id: cluster("cluster_id")?, topic: node.get("topic_uuid_hex")?.array()? })
        }
        "PULSAR" => Ok(Resource::Pulsar {
            cluster_id: cluster("cluster_id")?,
            incarnation: node.get("resource_incarnation_hex")?.array()?,
            topic: node.get("physical_topic")?.text()?.into(),
            creation_time_ms: node.get("topic_creation_timestamp")?.number()?,
        }),
        "EMBEDDED" => Ok(Resource::Embedded { topic: node.get("topic_uuid_hex")?.array()? }),
        other => Err(Problem::Refused(format!("adapter {other} is not known here"))),
    }
}

/// The key of a case. Its public half, where the file gives one, must belong to it.
pub(super) fn signing_key(node: &Node<'_>) -> Result<SigningKey, Problem> {
    let key = SigningKey::from_bytes(&node.get("ed25519_seed_hex")?.array()?);
    if let Some(public) = node.maybe("ed25519_public_key_hex") {
        let public: [u8; 32] = public.array()?;
        let public = VerifyingKey::from_bytes(&public).map_err(|error| Problem::refused("public key", error))?;
        if public != key.verifying_key() {
            return Err(Problem::Refused("the public key is not that of the seed".to_owned()));
        }
    }
    Ok(key)
}

/// A trusted interval as evidence of body version 1.
pub(super) fn interval(node: &Node<'_>) -> Result<v1::TrustedUtcInterval, Problem> {
    const SOURCES: [(&str, i128); 4] = [
        ("KAFKA_LOG_APPEND_TIME", 1),
        ("PULSAR_BROKER_ENTRY_TIME", 2),
        ("CERTIFIED_HOST_CLOCK", 3),
        ("SIGNED_TIME_SERVICE", 4),
    ];
    Ok(v1::TrustedUtcInterval {
        earliest_ms: node.get("earliest_epoch_ms")?.number()?,
        latest_ms: node.get("latest_epoch_ms")?.number()?,
        source: node.wire("source", &SOURCES)?,
        source_id: node.get("source_id_hex")?.bytes()?,
        source_config_generation: node.get("source_config_generation")?.number()?,
        sample_sequence: node.get("sample_sequence")?.number()?,
        monotonic_anchor_ns: node.get("monotonic_anchor_ns")?.number()?,
        source_evidence_sha256: node.get("source_evidence_sha256_hex")?.bytes()?,
        source_key_version: node.get("source_key_version")?.number()?,
        source_signature: maybe_bytes(node, "source_signature_hex")?,
    })
}

pub(super) fn maybe_bytes(node: &Node<'_>, key: &str) -> Result<Option<Bytes>, Problem> {
    node.maybe(key).map(|node| node.bytes()).transpose()
}

pub(super) fn maybe_number<T: TryFrom<i128>>(node: &Node<'_>, key: &str) -> Result<Option<T>, Problem> {
    node.maybe(key).map(|node| node.number()).transpose()
}

/// `found` must be `given`: the way back of a check.
pub(super) fn same<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, found: &T, given: &T) -> Result<(), Problem> {
    if found == given {
        return Ok(());
    }
    Err(Problem::Refused(format!("{what} decodes to something else: {found:?} instead of {given:?}")))
}

/// A case that has no more to it than a count of at least one.
pub(super) fn count(node: &Node<'_>) -> Result<std::num::NonZeroU32, Problem> {
    std::num::NonZeroU32::new(node.number()?).ok_or_else(|| Problem::Refused("a count of zero".to_owned()))
}
