//! One thread, many processes: runs whatever can run, in an order the seed decides, and lets time pass only when nothing can.
//!
//! Timers are tokio's, on a paused clock that jumps to the next timer when the thread would sleep; everything else is here. A
//! process can be stopped between any two steps of its tasks, for good or for a while, and nothing of it runs then.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::LocalBoxFuture;
use tokio::time::{Instant, Sleep};

use super::shared::{ProcessId, Shared, TaskId, TaskWaker};

/// Steps at one instant after which a task is thought to be waking itself.
const STEPS_AT_ONE_TIME_MAX: u64 = 1_000_000;

struct Entry {
    name: &'static str,
    process: ProcessId,
    /// `None` while it runs.
    future: Option<LocalBoxFuture<'static, ()>>,
    waker: Waker,
}

#[derive(Default)]
struct Tasks {
    last: u64,
    entries: BTreeMap<TaskId, Entry>,
    /// Stopped tasks that are dropped before the next step, outside of any borrow: their parts may stop others.
    stopped: Vec<LocalBoxFuture<'static, ()>>,
    /// Tasks that were woken while their process stood still.
    held: BTreeMap<ProcessId, BTreeSet<TaskId>>,
    steps: BTreeMap<ProcessId, u64>,
    stops: BTreeMap<ProcessId, (u64, Stop)>,
}

/// How a process comes to a halt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    Killed,
    Paused,
}

/// The executor of a world.
pub(crate) struct Executor {
    pub(crate) shared: Arc<Shared>,
    tasks: RefCell<Tasks>,
    order: RefCell<Option<Rng>>,
    main: Waker,
    start: Instant,
    /// What had passed of true time when the runtime's clock stood at its start.
    ahead: Duration,
    steps_at_this_time: Cell<u64>,
}

impl Executor {
    pub(crate) fn new(shared: Arc<Shared>, order: Option<Rng>, start: Instant) -> Executor {
        let waker = TaskWaker { task: TaskId::MAIN, ready: shared.ready.clone() };
        let ahead = shared.elapsed();
        Executor {
            shared,
            tasks: RefCell::default(),
            order: RefCell::new(order),
            main: Waker::from(Arc::new(waker)),
            start,
            ahead,
            steps_at_this_time: Cell::new(0),
        }
    }

    pub(crate) fn spawn(&self, process: ProcessId, name: &'static str, future: LocalBoxFuture<'static, ()>) -> TaskId {
        let mut tasks = self.tasks.borrow_mut();
        tasks.last += 1;
        let task = TaskId(tasks.last);
        if self.shared.presence(process).is_dead {
            tasks.stopped.push(future);
            return task;
        }
        let waker = Waker::from(Arc::new(TaskWaker { task, ready: self.shared.ready.clone() }));
        tasks.entries.insert(task, Entry { name, process, future: Some(future), waker });
        drop(tasks);
        self.shared.ready.push(task);
        task
    }

    pub(crate) fn stop(&self, task: TaskId) {
        let mut tasks = self.tasks.borrow_mut();
        if let Some(future) = tasks.entries.remove(&task).and_then(|entry| entry.future) {
            tasks.stopped.push(future);
        }
    }

    /// Nothing of the process runs from here on, and nothing of it says goodbye.
    pub(crate) fn kill(&self, process: ProcessId) {
        if self.shared.presence(process).is_dead {
            return;
        }
        self.shared.change_presence(process, |presence| presence.is_dead = true);
        let mut tasks = self.tasks.borrow_mut();
        let of_process: Vec<TaskId> =
            tasks.entries.iter().filter(|(_, entry)| entry.process == process).map(|(task, _)| *task).collect();
        for task in of_process {
            if let Some(future) = tasks.entries.remove(&task).and_then(|entry| entry.future) {
                tasks.stopped.push(future);
            }
        }
    }

    pub(crate) fn pause(&self, process: ProcessId) {
        self.shared.change_presence(process, |presence| presence.is_paused = true);
    }

    pub(crate) fn resume(&self, process: ProcessId) {
        self.shared.change_presence(process, |presence| presence.is_paused = false);
        let held = self.tasks.borrow_mut().held.remove(&process).unwrap_or_default();
        for task in held {
            self.shared.ready.push(task);
        }
    }

    /// The process is stopped instead of taking this step, counted from its first.
    pub(crate) fn stop_at_step(&self, process: ProcessId, step: u64, stop: Stop) {
        self.tasks.borrow_mut().stops.insert(process, (step, stop));
    }

