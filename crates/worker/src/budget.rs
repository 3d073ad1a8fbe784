//! The worker's budget of work under way, shared by shards on several threads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::id::ShardId;
use shard::schedule::budget::Budget;
use shard::schedule::lane::Load;
use shard::schedule::round_robin::RoundRobinConfig;
use tokio::sync::Notify;

struct State {
    budget: Budget<ShardId>,
    waiters: BTreeMap<ShardId, Arc<Notify>>,
}

/// Permits of all shards of one worker.
pub struct SharedBudget {
    state: Mutex<State>,
}

impl SharedBudget {
    /// A budget nobody has used yet.
    pub fn new(limit: Load, round_robin: RoundRobinConfig) -> SharedBudget {
        let state = State { budget: Budget::new(limit, round_robin), waiters: BTreeMap::new() };
        SharedBudget { state: Mutex::new(state) }
    }

    pub(crate) fn join(self: &Arc<Self>, shard: ShardId) -> Share {
        let room = Arc::new(Notify::new());
        self.lock().waiters.insert(shard, room.clone());
        Share { shared: self.clone(), shard, room, charged: Load::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake_next(&mut self) {
        if let Some(waiter) = self.budget.next_waiting().and_then(|shard| self.waiters.get(&shard)) {
            waiter.notify_one();
        }
    }
}

/// One shard's share of the budget; it is given back when the share is dropped.
pub(crate) struct Share {
    shared: Arc<SharedBudget>,
    shard: ShardId,
    room: Arc<Notify>,
    charged: Load,
}

impl Share {
    /// What may be taken up now; settle it with [`Share::settle`].
    pub(crate) fn take(&mut self) -> Load {
        let granted = self.shared.lock().budget.take(self.shard);
        self.charged.messages += granted.messages;
        self.charged.bytes += granted.bytes;
        granted
    }

    /// Keeps charged what is really under way and gives the rest back.
    pub(crate) fn settle(&mut self, under_way: Load) {
        let surplus = Load {
            messages: self.charged.messages.saturating_sub(under_way.messages),
            bytes: self.charged.bytes.saturating_sub(under_way.bytes),
        };
        if surplus == Load::default() {
            return;
        }
        self.charged.messages -= surplus.messages;
        self.charged.bytes -= surplus.bytes;
        let mut state = self.shared.lock();
        state.budget.give_back(self.shard, surplus);
        state.wake_next();
    }

    /// Ready when it is this shard's turn to ask again.
    pub(crate) async fn room(&self) {
        self.room.notified().await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.budget.remove(self.shard);
        state.waiters.remove(&self.shard);
        state.wake_next();
    }
}
