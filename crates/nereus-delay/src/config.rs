//! The server's configuration: defaults, a TOML file over them, flags over both; and the relations between the values.
//!
//! `docs/configuration.md` says what each is for; a test holds the two to each other. Values that apply reads (`[limits]`) only
//! seed a new route: afterwards the log's own hold, and a difference is said at the start.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use client::duration::{DisplayDelay, parse_delay_ms};
use protocol::mutation_v2::Limits;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Largest key, value and headers of one record of an embedded topic, before the delivery headers are taken off.
pub(crate) const EMBEDDED_RECORD_BYTES_MAX: u32 = 1_000_000;
/// The same of a Kafka topic, if that takes so much: a shard's log takes records of up to 8 MiB.
pub(crate) const KAFKA_RECORD_BYTES_MAX: u32 = 4 << 20;
/// The largest of any topic.
pub(crate) const RECORD_BYTES_MAX: u32 = KAFKA_RECORD_BYTES_MAX;
const _: () = assert!(RECORD_BYTES_MAX >= EMBEDDED_RECORD_BYTES_MAX);

/// Everything that can be configured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Configuration {
    pub(crate) server: ServerConfig,
    pub(crate) clock: ClockConfig,
    pub(crate) limits: LimitsConfig,
    pub(crate) destinations: DestinationsConfig,
    pub(crate) delivery: DeliveryConfig,
    pub(crate) http: HttpConfig,
    pub(crate) storage: StorageConfig,
}

/// Where the server lives.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerConfig {
    /// The data folder.
    pub(crate) data: PathBuf,
    /// Where HTTP is answered. Loopback only: there is no authentication yet.
    pub(crate) listen: SocketAddr,
    /// The worker's name in metadata records.
    pub(crate) worker: String,
    /// Whose messages this server takes.
    pub(crate) tenant: String,
    /// Shards of the route that is made at the first start.
    pub(crate) shards: u32,
    /// From the request to stop until what is under way is left to recovery.
    pub(crate) drain_deadline: Span,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            data: PathBuf::from("nereus-delay-data"),
            listen: SocketAddr::from(([127, 0, 0, 1], 7700)),
            worker: "worker-1".to_owned(),
            tenant: "default".to_owned(),
            shards: 2,
            drain_deadline: Span::seconds(10),
        }
    }
}

/// How far the clock is trusted.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClockConfig {
    /// The error assumed of a host clock for which the kernel makes no statement.
    pub(crate) host_bound: Span,
    /// A wider interval is not trusted.
    pub(crate) uncertainty_max: Span,
    /// After a step, a long pause or lost sync the clock must agree with itself for this long.
    pub(crate) stabilisation_window: Span,
    /// Trust only a clock that the kernel calls synchronised.
    pub(crate) require_sync: bool,
}

impl Default for ClockConfig {
    fn default() -> Self {
        ClockConfig {
            host_bound: Span::milliseconds(1),
            uncertainty_max: Span::seconds(1),
            stabilisation_window: Span::seconds(2),
            require_sync: false,
        }
    }
}

/// What every shard's apply reads; seeds a new route.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsConfig {
    /// The longest delay.
    pub(crate) delay_max: Span,
    /// The latest expiry, from now.
    pub(crate) lifetime_max: Span,
    /// The shortest window between delivery and expiry.
    pub(crate) delivery_window_min: Span,
    /// How long ago a delivery time may be.
    pub(crate) past_max: Span,
    /// How old an id may be when its command is first seen.
    pub(crate) preparation_age_max: Span,
    /// How far ahead of the log's clock an id may be.
    pub(crate) uuid_future_skew_max: Span,
    /// How long the same command may be sent again.
    pub(crate) command_retry_window: Span,
    /// How long the same operation may be sent again.
    pub(crate) control_retry_window_max: Span,
    /// How far the log's clock and an owner's may be apart.
    pub(crate) broker_time_divergence_max: Span,
    /// How far a fence stays behind the clock that proves it.
    pub(crate) fence_margin: Span,
    /// How long ended messages are kept.
    pub(crate) terminal_retention: Span,
    /// How long dead letters are kept.
    pub(crate) dead_letter_retention: Span,
    /// How long position results are kept.
    pub(crate) receipt_query_window: Span,
    /// Live messages a shard.
    pub(crate) active_messages_max: u64,
    /// Bytes of live messages a shard.
    pub(crate) active_bytes_max: ByteCount,
    /// Destination lanes a shard.
    pub(crate) lanes_max: u32,
    /// Entries of one owner record.
    pub(crate) entries_per_record_max: u32,
    /// Expiry keys visited by one fence.
    pub(crate) expire_per_fence_max: u32,
    /// Bytes of a caller's own id.
    pub(crate) id_bytes_max: u32,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        LimitsConfig {
            delay_max: Span::days(3_650),
            lifetime_max: Span::days(3_650 + 400),
            delivery_window_min: Span::seconds(5),
            past_max: Span::hours(1),
            preparation_age_max: Span::hours(24),
            uuid_future_skew_max: Span::minutes(5),
            command_retry_window: Span::hours(24),
            control_retry_window_max: Span::hours(24),
            broker_time_divergence_max: Span::milliseconds(10),
            fence_margin: Span::seconds(1),
            terminal_retention: Span::days(7),
            dead_letter_retention: Span::days(30),
            receipt_query_window: Span::hours(24),
            active_messages_max: 20_000_000,
            active_bytes_max: ByteCount(50 << 30),
            lanes_max: 10_000,
            entries_per_record_max: 1_000,
            expire_per_fence_max: 1_000,
            id_bytes_max: 256,
        }
    }
}

