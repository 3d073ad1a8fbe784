//! One lane as the scheduler sees it: gate, session, circuit, window, and what it has under way.

use std::time::Duration;

use bytes::Bytes;
use protocol::code::StableCode;

use super::circuit::{Allowance, Circuit, CircuitConfig};
use super::window::DueWindow;
use crate::state::MessageUuid;

/// Whether the owner can send to a lane's destination now. Never an input of apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The destination has not been asked about open attempts yet, or no session is open.
    RecoveringEvidence,
    /// A session is open and verified.
    Ready,
    /// The destination refuses, with this code; the owner tries again.
    Blocked(StableCode),
}

/// Messages and bytes that hold permits: claimed, admitted or sent, and not settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Messages.
    pub messages: usize,
    /// Their cost in bytes.
    pub bytes: u64,
}

impl Load {
    pub(crate) fn add(&mut self, cost: u64) {
        self.messages += 1;
        self.bytes += cost;
    }

    pub(crate) fn sub(&mut self, cost: u64) {
        self.messages -= 1;
        self.bytes -= cost;
    }

    /// Whether one more item fits below a limit. A single item always fits an empty limit.
    pub fn has_room(&self, cost: u64, limit: Load) -> bool {
        self.messages < limit.messages && (self.messages == 0 || self.bytes + cost <= limit.bytes)
    }
}

/// In which order a lane waits for its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinedUp {
    /// By the time of its first key.
    ByTime(i64),
    /// By the end of its circuit's pause.
    ByPause(Duration),
}

/// A destination lane in memory.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The profile version it delivers to.
    pub profile_id: Bytes,
    /// The profile version it delivers to.
    pub profile_version: u64,
    /// The physical partition it delivers to.
    pub partition: u32,
    /// The lane's own gate.
    pub gate_open: bool,
    /// The owner's session.
    pub readiness: Readiness,
    /// Trouble.
    pub circuit: Circuit,
    /// What waits, as far as it is in memory.
    pub window: DueWindow,
    /// What is under way.
    pub load: Load,
    /// Where the scheduler finds the lane again.
    pub(crate) lined_up: Option<LinedUp>,
    /// The message that probes the lane's circuit.
    pub(crate) probe: Option<MessageUuid>,
    /// Keys taken out of the timeline since the lane's low-water mark was last raised.
    pub(crate) keys_gone: usize,
}

impl Lane {
    /// A lane with an open gate and no session yet.
    pub fn new(
        profile_id: Bytes,
        profile_version: u64,
        partition: u32,
        window: DueWindow,
        circuit: CircuitConfig,
    ) -> Lane {
        Lane {
            profile_id,
            profile_version,
            partition,
            gate_open: true,
            readiness: Readiness::RecoveringEvidence,
            circuit: Circuit::new(circuit),
            window,
            load: Load::default(),
            lined_up: None,
            probe: None,
            keys_gone: 0,
        }
    }

    /// A message gives its permits back, and the place of the probe if it was that.
    pub(crate) fn give_back(&mut self, message: MessageUuid, cost: u64) {
        self.load.sub(cost);
        if self.probe == Some(message) {
            self.probe = None;
            self.circuit.released();
        }
    }

    /// What the lane may be asked for now.
    pub fn allowance(&self, profile_paused: bool, now: Duration) -> Option<Allowance> {
        (self.gate_open && !profile_paused && self.readiness == Readiness::Ready).then(|| self.circuit.allowance(now))
    }
}
