//! Clocks for tests and the simulator: one true time, and hosts whose clocks are as wrong as the test wants.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::source::{ClockSource, Sample, micros_floor};

/// The true time of a simulated world, which only moves when told to. Clones share it.
#[derive(Clone, Debug)]
pub struct VirtualTime {
    inner: Arc<Mutex<True>>,
}

#[derive(Clone, Copy, Debug)]
struct True {
    start_ms: i64,
    elapsed: Duration,
}

impl VirtualTime {
    /// A world whose true time is `utc_ms`, in milliseconds since 1970.
    pub fn starting_at(utc_ms: i64) -> VirtualTime {
        VirtualTime { inner: Arc::new(Mutex::new(True { start_ms: utc_ms, elapsed: Duration::ZERO })) }
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        let mut now = lock(&self.inner);
        now.elapsed = now.elapsed.saturating_add(by);
    }

    /// Lets time pass until `elapsed` since the start; does nothing when that is over already.
    pub fn advance_to(&self, elapsed: Duration) {
        let mut now = lock(&self.inner);
        now.elapsed = now.elapsed.max(elapsed);
    }

    /// How much time passed since the start.
    pub fn elapsed(&self) -> Duration {
        lock(&self.inner).elapsed
    }

    /// The true time in microseconds since 1970, rounded down.
    pub fn now_us(&self) -> i64 {
        let now = *lock(&self.inner);
        now.start_ms.saturating_mul(1_000).saturating_add(micros_floor(now.elapsed))
    }

    /// The true time in milliseconds since 1970, rounded down.
    pub fn now_ms(&self) -> i64 {
        self.now_us().div_euclid(1_000)
    }

    /// A new host, whose clock is right, synchronised, and states a bound of 1 ms.
    pub fn host(&self) -> VirtualClock {
        let elapsed = self.elapsed();
        let host = Host {
            since: elapsed,
            wall_us: self.now_us(),
            monotonic: elapsed,
            drift_ppm: 0,
            bound: Duration::from_millis(1),
            bound_growth_ppm: 0,
            synchronised: true,
            sample_count: 0,
        };
        VirtualClock { time: self.clone(), host: Arc::new(Mutex::new(host)) }
    }
}

/// The clocks of one host: how they stood at `since`, and how they have been running from there.
#[derive(Clone, Copy, Debug)]
struct Host {
    since: Duration,
    wall_us: i64,
    monotonic: Duration,
    drift_ppm: i32,
    bound: Duration,
    bound_growth_ppm: u32,
    synchronised: bool,
    sample_count: u64,
}

impl Host {
    /// The host at a later instant of true time.
    fn at(mut self, elapsed: Duration) -> Host {
        let passed = elapsed.saturating_sub(self.since);
        let local = scale(passed, self.drift_ppm);
        // Wall and monotonic clock run on one oscillator. Whole microseconds of the monotonic reading are what the wall
        // clock moves by, so the two never drift apart by rounding.
        let monotonic = self.monotonic.saturating_add(local);
        self.wall_us = self.wall_us.saturating_add(micros_floor(monotonic) - micros_floor(self.monotonic));
        self.monotonic = monotonic;
        let growth = passed.saturating_mul(self.bound_growth_ppm) / 1_000_000;
        self.bound = self.bound.saturating_add(growth);
        self.since = elapsed;
        self
    }
}

/// `passed` by a clock that gains `ppm` parts per million.
fn scale(passed: Duration, ppm: i32) -> Duration {
    let change = passed.saturating_mul(ppm.unsigned_abs()) / 1_000_000;
    if ppm >= 0 { passed.saturating_add(change) } else { passed.saturating_sub(change) }
}

/// The clocks of one host in a world of [`VirtualTime`]. Clones share them.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    time: VirtualTime,
    host: Arc<Mutex<Host>>,
}

impl VirtualClock {
    /// The true time this host lives in.
    pub fn time(&self) -> &VirtualTime {
        &self.time
    }

    /// Moves the wall clock, as an operator or a time service would. The monotonic clock does not notice, nor do the bound
    /// and the synchronisation state: a kernel that is told of a step also [loses sync](Self::lose_sync).
    pub fn step(&self, by_us: i64) {
        self.change(|host| host.wall_us = host.wall_us.saturating_add(by_us));
    }

    /// Sets the rate error of the host's oscillator: how many microseconds it gains per second of true time.
    pub fn set_drift_ppm(&self, drift_ppm: i32) {
        self.change(|host| host.drift_ppm = drift_ppm);
    }

