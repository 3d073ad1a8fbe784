//! Mutations of body version 2, and the objects that control records carry.

use ed25519_dalek::SigningKey;
use protocol::code::StableCode;
use protocol::hash::sha256;
use protocol::lane::LaneId;
use protocol::mutation_v2::{
    Absence, AbsenceKind, Admission, AllowedOrdering, AttemptResult, Author, ClaimResult, ControlPayload,
    DestinationProfile, DestinationRebind, Disposition, Genesis, KafkaReceipt, Limits, MutationBody, MutationV2,
    OperatorStatement, Outcome, OutcomeCapability, Outcomes, OwnerEpoch, PartitionPolicy, ProfileActivate,
    ProfileVersion, PublishAdmission, PublishedEvidence, PulsarAck, Refusal, Roles, ShardControl, SigningKeyEntry,
    Stamp, TimeFence, TimestampPolicy, TopicAck,
};
use protocol::policy::{DlqExport, RetryPolicy, UncertainPolicy};
use protocol::record::{self, LogRecord};
use protocol::text::Text;

use super::compare::Computed;
use super::json::{Node, Problem};
use super::mutation::code as code_number;
use super::shared::{maybe_number, policy_ref, resource, same, shard, signing_key, uuid};

pub(super) fn system_mutation_v2(input: &Node<'_>) -> Result<Computed, Problem> {
    let key = signing_key(&input.get("signing_key")?)?;
    let mutation = build(input, &key)?;
    let frame = mutation.encode_frame();
    match record::decode(&frame) {
        Ok(LogRecord::MutationV2(decoded)) => same("mutation", &decoded, &mutation)?,
        Ok(_) => return Err(Problem::Refused("the frame holds another kind of record".to_owned())),
        Err(error) => return Err(Problem::refused("frame", error)),
    }
    same("verdict on the signature", &mutation.verify(&key.verifying_key()), &true)?;
    let mut computed = Computed::default();
    computed.bytes("author_identity", mutation.author.encode());
    computed.bytes("canonical_body", &mutation.body_bytes);
    computed.bytes("logical_operation_identity", mutation.body.logical_identity());
    computed.bytes("mutation_hash", mutation.hash);
    computed.bytes("system_mutation_id", mutation.mutation_id);
    computed.bytes("signature_digest", mutation.signature_digest());
    computed.bytes("signature", mutation.signature);
    computed.json("frame_length", frame.len());
    computed.bytes("frame_sha256", sha256(&frame));
    computed.bytes("frame", frame);
    Ok(computed)
}

fn build(input: &Node<'_>, key: &SigningKey) -> Result<MutationV2, Problem> {
    let author = input.get("author")?;
    let author = match author.get("kind")?.text()? {
        "OWNER" => Author::Owner {
            epoch: author.get("epoch")?.number()?,
            worker_run_id: author.get("worker_run_id_hex")?.array()?,
        },
        "CONTROL" => Author::Control {
            principal: author.get("principal")?.text()?.to_owned(),
            role: author.get("role")?.text()?.to_owned(),
        },
        other => return Err(Problem::Refused(format!("author {other} is not known here"))),
    };
    let body = body(input.get("mutation_type")?.text()?, &input.get("body")?)?;
    let retry_until_ms = input.get("retry_until_epoch_ms")?.number()?;
    let key_version = input.get("signing_key_version")?.number()?;
    MutationV2::sign(shard(input)?, author, retry_until_ms, body, key_version, key)
        .map_err(|error| Problem::refused("mutation", error))
}

fn stamp(body: &Node<'_>) -> Result<Stamp, Problem> {
    let node = body.get("stamp")?;
    Ok(Stamp {
        epoch: node.get("epoch")?.number()?,
        owner_sequence: node.get("owner_sequence")?.number()?,
        earliest_ms: node.get("earliest_epoch_ms")?.number()?,
        latest_ms: node.get("latest_epoch_ms")?.number()?,
    })
}

