//! What a commit tells the owner: effects are data, and only an owner acts on them.
//!
//! Replay produces the same effects and drops them. Effects come in log order; each says what is true once the commit that
//! returned it is durable.

use bytes::Bytes;

use crate::state::generation::MessageState;
use crate::state::keys::timeline::DueKey;
use crate::state::{LaneNo, MessageUuid};

/// One consequence of an applied record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The message waits in its lane's timeline under this key. A claim with another `log_rev` is void.
    WorkWaiting {
        /// The lane.
        lane_no: LaneNo,
        /// Where in the lane's timeline.
        key: DueKey,
        /// The message.
        message: MessageUuid,
        /// Its generation.
        generation: u32,
        /// Its revision.
        log_rev: u64,
        /// Its cost to the lane scheduler.
        payload_bytes: u32,
    },
    /// The message no longer waits under this key: it was admitted, moved, cancelled or has ended.
    WorkGone {
        /// The lane.
        lane_no: LaneNo,
        /// Where it waited.
        key: DueKey,
        /// The message.
        message: MessageUuid,
    },
    /// The point of no return of one attempt is durable.
    Admitted {
        /// The lane.
        lane_no: LaneNo,
        /// The message.
        message: MessageUuid,
        /// Its generation.
        generation: u32,
        /// The attempt.
        attempt: u32,
        /// The revision the admission entry named.
        log_rev: u64,
        /// The admission record's order token, as stored.
        admission: Bytes,
    },
    /// An attempt that was publishing is not any more: its outcome is applied.
    AttemptSettled {
        /// The lane.
        lane_no: LaneNo,
        /// The message.
        message: MessageUuid,
        /// The attempt's generation.
        generation: u32,
        /// The attempt.
        attempt: u32,
        /// Its admission record's order token, as stored.
        admission: Bytes,
        /// Its outcome is unknown: it stands as an uncertain attempt now.
        uncertain: bool,
    },
    /// A generation ended.
    Ended {
        /// The message.
        message: MessageUuid,
        /// How.
        state: MessageState,
        /// When its business time was.
        deliver_at_ms: i64,
        /// When the deciding record was persisted, or the deadline for an expiry.
        at_ms: i64,
        /// For a published one, when the destination says it has it.
        published_at_ms: Option<i64>,
    },
    /// A live generation has this deadline: a fence must close it in time.
    DeadlineSet {
        /// The deadline.
        expire_at_ms: i64,
    },
    /// A lane was created or its gate or that of its profile changed: read its row again.
    LaneChanged {
        /// The lane.
        lane_no: LaneNo,
    },
    /// A profile's gate changed, for all its lanes.
    ProfileGateChanged {
        /// The profile.
        profile_id: Bytes,
        /// Whether the gate is closed now.
        paused: bool,
    },
    /// A profile delivers to another topic from here on: sessions of its lanes are over.
    ProfileRebound {
        /// The profile.
        profile_id: Bytes,
    },
    /// A fence left closed deadlines unswept: append another.
    SweepUnfinished,
    /// Another owner epoch holds now.
    OwnerChanged {
        /// The epoch.
        epoch: u64,
        /// The run.
        worker_run_id: [u8; 16],
    },
}
