//! Profiles and retry policies: which versions a Schedule may bind (protocol registry §2.12; v2 §6).

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::mutation_v2::{ProfileActivate, ProfileVersion};
use protocol::policy::{RetryPolicy, UncertainPolicy};

use super::Done;
use crate::machine::verdict::Rule;
use crate::state::constitution::{Policy, Profile};
use crate::state::keys::meta;
use crate::state::transaction::Transaction;

/// Opens a profile version for new bindings. The same body again is no change; a closed version stays closed.
pub(crate) fn activate_profile(transaction: &mut Transaction<'_>, payload: &ProfileActivate) -> Done {
    let ProfileVersion { id, version } = &payload.profile;
    if id.len() > meta::PROFILE_ID_BYTES_MAX {
        return Done::refused(StableCode::ServerInvalidCommand, Rule::InvalidBody);
    }
    let semantic_hash = payload.body.semantic_hash(id, *version);
    if let Some(existing) = transaction.bindings.profile(id, *version) {
        let same = existing.semantic_hash == semantic_hash && !existing.closed;
        return if same { Done::ok() } else { Done::refused(StableCode::VersionConflict, Rule::None) };
    }
    let profile = Profile { profile: (*payload.body).clone(), semantic_hash, closed: false };
    transaction.set_profile(id, *version, profile);
    Done::ok()
}

/// Refuses new bindings of a profile version; messages already bound keep it.
pub(crate) fn close_profile(transaction: &mut Transaction<'_>, payload: &ProfileVersion) -> Done {
    let Some(profile) = transaction.bindings.profile(&payload.id, payload.version).cloned() else {
        return Done::refused(StableCode::NotFound, Rule::None);
    };
    transaction.set_profile(&payload.id, payload.version, Profile { closed: true, ..profile });
    Done::ok()
}

/// Opens a retry policy version for new bindings.
pub(crate) fn activate_policy(transaction: &mut Transaction<'_>, policy: &RetryPolicy) -> Done {
    // Nobody can attach evidence to a held attempt yet, so a message under such a policy could wait for ever.
    if policy.uncertain == UncertainPolicy::HoldForEvidence {
        return Done::refused(StableCode::ServerInvalidCommand, Rule::HoldPolicy);
    }
    let Ok(bytes) = policy.encode() else {
        return Done::refused(StableCode::ServerInvalidCommand, Rule::InvalidBody);
    };
    let semantic_hash = policy.semantic_hash();
    if let Some(existing) = transaction.bindings.policy_by_version(&policy.id, policy.version) {
        let same = existing.semantic_hash == semantic_hash && !existing.closed;
        return if same { Done::ok() } else { Done::refused(StableCode::VersionConflict, Rule::None) };
    }
    transaction.add_policy(Policy { policy: policy.clone(), bytes, semantic_hash, closed: false });
    Done::ok()
}

/// Refuses new bindings of a retry policy version.
pub(crate) fn close_policy(transaction: &mut Transaction<'_>, policy_id: &Bytes, version: u64) -> Done {
    let Some(policy_no) = transaction.bindings.policy_no(policy_id, version) else {
        return Done::refused(StableCode::NotFound, Rule::None);
    };
    transaction.close_policy(policy_no);
    Done::ok()
}
