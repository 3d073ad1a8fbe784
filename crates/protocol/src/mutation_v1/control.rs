//! Control payloads, resources and protections of body version 1 (protocol registry §2.11).

use super::shape::{Shape, rule, shapes};
use crate::field::{self, Fault, FieldError};
use crate::position::SourcePosition;
use crate::v1;
use v1::control_payload::Payload;
use v1::exact_resource_identity::Resource;

shapes! {
    ProtocolVersionActivate {
        tuple: message,
        schema_sha256: bytes(32),
        reader_set_evidence_sha256: bytes(32),
    }
    ProtocolTuple and tuple {
        framing_version: not_zero,
        log_envelope_version: not_zero,
        record_kind: not_zero,
        envelope_version: not_zero,
        body_version: not_zero,
    }
    ProfileBindingActivate {
        profile: message,
    }
    ProfileNewBindingClose {
        profile: message,
        reason: message,
    }
    StopNewSchedules and stop {
        reason: message,
    }
    GrantDecreaseOrHold {
        plan: message,
        old_grant: message,
        staged_new_grant: message,
    }
    GrantShrinkDrained {
        plan: message,
        staged_new_grant: message,
        counter_sha256: bytes(32),
    }
    GrantIncreaseActivate {
        plan: message,
        old_grant: message,
        new_grant: message,
        placement_reservation_id: bytes(32),
        placement_reservation_sha256: bytes(32),
    }
    PauseDestinationLane {
        lane: message,
        reason: message,
    }
    ResumeDestinationLane {
        lane: message,
        reason: message,
    }
    BreakOrderingDomain {
        lane: message,
        acknowledgements: message,
    }
    CloseDestinationLane {
        lane: message,
        reason: message,
        close_policy: one_of<v1::ClosePolicy>,
        acknowledgements: message,
    }
    PayloadProofTrustSetActivate {
        trust_set: message,
    }
    PayloadProofIssuanceClose {
        trust_set: message,
        reason: message,
    }
    InitialRouteControlActivate and initial {
        tuples: messages,
        profiles: messages,
        initial_grant: message,
        control_snapshot_sha256: bytes(32),
    }
    PayloadObjectResource {
        object_store_profile: message,
        payload_sha256: bytes(32),
    }
    CheckpointResource {
        recovery_lineage_id: bytes(16),
        checkpoint_id: bytes(16),
        object_store_profile: message,
        manifest_sha256: bytes(32),
    }
    DlqExportResource {
        export_id: bytes(32),
        target: message,
        payload_sha256: bytes(32),
    }
    KafkaReceiptSlotResource {
        cluster_id: text,
        receipt_topic_uuid: bytes(16),
        route: bytes(16),
    }
    PulsarJournalGenerationResource {
        resource: message,
    }
    LaneChannelResource {
        channel: message,
    }
    LocalStoreResource {
        shard: message,
        store_incarnation: bytes(16),
        db_identity: bytes(32),
        root_policy_digest: bytes(32),
    }
    ProtectionRef and protection {
        protection_kind: one_of<v1::ProtectionKind>,
        protected_resource_id: bytes(32),
        minimum_source_position: maybe_message,
        recovery_lineage_id: maybe_bytes(16),
        checkpoint_id: maybe_bytes(16),
        manifest_hash: maybe_bytes(32),
    }
}

fn tuple(value: &v1::ProtocolTuple) -> Result<(), FieldError> {
    match value.record_kind {
        1 | 2 => Ok(()),
        found => Err(FieldError::new("record_kind", Fault::UnknownValue { found: found.into() })),
    }
}

fn stop(value: &v1::StopNewSchedules) -> Result<(), FieldError> {
    field::fixed("stop", u64::from(value.stop), 1)
}

fn initial(value: &v1::InitialRouteControlActivate) -> Result<(), FieldError> {
    field::ascending("tuples", &value.tuples, prost::Message::encode_to_vec)?;
    field::ascending("profiles", &value.profiles, |profile| (profile.profile_id.clone(), profile.version))
}

/// Which of the four position fields are there follows from the kind.
fn protection(value: &v1::ProtectionRef) -> Result<(), FieldError> {
    use v1::ProtectionKind as Kind;
    let (position, floor) = match field::known("protection_kind", value.protection_kind)? {
        Kind::RecoveryFloor => (true, true),
        Kind::QueryOrAuditRetention | Kind::ReplayOrRetryWindow => (true, false),
        Kind::ActiveAttemptOrRead | Kind::ExportObligation | Kind::ControlOperation => (false, false),
    };
    let present = [
        ("minimum_source_position", value.minimum_source_position.is_some(), position),
        ("recovery_lineage_id", value.recovery_lineage_id.is_some(), floor),
        ("checkpoint_id", value.checkpoint_id.is_some(), floor),
        ("manifest_hash", value.manifest_hash.is_some(), floor),
    ];
    match present.into_iter().find(|(_, there, wanted)| there != wanted) {
        Some((name, ..)) => Err(FieldError::new(name, Fault::Conflict { with: "protection_kind" })),
        None => Ok(()),
    }
}