fn entries<T>(body: &Node<'_>, entry: impl Fn(&Node<'_>) -> Result<T, Problem>) -> Result<Vec<T>, Problem> {
    body.get("entries")?.items()?.iter().map(entry).collect()
}

fn code(node: &Node<'_>) -> Result<StableCode, Problem> {
    StableCode::try_from(code_number(node, "code")?).map_err(|error| Problem::refused("code", error))
}

fn body(mutation_type: &str, node: &Node<'_>) -> Result<MutationBody, Problem> {
    Ok(match mutation_type {
        "OWNER_EPOCH" => MutationBody::OwnerEpoch(OwnerEpoch {
            stamp: stamp(node)?,
            store_incarnation: node.get("store_incarnation_hex")?.array()?,
            previous_epoch: node.get("previous_epoch")?.number()?,
        }),
        "PUBLISH_ADMISSION" => MutationBody::PublishAdmission(PublishAdmission {
            stamp: stamp(node)?,
            entries: entries(node, |entry| {
                Ok(Admission {
                    message: uuid(&entry.get("message_uuid_hex")?)?,
                    generation: entry.get("generation")?.number()?,
                    log_rev: entry.get("log_rev")?.number()?,
                    sequence: maybe_number(entry, "sequence")?,
                })
            })?,
        }),
        "PUBLISH_OUTCOME" => {
            MutationBody::PublishOutcome(Outcomes { stamp: stamp(node)?, entries: entries(node, outcome)? })
        }
        "EVIDENCE_RESOLUTION" => {
            MutationBody::EvidenceResolution(Outcomes { stamp: stamp(node)?, entries: entries(node, outcome)? })
        }
        "CLAIM_RESULT" => MutationBody::ClaimResult(ClaimResult {
            stamp: stamp(node)?,
            entries: entries(node, |entry| {
                Ok(Refusal {
                    message: uuid(&entry.get("message_uuid_hex")?)?,
                    generation: entry.get("generation")?.number()?,
                    log_rev: entry.get("log_rev")?.number()?,
                    code: code(entry)?,
                })
            })?,
        }),
        "TIME_FENCE" => MutationBody::TimeFence(TimeFence {
            stamp: stamp(node)?,
            close_through_ms: node.get("close_through_epoch_ms")?.number()?,
            expire_max: node.get("expire_max")?.number()?,
        }),
        "APPLY_SHARD_CONTROL" => MutationBody::ShardControl(ShardControl {
            operation_id: node.get("operation_id_hex")?.array()?,
            expected_version: maybe_number(node, "expected_version")?,
            payload: control(node.get("control")?.text()?, &node.get("payload")?)?,
        }),
        other => return Err(Problem::Refused(format!("mutation type {other} is not known here"))),
    })
}

fn outcome(node: &Node<'_>) -> Result<Outcome, Problem> {
    let result = match node.get("side_effect")?.text()? {
        "PUBLISHED" => AttemptResult::Published(published(&node.get("evidence")?)?),
        "NOT_PUBLISHED" => {
            let absence = node.get("evidence")?;
            let kind = AbsenceKind::from_u32(absence.get("absence_kind")?.number()?)
                .ok_or_else(|| Problem::Refused("no such kind of absence".to_owned()))?;
            AttemptResult::NotPublished {
                disposition: match node.get("disposition")?.text()? {
                    "MESSAGE_RETRIABLE" => Disposition::MessageRetriable,
                    "MESSAGE_PERMANENT" => Disposition::MessagePermanent,
                    "LANE_UNAVAILABLE" => Disposition::LaneUnavailable,
                    other => return Err(Problem::Refused(format!("disposition {other} is not known here"))),
                },
                absence: Absence { kind, digest: absence.get("digest_hex")?.array()? },
            }
        }
        "UNKNOWN" => AttemptResult::Unknown,
        other => return Err(Problem::Refused(format!("side effect {other} is not known here"))),
    };
    Ok(Outcome {
        message: uuid(&node.get("message_uuid_hex")?)?,
        generation: node.get("generation")?.number()?,
        attempt: node.get("attempt")?.number()?,
        result,
        code: code(node)?,
    })
}

