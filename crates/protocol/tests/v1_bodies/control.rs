//! Control payloads, resources and protections.

use bytes::Bytes;
use prost::Message;
use protocol::hash::Preimage;
use protocol::v1;
use v1::control_payload::Payload;
use v1::exact_resource_identity::Resource;

use super::{EXPORT, H, INCARNATION, LANE, channel, interval, kafka, profile, pulsar, subject};

pub(super) fn control_ref() -> v1::ControlRef {
    v1::ControlRef { operation_id: H, request_hash: H, target_index: 0 }
}

pub(super) fn reason() -> v1::ControlReason {
    let kind = v1::ControlReasonKind::Maintenance.into();
    v1::ControlReason { kind, ticket_hash: Some(H), detail_hash: None }
}

pub(super) fn payloads() -> Vec<(u32, Payload)> {
    let lane = v1::LaneControlTarget { lane_id: LANE, lane_incarnation: INCARNATION, expected_lane_control_version: 1 };
    let grant =
        v1::QuotaGrantRef { grant_id: H, grant_version: 1, semantic_hash: H, limit: v1::ChargeVector::default() };
    let plan = v1::QuotaTransferPlanRef { operation_id: H, request_hash: H, tenant_policy_version: 1, plan_hash: H };
    let trust_set = v1::PayloadProofTrustSetRef { version: 1, semantic_hash: H };
    let acknowledgement = |kind: v1::AcknowledgementKind| v1::Acknowledgement {
        kind: kind.into(),
        acknowledgement_hash: H,
        ticket_scope_hash: H,
    };
    let acknowledgements = v1::AcknowledgementSet {
        acknowledgements: vec![
            acknowledgement(v1::AcknowledgementKind::PossibleDuplicate),
            acknowledgement(v1::AcknowledgementKind::OrderLoss),
        ],
    };
    let tuple = |record_kind| v1::ProtocolTuple {
        framing_version: 1,
        log_envelope_version: 1,
        record_kind,
        envelope_version: 1,
        body_version: 1,
    };
    let destination = || profile(v1::ProfileKind::Destination);
    vec![
        (
            1,
            Payload::ProtocolVersionActivate(v1::ProtocolVersionActivate {
                tuple: tuple(1),
                schema_sha256: H,
                reader_set_evidence_sha256: H,
            }),
        ),
        (2, Payload::ProfileBindingActivate(v1::ProfileBindingActivate { profile: destination() })),
        (3, Payload::ProfileNewBindingClose(v1::ProfileNewBindingClose { profile: destination(), reason: reason() })),
        (4, Payload::StopNewSchedules(v1::StopNewSchedules { stop: true, reason: reason() })),
        (
            5,
            Payload::GrantDecreaseOrHold(v1::GrantDecreaseOrHold {
                plan: plan.clone(),
                old_grant: grant.clone(),
                staged_new_grant: grant.clone(),
            }),
        ),
        (
            6,
            Payload::GrantShrinkDrained(v1::GrantShrinkDrained {
                plan: plan.clone(),
                staged_new_grant: grant.clone(),
                counter_sha256: H,
                observed_usage: v1::ChargeVector::default(),
            }),
        ),
        (
            7,
            Payload::GrantIncreaseActivate(v1::GrantIncreaseActivate {
                plan,
                old_grant: grant.clone(),
                new_grant: grant.clone(),
                placement_reservation_id: H,
                placement_reservation_sha256: H,
            }),
        ),
        (8, Payload::PauseDestinationLane(v1::PauseDestinationLane { lane: lane.clone(), reason: reason() })),
        (9, Payload::ResumeDestinationLane(v1::ResumeDestinationLane { lane: lane.clone(), reason: reason() })),
        (
            10,
            Payload::BreakOrderingDomain(v1::BreakOrderingDomain {
                lane: lane.clone(),
                acknowledgements: acknowledgements.clone(),
            }),
        ),
        (
            11,
            Payload::CloseDestinationLane(v1::CloseDestinationLane {
                lane,
                reason: reason(),
                close_policy: v1::ClosePolicy::FreezeUnadmittedAndPreserveAdmitted.into(),
                allow_order_break: true,
                acknowledgements,
            }),
        ),
        (12, Payload::PayloadProofTrustSetActivate(v1::PayloadProofTrustSetActivate { trust_set: trust_set.clone() })),
        (
            13,
            Payload::PayloadProofIssuanceClose(v1::PayloadProofIssuanceClose {
                trust_set,
                proof_key_version: 1,
                reason: reason(),
            }),
        ),
        (
            14,
            Payload::InitialRouteControlActivate(v1::InitialRouteControlActivate {
                tuples: vec![tuple(1), tuple(2)],
                profiles: vec![destination(), v1::ProfileRef { version: 2, ..destination() }],
                initial_grant: grant,
                control_snapshot_sha256: H,
            }),
        ),
    ]
}

