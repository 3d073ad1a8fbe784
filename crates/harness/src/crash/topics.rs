//! Where the load's messages go, and where they are read: topics of the server's own log, or of a Kafka broker.

use std::collections::BTreeMap;

use anyhow::Context as _;
use client::api::destination::{Destination, DestinationSpec, EmbeddedSpec, RetrySpec};
use client::api::kafka::KafkaConnection;
use client::http::HttpClient;
use futures_util::future::join_all;
use hyper::Method;

use super::check::{Arrival, Place, SeenRecord};
use super::ingress::IngressAccount;
use super::kafka::KafkaSide;
use super::ledger::Ledger;
use super::load::Round;
use super::reader::{self, Followers};

/// A destination of the load.
pub(crate) struct TestDestination {
    pub(crate) name: &'static str,
    pub(crate) topic: &'static str,
    pub(crate) partitions: u32,
}

pub(crate) const DESTINATIONS: [TestDestination; 2] = [
    TestDestination { name: "alpha", topic: "alpha.due", partitions: 3 },
    TestDestination { name: "beta", topic: "beta.due", partitions: 2 },
];

/// Where delivered records are.
pub(crate) enum Topics {
    /// In the server's own log, and read over HTTP.
    Embedded(Followers),
    /// On a broker beside it, and read as any consumer would.
    Kafka(Box<KafkaSide>),
}

impl Topics {
    pub(crate) async fn create_destinations(&self, client: &HttpClient) -> anyhow::Result<()> {
        for destination in &DESTINATIONS {
            let spec = self.spec(destination);
            let call = client.call(Method::PUT, &["v1", "destinations", destination.name]).json(&spec);
            call.send::<Destination>().await.context("creating a destination")?;
        }
        match self {
            Topics::Embedded(_) => Ok(()),
            Topics::Kafka(kafka) => kafka.ingress.create(client).await,
        }
    }

    fn spec(&self, destination: &TestDestination) -> DestinationSpec {
        let TestDestination { topic, partitions, .. } = *destination;
        match self {
            Topics::Embedded(_) => {
                let embedded = EmbeddedSpec { topic: topic.to_owned(), partitions: Some(partitions) };
                DestinationSpec { embedded: Some(embedded), ..DestinationSpec::default() }
            }
            Topics::Kafka(kafka) => DestinationSpec {
                kafka: Some(KafkaConnection {
                    bootstrap_servers: kafka.bootstrap(),
                    topic: topic.to_owned(),
                    ..KafkaConnection::default()
                }),
                // Nothing is given up only because the broker or the server was killed as often as it is here.
                retry: Some(RetrySpec {
                    initial_backoff: Some("100ms".to_owned()),
                    max_backoff: Some("1s".to_owned()),
                    max_uncertain_retries: Some(100),
                    ..RetrySpec::default()
                }),
                ..DestinationSpec::default()
            },
        }
    }

    /// Follows every partition until the server is gone. A broker is followed beside it all the time.
    pub(crate) async fn follow(&self, client: &HttpClient) {
        let Topics::Embedded(followers) = self else { return };
        let places = DESTINATIONS
            .iter()
            .flat_map(|destination| (0..destination.partitions).map(|partition| (destination.topic, partition)));
        join_all(places.map(|(topic, partition)| followers.follow(client, topic, partition))).await;
    }

    /// Writes records that schedule by themselves, where there is an ingress, until the round is over.
    pub(crate) async fn write_records(&self, round: &Round<'_>) -> anyhow::Result<()> {
        match self {
            Topics::Embedded(_) => Ok(()),
            Topics::Kafka(kafka) => kafka.ingress.write(round).await,
        }
    }

    /// Waits until every record that was written has come to something.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        match self {
            Topics::Embedded(_) => Ok(()),
            Topics::Kafka(kafka) => kafka.ingress.settle().await,
        }
    }

    /// Tells the ledger what became of every record that was written.
    pub(crate) fn replay(&self, ledger: &mut Ledger) -> anyhow::Result<Option<IngressAccount>> {
        match self {
            Topics::Embedded(_) => Ok(None),
            Topics::Kafka(kafka) => kafka.ingress.replay(ledger).map(Some),
        }
    }

    /// Every record of every topic, from the beginning.
    pub(crate) async fn read(&self, client: &HttpClient, seed: u64) -> anyhow::Result<Vec<SeenRecord>> {
        match self {
            Topics::Embedded(_) => reader::read_topics(client, seed).await,
            Topics::Kafka(kafka) => kafka.read_topics(seed),
        }
    }

    /// What following consumers have seen.
    pub(crate) fn take_arrivals(&mut self) -> anyhow::Result<BTreeMap<Place, Arrival>> {
        match self {
            Topics::Embedded(followers) => Ok(followers.arrivals.take()),
            Topics::Kafka(kafka) => kafka.take_arrivals(),
        }
    }
}
