//! A lane's circuit: trouble of the destination costs the lane time, and its messages nothing.
//!
//! A lane-level failure opens the circuit for a growing while; then one message is let through as a probe. Its fate closes the
//! circuit or opens it again for longer. A lane that is down for a day so costs few log records. Time is the caller's monotonic
//! clock, given as an argument.

use std::time::Duration;

/// How long a circuit stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitConfig {
    /// After the first failure.
    pub open_min: Duration,
    /// Doubled after each failed probe up to this.
    pub open_max: Duration,
}

/// What a circuit lets through now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Everything.
    All,
    /// One message.
    Probe,
    /// Nothing before this time.
    NothingUntil(Duration),
    /// Nothing until the probe that is under way is settled.
    NothingUntilProbed,
}

/// A circuit's state as shown to operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// Work flows.
    Closed,
    /// Nothing flows until the time is over.
    Open {
        /// End of the pause, by the monotonic clock.
        until: Duration,
    },
    /// A probe may go, or is under way.
    HalfOpen,
}

/// Opens on lane failures, probes, and closes on success.
#[derive(Clone, Debug)]
pub struct Circuit {
    config: CircuitConfig,
    state: State,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Duration,
    },
    /// The pause that ended at `until` is over and its probe is under way.
    Probing {
        until: Duration,
    },
}

impl Circuit {
    /// A closed circuit.
    pub fn new(config: CircuitConfig) -> Circuit {
        Circuit { config, state: State::Closed, failures: 0 }
    }

    /// What may be claimed now.
    pub fn allowance(&self, now: Duration) -> Allowance {
        match self.state {
            State::Closed => Allowance::All,
            State::Open { until } if now < until => Allowance::NothingUntil(until),
            State::Open { .. } => Allowance::Probe,
            State::Probing { .. } => Allowance::NothingUntilProbed,
        }
    }

    /// A message was claimed. On an open circuit whose time is over it is the probe, which the answer says.
    pub fn claimed(&mut self) -> bool {
        let State::Open { until } = self.state else { return false };
        self.state = State::Probing { until };
        true
    }

    /// The lane worked: an attempt came back published, or with a verdict about its message.
    pub fn succeeded(&mut self) {
        self.state = State::Closed;
        self.failures = 0;
    }

    /// The lane failed. Failures of attempts that were under way when the circuit opened do not prolong it.
    pub fn failed(&mut self, now: Duration) {
        if let State::Open { .. } = self.state {
            return;
        }
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let pause = self.config.open_min.saturating_mul(doubled).min(self.config.open_max);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Open { until: now + pause };
    }

    /// The probe came to nothing before it could tell anything about the lane: another may go.
    pub fn released(&mut self) {
        if let State::Probing { until } = self.state {
            self.state = State::Open { until };
        }
    }

    /// For operators.
    pub fn state(&self) -> CircuitState {
        match self.state {
            State::Closed => CircuitState::Closed,
            State::Open { until } => CircuitState::Open { until },
            State::Probing { .. } => CircuitState::HalfOpen,
        }
    }

    /// Lane failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn circuit() -> Circuit {
        Circuit::new(CircuitConfig { open_min: seconds(1), open_max: seconds(60) })
    }

    #[test]
    fn one_probe_at_a_time() {
        let mut circuit = circuit();
        circuit.failed(seconds(10));
        assert_eq!(circuit.allowance(seconds(10)), Allowance::NothingUntil(seconds(11)));
        assert_eq!(circuit.allowance(seconds(11)), Allowance::Probe);
        assert!(circuit.claimed());
        assert_eq!(circuit.allowance(seconds(11)), Allowance::NothingUntilProbed);
        circuit.succeeded();
        assert_eq!(circuit.allowance(seconds(11)), Allowance::All);
    }

    #[test]
    fn failed_probes_wait_twice_as_long_up_to_the_limit() {
        let mut circuit = circuit();
        let mut now = seconds(0);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            circuit.failed(now);
            let Allowance::NothingUntil(until) = circuit.allowance(now) else { panic!("open after a failure") };
            pauses.push((until - now).as_secs());
            now = until;
            circuit.claimed();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn failures_that_were_under_way_do_not_prolong_the_pause() {
        let mut circuit = circuit();
        for _ in 0..1_000 {
            circuit.failed(seconds(5));
        }
        assert_eq!(circuit.allowance(seconds(5)), Allowance::NothingUntil(seconds(6)));
        assert_eq!(circuit.failures(), 1);
    }

    #[test]
    fn a_probe_that_was_cancelled_makes_room_for_another() {
        let mut circuit = circuit();
        circuit.failed(seconds(0));
        circuit.claimed();
        circuit.released();
        assert_eq!(circuit.allowance(seconds(4)), Allowance::Probe);
    }
}
