//! Ingresses: topics whose records schedule messages, and how far each of their partitions is settled.
//!
//! What makes a source record schedule exactly once is [`IngressProgress`]: before anything of a run of records is appended,
//! the run and the time that its ids derive from are durable here. Whoever finds a run under way, after any crash, derives the
//! same ids again and asks for them before it appends; whatever lies below the run is settled for ever, however often the topic
//! is read from its beginning (ADR 0024).

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use crate::cas::Record;

/// One ingress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IngressRecord {
    /// The name people use. Derived ids contain it, so two ingresses of one topic never share any.
    pub name: String,
    /// The kind of system its topic is on, as requests name it.
    pub system: String,
    /// The topic.
    pub topic: String,
    /// The consumer group.
    pub group: String,
    /// Whether an operator wants it to rest.
    pub paused: bool,
    /// The request it was made from, with what it left open settled: the same request again changes nothing.
    pub spec: serde_json::Value,
    /// When it was made, epoch milliseconds.
    pub created_at_ms: i64,
}

impl Record for IngressRecord {
    const NAME: &'static str = "ingress";

    fn check_successor(&self, next: &IngressRecord) -> Result<(), String> {
        let fixed = [
            ("name", &self.name, &next.name),
            ("system", &self.system, &next.system),
            ("topic", &self.topic, &next.topic),
            ("group", &self.group, &next.group),
        ];
        match fixed.into_iter().find(|(_, old, new)| old != new) {
            Some((what, old, new)) => Err(format!("its {what} is {old:?} and cannot become {new:?}")),
            None => Ok(()),
        }
    }
}

/// Key of an ingress's record.
pub fn key(tenant: &str, name: &str) -> String {
    format!("{}{name}", prefix(tenant))
}

/// Prefix of a tenant's ingresses.
pub fn prefix(tenant: &str) -> String {
    format!("/nereus/ingresses/{tenant}/")
}

/// How far one partition of an ingress's topic is settled.
///
/// Offsets below `from` are settled for ever. Those from `from` up to but not including `to` are the run under way; there is
/// none when the two are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IngressProgress {
    /// The floor: everything below it is settled.
    pub from: u64,
    /// The end of the run under way.
    pub to: u64,
    /// The time that ids of the run derive from, epoch milliseconds.
    pub uuid_ms: i64,
    /// Times that ids of the run derived from before, oldest first: a record may have been taken under any of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_uuid_ms: Vec<i64>,
}

impl IngressProgress {
    /// Whether a run is under way.
    pub fn is_under_way(&self) -> bool {
        self.from < self.to
    }

    /// A run behind everything that this one settles.
    #[must_use]
    pub fn begin(&self, to: u64, uuid_ms: i64) -> IngressProgress {
        IngressProgress { from: self.to, to, uuid_ms, earlier_uuid_ms: Vec::new() }
    }

    /// The run under way, settled, and none begun.
    #[must_use]
    pub fn settle(&self) -> IngressProgress {
        self.begin(self.to, self.uuid_ms)
    }

    /// The run under way with ids of another time; that of the old ones is remembered.
    #[must_use]
    pub fn renew(&self, uuid_ms: i64) -> IngressProgress {
        let earlier_uuid_ms = self.earlier_uuid_ms.iter().copied().chain([self.uuid_ms]).collect();
        IngressProgress { uuid_ms, earlier_uuid_ms, ..self.clone() }
    }
}

impl Record for IngressProgress {
    const NAME: &'static str = "ingress progress";

    fn check_successor(&self, next: &IngressProgress) -> Result<(), String> {
        if next.from > next.to {
            return Err(format!("a run from {} to {} is none", next.from, next.to));
        }
        if next.from == self.to {
            // Settled, with or without a next run: nothing of the old one is needed any more.
            return match next.earlier_uuid_ms[..] {
                [] => Ok(()),
                [..] => Err("a new run has no earlier ids".to_owned()),
            };
        }
        if next.from != self.from {
            let IngressProgress { from, to, .. } = self;
            return Err(format!("a run from {from} to {to} is settled as a whole: {} does not follow", next.from));
        }
        if next.to != self.to {
            return Err(format!("the run under way ends at {}, not at {}", self.to, next.to));
        }
        let renewed = next.uuid_ms > self.uuid_ms && *next == self.renew(next.uuid_ms);
        if *next == *self || renewed {
            return Ok(());
        }
        Err(format!("the ids of the run under way derive from {} ms, which is never forgotten", self.uuid_ms))
    }
}

