//! The surroundings of a shard on a real machine: the trusted clock, the kernel's randomness, tasks on the shard's own thread.

use std::rc::Rc;
use std::time::Duration;

use clock::{Reading, TrustedClock, TrustedInterval};
use futures_util::future::LocalBoxFuture;
use ports::env::{Env, Task};

/// Fills a buffer with random bytes of the kernel.
///
/// # Panics
/// When the kernel has none: nothing that needs an id can go on then.
pub(crate) fn fill_random(buffer: &mut [u8]) {
    getrandom::fill(buffer).expect("the kernel gives random bytes");
}

/// One thread's surroundings; tasks run on the thread's `LocalSet`.
pub(crate) struct HostEnv {
    clock: TrustedClock,
}

impl HostEnv {
    /// On a clock. To be used inside a `LocalSet` only.
    pub(crate) fn new(clock: TrustedClock) -> Rc<HostEnv> {
        Rc::new(HostEnv { clock })
    }
}

impl Env for HostEnv {
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
        fill_random(buffer);
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place where a real process spawns a shard's tasks")]
    fn spawn(&self, _name: &'static str, task: LocalBoxFuture<'static, ()>) -> Task {
        let handle = tokio::task::spawn_local(task);
        Task::new(move || handle.abort())
    }
}
