//! One legal value of every type that a body of version 1 can hold, and changes that make them illegal.

mod broken;
mod control;

use bytes::Bytes;
use prost::Message;
use protocol::derived;
use protocol::hash::{Preimage, sha256};
use protocol::id::{MessageId, RouteId, ShardId, Uuid7};
use protocol::mutation_v1::MutationBodyV1 as Body;
use protocol::v1;
use v1::author_identity::Author;
use v1::external_delivery_identity::Identity;
use v1::publish_evidence::Branch;

#[allow(unused_imports, reason = "each test file uses a part")]
pub(crate) use self::broken::broken;
use self::control::{apply, control_ref, delete_confirmed, payloads, resources, retire};

pub(crate) fn shard() -> ShardId {
    ShardId { route: RouteId([0xa1; 16]), partition: 3 }
}

const fn bytes<const N: usize>(value: &'static [u8; N]) -> Bytes {
    Bytes::from_static(value)
}

const H: Bytes = bytes(&[0x11; 32]);
const LANE: Bytes = bytes(&[0x22; 32]);
const INCARNATION: Bytes = bytes(&[0x33; 16]);
const ATTEMPT: Bytes = bytes(&[0x44; 32]);
const EXPORT: Bytes = bytes(&[0x55; 32]);

fn message_id() -> Bytes {
    let uuid = Uuid7::from_parts(0x0190_0000_0000, [1; 10]).unwrap();
    Bytes::copy_from_slice(&MessageId::new(shard(), uuid).to_bytes())
}

fn owner_identity() -> v1::OwnerIdentity {
    v1::OwnerIdentity {
        deployment_id: Bytes::from_static(b"deployment"),
        worker_run_id: Bytes::from_static(b"run"),
        owner_epoch: 7,
        lease_fencing_digest: H,
    }
}

pub(crate) fn owner() -> v1::AuthorIdentity {
    v1::AuthorIdentity { author: Some(Author::Owner(owner_identity())) }
}

fn control_author() -> v1::AuthorIdentity {
    let author = v1::ControlAuthor { actor_hash: H, role_set_hash: H, scope_hash: H };
    v1::AuthorIdentity { author: Some(Author::Control(author)) }
}

fn service() -> v1::AuthorIdentity {
    let author = v1::ServiceWriter {
        service_id: Bytes::from_static(b"evidence"),
        service_run_id: Bytes::from_static(b"run"),
        config_generation: 1,
    };
    v1::AuthorIdentity { author: Some(Author::Service(author)) }
}

fn fence() -> v1::AuthorIdentity {
    let author = v1::FenceWriter { writer_id: Bytes::from_static(b"fence"), config_generation: 1 };
    v1::AuthorIdentity { author: Some(Author::Fence(author)) }
}

fn subject() -> v1::ShardSubject {
    v1::ShardSubject { route: Bytes::copy_from_slice(&shard().route.0), partition: shard().partition }
}

fn interval() -> v1::TrustedUtcInterval {
    v1::TrustedUtcInterval {
        earliest_ms: 2_000,
        latest_ms: 2_010,
        source: v1::TimeEvidenceSource::CertifiedHostClock.into(),
        source_id: Bytes::from_static(b"clock"),
        source_config_generation: 1,
        sample_sequence: 1,
        monotonic_anchor_ns: 1,
        source_evidence_sha256: H,
        source_key_version: 0,
        source_signature: None,
    }
}

fn profile(kind: v1::ProfileKind) -> v1::ProfileRef {
    v1::ProfileRef { profile_id: Bytes::from_static(b"p"), version: 1, semantic_hash: H, profile_kind: kind.into() }
}

fn policy() -> v1::RetryPolicyRef {
    v1::RetryPolicyRef { policy_id: Bytes::from_static(b"std"), version: 1, semantic_hash: H }
}

