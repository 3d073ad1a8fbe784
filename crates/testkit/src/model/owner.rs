//! What owners' records come to (v2 §§4 and 5).

use protocol::code::StableCode as Code;
use protocol::id::{MessageId, Uuid7};
use protocol::jitter::{self, RetryDomain};
use protocol::mutation_v2::{
    Admission, AttemptResult, Author, Disposition, MutationBody, MutationV2, Outcome, PublishedEvidence, Refusal,
    Roles, Stamp, TimeFence,
};
use protocol::policy::{RetryPolicy, UncertainPolicy};

use super::{Answer, Message, Model, State, Work};

impl Model {
    /// §6.1 and v2 §§2 and 4.
    pub(super) fn mutation(&mut self, bp_ms: i64, mutation: &MutationV2) -> Answer {
        let may_sign = |roles: Roles| match mutation.author {
            Author::Owner { .. } => roles.owner,
            Author::Control { .. } => roles.control,
        };
        let key = self.keys.get(&mutation.signing_key_version).filter(|key| may_sign(key.entry.roles));
        let is_signed = key.is_some_and(|key| self.trusts_signatures || mutation.verify(&key.key));
        if mutation.shard != self.shard || !is_signed {
            return Answer::Position(Code::UnauthorizedSystemMutation);
        }
        let author = match &mutation.author {
            Author::Owner { epoch, worker_run_id } => (*epoch, *worker_run_id),
            Author::Control { .. } => return self.control(bp_ms, mutation),
        };
        if let MutationBody::OwnerEpoch(_) = &mutation.body {
            return self.owner_epoch(author, mutation.signing_key_version);
        }
        let entries = match &mutation.body {
            MutationBody::PublishAdmission(body) => body.entries.len(),
            MutationBody::PublishOutcome(body) | MutationBody::EvidenceResolution(body) => body.entries.len(),
            MutationBody::ClaimResult(body) => body.entries.len(),
            _ => 0,
        };
        if self.owner != Some(author) || entries as u64 > u64::from(self.limits.entries_per_record_max) {
            return Answer::Position(Code::StaleSystemMutation);
        }
        let accepted: Vec<bool> = match &mutation.body {
            MutationBody::PublishAdmission(body) if self.is_too_wide(&body.stamp) => {
                return Answer::Position(Code::StaleSystemMutation);
            }
            MutationBody::PublishAdmission(body) => {
                let admit =
                    |entry: &Admission| self.admit(bp_ms, &body.stamp, entry.message, entry.generation, entry.log_rev);
                body.entries.iter().map(admit).collect()
            }
            MutationBody::PublishOutcome(body) => {
                body.entries.iter().map(|entry| self.outcome(bp_ms, &body.stamp, entry)).collect()
            }
            MutationBody::EvidenceResolution(body) => {
                body.entries.iter().map(|entry| self.resolve(bp_ms, entry)).collect()
            }
            MutationBody::ClaimResult(body) => {
                let refuse =
                    |entry: &Refusal| self.refuse(bp_ms, entry.message, (entry.generation, entry.log_rev), entry.code);
                body.entries.iter().map(refuse).collect()
            }
            MutationBody::TimeFence(body) => return self.fence(bp_ms, body),
            MutationBody::OwnerEpoch(_) | MutationBody::ShardControl(_) => unreachable!("dealt with above"),
        };
        let accepted = accepted.iter().fold((0, 0), |(yes, no), ok| if *ok { (yes + 1, no) } else { (yes, no + 1) });
        Answer::Owner { accepted: accepted.0, failed: accepted.1 }
    }

    fn owner_epoch(&mut self, author: (u64, [u8; 16]), key_version: u32) -> Answer {
        if self.owner == Some(author) {
            return Answer::Owner { accepted: 0, failed: 0 };
        }
        if author.0 <= self.owner.map_or(0, |(epoch, _)| epoch) {
            return Answer::Position(Code::StaleSystemMutation);
        }
        self.owner = Some(author);
        // v2 §7: a retirement takes effect at the next OWNER_EPOCH that another key signs.
        self.keys.retain(|version, key| !key.retiring || *version == key_version);
        Answer::Owner { accepted: 1, failed: 0 }
    }

