//! SCHEDULE: takes a message into the shard (protocol registry §4.2; the order of checks is part of the protocol).

use std::num::NonZeroU32;

use bytes::Bytes;
use protocol::code::StableCode;
use protocol::command::{AdapterMetadata, OrderingMode, Payload, Schedule, ScheduleIntent, prepare};
use protocol::id::MessageId;
use protocol::lane::{self, LaneOrdering, LaneTuple};
use protocol::mutation_v2::{DestinationProfile, PartitionPolicy};
use protocol::reference::{ProfileRef, RetryPolicyRef};
use protocol::resource::AdapterKind;
use protocol::{nulls, routing};

use super::command::{Age, Decision, uuid_age_refusal};
use super::verdict::{Rule, Verdict};
use super::{ApplyError, At, load};
use crate::effect::Effect;
use crate::state::constitution::Profile;
use crate::state::keys::{dedupe, meta};
use crate::state::transaction::Transaction;
use crate::state::{LaneNo, MessageUuid, PolicyNo, envelope, message_uuid, row, uuid_bytes};
use crate::store::{Family, StoreError};

/// The capability profile that every lane of ours has in its identity, until profiles name others.
const CAPABILITY: &[u8] = b"at-least-once";

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    message_id: MessageId,
    body: &Schedule,
) -> Result<Decision, ApplyError> {
    match decide(transaction, at, message_id, body.intent()) {
        Ok(plan) => admit(transaction, at, message_id, body, &plan).map(Decision::Verdict),
        Err(Refusal::Decision(decision)) => Ok(decision),
        Err(Refusal::Store(error)) => Err(error.into()),
    }
}

/// What an accepted Schedule binds.
struct Plan {
    partition: u32,
    bucket: u32,
    lane_no: Option<LaneNo>,
    policy_no: PolicyNo,
    payload_bytes: u32,
    business_key: Bytes,
    business_key_indexed: bool,
}

enum Refusal {
    Decision(Decision),
    Store(StoreError),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Refusal::Store(error)
    }
}

fn rejected(code: StableCode, rule: Rule) -> Refusal {
    Refusal::Decision(Verdict::rejected(code, rule).into())
}

fn decide(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    message_id: MessageId,
    intent: &ScheduleIntent,
) -> Result<Plan, Refusal> {
    let message = message_id.uuid;
    if transaction.progress.new_schedules_stopped {
        return Err(rejected(StableCode::RouteNotActive, Rule::None));
    }
    if load::message(transaction, message)?.is_some() {
        return Err(rejected(StableCode::DelayMessageIdConflict, Rule::None));
    }
    let business_key = intent.business_key.clone().unwrap_or_default();
    let business_key_indexed = check_business_key(transaction, intent, &business_key)?;
    check_identity(transaction, at, message_id)?;
    let profile = bound_profile(transaction, &intent.profile)?;
    let policy_no = bound_policy(transaction, &intent.retry_policy)?;
    let profile = &profile.profile;
    let record = check_metadata(intent, profile)?;
    check_ordering(intent, profile)?;
    let record_bytes_max = profile.record_bytes_max.saturating_sub(profile.header_reserve_bytes);
    if record.bytes > u64::from(record_bytes_max) {
        return Err(rejected(StableCode::ServerPayloadTooLarge, Rule::None));
    }
    let partition = target_partition(profile, &intent.profile, record.key, message)
        .ok_or_else(|| rejected(StableCode::DestinationNotAllowed, Rule::None))?;
    let bucket_count = NonZeroU32::new(profile.lane_bucket_count).unwrap_or(NonZeroU32::MIN);
    let bucket = lane::unordered_bucket(&message_id, bucket_count);
    check_window(transaction, at, intent.deliver_at_ms, intent.expire_at_ms, profile.delay_ms_max)
        .map_err(|rule| rejected(StableCode::InvalidDeliveryWindow, rule))?;

    let lookup = meta::lane_lookup(&intent.profile.id, intent.profile.version, partition, bucket);
    let lane_no = transaction.lane_no(&lookup)?;
    let limits = transaction.limits();
    if lane_no.is_none() && transaction.progress.lane_no_last >= limits.lanes_max {
        return Err(rejected(StableCode::DestinationLaneLimitExceeded, Rule::None));
    }
    if transaction.progress.active_messages >= limits.active_messages_max {
        return Err(rejected(StableCode::HardQuotaExceeded, Rule::ActiveMessages));
    }
    if transaction.progress.active_bytes.saturating_add(record.bytes) > limits.active_bytes_max {
        return Err(rejected(StableCode::HardQuotaExceeded, Rule::ActiveBytes));
    }
    let payload_bytes =
        u32::try_from(record.bytes).map_err(|_| rejected(StableCode::ServerPayloadTooLarge, Rule::None))?;
    Ok(Plan { partition, bucket, lane_no, policy_no, payload_bytes, business_key, business_key_indexed })
}

