//! What a healthy destination's messages notice of another destination of the same broker that is in trouble: their lateness
//! while it is denied, deleted or throttled, over the same run without trouble.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use client::api::destination::Destination;
use client::api::kafka::KafkaConnection;
use futures_util::future::try_join3;
use hyper::Method;
use tokio::time::{Instant, sleep_until, timeout};

use super::PARTITIONS;
use super::bodies::Bodies;
use super::consume::{Arrival, Consumer};
use super::kafka::{connection, create_destination, other_cores};
use super::load::Load;
use super::place::{KafkaPlace, Place};
use super::reading::Reading;
use super::sample::Percentiles;
use super::stage;
use crate::console::say;
use crate::kafka::{Broker, PASSWORD, USER};
use crate::process::{ServerOptions, ServerProcess};
use crate::wall_clock::now_ms;

/// Messages a second of the destination that is watched: what leaves two processors most of their time.
pub(crate) const HEALTHY_RATE: f64 = 1_000.0;
/// Messages a second of the other one.
const SICK_RATE: f64 = 1_000.0;
const HEALTHY: &str = "healthy";
/// Bytes a second to which a client is throttled.
const THROTTLED_BYTES: f64 = 20_000.0;
/// What passes of a span before its trouble begins and the watch with it.
const HEAD: u32 = 5;
/// How long everything may take behind a span.
const LIMIT: Duration = Duration::from_secs(60);

/// What goes wrong with a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Denied,
    Deleted,
    Throttled,
}

const TROUBLES: [Trouble; 3] = [Trouble::Denied, Trouble::Deleted, Trouble::Throttled];
/// How often each comes, to a destination of its own: the machine's own moods are as large as what is measured.
const PASSES: usize = 2;

impl Trouble {
    const fn name(self) -> &'static str {
        match self {
            Trouble::Denied => "denied",
            Trouble::Deleted => "deleted",
            Trouble::Throttled => "throttled",
        }
    }
}

/// A destination that something goes wrong with, and its topic.
#[derive(Clone, Debug)]
struct Sick {
    trouble: Trouble,
    name: String,
}

fn all_sick() -> impl Iterator<Item = Sick> {
    let of_pass = |pass| TROUBLES.map(move |trouble| Sick { trouble, name: format!("{}-{pass}", trouble.name()) });
    (0..PASSES).flat_map(of_pass)
}

/// Lateness of the healthy destination's messages.
#[derive(Clone, Debug)]
pub(crate) struct Neighbour {
    /// Nothing is wrong with the others.
    pub(crate) calm: Percentiles,
    /// One after the other falls sick.
    pub(crate) trouble: Percentiles,
    /// The same, by what is wrong.
    pub(crate) by_trouble: Vec<(&'static str, Percentiles)>,
    /// How many processors anything else was busy on: neither server, nor generator, nor broker.
    pub(crate) other_cores: f64,
}

/// Runs everything in peace and in trouble, in turns: whatever else changes on the machine changes for both.
pub(crate) async fn measure(broker: &Broker, options: &ServerOptions, span: Duration) -> anyhow::Result<Neighbour> {
    let server = ServerProcess::start_ready(options).await?;
    let scene = Scene::set_up(broker, &server, &options.folder, span).await?;
    let (before, broker_before) = (Reading::take(&server).await?, broker.usage()?);
    let (mut calm, mut by_trouble) = (Vec::new(), TROUBLES.map(|trouble| (trouble, Vec::new())));
    for sick in all_sick() {
        say(&format!("neighbour of {}, in peace", sick.name));
        calm.extend(scene.watch(&sick, false).await?);
        say(&format!("neighbour of {}, in trouble", sick.name));
        let lateness = scene.watch(&sick, true).await?;
        for (_, all) in by_trouble.iter_mut().filter(|(trouble, _)| *trouble == sick.trouble) {
            all.extend_from_slice(&lateness);
        }
        scene.check_trouble(&sick).await?;
        scene.pause(&sick).await?;
    }
    let (after, broker_after) = (Reading::take(&server).await?, broker.usage()?);
    server.stop().await?;
    let mut all: Vec<i64> = by_trouble.iter().flat_map(|(_, lateness)| lateness).copied().collect();
    Ok(Neighbour {
        calm: Percentiles::of(&mut calm, 1.0),
        trouble: Percentiles::of(&mut all, 1.0),
        by_trouble: by_trouble
            .into_iter()
            .map(|(trouble, mut lateness)| (trouble.name(), Percentiles::of(&mut lateness, 1.0)))
            .collect(),
        other_cores: other_cores((&before, &after), broker_before, broker_after),
    })
}

struct Scene<'a> {
    broker: &'a Broker,
    server: &'a ServerProcess,
    place: Place,
    span: Duration,
}

