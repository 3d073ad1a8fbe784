//! A process of a world: a host with clocks of its own, tasks that run on its one thread, and an end that may come any time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use clock::{ClockOptions, Reading, TrustedClock, TrustedInterval, VirtualClock};
use fastrand::Rng;
use futures_util::future::LocalBoxFuture;
use ports::env::{Env, Task};
use tokio::time::Instant;

use super::executor::{Executor, Stop};
use super::shared::ProcessId;

/// How often an idle process looks at its clock, as a server does.
const CLOCK_SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// A process.
#[derive(Clone)]
pub struct Process {
    executor: Rc<Executor>,
    id: ProcessId,
    name: Rc<str>,
    host: VirtualClock,
}

impl Process {
    pub(crate) fn new(executor: Rc<Executor>, id: ProcessId, name: &str) -> Process {
        let host = executor.shared.time.host();
        executor.shared.change_presence(id, |_| {});
        executor.shared.event(format_args!("process {} is {name}", id.0));
        Process { executor, id, name: name.into(), host }
    }

    /// Its number in its world.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The clocks of its host.
    pub fn host(&self) -> &VirtualClock {
        &self.host
    }

    /// What a worker takes from its process.
    ///
    /// # Panics
    /// When the options do not fit together.
    pub fn env(&self, options: ClockOptions) -> Rc<dyn Env> {
        let clock = TrustedClock::new(self.host.clone(), options).expect("the options fit together");
        let sampled = clock.clone();
        let keep_sampling = async move {
            loop {
                tokio::time::sleep_until(Instant::now() + CLOCK_SAMPLE_INTERVAL).await;
                sampled.now();
            }
        };
        self.spawn("keep sampling", keep_sampling);
        let random = self.executor.shared.stream(&format!("ids of process {}", self.id.0));
        Rc::new(ProcessEnv { process: self.clone(), clock, random: RefCell::new(random) })
    }

    /// Runs a task in this process.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(self.id, name, Box::pin(task));
    }

    /// The process is gone, as with SIGKILL: it does nothing more, and nobody is told.
    pub fn kill(&self) {
        self.executor.shared.event(format_args!("process {} killed", self.id.0));
        self.executor.kill(self.id);
    }

    /// Kills the process instead of letting it take this step, counted from its first.
    pub fn kill_at_step(&self, step: u64) {
        self.executor.stop_at_step(self.id, step, Stop::Killed);
    }

    /// Pauses the process instead of letting it take this step, counted from its first.
    pub fn pause_at_step(&self, step: u64) {
        self.executor.stop_at_step(self.id, step, Stop::Paused);
    }

    /// It is not stopped at a step any more.
    pub fn forget_stops(&self) {
        self.executor.forget_stops(self.id);
    }

    /// Steps it has taken.
    pub fn steps(&self) -> u64 {
        self.executor.steps(self.id)
    }

    /// Whether it was killed.
    pub fn is_dead(&self) -> bool {
        self.executor.shared.presence(self.id).is_dead
    }

    /// Ready once it was killed.
    pub async fn dead(&self) {
        let mut presences = self.executor.shared.presences.subscribe();
        // The sender lives as long as the world.
        let _ = presences.wait_for(|presences| presences.get(&self.id).is_some_and(|presence| presence.is_dead)).await;
    }

    /// Nothing of it runs until it is resumed, as with SIGSTOP. Its clocks go on.
    pub fn pause(&self) {
        self.executor.shared.event(format_args!("process {} paused", self.id.0));
        self.executor.pause(self.id);
    }

    /// It goes on where it stood.
    pub fn resume(&self) {
        self.executor.shared.event(format_args!("process {} resumed", self.id.0));
        self.executor.resume(self.id);
    }

    /// It cannot reach the metadata store any more.
    pub fn cut_off(&self) {
        self.executor.shared.event(format_args!("process {} cut off from metadata", self.id.0));
        self.executor.shared.change_presence(self.id, |presence| presence.is_cut_off = true);
    }

    /// It can again.
    pub fn reconnect(&self) {
        self.executor.shared.event(format_args!("process {} reconnected to metadata", self.id.0));
        self.executor.shared.change_presence(self.id, |presence| presence.is_cut_off = false);
    }
}

/// The environment of a worker in a process.
struct ProcessEnv {
    process: Process,
    clock: TrustedClock,
    random: RefCell<Rng>,
}

impl Env for ProcessEnv {
    fn now(&self) -> Reading {
        self.clock.now()
    }

    fn carried(&self) -> TrustedInterval {
        self.clock.carried()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        self.random.borrow_mut().fill(buffer);
    }

    fn spawn(&self, name: &'static str, task: LocalBoxFuture<'static, ()>) -> Task {
        let executor = self.process.executor.clone();
        let task = executor.spawn(self.process.id, name, task);
        Task::new(move || executor.stop(task))
    }
}
