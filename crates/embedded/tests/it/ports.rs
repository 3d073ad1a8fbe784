//! The engine behind the ports, held to what every implementation must do.

use std::sync::Arc;

use bytes::Bytes;
use embedded::{EmbeddedDestination, EmbeddedLog, EmbeddedMetadata, TopicRecord};
use ports::destination::Destination;
use ports::log::ShardLog;
use ports::metadata::Metadata;
use protocol::id::{RouteId, ShardId};
use protocol::resource::Resource;
use shard::schedule::outgoing::{Header, OutgoingRecord};
use testkit::port_suites::destination::Subject;
use testkit::port_suites::{destination, log, metadata};

use crate::common::{id_of, open, partition, read_all};

/// Engines that stay open as long as their ports are tested.
#[derive(Default)]
struct Engines(Vec<(tempfile::TempDir, embedded::Embedded)>);

impl Engines {
    fn open(&mut self) -> embedded::Embedded {
        let folder = tempfile::tempdir().expect("temporary folder");
        let engine = open(folder.path());
        self.0.push((folder, engine.clone()));
        engine
    }
}

#[tokio::test]
async fn a_partition_is_a_shard_log() {
    let shard = ShardId { route: RouteId([3; 16]), partition: 1 };
    let mut engines = Engines::default();
    let make = async || {
        let topic = engines.open().create_internal_topic("_route.test", 2, [4; 16]).await.expect("created");
        Arc::new(EmbeddedLog::new(shard.route, topic.partition(1).expect("there"))) as Arc<dyn ShardLog>
    };
    log::run(shard, make).await;
}

#[tokio::test]
async fn the_engine_is_a_metadata_store() {
    let mut engines = Engines::default();
    metadata::run(async || Arc::new(EmbeddedMetadata::new(&engines.open())) as Arc<dyn Metadata>).await;
}

#[tokio::test]
async fn topics_are_destinations() {
    let mut engines = Engines::default();
    let make = async || {
        let engine = engines.open();
        let topic = partition(&engine, "subject").await;
        let records = move || read_all(&topic, 0).expect("read").iter().map(|record| outgoing(&record.value)).collect();
        Subject {
            destination: Arc::new(EmbeddedDestination::new(engine)) as Arc<dyn Destination>,
            resource: Resource::Embedded { topic: id_of("subject") },
            records: Box::new(records),
        }
    };
    destination::run(make).await;
}

fn outgoing(value: &Bytes) -> OutgoingRecord {
    let TopicRecord { key, value, headers, .. } = TopicRecord::decode(value).expect("a record of a topic");
    let header = |header: embedded::Header| Header { name: header.name.into(), value: header.value };
    OutgoingRecord { key, value, headers: headers.into_iter().map(header).collect(), event_time_ms: None }
}
