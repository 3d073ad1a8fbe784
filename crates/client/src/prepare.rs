//! Preparing commands: identities, bytes and hash are fixed here, purely, before anything is sent (protocol registry §2.10).
//!
//! A prepared command can be kept and sent again as often as need be: the shard applies its first copy and answers every other
//! with the same result. Rules are checked with the numbers that the shard will use, so that a refusal comes early and says by
//! how much; the shard has the last word.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use protocol::command::{
    AdapterMetadata, Cancel, ClientCommand, CommandBody, KafkaHeader, KafkaMetadata, OrderingMode, Payload,
    Precondition, Reschedule, Schedule, ScheduleIntent, prepare,
};
use protocol::field::FieldError;
use protocol::hash::Hash;
use protocol::id::{CommandId, MessageId, RouteId, ShardId, Uuid7};
use protocol::mutation_v2::{DestinationProfile, Limits};
use protocol::reference::{ProfileRef, RetryPolicyRef};
use protocol::text::{Text, TextError};
use protocol::{nulls, routing};

use crate::duration::DisplayDelay;

/// What a client must know of a route to prepare commands for it.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteSnapshot {
    /// The route.
    pub route: RouteId,
    /// How many shards it has.
    pub partition_count: NonZeroU32,
    /// The tenant's routing scope.
    pub tenant_scope: Hash,
    /// The limits its shards apply.
    pub limits: Limits,
    /// How long ago a delivery time may be: later than that it is due at once, earlier it is refused.
    pub past_ms_max: i64,
}

/// A destination as new messages bind it.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundDestination {
    /// The profile version.
    pub profile: ProfileRef,
    /// Its body.
    pub body: Arc<DestinationProfile>,
}

impl BoundDestination {
    /// The retry policy it names.
    pub fn retry_policy(&self) -> &RetryPolicyRef {
        &self.body.retry_policy
    }

    /// Bytes that the caller's key, value and headers may have together.
    pub fn record_bytes_max(&self) -> u32 {
        self.body.record_bytes_max.saturating_sub(self.body.header_reserve_bytes)
    }
}

/// One header; a `None` value is null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Option<Bytes>,
}

/// A message to schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewMessage {
    /// The caller's own id.
    pub id: Option<String>,
    /// The earliest instant a consumer may see it.
    pub deliver_at_ms: i64,
    /// From here on it is not delivered any more; the destination's default when `None`.
    pub expire_at_ms: Option<i64>,
    /// Kafka key; `None` is null.
    pub key: Option<Bytes>,
    /// Kafka value; `None` is null.
    pub value: Option<Bytes>,
    /// Kafka headers, in order.
    pub headers: Vec<Header>,
    /// When the thing happened that the message is about.
    pub event_time_ms: Option<i64>,
}

/// The instants that a command's times are measured from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instants {
    /// The later bound of trusted time: how far ahead delivery and expiry are counts from here.
    pub now_latest_ms: i64,
    /// When the message was asked for: how long ago its delivery time is counts from here. For a request that is now; a record
    /// that waited in its topic was asked for when it was written.
    pub asked_at_ms: i64,
}

impl Instants {
    /// Of a request that is asked for now.
    pub const fn now(now_latest_ms: i64) -> Instants {
        Instants { now_latest_ms, asked_at_ms: now_latest_ms }
    }
}

