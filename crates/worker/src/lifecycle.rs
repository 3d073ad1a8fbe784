//! Where a shard is between nobody's and ours (protocol registry §4.2 of ownership; the numbers are the registry's).

use std::fmt;

/// The lifecycle of a shard on one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ShardLifecycle {
    /// Nobody here wants it.
    Unassigned = 1,
    /// Waiting for the lease.
    Acquiring = 2,
    /// The lease is ours; choosing and opening a store.
    Restoring = 3,
    /// Replaying the log through the barrier.
    CatchingUp = 4,
    /// Commands, queries and deliveries run.
    ActiveForCommands = 5,
    /// Finishing what is under way before giving the shard up.
    Draining = 6,
    /// Authority is lost or in doubt: nothing is written, admitted or sent.
    Fenced = 7,
    /// A proven gap or corruption. Never heals by itself.
    Failed = 8,
}

impl ShardLifecycle {
    /// Every state, ascending by number.
    pub const ALL: [ShardLifecycle; 8] = [
        ShardLifecycle::Unassigned,
        ShardLifecycle::Acquiring,
        ShardLifecycle::Restoring,
        ShardLifecycle::CatchingUp,
        ShardLifecycle::ActiveForCommands,
        ShardLifecycle::Draining,
        ShardLifecycle::Fenced,
        ShardLifecycle::Failed,
    ];

    /// Whether the published lifecycle allows this step.
    pub fn may_become(self, next: ShardLifecycle) -> bool {
        use ShardLifecycle::{
            Acquiring, ActiveForCommands, CatchingUp, Draining, Failed, Fenced, Restoring, Unassigned,
        };
        match (self, next) {
            (Failed, _) => false,
            (_, Failed | Fenced)
            | (Unassigned, Acquiring)
            | (Acquiring, Restoring | Unassigned)
            | (Restoring, CatchingUp)
            | (CatchingUp, ActiveForCommands)
            | (ActiveForCommands, Draining)
            | (Draining, Unassigned)
            | (Fenced, Unassigned | Acquiring) => true,
            _ => false,
        }
    }

    /// The registry's name.
    pub const fn name(self) -> &'static str {
        match self {
            ShardLifecycle::Unassigned => "UNASSIGNED",
            ShardLifecycle::Acquiring => "ACQUIRING",
            ShardLifecycle::Restoring => "RESTORING",
            ShardLifecycle::CatchingUp => "CATCHING_UP",
            ShardLifecycle::ActiveForCommands => "ACTIVE_FOR_COMMANDS",
            ShardLifecycle::Draining => "DRAINING",
            ShardLifecycle::Fenced => "FENCED",
            ShardLifecycle::Failed => "FAILED",
        }
    }
}

impl fmt::Display for ShardLifecycle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fenced_and_unassigned_lead_back_to_the_start() {
        let to_acquiring: Vec<ShardLifecycle> =
            ShardLifecycle::ALL.into_iter().filter(|state| state.may_become(ShardLifecycle::Acquiring)).collect();
        assert_eq!(to_acquiring, [ShardLifecycle::Unassigned, ShardLifecycle::Fenced]);
    }

    #[test]
    fn failed_is_for_good() {
        assert!(ShardLifecycle::ALL.into_iter().all(|next| !ShardLifecycle::Failed.may_become(next)));
    }

    #[test]
    fn active_is_reached_only_through_catching_up() {
        let before: Vec<ShardLifecycle> = ShardLifecycle::ALL
            .into_iter()
            .filter(|state| state.may_become(ShardLifecycle::ActiveForCommands))
            .collect();
        assert_eq!(before, [ShardLifecycle::CatchingUp]);
    }
}
