//! The machine's clock.
//!
//! On Linux the kernel knows whether something disciplines its clock and how wrong it can be: `adjtimex` gives time, `maxerror`
//! and that state in one call. (chrony states it only with `rtcsync` in its configuration, which is its packages' default.)
//! Where the kernel makes no statement the host clock is taken with an assumed bound and the sample says so; that is the
//! laptop's case, where producer, server and consumer share the clock anyway.
//!
//! Monotonic readings come from `CLOCK_BOOTTIME`, not `CLOCK_MONOTONIC`: it goes on while the machine is suspended. A
//! suspended laptop then finds its last sample hours old and withdraws trust at the first look, instead of carrying it as if no
//! time had passed until the next sample shows the step.

use std::time::Duration;

use crate::source::{ClockSource, Sample, micros_ceil};

/// How the machine's clock is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemClockOptions {
    /// The error assumed of a host clock for which the kernel makes no usable statement, and the smallest that is believed
    /// (some time services state zero). Default 1 ms.
    pub host_bound: Duration,
    /// A stated error above this is no usable statement. Default 100 ms.
    ///
    /// systemd-timesyncd lets the stated error grow to a second between its polls; taken at its word, such a machine would
    /// deliver a second late or not at all, while one without any time service delivers at once. With `require_sync` there
    /// is no such fallback: the sample is then refused as not synchronised.
    pub kernel_bound_max: Duration,
}

impl Default for SystemClockOptions {
    fn default() -> Self {
        SystemClockOptions { host_bound: Duration::from_millis(1), kernel_bound_max: Duration::from_millis(100) }
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock {
    options: SystemClockOptions,
}

/// The wall clock at one instant, and what the kernel says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wall {
    /// Microseconds since 1970, rounded down.
    time_us: i64,
    /// The kernel's largest error in microseconds; `None` when it makes no statement.
    kernel_bound_us: Option<i64>,
}

impl SystemClock {
    /// The clock with these options.
    pub fn new(options: SystemClockOptions) -> SystemClock {
        SystemClock { options }
    }

    /// A sample, and how long taking it took.
    fn try_sample(&self) -> (Sample, Duration) {
        let before = os::monotonic();
        let wall = os::wall();
        let after = os::monotonic();
        (self.sample_of(wall, before, after), after.saturating_sub(before))
    }

    fn sample_of(&self, wall: Wall, before: Duration, after: Duration) -> Sample {
        let kernel_bound_us = wall.kernel_bound_us.filter(|bound| *bound <= micros_ceil(self.options.kernel_bound_max));
        let host_bound_us = micros_ceil(self.options.host_bound);
        let bound_us = kernel_bound_us.map_or(host_bound_us, |bound| bound.max(host_bound_us));
        // The wall clock was read somewhere between the two monotonic readings; the bounds speak of the first.
        let gap_us = micros_ceil(after.saturating_sub(before));
        Sample {
            earliest_us: wall.time_us.saturating_sub(bound_us).saturating_sub(gap_us),
            latest_us: wall.time_us.saturating_add(1).saturating_add(bound_us),
            anchor: before,
            synchronised: kernel_bound_us.is_some(),
        }
    }
}

/// A thread that loses its processor between the readings widens the bounds by the time it was away, so the tightest of a
/// few tries is taken.
const TRIES_MAX: usize = 5;
const GAP_GOOD: Duration = Duration::from_micros(20);

impl ClockSource for SystemClock {
    fn sample(&self) -> Sample {
        let (mut best, mut best_gap) = self.try_sample();
        for _ in 1..TRIES_MAX {
            if best_gap <= GAP_GOOD {
                break;
            }
            let (sample, gap) = self.try_sample();
            if gap < best_gap {
                (best, best_gap) = (sample, gap);
            }
        }
        best
    }

    fn monotonic(&self) -> Duration {
        os::monotonic()
    }
}

mod os {
    //! The system calls.

    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::Wall;

    #[cfg(target_os = "linux")]
    const MONOTONIC: libc::clockid_t = libc::CLOCK_BOOTTIME;
    /// Elsewhere (macOS, the BSDs) this clock is the one that goes on during suspend, or the nearest there is.
    #[cfg(not(target_os = "linux"))]
    const MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;