/// What a destination has where its request says nothing.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DestinationsConfig {
    /// From delivery time to expiry.
    pub(crate) expires_after: Span,
    /// Longest wait after the first attempt.
    pub(crate) initial_backoff: Span,
    /// Longest wait ever.
    pub(crate) backoff_max: Span,
    /// Attempts in all.
    pub(crate) attempts_max: u32,
    /// From the first attempt to the last.
    pub(crate) retry_duration_max: Span,
    /// Attempts of unknown outcome that are repeated.
    pub(crate) uncertain_retries_max: u32,
    /// How often destinations are compared with their topics.
    pub(crate) refresh_interval: Span,
}

impl Default for DestinationsConfig {
    fn default() -> Self {
        DestinationsConfig {
            expires_after: Span::days(30),
            initial_backoff: Span::seconds(1),
            backoff_max: Span::minutes(5),
            attempts_max: 500,
            retry_duration_max: Span::hours(24),
            uncertain_retries_max: 5,
            refresh_interval: Span::minutes(1),
        }
    }
}

/// How messages are delivered.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DeliveryConfig {
    /// From handing an attempt over until its outcome counts as unknown.
    pub(crate) send_deadline: Span,
    /// From a start until attempts of earlier runs that nobody speaks for count as unknown.
    pub(crate) recovery_deadline: Span,
    /// How long before its time a message is made ready.
    pub(crate) claim_lead: Span,
    /// Messages one lane may have under way.
    pub(crate) lane_messages_max: usize,
    /// Bytes one lane may have under way.
    pub(crate) lane_bytes_max: ByteCount,
    /// Messages all shards may have under way.
    pub(crate) messages_max: usize,
    /// Bytes all shards may have under way.
    pub(crate) bytes_max: ByteCount,
    /// Keys of one lane kept in memory.
    pub(crate) window_entries_max: usize,
    /// How far ahead keys are kept in memory.
    pub(crate) window_ahead: Span,
    /// First pause of a lane after a failure.
    pub(crate) circuit_pause_min: Span,
    /// Longest pause of a lane.
    pub(crate) circuit_pause_max: Span,
    /// Records decided and committed together.
    pub(crate) run_records_max: usize,
    /// A fence is appended this often at least.
    pub(crate) fence_interval_max: Span,
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        DeliveryConfig {
            send_deadline: Span::seconds(30),
            recovery_deadline: Span::seconds(30),
            claim_lead: Span::milliseconds(50),
            lane_messages_max: 8_192,
            lane_bytes_max: ByteCount(32 << 20),
            messages_max: 32_768,
            bytes_max: ByteCount(128 << 20),
            window_entries_max: 16_384,
            window_ahead: Span::seconds(5),
            circuit_pause_min: Span::seconds(1),
            circuit_pause_max: Span::seconds(60),
            run_records_max: 4_096,
            fence_interval_max: Span::minutes(10),
        }
    }
}