    /// T11.
    fn is_too_wide(&self, stamp: &Stamp) -> bool {
        stamp.latest_ms - stamp.earliest_ms > self.limits.clock_interval_ms_max
    }

    fn admit(&mut self, bp_ms: i64, stamp: &Stamp, message: Uuid7, generation: u32, log_rev: u64) -> bool {
        let Some(mut row) = self.look(message).cloned() else { return false };
        if (row.generation, row.log_rev) != (generation, log_rev) || !row.is_waiting() {
            return false;
        }
        let (policy, _) = &self.policies[&row.policy];
        let may_start = !self.lanes[&row.lane].paused
            && !self.profile_gates.get(&row.lane.0).is_some_and(|(paused, _)| *paused)
            && stamp.earliest_ms >= row.eligible_at_ms
            && stamp.latest_ms < row.expire_at_ms
            && bp_ms + self.limits.broker_time_divergence_ms_max < row.expire_at_ms
            && row.expire_at_ms > self.closed_ms
            && row.attempts_charged < policy.publish_admissions_max;
        if may_start {
            row.work = Work::Publishing;
            row.attempts_used += 1;
            row.first_attempt_ms = row.first_attempt_ms.or(Some(stamp.latest_ms));
            row.open.insert(row.attempts_used, false);
        }
        // v2 §4: also a failed entry moves the revision, so that a second copy cannot revive it.
        self.put(message, row);
        may_start
    }

    /// The row of an entry's attempt, when the attempt is open and in this condition.
    fn attempt(&mut self, entry: &Outcome, uncertain: bool) -> Option<Message> {
        let row = self.look(entry.message)?;
        let is_open = row.generation == entry.generation && row.open.get(&entry.attempt) == Some(&uncertain);
        is_open.then(|| row.clone())
    }

    fn outcome(&mut self, bp_ms: i64, stamp: &Stamp, entry: &Outcome) -> bool {
        let Some(mut row) = self.attempt(entry, false) else { return false };
        let is_current = row.ended.is_none() && row.attempts_used == entry.attempt;
        if entry.result == AttemptResult::Unknown {
            row.open.insert(entry.attempt, true);
            row.possible_duplicate = true;
        } else {
            row.open.remove(&entry.attempt);
        }
        let (policy, _) = self.policies[&row.policy].clone();
        match &entry.result {
            AttemptResult::Published(evidence) => self.published(bp_ms, entry.message, &mut row, evidence),
            _ if !is_current => {}
            AttemptResult::NotPublished { disposition: Disposition::MessagePermanent, .. } => {
                self.end(entry.message, &mut row, State::DeadLetter, entry.code, bp_ms, None);
            }
            // v2 §5: nothing is charged, and while nothing is charged the retry clock has not started.
            AttemptResult::NotPublished { disposition: Disposition::LaneUnavailable, .. } => {
                if row.attempts_charged == 0 {
                    row.first_attempt_ms = None;
                }
                self.wait_again(entry.message, &mut row);
            }
            AttemptResult::NotPublished { disposition: Disposition::MessageRetriable, .. } => {
                self.retry(bp_ms, stamp, entry, &mut row, &policy);
            }
            AttemptResult::Unknown => {
                row.unknown += 1;
                // Silent: what the uncertain budget counts; chosen: outcomes that were unknown.
                let goes_on = policy.uncertain == UncertainPolicy::BoundedRetryPossibleDuplicate
                    && row.unknown <= policy.uncertain_retries_max;
                if goes_on {
                    self.retry(bp_ms, stamp, entry, &mut row, &policy);
                } else {
                    self.end(entry.message, &mut row, State::DeadLetter, entry.code, bp_ms, None);
                }
            }
        }
        self.put(entry.message, row);
        true
    }

