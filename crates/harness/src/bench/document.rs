//! What people read: tables of a run, for the terminal and for the page in the documentation.

use anyhow::Context as _;

use super::figure::{Figure, Figures, rounded, shown};
use super::{Report, Target};
use crate::console::{grouped, table};

/// Where the tables of a run begin, by where messages went.
const fn begin(target: Target) -> &'static str {
    match target {
        Target::Embedded => "<!-- dev/bench writes from here -->",
        Target::Kafka => "<!-- dev/bench --destination kafka writes from here -->",
    }
}

const END: &str = "<!-- to here -->";

/// What other systems were measured at on the same kind of machine (2 cores, messages of 200 bytes, one run each).
struct Peer {
    system: &'static str,
    /// Whether a message that was answered survives a crash of the machine, as far as the setting says.
    is_durable: &'static str,
    /// Scheduled a second, at best.
    schedule: Option<f64>,
    /// Delivered a second when all are due at once, at best.
    drain: Option<f64>,
    /// Late at a steady rate, and that rate.
    late: &'static str,
}

const PEERS: [Peer; 7] = [
    Peer {
        system: "NATS 2.15.2, synced writes",
        is_durable: "yes",
        schedule: Some(2_200.0),
        drain: Some(360.0),
        late: "does not keep up",
    },
    Peer {
        system: "NATS 2.15.2, default sync (2 min)",
        is_durable: "no",
        schedule: Some(32_000.0),
        drain: Some(23_000.0),
        late: "p50 405 ms, p99 632 ms at 10 k/s",
    },
    Peer {
        system: "RocketMQ 5.5.0, SYNC_FLUSH, timer wheel",
        is_durable: "yes",
        schedule: Some(6_300.0),
        drain: Some(19_000.0),
        late: "p50 899 ms, p99 1,345 ms at 10 k/s",
    },
    Peer {
        system: "Pulsar 4.2.4, delayed delivery",
        is_durable: "by its defaults",
        schedule: Some(11_000.0),
        drain: Some(10_000.0),
        late: "p50 525 ms, p99 1,486 ms at 5 k/s; one in five early, by up to 493 ms",
    },
    Peer {
        system: "Redis 7.0 ZSET, AOF always, pipelines of 100",
        is_durable: "yes",
        schedule: Some(70_000.0),
        drain: Some(64_000.0),
        late: "p50 2.5 ms, p99 67 ms at 20 k/s; no verdict, no acknowledgement",
    },
    Peer {
        system: "beanstalkd 1.12, -f0",
        is_durable: "yes",
        schedule: Some(3_000.0),
        drain: Some(3_000.0),
        late: "whole seconds",
    },
    Peer {
        system: "raw Kafka 4.4 produce, acks=all, 256 B (no delay)",
        is_durable: "no",
        schedule: Some(61_000.0),
        drain: None,
        late: "",
    },
];

/// Every figure, for a terminal.
pub(crate) fn text(figures: &Figures) -> String {
    let mut rows = vec![["figure", "value", "unit", "ratio", "to"].map(str::to_owned).to_vec()];
    rows.extend(figures.items().iter().map(|figure| cells(figure).to_vec()));
    table(&rows)
}

fn cells(figure: &Figure) -> [String; 5] {
    let ratio = figure.ratio.map(shown).unwrap_or_default();
    let compared_to = figure.compared_to.clone().unwrap_or_default();
    [figure.name.clone(), shown(figure.value), figure.unit.to_owned(), ratio, compared_to]
}

/// What stands before and behind the tables of a page.
pub(crate) fn split(page: &str, target: Target) -> anyhow::Result<(&str, &str)> {
    let begin = begin(target);
    let places = page.split_once(begin).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    places.with_context(|| format!("the page has no lines {begin} and {END}"))
}

/// A page with the tables of a run in place of those it has.
pub(crate) fn page(page: &str, report: &Report) -> anyhow::Result<String> {
    let (head, tail) = split(page, report.target)?;
    let mut text = measured_by(report);
    match report.target {
        Target::Embedded => text.push_str(&tables(&report.figures)),
        Target::Kafka => text.push_str(&kafka_tables(&report.figures)),
    }
    Ok(format!("{head}{}\n\n{text}\n{END}{tail}", begin(report.target)))
}