fn kafka() -> v1::BrokerResourceIdentity {
    let topic = v1::KafkaResourceIdentity { cluster_id: Bytes::from_static(b"c"), topic_uuid: INCARNATION };
    v1::BrokerResourceIdentity { resource: Some(v1::broker_resource_identity::Resource::Kafka(topic)) }
}

fn pulsar() -> v1::BrokerResourceIdentity {
    let topic = v1::PulsarResourceIdentity {
        cluster_id: Bytes::from_static(b"c"),
        resource_incarnation: H,
        topic: Bytes::from_static(b"persistent://t/n/x"),
        creation_time_ms: 1,
    };
    v1::BrokerResourceIdentity { resource: Some(v1::broker_resource_identity::Resource::Pulsar(topic)) }
}

fn channel() -> v1::ChannelResourceIdentity {
    let identity = Bytes::from_static(b"producer");
    v1::ChannelResourceIdentity {
        adapter_kind: v1::AdapterKind::Kafka.into(),
        channel_kind: v1::ChannelKind::KafkaTransactionalReceipt.into(),
        lane_id: LANE,
        lane_incarnation: INCARNATION,
        target_resource: kafka(),
        physical_partition: 7,
        channel_generation: 1,
        channel_slot: 0,
        producer_identity_sha256: Bytes::copy_from_slice(&sha256(&identity)),
        producer_identity: identity,
        evidence_resource: Some(kafka()),
        evidence_generation: Some(1),
        guard_attestation_digest: H,
        credential_generation: 1,
        credential_binding_digest: H,
        credential_fingerprint_digest: H,
        credential_use_lease: v1::CredentialUseLease {
            lease_version: 1,
            profile: profile(v1::ProfileKind::Destination),
            kind: v1::CredentialUseKind::DestinationChannel.into(),
            holder_scope_digest: H,
            secret_generation: 1,
            credential_binding_digest: H,
            fingerprint_digest: H,
            issued_at: interval(),
            valid_until_ms: 9_000,
            protection_revision: 1,
            lease_digest: H,
        },
    }
}

fn kafka_cursor() -> v1::EvidenceCursor {
    let cursor =
        v1::KafkaReceiptCursor { topic_uuid: INCARNATION, next_offset_exclusive: 5, last_observed_lso_exclusive: 5 };
    v1::EvidenceCursor {
        evidence_kind: v1::EvidenceKind::KafkaReceiptContiguous.into(),
        lane_id: LANE,
        lane_incarnation: INCARNATION,
        resource_incarnation: INCARNATION,
        physical_partition: 0,
        evidence_generation: 1,
        max_broker_time_ms: 2_000,
        cursor: Some(v1::evidence_cursor::Cursor::Kafka(cursor)),
    }
}

fn pulsar_cursor() -> v1::EvidenceCursor {
    let cursor = v1::PulsarJournalCursor {
        resource_token: H,
        topic: Bytes::from_static(b"persistent://t/n/j"),
        creation_time_ms: 1,
        ledger: 1,
        entry: 2,
        batch_index: 0,
        batch_size: 1,
    };
    v1::EvidenceCursor {
        evidence_kind: v1::EvidenceKind::PulsarAttemptJournalContiguous.into(),
        cursor: Some(v1::evidence_cursor::Cursor::Pulsar(cursor)),
        ..kafka_cursor()
    }
}

fn delivery() -> v1::ExternalDeliveryIdentity {
    v1::ExternalDeliveryIdentity { identity: Some(Identity::PublishAttemptId(ATTEMPT)) }
}