fn admit(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    message_id: MessageId,
    body: &Schedule,
    plan: &Plan,
) -> Result<Verdict, ApplyError> {
    let (message, intent) = (message_id.uuid, body.intent());
    let lane_no = match plan.lane_no {
        Some(lane_no) => lane_no,
        None => create_lane(transaction, at, &intent.profile, plan)?,
    };
    let mut row = row::Message {
        generation: 0,
        state_version: 1,
        seq: transaction.next_seq().0,
        deliver_at_ms: intent.deliver_at_ms,
        expire_at_ms: intent.expire_at_ms,
        lane_no: lane_no.0,
        policy_no: plan.policy_no.0,
        eligible_at_ms: intent.deliver_at_ms,
        business_key: plan.business_key.clone(),
        business_key_indexed: plan.business_key_indexed,
        payload_bytes: plan.payload_bytes,
        scheduled_at_ms: at.broker_time_ms,
        generation_at_ms: at.broker_time_ms,
        ..row::Message::default()
    };
    row.set_work(row::Work::Initial);
    let verdict = Verdict::applied(StableCode::Scheduled, Some(&row));

    let payload = envelope::encode_bytes(body.intent_bytes(), None);
    transaction.put(Family::Payloads, uuid_bytes(message), payload);
    if plan.business_key_indexed {
        let entry = row::BusinessKey { message: uuid_bytes(message) };
        transaction.put_row(Family::Dedupe, dedupe::business_key(&plan.business_key), &entry, None);
    }
    transaction.replace(message, None, row)?;
    transaction.totals().scheduled += 1;
    Ok(verdict)
}

fn create_lane(
    transaction: &mut Transaction<'_>,
    at: &At<'_>,
    profile_ref: &ProfileRef,
    plan: &Plan,
) -> Result<LaneNo, ApplyError> {
    let profile = transaction
        .bindings
        .profile(&profile_ref.id, profile_ref.version)
        .ok_or_else(|| ApplyError::Integrity { detail: "a bound profile has no row".to_owned() })?;
    let tuple = LaneTuple {
        tenant_scope: *transaction.constitution.tenant_scope(),
        // The one that the body pins, wherever it delivers: a rebinding leaves lane ids alone.
        resource: profile.profile.resource.clone(),
        partition: plan.partition,
        destination: profile_ref.clone(),
        capability: ProfileRef { id: Bytes::from_static(CAPABILITY), version: 1, semantic_hash: [0; 32] },
        ordering: LaneOrdering::Bucket(plan.bucket),
    };
    let lane_id = tuple.lane_id();
    transaction.progress.lane_no_last += 1;
    let lane_no = LaneNo(transaction.progress.lane_no_last);
    let mut row = row::Lane {
        lane_id: Bytes::copy_from_slice(&lane_id.0),
        incarnation: Bytes::copy_from_slice(&lane::lane_incarnation(lane_id, at.position)),
        profile_id: profile_ref.id.clone(),
        profile_version: profile_ref.version,
        partition: plan.partition,
        bucket: plan.bucket,
        control_version: 1,
        created_at_ms: at.broker_time_ms,
        ..row::Lane::default()
    };
    row.set_gate(row::Gate::Open);
    let lookup = meta::lane_lookup(&profile_ref.id, profile_ref.version, plan.partition, plan.bucket);
    transaction.create_lane(lookup, lane_no, row);
    transaction.emit(Effect::LaneChanged { lane_no });
    Ok(lane_no)
}

