//! Bodies with one broken rule each.

use protocol::mutation_v1::MutationBodyV1 as Body;
use protocol::v1;

use super::control::{apply, delete_confirmed, payloads, resources, retire};
use super::{
    H, INCARNATION, admission, claim_result, control_author, export, fence, outcome, owner, resolve, service,
    time_fence,
};

type Broken = (&'static str, &'static str, v1::AuthorIdentity, Body);

/// Bodies with one broken rule each: what is broken, the field at fault, author, body.
pub(crate) fn broken() -> Vec<Broken> {
    let changed_outcome = |change: &dyn Fn(&mut v1::PublishOutcomeBody)| {
        let mut body = outcome();
        change(&mut body);
        Body::PublishOutcome(Box::new(body))
    };
    let changed_fence = |change: &dyn Fn(&mut v1::TimeFenceBody)| {
        let mut body = time_fence();
        change(&mut body);
        Body::TimeFence(Box::new(body))
    };
    let changed_admission = |change: &dyn Fn(&mut v1::PublishAdmissionBody)| {
        let mut body = admission();
        change(&mut body);
        Body::PublishAdmission(Box::new(body))
    };
    let embedded = v1::BrokerResourceIdentity {
        resource: Some(v1::broker_resource_identity::Resource::Embedded(v1::EmbeddedResourceIdentity {
            topic_uuid: INCARNATION,
        })),
    };
    let (_, stop) = payloads().swap_remove(3);
    let mut retire_unsorted = retire(7, resources().swap_remove(6).1);
    retire_unsorted.protections.protections.reverse();
    let mut delete_absent = delete_confirmed();
    delete_absent.outcome = v1::DeleteOutcome::AlreadyAbsent.into();
    delete_absent.evidence.outcome = v1::DeleteOutcome::AlreadyAbsent.into();
    let mut resolve_without_ack = resolve(v1::UncertainResolutionKind::RetryAllowPossibleDuplicate);
    resolve_without_ack.acknowledgement_hash = None;
    let mut export_without_evidence = export(v1::DlqExportEventKind::AttemptOutcome);
    export_without_evidence.evidence = None;
    let mut claim_of_other_owner = claim_result();
    claim_of_other_owner.claim_precondition.owner.owner_epoch = 8;
    let mut half_materialized = claim_result();
    half_materialized.claim_precondition.materialization_digest = Some(H);
    vec![
        ("short attempt", "publish_attempt_id", owner(), changed_outcome(&|b| b.publish_attempt_id = INCARNATION)),
        ("another shard", "shard_subject", owner(), changed_outcome(&|b| b.shard_subject.partition = 4)),
        ("another type", "mutation_type", owner(), changed_outcome(&|b| b.mutation_type = 8)),
        ("another limit", "retry_until_ms", owner(), changed_outcome(&|b| b.retry_until_ms = 9_001)),
        ("no such side effect", "side_effect", owner(), changed_outcome(&|b| b.side_effect = 4)),
        ("no such code", "stable_code", owner(), changed_outcome(&|b| b.stable_code = 0x5108)),
        (
            "published without evidence",
            "evidence",
            owner(),
            changed_outcome(&|b| {
                b.side_effect = v1::PublishSideEffect::Published.into();
                b.disposition = v1::PublishDisposition::None.into();
            }),
        ),
        ("reversed interval", "observed_at.latest_ms", owner(), changed_outcome(&|b| b.observed_at.latest_ms = 1)),
        (
            "unsigned time service",
            "observed_at.source_key_version",
            owner(),
            changed_outcome(&|b| {
                b.observed_at.source = v1::TimeEvidenceSource::SignedTimeService.into();
            }),
        ),
        (
            "retry without a time",
            "retry_decision.next_retry_at_ms",
            owner(),
            changed_outcome(&|b| {
                b.retry_decision.kind = v1::RetryDecisionKind::Scheduled.into();
            }),
        ),
        (
            "another jitter",
            "retry_decision.jitter_algorithm_version",
            owner(),
            changed_outcome(&|b| {
                b.retry_decision.jitter_algorithm_version = 2;
            }),
        ),
        (
            "another domain",
            "retry_decision.retry_domain",
            owner(),
            changed_outcome(&|b| {
                b.retry_decision.retry_domain = v1::RetryDomain::DlqExport.into();
            }),
        ),
        ("another proof", "proof_id", fence(), changed_fence(&|b| b.close_through_ms = 999)),
        ("another fence key", "fence_proof_key_version", fence(), changed_fence(&|b| b.fence_proof_key_version = 4)),
        (
            "an embedded target",
            "channel.target_resource.embedded",
            owner(),
            changed_admission(&|b| {
                b.channel.target_resource = embedded.clone();
            }),
        ),
        (
            "an embedded adapter",
            "descriptor.adapter_kind",
            owner(),
            changed_admission(&|b| b.descriptor.adapter_kind = 3),
        ),
        (
            "another producer",
            "channel.producer_identity_sha256",
            owner(),
            changed_admission(&|b| {
                b.channel.producer_identity_sha256 = H;
            }),
        ),
        (
            "half an evidence channel",
            "channel.evidence_generation",
            owner(),
            changed_admission(&|b| {
                b.channel.evidence_generation = None;
            }),
        ),
        (
            "another payload",
            "descriptor.payload.payload_sha256",
            owner(),
            changed_admission(&|b| {
                b.descriptor.payload.payload_sha256 = H;
            }),
        ),
        ("another owner signs", "owner", owner(), changed_admission(&|b| b.owner.owner_epoch = 8)),
        (
            "a cursor of another kind",
            "ready_certificate.evidence_cursors.evidence_kind",
            owner(),
            changed_admission(&|b| {
                b.ready_certificate.evidence_cursors[0].evidence_kind = 2;
            }),
        ),
        (
            "another kind of control",
            "control_kind",
            control_author(),
            Body::ApplyShardControl(Box::new(apply(5, stop))),
        ),
        (
            "protections out of order",
            "protections.protections",
            service(),
            Body::ResourceRetireIntent(Box::new(retire_unsorted)),
        ),
        (
            "an absent object that was seen",
            "evidence.observed_immutable_version",
            service(),
            Body::ResourceDeleteConfirmed(Box::new(delete_absent)),
        ),
        (
            "a duplicate nobody acknowledged",
            "acknowledgement_hash",
            control_author(),
            Body::ResolveUncertain(Box::new(resolve_without_ack)),
        ),
        ("an export without evidence", "evidence", service(), Body::DlqExportResult(Box::new(export_without_evidence))),
        ("a claim of another owner", "owner", owner(), Body::ClaimResult(Box::new(claim_of_other_owner))),
        (
            "half a materialization",
            "claim_precondition.materialization_digest",
            owner(),
            Body::ClaimResult(Box::new(half_materialized)),
        ),
    ]
}