/// Every branch of evidence about the attempt, by kind.
pub(crate) fn evidence_branches() -> Vec<(u16, Branch)> {
    let (delivery, target) = (delivery(), kafka());
    vec![
        (
            1,
            Branch::KafkaProduceAck(v1::KafkaProduceAck {
                target: target.clone(),
                partition: 7,
                base_offset: 128,
                leader_epoch: Some(0),
                append_time_ms: 2_000,
                delivery: delivery.clone(),
                prepared_hash: H,
                response_sha256: H,
            }),
        ),
        (
            2,
            Branch::KafkaTransactionalReceipt(v1::KafkaTransactionalReceipt {
                cursor: kafka_cursor(),
                receipt_offset: 4,
                delivery: delivery.clone(),
                prepared_hash: H,
                target: target.clone(),
                partition: 7,
                transactional_identity_sha256: H,
                receipt_sha256: H,
            }),
        ),
        (
            3,
            Branch::KafkaReceiptAbsence(v1::KafkaReceiptAbsence {
                cursor: kafka_cursor(),
                fenced_channel: channel(),
                delivery: delivery.clone(),
                prepared_hash: H,
                barrier_sha256: H,
            }),
        ),
        (
            4,
            Branch::PulsarSendAck(v1::PulsarSendAck {
                target: pulsar(),
                partition: 0,
                ledger: 1,
                entry: 2,
                batch_index: 0,
                broker_time_ms: 2_000,
                producer_name_sha256: H,
                sequence_id: 9,
                delivery: delivery.clone(),
                prepared_hash: H,
                response_sha256: H,
            }),
        ),
        (
            5,
            Branch::PulsarAttemptJournal(v1::PulsarAttemptJournal {
                cursor: pulsar_cursor(),
                ledger: 1,
                entry: 2,
                batch_index: 0,
                delivery: delivery.clone(),
                prepared_hash: H,
                producer_name_sha256: H,
                sequence_id: 9,
                mapping_sha256: H,
                target_ack_evidence_id: Some(H),
            }),
        ),
        (
            6,
            Branch::PulsarJournalAbsence(v1::PulsarJournalAbsence {
                cursor: pulsar_cursor(),
                fenced_channel: channel(),
                delivery: delivery.clone(),
                prepared_hash: H,
                producer_name_sha256: H,
                sequence_id: 9,
                retirement_barrier_sha256: H,
            }),
        ),
        (
            7,
            Branch::GuardRejection(v1::GuardRejection {
                target: pulsar(),
                partition: 0,
                operation: v1::GuardOperation::TargetProduce.into(),
                attestation_generation: 1,
                attestation_digest: H,
                request_sha256: H,
                guard_code: 0x5002,
                response_sha256: H,
                delivery: delivery.clone(),
                prepared_hash: H,
            }),
        ),
        (
            8,
            Branch::OperatorAttestation(v1::OperatorAttestation {
                verifier_profile: profile(v1::ProfileKind::EvidenceVerifier),
                delivery: delivery.clone(),
                prepared_hash: H,
                target: target.clone(),
                partition: 7,
                status: v1::EvidenceStatus::VerifiedPublished.into(),
                issued_at_ms: 1,
                not_after_ms: 2,
                payload_sha256: H,
                key_version: 1,
                signature: bytes(&[9; 64]),
            }),
        ),
        (
            9,
            Branch::AdapterNonSubmission(v1::AdapterNonSubmission {
                channel: channel(),
                delivery: delivery.clone(),
                prepared_hash: H,
                kind: v1::AdapterNonSubmissionKind::BeforeLibraryOwnership.into(),
                local_request_sha256: H,
                adapter_conformance_version: 1,
                code: 0x5001,
            }),
        ),
        (
            10,
            Branch::BrokerDefinitiveRejection(v1::BrokerDefinitiveRejection {
                adapter: v1::AdapterKind::Kafka.into(),
                target,
                partition: 7,
                delivery,
                prepared_hash: H,
                request_sha256: H,
                wire_error_code: 100,
                response_sha256: H,
                classifier_version: 1,
            }),
        ),
    ]
}

