//! Mutations of body version 1.

use bytes::Bytes;
use ed25519_dalek::SigningKey;
use prost::Message;
use protocol::code::StableCode;
use protocol::hash::sha256;
use protocol::mutation::MutationType;
use protocol::mutation_v1::{MutationBodyV1, MutationV1};
use protocol::record::{self, LogRecord};
use protocol::{canonical, derived, v1};

use super::compare::Computed;
use super::json::{Node, Problem};
use super::shared::{interval, maybe_bytes, maybe_number, policy_ref, resource, same, shard, signing_key};

const MUTATION_TYPES: [(&str, i128); 12] = [
    ("APPLY_SHARD_CONTROL", 1),
    ("REPLAY_DEAD_LETTER", 2),
    ("RESOLVE_UNCERTAIN", 3),
    ("TIME_FENCE", 4),
    ("PUBLISH_ADMISSION", 5),
    ("PUBLISH_OUTCOME", 6),
    ("EXPIRE_GENERATION", 7),
    ("EVIDENCE_RESOLUTION", 8),
    ("RESOURCE_RETIRE_INTENT", 9),
    ("RESOURCE_DELETE_CONFIRMED", 10),
    ("CLAIM_RESULT", 11),
    ("DLQ_EXPORT_RESULT", 12),
];

pub(super) fn system_mutation(input: &Node<'_>, expected: &Node<'_>) -> Result<Computed, Problem> {
    let key = signing_key(&input.get("signing_key")?)?;
    let (mutation, note) = match build(input, &key) {
        Ok(mutation) => (mutation, None),
        // Bodies that are described in terms unknown here are still checked from their bytes.
        Err(Problem::Missing { path }) if expected.maybe("frame_hex").is_some() => {
            let frame = expected.get("frame_hex")?.bytes()?;
            let note = format!("{path} is not there, so the body was not built from the input but read from the frame");
            (read(&frame)?, Some(note))
        }
        Err(problem) => return Err(problem),
    };
    check_against_input(&mutation, input, &key)?;
    let mut computed = pieces(&mutation);
    computed.notes.extend(note);
    Ok(computed)
}

fn read(frame: &Bytes) -> Result<MutationV1, Problem> {
    match record::decode(frame) {
        Ok(LogRecord::MutationV1(mutation)) => Ok(*mutation),
        Ok(_) => Err(Problem::Refused("the frame holds another kind of record".to_owned())),
        Err(error) => Err(Problem::refused("frame", error)),
    }
}

/// What must hold whether the body was built or read: the way back, the signature, and what the input says about it.
fn check_against_input(mutation: &MutationV1, input: &Node<'_>, key: &SigningKey) -> Result<(), Problem> {
    same("mutation", &read(&mutation.encode_frame())?, mutation)?;
    same("mutation type", &mutation.mutation_type().as_u32(), &input.wire("mutation_type", &MUTATION_TYPES)?)?;
    same("shard", &mutation.shard, &shard(input)?)?;
    same("retry_until", &mutation.retry_until_ms, &input.get("retry_until_epoch_ms")?.number()?)?;
    let signed_again = MutationV1::sign(
        mutation.shard,
        mutation.author.clone(),
        mutation.retry_until_ms,
        mutation.body.clone(),
        input.get("signing_key_version")?.number()?,
        key,
    )
    .map_err(|error| Problem::refused("mutation", error))?;
    same("mutation signed again", &signed_again, mutation)?;
    same("verdict on the signature", &mutation.verify(&key.verifying_key()), &true)
}

