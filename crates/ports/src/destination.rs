//! Where messages go: sessions on destination lanes that send admitted attempts and vouch for open ones.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use protocol::code::StableCode;
use protocol::hash::{Hash, Preimage};
use protocol::id::ShardId;
use protocol::mutation_v2::{Absence, AbsenceKind, AttemptResult, DestinationProfile, Disposition, PublishedEvidence};
use shard::query::OpenAttempt;
use shard::schedule::claim::AdmittedAttempt;
use shard::state::{LaneNo, MessageUuid};

/// The lane a session is opened for.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneTarget {
    /// The shard whose lane it is.
    pub shard: ShardId,
    /// The lane's number in the shard.
    pub lane_no: LaneNo,
    /// The profile version it is bound to.
    pub profile_id: Bytes,
    /// The profile version it is bound to.
    pub profile_version: u64,
    /// The profile, with the identity of the resource that it is bound to now, which a rebinding may have changed.
    pub profile: DestinationProfile,
    /// The physical partition.
    pub partition: u32,
    /// The owner's epoch: sessions of lower epochs of the same shard are over from the moment this one is open.
    pub owner_epoch: u64,
}

/// Which attempt an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptRef {
    /// The message.
    pub message: MessageUuid,
    /// The attempt's generation.
    pub generation: u32,
    /// The attempt.
    pub attempt: u32,
}

/// What became of an attempt. A timeout or a lost answer is [`AttemptResult::Unknown`], never a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptOutcome {
    /// Side effect, disposition and evidence, in the only legal combinations.
    pub result: AttemptResult,
    /// The stable code, [`StableCode::Ok`] exactly for a publication.
    pub code: StableCode,
}

impl AttemptOutcome {
    /// Durable at the destination.
    pub fn published(evidence: PublishedEvidence) -> AttemptOutcome {
        AttemptOutcome { result: AttemptResult::Published(evidence), code: StableCode::Ok }
    }

    /// Certainly not published, now or later: `kind` says why it is certain, `disposition` whose trouble it is.
    pub fn not_published(
        attempt: AttemptRef,
        disposition: Disposition,
        kind: AbsenceKind,
        code: StableCode,
    ) -> AttemptOutcome {
        let absence = Absence { kind, digest: attempt.absence_digest(kind) };
        AttemptOutcome { result: AttemptResult::NotPublished { disposition, absence }, code }
    }

    /// It may have been published.
    pub fn unknown(code: StableCode) -> AttemptOutcome {
        AttemptOutcome { result: AttemptResult::Unknown, code }
    }
}

impl AttemptRef {
    /// Absence evidence binds its attempt, so that it cannot be taken for another's.
    fn absence_digest(self, kind: AbsenceKind) -> Hash {
        Preimage::new("nereus-delay-absence-v2\0")
            .u32(kind as u32)
            .bytes(self.message.as_bytes())
            .u32(self.generation)
            .u32(self.attempt)
            .sha256()
    }
}

/// A lane that cannot be used now. The owner tries again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .code.name())]
pub struct LaneError {
    /// The stable code that operators see.
    pub code: StableCode,
    /// What was found, with names and numbers.
    pub detail: String,
}

/// A live session on one lane, of one owner epoch.
pub trait LaneSession: Send + Sync + 'static {
    /// Sends the attempts, in order within a partition. Each attempt is answered once, in any order and grouping; a stream
    /// that ends early leaves the rest unknown. Dropping the stream does not recall what was handed over.
    fn send(&self, attempts: Vec<AdmittedAttempt>) -> BoxStream<'static, Vec<(AttemptRef, AttemptOutcome)>>;

    /// What became of attempts that nobody heard of any more. Those that cannot be vouched for are left out: among them may be
    /// attempts at another incarnation of the topic, from before a rebinding, of which this one's records prove nothing.
    fn recover(
        &self,
        open: Vec<OpenAttempt>,
    ) -> BoxFuture<'static, Result<Vec<(AttemptRef, AttemptOutcome)>, LaneError>>;

    /// Tells that no attempt admitted at a log position before this order token is open any more: evidence kept for them may
    /// go.
    fn forget_before(&self, admission_order_token: Bytes);

    /// Something operators should know of a session that works, such as throttling by the broker, with the code they see.
    fn remark(&self) -> Option<LaneError> {
        None
    }

    /// Ready once the session is over or in doubt, with the reason.
    fn lost(&self) -> BoxFuture<'static, LaneError>;
}

/// One kind of destination system.
pub trait Destination: Send + Sync + 'static {
    /// Opens and verifies a session: the pinned resource must be there and be the same one. A future that is dropped opens
    /// nothing.
    fn open_lane(&self, target: LaneTarget) -> BoxFuture<'static, Result<Box<dyn LaneSession>, LaneError>>;
}