/// How HTTP is answered.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpConfig {
    /// How long a request waits for its verdict when it does not say.
    pub(crate) wait_default: Span,
    /// How long a request may wait.
    pub(crate) wait_max: Span,
    /// The largest body of a single request.
    pub(crate) body_bytes_max: ByteCount,
    /// The largest body of a batch.
    pub(crate) batch_bytes_max: ByteCount,
    /// Memory for the bodies of all requests that are being read or answered; more wait.
    pub(crate) bodies_bytes_max: ByteCount,
    /// Messages in a batch.
    pub(crate) batch_messages_max: usize,
    /// Requests answered at once; more are refused with 429.
    pub(crate) requests_max: usize,
    /// How long an Idempotency-Key is bound.
    pub(crate) idempotency_retention: Span,
    /// Items of a page.
    pub(crate) page_items_max: usize,
    /// Rows a page looks at.
    pub(crate) page_rows_max: usize,
}

impl Default for HttpConfig {
    fn default() -> Self {
        HttpConfig {
            wait_default: Span::seconds(10),
            wait_max: Span::minutes(10),
            body_bytes_max: ByteCount(2 << 20),
            batch_bytes_max: ByteCount(8 << 20),
            bodies_bytes_max: ByteCount(256 << 20),
            batch_messages_max: 1_000,
            requests_max: 20_000,
            idempotency_retention: Span::hours(24),
            page_items_max: 1_000,
            page_rows_max: 5_000,
        }
    }
}

/// What the data folder may cost.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StorageConfig {
    /// Memory for blocks, indexes, filters and write buffers of all databases.
    pub(crate) cache_bytes_max: ByteCount,
    /// The share of it that write buffers may take.
    pub(crate) write_buffer_bytes_max: ByteCount,
    /// The embedded log keeps this much of each shard behind what is applied.
    pub(crate) log_bytes_max: ByteCount,
    /// The embedded log keeps records this long behind what is applied.
    pub(crate) log_age_max: Span,
}

impl Default for StorageConfig {
    fn default() -> Self {
        StorageConfig {
            cache_bytes_max: ByteCount(256 << 20),
            write_buffer_bytes_max: ByteCount(128 << 20),
            log_bytes_max: ByteCount(1 << 30),
            log_age_max: Span::hours(24),
        }
    }
}