fn pieces(mutation: &MutationV1) -> Computed {
    let mut computed = Computed::default();
    match &mutation.body {
        MutationBodyV1::TimeFence(body) => {
            computed.bytes("proof_id", &body.proof_id);
            computed.bytes("proof_time", body.proof_time.encode_to_vec());
        }
        MutationBodyV1::PublishOutcome(body) => {
            computed.maybe_bytes("evidence", body.evidence.as_ref().map(Message::encode_to_vec));
            computed.maybe_bytes("evidence_id", body.evidence.as_ref().map(|evidence| &evidence.evidence_id));
            settlement(&mut computed, &body.transfer, &body.observed_at, Some(&body.retry_decision));
        }
        MutationBodyV1::EvidenceResolution(body) => {
            computed.bytes("cursor", body.cursor.encode_to_vec());
            computed.bytes("evidence", body.evidence.encode_to_vec());
            computed.bytes("evidence_id", &body.evidence.evidence_id);
            settlement(&mut computed, &body.transfer, &body.observed_at, Some(&body.retry_decision));
        }
        MutationBodyV1::DlqExportResult(body) => {
            computed.maybe_bytes("evidence", body.evidence.as_ref().map(Message::encode_to_vec));
            computed.maybe_bytes("evidence_id", body.evidence.as_ref().map(|evidence| &evidence.evidence_id));
            settlement(&mut computed, &body.transfer, &body.observed_at, Some(&body.retry_decision));
        }
        MutationBodyV1::ClaimResult(body) => {
            computed.bytes("claim_precondition", body.claim_precondition.encode_to_vec());
            settlement(&mut computed, &body.transfer, &body.observed_at, None);
        }
        MutationBodyV1::ExpireGeneration(body) => computed.bytes("evidence", body.evidence.encode_to_vec()),
        MutationBodyV1::PublishAdmission(body) => {
            computed.bytes("prepared_publish_hash", &body.prepared_publish_hash);
            computed.bytes("descriptor", body.descriptor.encode_to_vec());
            computed.bytes("ready_certificate", body.ready_certificate.encode_to_vec());
            computed.bytes("claim_precondition", body.claim_precondition.encode_to_vec());
            computed.bytes("decision_time", body.decision_time.encode_to_vec());
        }
        MutationBodyV1::ApplyShardControl(body) => computed.bytes("payload", body.payload.encode_to_vec()),
        MutationBodyV1::ResourceRetireIntent(body) => {
            let resource = body.resource.encode_to_vec();
            computed.bytes("resource_identity_hash", derived::resource_identity_hash(&resource));
            computed.bytes("resource", resource);
            computed.bytes("protections", body.protections.encode_to_vec());
        }
        MutationBodyV1::ReplayDeadLetter(_)
        | MutationBodyV1::ResolveUncertain(_)
        | MutationBodyV1::ResourceDeleteConfirmed(_) => {}
    }
    let frame = mutation.encode_frame();
    computed.bytes("canonical_body", &mutation.body_bytes);
    computed.bytes("author_identity", mutation.author.encode_to_vec());
    if let Ok(identity) = mutation.body.logical_identity() {
        computed.bytes("logical_operation_identity", identity);
    }
    computed.bytes("mutation_hash", mutation.hash);
    computed.bytes("system_mutation_id", mutation.mutation_id);
    computed.bytes("signature_digest", mutation.signature_digest());
    computed.bytes("signature", mutation.signature);
    computed.json("frame_length", frame.len());
    computed.bytes("frame_sha256", sha256(&frame));
    computed.bytes("frame", frame);
    computed
}

fn settlement(
    computed: &mut Computed,
    transfer: &v1::ChargeVector,
    observed_at: &v1::TrustedUtcInterval,
    decision: Option<&v1::RetryDecision>,
) {
    computed.bytes("transfer", transfer.encode_to_vec());
    computed.bytes("observed_at", observed_at.encode_to_vec());
    if let Some(decision) = decision {
        computed.bytes("retry_decision", decision.encode_to_vec());
    }
}

