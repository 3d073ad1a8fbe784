//! Profiles and retry policies: which versions a Schedule may bind, and where a profile delivers (protocol registry §2.12 and
//! §2.18; v2 §§6 and 7).

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::mutation_v2::{DestinationRebind, ProfileActivate, ProfileVersion};
use protocol::policy::{RetryPolicy, UncertainPolicy};

use super::Done;
use crate::effect::Effect;
use crate::machine::verdict::Rule;
use crate::state::constitution::{Policy, Profile};
use crate::state::keys::meta;
use crate::state::row;
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
    let profile = Profile { profile: (*payload.body).clone(), semantic_hash, closed: false, rebound: None };
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

/// Has every version of a profile that is of the resource's adapter deliver there, messages that are bound already included.
/// `expected_version`, when given, must be the profile's control version, which a change raises as that of its gate does.
pub(crate) fn rebind(
    transaction: &mut Transaction<'_>,
    payload: &DestinationRebind,
    expected_version: Option<u64>,
) -> Done {
    let DestinationRebind { profile_id, resource } = payload;
    if !transaction.bindings.has_profile(profile_id) {
        return Done::refused(StableCode::NotFound, Rule::None);
    }
    let gate = transaction.bindings.profile_gate(profile_id);
    if expected_version.is_some_and(|expected| expected != gate.control_version) {
        return Done::refused(StableCode::VersionConflict, Rule::None);
    }
    let of_adapter: Vec<(u64, Profile)> = transaction
        .bindings
        .versions(profile_id)
        .filter(|(_, profile)| profile.profile.resource.adapter() == resource.adapter())
        .map(|(version, profile)| (version, profile.clone()))
        .collect();
    if of_adapter.is_empty() {
        return Done::refused(StableCode::ServerInvalidCommand, Rule::ResourceMismatch);
    }
    let mut changed = false;
    for (version, profile) in of_adapter.into_iter().filter(|(_, profile)| profile.resource() != resource) {
        transaction.set_profile(profile_id, version, profile.rebound_to(resource));
        changed = true;
    }
    if changed {
        let control_version = gate.control_version + 1;
        transaction.set_profile_gate(profile_id, row::ProfileGate { control_version, ..gate });
        transaction.emit(Effect::ProfileRebound { profile_id: profile_id.clone() });
    }
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