/// A business key is unique among the live messages of the shard it hashes to; elsewhere it is only carried.
fn check_business_key(
    transaction: &mut Transaction<'_>,
    intent: &ScheduleIntent,
    business_key: &Bytes,
) -> Result<bool, Refusal> {
    let limit = transaction.limits().business_key_bytes_max;
    if business_key.len() > usize::try_from(limit).unwrap_or(usize::MAX) {
        return Err(rejected(StableCode::ServerInvalidMetadata, Rule::BusinessKeyTooLong));
    }
    let unordered = intent.ordering == OrderingMode::BestEffort;
    if business_key.is_empty() || !unordered {
        return Ok(false);
    }
    let constitution = transaction.constitution.clone();
    let shard = constitution.shard();
    let home = routing::ingress_partition(
        shard.route,
        constitution.tenant_scope(),
        business_key,
        constitution.partition_count(),
    );
    if home != shard.partition {
        return Ok(false);
    }
    let key = dedupe::business_key(business_key);
    let holder = transaction.get_row::<row::BusinessKey>(Family::Dedupe, &key)?;
    if let Some(holder) = holder.and_then(|holder| message_uuid(&holder.message))
        && load::message(transaction, holder)?.is_some_and(|row| row.is_live())
    {
        let refused = Verdict::rejected(StableCode::DelayMessageIdConflict, Rule::BusinessKeyInUse);
        return Err(Refusal::Decision(Verdict { other_message: Some(holder), ..refused }.into()));
    }
    Ok(true)
}

/// T14, then T12 for the message id.
fn check_identity(transaction: &Transaction<'_>, at: &At<'_>, message_id: MessageId) -> Result<(), Refusal> {
    let uuid_ms = message_id.uuid.unix_ms();
    let reusable_until_ms = uuid_ms.saturating_add(transaction.limits().preparation_age_ms_max);
    if transaction.closed_ms() >= reusable_until_ms {
        return Err(rejected(StableCode::DelayMessageIdExpired, Rule::None));
    }
    match uuid_age_refusal(transaction, at, uuid_ms) {
        None => Ok(()),
        Some(Age::TooOld(detail)) => Err(refused_identity(Rule::MessageTooOld, detail)),
        Some(Age::InFuture(detail)) => Err(refused_identity(Rule::MessageInFuture, detail)),
    }
}

fn refused_identity(rule: Rule, detail: String) -> Refusal {
    Refusal::Decision(Decision::Position(StableCode::ServerInvalidCommand, rule, detail))
}

fn bound_profile(transaction: &Transaction<'_>, reference: &ProfileRef) -> Result<Profile, Refusal> {
    let profile = transaction
        .bindings
        .profile(&reference.id, reference.version)
        .filter(|profile| profile.semantic_hash == reference.semantic_hash)
        .ok_or_else(|| rejected(StableCode::ProfileVersionNotActiveAtSourcePosition, Rule::None))?;
    if profile.closed {
        return Err(rejected(StableCode::ProfileDeprecatedForNewUse, Rule::None));
    }
    Ok(profile.clone())
}

fn bound_policy(transaction: &Transaction<'_>, reference: &RetryPolicyRef) -> Result<PolicyNo, Refusal> {
    transaction
        .bindings
        .policy_no(&reference.id, reference.version)
        .filter(|policy_no| {
            transaction
                .bindings
                .policy(*policy_no)
                .is_some_and(|policy| !policy.closed && policy.semantic_hash == reference.semantic_hash)
        })
        .ok_or_else(|| rejected(StableCode::RetryPolicyNotActiveAtSourcePosition, Rule::None))
}

