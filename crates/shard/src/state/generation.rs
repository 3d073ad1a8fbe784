//! What a message row says: its public state, its work, its keys.
//!
//! Pure functions of the row (protocol registry §5.1): the public state is a projection of current work, open attempts and
//! the terminal decision, never stored beside them.

use crate::state::keys::timeline::DueKey;
use crate::state::row::{self, Work};
use crate::state::{LaneNo, PolicyNo, Seq};

/// The public state of a message's current generation. The numbers are the registry's `MessageGenerationState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum MessageState {
    /// Waits for its time; nothing was ever admitted, or nothing admitted was ever handed to a producer.
    Scheduled = 1,
    /// An attempt is admitted and its outcome is not known yet.
    Publishing = 3,
    /// Every earlier attempt is proven not published; waits for the next.
    RetryWait = 4,
    /// Some attempt may have been published and nobody can say.
    Uncertain = 5,
    /// Published, with evidence.
    Published = 6,
    /// Canceled before anything was admitted.
    Canceled = 8,
    /// Its deadline passed with nothing possibly delivered.
    Expired = 9,
    /// Given up.
    DeadLetter = 10,
}

impl MessageState {
    /// Every state, ascending by number.
    pub const ALL: [MessageState; 8] = [
        MessageState::Scheduled,
        MessageState::Publishing,
        MessageState::RetryWait,
        MessageState::Uncertain,
        MessageState::Published,
        MessageState::Canceled,
        MessageState::Expired,
        MessageState::DeadLetter,
    ];

    /// The states a generation never leaves.
    pub const TERMINAL: [MessageState; 4] =
        [MessageState::Published, MessageState::Canceled, MessageState::Expired, MessageState::DeadLetter];

    /// The state of a registry number.
    pub fn from_number(number: u32) -> Option<MessageState> {
        MessageState::ALL.into_iter().find(|state| *state as u32 == number)
    }

    /// Whether a generation in this state has ended.
    pub fn is_terminal(self) -> bool {
        MessageState::TERMINAL.contains(&self)
    }
}

impl row::Message {
    /// The public state as the row stands.
    pub fn state(&self) -> MessageState {
        if let Some(terminal) = &self.terminal {
            // Written by `conclude` alone, from a MessageState.
            return MessageState::from_number(terminal.state).unwrap_or(MessageState::DeadLetter);
        }
        if self.has_uncertain_attempt() {
            return MessageState::Uncertain;
        }
        match self.work() {
            Work::Initial => MessageState::Scheduled,
            Work::DefinitiveRetry => MessageState::RetryWait,
            Work::Publishing => MessageState::Publishing,
            Work::None | Work::UncertainRetry => MessageState::Uncertain,
        }
    }

    /// The public state for everyone behind a fence that closed every deadline up to `closed_ms`: waiting work whose
    /// deadline is closed has ended, whether or not the sweep has reached it.
    pub fn state_behind(&self, closed_ms: i64) -> MessageState {
        if self.is_closed_by(closed_ms) { self.state_when_expired() } else { self.state() }
    }

    /// Whether the generation has not ended, as the row stands.
    pub fn is_live(&self) -> bool {
        self.terminal.is_none()
    }

    /// Whether the current work waits in the timeline: it may be cancelled, moved, expired or admitted.
    pub fn is_reversible(&self) -> bool {
        self.is_live() && matches!(self.work(), Work::Initial | Work::DefinitiveRetry | Work::UncertainRetry)
    }

    /// Whether the fence at `closed_ms` ends this generation.
    pub fn is_closed_by(&self, closed_ms: i64) -> bool {
        self.is_reversible() && self.expire_at_ms <= closed_ms
    }

    /// How a generation ends that its fence catches waiting: what was possibly delivered is never called expired.
    pub fn state_when_expired(&self) -> MessageState {
        if self.has_uncertain_attempt() { MessageState::DeadLetter } else { MessageState::Expired }
    }

    /// Whether some attempt may have been published.
    pub fn has_uncertain_attempt(&self) -> bool {
        self.open.iter().any(|attempt| attempt.uncertain)
    }

    /// The key of waiting work, if it has one: work that could only start at or after its deadline waits for the fence
    /// without a key.
    pub fn due_key(&self) -> Option<DueKey> {
        (self.is_reversible() && self.eligible_at_ms < self.expire_at_ms)
            .then_some(DueKey { eligible_at_ms: self.eligible_at_ms, seq: self.seq() })
    }

    /// From when on the row counts as absent; `None` while it is live.
    pub fn logical_end(&self) -> Option<i64> {
        self.terminal.as_ref().map(|terminal| terminal.ends_at_ms)
    }

    /// The generation's number in keys.
    pub fn seq(&self) -> Seq {
        Seq(self.seq)
    }

    /// The lane.
    pub fn lane_no(&self) -> LaneNo {
        LaneNo(self.lane_no)
    }

    /// The retry policy.
    pub fn policy_no(&self) -> PolicyNo {
        PolicyNo(self.policy_no)
    }

    /// What kind of waiting a generation goes back to when its latest attempt is gone without being charged.
    pub(crate) fn waiting_work(&self) -> Work {
        if self.has_uncertain_attempt() {
            Work::UncertainRetry
        } else if self.attempts_charged > 0 {
            Work::DefinitiveRetry
        } else {
            Work::Initial
        }
    }
}
