//! The machine's clock as a test of this project sets it: off by what a file says, in milliseconds, whenever it is read.
//!
//! A process test may not set the host's clock. `CONTRIBUTING.md` says how this one is asked for; nobody gets it by accident.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clock::{ClockSource, Sample, SystemClock};

/// A clock that a file moves.
pub(crate) struct TestClock {
    machine: SystemClock,
    file: PathBuf,
    offset_us: AtomicI64,
}

impl TestClock {
    /// The machine's clock, moved by a file.
    ///
    /// # Errors
    /// When the file is not there, or has no whole number of milliseconds.
    pub(crate) fn new(machine: SystemClock, file: &Path) -> anyhow::Result<TestClock> {
        let offset_us = offset_us(file)
            .with_context(|| format!("{} has no whole number of milliseconds to move the clock by", file.display()))?;
        Ok(TestClock { machine, file: file.to_owned(), offset_us: AtomicI64::new(offset_us) })
    }
}

fn offset_us(file: &Path) -> Option<i64> {
    fs::read_to_string(file).ok()?.trim().parse::<i64>().ok()?.checked_mul(1_000)
}

impl ClockSource for TestClock {
    fn sample(&self) -> Sample {
        // A file that cannot be read for a moment leaves the clock where it is.
        if let Some(offset_us) = offset_us(&self.file) {
            self.offset_us.store(offset_us, Ordering::Relaxed);
        }
        let offset_us = self.offset_us.load(Ordering::Relaxed);
        let sample = self.machine.sample();
        Sample {
            earliest_us: sample.earliest_us.saturating_add(offset_us),
            latest_us: sample.latest_us.saturating_add(offset_us),
            ..sample
        }
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }
}
