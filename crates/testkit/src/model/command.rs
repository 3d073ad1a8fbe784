//! What clients' commands come to (protocol registry §4).

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use protocol::code::StableCode as Code;
use protocol::command::{
    AdapterMetadata, CommandBody, CommandIdentity, OrderingMode, Payload, Precondition, ScheduleIntent, prepare,
};
use protocol::id::{MessageId, Uuid7};
use protocol::lane::{self, LaneOrdering, LaneTuple};
use protocol::mutation_v2::{DestinationProfile, PartitionPolicy};
use protocol::policy::RetryPolicy;
use protocol::reference::ProfileRef;
use protocol::resource::AdapterKind;
use protocol::{nulls, routing};

use super::{Answer, Lane, LaneKey, Message, Model, State, Verdict, Work};

/// A command that goes no further: only its position is answered, or it has a result.
enum Stop {
    Position(Code),
    Verdict(Verdict),
}

fn rejected(code: Code) -> Stop {
    Stop::Verdict(Verdict { applied: false, code, message: None, other_message: None })
}

fn applied(code: Code, message: Option<&Message>) -> Verdict {
    let message = message.map(|message| (message.generation, message.state_version));
    Verdict { applied: true, code, message, other_message: None }
}

impl Model {
    /// §4.1. A body of `None` is one that nobody can read.
    pub(super) fn command(&mut self, bp_ms: i64, identity: &CommandIdentity, body: Option<&CommandBody>) -> Answer {
        let CommandIdentity { command_id, message_id, retry_until_ms, hash } = *identity;
        if command_id.shard != self.shard || message_id.shard != self.shard {
            return Answer::Position(Code::IngressRouteMismatch);
        }
        // T13b, for every physical copy and before dedupe.
        if bp_ms > retry_until_ms || retry_until_ms <= self.closed_ms {
            return Answer::Position(Code::CommandRetryWindowExpired);
        }
        if let Some((first_hash, first)) = self.commands.get(&command_id.uuid) {
            return if *first_hash == hash {
                Answer::Duplicate(*first)
            } else {
                Answer::Position(Code::CommandIdConflict)
            };
        }
        // T13a and T12. v2 §8: position-level, nothing is kept.
        let made_ms = command_id.uuid.unix_ms();
        if retry_until_ms != made_ms + self.limits.command_retry_window_ms || !self.is_fresh(bp_ms, made_ms) {
            return Answer::Position(Code::ServerInvalidCommand);
        }
        let message = message_id.uuid;
        let verdict = match body {
            None => Err(rejected(Code::ServerInvalidCommand)),
            Some(CommandBody::Schedule(body)) => self.schedule(bp_ms, message, body.intent()),
            Some(CommandBody::Cancel(body)) => Ok(self.cancel(bp_ms, message, &body.precondition)),
            Some(CommandBody::Reschedule(body)) => {
                self.reschedule(bp_ms, message, &body.precondition, body.deliver_at_ms, body.expire_at_ms)
            }
            // Silent: the activation of a command type is not part of the tuple of §4.1 step 4, so its place is that of the
            // operation's own checks; the id stays free for the day the type is activated.
            Some(CommandBody::PrepareLarge(_) | CommandBody::CommitLarge(_)) => {
                Err(Stop::Position(Code::UnactivatedProtocolVersion))
            }
        };
        match verdict {
            Err(Stop::Position(code)) => Answer::Position(code),
            Ok(verdict) | Err(Stop::Verdict(verdict)) => {
                self.commands.insert(command_id.uuid, (hash, verdict));
                Answer::Command(verdict)
            }
        }
    }

    /// T12.
    fn is_fresh(&self, bp_ms: i64, made_ms: i64) -> bool {
        bp_ms - self.limits.preparation_age_ms_max <= made_ms && made_ms <= bp_ms + self.limits.uuid_future_skew_ms_max
    }

