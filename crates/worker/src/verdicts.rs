//! What recent records came to, for those who wait for it: a bounded ring beside the durable results.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::position::OrderToken;
use shard::commit::Applied;
use shard::machine::verdict::RecordResult;

/// The results of the last records, in log order. Older ones are read from the store.
#[derive(Debug)]
pub(crate) struct VerdictRing {
    capacity: usize,
    results: Mutex<VecDeque<(OrderToken, RecordResult)>>,
}

impl VerdictRing {
    /// A ring of at most `capacity` results.
    pub(crate) fn new(capacity: usize) -> VerdictRing {
        VerdictRing { capacity, results: Mutex::new(VecDeque::with_capacity(capacity.min(1_024))) }
    }

    /// Adds results that are durable, in log order behind all before.
    pub(crate) fn push(&self, applied: &[Applied]) {
        let mut results = self.lock();
        for applied in applied {
            if results.len() == self.capacity {
                results.pop_front();
            }
            results.push_back((applied.position.order_token(), applied.result.clone()));
        }
    }

    /// The result of the record at a position, if it is still here.
    pub(crate) fn get(&self, order_token: &OrderToken) -> Option<RecordResult> {
        let results = self.lock();
        let index = results.binary_search_by(|(token, _)| token.cmp(order_token)).ok()?;
        Some(results[index].1.clone())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(OrderToken, RecordResult)>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
