//! The promise of the guard, against every sequence of faults that its assumptions allow: an interval it hands out contains
//! the true time.

use std::time::Duration;

use clock::{ClockOptions, ClockSource, Reading, TrustedUtc, VirtualClock, VirtualTime};
use proptest::prelude::*;

/// What may happen to a host between two looks at its clock.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Time passes; long ones are pauses of the process.
    Pass { ms: u64 },
    /// The guard takes a sample.
    Sample,
    /// The oscillator changes its rate, within what the options assume.
    Drift { ppm: i32 },
    /// Somebody sets the wall clock; the kernel loses sync by it.
    Step { by_us: i64 },
    /// A time service sets the clock right, with an error inside the bound it states.
    Synchronise { offset_us: i64, slack_us: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => prop_oneof![6 => 0_u64..150, 1 => 0_u64..10_000].prop_map(|ms| Event::Pass { ms }),
        8 => Just(Event::Sample),
        1 => (-500_i32..=500).prop_map(|ppm| Event::Drift { ppm }),
        1 => prop_oneof![-5_000_000_i64..=5_000_000, -1_500_i64..=1_500].prop_map(|by_us| Event::Step { by_us }),
        2 => (-2_000_i64..=2_000, 0_u64..500).prop_map(|(offset_us, slack_us)| Event::Synchronise { offset_us, slack_us }),
    ]
}

fn play(host: &VirtualClock, guard: &mut TrustedUtc, event: Event) {
    match event {
        Event::Pass { ms } => host.time().advance(Duration::from_millis(ms)),
        Event::Sample => guard.observe(host.sample()),
        Event::Drift { ppm } => host.set_drift_ppm(ppm),
        Event::Step { by_us } => {
            host.step(by_us);
            host.lose_sync();
        }
        Event::Synchronise { offset_us, slack_us } => {
            host.synchronise(offset_us, Duration::from_micros(offset_us.unsigned_abs() + slack_us));
        }
    }
}

fn contains_true_time(reading: Reading, time: &VirtualTime) -> bool {
    // The interval is in milliseconds, the true time may be between two of them.
    reading.interval().is_none_or(|interval| {
        interval.earliest_ms() * 1_000 <= time.now_us() && time.now_us() <= interval.latest_ms() * 1_000
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// With `require_sync`, steps, drift, pauses and lost synchronisation never put the true time outside an interval.
    #[test]
    fn a_qualified_interval_contains_the_true_time(events in prop::collection::vec(event(), 1..120)) {
        let time = VirtualTime::starting_at(1_700_000_000_000);
        let host = time.host();
        host.set_bound_growth_ppm(501);
        let mut guard = TrustedUtc::new(ClockOptions { require_sync: true, ..ClockOptions::default() });
        guard.observe(host.sample());
        for event in events {
            play(&host, &mut guard, event);
            prop_assert!(contains_true_time(guard.now(host.monotonic()), &time), "{event:?}: {:?}", guard.now(host.monotonic()));
        }
    }

    /// On one machine the host clock is the truth. As long as nobody sets it, drift and pauses never put it outside an
    /// interval; once somebody does, the first sample afterwards withdraws trust.
    #[test]
    fn a_step_of_an_unsynchronised_clock_is_noticed_by_the_next_sample(
        before in prop::collection::vec((0_u64..150, any::<bool>()), 0..50),
        step_us in prop_oneof![-5_000_000_i64..=-1_001, 1_001_i64..=5_000_000],
        after_ms in 0_u64..2_000,
    ) {
        let time = VirtualTime::starting_at(1_700_000_000_000);
        let host = time.host();
        host.lose_sync();
        let mut guard = TrustedUtc::new(ClockOptions::default());
        guard.observe(host.sample());
        for (ms, sample) in before {
            time.advance(Duration::from_millis(ms));
            if sample {
                guard.observe(host.sample());
            }
            prop_assert!(contains_true_time(guard.now(host.monotonic()), &time));
        }
        guard.observe(host.sample());
        let was_qualified = guard.now(host.monotonic()).interval().is_some();
        host.step(step_us);
        prop_assert!(contains_true_time(guard.now(host.monotonic()), &time), "the old sample is still right");
        time.advance(Duration::from_millis(after_ms).max(Duration::from_nanos(1)));
        guard.observe(host.sample());
        prop_assert!(!was_qualified || guard.now(host.monotonic()).interval().is_none());
    }

    /// Samples that keep coming from a clock that behaves bring trust back after the window, whatever happened before.
    #[test]
    fn trust_returns_after_the_window(events in prop::collection::vec(event(), 0..60)) {
        let time = VirtualTime::starting_at(1_700_000_000_000);
        let host = time.host();
        let options = ClockOptions { require_sync: true, ..ClockOptions::default() };
        let mut guard = TrustedUtc::new(options);
        for event in events {
            play(&host, &mut guard, event);
        }
        host.synchronise(0, Duration::from_millis(1));
        // One sample may still fail against the last one from before, and a slow oscillator needs one more.
        for _ in 0..=(options.stabilisation_window.as_millis() / options.sample_interval.as_millis()) + 2 {
            time.advance(options.sample_interval);
            guard.observe(host.sample());
        }
        prop_assert!(guard.now(host.monotonic()).interval().is_some(), "{:?}", guard.now(host.monotonic()));
    }
}

/// The property above would also hold for a guard that never qualifies. This one says what users see in ordinary operation.
#[test]
fn an_ordinary_day_is_qualified_throughout() {
    let time = VirtualTime::starting_at(1_700_000_000_000);
    let host = time.host();
    let mut guard = TrustedUtc::new(ClockOptions::default());
    for second in 0..3_600 {
        host.set_drift_ppm(if second % 7 == 0 { 90 } else { -15 });
        for _ in 0..10 {
            guard.observe(host.sample());
            time.advance(Duration::from_millis(100));
            let interval = guard.now(host.monotonic()).interval().expect("qualified");
            assert!(interval.width_ms() <= 5, "{interval}");
        }
    }
}