fn measured_by(report: &Report) -> String {
    let figures = &report.figures;
    let scale = figures.items().first().map(|figure| figure.scale.clone()).unwrap_or_default();
    let target = if report.target == Target::Kafka { " --destination kafka" } else { "" };
    let command = format!("dev/bench{target}{}", if report.is_quick { " --quick" } else { "" });
    let others = figures.items().iter().filter(|figure| figure.name.starts_with("other_cpu_cores"));
    let others = others.map(|figure| figure.value).fold(0.0, f64::max);
    format!(
        "Measured by `{command}` on {}, in {} s; scale {scale}. Anything else on the machine took at most {} of its \
         processors in any stage.\n\n",
        report.machine,
        grouped(report.took.as_secs()),
        shown(others),
    )
}

fn tables(figures: &Figures) -> String {
    let mut text = String::new();
    text.push_str("| other messages pending | 1 k | 100 k | 2 M |\n|---|---|---|---|\n");
    for (name, unit, label) in [
        ("schedule_deliver_rate", "/s", "scheduled and delivered, sustained"),
        ("half_load_rate", "/s", "half of that, for the lateness at half load"),
        ("lateness_p50_ms_half_load", " ms", "late at half load, p50"),
        ("lateness_p99_ms_half_load", " ms", "late at half load, p99"),
        ("lateness_p999_ms_half_load", " ms", "late at half load, p99.9"),
        ("lateness_max_ms_half_load", " ms", "late at half load, most"),
        ("lateness_p50_ms_at_7500", " ms", "late at 7,500/s, p50"),
        ("lateness_p99_ms_at_7500", " ms", "late at 7,500/s, p99"),
        ("lateness_p999_ms_at_7500", " ms", "late at 7,500/s, p99.9"),
        ("lateness_max_ms_at_7500", " ms", "late at 7,500/s, most"),
        ("lateness_p50_ms_full_load", " ms", "late at the sustained rate, p50"),
        ("lateness_p99_ms_full_load", " ms", "late at the sustained rate, p99"),
        ("schedule_answer_p50_ms_half_load", " ms", "answer to a batch at half load, p50"),
        ("schedule_answer_p99_ms_half_load", " ms", "answer to a batch at half load, p99"),
        ("schedule_rate", "/s", "scheduled when nothing is due"),
        ("burst_drain_rate", "/s", "delivered, burst due in one millisecond"),
        ("lateness_p50_ms_burst", " ms", "late in that burst, p50"),
        ("lateness_p99_ms_burst", " ms", "late in that burst, p99"),
        ("lateness_max_ms_burst", " ms", "late in that burst, most"),
        ("log_bytes_per_message", " B", "log bytes a message"),
        ("store_writes_per_message", "", "RocksDB writes a message, log and topic included"),
        ("cpu_us_per_message", " µs", "CPU a message, at the sustained rate"),
        ("cpu_us_per_message_half_load", " µs", "CPU a message, at half load"),
        ("restart_to_first_delivery_ms", " ms", "from process start to the first delivery, after kill -9"),
    ] {
        let cell = |suffix: &str| {
            let value = figures.value(&format!("{name}{suffix}"));
            value.map_or_else(|| "–".to_owned(), |value| format!("{}{unit}", shown(value)))
        };
        text.push_str(&format!("| {label} | {} | {} | {} |\n", cell("_1k"), cell("_100k"), cell("")));
    }
    let memory = |label: &str| figures.value(&format!("resident_memory_{label}"));
    let mib = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{} MiB", shown(value)));
    text.push_str(&format!(
        "| resident memory, caches full | – | {} | {} |\n\n",
        mib(memory("100k")),
        mib(memory("2m"))
    ));
    text.push_str(&beside_rocksdb(figures));
    text.push_str(&beside_peers(figures));
    text
}