impl<'a> Scene<'a> {
    async fn set_up(
        broker: &'a Broker,
        server: &'a ServerProcess,
        folder: &Path,
        span: Duration,
    ) -> anyhow::Result<Scene<'a>> {
        let cluster = broker.cluster()?;
        let password = folder.join("password");
        std::fs::write(&password, PASSWORD)?;
        for name in all_sick().map(|sick| sick.name).chain([HEALTHY.to_owned()]) {
            cluster.create_topic(&name, i32::try_from(PARTITIONS)?, &[]).await?;
        }
        create_destination(server, HEALTHY, connection(&broker.bootstrap(), HEALTHY)).await?;
        for sick in all_sick() {
            if sick.trouble == Trouble::Denied {
                broker.allow_writing(&sick.name).await?;
            }
            create_destination(server, &sick.name, sick_connection(broker, &sick, &password)).await?;
        }
        Ok(Scene { broker, server, place: Place::Kafka(KafkaPlace { cluster, topic: HEALTHY.to_owned() }), span })
    }

    /// Both destinations at their pace, and the trouble when its time comes. Returns how late the healthy one's messages were
    /// that were due from then on.
    async fn watch(&self, sick: &Sick, is_sick: bool) -> anyhow::Result<Vec<i64>> {
        let consumer = Consumer::default();
        let following = self.place.follow_from_now(self.server).await?;
        let (healthy, other) = (Bodies::batches_to(HEALTHY), Bodies::batches_to(&sick.name));
        let healthy = Load::new(stage::pace(&healthy, HEALTHY_RATE, self.span), healthy);
        let other = Load::new(stage::pace(&other, SICK_RATE, self.span), other);
        let address = self.server.address();
        let onset = async {
            sleep_until(Instant::now() + self.span / HEAD).await;
            let onset_ms = now_ms();
            if is_sick {
                self.begin(sick).await?;
            }
            Ok(onset_ms)
        };
        let work = async {
            let ((), (), onset_ms) = try_join3(healthy.run(address), other.run(address), onset).await?;
            consumer.wait_for(healthy.accepted()).await;
            anyhow::Ok(onset_ms)
        };
        let limit = self.span + LIMIT;
        let onset_ms = tokio::select! {
            result = timeout(limit, work) => {
                result.with_context(|| format!("{HEALTHY} is not delivered; the log ends:\n{}", self.server.log_tail()))??
            }
            result = consumer.follow(following) => {
                result?;
                bail!("the consumer ended")
            }
        };
        let late = |arrival: &Arrival| arrival.arrived_ms - arrival.due_ms;
        let arrivals = consumer.into_arrivals();
        if let Some(early) = arrivals.iter().find(|arrival| late(arrival) < 0) {
            bail!("a message arrived before its time: {early:?}");
        }
        Ok(arrivals.iter().filter(|arrival| arrival.due_ms >= onset_ms).map(late).collect())
    }

    async fn begin(&self, sick: &Sick) -> anyhow::Result<()> {
        match sick.trouble {
            Trouble::Denied => self.broker.deny_everything(&sick.name).await,
            Trouble::Deleted => self.broker.cluster()?.start_deleting(&sick.name).await,
            Trouble::Throttled => self.broker.throttle(&sick.name, THROTTLED_BYTES).await,
        }
    }

    /// A trouble that did not come about would make a good figure.
    async fn check_trouble(&self, sick: &Sick) -> anyhow::Result<()> {
        let call = self.server.client().call(Method::GET, &["v1", "counts"]);
        let counts = call.query("destination", Some(&sick.name)).send::<client::api::message::Counts>().await?.body;
        if counts.scheduled + counts.retrying + counts.publishing + counts.uncertain == 0 {
            bail!("destination {} is not in trouble: {counts:?}", sick.name);
        }
        Ok(())
    }

    /// Lets the sick destination rest, so that the next trouble is the only one.
    async fn pause(&self, sick: &Sick) -> anyhow::Result<()> {
        let call = self.server.client().call(Method::POST, &["v1", "destinations", &sick.name]).verb(":pause");
        call.send::<Destination>().await.context("pausing a destination").map(drop)
    }
}

fn sick_connection(broker: &Broker, sick: &Sick, password: &Path) -> KafkaConnection {
    let mut connection = connection(&broker.bootstrap(), &sick.name);
    let mut set = |name: &str, value: String| connection.settings.insert(name.to_owned(), value);
    match sick.trouble {
        Trouble::Denied => {
            set("security.protocol", "sasl_plaintext".to_owned());
            set("sasl.mechanism", "SCRAM-SHA-512".to_owned());
            set("sasl.username", USER.to_owned());
            set("sasl.password", format!("file:{}", password.display()));
            connection.bootstrap_servers = broker.bootstrap_sasl();
        }
        Trouble::Deleted => {}
        Trouble::Throttled => drop(set("client.id", sick.name.clone())),
    }
    connection
}