fn published(node: &Node<'_>) -> Result<PublishedEvidence, Problem> {
    let topic_ack = || {
        Ok::<_, Problem>(TopicAck {
            topic: node.get("topic_uuid_hex")?.array()?,
            partition: node.get("partition")?.number()?,
            offset: node.get("offset")?.number()?,
            time_ms: node.get("time_epoch_ms")?.number()?,
        })
    };
    Ok(match node.get("kind")?.text()? {
        "EMBEDDED_ACK" => PublishedEvidence::Embedded(topic_ack()?),
        "KAFKA_ACK" => PublishedEvidence::Kafka(topic_ack()?),
        "PULSAR_ACK" => PublishedEvidence::Pulsar(PulsarAck {
            partition: node.get("partition")?.number()?,
            ledger: node.get("ledger_id")?.number()?,
            entry: node.get("entry_id")?.number()?,
            batch_index: node.get("batch_index")?.number()?,
            time_ms: node.get("time_epoch_ms")?.number()?,
        }),
        "KAFKA_RECEIPT" => PublishedEvidence::KafkaReceipt(KafkaReceipt {
            topic: node.get("topic_uuid_hex")?.array()?,
            partition: node.get("partition")?.number()?,
            offset: node.get("offset")?.number()?,
        }),
        "OPERATOR" => PublishedEvidence::Operator(OperatorStatement {
            principal: node.get("principal")?.text()?.to_owned(),
            statement_sha256: node.get("statement_sha256_hex")?.array()?,
        }),
        other => return Err(Problem::Refused(format!("evidence {other} is not known here"))),
    })
}

fn control(name: &str, node: &Node<'_>) -> Result<ControlPayload, Problem> {
    let version = || {
        Ok::<_, Problem>(ProfileVersion {
            id: node.get("profile_id_hex")?.bytes()?,
            version: node.get("version")?.number()?,
        })
    };
    let lane = || Ok::<_, Problem>(LaneId(node.get("lane_id_hex")?.array()?));
    Ok(match name {
        "PROFILE_BINDING_ACTIVATE" => ControlPayload::ProfileActivate(ProfileActivate {
            profile: version()?,
            body: Box::new(profile(&node.get("profile")?)?),
        }),
        "PROFILE_NEW_BINDING_CLOSE" => ControlPayload::ProfileClose(version()?),
        "STOP_NEW_SCHEDULES" => ControlPayload::StopNewSchedules,
        "PAUSE_DESTINATION_LANE" => ControlPayload::LanePause(lane()?),
        "RESUME_DESTINATION_LANE" => ControlPayload::LaneResume(lane()?),
        "INITIAL_ROUTE_CONTROL_ACTIVATE" => ControlPayload::Genesis(Box::new(genesis(node)?)),
        "KEY_ADD" => ControlPayload::KeyAdd(signing_key_entry(&node.get("key")?)?),
        "KEY_RETIRE" => ControlPayload::KeyRetire { version: node.get("version")?.number()? },
        "PAUSE_DESTINATION" => ControlPayload::DestinationPause { profile_id: node.get("profile_id_hex")?.bytes()? },
        "RESUME_DESTINATION" => ControlPayload::DestinationResume { profile_id: node.get("profile_id_hex")?.bytes()? },
        "RETRY_POLICY_ACTIVATE" => ControlPayload::RetryPolicyActivate(Box::new(policy(&node.get("policy")?)?)),
        "RETRY_POLICY_CLOSE" => ControlPayload::RetryPolicyClose {
            policy_id: node.get("policy_id_hex")?.bytes()?,
            version: node.get("version")?.number()?,
        },
        "DESTINATION_REBIND" => ControlPayload::DestinationRebind(Box::new(DestinationRebind {
            profile_id: node.get("profile_id_hex")?.bytes()?,
            resource: resource(&node.get("resource")?)?,
        })),
        other => return Err(Problem::Refused(format!("control {other} is not known here"))),
    })
}