fn kafka_tables(figures: &Figures) -> String {
    let value = |name: &str, unit: &str| {
        figures.value(name).map_or_else(|| "–".to_owned(), |value| format!("{}{unit}", shown(value)))
    };
    let mut text = String::from("| to Kafka | through us | raw produce | ratio |\n|---|---|---|---|\n");
    for (label, ours, raw) in [
        ("delivered, with nothing to be scheduled meanwhile", "kafka_deliver_rate", "kafka_raw_rate"),
        ("scheduled and delivered, sustained", "kafka_schedule_deliver_rate", "kafka_raw_rate"),
        ("burst", "kafka_burst_drain_rate", "kafka_raw_burst_rate"),
    ] {
        let ratio = figures.value(ours).zip(figures.value(raw)).map(|(ours, raw)| shown(rounded(ours / raw)));
        let (ours, raw, ratio) = (value(ours, "/s"), value(raw, "/s"), ratio.unwrap_or_else(|| "–".to_owned()));
        text.push_str(&format!("| {label} | {ours} | {raw} | {ratio} |\n"));
    }
    text.push_str("\n| late | p50 | p99 | p99.9 | most |\n|---|---|---|---|---|\n");
    for (label, suffix) in [
        ("at half of the sustained rate", "half_load"),
        ("at 7,500/s", "at_7500"),
        ("at the sustained rate", "full_load"),
        ("in the burst", "burst"),
    ] {
        let cell = |kind: &str| value(&format!("kafka_lateness_{kind}_ms_{suffix}"), " ms");
        let [p50, p99, p999, max] = ["p50", "p99", "p999", "max"].map(cell);
        text.push_str(&format!("| {label} | {p50} | {p99} | {p999} | {max} |\n"));
    }
    let rate = value("neighbour_rate", "/s");
    text.push_str(&format!(
        "\n| {rate} to a healthy destination, another one of the same broker being | late, p50 | late, p99 |\n|---|---|---|\n"
    ));
    for (label, name) in [
        ("well", "calm"),
        ("denied", "denied"),
        ("deleted", "deleted"),
        ("throttled", "throttled"),
        ("one after the other", "trouble"),
    ] {
        let cell = |kind: &str| value(&format!("neighbour_lateness_{kind}_ms_{name}"), " ms");
        text.push_str(&format!("| {label} | {} | {} |\n", cell("p50"), cell("p99")));
    }
    let cost = |who: &str| value(&format!("kafka_{who}_per_message_full_load"), " µs");
    text.push_str(&format!(
        "\np99 in trouble over p99 in peace: {}. CPU a message at the sustained rate: {} ours, {} the broker's.\n",
        value("neighbour_lateness_p99_over_calm", ""),
        cost("cpu_us"),
        cost("broker_cpu_us"),
    ));
    text
}

fn beside_rocksdb(figures: &Figures) -> String {
    let value = |name: &str| figures.value(name).map_or_else(|| "–".to_owned(), shown);
    let ratio = |name: &str| {
        let figure = figures.items().iter().find(|figure| figure.name == name);
        figure.and_then(|figure| figure.ratio).map_or_else(|| "–".to_owned(), shown)
    };
    let mut text = String::from("| with the most pending | server | RocksDB alone | ratio |\n|---|---|---|---|\n");
    for (label, ours, raw) in [
        ("scheduled", "schedule_rate", "raw_rocksdb_schedule"),
        ("scheduled and delivered", "schedule_deliver_rate", "raw_rocksdb_life"),
    ] {
        text.push_str(&format!(
            "| {label}; {} keys and {} B a message, batches of {} | {}/s | {}/s | {} |\n",
            value(&format!("{raw}_keys")),
            value(&format!("{raw}_bytes")),
            value(&format!("{raw}_batch")),
            value(ours),
            value(&format!("{raw}_rate")),
            ratio(ours),
        ));
    }
    text.push_str(&format!(
        "\nSingle messages on 64 connections: {}/s scheduled and delivered, answered within {} ms (p50) and {} ms (p99), \
         {} µs of CPU each.\n\n",
        value("schedule_deliver_rate_singles"),
        value("schedule_answer_p50_ms_singles"),
        value("schedule_answer_p99_ms_singles"),
        value("cpu_us_per_message_singles"),
    ));
    text
}