/// Why a command cannot be prepared. Nothing was sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PrepareError {
    /// The delivery time is too long ago.
    #[error(
        "delivery time {deliver_at_ms} ms is {} in the past; up to {} is delivered at once, older times are refused \
         (seconds sent as milliseconds look like 1970)",
        DisplayDelay(*.past_ms), DisplayDelay(*.limit_ms)
    )]
    TooLongAgo {
        /// The time.
        deliver_at_ms: i64,
        /// How long ago it is.
        past_ms: i64,
        /// How long ago it may be.
        limit_ms: i64,
    },
    /// The delivery time is too far ahead.
    #[error("delivery is {} ahead; the limit is {} ({limit_ms} ms)", DisplayDelay(*.delay_ms), DisplayDelay(*.limit_ms))]
    TooFarAhead {
        /// How far ahead it is.
        delay_ms: i64,
        /// How far ahead it may be.
        limit_ms: i64,
    },
    /// Too little time between delivery, a second ahead at the soonest, and expiry.
    #[error("expiry is {window_ms} ms after delivery; it must be at least {limit_ms} ms after")]
    WindowTooShort {
        /// The time between.
        window_ms: i64,
        /// The least it may be.
        limit_ms: i64,
    },
    /// Expiry too far ahead.
    #[error("expiry is {} ahead; the limit is {} ({limit_ms} ms)", DisplayDelay(*.lifetime_ms), DisplayDelay(*.limit_ms))]
    LifetimeTooLong {
        /// How far ahead it is.
        lifetime_ms: i64,
        /// How far ahead it may be.
        limit_ms: i64,
    },
    /// Key, value and headers are too large together.
    #[error(
        "key, value and headers have {bytes} bytes; the destination takes {limit_bytes}, which leaves room for the \
         delivery headers"
    )]
    RecordTooLarge {
        /// What they have.
        bytes: u64,
        /// What they may have.
        limit_bytes: u32,
    },
    /// A header name that only delivery may write.
    #[error("header {name:?} is reserved: names starting with nereus.delay. and the name nereus.nulls are ours")]
    ReservedHeader {
        /// The name.
        name: String,
    },
    /// A name that is not text.
    #[error("{what} is no valid text: {error}")]
    Text {
        /// Which text.
        what: &'static str,
        /// What is wrong with it.
        error: TextError,
    },
    /// An id that is empty, too long or looks like a message id.
    #[error("id {reason}")]
    Id {
        /// What is wrong with it.
        reason: String,
    },
    /// More headers than a null marker can count.
    #[error("{count} headers; the limit is {limit}")]
    TooManyHeaders {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A rule of the command's body.
    #[error(transparent)]
    Field(#[from] FieldError),
}

/// Prepares a SCHEDULE.
///
/// `message` and `command` are fresh version 7 UUIDs of about the later bound of trusted time in `instants`.
///
/// # Errors
/// [`PrepareError`].
pub fn schedule(
    route: &RouteSnapshot,
    destination: &BoundDestination,
    new: NewMessage,
    message: Uuid7,
    command: Uuid7,
    instants: Instants,
) -> Result<ClientCommand, PrepareError> {
    check_id(new.id.as_deref(), &route.limits)?;
    let expires_after_ms = destination.body.expires_after_ms;
    let expire_at_ms = new
        .expire_at_ms
        .unwrap_or_else(|| new.deliver_at_ms.max(instants.now_latest_ms).saturating_add(expires_after_ms));
    let times = Times { deliver_at_ms: new.deliver_at_ms, expire_at_ms };
    check_times(route, &destination.body, times, instants)?;
    check_size(&new, destination)?;
    let id = new.id.map(Bytes::from);
    let routing_key = id.as_deref().unwrap_or(message.as_bytes());
    let partition = routing::ingress_partition(route.route, &route.tenant_scope, routing_key, route.partition_count);
    let shard = ShardId { route: route.route, partition };
    let (metadata, payload) = record(new.key, new.value, new.headers)?;
    let intent = ScheduleIntent {
        profile: destination.profile.clone(),
        retry_policy: destination.retry_policy().clone(),
        deliver_at_ms: new.deliver_at_ms,
        expire_at_ms,
        ordering: OrderingMode::BestEffort,
        ordering_key: Bytes::new(),
        payload: Some(Payload::Inline(payload)),
        metadata: AdapterMetadata::Kafka(metadata),
        business_key: id,
        event_time_ms: new.event_time_ms,
    };
    let body = CommandBody::Schedule(Box::new(Schedule::new(intent)?));
    command_of(route, MessageId { shard, uuid: message }, command, body)
}

/// Prepares a CANCEL.
///
/// # Errors
/// [`PrepareError`].
pub fn cancel(
    route: &RouteSnapshot,
    message: MessageId,
    precondition: Precondition,
    command: Uuid7,
) -> Result<ClientCommand, PrepareError> {
    command_of(route, message, command, CommandBody::Cancel(Cancel { precondition }))
}

/// Prepares a RESCHEDULE.
///
/// # Errors
/// [`PrepareError`].
pub fn reschedule(
    route: &RouteSnapshot,
    destination: &BoundDestination,
    message: MessageId,
    precondition: Precondition,
    times: Times,
    command: Uuid7,
    instants: Instants,
) -> Result<ClientCommand, PrepareError> {
    check_times(route, &destination.body, times, instants)?;
    let Times { deliver_at_ms, expire_at_ms } = times;
    command_of(
        route,
        message,
        command,
        CommandBody::Reschedule(Reschedule { precondition, deliver_at_ms, expire_at_ms }),
    )
}

/// A message's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The earliest instant a consumer may see it.
    pub deliver_at_ms: i64,
    /// From here on it is not delivered any more.
    pub expire_at_ms: i64,
}