fn signing_key_entry(node: &Node<'_>) -> Result<SigningKeyEntry, Problem> {
    let mut roles = Roles::default();
    for role in node.get("roles")?.items()? {
        match role.text()? {
            "OWNER" => roles.owner = true,
            "CONTROL" => roles.control = true,
            other => return Err(Problem::Refused(format!("role {other} is not known here"))),
        }
    }
    let public_key = node.get("ed25519_public_key_hex")?.array()?;
    Ok(SigningKeyEntry { version: node.get("version")?.number()?, public_key, roles })
}

fn genesis(node: &Node<'_>) -> Result<Genesis, Problem> {
    let keys = node.get("keys")?.items()?;
    Ok(Genesis {
        shard: shard(node)?,
        partition_count: node.get("partition_count")?.number()?,
        tenant_scope: node.get("tenant_routing_scope_hex")?.array()?,
        limits: limits(&node.get("limits")?)?,
        keys: keys.iter().map(signing_key_entry).collect::<Result<_, _>>()?,
    })
}

fn limits(node: &Node<'_>) -> Result<Limits, Problem> {
    let duration = |key: &str| node.get(key)?.number::<i64>();
    Ok(Limits {
        delay_ms_max: duration("delay_ms_max")?,
        lifetime_ms_max: duration("lifetime_ms_max")?,
        delivery_window_ms_min: duration("delivery_window_ms_min")?,
        preparation_age_ms_max: duration("preparation_age_ms_max")?,
        uuid_future_skew_ms_max: duration("uuid_future_skew_ms_max")?,
        command_retry_window_ms: duration("command_retry_window_ms")?,
        control_retry_window_ms_max: duration("control_retry_window_ms_max")?,
        broker_time_divergence_ms_max: duration("broker_time_divergence_ms_max")?,
        fence_margin_ms: duration("fence_margin_ms")?,
        clock_interval_ms_max: duration("clock_interval_ms_max")?,
        terminal_retention_ms: duration("terminal_retention_ms")?,
        dead_letter_retention_ms: duration("dead_letter_retention_ms")?,
        receipt_query_window_ms: duration("receipt_query_window_ms")?,
        active_messages_max: node.get("active_messages_max")?.number()?,
        active_bytes_max: node.get("active_bytes_max")?.number()?,
        lanes_max: node.get("lanes_max")?.number()?,
        entries_per_record_max: node.get("entries_per_record_max")?.number()?,
        expire_per_fence_max: node.get("expire_per_fence_max")?.number()?,
        business_key_bytes_max: node.get("business_key_bytes_max")?.number()?,
    })
}

fn profile(node: &Node<'_>) -> Result<DestinationProfile, Problem> {
    let capability = OutcomeCapability::from_u32(node.get("outcome_capability")?.number()?)
        .ok_or_else(|| Problem::Refused("no such outcome capability".to_owned()))?;
    let mut ordering = AllowedOrdering::default();
    for mode in node.get("ordering_modes")?.items()? {
        match mode.text()? {
            "BEST_EFFORT" => ordering.best_effort = true,
            "DELIVERY_TIME_FIFO" => ordering.delivery_time_fifo = true,
            other => return Err(Problem::Refused(format!("ordering mode {other} is not known here"))),
        }
    }
    Ok(DestinationProfile {
        resource: resource(&node.get("resource")?)?,
        partition_count: node.get("partition_count")?.number()?,
        partition_policy: match node.get("partition_policy")?.text()? {
            "MURMUR2_KEY" => PartitionPolicy::Murmur2Key,
            "REGISTRY_HASH" => PartitionPolicy::RegistryHash,
            "EXPLICIT" => PartitionPolicy::Explicit { partition: node.get("explicit_partition")?.number()? },
            other => return Err(Problem::Refused(format!("partition policy {other} is not known here"))),
        },
        outcome_capability: capability,
        ordering,
        record_bytes_max: node.get("record_bytes_max")?.number()?,
        header_reserve_bytes: node.get("header_reserve_bytes")?.number()?,
        lane_bucket_count: node.get("lane_bucket_count")?.number()?,
        expires_after_ms: node.get("expires_after_ms")?.number()?,
        delay_ms_max: node.get("delay_ms_max")?.number()?,
        retry_policy: policy_ref(&node.get("retry_policy")?)?,
        display_name: Text::try_from(node.get("display_name")?.text()?)
            .map_err(|error| Problem::refused("display name", error))?,
        timestamp_policy: match node.maybe("timestamp_policy") {
            None => TimestampPolicy::EventTime,
            Some(policy) => match policy.text()? {
                "EVENT_TIME" => TimestampPolicy::EventTime,
                "DELIVERY_TIME" => TimestampPolicy::DeliveryTime,
                other => return Err(Problem::Refused(format!("timestamp policy {other} is not known here"))),
            },
        },
    })
}