/// Evidence with its id. An operator's attestation is given the status it is asked for.
pub(crate) fn evidence(kind: u16, status: v1::EvidenceStatus, mut branch: Branch) -> v1::PublishEvidence {
    if let Branch::OperatorAttestation(attestation) = &mut branch {
        attestation.status = status.into();
    }
    // The oneof writes its key and length before the branch's own bytes; take those off.
    let wrapped = v1::PublishEvidence { kind: 0, status: 0, evidence_id: Bytes::new(), branch: Some(branch.clone()) };
    let mut all = &wrapped.encode_to_vec()[6..];
    prost::encoding::decode_key(&mut all).unwrap();
    let length = prost::encoding::decode_varint(&mut all).unwrap();
    assert_eq!(usize::try_from(length), Ok(all.len()));
    let number = u16::try_from(i32::from(status)).unwrap();
    let id = derived::evidence_id(kind, number, all);
    v1::PublishEvidence {
        kind: kind.into(),
        status: status.into(),
        evidence_id: Bytes::copy_from_slice(&id),
        branch: Some(branch),
    }
}

fn decision(kind: v1::RetryDecisionKind, domain: v1::RetryDomain) -> v1::RetryDecision {
    use v1::RetryDecisionKind as Kind;
    v1::RetryDecision {
        kind: kind.into(),
        policy: policy(),
        completed_attempt_no: 1,
        first_attempt_at_ms: 2_000,
        retry_deadline_ms: 5_000,
        next_retry_at_ms: matches!(kind, Kind::Scheduled | Kind::LaneWait).then_some(3_000),
        jitter_algorithm_version: 1,
        cause: 0x5102,
        retry_domain: domain.into(),
    }
}

fn outcome() -> v1::PublishOutcomeBody {
    v1::PublishOutcomeBody {
        shard_subject: subject(),
        mutation_type: 6,
        retry_until_ms: 9_000,
        publish_attempt_id: ATTEMPT,
        side_effect: v1::PublishSideEffect::Unknown.into(),
        disposition: v1::PublishDisposition::OwnerFenced.into(),
        stable_code: 0x5005,
        evidence: None,
        transfer: v1::ChargeVector::default(),
        observed_at: interval(),
        retry_decision: decision(v1::RetryDecisionKind::UncertainHold, v1::RetryDomain::MessagePublish),
    }
}

/// An outcome that says what evidence of this status can prove.
pub(crate) fn outcome_with(evidence: v1::PublishEvidence, status: v1::EvidenceStatus) -> Body {
    let domain = v1::RetryDomain::MessagePublish;
    let (side_effect, disposition, code, retry) = match status {
        v1::EvidenceStatus::VerifiedPublished => {
            (v1::PublishSideEffect::Published, v1::PublishDisposition::None, 0, v1::RetryDecisionKind::None)
        }
        v1::EvidenceStatus::VerifiedNotPublished => (
            v1::PublishSideEffect::NotPublished,
            v1::PublishDisposition::MessageRetriable,
            0x5102,
            v1::RetryDecisionKind::Scheduled,
        ),
        v1::EvidenceStatus::Unresolved => (
            v1::PublishSideEffect::Unknown,
            v1::PublishDisposition::AdapterBug,
            0x5104,
            v1::RetryDecisionKind::UncertainHold,
        ),
    };
    Body::PublishOutcome(Box::new(v1::PublishOutcomeBody {
        side_effect: side_effect.into(),
        disposition: disposition.into(),
        stable_code: code,
        evidence: Some(evidence),
        retry_decision: decision(retry, domain),
        ..outcome()
    }))
}

