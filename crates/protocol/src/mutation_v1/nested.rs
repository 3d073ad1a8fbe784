//! Shape rules of the types that bodies of version 1 share (protocol registry §2.9 and §2.11).

use prost::Message;

use super::shape::{Shape, rule, shapes};
use crate::field::{self, Fault, FieldError, Within};
use crate::resource::Resource;
use crate::v1;

shapes! {
    ProfileRef {
        profile_id: not_empty,
        version: not_zero,
        semantic_hash: bytes(32),
        profile_kind: one_of<v1::ProfileKind>,
    }
    RetryPolicyRef {
        policy_id: not_empty,
        version: not_zero,
        semantic_hash: bytes(32),
    }
    PayloadProofTrustSetRef {
        version: not_zero,
        semantic_hash: bytes(32),
    }
    ShardSubject {
        route: bytes(16),
    }
    OwnerIdentity {
        lease_fencing_digest: bytes(32),
    }
    ControlAuthor {
        actor_hash: bytes(32),
        role_set_hash: bytes(32),
        scope_hash: bytes(32),
    }
    TrustedUtcInterval and interval {
        earliest_ms: time,
        latest_ms: time,
        source: one_of<v1::TimeEvidenceSource>,
        source_evidence_sha256: bytes(32),
        source_signature: maybe_bytes(64),
    }
    ControlRef {
        operation_id: bytes(32),
        request_hash: bytes(32),
    }
    ControlReason {
        kind: one_of<v1::ControlReasonKind>,
        ticket_hash: maybe_bytes(32),
        detail_hash: maybe_bytes(32),
    }
    Acknowledgement {
        kind: one_of<v1::AcknowledgementKind>,
        acknowledgement_hash: bytes(32),
        ticket_scope_hash: bytes(32),
    }
    AcknowledgementSet and acknowledgements {
        acknowledgements: messages,
    }
    LaneControlTarget {
        lane_id: bytes(32),
        lane_incarnation: bytes(16),
    }
    QuotaGrantRef {
        grant_id: bytes(32),
        semantic_hash: bytes(32),
    }
    QuotaTransferPlanRef {
        operation_id: bytes(32),
        request_hash: bytes(32),
        plan_hash: bytes(32),
    }
    CommittedPayloadDescriptor {
        object_store_profile: message,
        payload_sha256: bytes(32),
        reservation_id: bytes(32),
        proof_id: bytes(32),
    }
    PayloadForPublish and payload {
        payload_sha256: bytes(32),
    }
    ClaimMaterialization {
        destination_profile: message,
        capability_profile: message,
        target_resource: message,
        delay_message_id: message_id,
        payload: message,
        business_metadata: message,
        deliver_at_ms: time,
        expire_at_ms: time,
        action_at_ms: time,
    }
    ClaimPrecondition and materialization {
        claim_id: bytes(32),
        delay_message_id: message_id,
        lane_id: bytes(32),
        lane_incarnation: bytes(16),
        original_timeline_key_sha256: bytes(32),
        materialization: maybe_message,
        materialization_digest: maybe_bytes(32),
        claim_deadline_ms: time,
        owner: message,
        store_incarnation: bytes(16),
        source_work_kind: one_of<v1::TimelineWorkKind>,
        expected_attempt_obligation_set_digest: bytes(32),
        source_timeline_semantic_digest: bytes(32),
    }
    ReservedPublishMetadata {
        route: bytes(16),
        delay_message_id: message_id,
        publish_attempt_id: bytes(32),
        destination_profile_hash: bytes(32),
        capability_profile_hash: bytes(32),
        deliver_at_ms: time,
        delivery_mode: one_of<v1::DeliveryMode>,
    }
    CredentialUseLease {
        lease_version: fixed(1),
        profile: message,
        kind: one_of<v1::CredentialUseKind>,
        holder_scope_digest: bytes(32),
        secret_generation: not_zero,
        credential_binding_digest: bytes(32),
        fingerprint_digest: bytes(32),
        issued_at: message,
        valid_until_ms: time,
        protection_revision: not_zero,
        lease_digest: bytes(32),
    }
    ChannelResourceIdentity and channel {
        adapter_kind: one_of<BrokerAdapter>,
        channel_kind: one_of<v1::ChannelKind>,
        lane_id: bytes(32),
        lane_incarnation: bytes(16),
        target_resource: message,
        channel_generation: not_zero,
        producer_identity_sha256: bytes(32),
        evidence_resource: maybe_message,
        guard_attestation_digest: bytes(32),
        credential_generation: not_zero,
        credential_binding_digest: bytes(32),
        credential_fingerprint_digest: bytes(32),
        credential_use_lease: message,
    }
    PreparedPublishDescriptor {
        descriptor_version: fixed(1),
        adapter_kind: one_of<BrokerAdapter>,
        adapter_encoding_version: fixed(1),
        lane_id: bytes(32),
        lane_incarnation: bytes(16),
        destination_profile: message,
        capability_profile: message,
        target_resource: message,
        channel: message,
        delay_message_id: message_id,
        publish_attempt_id: bytes(32),
        payload: message,
        business_metadata: message,
        reserved_metadata: message,
        deliver_at_ms: time,
        expire_at_ms: time,
        action_at_ms: time,
    }
    EmptyBarrier and empty_barrier {
        resource: message,
        guard_attestation_digest: maybe_bytes(32),
    }
    KafkaExclusiveOffset {
        resource: message,
    }
    PulsarInclusiveMessageId {
        resource: message,
        guard_attestation_digest: bytes(32),
    }
    KafkaReceiptCursor {
        topic_uuid: bytes(16),
    }
    PulsarJournalCursor {
        resource_token: bytes(32),
        topic: text,
    }
    EvidenceCursor and cursor {
        evidence_kind: one_of<v1::EvidenceKind>,
        lane_id: bytes(32),
        lane_incarnation: bytes(16),
        max_broker_time_ms: time,
    }
    ReadyCertificate {
        certificate_version: fixed(1),
        owner: message,
        store_incarnation: bytes(16),
        lane_id: bytes(32),
        lane_incarnation: bytes(16),
        channel: message,
        activation_barrier: message,
        evidence_cursors: messages,
        valid_until_ms: time,
        issued_at: message,
        credential_generation: not_zero,
        credential_binding_digest: bytes(32),
        credential_fingerprint_digest: bytes(32),
        certificate_digest: bytes(32),
    }
    RetryDecision and retry_decision {
        kind: one_of<v1::RetryDecisionKind>,
        policy: message,
        first_attempt_at_ms: time,
        retry_deadline_ms: time,
        next_retry_at_ms: maybe_time,
        jitter_algorithm_version: fixed(1),
        cause: code,
        retry_domain: one_of<v1::RetryDomain>,
    }
}

