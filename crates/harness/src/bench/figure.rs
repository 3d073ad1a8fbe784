//! What a run measures, one figure at a time.

use serde::Serialize;

use super::sample::Percentiles;

/// A measured number, and what it is held against.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name; the same at every scale.
    pub name: String,
    /// The number.
    pub value: f64,
    /// What it counts.
    pub unit: &'static str,
    /// What the ratio is to: another figure of the run, or an expectation.
    pub compared_to: Option<String>,
    /// This figure over the other.
    pub ratio: Option<f64>,
    /// `full` or `quick`, and what that means.
    pub scale: String,
}

/// The figures of a run, in the order they are reported in.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    scale: String,
    items: Vec<Figure>,
}

impl Figures {
    pub(crate) fn new(scale: String) -> Figures {
        Figures { scale, items: Vec::new() }
    }

    /// Adds a figure that stands alone.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        let scale = self.scale.clone();
        self.items.push(Figure {
            name: name.into(),
            value: rounded(value),
            unit,
            compared_to: None,
            ratio: None,
            scale,
        });
    }

    /// Adds percentiles in milliseconds, named by `name` from what of them it is.
    pub(crate) fn add_percentiles(&mut self, values: Percentiles, name: impl Fn(&str) -> String) {
        let Percentiles { p50, p99, p999, max } = values;
        for (kind, value) in [("p50", p50), ("p99", p99), ("p999", p999), ("max", max)] {
            self.add(name(kind), value, "ms");
        }
    }

    /// Adds one figure over another of the same run, held against what is expected of it.
    pub(crate) fn add_ratio(&mut self, name: &str, over: (&str, &str), text: &str, expected: f64) {
        let (Some(value), Some(other)) = (self.value(over.0), self.value(over.1)) else { return };
        if other > 0.0 {
            self.add(name, value / other, "ratio");
            self.compare(name, text, Some(expected));
        }
    }

    /// Sets what a figure is compared to. A figure that was not measured, or is compared to nothing, has no ratio.
    pub(crate) fn compare(&mut self, name: &str, compared_to: &str, other: Option<f64>) {
        let Some(figure) = self.items.iter_mut().find(|figure| figure.name == name) else { return };
        figure.compared_to = Some(compared_to.to_owned());
        figure.ratio = other.filter(|other| *other != 0.0).map(|other| rounded(figure.value / other));
    }

    /// Compares a figure to another of the same run.
    pub(crate) fn compare_figures(&mut self, name: &str, other: &str) {
        let value = self.value(other);
        self.compare(name, other, value);
    }

    /// A figure's number.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.items.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// All of them.
    pub fn items(&self) -> &[Figure] {
        &self.items
    }

    /// One JSON object a figure, one a line.
    pub fn json_lines(&self) -> String {
        let mut text = String::new();
        for figure in &self.items {
            // A plain struct of texts and numbers serialises.
            text.push_str(&serde_json::to_string(figure).unwrap_or_default());
            text.push('\n');
        }
        text
    }
}

/// Four significant digits: what a measurement on a shared machine carries at most.
pub(crate) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = value.abs().log10().floor();
    if digits >= 3.0 {
        return value.round();
    }
    let unit = 10f64.powf(3.0 - digits);
    (value * unit).round() / unit
}

/// A number for people: thousands apart, or the digits it has.
pub(crate) fn shown(value: f64) -> String {
    if value.abs() >= 1_000.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "figures are far below 2^53")]
        let whole = value.abs().round() as u64;
        return crate::console::grouped(whole);
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        assert_eq!(
            [17_312.4, 4.141_59, 0.012_345_6, 0.0, 999.96].map(rounded),
            [17_312.0, 4.142, 0.012_35, 0.0, 1_000.0]
        );
        assert_eq!([17_312.0, 4.142, 0.0].map(shown), ["17,312", "4.142", "0"]);
    }

    #[test]
    fn a_line_a_figure() {
        let mut figures = Figures::new("full".to_owned());
        figures.add("schedule_deliver_rate", 20_000.0, "messages/s");
        figures.add("raw_rate", 80_000.0, "messages/s");
        figures.compare_figures("schedule_deliver_rate", "raw_rate");
        figures.compare_figures("raw_rate", "not_measured");
        let lines = figures.json_lines();
        assert_eq!(
            lines,
            "{\"name\":\"schedule_deliver_rate\",\"value\":20000.0,\"unit\":\"messages/s\",\"compared_to\":\"raw_rate\",\
             \"ratio\":0.25,\"scale\":\"full\"}\n\
             {\"name\":\"raw_rate\",\"value\":80000.0,\"unit\":\"messages/s\",\"compared_to\":\"not_measured\",\
             \"ratio\":null,\"scale\":\"full\"}\n"
        );
    }
}