fn claim_precondition() -> v1::ClaimPrecondition {
    let payload = Bytes::from_static(b"payload");
    let materialization = v1::ClaimMaterialization {
        destination_profile: profile(v1::ProfileKind::Destination),
        capability_profile: profile(v1::ProfileKind::DeliveryCapability),
        target_resource: kafka(),
        physical_partition: 7,
        delay_message_id: message_id(),
        generation: 0,
        payload: payload_for_publish(payload),
        business_metadata: metadata(),
        deliver_at_ms: 2_000,
        expire_at_ms: 9_000,
        action_at_ms: 2_000,
    };
    let digest = Preimage::new("nereus-delay-claim-materialization-v1\0").bytes(&materialization.encode_to_vec());
    v1::ClaimPrecondition {
        claim_id: H,
        delay_message_id: message_id(),
        generation: 0,
        state_version: 1,
        lane_id: LANE,
        lane_incarnation: INCARNATION,
        lane_control_version: 1,
        runtime_lane_version: 1,
        original_timeline_key_sha256: H,
        materialization: Some(materialization),
        materialization_digest: Some(Bytes::copy_from_slice(&digest.sha256())),
        claimed_charge: v1::ChargeVector::default(),
        claim_deadline_ms: 3_000,
        owner: owner_identity(),
        store_incarnation: INCARNATION,
        source_work_kind: v1::TimelineWorkKind::InitialSchedule.into(),
        expected_admissions_used: 0,
        expected_uncertain_retry_admissions_used: 0,
        expected_attempt_obligation_set_digest: H,
        source_timeline_semantic_digest: H,
    }
}

fn payload_for_publish(payload: Bytes) -> v1::PayloadForPublish {
    v1::PayloadForPublish {
        length: u64::try_from(payload.len()).unwrap(),
        payload_sha256: Bytes::copy_from_slice(&sha256(&payload)),
        payload: Some(v1::payload_for_publish::Payload::InlinePayload(payload)),
    }
}

fn metadata() -> v1::AdapterMetadata {
    let kafka = v1::KafkaMetadata { key: Some(Bytes::from_static(b"k")), headers: vec![] };
    v1::AdapterMetadata { metadata: Some(v1::adapter_metadata::Metadata::Kafka(kafka)) }
}

fn admission() -> v1::PublishAdmissionBody {
    let descriptor = v1::PreparedPublishDescriptor {
        descriptor_version: 1,
        adapter_kind: v1::AdapterKind::Kafka.into(),
        adapter_encoding_version: 1,
        lane_id: LANE,
        lane_incarnation: INCARNATION,
        destination_profile: profile(v1::ProfileKind::Destination),
        capability_profile: profile(v1::ProfileKind::DeliveryCapability),
        target_resource: kafka(),
        physical_partition: 7,
        channel: channel(),
        delay_message_id: message_id(),
        generation: 0,
        publish_attempt_id: ATTEMPT,
        attempt_no: 1,
        payload: payload_for_publish(Bytes::new()),
        business_metadata: metadata(),
        reserved_metadata: v1::ReservedPublishMetadata {
            route: Bytes::copy_from_slice(&shard().route.0),
            shard_partition: 3,
            delay_message_id: message_id(),
            generation: 0,
            publish_attempt_id: ATTEMPT,
            destination_profile_hash: H,
            capability_profile_hash: H,
            deliver_at_ms: 2_000,
            delivery_mode: v1::DeliveryMode::Managed.into(),
        },
        deliver_at_ms: 2_000,
        expire_at_ms: 9_000,
        action_at_ms: 2_000,
    };
    let barrier = v1::KafkaExclusiveOffset {
        resource: kafka(),
        partition: 0,
        next_offset_exclusive: 5,
        observed_lso_exclusive: 5,
    };
    let certificate = v1::ReadyCertificate {
        certificate_version: 1,
        owner: owner_identity(),
        store_incarnation: INCARNATION,
        lane_id: LANE,
        lane_incarnation: INCARNATION,
        channel: channel(),
        activation_barrier: v1::ActivationBarrier { barrier: Some(v1::activation_barrier::Barrier::Kafka(barrier)) },
        evidence_cursors: vec![kafka_cursor(), pulsar_cursor()],
        attestation_generation: 1,
        config_generation: 1,
        valid_until_ms: 9_000,
        issued_at: interval(),
        credential_generation: 1,
        credential_binding_digest: H,
        credential_fingerprint_digest: H,
        certificate_digest: H,
    };
    v1::PublishAdmissionBody {
        shard_subject: subject(),
        mutation_type: 5,
        retry_until_ms: 9_000,
        owner: owner_identity(),
        store_incarnation: INCARNATION,
        claim_id: H,
        lane_id: LANE,
        lane_incarnation: INCARNATION,
        delay_message_id: message_id(),
        generation: 0,
        publish_attempt_id: ATTEMPT,
        prepared_publish_hash: H,
        reserve_charge: v1::ChargeVector::default(),
        ready_certificate_digest: H,
        channel: channel(),
        descriptor,
        ready_certificate: certificate,
        decision_time: interval(),
        claim_precondition: claim_precondition(),
    }
}

