//! Bodies and queries of HTTP requests, and the JSON records in metadata.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use client::api::problem::Problem;
use client::prepare::{self, BoundDestination, Instants, NewMessage, RouteSnapshot};
use control::cas::{self, Record};
use control::destination::DestinationRecord;
use control::idempotency::IdempotencyRecord;
use control::ingress::{IngressProgress, IngressRecord};
use control::route::RouteRecord;
use control::shard_control::{OwnerLease, ShardControl};
use gateway::{DestinationDefaults, decode};
use ports::target::Target;
use protocol::id::Uuid7;
use protocol::record::{self, LogRecord};
use protocol::resource::Resource;
use serde_json::Value;
use testkit::log::{Destination, LogWriter, START_MS, default_limits, default_policy};

use crate::input::Input;

/// When requests are asked for, in milliseconds since the epoch.
pub(crate) const NOW_MS: i64 = START_MS;

/// A body: one byte says of which request or record the rest is.
pub fn body(input: &[u8]) {
    let mut input = Input::new(input);
    match input.below(13) {
        0 => schedule(input.rest()),
        1 => reschedule(input.rest()),
        2 => batch(input.rest()),
        3 => destination(input.rest()),
        4 => ingress(input.rest()),
        5 => query(input.rest()),
        6 => stored::<RouteRecord>(input.rest(), |record| {
            let _ = (record.route_id(), record.partition_count(), record.shards());
        }),
        7 => stored::<DestinationRecord>(input.rest(), |record| {
            let _ =
                record.current().map(|version| (version.profile(), version.semantic_hash(), version.retry_policy()));
        }),
        8 => stored::<ShardControl>(input.rest(), |_| ()),
        9 => stored::<OwnerLease>(input.rest(), |_| ()),
        10 => stored::<IdempotencyRecord>(input.rest(), |_| ()),
        11 => stored::<IngressRecord>(input.rest(), |_| ()),
        _ => stored::<IngressProgress>(input.rest(), |progress| {
            let _ = progress.is_under_way();
        }),
    }
}

/// A refusal may quote the request, and grows no faster than it.
fn check_problem(problem: &Problem, body: &[u8]) {
    assert!((400..500).contains(&problem.status), "{problem}");
    assert!(problem.detail.len() <= 1_024 + 8 * body.len(), "a problem of {} bytes", problem.detail.len());
}

fn schedule(body: &[u8]) {
    match decode::schedule(body, NOW_MS) {
        Ok((_, message)) => check_message(message),
        Err(problem) => check_problem(&problem, body),
    }
}

static ROUTE: LazyLock<(RouteSnapshot, BoundDestination)> = LazyLock::new(|| {
    let log = LogWriter::new(0, NonZeroU32::MIN);
    let route = RouteSnapshot {
        route: log.shard().route,
        partition_count: log.partition_count(),
        tenant_scope: log.tenant_scope(),
        limits: default_limits(),
        past_ms_max: 86_400_000,
    };
    let orders = Destination::new("orders", &default_policy());
    (route, BoundDestination { profile: orders.reference(), body: Arc::new(orders.body) })
});

/// What a request asks for is refused when it is prepared, or becomes a command that every reader of the log reads.
pub(crate) fn check_message(message: NewMessage) {
    let (route, destination) = &*ROUTE;
    assert!(message.deliver_at_ms >= 0 && message.expire_at_ms.is_none_or(|expire_at_ms| expire_at_ms >= 0));
    assert!(message.event_time_ms.is_none_or(|time_ms| time_ms >= 0));
    let uuid = |tail| Uuid7::from_parts(NOW_MS.unsigned_abs(), [tail; 10]).expect("the time fits");
    // Names and ids may stand in an error in full.
    let quoted = message.id.as_ref().map_or(0, String::len)
        + message.headers.iter().map(|header| header.name.len()).max().unwrap_or_default();
    match prepare::schedule(route, destination, message, uuid(1), uuid(2), Instants::now(NOW_MS)) {
        Ok(command) => {
            let read = record::decode(&command.encode_frame());
            assert_eq!(read, Ok(LogRecord::Command(command)), "a command that no shard reads");
        }
        Err(error) => assert!(error.to_string().len() <= 1_024 + 8 * quoted),
    }
}

fn reschedule(body: &[u8]) {
    match decode::reschedule(body, NOW_MS) {
        Ok((deliver_at_ms, expire_at_ms)) => {
            assert!(deliver_at_ms >= 0 && expire_at_ms.is_none_or(|expire_at_ms| expire_at_ms >= 0));
        }
        Err(problem) => check_problem(&problem, body),
    }
}

fn batch(body: &[u8]) {
    match decode::batch(body) {
        Ok(items) => items.into_iter().for_each(schedule),
        Err(problem) => check_problem(&problem, body),
    }
}

fn destination(body: &[u8]) {
    let spec = match decode::destination(body) {
        Ok(spec) => spec,
        Err(problem) => return check_problem(&problem, body),
    };
    let text = serde_json::to_vec(&spec).expect("a spec serialises");
    assert_eq!(decode::destination(&text).as_ref(), Ok(&spec), "another spec than was read");
    let target = Target {
        resource: Resource::Embedded { topic: [7; 16] },
        topic: "orders".to_owned(),
        partition_count: 3,
        record_bytes_max: 1_000_000,
        checks: Vec::new(),
    };
    let defaults = DestinationDefaults {
        expires_after_ms: 3_600_000,
        delay_ms_max: 86_400_000,
        initial_backoff_ms: 1_000,
        backoff_ms_max: 60_000,
        attempts_max: 10,
        retry_duration_ms_max: 3_600_000,
        uncertain_retries_max: 5,
    };
    match decode::destination_version("orders", &spec, &target, &defaults, &default_limits(), NOW_MS) {
        Ok(version) => {
            let profile = version.profile().expect("what is kept can be read");
            let policy = version.retry_policy().expect("what is kept can be read");
            assert_eq!(version.semantic_hash(), Some(profile.semantic_hash(b"orders", 1)));
            assert_eq!(profile.retry_policy.semantic_hash, policy.semantic_hash());
        }
        Err(problem) => check_problem(&problem, body),
    }
}

fn ingress(body: &[u8]) {
    match decode::ingress(body) {
        Ok(spec) => {
            let text = serde_json::to_vec(&spec).expect("a spec serialises");
            assert_eq!(decode::ingress(&text), Ok(spec), "another spec than was read");
        }
        Err(problem) => check_problem(&problem, body),
    }
}

fn query(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    match decode::query(text, &["id", "limit", "status"]) {
        Ok(parameters) => {
            let bytes: usize = parameters.iter().map(|(_, value)| value.len()).sum();
            assert!(parameters.len() <= 3 && bytes <= text.len());
        }
        Err(problem) => check_problem(&problem, text.as_bytes()),
    }
}

/// A record of metadata: what is read is written and read again as the same.
fn stored<R: Record + std::fmt::Debug>(value: &[u8], look: impl Fn(&R)) {
    match cas::decode::<R>("key", value) {
        Ok(record) => {
            look(&record);
            let again: R = cas::decode("key", &cas::encode(&record)).expect("what is kept can be read");
            // What is between two floating-point numbers may come back as the other one; no record of ours has any.
            let has_fraction = serde_json::from_slice(value).is_ok_and(|value| has_fraction(&value));
            assert!(again == record || has_fraction, "{again:?} was written as {record:?}");
        }
        Err(error) => assert!(error.to_string().len() <= 1_024 + 8 * value.len()),
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(values) => values.iter().any(has_fraction),
        Value::Object(members) => members.values().any(has_fraction),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}
