//! Topics: names, ids, partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::Core;
use crate::database::Table;
use crate::partition::{Partition, PartitionState};

/// The longest topic name, in bytes; Kafka's.
pub const NAME_BYTES_MAX: usize = 249;
/// The most partitions of one topic.
pub const PARTITIONS_MAX: u32 = 10_000;

/// A topic that was not created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateTopicError {
    /// The name is none.
    #[error("{name:?} is no topic name: {rule}")]
    Name {
        /// The name that was given.
        name: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// The number of partitions is out of range.
    #[error("{partitions} partitions asked for, 1 to {PARTITIONS_MAX} are allowed")]
    PartitionCount {
        /// How many were asked for.
        partitions: u32,
    },
    /// The topic exists with another number of partitions, which is fixed.
    #[error("topic {name} exists with {existing} partitions, {asked} asked for")]
    OtherPartitionCount {
        /// The topic.
        name: String,
        /// How many it has.
        existing: u32,
        /// How many were asked for.
        asked: u32,
    },
    /// Another topic has the id.
    #[error("id {} for topic {name} belongs to topic {owner}", hex(id))]
    IdInUse {
        /// The topic that was asked for.
        name: String,
        /// The id that was given for it.
        id: [u8; 16],
        /// The topic that has the id.
        owner: String,
    },
    /// Certainly not created: the engine is closed.
    #[error("topic not created, the engine is closed: {reason}")]
    Closed {
        /// Why it is closed.
        reason: String,
    },
    /// The topic may have been created; asking again is harmless.
    #[error("creating the topic has an unknown outcome: {reason}")]
    Unknown {
        /// What happened.
        reason: String,
    },
}

fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Who may use a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// Topics people make: names without a leading underscore.
    Public,
    /// The system's own (`_route.<uuid>`): names with one.
    Internal,
}

impl Namespace {
    pub(crate) fn of(name: &str) -> Namespace {
        if name.starts_with('_') { Namespace::Internal } else { Namespace::Public }
    }

    pub(crate) fn table(self) -> Table {
        match self {
            Namespace::Public => Table::Topics,
            Namespace::Internal => Table::Logs,
        }
    }
}

/// A topic to be created, checked.
#[derive(Clone, Debug)]
pub(crate) struct NewTopic {
    pub(crate) name: String,
    pub(crate) partition_count: u32,
    pub(crate) id: [u8; 16],
}

impl NewTopic {
    pub(crate) fn check(
        name: &str,
        namespace: Namespace,
        partition_count: u32,
        id: [u8; 16],
    ) -> Result<NewTopic, CreateTopicError> {
        let refuse = |rule| Err(CreateTopicError::Name { name: name.to_owned(), rule });
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return refuse("it must have 1 to 249 characters");
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            return refuse("only letters, digits, '.', '_' and '-' are allowed");
        }
        if name == "." || name == ".." {
            return refuse("'.' and '..' are not allowed");
        }
        match (namespace, Namespace::of(name)) {
            (Namespace::Public, Namespace::Internal) => return refuse("names starting with '_' are the system's own"),
            (Namespace::Internal, Namespace::Public) => return refuse("internal names start with '_'"),
            _ => {}
        }
        if partition_count == 0 || partition_count > PARTITIONS_MAX {
            return Err(CreateTopicError::PartitionCount { partitions: partition_count });
        }
        Ok(NewTopic { name: name.to_owned(), partition_count, id })
    }
}

/// A topic as the writer and all handles share it.
#[derive(Debug)]
pub(crate) struct TopicState {
    pub(crate) name: String,
    pub(crate) id: [u8; 16],
    pub(crate) topic_no: u32,
    pub(crate) partitions: Vec<Arc<PartitionState>>,
}

/// Every topic, by name and by number.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    by_name: BTreeMap<String, Arc<TopicState>>,
    names_by_no: BTreeMap<u32, String>,
}

impl Topics {
    pub(crate) fn insert(&mut self, topic: Arc<TopicState>) {
        self.names_by_no.insert(topic.topic_no, topic.name.clone());
        self.by_name.insert(topic.name.clone(), topic);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<TopicState>> {
        self.by_name.get(name)
    }

    pub(crate) fn by_no(&self, topic_no: u32) -> Option<&Arc<TopicState>> {
        self.names_by_no.get(&topic_no).and_then(|name| self.by_name.get(name))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<TopicState>> {
        self.by_name.values()
    }

    pub(crate) fn next_no(&self) -> u32 {
        self.names_by_no.last_key_value().map_or(0, |(topic_no, _)| topic_no + 1)
    }
}

/// A handle on a topic. Clones share it; it does not keep the engine open.
#[derive(Clone)]
pub struct Topic {
    core: Arc<Core>,
    state: Arc<TopicState>,
}

impl Topic {
    pub(crate) fn new(core: Arc<Core>, state: Arc<TopicState>) -> Topic {
        Topic { core, state }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The id it was given when it was made.
    pub fn id(&self) -> [u8; 16] {
        self.state.id
    }

    /// How many partitions it has; that never changes.
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.state.partitions.len()).expect("at most PARTITIONS_MAX")
    }

    /// One partition; `None` beyond the last.
    pub fn partition(&self, index: u32) -> Option<Partition> {
        let state = self.state.partitions.get(index as usize)?;
        Some(Partition::new(Arc::clone(&self.core), Arc::clone(state), self.state.id))
    }
}

impl std::fmt::Debug for Topic {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Topic").field("name", &self.state.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, namespace: Namespace, partitions: u32) -> Result<(), CreateTopicError> {
        NewTopic::check(name, namespace, partitions, [0; 16]).map(|_| ())
    }

    #[test]
    fn names_follow_kafkas_rules() {
        let longest = "x".repeat(249);
        for name in ["a", "orders.due", "A-z_0.9", "...", &longest] {
            assert_eq!(check(name, Namespace::Public, 1), Ok(()), "{name}");
        }
        let too_long = "x".repeat(250);
        for name in ["", ".", "..", "a b", "a/b", "é", "a\0", &too_long] {
            assert!(matches!(check(name, Namespace::Public, 1), Err(CreateTopicError::Name { .. })), "{name:?}");
        }
    }

    #[test]
    fn a_leading_underscore_is_the_systems_own() {
        assert!(check("_route.x", Namespace::Public, 1).is_err());
        assert!(check("_route.x", Namespace::Internal, 1).is_ok());
        assert!(check("route.x", Namespace::Internal, 1).is_err());
    }

    #[test]
    fn partitions_are_bounded() {
        assert_eq!(check("a", Namespace::Public, 0), Err(CreateTopicError::PartitionCount { partitions: 0 }));
        assert_eq!(check("a", Namespace::Public, 10_000), Ok(()));
        let error = check("a", Namespace::Public, 10_001).expect_err("too many");
        assert_eq!(error.to_string(), "10001 partitions asked for, 1 to 10000 are allowed");
    }
}
