//! Evidence of publication: which attempts stand at which offsets.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::append::AttemptEntry;
use crate::core::Core;
use crate::database::Table;
use crate::read::ReadError;
use crate::rows::{AttemptsKey, attempts_bound, decode_attempts};

/// One append that carried attempts, as stored with its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendedAttempts {
    /// The log offset of the record that admitted them.
    pub order: u64,
    /// The id of the topic they went to.
    pub topic_id: [u8; 16],
    /// The partition they went to.
    pub partition: u32,
    /// The offset of the first attempt's record; the others follow without a gap.
    pub first_offset: u64,
    /// When the records were appended, in milliseconds since 1970.
    pub append_time_ms: i64,
    /// The attempts, in the order of their records.
    pub entries: Vec<AttemptEntry>,
}

impl AppendedAttempts {
    /// Each attempt with the offset of its record.
    pub fn offsets(&self) -> impl Iterator<Item = (AttemptEntry, u64)> + '_ {
        self.entries.iter().copied().zip(self.first_offset..)
    }
}

/// How many group commits pass between two that delete what was forgotten. A deletion is a range tombstone, which every
/// later read of the family has to sort, so few of them are worth more than early ones.
const COMMITS_BETWEEN: u64 = 64;

/// Evidence that may go: below which order, by scope. No larger than the number of scopes.
#[derive(Debug, Default)]
pub(crate) struct Forgotten {
    below: Mutex<BTreeMap<Bytes, u64>>,
}

impl Forgotten {
    pub(crate) fn add(&self, scope: Bytes, below_order: u64) {
        let mut below = self.below.lock().unwrap_or_else(PoisonError::into_inner);
        let order = below.entry(scope).or_default();
        *order = below_order.max(*order);
    }

    /// What the commit of this number deletes on its way.
    pub(crate) fn take(&self, commit_number: u64) -> BTreeMap<Bytes, u64> {
        if !commit_number.is_multiple_of(COMMITS_BETWEEN) {
            return BTreeMap::new();
        }
        std::mem::take(&mut *self.below.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) fn list(
    core: &Core,
    scope: &Bytes,
    orders: std::ops::Range<u64>,
) -> Result<Vec<AppendedAttempts>, ReadError> {
    let (Some(from), Some(until)) = (attempts_bound(scope, orders.start), attempts_bound(scope, orders.end)) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    if from >= until {
        return Ok(found);
    }
    let inside = core.gate.enter();
    let database = inside.resource().map_err(|reason| ReadError::Closed { reason: reason.to_owned() })?;
    let mut rows = Vec::new();
    database.scan(Table::Attempts, &from, Some(until), |key, row| {
        rows.push((AttemptsKey::decode(scope, key)?, decode_attempts(row)?));
        Ok(true)
    })?;
    let topics = core.topics();
    for (key, (append_time_ms, entries)) in rows {
        let AttemptsKey { order, partition, first_offset } = key;
        let Some(topic) = topics.by_no(partition.topic_no) else {
            let detail = format!("attempts of order {order} name topic number {}, which is none", partition.topic_no);
            return Err(ReadError::Corrupt { detail });
        };
        let topic_id = topic.id;
        let partition = partition.partition;
        found.push(AppendedAttempts { order, topic_id, partition, first_offset, append_time_ms, entries });
    }
    Ok(found)
}