fn build(input: &Node<'_>, key: &SigningKey) -> Result<MutationV1, Problem> {
    let shard = shard(input)?;
    let number: u32 = input.wire("mutation_type", &MUTATION_TYPES)?;
    let mutation_type = MutationType::from_u32(number)
        .ok_or_else(|| Problem::Refused(format!("mutation type {number} is not known here")))?;
    let retry_until_ms = input.get("retry_until_epoch_ms")?.number()?;
    let key_version = input.get("signing_key_version")?.number()?;
    let common = Common {
        shard_subject: v1::ShardSubject { route: Bytes::copy_from_slice(&shard.route.0), partition: shard.partition },
        mutation_type: number,
        retry_until_ms,
    };
    let body = body(mutation_type, &input.get("body")?, common, shard)?;
    let author = author(&input.get("author")?)?;
    MutationV1::sign(shard, author, retry_until_ms, body, key_version, key)
        .map_err(|error| Problem::refused("mutation", error))
}

fn author(node: &Node<'_>) -> Result<v1::AuthorIdentity, Problem> {
    use v1::author_identity::Author;
    let author = match node.get("kind")?.text()? {
        "OWNER" => Author::Owner(v1::OwnerIdentity {
            deployment_id: node.get("deployment_id_hex")?.bytes()?,
            worker_run_id: node.get("worker_run_id_hex")?.bytes()?,
            owner_epoch: node.get("owner_epoch")?.number()?,
            lease_fencing_digest: node.get("lease_fencing_digest_hex")?.bytes()?,
        }),
        "FENCE" => Author::Fence(v1::FenceWriter {
            writer_id: node.get("writer_id_hex")?.bytes()?,
            config_generation: node.get("config_generation")?.number()?,
        }),
        "SERVICE" => Author::Service(v1::ServiceWriter {
            service_id: node.get("service_id_hex")?.bytes()?,
            service_run_id: any(node, &["service_run_id_hex", "run_id_hex"])?.bytes()?,
            config_generation: node.get("config_generation")?.number()?,
        }),
        "CONTROL" => Author::Control(v1::ControlAuthor {
            actor_hash: any(node, &["actor_hash_hex", "operation_actor_id_hash_hex"])?.bytes()?,
            role_set_hash: any(node, &["role_set_hash_hex", "authenticated_role_set_hash_hex"])?.bytes()?,
            scope_hash: any(node, &["scope_hash_hex", "tenant_resource_scope_hash_hex"])?.bytes()?,
        }),
        other => return Err(Problem::Refused(format!("author {other} is not known here"))),
    };
    Ok(v1::AuthorIdentity { author: Some(author) })
}

/// The first member that is there; complains about the first name.
fn any<'a>(node: &Node<'a>, keys: &[&str]) -> Result<Node<'a>, Problem> {
    match keys.iter().find_map(|key| node.maybe(key)) {
        Some(found) => Ok(found),
        None => node.get(keys.first().copied().unwrap_or_default()),
    }
}

/// The fields that every body repeats from the envelope.
struct Common {
    shard_subject: v1::ShardSubject,
    mutation_type: u32,
    retry_until_ms: i64,
}

