//! What operators' records come to (v2 §§3 and 7, protocol registry §6.2).

use bytes::Bytes;
use protocol::code::StableCode as Code;
use protocol::mutation_v2::{ControlPayload, DestinationRebind, MutationBody, MutationV2, Roles, ShardControl};
use protocol::policy::UncertainPolicy;

use super::{Answer, Key, Model};

impl Model {
    pub(super) fn control(&mut self, bp_ms: i64, mutation: &MutationV2) -> Answer {
        let MutationBody::ShardControl(body) = &mutation.body else { unreachable!("an operator writes nothing else") };
        // T15.
        let latest_ms = bp_ms + self.limits.control_retry_window_ms_max;
        let retry_until_ms = mutation.retry_until_ms;
        if !(bp_ms..=latest_ms).contains(&retry_until_ms) || retry_until_ms <= self.closed_ms {
            return Answer::Position(Code::SystemMutationRetryWindowExpired);
        }
        let first = self.operations.get(&body.operation_id).filter(|(_, _, end_ms)| *end_ms > self.closed_ms);
        if let Some((hash, code, _)) = first {
            return if *hash == mutation.hash {
                Answer::Control(*code)
            } else {
                Answer::Position(Code::CommandIdConflict)
            };
        }
        let code = self.operate(body);
        self.operations.insert(body.operation_id, (mutation.hash, code, retry_until_ms));
        Answer::Control(code)
    }

    fn operate(&mut self, body: &ShardControl) -> Code {
        match &body.payload {
            ControlPayload::Genesis(_) => return Code::UnauthorizedSystemMutation,
            ControlPayload::StopNewSchedules => self.stopped = true,
            ControlPayload::KeyAdd(entry) => match self.keys.get(&entry.version) {
                Some(key) if key.entry != *entry => return Code::VersionConflict,
                Some(_) => {}
                None => {
                    let key = entry.verifying_key().expect("decoding refuses keys that are none");
                    self.keys.insert(entry.version, Key { entry: *entry, key, retiring: false });
                }
            },
            ControlPayload::KeyRetire { version } => {
                let Some(key) = self.keys.get(version) else { return Code::NotFound };
                let others = || self.keys.values().filter(|key| key.entry.version != *version && !key.retiring);
                let Roles { owner, control } = key.entry.roles;
                let is_last = (owner && !others().any(|key| key.entry.roles.owner))
                    || (control && !others().any(|key| key.entry.roles.control));
                if is_last {
                    return Code::ServerInvalidCommand;
                }
                self.keys.entry(*version).and_modify(|key| key.retiring = true);
            }
            ControlPayload::ProfileActivate(payload) => {
                let version = (payload.profile.id.clone(), payload.profile.version);
                let new = (payload.body.as_ref().clone(), false);
                if *self.profiles.entry(version).or_insert_with(|| new.clone()) != new {
                    return Code::VersionConflict;
                }
            }
            ControlPayload::ProfileClose(profile) => {
                match self.profiles.get_mut(&(profile.id.clone(), profile.version)) {
                    None => return Code::NotFound,
                    Some((_, closed)) => *closed = true,
                }
            }
            // v2 §5: a policy that holds is refused until somebody can resolve what it holds.
            ControlPayload::RetryPolicyActivate(policy) if policy.uncertain == UncertainPolicy::HoldForEvidence => {
                return Code::ServerInvalidCommand;
            }
            ControlPayload::RetryPolicyActivate(policy) => {
                let new = (policy.as_ref().clone(), false);
                if *self.policies.entry((policy.id.clone(), policy.version)).or_insert_with(|| new.clone()) != new {
                    return Code::VersionConflict;
                }
            }
            ControlPayload::RetryPolicyClose { policy_id, version } => {
                match self.policies.get_mut(&(policy_id.clone(), *version)) {
                    None => return Code::NotFound,
                    Some((_, closed)) => *closed = true,
                }
            }
            ControlPayload::DestinationRebind(rebind) => return self.rebind(rebind, body.expected_version),
            ControlPayload::LanePause(id) | ControlPayload::LaneResume(id) => {
                let pauses = matches!(body.payload, ControlPayload::LanePause(_));
                match self.lanes.values_mut().find(|lane| lane.id == *id) {
                    None => return Code::NotFound,
                    Some(lane) => return set_gate(&mut lane.paused, &mut lane.version, pauses, body.expected_version),
                }
            }
            ControlPayload::DestinationPause { profile_id } | ControlPayload::DestinationResume { profile_id } => {
                if !self.profiles.keys().any(|(id, _)| id == profile_id) {
                    return Code::NotFound;
                }
                let pauses = matches!(body.payload, ControlPayload::DestinationPause { .. });
                let (paused, version) = self.profile_gates.entry(profile_id.clone()).or_default();
                return set_gate(paused, version, pauses, body.expected_version);
            }
        }
        Code::Ok
    }

    /// v2 §7: the versions that can go to the new topic go there. Silent: what it expects the version of; chosen: of the
    /// profile's gate, which any change of the profile raises.
    fn rebind(&mut self, rebind: &DestinationRebind, expected_version: Option<u64>) -> Code {
        let DestinationRebind { profile_id, resource } = rebind;
        let versions: Vec<_> = self.profiles.keys().filter(|(id, _)| id == profile_id).cloned().collect();
        if versions.is_empty() {
            return Code::NotFound;
        }
        let control_version = self.profile_gates.get(profile_id).map_or(0, |(_, version)| *version);
        if expected_version.is_some_and(|expected| expected != control_version) {
            return Code::VersionConflict;
        }
        let fits = |version: &(Bytes, u64)| self.profiles[version].0.resource.adapter() == resource.adapter();
        let fitting: Vec<_> = versions.into_iter().filter(fits).collect();
        if fitting.is_empty() {
            return Code::ServerInvalidCommand;
        }
        let before = self.resources();
        if fitting.iter().any(|version| before[version] != *resource) {
            self.profile_gates.entry(profile_id.clone()).or_default().1 += 1;
        }
        self.rebound.extend(fitting.into_iter().map(|version| (version, resource.clone())));
        Code::Ok
    }
}

/// §6.2, kinds 8 and 9; v2 §3, kinds 17 and 18. Silent: a pause of what is paused; chosen: no change.
fn set_gate(paused: &mut bool, version: &mut u64, pauses: bool, expected_version: Option<u64>) -> Code {
    if expected_version.is_some_and(|expected| expected != *version) {
        return Code::VersionConflict;
    }
    if *paused == pauses {
        return if pauses { Code::Ok } else { Code::AlreadyOpen };
    }
    (*paused, *version) = (pauses, *version + 1);
    Code::Ok
}
