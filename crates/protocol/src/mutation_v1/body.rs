//! The twelve bodies of version 1: shape, rules between fields, and the logical identity of each (protocol registry §2.5 and
//! §2.11).

use bytes::Bytes;
use prost::Message;

use super::evidence;
use super::shape::{Shape, rule, shapes};
use crate::canonical::{Canonical, DecodeError, decode_canonical};
use crate::derived;
use crate::field::{self, Fault, FieldError, Within};
use crate::hash::{Hash, Preimage};
use crate::id::MessageId;
use crate::mutation::{Envelope, MutationType, shard_to_proto};
use crate::v1;
use v1::external_delivery_identity::Identity;
use v1::{PublishDisposition as Disposition, PublishSideEffect as SideEffect};

shapes! {
    ApplyShardControlBody and control_kind {
        control_ref: message,
        semantic_hash: bytes(32),
        payload: message,
    }
    ReplayDeadLetterBody {
        control_ref: message,
        delay_message_id: message_id,
        deliver_at_ms: time,
        expire_at_ms: time,
        retry_policy: message,
        acknowledgement_hash: maybe_bytes(32),
    }
    ResolveUncertainBody and resolution {
        control_ref: message,
        lane_id: bytes(32),
        lane_incarnation: bytes(16),
        delay_message_id: message_id,
        publish_attempt_id: bytes(32),
        kind: one_of<v1::UncertainResolutionKind>,
        evidence: maybe_message,
        acknowledgement_hash: maybe_bytes(32),
    }
    TimeFenceBody {
        close_through_ms: time,
        proof_id: bytes(32),
        proof_time: message,
    }
    PublishAdmissionBody {
        owner: message,
        store_incarnation: bytes(16),
        claim_id: bytes(32),
        lane_id: bytes(32),
        lane_incarnation: bytes(16),
        delay_message_id: message_id,
        publish_attempt_id: bytes(32),
        prepared_publish_hash: bytes(32),
        ready_certificate_digest: bytes(32),
        channel: message,
        descriptor: message,
        ready_certificate: message,
        decision_time: message,
        claim_precondition: message,
    }
    PublishOutcomeBody and outcome {
        publish_attempt_id: bytes(32),
        side_effect: one_of<SideEffect>,
        disposition: one_of<Disposition>,
        stable_code: code,
        evidence: maybe_message,
        observed_at: message,
        retry_decision: message,
    }
    ExpireGenerationBody {
        delay_message_id: message_id,
        expire_at_ms: time,
        evidence: message,
    }
    EvidenceResolutionBody and evidence_resolution {
        publish_attempt_id: bytes(32),
        cursor: message,
        evidence: message,
        stable_code: code,
        side_effect: one_of<SideEffect>,
        disposition: one_of<Disposition>,
        observed_at: message,
        retry_decision: message,
    }
    ResourceRetireIntentBody and resource_kind {
        resource: message,
        protections: message,
    }
    ResourceDeleteConfirmedBody and delete_confirmed {
        intent: message,
        outcome: one_of<v1::DeleteOutcome>,
        evidence: message,
        confirmed_at: message,
    }
    ClaimResultBody {
        claim_id: bytes(32),
        delay_message_id: message_id,
        lane_id: bytes(32),
        lane_incarnation: bytes(16),
        claim_precondition: message,
        result_kind: one_of<v1::ClaimResultKind>,
        stable_code: code,
        observed_at: message,
    }
    DlqExportResultBody and dlq_export {
        dlq_export_id: bytes(32),
        delay_message_id: message_id,
        export_envelope_sha256: bytes(32),
        event_kind: one_of<v1::DlqExportEventKind>,
        side_effect: one_of<SideEffect>,
        disposition: one_of<Disposition>,
        stable_code: code,
        evidence: maybe_message,
        observed_at: message,
        retry_decision: message,
        resulting_state: one_of<v1::DlqExportState>,
        physical_attempt_no: not_zero,
    }
    RetireIntentRef {
        system_mutation_id: bytes(32),
        mutation_hash: bytes(32),
        resource_identity_hash: bytes(32),
    }
    ExternalDeleteEvidence and delete_evidence {
        resource_identity_hash: bytes(32),
        provider_request_id_hash: bytes(32),
        outcome: one_of<v1::DeleteOutcome>,
        response_sha256: bytes(32),
        observed_at: message,
    }
}

