//! What the server says of itself at one moment: its metrics, and what the kernel counts of it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hyper::Method;
use tokio::time::Instant;

use crate::process::{ServerProcess, Usage};

const PREFIX: &str = "nereus_delay_";

/// One reading.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) at: Instant,
    pub(crate) server: Usage,
    /// Of the generator itself.
    pub(crate) generator: Usage,
    /// Processor time that the machine has spent on anything, or had taken away by its host.
    busy: Duration,
    samples: BTreeMap<String, f64>,
}

impl Reading {
    pub(crate) async fn take(server: &ServerProcess) -> anyhow::Result<Reading> {
        let text = server.client().call(Method::GET, &["metrics"]).text().await.context("reading the metrics")?;
        Ok(Reading {
            at: Instant::now(),
            server: server.usage()?,
            generator: Usage::of(std::process::id())?,
            busy: busy(&std::fs::read_to_string("/proc/stat")?)?,
            samples: parse(&text),
        })
    }

    /// A sample by its name without the prefix, summed over its labels.
    pub(crate) fn sample(&self, name: &str) -> anyhow::Result<f64> {
        self.samples.get(name).copied().with_context(|| format!("/metrics has no {PREFIX}{name}"))
    }

    /// How much a sample has grown since an earlier reading of the same process.
    pub(crate) fn growth(&self, since: &Reading, name: &str) -> anyhow::Result<f64> {
        Ok(self.sample(name)? - since.sample(name)?)
    }

    /// The server's processor time since an earlier reading, in microseconds.
    pub(crate) fn server_cpu_us(&self, since: &Reading) -> f64 {
        self.server.cpu.saturating_sub(since.server.cpu).as_secs_f64() * 1e6
    }

    /// The generator's processor time since an earlier reading, in microseconds.
    pub(crate) fn generator_cpu_us(&self, since: &Reading) -> f64 {
        self.generator.cpu.saturating_sub(since.generator.cpu).as_secs_f64() * 1e6
    }

    /// How many processors were busy with neither server nor generator since an earlier reading: on a machine that does
    /// nothing else, next to none.
    pub(crate) fn other_cores(&self, since: &Reading) -> f64 {
        let ours = self.server_cpu_us(since) + self.generator_cpu_us(since);
        let busy = self.busy.saturating_sub(since.busy).as_secs_f64() * 1e6;
        (busy - ours).max(0.0) / ((self.at - since.at).as_secs_f64() * 1e6)
    }
}

/// The machine's busy time in the text of `/proc/stat`.
fn busy(stat: &str) -> anyhow::Result<Duration> {
    // user, nice, system, idle, iowait, irq, softirq, steal: all but the two that are idle.
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = ticks[..] else {
        bail!("/proc/stat is not understood: {line}")
    };
    let ticks = user + nice + system + irq + softirq + steal;
    Ok(Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second()))
}

/// Every sample of the text format, by name without prefix and labels, summed over the labels.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let name = name.split('{').next().unwrap_or(name);
        let (Some(name), Ok(value)) = (name.strip_prefix(PREFIX), value.parse::<f64>()) else { continue };
        *samples.entry(name.to_owned()).or_insert(0.0) += value;
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_busy_when_it_is_not_idle() {
        let ticks = rustix::param::clock_ticks_per_second();
        let stat = format!("cpu  {ticks} 0 {ticks} 500 600 0 {ticks} {ticks} 0 0\ncpu0 1 2 3\n");
        assert_eq!(busy(&stat).unwrap(), Duration::from_secs(4));
        assert!(busy("cpu 1 2").is_err());
    }

    #[test]
    fn samples_add_up_over_labels() {
        let text = "# HELP nereus_delay_active_messages Live messages.\n\
                    nereus_delay_active_messages{shard=\"0\"} 3\n\
                    nereus_delay_active_messages{shard=\"1\"} 4\n\
                    nereus_delay_records_applied_total 12\n\
                    other 5\n# EOF\n";
        let expected = [("active_messages".to_owned(), 7.0), ("records_applied_total".to_owned(), 12.0)];
        assert_eq!(parse(text), expected.into());
    }
}
