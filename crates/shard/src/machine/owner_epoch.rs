//! OWNER_EPOCH: a new owner's first record, behind which every other owner's records are stale (v2 §4).

use bytes::Bytes;
use protocol::mutation_v2::{MutationV2, OwnerEpoch};

use super::mutation::stale;
use super::verdict::{RecordResult, Rule};
use super::{ApplyError, At};
use crate::effect::Effect;
use crate::state::transaction::Transaction;

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    mutation: &MutationV2,
    body: &OwnerEpoch,
    epoch: u64,
    worker_run_id: [u8; 16],
) -> Result<RecordResult, ApplyError> {
    let stored_epoch = transaction.progress.owner_epoch;
    if epoch == stored_epoch && transaction.progress.worker_run_id[..] == worker_run_id {
        return Ok(RecordResult::Owner { accepted: 0, failed: 0 });
    }
    if epoch <= stored_epoch {
        let detail = format!("epoch {epoch} is not above {stored_epoch}");
        return Ok(stale(transaction, at, mutation, Rule::NotTheOwner, detail));
    }
    let progress = &mut transaction.progress;
    progress.owner_epoch = epoch;
    progress.worker_run_id = Bytes::copy_from_slice(&worker_run_id);
    progress.owner_store_incarnation = Bytes::copy_from_slice(&body.store_incarnation);
    progress.owner_key_version = mutation.signing_key_version;
    drop_retiring_keys(transaction, mutation.signing_key_version);
    transaction.emit(Effect::OwnerChanged { epoch, worker_run_id });
    Ok(RecordResult::Owner { accepted: 1, failed: 0 })
}

/// Keys whose retirement was waiting for an owner who signs with another.
fn drop_retiring_keys(transaction: &mut Transaction<'_>, signed_with: u32) {
    if transaction.constitution.retiring_keys().any(|version| version != signed_with) {
        let mut constitution = (*transaction.constitution).clone();
        constitution.drop_retiring_keys(signed_with);
        transaction.set_constitution(constitution);
    }
}