    /// v2 §5 and §8.6. Attempts and duration come first: with either used up, no deadline is asked for.
    fn retry(&mut self, bp_ms: i64, stamp: &Stamp, entry: &Outcome, row: &mut Message, policy: &RetryPolicy) {
        row.attempts_charged += 1;
        let n = row.attempts_charged;
        let id = MessageId { shard: self.shard, uuid: entry.message };
        let cap_ms = jitter::backoff_cap_ms(policy.initial_backoff_ms, policy.backoff_ms_max, n);
        let wait_ms = jitter::delay_ms(RetryDomain::MessagePublish, &id, row.generation, n, cap_ms);
        let next_ms = i128::from(stamp.latest_ms) + i128::from(wait_ms);
        let first_ms = row.first_attempt_ms.expect("an attempt has been admitted");
        let is_used_up = n >= policy.publish_admissions_max
            || next_ms > i128::from(first_ms) + i128::from(policy.retry_duration_ms_max);
        if is_used_up {
            return self.end(entry.message, row, State::DeadLetter, entry.code, bp_ms, None);
        }
        row.eligible_at_ms = row.deliver_at_ms.max(i64::try_from(next_ms).unwrap_or(i64::MAX));
        self.wait_again(entry.message, row);
    }

    /// v2 §4: a record that would make work reversible behind its closed deadline ends it instead.
    fn wait_again(&mut self, message: Uuid7, row: &mut Message) {
        row.work = Work::Waiting;
        if row.expire_at_ms <= self.closed_ms {
            self.end_at_deadline(message, row);
        }
    }

    /// A proven publication ends a live generation, whichever attempt it was; a duplicate is possible while any other stands,
    /// and certain when the message had ended before.
    fn published(&mut self, bp_ms: i64, message: Uuid7, row: &mut Message, evidence: &PublishedEvidence) {
        if row.ended.is_some() {
            row.possible_duplicate = true;
        } else {
            row.possible_duplicate = !row.open.is_empty();
            self.end(message, row, State::Published, Code::Ok, bp_ms, Some(evidence.clone()));
        }
    }

    /// Later proof about an attempt. A proof of absence leaves work where it is: with HOLD refused, a live generation never is
    /// without.
    fn resolve(&mut self, bp_ms: i64, entry: &Outcome) -> bool {
        let Some(mut row) = self.attempt(entry, true) else { return false };
        match &entry.result {
            AttemptResult::Unknown => return false,
            AttemptResult::Published(evidence) => {
                row.open.remove(&entry.attempt);
                self.published(bp_ms, entry.message, &mut row, evidence);
            }
            AttemptResult::NotPublished { .. } => {
                row.open.remove(&entry.attempt);
                // §5.4: behind the terminal decision the risk only rises.
                if row.ended.is_none() {
                    row.possible_duplicate = row.is_uncertain();
                }
            }
        }
        self.put(entry.message, row);
        true
    }

    fn refuse(&mut self, bp_ms: i64, message: Uuid7, expected: (u32, u64), code: Code) -> bool {
        let Some(mut row) = self.look(message).cloned() else { return false };
        // Silent: work that is not reversible; chosen: a refusal is of work before any attempt.
        if (row.generation, row.log_rev) != expected || !row.is_waiting() {
            return false;
        }
        self.end(message, &mut row, State::DeadLetter, code, bp_ms, None);
        self.put(message, row);
        true
    }

    /// T16, T11, and a bounded sweep in deadline order.
    fn fence(&mut self, bp_ms: i64, body: &TimeFence) -> Answer {
        if self.is_too_wide(&body.stamp) {
            return Answer::Position(Code::StaleSystemMutation);
        }
        let is_proven = body.stamp.earliest_ms >= body.close_through_ms.saturating_add(self.limits.fence_margin_ms);
        if !is_proven || body.close_through_ms > bp_ms + self.limits.broker_time_divergence_ms_max {
            return Answer::Position(Code::UnauthorizedSystemMutation);
        }
        self.closed_ms = self.closed_ms.max(body.close_through_ms);
        let visits_max = body.expire_max.min(self.limits.expire_per_fence_max);
        let mut visits = 0;
        while visits < visits_max
            && let Some(entry) = self.deadlines.first_entry().filter(|entry| entry.key().0 <= self.closed_ms)
        {
            let message = entry.remove();
            self.look(message);
            visits += 1;
        }
        Answer::Owner { accepted: visits, failed: 0 }
    }
}