fn time_fence() -> v1::TimeFenceBody {
    let proof_time = interval();
    let proof_id = derived::time_fence_proof_id(shard(), 1_000, 3, &proof_time.encode_to_vec());
    v1::TimeFenceBody {
        shard_subject: subject(),
        mutation_type: 4,
        retry_until_ms: 9_000,
        close_through_ms: 1_000,
        fence_proof_key_version: 3,
        proof_id: Bytes::copy_from_slice(&proof_id),
        proof_time,
    }
}

fn resolve(kind: v1::UncertainResolutionKind) -> v1::ResolveUncertainBody {
    use v1::EvidenceStatus as Status;
    use v1::UncertainResolutionKind as Kind;
    let (evidence, duplicate, terminal) = match kind {
        Kind::AttachPublishedEvidence => (Some((0, Status::VerifiedPublished)), false, false),
        Kind::AttachNotPublishedEvidence => (Some((9, Status::VerifiedNotPublished)), false, false),
        Kind::RetryAllowPossibleDuplicate => (None, true, false),
        Kind::TerminalizePossibleDelivery => (None, false, true),
    };
    let evidence = evidence.map(|(index, status)| {
        let (kind, branch) = evidence_branches().swap_remove(index);
        self::evidence(kind, status, branch)
    });
    v1::ResolveUncertainBody {
        shard_subject: subject(),
        mutation_type: 3,
        retry_until_ms: 9_000,
        control_ref: control_ref(),
        lane_id: LANE,
        lane_incarnation: INCARNATION,
        delay_message_id: message_id(),
        generation: 0,
        publish_attempt_id: ATTEMPT,
        kind: kind.into(),
        evidence,
        allow_possible_duplicate: duplicate,
        allow_possible_delivery_terminal: terminal,
        acknowledgement_hash: (duplicate || terminal).then_some(H),
    }
}

fn claim_result() -> v1::ClaimResultBody {
    v1::ClaimResultBody {
        shard_subject: subject(),
        mutation_type: 11,
        retry_until_ms: 9_000,
        claim_id: H,
        delay_message_id: message_id(),
        generation: 0,
        lane_id: LANE,
        lane_incarnation: INCARNATION,
        claim_precondition: v1::ClaimPrecondition {
            materialization: None,
            materialization_digest: None,
            ..claim_precondition()
        },
        result_kind: v1::ClaimResultKind::DeadLetter.into(),
        stable_code: 0x5101,
        observed_at: interval(),
        transfer: v1::ChargeVector::default(),
    }
}

fn export(event: v1::DlqExportEventKind) -> v1::DlqExportResultBody {
    let (kind, mut branch) = evidence_branches().swap_remove(0);
    if let Branch::KafkaProduceAck(ack) = &mut branch {
        ack.delivery = v1::ExternalDeliveryIdentity { identity: Some(Identity::DlqExportId(EXPORT)) };
    }
    v1::DlqExportResultBody {
        shard_subject: subject(),
        mutation_type: 12,
        retry_until_ms: 9_000,
        dlq_export_id: EXPORT,
        delay_message_id: message_id(),
        generation: 0,
        terminal_revision: 1,
        export_envelope_sha256: H,
        event_kind: event.into(),
        side_effect: v1::PublishSideEffect::Published.into(),
        disposition: v1::PublishDisposition::None.into(),
        stable_code: 0,
        evidence: Some(evidence(kind, v1::EvidenceStatus::VerifiedPublished, branch)),
        transfer: v1::ChargeVector::default(),
        observed_at: interval(),
        retry_decision: decision(v1::RetryDecisionKind::None, v1::RetryDomain::DlqExport),
        resulting_state: v1::DlqExportState::Published.into(),
        physical_attempt_no: 1,
    }
}