/// The body of a mutation of version 1: the registry's own message, checked.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each variant is the mutation type of its name, see MutationType")]
pub enum MutationBodyV1 {
    ApplyShardControl(Box<v1::ApplyShardControlBody>),
    ReplayDeadLetter(Box<v1::ReplayDeadLetterBody>),
    ResolveUncertain(Box<v1::ResolveUncertainBody>),
    TimeFence(Box<v1::TimeFenceBody>),
    PublishAdmission(Box<v1::PublishAdmissionBody>),
    PublishOutcome(Box<v1::PublishOutcomeBody>),
    ExpireGeneration(Box<v1::ExpireGenerationBody>),
    EvidenceResolution(Box<v1::EvidenceResolutionBody>),
    ResourceRetireIntent(Box<v1::ResourceRetireIntentBody>),
    ResourceDeleteConfirmed(Box<v1::ResourceDeleteConfirmedBody>),
    ClaimResult(Box<v1::ClaimResultBody>),
    DlqExportResult(Box<v1::DlqExportResultBody>),
}

/// Evaluates an expression for the message of whichever body it is.
macro_rules! with_body {
    ($value:expr, $body:ident => $result:expr) => {
        match $value {
            MutationBodyV1::ApplyShardControl($body) => $result,
            MutationBodyV1::ReplayDeadLetter($body) => $result,
            MutationBodyV1::ResolveUncertain($body) => $result,
            MutationBodyV1::TimeFence($body) => $result,
            MutationBodyV1::PublishAdmission($body) => $result,
            MutationBodyV1::PublishOutcome($body) => $result,
            MutationBodyV1::ExpireGeneration($body) => $result,
            MutationBodyV1::EvidenceResolution($body) => $result,
            MutationBodyV1::ResourceRetireIntent($body) => $result,
            MutationBodyV1::ResourceDeleteConfirmed($body) => $result,
            MutationBodyV1::ClaimResult($body) => $result,
            MutationBodyV1::DlqExportResult($body) => $result,
        }
    };
}