/// Key of a partition's progress. A topic that was made anew under its name has another id, and starts afresh.
pub fn progress_key(tenant: &str, name: &str, topic: &[u8; 16], partition: u32) -> String {
    format!("{}{}/{partition}", progress_prefix(tenant, name), HEXLOWER.encode(topic))
}

/// Prefix of an ingress's progress.
pub fn progress_prefix(tenant: &str, name: &str) -> String {
    format!("/nereus/ingress-progress/{tenant}/{name}/")
}

/// The topic's id and the partition that a key with this prefix is of. `None` when it is not one of [`progress_key`].
pub fn parse_progress_key(prefix: &str, key: &str) -> Option<([u8; 16], u32)> {
    let (topic, partition) = key.strip_prefix(prefix)?.split_once('/')?;
    Some((crate::route::parse_uuid(topic)?, partition.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(from: u64, to: u64, uuid_ms: i64, earlier: &[i64]) -> IngressProgress {
        IngressProgress { from, to, uuid_ms, earlier_uuid_ms: earlier.to_vec() }
    }

    #[test]
    fn a_run_is_settled_as_a_whole_and_its_ids_are_never_forgotten() {
        let run = progress(100, 200, 5_000, &[3_000]);
        let may_follow = |next: IngressProgress| run.check_successor(&next).is_ok();
        assert!(may_follow(run.settle()) && run.settle() == progress(200, 200, 5_000, &[]));
        assert!(may_follow(run.begin(250, 9_000)) && run.begin(250, 9_000) == progress(200, 250, 9_000, &[]));
        assert!(may_follow(run.begin(250, 1_000)), "a clock that was set back stops nothing");
        assert!(may_follow(run.renew(9_000)) && run.renew(9_000) == progress(100, 200, 9_000, &[3_000, 5_000]));
        assert!(may_follow(run.clone()));
        let refused = [
            progress(99, 200, 5_000, &[3_000]),
            progress(150, 200, 5_000, &[3_000]),
            progress(150, 250, 5_000, &[]),
            progress(201, 250, 5_000, &[]),
            progress(100, 199, 5_000, &[3_000]),
            progress(100, 201, 5_000, &[3_000]),
            progress(100, 200, 9_000, &[3_000]),
            progress(100, 200, 9_000, &[5_000]),
            progress(100, 200, 9_000, &[]),
            progress(100, 200, 4_000, &[3_000, 5_000]),
            progress(100, 200, 5_000, &[]),
            progress(200, 250, 5_000, &[3_000]),
            progress(200, 199, 5_000, &[]),
        ];
        for next in refused {
            assert!(!may_follow(next.clone()), "{next:?}");
        }
    }

    #[test]
    fn behind_a_settled_run_anything_may_begin() {
        let idle = progress(200, 200, 5_000, &[]);
        assert_eq!(idle.check_successor(&idle.begin(300, 1)), Ok(()));
        assert_eq!(idle.check_successor(&idle), Ok(()));
        assert!(idle.check_successor(&progress(199, 200, 5_000, &[])).is_err());
    }

    #[test]
    fn topic_and_group_are_for_ever() {
        let record = IngressRecord {
            name: "in".to_owned(),
            system: "kafka".to_owned(),
            topic: "orders".to_owned(),
            group: "g".to_owned(),
            paused: false,
            spec: serde_json::json!({}),
            created_at_ms: 1,
        };
        let paused = IngressRecord { paused: true, spec: serde_json::json!({"destination": "d"}), ..record.clone() };
        assert_eq!(record.check_successor(&paused), Ok(()));
        let moved = IngressRecord { topic: "bills".to_owned(), ..record.clone() };
        assert_eq!(
            record.check_successor(&moved),
            Err("its topic is \"orders\" and cannot become \"bills\"".to_owned())
        );
    }

    #[test]
    fn keys_say_whose_progress_it_is() {
        let key = progress_key("default", "in", &[0xab; 16], 7);
        let prefix = progress_prefix("default", "in");
        assert_eq!(parse_progress_key(&prefix, &key), Some(([0xab; 16], 7)));
        assert_eq!(parse_progress_key(&prefix, &format!("{prefix}x/7")), None);
    }
}