impl Shape for v1::SourcePosition {
    fn check(&self) -> Result<(), FieldError> {
        match SourcePosition::from_proto(self)? {
            SourcePosition::Kafka(_) | SourcePosition::Pulsar(_) => Ok(()),
            SourcePosition::Embedded(_) => Err(FieldError::new("embedded", Fault::Unexpected)),
        }
    }
}

/// The control kind of a payload: the number of its branch.
pub(super) fn kind(payload: &v1::ControlPayload) -> Result<u32, FieldError> {
    Ok(match field::required("payload", payload.payload.as_ref())? {
        Payload::ProtocolVersionActivate(_) => 1,
        Payload::ProfileBindingActivate(_) => 2,
        Payload::ProfileNewBindingClose(_) => 3,
        Payload::StopNewSchedules(_) => 4,
        Payload::GrantDecreaseOrHold(_) => 5,
        Payload::GrantShrinkDrained(_) => 6,
        Payload::GrantIncreaseActivate(_) => 7,
        Payload::PauseDestinationLane(_) => 8,
        Payload::ResumeDestinationLane(_) => 9,
        Payload::BreakOrderingDomain(_) => 10,
        Payload::CloseDestinationLane(_) => 11,
        Payload::PayloadProofTrustSetActivate(_) => 12,
        Payload::PayloadProofIssuanceClose(_) => 13,
        Payload::InitialRouteControlActivate(_) => 14,
    })
}

impl Shape for v1::ControlPayload {
    fn check(&self) -> Result<(), FieldError> {
        match field::required("payload", self.payload.as_ref())? {
            Payload::ProtocolVersionActivate(p) => rule::message("protocol_version_activate", p),
            Payload::ProfileBindingActivate(p) => rule::message("profile_binding_activate", p),
            Payload::ProfileNewBindingClose(p) => rule::message("profile_new_binding_close", p),
            Payload::StopNewSchedules(p) => rule::message("stop_new_schedules", p),
            Payload::GrantDecreaseOrHold(p) => rule::message("grant_decrease_or_hold", p),
            Payload::GrantShrinkDrained(p) => rule::message("grant_shrink_drained", p),
            Payload::GrantIncreaseActivate(p) => rule::message("grant_increase_activate", p),
            Payload::PauseDestinationLane(p) => rule::message("pause_destination_lane", p),
            Payload::ResumeDestinationLane(p) => rule::message("resume_destination_lane", p),
            Payload::BreakOrderingDomain(p) => rule::message("break_ordering_domain", p),
            Payload::CloseDestinationLane(p) => rule::message("close_destination_lane", p),
            Payload::PayloadProofTrustSetActivate(p) => rule::message("payload_proof_trust_set_activate", p),
            Payload::PayloadProofIssuanceClose(p) => rule::message("payload_proof_issuance_close", p),
            Payload::InitialRouteControlActivate(p) => rule::message("initial_route_control_activate", p),
        }
    }
}

/// The resource kind: the number of its branch.
pub(super) fn resource_kind(identity: &v1::ExactResourceIdentity) -> Result<u32, FieldError> {
    Ok(match field::required("resource", identity.resource.as_ref())? {
        Resource::PayloadObject(_) => 1,
        Resource::Checkpoint(_) => 2,
        Resource::DlqExport(_) => 3,
        Resource::KafkaReceiptSlot(_) => 4,
        Resource::PulsarJournalGeneration(_) => 5,
        Resource::LaneChannel(_) => 6,
        Resource::LocalStore(_) => 7,
    })
}

impl Shape for v1::ExactResourceIdentity {
    fn check(&self) -> Result<(), FieldError> {
        match field::required("resource", self.resource.as_ref())? {
            Resource::PayloadObject(r) => rule::message("payload_object", r),
            Resource::Checkpoint(r) => rule::message("checkpoint", r),
            Resource::DlqExport(r) => rule::message("dlq_export", r),
            Resource::KafkaReceiptSlot(r) => rule::message("kafka_receipt_slot", r),
            Resource::PulsarJournalGeneration(r) => rule::message("pulsar_journal_generation", r),
            Resource::LaneChannel(r) => rule::message("lane_channel", r),
            Resource::LocalStore(r) => rule::message("local_store", r),
        }
    }
}