/// What a record's metadata says about its placement and size.
struct RecordShape<'a> {
    key: Option<&'a [u8]>,
    /// Key, value and the caller's headers, as they will be delivered.
    bytes: u64,
}

fn check_metadata<'a>(intent: &'a ScheduleIntent, profile: &DestinationProfile) -> Result<RecordShape<'a>, Refusal> {
    let invalid = |rule| rejected(StableCode::ServerInvalidMetadata, rule);
    let AdapterMetadata::Kafka(metadata) = &intent.metadata else {
        return Err(invalid(Rule::AdapterMismatch));
    };
    if profile.resource.adapter() == AdapterKind::Pulsar {
        return Err(invalid(Rule::AdapterMismatch));
    }
    let Some(Payload::Inline(value)) = &intent.payload else {
        return Err(rejected(StableCode::ServerInvalidCommand, Rule::NotBuilt));
    };
    let (_, headers) = nulls::split(&metadata.headers, value.len() as u64).map_err(|_| invalid(Rule::NullMarker))?;
    if headers.iter().any(|header| prepare::is_reserved_name(header.name.as_str())) {
        return Err(invalid(Rule::ReservedHeader));
    }
    let key = metadata.key.as_deref();
    let header_bytes: usize = headers.iter().map(|header| header.name.as_str().len() + header.value.len()).sum();
    let bytes = (key.map_or(0, <[u8]>::len) + value.len() + header_bytes) as u64;
    Ok(RecordShape { key, bytes })
}

fn check_ordering(intent: &ScheduleIntent, profile: &DestinationProfile) -> Result<(), Refusal> {
    // Ordered delivery needs a capability that can settle old attempts, which no built destination has.
    let allowed = intent.ordering == OrderingMode::BestEffort && profile.ordering.best_effort;
    if allowed { Ok(()) } else { Err(rejected(StableCode::OrderingCapabilityUnavailable, Rule::None)) }
}

fn target_partition(
    profile: &DestinationProfile,
    reference: &ProfileRef,
    key: Option<&[u8]>,
    message: MessageUuid,
) -> Option<u32> {
    let partition_count = NonZeroU32::new(profile.partition_count)?;
    let by_registry =
        |bytes: &[u8]| routing::target_partition(&reference.id, reference.version, bytes, partition_count);
    Some(match (profile.partition_policy, key) {
        (PartitionPolicy::Murmur2Key, Some(key)) => routing::kafka_partition(key, partition_count),
        (PartitionPolicy::RegistryHash, Some(key)) => by_registry(key),
        (PartitionPolicy::Murmur2Key | PartitionPolicy::RegistryHash, None) => by_registry(message.as_bytes()),
        (PartitionPolicy::Explicit { partition }, _) => partition,
    })
}

/// T1 to T3, and that the deadline is not closed already. T2 and T3 allow for a preparer whose clock is ahead (ADR 0011).
pub(crate) fn check_window(
    transaction: &Transaction<'_>,
    at: &At<'_>,
    deliver_at_ms: i64,
    expire_at_ms: i64,
    profile_delay_ms_max: i64,
) -> Result<(), Rule> {
    let limits = transaction.limits();
    let broker_time_ms = at.broker_time_ms;
    let earliest_end = deliver_at_ms.max(broker_time_ms).checked_add(limits.delivery_window_ms_min);
    if earliest_end.is_none_or(|earliest_end| expire_at_ms < earliest_end) {
        return Err(Rule::WindowTooShort);
    }
    let delay_ms_max = limits.delay_ms_max.min(profile_delay_ms_max);
    let preparer_ms_max = broker_time_ms.saturating_add(limits.uuid_future_skew_ms_max);
    if deliver_at_ms > preparer_ms_max.saturating_add(delay_ms_max) {
        return Err(Rule::DelayTooLong);
    }
    if expire_at_ms > preparer_ms_max.saturating_add(limits.lifetime_ms_max) {
        return Err(Rule::LifetimeTooLong);
    }
    if expire_at_ms <= transaction.closed_ms() {
        return Err(Rule::DeadlineClosed);
    }
    Ok(())
}