fn beside_peers(figures: &Figures) -> String {
    let ours = |name: &str| figures.value(name).unwrap_or_default();
    let (schedule, drain) = (ours("schedule_rate"), ours("burst_drain_rate"));
    let times = |ours: f64, theirs: Option<f64>| match theirs {
        Some(theirs) => format!("{}/s ({:.1}×)", shown(theirs), ours / theirs),
        None => "–".to_owned(),
    };
    let mut text = String::from(
        "| system and setting | durable | scheduled at best (ours is so many times it) | burst delivered at best | late at a \
         steady rate |\n|---|---|---|---|---|\n",
    );
    text.push_str(&format!(
        "| **Nereus Delay, every answer synced, most pending** | yes | {}/s | {}/s | p50 {} ms, p99 {} ms at {}/s |\n",
        shown(schedule),
        shown(drain),
        shown(ours("lateness_p50_ms_half_load")),
        shown(ours("lateness_p99_ms_half_load")),
        shown(ours("half_load_rate")),
    ));
    for peer in &PEERS {
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} |\n",
            peer.system,
            peer.is_durable,
            times(schedule, peer.schedule),
            times(drain, peer.drain),
            peer.late,
        ));
    }
    text
}

/// The machine in a few words.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    let model = model.map_or("an unknown processor", |(_, model)| model.trim());
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    let gib = kib.map_or(0, |kib: u64| (kib + (1 << 19)) >> 20);
    format!("{cores} cores ({model}), {gib} GiB of memory")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(target: Target, figures: &[(&str, f64)]) -> Report {
        let mut report_figures = Figures::new("quick: small".to_owned());
        for (name, value) in figures {
            report_figures.add(*name, *value, "messages/s");
        }
        let machine = "2 cores".to_owned();
        Report {
            figures: report_figures,
            machine,
            took: Duration::from_secs(100),
            target,
            is_quick: true,
            folder: None,
        }
    }

    #[test]
    fn the_tables_replace_those_of_the_run_before() {
        let figures =
            [("schedule_deliver_rate", 20_000.0), ("schedule_deliver_rate_1k", 21_000.0), ("schedule_rate", 44_000.0)];
        let report = report(Target::Embedded, &figures);
        let begin = begin(Target::Embedded);
        let first = page(&format!("# Performance\n\n{begin}\nold\n{END}\n\nHow it is measured.\n"), &report).unwrap();
        assert!(first.starts_with("# Performance\n\n"));
        assert!(first.ends_with(&format!("{END}\n\nHow it is measured.\n")));
        assert!(!first.contains("old"));
        assert!(first.contains("`dev/bench --quick` on 2 cores, in 100 s; scale quick: small"));
        assert!(first.contains("| scheduled and delivered, sustained | 21,000/s | – | 20,000/s |"));
        assert!(first.contains("| NATS 2.15.2, synced writes | yes | 2,200/s (20.0×) |"));
        assert_eq!(page(&first, &report).unwrap(), first);
    }

    #[test]
    fn each_kind_of_run_has_a_place_of_its_own() {
        let (embedded, kafka) = (begin(Target::Embedded), begin(Target::Kafka));
        let old = format!("{embedded}\nold one\n{END}\nbetween\n{kafka}\nold two\n{END}\nend\n");
        let report =
            report(Target::Kafka, &[("kafka_burst_drain_rate", 50_000.0), ("kafka_raw_burst_rate", 100_000.0)]);
        let new = page(&old, &report).unwrap();
        assert!(new.starts_with(&format!("{embedded}\nold one\n{END}\nbetween\n{kafka}\n")));
        assert!(new.ends_with(&format!("{END}\nend\n")) && !new.contains("old two"));
        assert!(new.contains("`dev/bench --destination kafka --quick` on 2 cores"));
        assert!(new.contains("| burst | 50,000/s | 100,000/s | 0.5 |"));
        assert_eq!(page(&new, &report).unwrap(), new);
    }

    #[test]
    fn a_page_without_a_place_is_refused() {
        let figures = [("schedule_rate", 1.0)];
        assert!(page("# Performance\n", &report(Target::Embedded, &figures)).is_err());
        let only_embedded = format!("{}\n{END}\n", begin(Target::Embedded));
        assert!(page(&only_embedded, &report(Target::Kafka, &figures)).is_err());
    }
}
