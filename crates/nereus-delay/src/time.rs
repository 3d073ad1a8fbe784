//! The server's clock: made from the configuration, watched while it runs.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use clock::{ClockOptions, Reading, SystemClock, SystemClockOptions, TrustedClock};

use crate::config::ClockConfig;
use crate::test_clock::TestClock;

/// The clock is sampled at least this often; a sample is good for two seconds.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// The machine's clock behind its guard, or that of a test.
pub(crate) fn trusted_clock(config: &ClockConfig, test_clock: Option<&Path>) -> anyhow::Result<TrustedClock> {
    let machine = SystemClock::new(SystemClockOptions {
        host_bound: config.host_bound.duration(),
        ..SystemClockOptions::default()
    });
    let options = ClockOptions {
        uncertainty_max: config.uncertainty_max.duration(),
        stabilisation_window: config.stabilisation_window.duration(),
        require_sync: config.require_sync,
        ..ClockOptions::default()
    };
    let clock = match test_clock {
        None => TrustedClock::new(machine, options)?,
        Some(file) => {
            tracing::warn!(file = %file.display(), "a test moves this server's clock");
            TrustedClock::new(TestClock::new(machine, file)?, options)?
        }
    };
    let status = clock.status();
    if !status.synchronised {
        tracing::warn!(
            bound_us = status.bound_us,
            "the kernel does not call its clock synchronised; it is taken at its word within this bound, which is part of \
             every lateness"
        );
    }
    Ok(clock)
}

/// Samples the clock while nobody asks for the time (after a silence it would have to prove itself anew), and says when it
/// stops and begins to be trusted.
pub(crate) async fn watch(clock: &TrustedClock) -> Infallible {
    let mut interval = tokio::time::interval(SAMPLE_INTERVAL);
    let (mut withdrawals_said, mut is_doubted) = (0, false);
    loop {
        interval.tick().await;
        let status = clock.status();
        if status.withdrawal_count > withdrawals_said {
            withdrawals_said = status.withdrawal_count;
            is_doubted = true;
            let reason = status.withdrawn_by.map(|reason| reason.to_string()).unwrap_or_default();
            tracing::warn!(
                reason,
                "the clock is not trusted; nothing becomes due until it has agreed with itself again"
            );
        }
        if is_doubted && matches!(status.reading, Reading::Qualified(_)) {
            is_doubted = false;
            tracing::info!("the clock is trusted again");
        }
    }
}
