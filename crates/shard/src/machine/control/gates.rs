//! PAUSE and RESUME of a lane or of a whole profile: the log-ordered half of what makes a lane offer work.

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::lane::LaneId;

use super::{ApplyError, Done};
use crate::effect::Effect;
use crate::machine::verdict::Rule;
use crate::state::LaneNo;
use crate::state::row;
use crate::state::transaction::Transaction;

/// Sets the gate of one lane. `expected_version`, when given, must be the lane's control version.
pub(crate) fn set_lane(
    transaction: &mut Transaction<'_>,
    lane_id: LaneId,
    gate: row::Gate,
    expected_version: Option<u64>,
) -> Result<Done, ApplyError> {
    let Some(lane_no) = find_lane(transaction, lane_id)? else {
        return Ok(Done::refused(StableCode::NotFound, Rule::None));
    };
    let lane = transaction.lane(lane_no)?;
    if expected_version.is_some_and(|expected| expected != lane.control_version) {
        return Ok(Done::refused(StableCode::VersionConflict, Rule::None));
    }
    if lane.gate() == gate {
        let code = if gate == row::Gate::Open { StableCode::AlreadyOpen } else { StableCode::Ok };
        return Ok(Done { code, rule: Rule::None });
    }
    let lane = transaction.lane_mut(lane_no)?;
    lane.set_gate(gate);
    lane.control_version += 1;
    transaction.emit(Effect::LaneChanged { lane_no });
    Ok(Done::ok())
}

/// Lanes are few and operations on them rare: they are found by their numbers, not by an index of ids.
fn find_lane(transaction: &mut Transaction<'_>, lane_id: LaneId) -> Result<Option<LaneNo>, ApplyError> {
    for number in 1..=transaction.progress.lane_no_last {
        if transaction.lane(LaneNo(number))?.lane_id[..] == lane_id.0 {
            return Ok(Some(LaneNo(number)));
        }
    }
    Ok(None)
}

/// Sets the gate of every version of a profile. `expected_version`, when given, must be the gate's control version.
pub(crate) fn set_profile(
    transaction: &mut Transaction<'_>,
    profile_id: &Bytes,
    paused: bool,
    expected_version: Option<u64>,
) -> Done {
    if !transaction.bindings.has_profile(profile_id) {
        return Done::refused(StableCode::NotFound, Rule::None);
    }
    let gate = transaction.bindings.profile_gate(profile_id);
    if expected_version.is_some_and(|expected| expected != gate.control_version) {
        return Done::refused(StableCode::VersionConflict, Rule::None);
    }
    if gate.paused == paused {
        let code = if paused { StableCode::Ok } else { StableCode::AlreadyOpen };
        return Done { code, rule: Rule::None };
    }
    transaction.set_profile_gate(profile_id, row::ProfileGate { paused, control_version: gate.control_version + 1 });
    transaction.emit(Effect::ProfileGateChanged { profile_id: profile_id.clone(), paused });
    Done::ok()
}