/// The adapters of the registry: the embedded one is ours and never stands in a body of version 1.
pub(super) struct BrokerAdapter;

impl TryFrom<i32> for BrokerAdapter {
    type Error = ();

    fn try_from(number: i32) -> Result<Self, ()> {
        match v1::AdapterKind::try_from(number) {
            Ok(v1::AdapterKind::Kafka | v1::AdapterKind::Pulsar) => Ok(Self),
            Ok(v1::AdapterKind::Embedded) | Err(_) => Err(()),
        }
    }
}

fn interval(value: &v1::TrustedUtcInterval) -> Result<(), FieldError> {
    if value.earliest_ms > value.latest_ms {
        return Err(FieldError::new("latest_ms", Fault::Conflict { with: "earliest_ms" }));
    }
    let signed = value.source == i32::from(v1::TimeEvidenceSource::SignedTimeService);
    if signed != (value.source_key_version > 0) {
        return Err(FieldError::new("source_key_version", Fault::Conflict { with: "source" }));
    }
    if signed != value.source_signature.is_some() {
        return Err(FieldError::new("source_signature", Fault::Conflict { with: "source" }));
    }
    Ok(())
}

fn acknowledgements(value: &v1::AcknowledgementSet) -> Result<(), FieldError> {
    field::ascending("acknowledgements", &value.acknowledgements, |acknowledgement| acknowledgement.kind)
}

fn payload(value: &v1::PayloadForPublish) -> Result<(), FieldError> {
    use v1::payload_for_publish::Payload;
    match field::required("payload", value.payload.as_ref())? {
        Payload::InlinePayload(payload) => {
            let length = u64::try_from(payload.len()).expect("usize has at most 64 bits");
            field::same("length", &value.length, "the inline payload's", &length)?;
            field::derived("payload_sha256", &value.payload_sha256, &crate::hash::sha256(payload))
        }
        Payload::Object(object) => {
            object.check().within("object")?;
            field::same("length", &value.length, "the object's", &object.length)?;
            field::same("payload_sha256", &value.payload_sha256, "the object's", &object.payload_sha256)
        }
    }
}