impl Configuration {
    /// Reads a file over the defaults.
    ///
    /// # Errors
    /// When the file cannot be read, or has an unknown key or a value of the wrong form.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Configuration> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a valid configuration", path.display()))
    }

    /// As a file would have it, every key written.
    ///
    /// # Errors
    /// When a path is not text.
    pub(crate) fn to_toml(&self) -> anyhow::Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// The limits of a new route.
    pub(crate) fn genesis_limits(&self) -> Limits {
        let limits = &self.limits;
        Limits {
            delay_ms_max: limits.delay_max.0,
            lifetime_ms_max: limits.lifetime_max.0,
            delivery_window_ms_min: limits.delivery_window_min.0,
            preparation_age_ms_max: limits.preparation_age_max.0,
            uuid_future_skew_ms_max: limits.uuid_future_skew_max.0,
            command_retry_window_ms: limits.command_retry_window.0,
            control_retry_window_ms_max: limits.control_retry_window_max.0,
            broker_time_divergence_ms_max: limits.broker_time_divergence_max.0,
            fence_margin_ms: limits.fence_margin.0,
            clock_interval_ms_max: self.clock.uncertainty_max.0,
            terminal_retention_ms: limits.terminal_retention.0,
            dead_letter_retention_ms: limits.dead_letter_retention.0,
            receipt_query_window_ms: limits.receipt_query_window.0,
            active_messages_max: limits.active_messages_max,
            active_bytes_max: limits.active_bytes_max.0,
            lanes_max: limits.lanes_max,
            entries_per_record_max: limits.entries_per_record_max,
            expire_per_fence_max: limits.expire_per_fence_max,
            business_key_bytes_max: limits.id_bytes_max,
        }
    }

    /// Checks the relations without which the time rules contradict each other (protocol registry §1.2 and §1.4).
    ///
    /// # Errors
    /// Every relation that does not hold, with both numbers.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut broken = Vec::new();
        let mut need = |holds: bool, rule: String| {
            if !holds {
                broken.push(rule);
            }
        };
        let (limits, clock) = (&self.limits, &self.clock);
        // T8: a message must be admissible for longer than the clock may be uncertain and an admission may take.
        let decision_delay = Span::seconds(2);
        let at_least = Span(clock.uncertainty_max.0.saturating_add(decision_delay.0));
        need(
            limits.delivery_window_min.0 > at_least.0,
            format!(
                "limits.delivery_window_min ({}) must exceed clock.uncertainty_max ({}) and {decision_delay} for the \
                 admission",
                limits.delivery_window_min, clock.uncertainty_max
            ),
        );
        need(
            limits.lifetime_max.0 >= limits.delay_max.0.saturating_add(limits.delivery_window_min.0),
            format!(
                "limits.lifetime_max ({}) must reach beyond limits.delay_max ({}) by limits.delivery_window_min ({})",
                limits.lifetime_max, limits.delay_max, limits.delivery_window_min
            ),
        );
        need(
            limits.lifetime_max.0 >= limits.delay_max.0.saturating_add(self.destinations.expires_after.0),
            format!(
                "limits.lifetime_max ({}) must reach beyond limits.delay_max ({}) by destinations.expires_after ({})",
                limits.lifetime_max, limits.delay_max, self.destinations.expires_after
            ),
        );
        need(
            self.destinations.expires_after.0 >= limits.delivery_window_min.0,
            format!(
                "destinations.expires_after ({}) must be at least limits.delivery_window_min ({})",
                self.destinations.expires_after, limits.delivery_window_min
            ),
        );
        need(
            limits.command_retry_window.0 > limits.uuid_future_skew_max.0,
            format!(
                "limits.command_retry_window ({}) must exceed limits.uuid_future_skew_max ({})",
                limits.command_retry_window, limits.uuid_future_skew_max
            ),
        );
        need(
            limits.broker_time_divergence_max.0 < limits.delivery_window_min.0,
            format!(
                "limits.broker_time_divergence_max ({}) must be below limits.delivery_window_min ({})",
                limits.broker_time_divergence_max, limits.delivery_window_min
            ),
        );
        need(
            self.http.idempotency_retention.0 <= limits.command_retry_window.0,
            format!(
                "http.idempotency_retention ({}) must be at most limits.command_retry_window ({}): longer, a repeated \
                 command would be refused",
                self.http.idempotency_retention, limits.command_retry_window
            ),
        );
        need(
            self.destinations.uncertain_retries_max < self.destinations.attempts_max,
            format!(
                "destinations.uncertain_retries_max ({}) must be below destinations.attempts_max ({})",
                self.destinations.uncertain_retries_max, self.destinations.attempts_max
            ),
        );
        need(
            self.delivery.lane_bytes_max.0 >= u64::from(RECORD_BYTES_MAX),
            format!(
                "delivery.lane_bytes_max ({}) must hold the largest record ({RECORD_BYTES_MAX} bytes)",
                self.delivery.lane_bytes_max
            ),
        );
        need(
            self.delivery.bytes_max.0 >= self.delivery.lane_bytes_max.0,
            format!(
                "delivery.bytes_max ({}) must be at least delivery.lane_bytes_max ({})",
                self.delivery.bytes_max, self.delivery.lane_bytes_max
            ),
        );
        need(
            self.storage.write_buffer_bytes_max.0 <= self.storage.cache_bytes_max.0 / 2,
            format!(
                "storage.write_buffer_bytes_max ({}) must be at most half of storage.cache_bytes_max ({})",
                self.storage.write_buffer_bytes_max, self.storage.cache_bytes_max
            ),
        );
        need(
            self.http.bodies_bytes_max.0 >= self.http.batch_bytes_max.0.max(self.http.body_bytes_max.0),
            format!(
                "http.bodies_bytes_max ({}) must hold the largest body (http.batch_bytes_max {}, http.body_bytes_max {})",
                self.http.bodies_bytes_max, self.http.batch_bytes_max, self.http.body_bytes_max
            ),
        );
        need(
            (1..=1_024).contains(&self.server.shards),
            format!("server.shards ({}) must be 1 to 1,024", self.server.shards),
        );
        need(
            self.server.listen.ip().is_loopback(),
            format!(
                "server.listen ({}) must be a loopback address: there is no authentication yet, and a port open to others \
                 would take anyone's messages",
                self.server.listen
            ),
        );
        if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
    }
}

/// A span of time in milliseconds, written as text with units: "5s", "30d".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub i64);

impl Span {
    const fn milliseconds(count: i64) -> Span {
        Span(count)
    }

