//! What every part of a world reaches from any thread's types: true time, the event log, the queue of runnable tasks, and which
//! processes are there.
//!
//! Ports are `Send` by contract, so what stands behind them is too, although a world never leaves its thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use clock::VirtualTime;
use fastrand::Rng;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

use super::events::Events;
use super::random;

/// Names a process of a world. The world itself, its servers and the test are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(pub(crate) u32);

impl ProcessId {
    /// The world itself.
    pub const WORLD: ProcessId = ProcessId(0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(crate) u64);

impl TaskId {
    /// The test.
    pub(crate) const MAIN: TaskId = TaskId(0);
}

/// How a process is seen from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Presence {
    pub(crate) is_dead: bool,
    pub(crate) is_paused: bool,
    pub(crate) is_cut_off: bool,
    /// Since when nothing was heard of it.
    pub(crate) silent_since: Option<Duration>,
}

/// The part of a world that is not bound to its thread.
pub(crate) struct Shared {
    pub(crate) seed: u64,
    pub(crate) time: VirtualTime,
    pub(crate) events: Events,
    pub(crate) ready: Arc<Ready>,
    pub(crate) presences: watch::Sender<BTreeMap<ProcessId, Presence>>,
}

impl Shared {
    pub(crate) fn elapsed(&self) -> Duration {
        self.time.elapsed()
    }

    pub(crate) fn event(&self, line: fmt::Arguments<'_>) {
        self.events.write(self.elapsed(), &line.to_string());
    }

    pub(crate) fn stream(&self, purpose: &str) -> Rng {
        random::stream(self.seed, purpose)
    }

    pub(crate) fn presence(&self, process: ProcessId) -> Presence {
        self.presences.borrow().get(&process).copied().unwrap_or_default()
    }

    pub(crate) fn change_presence(&self, process: ProcessId, change: impl FnOnce(&mut Presence)) {
        let now = self.elapsed();
        self.presences.send_modify(|presences| {
            let presence = presences.entry(process).or_default();
            change(presence);
            let is_silent = presence.is_dead || presence.is_paused || presence.is_cut_off;
            presence.silent_since = is_silent.then(|| presence.silent_since.unwrap_or(now));
        });
    }

    pub(crate) fn spawn(&self, process: ProcessId, name: &'static str, future: BoxFuture<'static, ()>) {
        self.ready.spawn(Spawned { process, name, future });
    }
}

pub(crate) async fn wait(duration: Duration) {
    // Not even a turn of the executor: what takes no time happens in one step.
    if !duration.is_zero() {
        tokio::time::sleep_until(Instant::now() + duration).await;
    }
}

pub(crate) struct Spawned {
    pub(crate) process: ProcessId,
    pub(crate) name: &'static str,
    pub(crate) future: BoxFuture<'static, ()>,
}

#[derive(Default)]
struct Queue {
    /// By the step at which they became able to run. What one step wakes is ordered by name: in which order it was woken is
    /// tokio's business, which draws lots of its own.
    tasks: BTreeSet<(u64, TaskId)>,
    queued: BTreeSet<TaskId>,
    steps: u64,
    spawned: Vec<Spawned>,
    root: Option<Waker>,
}

/// The tasks that can run now.
#[derive(Default)]
pub(crate) struct Ready {
    queue: Mutex<Queue>,
}

impl Ready {
    pub(crate) fn push(&self, task: TaskId) {
        let mut queue = self.lock();
        if !queue.queued.insert(task) {
            return;
        }
        let step = queue.steps;
        queue.tasks.insert((step, task));
        let root = queue.root.take();
        drop(queue);
        if let Some(root) = root {
            root.wake();
        }
    }

    /// The next task; `draw` chooses one of several, or the oldest goes first.
    pub(crate) fn pop(&self, draw: Option<&mut Rng>) -> Option<TaskId> {
        let mut queue = self.lock();
        queue.steps += 1;
        let count = queue.tasks.len();
        let drawn = draw.filter(|_| count > 1).map_or(0, |random| random.usize(..count));
        let next = *queue.tasks.iter().nth(drawn)?;
        queue.tasks.remove(&next);
        queue.queued.remove(&next.1);
        Some(next.1)
    }

    pub(crate) fn take_spawned(&self) -> Vec<Spawned> {
        std::mem::take(&mut self.lock().spawned)
    }

    pub(crate) fn set_root(&self, root: &Waker) {
        self.lock().root = Some(root.clone());
    }

    fn spawn(&self, spawned: Spawned) {
        let mut queue = self.lock();
        queue.spawned.push(spawned);
        let root = queue.root.take();
        drop(queue);
        if let Some(root) = root {
            root.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes one task.
pub(crate) struct TaskWaker {
    pub(crate) task: TaskId,
    pub(crate) ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.task);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.push(self.task);
    }
}
