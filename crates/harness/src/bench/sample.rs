//! Percentiles of everything that was measured, none of it left out or estimated.

/// Percentiles of a set of whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Percentiles {
    /// Of values, `per_unit` of which make one of the unit they are reported in. All zero without values.
    pub(crate) fn of(values: &mut [i64], per_unit: f64) -> Percentiles {
        values.sort_unstable();
        // The smallest value that so many of a thousand are not above.
        let rank = |thousandths: usize| (values.len() * thousandths).div_ceil(1_000).clamp(1, values.len().max(1)) - 1;
        let value = |index: usize| values.get(index).map_or(0.0, |value| float(*value) / per_unit);
        Percentiles { p50: value(rank(500)), p99: value(rank(990)), p999: value(rank(999)), max: value(rank(1_000)) }
    }
}

/// A whole number as a figure.
#[expect(clippy::cast_precision_loss, reason = "what is measured here is far below 2^53")]
pub(crate) fn float(value: i64) -> f64 {
    value as f64
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "what is counted here is far below 2^53")]
pub(crate) fn count(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let mut values: Vec<i64> = (1..=1_000).rev().collect();
        assert_eq!(
            Percentiles::of(&mut values, 1.0),
            Percentiles { p50: 500.0, p99: 990.0, p999: 999.0, max: 1_000.0 }
        );
        assert_eq!(Percentiles::of(&mut [7], 1.0), Percentiles { p50: 7.0, p99: 7.0, p999: 7.0, max: 7.0 });
        assert_eq!(Percentiles::of(&mut [], 1.0), Percentiles::default());
        assert_eq!(Percentiles::of(&mut [1_500], 1_000.0).p50, 1.5);
    }
}