    /// Sets the error that samples state from now on.
    pub fn set_bound(&self, bound: Duration) {
        self.change(|host| host.bound = bound);
    }

    /// Sets how fast the stated error grows, in microseconds per second; a Linux kernel assumes 500.
    pub fn set_bound_growth_ppm(&self, bound_growth_ppm: u32) {
        self.change(|host| host.bound_growth_ppm = bound_growth_ppm);
    }

    /// The kernel stops calling its clock synchronised.
    pub fn lose_sync(&self) {
        self.change(|host| host.synchronised = false);
    }

    /// A time service sets the wall clock to the true time plus `offset_us`, states `bound`, and calls it synchronised. An
    /// offset outside the bound makes the host a liar, against whom no guard helps.
    pub fn synchronise(&self, offset_us: i64, bound: Duration) {
        let wall_us = self.time.now_us().saturating_add(offset_us);
        self.change(|host| {
            host.wall_us = wall_us;
            host.bound = bound;
            host.synchronised = true;
        });
    }

    /// How many samples were taken.
    pub fn sample_count(&self) -> u64 {
        lock(&self.host).sample_count
    }

    fn change(&self, change: impl FnOnce(&mut Host)) {
        let elapsed = self.time.elapsed();
        let mut host = lock(&self.host);
        *host = host.at(elapsed);
        change(&mut host);
    }
}

impl ClockSource for VirtualClock {
    fn sample(&self) -> Sample {
        let elapsed = self.time.elapsed();
        let mut host = lock(&self.host);
        host.sample_count += 1;
        let now = host.at(elapsed);
        let bound_us = crate::source::micros_ceil(now.bound);
        Sample {
            earliest_us: now.wall_us.saturating_sub(bound_us),
            latest_us: now.wall_us.saturating_add(bound_us),
            anchor: now.monotonic,
            synchronised: now.synchronised,
        }
    }

    fn monotonic(&self) -> Duration {
        lock(&self.host).at(self.time.elapsed()).monotonic
    }
}

/// Every value under these locks is replaced whole, so one that a panicking thread held is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START_MS: i64 = 1_700_000_000_000;

    #[test]
    fn time_stands_still_until_it_is_advanced() {
        let time = VirtualTime::starting_at(START_MS);
        assert_eq!((time.now_ms(), time.elapsed()), (START_MS, Duration::ZERO));
        time.advance(SECOND);
        assert_eq!(time.now_ms(), START_MS + 1_000);
        time.advance_to(SECOND / 2);
        assert_eq!(time.elapsed(), SECOND, "never backwards");
        time.advance_to(3 * SECOND);
        assert_eq!(time.now_us(), (START_MS + 3_000) * 1_000);
    }

    #[test]
    fn hosts_step_drift_and_lose_sync_on_their_own() {
        let time = VirtualTime::starting_at(START_MS);
        let (fast, other) = (time.host(), time.host());
        fast.set_drift_ppm(100);
        time.advance(10 * SECOND);
        assert_eq!(fast.monotonic(), 10 * SECOND + Duration::from_millis(1));
        assert_eq!(other.monotonic(), 10 * SECOND);
        fast.set_drift_ppm(-100);
        time.advance(10 * SECOND);
        assert_eq!(fast.monotonic(), 20 * SECOND, "what it gained it lost");

        fast.step(5_000_000);
        fast.lose_sync();
        let sample = fast.sample();
        assert_eq!(sample.earliest_us, (START_MS + 25_000) * 1_000 - 1_000);
        assert_eq!((sample.anchor, sample.synchronised), (20 * SECOND, false));
        assert!(other.sample().synchronised);

        fast.synchronise(-300, Duration::from_micros(400));
        let sample = fast.sample();
        assert_eq!(sample.earliest_us, (START_MS + 20_000) * 1_000 - 700);
        assert_eq!(sample.latest_us, (START_MS + 20_000) * 1_000 + 100);
        assert!(sample.synchronised);
    }

    #[test]
    fn a_stated_bound_grows_as_a_kernels_does() {
        let time = VirtualTime::starting_at(START_MS);
        let host = time.host();
        host.set_bound_growth_ppm(500);
        time.advance(4 * SECOND);
        let sample = host.sample();
        assert_eq!(sample.latest_us - sample.earliest_us, 2 * (1_000 + 2_000));
    }
}