    #[expect(unsafe_code, reason = "std reads no clock that goes on during suspend")]
    pub(super) fn monotonic() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec to write to, and the clock id is a constant of the platform.
        let result = unsafe { libc::clock_gettime(MONOTONIC, &raw mut time) };
        // The call fails only for a bad pointer or a clock the platform does not have; Linux has this one since 2.6.39.
        assert_eq!(result, 0, "clock_gettime({MONOTONIC}): {}", std::io::Error::last_os_error());
        // Both fields of a monotonic clock are non-negative and the nanoseconds are below 1e9.
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// What `adjtimex` says, or the host clock alone where it may not be asked (some sandboxes).
    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "the kernel states its clock's error nowhere else")]
    pub(super) fn wall() -> Wall {
        let mut timex = std::mem::MaybeUninit::<libc::timex>::zeroed();
        // SAFETY: a zeroed timex is a valid one (`modes` 0 changes nothing), and it is initialised afterwards either way.
        let (state, timex) = unsafe { (libc::adjtimex(timex.as_mut_ptr()), timex.assume_init()) };
        if state < 0 {
            return host_wall();
        }
        let is_synchronised = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
        let subsecond_us =
            if timex.status & libc::STA_NANO == 0 { timex.time.tv_usec } else { timex.time.tv_usec / 1_000 };
        Wall {
            time_us: timex.time.tv_sec.saturating_mul(1_000_000).saturating_add(subsecond_us),
            kernel_bound_us: is_synchronised.then_some(timex.maxerror),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn wall() -> Wall {
        host_wall()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where the host clock is read")]
    fn host_wall() -> Wall {
        let time_us = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => crate::source::micros_floor(since),
            Err(before) => crate::source::micros_ceil(before.duration()).saturating_neg(),
        };
        Wall { time_us, kernel_bound_us: None }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_kernel_and_the_standard_library_read_the_same_wall_clock() {
            let before = host_wall().time_us;
            let kernel = wall().time_us;
            let after = host_wall().time_us;
            assert!((before..=after).contains(&kernel), "{before} <= {kernel} <= {after}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn sample(kernel_bound_us: Option<i64>, gap: Duration) -> Sample {
        let wall = Wall { time_us: 1_000_000, kernel_bound_us };
        SystemClock::default().sample_of(wall, 7 * MS, 7 * MS + gap)
    }

    #[test]
    fn a_usable_statement_of_the_kernel_is_the_bound() {
        for (stated_us, bound_us) in [(1_000, 1_000), (1_001, 1_001), (100_000, 100_000)] {
            let sample = sample(Some(stated_us), Duration::ZERO);
            assert_eq!((sample.earliest_us, sample.latest_us), (1_000_000 - bound_us, 1_000_001 + bound_us));
            assert!(sample.synchronised);
        }
    }

    #[test]
    fn an_error_below_the_floor_is_not_believed() {
        let sample = sample(Some(0), Duration::ZERO);
        assert_eq!((sample.earliest_us, sample.latest_us), (999_000, 1_001_001));
        assert!(sample.synchronised);
    }

    #[test]
    fn without_a_usable_statement_the_host_clock_counts_and_says_so() {
        for stated_us in [None, Some(100_001), Some(16_000_000)] {
            let sample = sample(stated_us, Duration::ZERO);
            assert_eq!((sample.earliest_us, sample.latest_us), (999_000, 1_001_001));
            assert!(!sample.synchronised);
        }
    }

    #[test]
    fn time_lost_between_the_readings_widens_the_lower_bound() {
        let sample = sample(None, Duration::from_nanos(2_500));
        assert_eq!((sample.earliest_us, sample.latest_us), (999_000 - 3, 1_001_001));
        assert_eq!(sample.anchor, 7 * MS);
    }

    #[test]
    fn the_machine_has_a_clock_that_goes_forward() {
        let clock = SystemClock::default();
        let first = clock.sample();
        let second = clock.sample();
        assert!(first.anchor < second.anchor, "two samples take time");
        assert!(first.earliest_us < first.latest_us);
        assert!(second.anchor <= clock.monotonic());
    }
}