pub(super) fn apply(kind: u32, payload: Payload) -> v1::ApplyShardControlBody {
    v1::ApplyShardControlBody {
        shard_subject: subject(),
        mutation_type: 1,
        retry_until_ms: 9_000,
        control_ref: control_ref(),
        control_kind: kind,
        semantic_version: 1,
        semantic_hash: H,
        expected_prior_control_version: None,
        payload: v1::ControlPayload { payload: Some(payload) },
    }
}

pub(super) fn resources() -> Vec<(u32, Resource)> {
    let store = || profile(v1::ProfileKind::ObjectStore);
    let text = Bytes::from_static;
    vec![
        (
            1,
            Resource::PayloadObject(v1::PayloadObjectResource {
                object_store_profile: store(),
                container: text(b"bucket"),
                object_key: text(b"key"),
                immutable_version: text(b"v1"),
                etag: None,
                length: 5,
                payload_sha256: H,
            }),
        ),
        (
            2,
            Resource::Checkpoint(v1::CheckpointResource {
                recovery_lineage_id: INCARNATION,
                checkpoint_id: INCARNATION,
                object_store_profile: store(),
                container: text(b"bucket"),
                object_key: text(b"key"),
                immutable_version: text(b"v1"),
                manifest_length: 5,
                manifest_sha256: H,
            }),
        ),
        (
            3,
            Resource::DlqExport(v1::DlqExportResource {
                export_id: EXPORT,
                target: kafka(),
                object_identity: text(b"x"),
                payload_sha256: H,
            }),
        ),
        (
            4,
            Resource::KafkaReceiptSlot(v1::KafkaReceiptSlotResource {
                cluster_id: text(b"c"),
                receipt_topic_uuid: INCARNATION,
                route: INCARNATION,
                shard_partition: 3,
                slot: 0,
                slot_generation: 1,
            }),
        ),
        (
            5,
            Resource::PulsarJournalGeneration(v1::PulsarJournalGenerationResource {
                resource: pulsar(),
                partition: 0,
                evidence_generation: 1,
            }),
        ),
        (6, Resource::LaneChannel(v1::LaneChannelResource { channel: channel() })),
        (
            7,
            Resource::LocalStore(v1::LocalStoreResource {
                shard: subject(),
                store_incarnation: INCARNATION,
                db_identity: H,
                root_policy_digest: H,
            }),
        ),
    ]
}

pub(super) fn protections() -> v1::ProtectionSet {
    let position = v1::KafkaSourcePosition {
        route: INCARNATION,
        cluster_id: Bytes::from_static(b"c"),
        topic_uuid: INCARNATION,
        partition: 3,
        offset: 9,
        leader_epoch: None,
        append_time_ms: 1,
    };
    let position = v1::SourcePosition { position: Some(v1::source_position::Position::Kafka(position)) };
    let protection = |kind: v1::ProtectionKind| v1::ProtectionRef {
        protection_kind: kind.into(),
        protected_resource_id: H,
        protection_generation: 1,
        minimum_source_position: None,
        recovery_lineage_id: None,
        checkpoint_id: None,
        manifest_hash: None,
    };
    let floor = v1::ProtectionRef {
        minimum_source_position: Some(position.clone()),
        recovery_lineage_id: Some(INCARNATION),
        checkpoint_id: Some(INCARNATION),
        manifest_hash: Some(H),
        ..protection(v1::ProtectionKind::RecoveryFloor)
    };
    let retention = v1::ProtectionRef {
        minimum_source_position: Some(position),
        ..protection(v1::ProtectionKind::QueryOrAuditRetention)
    };
    let set = v1::ProtectionSet {
        protections: vec![floor, retention, protection(v1::ProtectionKind::ActiveAttemptOrRead)],
        digest: None,
    };
    let digest = Preimage::new("nereus-delay-protection-set-v1\0").bytes(&set.encode_to_vec()).sha256();
    v1::ProtectionSet { digest: Some(Bytes::copy_from_slice(&digest)), ..set }
}

pub(super) fn retire(kind: u32, resource: Resource) -> v1::ResourceRetireIntentBody {
    v1::ResourceRetireIntentBody {
        shard_subject: subject(),
        mutation_type: 9,
        retry_until_ms: 9_000,
        resource_kind: kind,
        resource: v1::ExactResourceIdentity { resource: Some(resource) },
        expected_resource_state_version: u64::MAX,
        protections: protections(),
    }
}

pub(super) fn delete_confirmed() -> v1::ResourceDeleteConfirmedBody {
    v1::ResourceDeleteConfirmedBody {
        shard_subject: subject(),
        mutation_type: 10,
        retry_until_ms: 9_000,
        intent: v1::RetireIntentRef {
            system_mutation_id: H,
            mutation_hash: H,
            resource_identity_hash: LANE,
            expected_resource_state_version: u64::MAX,
        },
        outcome: v1::DeleteOutcome::Deleted.into(),
        evidence: v1::ExternalDeleteEvidence {
            resource_identity_hash: LANE,
            provider_request_id_hash: H,
            outcome: v1::DeleteOutcome::Deleted.into(),
            observed_immutable_version: Some(Bytes::from_static(b"v1")),
            observed_etag: None,
            response_sha256: H,
            observed_at: interval(),
        },
        confirmed_at: interval(),
    }
}