fn body(
    mutation_type: MutationType,
    node: &Node<'_>,
    common: Common,
    shard: protocol::id::ShardId,
) -> Result<MutationBodyV1, Problem> {
    let Common { shard_subject, mutation_type: number, retry_until_ms } = common;
    Ok(match mutation_type {
        MutationType::TimeFence => {
            let close_through_ms = node.get("close_through_epoch_ms")?.number()?;
            let fence_proof_key_version = node.get("fence_proof_key_version")?.number()?;
            let proof_time = interval(&node.get("proof_time")?)?;
            let proof_id = derived::time_fence_proof_id(
                shard,
                close_through_ms,
                fence_proof_key_version,
                &proof_time.encode_to_vec(),
            );
            MutationBodyV1::TimeFence(Box::new(v1::TimeFenceBody {
                shard_subject,
                mutation_type: number,
                retry_until_ms,
                close_through_ms,
                fence_proof_key_version,
                proof_id: Bytes::copy_from_slice(&proof_id),
                proof_time,
            }))
        }
        MutationType::ExpireGeneration => MutationBodyV1::ExpireGeneration(Box::new(v1::ExpireGenerationBody {
            shard_subject,
            mutation_type: number,
            retry_until_ms,
            delay_message_id: node.get("delay_message_id_hex")?.bytes()?,
            generation: node.get("generation")?.number()?,
            expire_at_ms: node.get("expire_at_epoch_ms")?.number()?,
            evidence: interval(&node.get("evidence")?)?,
        })),
        MutationType::PublishOutcome => MutationBodyV1::PublishOutcome(Box::new(v1::PublishOutcomeBody {
            shard_subject,
            mutation_type: number,
            retry_until_ms,
            publish_attempt_id: node.get("publish_attempt_id_hex")?.bytes()?,
            side_effect: side_effect(node)?,
            disposition: disposition(node)?,
            stable_code: code(node, "stable_code")?,
            evidence: node.maybe("evidence").map(|evidence| self::evidence(&evidence)).transpose()?,
            transfer: charges(&node.get("transfer_charge_fields_1_to_17")?)?,
            observed_at: interval(&node.get("observed_at")?)?,
            retry_decision: retry_decision(&node.get("retry_decision")?)?,
        })),
        MutationType::EvidenceResolution => MutationBodyV1::EvidenceResolution(Box::new(v1::EvidenceResolutionBody {
            shard_subject,
            mutation_type: number,
            retry_until_ms,
            publish_attempt_id: node.get("publish_attempt_id_hex")?.bytes()?,
            cursor: proto(&node.get("cursor_protobuf_hex")?)?,
            evidence: evidence(&node.get("evidence")?)?,
            stable_code: code(node, "stable_code")?,
            side_effect: side_effect(node)?,
            disposition: disposition(node)?,
            transfer: charges(&node.get("transfer_charge_fields_1_to_17")?)?,
            observed_at: interval(&node.get("observed_at")?)?,
            retry_decision: retry_decision(&node.get("retry_decision")?)?,
        })),
        // Described by their bytes only; a missing description sends the caller to the frame.
        MutationType::ApplyShardControl
        | MutationType::ReplayDeadLetter
        | MutationType::ResolveUncertain
        | MutationType::PublishAdmission
        | MutationType::ResourceRetireIntent
        | MutationType::ResourceDeleteConfirmed
        | MutationType::ClaimResult
        | MutationType::DlqExportResult
        | MutationType::OwnerEpoch => {
            return Err(Problem::Missing { path: format!("a description of {} known here", mutation_type.name()) });
        }
    })
}

fn side_effect(node: &Node<'_>) -> Result<i32, Problem> {
    node.wire("side_effect", &[("PUBLISHED", 1), ("NOT_PUBLISHED", 2), ("UNKNOWN", 3)])
}

fn disposition(node: &Node<'_>) -> Result<i32, Problem> {
    const DISPOSITIONS: [(&str, i128); 6] = [
        ("NONE", 0),
        ("MESSAGE_RETRIABLE", 1),
        ("MESSAGE_PERMANENT", 2),
        ("LANE_UNAVAILABLE", 3),
        ("OWNER_FENCED", 4),
        ("ADAPTER_BUG", 5),
    ];
    node.wire("disposition", &DISPOSITIONS)
}

/// A stable code by number or name.
pub(super) fn code(node: &Node<'_>, key: &str) -> Result<u32, Problem> {
    let names: Vec<(&str, i128)> =
        StableCode::ALL.iter().map(|code| (code.name(), i128::from(code.as_u32()))).collect();
    node.wire(key, &names)
}

/// A message given as its canonical bytes.
fn proto<M: canonical::Canonical>(node: &Node<'_>) -> Result<M, Problem> {
    canonical::decode_canonical(&node.bytes()?).map_err(|error| Problem::refused("protobuf", error))
}

