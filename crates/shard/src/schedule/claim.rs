//! Claims: work that the scheduler took out of the timeline's line and is getting ready to send.
//!
//! A claim is reversible memory. It pins the row's revision, so an admission of it can only take effect on the very row that was
//! materialised; anything that moves the row voids the claim. The step from claim to [`AdmittedAttempt`] exists in one place,
//! [`Committed::admit`], and only a commit can make a [`Committed`]: a producer call without a durable admission does not
//! type-check (invariant 2).

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::id::{MessageId, ShardId};

use super::outgoing::{Delivery, OutgoingRecord};
use crate::commit::Committed;
use crate::effect::Effect;
use crate::state::keys::timeline::DueKey;
use crate::state::{LaneNo, MessageUuid};

/// What a message's record needs beside its attempt, fetched ahead of its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Material {
    /// The message.
    pub message_id: MessageId,
    /// The caller's own id, empty for none.
    pub business_key: Bytes,
    /// Its business time.
    pub deliver_at_ms: i64,
    /// The profile version it is bound to.
    pub profile_id: Bytes,
    /// The profile version it is bound to.
    pub profile_version: u64,
    /// The physical partition it goes to.
    pub partition: u32,
    /// Key, value and headers as the caller gave them.
    pub record: OutgoingRecord,
}

/// How far a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Ready, waits for its time.
    Ready,
    /// Named by an admission record that is being appended or applied.
    Proposed,
    /// Admitted and handed to the destination.
    Sent {
        /// The attempt.
        attempt: u32,
    },
}

/// A message that the scheduler has taken up.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lane, whose permits it holds.
    pub lane_no: LaneNo,
    /// Where it waited.
    pub key: DueKey,
    /// Its generation.
    pub generation: u32,
    /// The revision that was materialised.
    pub log_rev: u64,
    /// No admission at or behind this time.
    pub expire_at_ms: i64,
    /// What it costs in the lane's turn and holds of its permits.
    pub cost: u64,
    /// What will be sent; taken when it is.
    pub material: Option<Material>,
    /// How far it has come.
    pub progress: Progress,
}

/// The claims of one owner run, by message.
#[derive(Debug, Default)]
pub struct Claims {
    by_message: BTreeMap<MessageUuid, Claim>,
    /// Ready claims in the order they become due.
    ready: BTreeMap<(DueKey, MessageUuid), ()>,
}

impl Claims {
    /// Takes up a message.
    pub fn insert(&mut self, message: MessageUuid, claim: Claim) {
        debug_assert_eq!(claim.progress, Progress::Ready, "claims start ready");
        self.ready.insert((claim.key, message), ());
        self.by_message.insert(message, claim);
    }

    /// The claim of a message.
    pub fn get(&self, message: MessageUuid) -> Option<&Claim> {
        self.by_message.get(&message)
    }

    /// Gives a message up.
    pub fn remove(&mut self, message: MessageUuid) -> Option<Claim> {
        let claim = self.by_message.remove(&message)?;
        self.ready.remove(&(claim.key, message));
        Some(claim)
    }

    /// Ready claims in the order they become due.
    pub fn ready(&self) -> impl Iterator<Item = (MessageUuid, &Claim)> {
        self.ready.keys().filter_map(|(_, message)| self.by_message.get(message).map(|claim| (*message, claim)))
    }

    /// The message is in an admission record now.
    pub fn propose(&mut self, message: MessageUuid) {
        if let Some(claim) = self.by_message.get_mut(&message) {
            claim.progress = Progress::Proposed;
            self.ready.remove(&(claim.key, message));
        }
    }

    /// The admission record certainly did not reach the log: the claim is ready again.
    pub fn withdraw(&mut self, message: MessageUuid) {
        if let Some(claim) = self.by_message.get_mut(&message)
            && claim.progress == Progress::Proposed
        {
            claim.progress = Progress::Ready;
            self.ready.insert((claim.key, message), ());
        }
    }

    /// How many messages are claimed.
    pub fn len(&self) -> usize {
        self.by_message.len()
    }

    /// Whether nothing is claimed.
    pub fn is_empty(&self) -> bool {
        self.by_message.is_empty()
    }

    /// Every claim of a lane.
    pub fn of_lane(&self, lane_no: LaneNo) -> Vec<MessageUuid> {
        self.by_message.iter().filter(|(_, claim)| claim.lane_no == lane_no).map(|(message, _)| *message).collect()
    }
}