impl MutationBodyV1 {
    /// Which mutation it is.
    #[must_use]
    pub fn mutation_type(&self) -> MutationType {
        match self {
            Self::ApplyShardControl(_) => MutationType::ApplyShardControl,
            Self::ReplayDeadLetter(_) => MutationType::ReplayDeadLetter,
            Self::ResolveUncertain(_) => MutationType::ResolveUncertain,
            Self::TimeFence(_) => MutationType::TimeFence,
            Self::PublishAdmission(_) => MutationType::PublishAdmission,
            Self::PublishOutcome(_) => MutationType::PublishOutcome,
            Self::ExpireGeneration(_) => MutationType::ExpireGeneration,
            Self::EvidenceResolution(_) => MutationType::EvidenceResolution,
            Self::ResourceRetireIntent(_) => MutationType::ResourceRetireIntent,
            Self::ResourceDeleteConfirmed(_) => MutationType::ResourceDeleteConfirmed,
            Self::ClaimResult(_) => MutationType::ClaimResult,
            Self::DlqExportResult(_) => MutationType::DlqExportResult,
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        with_body!(self, body => body.encode_to_vec().into())
    }

    /// Checks the body and that its first three fields are the envelope's.
    pub(super) fn check(
        &self,
        shard: crate::id::ShardId,
        retry_until_ms: i64,
        signing_key_version: u32,
    ) -> Result<(), FieldError> {
        let mutation_type = self.mutation_type().as_u32();
        with_body!(self, body => {
            field::same("shard_subject", &body.shard_subject, "the envelope's", &shard_to_proto(shard))?;
            field::same("mutation_type", &body.mutation_type, "the envelope's", &mutation_type)?;
            field::same("retry_until_ms", &body.retry_until_ms, "the envelope's", &retry_until_ms)?;
            body.check()?;
        });
        if let Self::TimeFence(body) = self {
            let key_version = "the envelope's signing_key_version";
            field::same("fence_proof_key_version", &body.fence_proof_key_version, key_version, &signing_key_version)?;
            let proof_time = body.proof_time.encode_to_vec();
            let computed =
                derived::time_fence_proof_id(shard, body.close_through_ms, body.fence_proof_key_version, &proof_time);
            field::derived("proof_id", &body.proof_id, &computed)?;
        }
        Ok(())
    }

    pub(super) fn decode(envelope: &Envelope) -> Result<Self, DecodeError> {
        fn body<M: Canonical>(envelope: &Envelope) -> Result<Box<M>, DecodeError> {
            Ok(Box::new(decode_canonical(&envelope.body)?))
        }
        let body = match envelope.mutation_type {
            MutationType::ApplyShardControl => Self::ApplyShardControl(body(envelope)?),
            MutationType::ReplayDeadLetter => Self::ReplayDeadLetter(body(envelope)?),
            MutationType::ResolveUncertain => Self::ResolveUncertain(body(envelope)?),
            MutationType::TimeFence => Self::TimeFence(body(envelope)?),
            MutationType::PublishAdmission => Self::PublishAdmission(body(envelope)?),
            MutationType::PublishOutcome => Self::PublishOutcome(body(envelope)?),
            MutationType::ExpireGeneration => Self::ExpireGeneration(body(envelope)?),
            MutationType::EvidenceResolution => Self::EvidenceResolution(body(envelope)?),
            MutationType::ResourceRetireIntent => Self::ResourceRetireIntent(body(envelope)?),
            MutationType::ResourceDeleteConfirmed => Self::ResourceDeleteConfirmed(body(envelope)?),
            MutationType::ClaimResult => Self::ClaimResult(body(envelope)?),
            MutationType::DlqExportResult => Self::DlqExportResult(body(envelope)?),
            MutationType::OwnerEpoch => {
                return Err(FieldError::new("mutation_type", Fault::Conflict { with: "body_version" }).into());
            }
        };
        body.check(envelope.shard, envelope.retry_until_ms, envelope.signing_key_version)?;
        Ok(body)
    }

    /// What the record stands for: two records with one logical identity are the same operation (protocol registry §2.5).
    ///
    /// # Errors
    /// [`FieldError`] for a body that was never checked.
    pub fn logical_identity(&self) -> Result<Hash, FieldError> {
        match self {
            Self::ApplyShardControl(body) => {
                let kind = u16::try_from(body.control_kind).map_err(|_| {
                    FieldError::new("control_kind", Fault::UnknownValue { found: body.control_kind.into() })
                })?;
                control_target(&body.control_ref, kind)
            }
            Self::ReplayDeadLetter(body) => control_target(&body.control_ref, MutationType::ReplayDeadLetter as u16),
            Self::ResolveUncertain(body) => control_target(&body.control_ref, MutationType::ResolveUncertain as u16),
            Self::TimeFence(body) => field::array("proof_id", &body.proof_id),
            Self::PublishAdmission(body) => field::array("publish_attempt_id", &body.publish_attempt_id),
            Self::PublishOutcome(body) => field::array("publish_attempt_id", &body.publish_attempt_id),
            Self::ClaimResult(body) => field::array("claim_id", &body.claim_id),
            Self::EvidenceResolution(body) => {
                let attempt_id = field::array("publish_attempt_id", &body.publish_attempt_id)?;
                let evidence_id = field::array("evidence_id", &body.evidence.evidence_id).within("evidence")?;
                Ok(derived::evidence_resolution_logical_id(&attempt_id, &evidence_id))
            }
            Self::ExpireGeneration(body) => {
                let message = MessageId::from_bytes(&body.delay_message_id)
                    .map_err(|error| FieldError::new("delay_message_id", error))?;
                Ok(derived::expiry_logical_id(&message, body.generation, body.expire_at_ms))
            }
            Self::ResourceRetireIntent(body) => {
                let kind = u8::try_from(body.resource_kind).map_err(|_| {
                    FieldError::new("resource_kind", Fault::UnknownValue { found: body.resource_kind.into() })
                })?;
                let identity = derived::resource_identity_hash(&body.resource.encode_to_vec());
                Ok(derived::retire_logical_id(kind, &identity, body.expected_resource_state_version))
            }
            Self::ResourceDeleteConfirmed(body) => {
                field::array("system_mutation_id", &body.intent.system_mutation_id).within("intent")
            }
            Self::DlqExportResult(body) => {
                let export_id = field::array("dlq_export_id", &body.dlq_export_id)?;
                match (&body.evidence, body.event_kind == i32::from(v1::DlqExportEventKind::EvidenceResolution)) {
                    (Some(evidence), true) => {
                        let evidence_id = field::array("evidence_id", &evidence.evidence_id).within("evidence")?;
                        Ok(derived::dlq_export_evidence_logical_id(&export_id, &evidence_id))
                    }
                    (None, true) => Err(FieldError::new("evidence", Fault::Missing)),
                    (_, false) => Ok(derived::dlq_export_attempt_logical_id(&export_id, body.physical_attempt_no)),
                }
            }
        }
    }
}

fn control_target(control_ref: &v1::ControlRef, kind: u16) -> Result<Hash, FieldError> {
    let operation_id = field::array("operation_id", &control_ref.operation_id).within("control_ref")?;
    Ok(derived::control_target_logical_id(&operation_id, control_ref.target_index, kind))
}

/// The registry's matrix of side effect, disposition, evidence, code and retry decision.
fn settlement(
    side_effect: i32,
    disposition: i32,
    code: u32,
    evidence: Option<&v1::PublishEvidence>,
    decision: &v1::RetryDecision,
) -> Result<(), FieldError> {
    use v1::EvidenceStatus as Status;
    let conflict = |name, with| Err(FieldError::new(name, Fault::Conflict { with }));
    let side_effect: SideEffect = field::known("side_effect", side_effect)?;
    let disposition: Disposition = field::known("disposition", disposition)?;
    let decision: v1::RetryDecisionKind = field::known("kind", decision.kind).within("retry_decision")?;
    let status = evidence.and_then(|evidence| Status::try_from(evidence.status).ok());
    match side_effect {
        SideEffect::Published => {
            if disposition != Disposition::None {
                return conflict("disposition", "side_effect");
            }
            if status != Some(Status::VerifiedPublished) {
                return conflict("evidence", "side_effect");
            }
            if code != 0 {
                return conflict("stable_code", "side_effect");
            }
            if decision != v1::RetryDecisionKind::None {
                return conflict("retry_decision", "side_effect");
            }
        }
        SideEffect::NotPublished => {
            if status != Some(Status::VerifiedNotPublished) {
                return conflict("evidence", "side_effect");
            }
            let legal = [Disposition::MessageRetriable, Disposition::MessagePermanent, Disposition::LaneUnavailable];
            if !legal.contains(&disposition) {
                return conflict("disposition", "side_effect");
            }
        }
        SideEffect::Unknown => {
            if matches!(status, Some(Status::VerifiedPublished | Status::VerifiedNotPublished)) {
                return conflict("evidence", "side_effect");
            }
            let legal = [v1::RetryDecisionKind::UncertainHold, v1::RetryDecisionKind::Scheduled];
            if !legal.contains(&decision) {
                return conflict("retry_decision", "side_effect");
            }
        }
    }
    Ok(())
}

fn domain(decision: &v1::RetryDecision, domain: v1::RetryDomain) -> Result<(), FieldError> {
    if decision.retry_domain == i32::from(domain) {
        return Ok(());
    }
    Err(FieldError::new("retry_domain", Fault::Conflict { with: "mutation_type" }).within("retry_decision"))
}

fn outcome(body: &v1::PublishOutcomeBody) -> Result<(), FieldError> {
    settlement(body.side_effect, body.disposition, body.stable_code, body.evidence.as_ref(), &body.retry_decision)?;
    domain(&body.retry_decision, v1::RetryDomain::MessagePublish)?;
    match &body.evidence {
        Some(evidence) => {
            let owner = Identity::PublishAttemptId(body.publish_attempt_id.clone());
            evidence::about(evidence, &owner).within("evidence")
        }
        None => Ok(()),
    }
}

fn evidence_resolution(body: &v1::EvidenceResolutionBody) -> Result<(), FieldError> {
    let evidence = Some(&body.evidence);
    settlement(body.side_effect, body.disposition, body.stable_code, evidence, &body.retry_decision)?;
    domain(&body.retry_decision, v1::RetryDomain::MessagePublish)?;
    let owner = Identity::PublishAttemptId(body.publish_attempt_id.clone());
    evidence::about(&body.evidence, &owner).within("evidence")
}

fn dlq_export(body: &v1::DlqExportResultBody) -> Result<(), FieldError> {
    settlement(body.side_effect, body.disposition, body.stable_code, body.evidence.as_ref(), &body.retry_decision)?;
    domain(&body.retry_decision, v1::RetryDomain::DlqExport)?;
    match &body.evidence {
        Some(evidence) => {
            evidence::about(evidence, &Identity::DlqExportId(body.dlq_export_id.clone())).within("evidence")
        }
        None if body.event_kind == i32::from(v1::DlqExportEventKind::EvidenceResolution) => {
            Err(FieldError::new("evidence", Fault::Missing))
        }
        None => Ok(()),
    }
}

fn resolution(body: &v1::ResolveUncertainBody) -> Result<(), FieldError> {
    use v1::EvidenceStatus as Status;
    use v1::UncertainResolutionKind as Kind;
    let kind: Kind = field::known("kind", body.kind)?;
    let (status, duplicate, terminal) = match kind {
        Kind::AttachPublishedEvidence => (Some(Status::VerifiedPublished), false, false),
        Kind::AttachNotPublishedEvidence => (Some(Status::VerifiedNotPublished), false, false),
        Kind::RetryAllowPossibleDuplicate => (None, true, false),
        Kind::TerminalizePossibleDelivery => (None, false, true),
    };
    let found = body.evidence.as_ref().and_then(|evidence| Status::try_from(evidence.status).ok());
    let conflict = |name| Err(FieldError::new(name, Fault::Conflict { with: "kind" }));
    if found != status || body.evidence.is_some() != status.is_some() {
        return conflict("evidence");
    }
    if body.allow_possible_duplicate != duplicate {
        return conflict("allow_possible_duplicate");
    }
    if body.allow_possible_delivery_terminal != terminal {
        return conflict("allow_possible_delivery_terminal");
    }
    if body.acknowledgement_hash.is_some() != (duplicate || terminal) {
        return conflict("acknowledgement_hash");
    }
    match &body.evidence {
        Some(evidence) => {
            let owner = Identity::PublishAttemptId(body.publish_attempt_id.clone());
            evidence::about(evidence, &owner).within("evidence")
        }
        None => Ok(()),
    }
}

fn control_kind(body: &v1::ApplyShardControlBody) -> Result<(), FieldError> {
    let branch = super::control::kind(&body.payload)?;
    field::same("control_kind", &body.control_kind, "the payload's branch", &branch)
}

fn resource_kind(body: &v1::ResourceRetireIntentBody) -> Result<(), FieldError> {
    let branch = super::control::resource_kind(&body.resource)?;
    field::same("resource_kind", &body.resource_kind, "the resource's branch", &branch)
}

fn delete_confirmed(body: &v1::ResourceDeleteConfirmedBody) -> Result<(), FieldError> {
    field::same("outcome", &body.outcome, "evidence.outcome", &body.evidence.outcome)?;
    let (intent, evidence) = (&body.intent.resource_identity_hash, &body.evidence.resource_identity_hash);
    field::same("resource_identity_hash", evidence, "intent.resource_identity_hash", intent).within("evidence")
}

fn delete_evidence(evidence: &v1::ExternalDeleteEvidence) -> Result<(), FieldError> {
    let absent = evidence.outcome == i32::from(v1::DeleteOutcome::AlreadyAbsent);
    if absent && (evidence.observed_immutable_version.is_some() || evidence.observed_etag.is_some()) {
        return Err(FieldError::new("observed_immutable_version", Fault::Conflict { with: "outcome" }));
    }
    Ok(())
}

impl Shape for v1::ProtectionSet {
    fn check(&self) -> Result<(), FieldError> {
        rule::messages("protections", &self.protections)?;
        field::ascending("protections", &self.protections, Message::encode_to_vec)?;
        let digest = field::required("digest", self.digest.as_ref())?;
        let covered = Self { protections: self.protections.clone(), digest: None };
        let computed = Preimage::new("nereus-delay-protection-set-v1\0").bytes(&covered.encode_to_vec()).sha256();
        field::derived("digest", digest, &computed)
    }
}