fn charges(node: &Node<'_>) -> Result<v1::ChargeVector, Problem> {
    let charges: Vec<u64> = node.items()?.iter().map(Node::number).collect::<Result<_, _>>()?;
    let [c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17] = charges[..] else {
        return Err(Problem::Refused(format!("{} charges instead of 17", charges.len())));
    };
    Ok(v1::ChargeVector {
        active_messages: c1,
        pending_payload_bytes: c2,
        logical_state_bytes: c3,
        retained_bytes: c4,
        reservation_messages: c5,
        reservation_payload_bytes: c6,
        inflight_messages: c7,
        inflight_bytes: c8,
        result_records: c9,
        result_bytes: c10,
        mutation_records: c11,
        mutation_bytes: c12,
        outcome_wal_bytes: c13,
        evidence_records: c14,
        evidence_bytes: c15,
        lane_count: c16,
        strong_lane_count: c17,
    })
}

fn retry_decision(node: &Node<'_>) -> Result<v1::RetryDecision, Problem> {
    const KINDS: [(&str, i128); 5] =
        [("NONE", 1), ("SCHEDULED", 2), ("EXHAUSTED", 3), ("LANE_WAIT", 4), ("UNCERTAIN_HOLD", 5)];
    let policy = policy_ref(&node.get("policy")?)?;
    Ok(v1::RetryDecision {
        kind: node.wire("kind", &KINDS)?,
        policy: v1::RetryPolicyRef {
            policy_id: policy.id,
            version: policy.version,
            semantic_hash: Bytes::copy_from_slice(&policy.semantic_hash),
        },
        completed_attempt_no: node.get("completed_attempt_no")?.number()?,
        first_attempt_at_ms: node.get("first_attempt_at_epoch_ms")?.number()?,
        retry_deadline_ms: node.get("retry_deadline_epoch_ms")?.number()?,
        next_retry_at_ms: maybe_number(node, "next_retry_at_epoch_ms")?,
        jitter_algorithm_version: node.get("jitter_algorithm_version")?.number()?,
        cause: code(node, "cause")?,
        retry_domain: node.wire("retry_domain", &[("MESSAGE_PUBLISH", 1), ("DLQ_EXPORT", 2)])?,
    })
}

fn evidence(node: &Node<'_>) -> Result<v1::PublishEvidence, Problem> {
    const KINDS: [(&str, i128); 10] = [
        ("KAFKA_PRODUCE_ACK", 1),
        ("KAFKA_TRANSACTIONAL_RECEIPT", 2),
        ("KAFKA_RECEIPT_ABSENCE", 3),
        ("PULSAR_SEND_ACK", 4),
        ("PULSAR_ATTEMPT_JOURNAL", 5),
        ("PULSAR_JOURNAL_ABSENCE", 6),
        ("BROKER_RESOURCE_GUARD_REJECTION", 7),
        ("OPERATOR_ATTESTATION", 8),
        ("ADAPTER_NON_SUBMISSION", 9),
        ("BROKER_DEFINITIVE_REJECTION", 10),
    ];
    const STATUSES: [(&str, i128); 3] = [("VERIFIED_PUBLISHED", 1), ("VERIFIED_NOT_PUBLISHED", 2), ("UNRESOLVED", 3)];
    let kind: u16 = node.wire("kind", &KINDS)?;
    let status: u16 = node.wire("status", &STATUSES)?;
    let (branch, bytes) = branch(kind, &node.get("branch")?)?;
    Ok(v1::PublishEvidence {
        kind: kind.into(),
        status: status.into(),
        evidence_id: Bytes::copy_from_slice(&derived::evidence_id(kind, status, &bytes)),
        branch: Some(branch),
    })
}

fn target(node: &Node<'_>) -> Result<v1::BrokerResourceIdentity, Problem> {
    match node.maybe("target_protobuf_hex") {
        Some(bytes) => proto(&bytes),
        None => Ok(resource(&node.get("target")?)?.to_proto()),
    }
}

fn delivery(node: &Node<'_>) -> Result<v1::ExternalDeliveryIdentity, Problem> {
    use v1::external_delivery_identity::Identity;
    let identity = match node.maybe("dlq_export_id_hex") {
        Some(id) => Identity::DlqExportId(id.bytes()?),
        None => Identity::PublishAttemptId(node.get("publish_attempt_id_hex")?.bytes()?),
    };
    Ok(v1::ExternalDeliveryIdentity { identity: Some(identity) })
}