fn command_of(
    route: &RouteSnapshot,
    message: MessageId,
    command: Uuid7,
    body: CommandBody,
) -> Result<ClientCommand, PrepareError> {
    let retry_until_ms = command.unix_ms().saturating_add(route.limits.command_retry_window_ms);
    let command_id = CommandId { shard: message.shard, uuid: command };
    Ok(ClientCommand::new(command_id, message, retry_until_ms, body)?)
}

fn check_id(id: Option<&str>, limits: &Limits) -> Result<(), PrepareError> {
    let Some(id) = id else { return Ok(()) };
    let refused = |reason: String| Err(PrepareError::Id { reason });
    if id.is_empty() {
        return refused("is empty; leave it out if there is none".to_owned());
    }
    if u32::try_from(id.len()).is_ok_and(|length| length > limits.business_key_bytes_max) || id.len() > usize::MAX / 2 {
        return refused(format!("has {} bytes; the limit is {}", id.len(), limits.business_key_bytes_max));
    }
    if id.starts_with(MessageId::PREFIX) {
        return refused(format!("starts with {:?}, which message ids of the service do", MessageId::PREFIX));
    }
    if id.chars().any(char::is_control) {
        return refused("has control characters".to_owned());
    }
    Ok(())
}

/// What a command may take from here to the log, counted against the shortest delivery window (ADR 0011).
const APPEND_ALLOWANCE_MS: i64 = 1_000;

/// Holds the exact limits; the shard allows for clocks that differ (ADR 0011).
fn check_times(
    route: &RouteSnapshot,
    destination: &DestinationProfile,
    times: Times,
    instants: Instants,
) -> Result<(), PrepareError> {
    let Times { deliver_at_ms, expire_at_ms } = times;
    let Instants { now_latest_ms, asked_at_ms } = instants;
    let limits = &route.limits;
    let past_ms = asked_at_ms.saturating_sub(deliver_at_ms);
    if past_ms > route.past_ms_max {
        return Err(PrepareError::TooLongAgo { deliver_at_ms, past_ms, limit_ms: route.past_ms_max });
    }
    let delay_ms = deliver_at_ms.saturating_sub(now_latest_ms);
    let limit_ms = limits.delay_ms_max.min(destination.delay_ms_max);
    if delay_ms > limit_ms {
        return Err(PrepareError::TooFarAhead { delay_ms, limit_ms });
    }
    // What is due now is still on its way to the log, which counts from when it gets there.
    let soonest_ms = now_latest_ms.saturating_add(APPEND_ALLOWANCE_MS);
    let window_ms = expire_at_ms.saturating_sub(deliver_at_ms.max(soonest_ms));
    if window_ms < limits.delivery_window_ms_min {
        return Err(PrepareError::WindowTooShort { window_ms, limit_ms: limits.delivery_window_ms_min });
    }
    let lifetime_ms = expire_at_ms.saturating_sub(now_latest_ms);
    if lifetime_ms > limits.lifetime_ms_max {
        return Err(PrepareError::LifetimeTooLong { lifetime_ms, limit_ms: limits.lifetime_ms_max });
    }
    Ok(())
}

fn check_size(new: &NewMessage, destination: &BoundDestination) -> Result<(), PrepareError> {
    let part = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
    let headers: usize = new.headers.iter().map(|header| header.name.len() + part(&header.value)).sum();
    let bytes = (part(&new.key) + part(&new.value) + headers) as u64;
    let limit_bytes = destination.record_bytes_max();
    if bytes > u64::from(limit_bytes) { Err(PrepareError::RecordTooLarge { bytes, limit_bytes }) } else { Ok(()) }
}

fn record(
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Vec<Header>,
) -> Result<(KafkaMetadata, Bytes), PrepareError> {
    let limit = usize::from(u16::MAX);
    if headers.len() > limit {
        return Err(PrepareError::TooManyHeaders { count: headers.len(), limit });
    }
    let null_headers: Vec<u16> =
        (0..).zip(&headers).filter(|(_, header)| header.value.is_none()).map(|(index, _)| index).collect();
    let mut encoded = Vec::with_capacity(headers.len() + 1);
    for header in headers {
        if prepare::is_reserved_name(&header.name) || header.name == nulls::MARKER_NAME {
            return Err(PrepareError::ReservedHeader { name: header.name });
        }
        encoded.push(kafka_header(header.name, header.value.unwrap_or_default())?);
    }
    if let Some(marker) = nulls::encode(value.is_none(), &null_headers) {
        encoded.push(kafka_header(nulls::MARKER_NAME.to_owned(), marker)?);
    }
    Ok((KafkaMetadata { key, headers: encoded }, value.unwrap_or_default()))
}