fn policy(node: &Node<'_>) -> Result<RetryPolicy, Problem> {
    let dlq = match node.maybe("dlq_export") {
        None => DlqExport::NotConfigured,
        Some(dlq) => DlqExport::AtLeastOnce {
            initial_backoff_ms: dlq.get("initial_backoff_ms")?.number()?,
            backoff_ms_max: dlq.get("backoff_ms_max")?.number()?,
            attempts_max: dlq.get("attempts_max")?.number()?,
            retry_duration_ms_max: dlq.get("retry_duration_ms_max")?.number()?,
            allow_possible_duplicate: dlq.get("allow_possible_duplicate")?.boolean()?,
        },
    };
    Ok(RetryPolicy {
        id: node.get("policy_id_hex")?.bytes()?,
        version: node.get("version")?.number()?,
        initial_backoff_ms: node.get("initial_backoff_ms")?.number()?,
        backoff_ms_max: node.get("backoff_ms_max")?.number()?,
        publish_admissions_max: node.get("publish_admissions_max")?.number()?,
        retry_duration_ms_max: node.get("retry_duration_ms_max")?.number()?,
        uncertain: match node.get("uncertain_policy")?.text()? {
            "HOLD_FOR_EVIDENCE" => UncertainPolicy::HoldForEvidence,
            "BOUNDED_RETRY_POSSIBLE_DUPLICATE" => UncertainPolicy::BoundedRetryPossibleDuplicate,
            "BOUNDED_TERMINAL_POSSIBLE_DELIVERY" => UncertainPolicy::BoundedTerminalPossibleDelivery,
            other => return Err(Problem::Refused(format!("uncertain policy {other} is not known here"))),
        },
        uncertain_retries_max: node.get("uncertain_retries_max")?.number()?,
        dlq,
        terminal_policy_digest: node.get("terminal_policy_digest_hex")?.array()?,
    })
}

/// The hash that names a destination profile of body schema 2.
pub(super) fn profile_semantic_hash(input: &Node<'_>) -> Result<Computed, Problem> {
    let profile = profile(&input.get("profile")?)?;
    let bytes = profile.encode();
    let decoded = DestinationProfile::decode(&bytes).map_err(|error| Problem::refused("profile", error))?;
    same("profile", &decoded, &profile)?;
    let id = input.get("profile_id_hex")?.bytes()?;
    let mut computed = Computed::default();
    computed.bytes("canonical", bytes);
    computed.bytes("semantic_hash", profile.semantic_hash(&id, input.get("version")?.number()?));
    Ok(computed)
}

pub(super) fn retry_policy(input: &Node<'_>) -> Result<Computed, Problem> {
    let policy = policy(input)?;
    let bytes = policy.encode().map_err(|error| Problem::refused("policy", error))?;
    let decoded = RetryPolicy::decode(&bytes).map_err(|error| Problem::refused("policy", error))?;
    same("policy", &decoded, &policy)?;
    let mut computed = Computed::default();
    computed.bytes("canonical", bytes);
    computed.bytes("semantic_hash", policy.semantic_hash());
    Ok(computed)
}