fn prepared_hash(node: &Node<'_>) -> Result<Bytes, Problem> {
    any(node, &["prepared_publish_hash_hex", "prepared_hash_hex", "export_envelope_sha256_hex"])?.bytes()
}

/// The branch and its canonical bytes.
fn branch(kind: u16, node: &Node<'_>) -> Result<(v1::publish_evidence::Branch, Vec<u8>), Problem> {
    use v1::publish_evidence::Branch;
    macro_rules! branch {
        ($variant:ident, $message:expr) => {{
            let message = $message;
            let bytes = message.encode_to_vec();
            (Branch::$variant(message), bytes)
        }};
    }
    let partition = || node.get("partition")?.number();
    let hex = |keys: &[&str]| any(node, keys)?.bytes();
    Ok(match kind {
        1 => branch!(
            KafkaProduceAck,
            v1::KafkaProduceAck {
                target: target(node)?,
                partition: partition()?,
                base_offset: any(node, &["base_offset", "offset"])?.number()?,
                leader_epoch: maybe_number(node, "leader_epoch")?,
                append_time_ms: node.get("log_append_time_epoch_ms")?.number()?,
                delivery: delivery(node)?,
                prepared_hash: prepared_hash(node)?,
                response_sha256: hex(&["response_sha256_hex"])?,
            }
        ),
        2 => branch!(
            KafkaTransactionalReceipt,
            v1::KafkaTransactionalReceipt {
                cursor: proto(&node.get("cursor_protobuf_hex")?)?,
                receipt_offset: node.get("receipt_offset")?.number()?,
                delivery: delivery(node)?,
                prepared_hash: prepared_hash(node)?,
                target: target(node)?,
                partition: any(node, &["partition", "target_partition"])?.number()?,
                transactional_identity_sha256: hex(&["transactional_identity_sha256_hex"])?,
                receipt_sha256: hex(&["receipt_sha256_hex", "receipt_record_sha256_hex"])?,
            }
        ),
        3 => branch!(
            KafkaReceiptAbsence,
            v1::KafkaReceiptAbsence {
                cursor: proto(&node.get("cursor_protobuf_hex")?)?,
                fenced_channel: proto(&any(node, &["fenced_channel_protobuf_hex", "channel_protobuf_hex"])?)?,
                delivery: delivery(node)?,
                prepared_hash: prepared_hash(node)?,
                barrier_sha256: hex(&["barrier_sha256_hex", "fence_and_lso_barrier_sha256_hex"])?,
            }
        ),
        4 => branch!(
            PulsarSendAck,
            v1::PulsarSendAck {
                target: target(node)?,
                partition: partition()?,
                ledger: node.get("ledger_id")?.number()?,
                entry: node.get("entry_id")?.number()?,
                batch_index: node.get("batch_index")?.number()?,
                broker_time_ms: any(node, &["broker_persistence_time_epoch_ms", "entry_timestamp_epoch_ms"])?
                    .number()?,
                producer_name_sha256: hex(&["producer_name_sha256_hex"])?,
                sequence_id: node.get("sequence_id")?.number()?,
                delivery: delivery(node)?,
                prepared_hash: prepared_hash(node)?,
                response_sha256: hex(&["response_sha256_hex"])?,
            }
        ),
        5 => branch!(
            PulsarAttemptJournal,
            v1::PulsarAttemptJournal {
                cursor: proto(&node.get("cursor_protobuf_hex")?)?,
                ledger: any(node, &["ledger_id", "journal_ledger_id"])?.number()?,
                entry: any(node, &["entry_id", "journal_entry_id"])?.number()?,
                batch_index: node.get("batch_index")?.number()?,
                delivery: delivery(node)?,
                prepared_hash: prepared_hash(node)?,
                producer_name_sha256: hex(&["producer_name_sha256_hex"])?,
                sequence_id: node.get("sequence_id")?.number()?,
                mapping_sha256: hex(&["mapping_sha256_hex", "mapping_record_sha256_hex"])?,
                target_ack_evidence_id: maybe_bytes(node, "target_ack_evidence_id_hex")?,
            }
        ),
        6 => branch!(
            PulsarJournalAbsence,
            v1::PulsarJournalAbsence {
                cursor: proto(&node.get("cursor_protobuf_hex")?)?,
                fenced_channel: proto(&any(node, &["fenced_channel_protobuf_hex", "channel_protobuf_hex"])?)?,
                delivery: delivery(node)?,
                prepared_hash: prepared_hash(node)?,
                producer_name_sha256: hex(&["producer_name_sha256_hex"])?,
                sequence_id: node.get("sequence_id")?.number()?,
                retirement_barrier_sha256: hex(&["retirement_barrier_sha256_hex"])?,
            }
        ),
        _ => return refusal_branch(kind, node),
    })
}

