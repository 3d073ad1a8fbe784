//! What operators see of a shard's lanes.

use ports::destination::LaneError;
use shard::schedule::circuit::CircuitState;
use shard::schedule::lane::{Lane, Load, Readiness};
use shard::state::LaneNo;

/// A lane as its owner sees it now.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneReport {
    /// Its number in the shard.
    pub lane_no: LaneNo,
    /// Whether its own gate and its profile's are open.
    pub gate_open: bool,
    /// Whether the owner can send to it.
    pub readiness: Readiness,
    /// What its last session error said, empty when there was none since it was last ready.
    pub detail: String,
    /// What its session says although it works, such as that the broker throttles it; none without a session.
    pub remark: Option<LaneError>,
    /// Its circuit.
    pub circuit: CircuitState,
    /// Lane failures since the last success.
    pub failures: u32,
    /// What it has under way.
    pub load: Load,
    /// The earliest time at which something in it waits.
    pub earliest_ms: Option<i64>,
}

impl LaneReport {
    pub(crate) fn new(
        lane_no: LaneNo,
        lane: &Lane,
        profile_paused: bool,
        detail: &str,
        remark: Option<LaneError>,
    ) -> LaneReport {
        LaneReport {
            lane_no,
            gate_open: lane.gate_open && !profile_paused,
            readiness: lane.readiness,
            detail: detail.to_owned(),
            remark,
            circuit: lane.circuit.state(),
            failures: lane.circuit.failures(),
            load: lane.load,
            earliest_ms: lane.window.earliest_ms(),
        }
    }
}