/// An attempt whose admission is durable: the only thing a destination accepts.
///
/// There is no public constructor; see [`Committed::admit`]. Who has one may read it:
///
/// ```
/// fn message_of(attempt: &shard::schedule::claim::AdmittedAttempt) -> protocol::id::MessageId {
///     attempt.message_id()
/// }
/// ```
///
/// and who has none cannot make one (invariant 2), not even of another:
///
/// ```compile_fail
/// fn retried(attempt: shard::schedule::claim::AdmittedAttempt) -> shard::schedule::claim::AdmittedAttempt {
///     shard::schedule::claim::AdmittedAttempt { attempt: 2, ..attempt }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AdmittedAttempt {
    lane_no: LaneNo,
    generation: u32,
    attempt: u32,
    owner_epoch: u64,
    admission_order_token: Bytes,
    material: Material,
}

impl AdmittedAttempt {
    /// The message.
    pub fn message_id(&self) -> MessageId {
        self.material.message_id
    }

    /// Its generation.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The attempt, from 1 in each generation.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The lane.
    pub fn lane_no(&self) -> LaneNo {
        self.lane_no
    }

    /// The epoch that admitted it.
    pub fn owner_epoch(&self) -> u64 {
        self.owner_epoch
    }

    /// The admission record's order token: which log position made it irrevocable.
    pub fn admission_order_token(&self) -> &Bytes {
        &self.admission_order_token
    }

    /// What to send and where.
    pub fn material(&self) -> &Material {
        &self.material
    }

    /// Key, value and headers as they are delivered: the caller's own, then the `nereus.delay.*` headers (v2 §11).
    pub fn delivered_record(&self) -> OutgoingRecord {
        let mut record = self.material.record.clone();
        record.push_delivery_headers(&Delivery {
            message_id: self.material.message_id,
            business_key: &self.material.business_key,
            generation: self.generation,
            attempt: self.attempt,
            deliver_at_ms: self.material.deliver_at_ms,
            owner_epoch: self.owner_epoch,
        });
        record
    }
}

/// An attempt that the log admitted and no claim stands for: it was never sent, and the owner must say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnclaimedAttempt {
    /// The lane.
    pub lane_no: LaneNo,
    /// The message.
    pub message: MessageUuid,
    /// Its generation.
    pub generation: u32,
    /// The attempt.
    pub attempt: u32,
}

/// What a commit admitted.
#[derive(Debug, Default)]
pub struct Admissions {
    /// To be sent now.
    pub attempts: Vec<AdmittedAttempt>,
    /// To be answered as never sent.
    pub unclaimed: Vec<UnclaimedAttempt>,
}

impl Committed {
    /// Turns the admissions of this commit into attempts that may be sent: those of the owner run `epoch`, `worker_run_id`
    /// which this run still claims in the admitted revision. Each claim gives its material once. What another owner admitted
    /// before this run's OWNER_EPOCH is not among them, nor among the unclaimed: it may have been sent.
    pub fn admit(&self, claims: &mut Claims, shard: ShardId, epoch: u64, worker_run_id: [u8; 16]) -> Admissions {
        let mut admissions = Admissions::default();
        if (self.owner_epoch, self.worker_run_id) != (epoch, worker_run_id) {
            return admissions;
        }
        let is_change = |effect: &Effect| matches!(effect, Effect::OwnerChanged { .. });
        let of_this_run = self.effects.iter().rposition(is_change).map_or(0, |change| change + 1);
        for effect in &self.effects[of_this_run..] {
            let Effect::Admitted { lane_no, message, generation, attempt, log_rev, admission } = effect else {
                continue;
            };
            let claim = claims
                .by_message
                .get_mut(message)
                .filter(|claim| claim.generation == *generation && claim.log_rev == *log_rev)
                .filter(|claim| claim.progress == Progress::Proposed);
            let material = claim.and_then(|claim| {
                claim.progress = Progress::Sent { attempt: *attempt };
                claim.material.take()
            });
            match material {
                Some(material) if material.message_id.shard == shard => admissions.attempts.push(AdmittedAttempt {
                    lane_no: *lane_no,
                    generation: *generation,
                    attempt: *attempt,
                    owner_epoch: epoch,
                    admission_order_token: admission.clone(),
                    material,
                }),
                _ => admissions.unclaimed.push(UnclaimedAttempt {
                    lane_no: *lane_no,
                    message: *message,
                    generation: *generation,
                    attempt: *attempt,
                }),
            }
        }
        admissions
    }
}