fn kafka_header(name: String, value: Bytes) -> Result<KafkaHeader, PrepareError> {
    let name = Text::new(name).map_err(|error| PrepareError::Text { what: "header name", error })?;
    Ok(KafkaHeader { name, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_800_000_000_000;

    fn refusal(deliver_at_ms: i64, expire_at_ms: i64) -> Option<PrepareError> {
        refusal_of(Instants::now(NOW_MS), deliver_at_ms, expire_at_ms)
    }

    fn refusal_of(instants: Instants, deliver_at_ms: i64, expire_at_ms: i64) -> Option<PrepareError> {
        let limits = testkit::log::default_limits();
        let log = testkit::log::LogWriter::new(0, NonZeroU32::MIN);
        let route = RouteSnapshot {
            route: log.shard().route,
            partition_count: NonZeroU32::MIN,
            tenant_scope: [0; 32],
            limits: Limits { delay_ms_max: 100_000, lifetime_ms_max: 200_000, delivery_window_ms_min: 5_000, ..limits },
            past_ms_max: 60_000,
        };
        let destination = testkit::log::Destination::new("orders", &testkit::log::default_policy());
        let times = Times { deliver_at_ms, expire_at_ms };
        check_times(&route, &destination.body, times, instants).err()
    }

    #[test]
    fn every_limit_is_allowed_and_one_millisecond_beyond_is_not() {
        let far_ms = NOW_MS + 200_000;
        assert_eq!(refusal(NOW_MS + 100_000, far_ms), None);
        let beyond = PrepareError::TooFarAhead { delay_ms: 100_001, limit_ms: 100_000 };
        assert_eq!(refusal(NOW_MS + 100_001, far_ms), Some(beyond));
        let lifetime = PrepareError::LifetimeTooLong { lifetime_ms: 200_001, limit_ms: 200_000 };
        assert_eq!(refusal(NOW_MS, far_ms + 1), Some(lifetime));
        assert_eq!(refusal(NOW_MS - 60_000, far_ms), None);
        let deliver_at_ms = NOW_MS - 60_001;
        let past = PrepareError::TooLongAgo { deliver_at_ms, past_ms: 60_001, limit_ms: 60_000 };
        assert_eq!(refusal(deliver_at_ms, far_ms), Some(past));
        let due_ms = NOW_MS + 50_000;
        assert_eq!(refusal(due_ms, due_ms + 5_000), None);
        let short = PrepareError::WindowTooShort { window_ms: 4_999, limit_ms: 5_000 };
        assert_eq!(refusal(due_ms, due_ms + 4_999), Some(short.clone()));
        // A message that is due already counts from a second ahead.
        assert_eq!(refusal(NOW_MS - 1, NOW_MS + 6_000), None);
        assert_eq!(refusal(NOW_MS - 1, NOW_MS + 5_999), Some(short));
    }
    #[test]
    fn a_message_that_waited_to_be_taken_is_late_and_not_refused() {
        let hour_ms = 3_600_000;
        let waited = Instants { now_latest_ms: NOW_MS, asked_at_ms: NOW_MS - 2 * hour_ms };
        // Two hours ago it was a minute ahead, and so it is today.
        assert_eq!(refusal_of(waited, NOW_MS - 2 * hour_ms + 60_000, NOW_MS + 100_000), None);
        assert_eq!(refusal_of(waited, NOW_MS - 2 * hour_ms - 60_000, NOW_MS + 100_000), None);
        let deliver_at_ms = NOW_MS - 2 * hour_ms - 60_001;
        let past = PrepareError::TooLongAgo { deliver_at_ms, past_ms: 60_001, limit_ms: 60_000 };
        assert_eq!(refusal_of(waited, deliver_at_ms, NOW_MS + 100_000), Some(past));
        // What is ahead counts from now all the same.
        let far = PrepareError::TooFarAhead { delay_ms: 100_001, limit_ms: 100_000 };
        assert_eq!(refusal_of(waited, NOW_MS + 100_001, NOW_MS + 200_000), Some(far));
    }
}