fn evidence_resolution() -> v1::EvidenceResolutionBody {
    let (kind, branch) = evidence_branches().swap_remove(2);
    v1::EvidenceResolutionBody {
        shard_subject: subject(),
        mutation_type: 8,
        retry_until_ms: 9_000,
        publish_attempt_id: ATTEMPT,
        cursor: kafka_cursor(),
        evidence: evidence(kind, v1::EvidenceStatus::VerifiedNotPublished, branch),
        stable_code: 0x5102,
        side_effect: v1::PublishSideEffect::NotPublished.into(),
        disposition: v1::PublishDisposition::LaneUnavailable.into(),
        transfer: v1::ChargeVector::default(),
        observed_at: interval(),
        retry_decision: decision(v1::RetryDecisionKind::LaneWait, v1::RetryDomain::MessagePublish),
    }
}

/// A legal body of every type, with the author it needs.
pub(crate) fn bodies() -> Vec<(String, v1::AuthorIdentity, Body)> {
    use v1::UncertainResolutionKind as Resolution;
    let mut bodies: Vec<(String, v1::AuthorIdentity, Body)> = Vec::new();
    let mut add = |name: &str, author: v1::AuthorIdentity, body: Body| bodies.push((name.to_owned(), author, body));
    for (kind, payload) in payloads() {
        add(&format!("control {kind}"), control_author(), Body::ApplyShardControl(Box::new(apply(kind, payload))));
    }
    let replay = v1::ReplayDeadLetterBody {
        shard_subject: subject(),
        mutation_type: 2,
        retry_until_ms: 9_000,
        control_ref: control_ref(),
        delay_message_id: message_id(),
        expected_generation: 0,
        expected_state_version: 1,
        deliver_at_ms: 3_000,
        expire_at_ms: 9_000,
        retry_policy: policy(),
        allow_possible_duplicate: true,
        acknowledgement_hash: Some(H),
    };
    add("replay", control_author(), Body::ReplayDeadLetter(Box::new(replay)));
    for kind in [
        Resolution::AttachPublishedEvidence,
        Resolution::AttachNotPublishedEvidence,
        Resolution::RetryAllowPossibleDuplicate,
        Resolution::TerminalizePossibleDelivery,
    ] {
        add(&format!("resolve {kind:?}"), control_author(), Body::ResolveUncertain(Box::new(resolve(kind))));
    }
    add("fence", fence(), Body::TimeFence(Box::new(time_fence())));
    add("admission", owner(), Body::PublishAdmission(Box::new(admission())));
    add("outcome", owner(), Body::PublishOutcome(Box::new(outcome())));
    let expire = v1::ExpireGenerationBody {
        shard_subject: subject(),
        mutation_type: 7,
        retry_until_ms: 9_000,
        delay_message_id: message_id(),
        generation: 0,
        expire_at_ms: 9_000,
        evidence: interval(),
    };
    add("expire", owner(), Body::ExpireGeneration(Box::new(expire)));
    add("resolution", service(), Body::EvidenceResolution(Box::new(evidence_resolution())));
    for (kind, resource) in resources() {
        add(&format!("retire {kind}"), service(), Body::ResourceRetireIntent(Box::new(retire(kind, resource))));
    }
    add("delete", service(), Body::ResourceDeleteConfirmed(Box::new(delete_confirmed())));
    add("claim result", owner(), Body::ClaimResult(Box::new(claim_result())));
    for event in [v1::DlqExportEventKind::AttemptOutcome, v1::DlqExportEventKind::EvidenceResolution] {
        add(&format!("export {event:?}"), service(), Body::DlqExportResult(Box::new(export(event))));
    }
    bodies
}
