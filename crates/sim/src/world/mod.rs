//! A world in which a worker can be run as if it were real, and again exactly as it was.
//!
//! A [`World`] has one true time, processes with clocks of their own, and servers behind every port: a [log](log::LogServer), a
//! [metadata store](metadata::MetadataServer), [destinations](broker::Broker) and [disks](disk::WorldDisk). One seed decides the
//! order in which tasks run, how long every request takes, what fails and how; time passes only when nothing can run. What can be
//! observed from outside becomes a line of the event log, which two runs of a seed share to the last letter.
//!
//! A request to a server is on its way for a while, takes effect, and its answer is on its way back. A process that is killed
//! meanwhile takes with it what had not left yet; the seed says what that was. So a crash can fall before or after the effect of
//! anything.

pub mod broker;
pub mod disk;
mod events;
mod executor;
mod link;
pub mod log;
pub mod metadata;
mod process;
mod random;
mod shared;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clock::VirtualTime;
use fastrand::Rng;
use protocol::hash::Hash;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::Instant;

use self::events::Events;
use self::executor::Executor;
pub use self::link::Paces;
pub use self::process::Process;
pub use self::random::{Delay, stream};
pub use self::shared::ProcessId;
use self::shared::{Ready, Shared};

/// In which order tasks run that can run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they became able to.
    Fifo,
    /// As the seed decides.
    Seeded,
}

/// What a world is made of.
#[derive(Clone, Copy, Debug)]
pub struct WorldOptions {
    /// Decides everything that is left open.
    pub seed: u64,
    /// The true time at the start.
    pub start_ms: i64,
    /// How far into its first millisecond the world starts. Timers fire at whole milliseconds from the start, so this is the
    /// part of a millisecond at which everything happens.
    pub start_us: u16,
    /// The order of tasks.
    pub order: Order,
    /// How much time may pass before a run counts as stuck.
    pub time_max: Duration,
    /// Lines of the event log that are kept.
    pub events_kept_max: usize,
    /// Whether each line of the event log is told as it happens.
    pub prints: bool,
}

impl WorldOptions {
    /// Seeded order, a start at [`START_MS`](testkit::log::START_MS) on the millisecond, an hour.
    pub fn new(seed: u64) -> WorldOptions {
        WorldOptions {
            seed,
            start_ms: testkit::log::START_MS,
            start_us: 0,
            order: Order::Seeded,
            time_max: Duration::from_secs(3_600),
            events_kept_max: 200_000,
            prints: false,
        }
    }
}

/// A world. Dropping it drops every task in it.
pub struct World {
    executor: Rc<Executor>,
    processes: Cell<u32>,
    deadline: Instant,
    runtime: Runtime,
}

impl World {
    /// A world at its start.
    ///
    /// # Panics
    /// When the operating system has nothing left for a runtime.
    pub fn new(options: WorldOptions) -> World {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime of one thread");
        let start = runtime.block_on(async { Instant::now() });
        let time = VirtualTime::starting_at(options.start_ms);
        time.advance(Duration::from_micros(u64::from(options.start_us)));
        let shared = Arc::new(Shared {
            seed: options.seed,
            time,
            events: Events::new(options.events_kept_max, options.prints),
            ready: Arc::new(Ready::default()),
            presences: watch::Sender::new(BTreeMap::new()),
        });
        let order = (options.order == Order::Seeded).then(|| shared.stream("order of tasks"));
        World {
            executor: Rc::new(Executor::new(shared, order, start)),
            processes: Cell::new(0),
            deadline: start + options.time_max,
            runtime,
        }
    }

    /// Runs the world until `main` is done.
    ///
    /// # Panics
    /// When the world's time is up first, or a task of it panics.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> T {
        self.runtime.block_on(async {
            let (mut main, mut time_is_up) = (pin!(main), pin!(tokio::time::sleep_until(self.deadline)));
            self.executor.start_main();
            std::future::poll_fn(|context| self.executor.step(context, main.as_mut(), time_is_up.as_mut())).await
        })
    }

    /// A new process.
    pub fn process(&self, name: &str) -> Process {
        let number = self.processes.get() + 1;
        self.processes.set(number);
        Process::new(self.executor.clone(), ProcessId(number), name)
    }

    /// Runs a task that belongs to no process that can be killed.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(ProcessId::WORLD, name, Box::pin(task));
    }

    /// True time.
    pub fn time(&self) -> &VirtualTime {
        &self.shared().time
    }

    /// True time in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.time().now_ms()
    }

    /// Lets time pass.
    pub async fn wait(&self, duration: Duration) {
        shared::wait(duration).await;
    }

    /// Lets time pass until a true time, in milliseconds since 1970.
    pub async fn wait_until(&self, utc_ms: i64) {
        let ahead_ms = u64::try_from(utc_ms - self.now_ms()).unwrap_or(0);
        self.wait(Duration::from_millis(ahead_ms)).await;
    }

    /// A stream of random numbers for a purpose.
    pub fn random(&self, purpose: &str) -> Rng {
        self.shared().stream(purpose)
    }

    /// Adds a line to the event log.
    pub fn event(&self, line: fmt::Arguments<'_>) {
        self.shared().event(line);
    }

    /// Who adds lines to the event log from elsewhere.
    pub fn recorder(&self) -> Recorder {
        Recorder(self.shared().clone())
    }

    /// The event log, as far as it is kept.
    pub fn events(&self) -> Vec<String> {
        self.shared().events.lines()
    }

    /// A digest of the whole event log.
    pub fn events_digest(&self) -> Hash {
        self.shared().events.digest()
    }

    /// The end of the event log, for the message of a failed test.
    pub fn events_tail(&self) -> String {
        self.shared().events.tail()
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.executor.shared
    }
}

/// Adds lines to the event log of its world.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

impl Recorder {
    /// Adds a line.
    pub fn event(&self, line: fmt::Arguments<'_>) {
        self.0.event(line);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.executor.clear();
    }
}