/// The branches in which somebody says no, or an operator speaks.
fn refusal_branch(kind: u16, node: &Node<'_>) -> Result<(v1::publish_evidence::Branch, Vec<u8>), Problem> {
    use v1::publish_evidence::Branch;
    macro_rules! branch {
        ($variant:ident, $message:expr) => {{
            let message = $message;
            let bytes = message.encode_to_vec();
            (Branch::$variant(message), bytes)
        }};
    }
    let partition = || node.get("partition")?.number();
    let hex = |keys: &[&str]| any(node, keys)?.bytes();
    Ok(match kind {
        7 => branch!(
            GuardRejection,
            v1::GuardRejection {
                target: target(node)?,
                partition: partition()?,
                operation: node.wire("operation", &[])?,
                attestation_generation: node.get("attestation_generation")?.number()?,
                attestation_digest: hex(&["attestation_digest_hex"])?,
                request_sha256: hex(&["request_sha256_hex"])?,
                guard_code: code(node, "guard_code")?,
                response_sha256: hex(&["response_sha256_hex"])?,
                delivery: delivery(node)?,
                prepared_hash: prepared_hash(node)?,
            }
        ),
        8 => branch!(
            OperatorAttestation,
            v1::OperatorAttestation {
                verifier_profile: proto(&node.get("verifier_profile_protobuf_hex")?)?,
                delivery: delivery(node)?,
                prepared_hash: prepared_hash(node)?,
                target: target(node)?,
                partition: partition()?,
                status: node.wire("status", &[])?,
                issued_at_ms: node.get("issued_at_epoch_ms")?.number()?,
                not_after_ms: node.get("not_after_epoch_ms")?.number()?,
                payload_sha256: hex(&["payload_sha256_hex"])?,
                key_version: node.get("key_version")?.number()?,
                signature: hex(&["signature_hex"])?,
            }
        ),
        9 => branch!(
            AdapterNonSubmission,
            v1::AdapterNonSubmission {
                channel: proto(&node.get("channel_protobuf_hex")?)?,
                delivery: delivery(node)?,
                prepared_hash: prepared_hash(node)?,
                kind: node.wire("kind", &[])?,
                local_request_sha256: hex(&["local_request_sha256_hex"])?,
                adapter_conformance_version: node.get("adapter_conformance_version")?.number()?,
                code: code(node, "stable_code")?,
            }
        ),
        10 => branch!(
            BrokerDefinitiveRejection,
            v1::BrokerDefinitiveRejection {
                adapter: node.wire("adapter", &super::shared::ADAPTERS)?,
                target: target(node)?,
                partition: partition()?,
                delivery: delivery(node)?,
                prepared_hash: prepared_hash(node)?,
                request_sha256: hex(&["request_sha256_hex"])?,
                wire_error_code: node.get("wire_error_code")?.number()?,
                response_sha256: hex(&["response_sha256_hex"])?,
                classifier_version: node.get("classifier_version")?.number()?,
            }
        ),
        other => return Err(Problem::Refused(format!("evidence kind {other} is not known here"))),
    })
}
