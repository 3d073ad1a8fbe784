//! The ten branches of publish evidence, body version 1 (protocol registry §2.11).

use prost::Message;

use super::nested::BrokerAdapter;
use super::shape::{Shape, shapes};
use crate::derived;
use crate::field::{self, Fault, FieldError, Within};
use crate::v1;
use v1::EvidenceStatus::{VerifiedNotPublished, VerifiedPublished};
use v1::publish_evidence::Branch;

shapes! {
    KafkaProduceAck {
        target: message,
        append_time_ms: time,
        delivery: message,
        prepared_hash: bytes(32),
        response_sha256: bytes(32),
    }
    KafkaTransactionalReceipt {
        cursor: message,
        delivery: message,
        prepared_hash: bytes(32),
        target: message,
        transactional_identity_sha256: bytes(32),
        receipt_sha256: bytes(32),
    }
    KafkaReceiptAbsence {
        cursor: message,
        fenced_channel: message,
        delivery: message,
        prepared_hash: bytes(32),
        barrier_sha256: bytes(32),
    }
    PulsarSendAck {
        target: message,
        broker_time_ms: time,
        producer_name_sha256: bytes(32),
        delivery: message,
        prepared_hash: bytes(32),
        response_sha256: bytes(32),
    }
    PulsarAttemptJournal {
        cursor: message,
        delivery: message,
        prepared_hash: bytes(32),
        producer_name_sha256: bytes(32),
        mapping_sha256: bytes(32),
        target_ack_evidence_id: maybe_bytes(32),
    }
    PulsarJournalAbsence {
        cursor: message,
        fenced_channel: message,
        delivery: message,
        prepared_hash: bytes(32),
        producer_name_sha256: bytes(32),
        retirement_barrier_sha256: bytes(32),
    }
    GuardRejection {
        target: message,
        operation: one_of<v1::GuardOperation>,
        attestation_digest: bytes(32),
        request_sha256: bytes(32),
        guard_code: code,
        response_sha256: bytes(32),
        delivery: message,
        prepared_hash: bytes(32),
    }
    OperatorAttestation {
        verifier_profile: message,
        delivery: message,
        prepared_hash: bytes(32),
        target: message,
        status: one_of<v1::EvidenceStatus>,
        issued_at_ms: time,
        not_after_ms: time,
        payload_sha256: bytes(32),
        signature: bytes(64),
    }
    AdapterNonSubmission {
        channel: message,
        delivery: message,
        prepared_hash: bytes(32),
        kind: one_of<v1::AdapterNonSubmissionKind>,
        local_request_sha256: bytes(32),
        code: code,
    }
    BrokerDefinitiveRejection {
        adapter: one_of<BrokerAdapter>,
        target: message,
        delivery: message,
        prepared_hash: bytes(32),
        request_sha256: bytes(32),
        response_sha256: bytes(32),
    }
}

impl Shape for v1::PublishEvidence {
    fn check(&self) -> Result<(), FieldError> {
        let status: v1::EvidenceStatus = field::known("status", self.status)?;
        let branch = field::required("branch", self.branch.as_ref())?;
        let facts = facts(branch);
        facts.message.check().within(facts.name)?;
        field::same("kind", &self.kind, "the branch's", &u32::from(facts.kind))?;
        if facts.possible.is_some_and(|possible| possible != status)
            && (facts.definitive || status != v1::EvidenceStatus::Unresolved)
        {
            return Err(FieldError::new("status", Fault::Conflict { with: facts.name }));
        }
        if let Branch::OperatorAttestation(attestation) = branch {
            field::same("status", &self.status, "the attestation's", &attestation.status)?;
        }
        let status = u16::try_from(self.status).expect("known statuses are 1 to 3");
        let computed = derived::evidence_id(facts.kind, status, &facts.bytes);
        field::derived("evidence_id", &self.evidence_id, &computed)
    }
}

/// What is to be known of a branch.
struct Facts<'a> {
    name: &'static str,
    kind: u16,
    /// The one verified status that the branch can have; `None` when its content decides.
    possible: Option<v1::EvidenceStatus>,
    /// Whether it can have that status only, not even be unresolved.
    definitive: bool,
    message: &'a dyn Shape,
    bytes: Vec<u8>,
    delivery: &'a v1::ExternalDeliveryIdentity,
}

fn facts(branch: &Branch) -> Facts<'_> {
    macro_rules! facts {
        ($name:literal, $kind:literal, $possible:expr, $definitive:literal, $branch:ident) => {
            Facts {
                name: $name,
                kind: $kind,
                possible: $possible,
                definitive: $definitive,
                message: $branch,
                bytes: $branch.encode_to_vec(),
                delivery: &$branch.delivery,
            }
        };
    }
    match branch {
        Branch::KafkaProduceAck(b) => facts!("kafka_produce_ack", 1, Some(VerifiedPublished), false, b),
        Branch::KafkaTransactionalReceipt(b) => {
            facts!("kafka_transactional_receipt", 2, Some(VerifiedPublished), false, b)
        }
        Branch::KafkaReceiptAbsence(b) => facts!("kafka_receipt_absence", 3, Some(VerifiedNotPublished), false, b),
        Branch::PulsarSendAck(b) => facts!("pulsar_send_ack", 4, Some(VerifiedPublished), false, b),
        Branch::PulsarAttemptJournal(b) => facts!("pulsar_attempt_journal", 5, None, false, b),
        Branch::PulsarJournalAbsence(b) => facts!("pulsar_journal_absence", 6, Some(VerifiedNotPublished), false, b),
        Branch::GuardRejection(b) => facts!("guard_rejection", 7, Some(VerifiedNotPublished), false, b),
        Branch::OperatorAttestation(b) => facts!("operator_attestation", 8, None, false, b),
        Branch::AdapterNonSubmission(b) => facts!("adapter_non_submission", 9, Some(VerifiedNotPublished), true, b),
        Branch::BrokerDefinitiveRejection(b) => {
            facts!("broker_definitive_rejection", 10, Some(VerifiedNotPublished), true, b)
        }
    }
}

/// Checks that evidence is about `attempt_id`, or about the export `export_id`.
pub(super) fn about(
    evidence: &v1::PublishEvidence,
    owner: &v1::external_delivery_identity::Identity,
) -> Result<(), FieldError> {
    let branch = field::required("branch", evidence.branch.as_ref())?;
    let facts = facts(branch);
    if facts.delivery.identity.as_ref() == Some(owner) {
        return Ok(());
    }
    Err(FieldError::new("delivery", Fault::Differs { other: "the identity it is evidence about" }).within(facts.name))
}
