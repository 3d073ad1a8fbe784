//! What every system mutation passes before its own rules (protocol registry §6.1, v2 §§2 and 4): place, signature, authority.

use protocol::code::StableCode;
use protocol::mutation_v2::{Author, MutationBody, MutationV2, Stamp};

use super::verdict::{RecordResult, Rule};
use super::{
    ApplyError, At, claim_result, control, evidence_resolution, owner_epoch, publish_admission, publish_outcome,
    refuse_position, time_fence,
};
use crate::planted::{self, Mistake};
use crate::state::constitution::Role;
use crate::state::transaction::Transaction;

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    mutation: &MutationV2,
) -> Result<RecordResult, ApplyError> {
    if mutation.shard != transaction.constitution.shard() {
        let detail = format!("mutation is for shard {}", mutation.shard);
        return Ok(refuse(transaction, at, mutation, StableCode::UnauthorizedSystemMutation, Rule::WrongShard, detail));
    }
    let role = match &mutation.author {
        Author::Owner { .. } => Role::Owner,
        Author::Control { .. } => Role::Control,
    };
    let version = mutation.signing_key_version;
    let verified = transaction.constitution.verifying_key(version, role).is_some_and(|key| mutation.verify(key));
    if !verified {
        let detail = format!("no key of version {version} and role {role:?} verifies the signature");
        return Ok(refuse(transaction, at, mutation, StableCode::UnauthorizedSystemMutation, Rule::Signature, detail));
    }
    match (&mutation.author, &mutation.body) {
        (Author::Control { .. }, MutationBody::ShardControl(body)) => control::apply(transaction, at, mutation, body),
        (Author::Owner { epoch, worker_run_id }, MutationBody::OwnerEpoch(body)) => {
            owner_epoch::apply(transaction, at, mutation, body, *epoch, *worker_run_id)
        }
        (Author::Owner { epoch, worker_run_id }, body) => {
            if !is_owner(transaction, *epoch, worker_run_id) {
                let detail = format!(
                    "record of epoch {epoch}; epoch {} of another run is in force",
                    transaction.progress.owner_epoch
                );
                return Ok(stale(transaction, at, mutation, Rule::NotTheOwner, detail));
            }
            apply_owner_record(transaction, at, mutation, body)
        }
        (Author::Control { .. }, _) => {
            let detail = "only an owner may write this type".to_owned();
            let code = StableCode::UnauthorizedSystemMutation;
            Ok(refuse(transaction, at, mutation, code, Rule::NotTheOwner, detail))
        }
    }
}

fn apply_owner_record(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    mutation: &MutationV2,
    body: &MutationBody,
) -> Result<RecordResult, ApplyError> {
    let entry_count = match body {
        MutationBody::PublishAdmission(body) => body.entries.len(),
        MutationBody::PublishOutcome(body) => body.entries.len(),
        MutationBody::EvidenceResolution(body) => body.entries.len(),
        MutationBody::ClaimResult(body) => body.entries.len(),
        MutationBody::TimeFence(_) | MutationBody::OwnerEpoch(_) | MutationBody::ShardControl(_) => 0,
    };
    let entries_max = usize::try_from(transaction.limits().entries_per_record_max).unwrap_or(usize::MAX);
    if entry_count > entries_max {
        let detail = format!("{entry_count} entries, at most {entries_max} are allowed");
        return Ok(stale(transaction, at, mutation, Rule::TooManyEntries, detail));
    }
    let result = match body {
        MutationBody::PublishAdmission(body) => publish_admission::apply(transaction, at, mutation, body)?,
        MutationBody::PublishOutcome(body) => publish_outcome::apply(transaction, at, body)?,
        MutationBody::EvidenceResolution(body) => evidence_resolution::apply(transaction, at, body)?,
        MutationBody::ClaimResult(body) => claim_result::apply(transaction, at, body)?,
        MutationBody::TimeFence(body) => time_fence::apply(transaction, at, mutation, body)?,
        MutationBody::OwnerEpoch(_) | MutationBody::ShardControl(_) => {
            return Err(ApplyError::Integrity { detail: "mutation type changed between two looks".to_owned() });
        }
    };
    if let RecordResult::Owner { failed, .. } = result {
        transaction.totals().entries_failed += u64::from(failed);
    }
    Ok(result)
}

/// Whether this epoch and this run of it are in force. A higher epoch is not: nobody acts before its OWNER_EPOCH.
fn is_owner(transaction: &Transaction<'_>, epoch: u64, worker_run_id: &[u8; 16]) -> bool {
    let progress = &transaction.progress;
    let is_in_force = progress.owner_epoch == epoch && progress.worker_run_id[..] == worker_run_id[..];
    is_in_force || planted::is(Mistake::IgnoreEpoch)
}

/// T11: whether the record's trusted interval is one the log accepts as evidence.
pub(crate) fn interval_refusal(transaction: &Transaction<'_>, stamp: &Stamp) -> Option<String> {
    let width_ms = stamp.latest_ms - stamp.earliest_ms;
    let width_ms_max = transaction.limits().clock_interval_ms_max;
    (width_ms > width_ms_max)
        .then(|| format!("trusted interval is {width_ms} ms wide, at most {width_ms_max} ms allowed"))
}

/// Refuses a record that was overtaken: it decides nothing, and its author must not act on it.
pub(crate) fn stale(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    mutation: &MutationV2,
    rule: Rule,
    detail: String,
) -> RecordResult {
    transaction.totals().mutations_stale += 1;
    refuse(transaction, at, mutation, StableCode::StaleSystemMutation, rule, detail)
}

pub(crate) fn refuse(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    mutation: &MutationV2,
    code: StableCode,
    rule: Rule,
    detail: String,
) -> RecordResult {
    refuse_position(transaction, at, code, rule, &mutation.mutation_id, detail)
}
