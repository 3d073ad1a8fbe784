//! Time, randomness and tasks: everything a worker would otherwise take from the process it runs in.
//!
//! Timers come from tokio's clock, which the simulator pauses; everything else comes from here, so that one seed decides a
//! whole run.

use std::time::Duration;

use clock::{Reading, TrustedInterval};
use futures_util::future::LocalBoxFuture;

/// The surroundings of a worker.
pub trait Env: 'static {
    /// Trusted time now, or why there is none.
    fn now(&self) -> Reading;

    /// The last trusted time carried on by the monotonic clock alone: for stamps that must never wait for trust, such as those
    /// of outcomes.
    fn carried(&self) -> TrustedInterval;

    /// The monotonic clock.
    fn monotonic(&self) -> Duration;

    /// Fills the buffer with random bytes.
    fn fill_random(&self, buffer: &mut [u8]);

    /// Runs a task on this worker's thread until it ends or the returned handle is dropped.
    fn spawn(&self, name: &'static str, task: LocalBoxFuture<'static, ()>) -> Task;
}

/// A running task; dropping it stops the task at its next await.
pub struct Task {
    stop: Option<Box<dyn FnOnce()>>,
}

impl Task {
    /// A task that `stop` stops.
    pub fn new(stop: impl FnOnce() + 'static) -> Task {
        Task { stop: Some(Box::new(stop)) }
    }

    /// Lets the task run on without a handle.
    pub fn detach(mut self) {
        self.stop = None;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}
