//! How much a run does: everything, or the same at a smaller scale.

use std::time::Duration;

use crate::console::grouped;

/// How many other messages are pending, under the name they have in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// The count at full scale.
    pub(crate) label: &'static str,
    /// The count at this scale.
    pub(crate) pending: u64,
}

/// The sizes of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    name: &'static str,
    pub(crate) levels: [Level; 3],
    /// How long messages are scheduled as fast as they are taken.
    pub(crate) rate_span: Duration,
    /// What of it passes before the rate is measured.
    pub(crate) warm_up: Duration,
    /// How long messages are scheduled at half that rate, and at half of the rate that is expected.
    pub(crate) paced_span: Duration,
    /// How long single messages are scheduled.
    pub(crate) singles_span: Duration,
    /// Messages due in one millisecond.
    pub(crate) burst: u64,
    /// How long RocksDB alone, or a Kafka broker alone, is written to.
    pub(crate) raw_span: Duration,
    /// How long a neighbour of a destination in trouble is watched, for each trouble.
    pub(crate) neighbour_span: Duration,
}

impl Scale {
    /// What the figures of record are measured at.
    pub(crate) fn full() -> Scale {
        let level = |label, pending| Level { label, pending };
        Scale {
            name: "full",
            levels: [level("1k", 1_000), level("100k", 100_000), level("2m", 2_000_000)],
            rate_span: Duration::from_secs(40),
            warm_up: Duration::from_secs(8),
            paced_span: Duration::from_secs(40),
            singles_span: Duration::from_secs(15),
            burst: 200_000,
            raw_span: Duration::from_secs(15),
            neighbour_span: Duration::from_secs(25),
        }
    }

    /// Every figure in less than three minutes.
    pub(crate) fn quick() -> Scale {
        let level = |label, pending| Level { label, pending };
        Scale {
            name: "quick",
            levels: [level("1k", 1_000), level("100k", 10_000), level("2m", 100_000)],
            rate_span: Duration::from_secs(6),
            warm_up: Duration::from_secs(2),
            paced_span: Duration::from_secs(6),
            singles_span: Duration::from_secs(4),
            burst: 20_000,
            raw_span: Duration::from_secs(4),
            neighbour_span: Duration::from_secs(10),
        }
    }

    /// How many other messages are pending where the destination is a Kafka broker.
    pub(crate) fn kafka_level(&self) -> Level {
        self.levels[1]
    }

    /// What stands in every figure's `scale` where the destination is a Kafka broker.
    pub(crate) fn kafka_text(&self) -> String {
        format!("{}: {} pending; burst of {}", self.name, grouped(self.kafka_level().pending), grouped(self.burst))
    }

    /// What stands in every figure's `scale`.
    pub(crate) fn text(&self) -> String {
        let levels = self.levels.map(|level| format!("{} = {}", level.label, grouped(level.pending)));
        format!("{}: {} pending; burst of {}", self.name, levels.join(", "), grouped(self.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_says_what_the_names_stand_for() {
        assert_eq!(Scale::quick().text(), "quick: 1k = 1,000, 100k = 10,000, 2m = 100,000 pending; burst of 20,000");
        let labels = |scale: Scale| scale.levels.map(|level| level.label);
        assert_eq!(labels(Scale::full()), labels(Scale::quick()));
    }
}