fn materialization(value: &v1::ClaimPrecondition) -> Result<(), FieldError> {
    match (&value.materialization, &value.materialization_digest) {
        (Some(materialization), Some(digest)) => {
            let computed = crate::hash::Preimage::new("nereus-delay-claim-materialization-v1\0")
                .bytes(&materialization.encode_to_vec())
                .sha256();
            field::derived("materialization_digest", digest, &computed)
        }
        (None, None) => Ok(()),
        _ => Err(FieldError::new("materialization_digest", Fault::Conflict { with: "materialization" })),
    }
}

fn channel(value: &v1::ChannelResourceIdentity) -> Result<(), FieldError> {
    let identity = crate::hash::sha256(&value.producer_identity);
    field::derived("producer_identity_sha256", &value.producer_identity_sha256, &identity)?;
    if value.evidence_resource.is_some() != value.evidence_generation.is_some() {
        return Err(FieldError::new("evidence_generation", Fault::Conflict { with: "evidence_resource" }));
    }
    if value.evidence_generation == Some(0) {
        return Err(FieldError::new("evidence_generation", Fault::Zero));
    }
    Ok(())
}

fn empty_barrier(value: &v1::EmptyBarrier) -> Result<(), FieldError> {
    if value.guarded_connection_generation.is_some() == value.guard_attestation_digest.is_some() {
        return Ok(());
    }
    Err(FieldError::new("guard_attestation_digest", Fault::Conflict { with: "guarded_connection_generation" }))
}

fn cursor(value: &v1::EvidenceCursor) -> Result<(), FieldError> {
    use v1::evidence_cursor::Cursor;
    let kind = match field::required("cursor", value.cursor.as_ref())? {
        Cursor::Kafka(cursor) => {
            cursor.check().within("kafka")?;
            v1::EvidenceKind::KafkaReceiptContiguous
        }
        Cursor::Pulsar(cursor) => {
            cursor.check().within("pulsar")?;
            v1::EvidenceKind::PulsarAttemptJournalContiguous
        }
    };
    field::same("evidence_kind", &value.evidence_kind, "the cursor's branch", &kind.into())
}

fn retry_decision(value: &v1::RetryDecision) -> Result<(), FieldError> {
    use v1::RetryDecisionKind as Kind;
    let has_next = matches!(Kind::try_from(value.kind), Ok(Kind::Scheduled | Kind::LaneWait));
    if has_next == value.next_retry_at_ms.is_some() {
        return Ok(());
    }
    Err(FieldError::new("next_retry_at_ms", Fault::Conflict { with: "kind" }))
}

impl Shape for v1::BrokerResourceIdentity {
    fn check(&self) -> Result<(), FieldError> {
        match Resource::from_proto(self)? {
            Resource::Kafka { .. } | Resource::Pulsar { .. } => Ok(()),
            Resource::Embedded { .. } => Err(FieldError::new("embedded", Fault::Unexpected)),
        }
    }
}

impl Shape for v1::ActivationBarrier {
    fn check(&self) -> Result<(), FieldError> {
        use v1::activation_barrier::Barrier;
        match field::required("barrier", self.barrier.as_ref())? {
            Barrier::Empty(barrier) => rule::message("empty", barrier),
            Barrier::Kafka(barrier) => rule::message("kafka", barrier),
            Barrier::Pulsar(barrier) => rule::message("pulsar", barrier),
        }
    }
}

impl Shape for v1::AdapterMetadata {
    fn check(&self) -> Result<(), FieldError> {
        crate::command::AdapterMetadata::from_proto(self.clone())?;
        Ok(())
    }
}

impl Shape for v1::ExternalDeliveryIdentity {
    fn check(&self) -> Result<(), FieldError> {
        use v1::external_delivery_identity::Identity;
        match field::required("identity", self.identity.as_ref())? {
            Identity::PublishAttemptId(id) => rule::bytes("publish_attempt_id", id, 32),
            Identity::DlqExportId(id) => rule::bytes("dlq_export_id", id, 32),
        }
    }
}

impl Shape for v1::AuthorIdentity {
    fn check(&self) -> Result<(), FieldError> {
        use v1::author_identity::Author;
        match field::required("author", self.author.as_ref())? {
            Author::Owner(author) => rule::message("owner", author),
            Author::Control(author) => rule::message("control", author),
            Author::Fence(_) | Author::Service(_) => Ok(()),
        }
    }
}