    /// The process is not stopped at a step any more.
    pub(crate) fn forget_stops(&self, process: ProcessId) {
        self.tasks.borrow_mut().stops.remove(&process);
    }

    /// Steps the process has taken.
    pub(crate) fn steps(&self, process: ProcessId) -> u64 {
        self.tasks.borrow().steps.get(&process).copied().unwrap_or(0)
    }

    /// Drops every task.
    pub(crate) fn clear(&self) {
        loop {
            let mut tasks = self.tasks.borrow_mut();
            let entries = std::mem::take(&mut tasks.entries);
            let stopped = std::mem::take(&mut tasks.stopped);
            drop(tasks);
            let spawned = self.shared.ready.take_spawned();
            if entries.is_empty() && stopped.is_empty() && spawned.is_empty() {
                return;
            }
        }
    }

    /// Lets the test begin.
    pub(crate) fn start_main(&self) {
        self.shared.ready.push(TaskId::MAIN);
    }

    /// Runs one task for one step, or waits for time to pass.
    pub(crate) fn step<F: Future>(
        &self,
        context: &mut Context<'_>,
        main: Pin<&mut F>,
        time_is_up: Pin<&mut Sleep>,
    ) -> Poll<F::Output> {
        self.follow_time();
        if time_is_up.poll(context).is_ready() {
            panic!("the test is still not done at its time limit; the last events:\n{}", self.shared.events.tail());
        }
        self.shared.ready.set_root(context.waker());
        self.settle();
        let task = self.shared.ready.pop(self.order.borrow_mut().as_mut());
        let Some(task) = task else { return Poll::Pending };
        if task == TaskId::MAIN {
            if let Poll::Ready(output) = main.poll(&mut Context::from_waker(&self.main)) {
                return Poll::Ready(output);
            }
        } else {
            self.run(task);
        }
        // Another step as soon as the runtime has looked at its timers; its clock stands still meanwhile.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// True time is the runtime's, give or take what it was ahead at the start.
    fn follow_time(&self) {
        let elapsed = self.ahead + Instant::now().saturating_duration_since(self.start);
        if elapsed > self.shared.elapsed() {
            self.shared.time.advance_to(elapsed);
            self.steps_at_this_time.set(0);
        }
        let steps = self.steps_at_this_time.get() + 1;
        self.steps_at_this_time.set(steps);
        assert!(
            steps < STEPS_AT_ONE_TIME_MAX,
            "tasks wake each other and time stands still: {:?}; the last events:\n{}",
            self.task_names(),
            self.shared.events.tail()
        );
    }

    fn task_names(&self) -> BTreeMap<&'static str, usize> {
        let mut names = BTreeMap::new();
        for entry in self.tasks.borrow().entries.values() {
            *names.entry(entry.name).or_insert(0) += 1;
        }
        names
    }

    /// Takes in new tasks and drops stopped ones.
    fn settle(&self) {
        for spawned in self.shared.ready.take_spawned() {
            self.spawn(spawned.process, spawned.name, spawned.future);
        }
        let stopped = std::mem::take(&mut self.tasks.borrow_mut().stopped);
        drop(stopped);
    }

    fn run(&self, task: TaskId) {
        let Some((mut future, waker)) = self.begin(task) else { return };
        let is_done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut tasks = self.tasks.borrow_mut();
        if is_done {
            tasks.entries.remove(&task);
        } else if let Some(entry) = tasks.entries.get_mut(&task) {
            entry.future = Some(future);
            return;
        }
        drop(tasks);
        drop(future);
    }

    fn begin(&self, task: TaskId) -> Option<(LocalBoxFuture<'static, ()>, Waker)> {
        let mut tasks = self.tasks.borrow_mut();
        let process = tasks.entries.get(&task)?.process;
        if self.shared.presence(process).is_paused {
            tasks.held.entry(process).or_default().insert(task);
            return None;
        }
        let steps = *tasks.steps.entry(process).and_modify(|steps| *steps += 1).or_insert(1);
        let stop = tasks.stops.get(&process).filter(|(step, _)| *step == steps).map(|(_, stop)| *stop);
        if let Some(stop) = stop {
            self.shared.event(format_args!("process {} {stop:?} at step {steps}", process.0));
            if matches!(stop, Stop::Paused) {
                tasks.held.entry(process).or_default().insert(task);
            }
            drop(tasks);
            match stop {
                Stop::Killed => self.kill(process),
                Stop::Paused => self.pause(process),
            }
            return None;
        }
        let entry = tasks.entries.get_mut(&task)?;
        Some((entry.future.take()?, entry.waker.clone()))
    }
}