    const fn seconds(count: i64) -> Span {
        Span(count * 1_000)
    }

    const fn minutes(count: i64) -> Span {
        Span::seconds(count * 60)
    }

    const fn hours(count: i64) -> Span {
        Span::minutes(count * 60)
    }

    const fn days(count: i64) -> Span {
        Span::hours(count * 24)
    }

    /// As the standard library has it.
    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.0.unsigned_abs())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        DisplayDelay(self.0).fmt(formatter)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_delay_ms(&text).map(Span).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A number of bytes, written as a number or as text with a binary unit: "256MiB".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteCount(pub u64);

impl ByteCount {
    const UNITS: [(&'static str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

    /// As an index or capacity.
    pub(crate) fn size(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn parse(text: &str) -> Option<ByteCount> {
        let (number, unit) = ByteCount::UNITS
            .into_iter()
            .find_map(|(unit, bytes)| text.strip_suffix(unit).map(|number| (number, bytes)))
            .unwrap_or((text, 1));
        number.trim().parse::<u64>().ok()?.checked_mul(unit).map(ByteCount)
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = ByteCount::UNITS.into_iter().find(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes));
        match unit {
            Some((unit, bytes)) => write!(formatter, "{}{unit}", self.0 / bytes),
            None => write!(formatter, "{}", self.0),
        }
    }
}

impl Serialize for ByteCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ByteCount, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }

        match Form::deserialize(deserializer)? {
            Form::Number(bytes) => Ok(ByteCount(bytes)),
            Form::Text(text) => ByteCount::parse(&text).ok_or_else(|| {
                serde::de::Error::custom(format!("{text:?} is no number of bytes, such as 1048576 or \"256MiB\""))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_satisfy_their_relations() {
        assert_eq!(Configuration::default().check(), Ok(()));
    }

    #[test]
    fn a_file_goes_over_the_defaults_and_knows_no_other_keys() {
        let config: Configuration =
            toml::from_str("[limits]\ndelay_max = \"100y\"\nactive_bytes_max = \"1GiB\"\n").expect("valid");
        assert_eq!(config.limits.delay_max, Span::days(36_500));
        assert_eq!(config.limits.active_bytes_max, ByteCount(1 << 30));
        assert_eq!(config.limits.past_max, Span::hours(1));
        let misspelt = toml::from_str::<Configuration>("[limits]\ndelay_maximum = \"1y\"\n").expect_err("unknown");
        assert!(misspelt.to_string().contains("delay_maximum"), "{misspelt}");
        let unit = toml::from_str::<Configuration>("[limits]\ndelay_max = \"30\"\n").expect_err("no unit");
        assert!(unit.to_string().contains("has no unit"), "{unit}");
    }

    #[test]
    fn what_is_shown_can_be_read_again_and_the_reference_lists_every_key_with_its_default() {
        let text = Configuration::default().to_toml().expect("text");
        let again: Configuration = toml::from_str(&text).expect("valid");
        assert_eq!(again.to_toml().expect("text"), text);
        let reference = include_str!("../../../docs/configuration.md");
        let mut keys = 0;
        for (section, values) in toml::from_str::<toml::Table>(&text).expect("a table") {
            for (key, value) in values.as_table().expect("a section") {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let row = format!("| `{section}.{key}` | {value} |");
                assert!(reference.contains(&row), "docs/configuration.md has no row {row}");
                keys += 1;
            }
        }
        let is_key = |line: &&str| line.starts_with("| `") && !line.starts_with("| `--");
        let rows = reference.lines().filter(is_key).count();
        assert_eq!(rows, keys, "docs/configuration.md lists keys that there are not");
    }

    #[test]
    fn broken_relations_are_all_named_with_their_numbers() {
        let config: Configuration = toml::from_str(
            "[server]\nlisten = \"0.0.0.0:7700\"\n[limits]\ndelivery_window_min = \"2s\"\n[http]\nidempotency_retention = \
             \"48h\"\n",
        )
        .expect("well-formed");
        let broken = config.check().expect_err("three relations are broken");
        assert_eq!(broken.lines().count(), 3, "{broken}");
        assert!(broken.contains("delivery_window_min (2s) must exceed clock.uncertainty_max (1s)"), "{broken}");
        assert!(broken.contains("http.idempotency_retention (2d)"), "{broken}");
        assert!(broken.contains("loopback"), "{broken}");
    }
}
