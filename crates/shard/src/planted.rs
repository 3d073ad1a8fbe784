//! Known mistakes, one of which a build with the feature `planted` makes on purpose: the simulator must catch each.
//!
//! Without the feature there are none: [`is`] is the constant `false`, and nothing can choose. No program that ships has it
//! (`crates/tidy/tests/arrows.rs`).

/// A mistake that somebody could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mistake {
    /// The store answers before its write is on disk.
    SkipSync,
    /// Positions count as applied before they are committed.
    AckBeforeCommit,
    /// A commit that failed is taken for one that held: attempts are sent that no record has admitted.
    SendBeforeAdmission,
    /// Records of an owner that was followed by another still take effect.
    IgnoreEpoch,
    /// Due is decided by the latest end of the trusted interval.
    DueByLatest,
    /// Deadlines are closed by the latest end of the trusted interval, without the margin.
    CloseByLatest,
    /// Failed attempts are not charged.
    ForgetRetryBudget,
    /// An admission need not name the message's revision.
    LoseLogRev,
    /// The next attempt has the number of the last.
    ReuseAttempt,
    /// A deadline is no reason for a fence.
    DropFence,
    /// Cancelling a message leaves it in its lane's timeline.
    ResurrectCanceled,
    /// An attempt that nobody can vouch for counts as not published.
    LostAckIsFailure,
    /// One lane is never given its turn.
    StarveLane,
    /// A command's second copy is evaluated again.
    ReevaluateDuplicate,
    /// Evidence is let go of while attempts are open.
    ForgetEvidence,
    /// A record that is missing from the log is passed over.
    PassOverGaps,
}

impl Mistake {
    /// Every one.
    pub const ALL: [Mistake; 16] = [
        Mistake::SkipSync,
        Mistake::AckBeforeCommit,
        Mistake::SendBeforeAdmission,
        Mistake::IgnoreEpoch,
        Mistake::DueByLatest,
        Mistake::CloseByLatest,
        Mistake::ForgetRetryBudget,
        Mistake::LoseLogRev,
        Mistake::ReuseAttempt,
        Mistake::DropFence,
        Mistake::ResurrectCanceled,
        Mistake::LostAckIsFailure,
        Mistake::StarveLane,
        Mistake::ReevaluateDuplicate,
        Mistake::ForgetEvidence,
        Mistake::PassOverGaps,
    ];
}

/// Whether this thread makes the mistake.
#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is(_: Mistake) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use chosen::{choose, is};

#[cfg(feature = "planted")]
mod chosen {
    use std::cell::Cell;

    use super::Mistake;

    thread_local! {
        static CHOSEN: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    /// From now on this thread makes the mistake, or none.
    pub fn choose(mistake: Option<Mistake>) {
        CHOSEN.set(mistake);
    }

    /// Whether this thread makes the mistake.
    pub fn is(mistake: Mistake) -> bool {
        CHOSEN.get() == Some(mistake)
    }
}