    /// §4.2, in the order of its table.
    fn schedule(&mut self, bp_ms: i64, message: Uuid7, intent: &ScheduleIntent) -> Result<Verdict, Stop> {
        if self.stopped {
            return Err(rejected(Code::RouteNotActive));
        }
        if self.look(message).is_some() {
            return Err(rejected(Code::DelayMessageIdConflict));
        }
        // Silent: where the business key's checks stand; chosen: with the other identity.
        let business_key = intent.business_key.clone().unwrap_or_default();
        if business_key.len() as u64 > u64::from(self.limits.business_key_bytes_max) {
            return Err(rejected(Code::ServerInvalidMetadata));
        }
        let home =
            routing::ingress_partition(self.shard.route, &self.tenant_scope, &business_key, self.partition_count);
        let is_indexed =
            !business_key.is_empty() && intent.ordering == OrderingMode::BestEffort && home == self.shard.partition;
        if is_indexed
            && let Some(holder) = self.newest_of_key.get(&business_key).copied()
            && self.look(holder).is_some_and(|holder| holder.ended.is_none())
        {
            let verdict = Verdict {
                applied: false,
                code: Code::DelayMessageIdConflict,
                message: None,
                other_message: Some(holder),
            };
            return Err(Stop::Verdict(verdict));
        }
        // T14, then T12 for the message id.
        let made_ms = message.unix_ms();
        if self.closed_ms >= made_ms + self.limits.preparation_age_ms_max {
            return Err(rejected(Code::DelayMessageIdExpired));
        }
        if !self.is_fresh(bp_ms, made_ms) {
            return Err(Stop::Position(Code::ServerInvalidCommand));
        }
        let (id, version) = (intent.profile.id.clone(), intent.profile.version);
        let profile = match self.profiles.get(&(id.clone(), version)) {
            Some((body, _)) if body.semantic_hash(&id, version) != intent.profile.semantic_hash => None,
            found => found,
        };
        let profile = match profile {
            None => return Err(rejected(Code::ProfileVersionNotActiveAtSourcePosition)),
            Some((_, true)) => return Err(rejected(Code::ProfileDeprecatedForNewUse)),
            Some((profile, false)) => profile.clone(),
        };
        let policy = (intent.retry_policy.id.clone(), intent.retry_policy.version);
        let is_active = |(policy, closed): &(RetryPolicy, bool)| !closed && policy.reference() == intent.retry_policy;
        if !self.policies.get(&policy).is_some_and(is_active) {
            return Err(rejected(Code::RetryPolicyNotActiveAtSourcePosition));
        }
        let (key, bytes) = record_of(intent, &profile)?;
        if intent.ordering != OrderingMode::BestEffort || !profile.ordering.best_effort {
            return Err(rejected(Code::OrderingCapabilityUnavailable));
        }
        if bytes > u64::from(profile.record_bytes_max - profile.header_reserve_bytes) {
            return Err(rejected(Code::ServerPayloadTooLarge));
        }
        let lane = self.lane_of(message, &intent.profile, &profile, key);
        self.check_window(bp_ms, (intent.deliver_at_ms, intent.expire_at_ms), profile.delay_ms_max)?;
        if !self.lanes.contains_key(&lane) && self.lanes.len() as u64 >= u64::from(self.limits.lanes_max) {
            return Err(rejected(Code::DestinationLaneLimitExceeded));
        }
        let (active_messages, active_bytes) = self.active();
        if active_messages >= self.limits.active_messages_max || active_bytes + bytes > self.limits.active_bytes_max {
            return Err(rejected(Code::HardQuotaExceeded));
        }

        self.open_lane(&lane, &intent.profile, &profile);
        let row = Message {
            generation: 0,
            state_version: 1,
            log_rev: 1,
            deliver_at_ms: intent.deliver_at_ms,
            expire_at_ms: intent.expire_at_ms,
            eligible_at_ms: intent.deliver_at_ms,
            attempts_used: 0,
            attempts_charged: 0,
            open: BTreeMap::new(),
            possible_duplicate: false,
            business_key: business_key.clone(),
            lane,
            bytes,
            ended: None,
            work: Work::Waiting,
            seq: self.next_seq(),
            unknown: 0,
            first_attempt_ms: None,
            policy,
        };
        if is_indexed {
            self.newest_of_key.insert(business_key, message);
        }
        self.deadlines.insert((row.expire_at_ms, row.seq), message);
        let verdict = applied(Code::Scheduled, Some(&row));
        self.messages.insert(message, row);
        Ok(verdict)
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn lane_of(
        &self,
        message: Uuid7,
        reference: &ProfileRef,
        profile: &DestinationProfile,
        key: Option<&[u8]>,
    ) -> LaneKey {
        let count = NonZeroU32::new(profile.partition_count).expect("profiles have partitions");
        let (id, version) = (&reference.id, reference.version);
        let partition = match (profile.partition_policy, key) {
            (PartitionPolicy::Murmur2Key, Some(key)) => routing::kafka_partition(key, count),
            (PartitionPolicy::Explicit { partition }, _) => partition,
            (_, key) => routing::target_partition(id, version, key.unwrap_or(message.as_bytes()), count),
        };
        let buckets = NonZeroU32::new(profile.lane_bucket_count).expect("profiles have lanes");
        let bucket = lane::unordered_bucket(&MessageId { shard: self.shard, uuid: message }, buckets);
        (id.clone(), version, partition, bucket)
    }

    fn open_lane(&mut self, lane: &LaneKey, reference: &ProfileRef, profile: &DestinationProfile) {
        let tuple = LaneTuple {
            tenant_scope: self.tenant_scope,
            resource: profile.resource.clone(),
            partition: lane.2,
            destination: reference.clone(),
            // Silent: v2 has no capability profiles; every lane has this one in its identity.
            capability: ProfileRef { id: "at-least-once".into(), version: 1, semantic_hash: [0; 32] },
            ordering: LaneOrdering::Bucket(lane.3),
        };
        let new = Lane { id: tuple.lane_id(), paused: false, version: 1 };
        self.lanes.entry(lane.clone()).or_insert(new);
    }

    /// T1, T2, T3 (the latter two as ADR 0011 has them), and v2 §4: the deadline is not closed.
    fn check_window(&self, bp_ms: i64, (deliver_ms, expire_ms): (i64, i64), delay_ms_max: i64) -> Result<(), Stop> {
        let limits = &self.limits;
        let ahead_ms = i128::from(bp_ms) + i128::from(limits.uuid_future_skew_ms_max);
        let fits = i128::from(expire_ms)
            >= i128::from(deliver_ms.max(bp_ms)) + i128::from(limits.delivery_window_ms_min)
            && i128::from(deliver_ms) <= ahead_ms + i128::from(limits.delay_ms_max.min(delay_ms_max))
            && i128::from(expire_ms) <= ahead_ms + i128::from(limits.lifetime_ms_max)
            && expire_ms > self.closed_ms;
        if fits { Ok(()) } else { Err(rejected(Code::InvalidDeliveryWindow)) }
    }

    /// §4.5: precondition first, then state.
    fn reversible(&mut self, message: Uuid7, expected: &Precondition) -> Result<Message, Verdict> {
        let Some(row) = self.look(message) else { return Err(applied(Code::NotFound, None)) };
        let code = match row.state() {
            _ if expected.generation.is_some_and(|generation| generation < row.generation) => {
                Code::GenerationSuperseded
            }
            _ if expected.generation.is_some_and(|generation| generation > row.generation) => Code::VersionConflict,
            _ if expected.state_version.is_some_and(|version| version != row.state_version) => Code::VersionConflict,
            State::Scheduled | State::RetryWait => return Ok(row.clone()),
            State::Publishing | State::Uncertain => Code::TooLate,
            State::Published => Code::AlreadyPublished,
            State::Canceled => Code::AlreadyCanceled,
            State::Expired => Code::AlreadyExpired,
            State::DeadLetter => Code::AlreadyDeadLettered,
        };
        Err(applied(code, Some(row)))
    }

    fn cancel(&mut self, bp_ms: i64, message: Uuid7, expected: &Precondition) -> Verdict {
        let mut row = match self.reversible(message, expected) {
            Ok(row) => row,
            Err(verdict) => return verdict,
        };
        row.state_version += 1;
        self.end(message, &mut row, State::Canceled, Code::Canceled, bp_ms, None);
        let verdict = applied(Code::Canceled, Some(&row));
        self.put(message, row);
        verdict
    }

    /// §4.6: a new generation with fresh counters and the same payload, binding and policy.
    fn reschedule(
        &mut self,
        bp_ms: i64,
        message: Uuid7,
        expected: &Precondition,
        deliver_at_ms: i64,
        expire_at_ms: i64,
    ) -> Result<Verdict, Stop> {
        let mut row = self.reversible(message, expected).map_err(Stop::Verdict)?;
        let (profile, _) = &self.profiles[&(row.lane.0.clone(), row.lane.1)];
        if let Err(Stop::Verdict(verdict)) =
            self.check_window(bp_ms, (deliver_at_ms, expire_at_ms), profile.delay_ms_max)
        {
            return Err(Stop::Verdict(Verdict { message: Some((row.generation, row.state_version)), ..verdict }));
        }
        self.deadlines.remove(&(row.expire_at_ms, row.seq));
        row.generation += 1;
        row.state_version += 1;
        row.seq = self.next_seq();
        (row.deliver_at_ms, row.expire_at_ms, row.eligible_at_ms) = (deliver_at_ms, expire_at_ms, deliver_at_ms);
        (row.attempts_used, row.attempts_charged, row.unknown, row.first_attempt_ms) = (0, 0, 0, None);
        self.deadlines.insert((row.expire_at_ms, row.seq), message);
        let verdict = applied(Code::Superseded, Some(&row));
        self.put(message, row);
        Ok(verdict)
    }
}

/// §4.2 rows 7 and 9: the key and the size of what will be delivered: key, value and the caller's headers.
fn record_of<'a>(intent: &'a ScheduleIntent, profile: &DestinationProfile) -> Result<(Option<&'a [u8]>, u64), Stop> {
    let invalid = || rejected(Code::ServerInvalidMetadata);
    let AdapterMetadata::Kafka(metadata) = &intent.metadata else { return Err(invalid()) };
    if profile.resource.adapter() == AdapterKind::Pulsar {
        return Err(invalid());
    }
    let Some(Payload::Inline(value)) = &intent.payload else { return Err(rejected(Code::ServerInvalidCommand)) };
    let (_, headers) = nulls::split(&metadata.headers, value.len() as u64).map_err(|_| invalid())?;
    if headers.iter().any(|header| prepare::is_reserved_name(&header.name)) {
        return Err(invalid());
    }
    let headers: usize = headers.iter().map(|header| header.name.len() + header.value.len()).sum();
    let key = metadata.key.as_deref();
    Ok((key, (key.unwrap_or_default().len() + value.len() + headers) as u64))
}
