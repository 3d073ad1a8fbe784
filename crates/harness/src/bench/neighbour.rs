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
/// A client id that is throttled, and to how many bytes a second.
const THROTTLED_CLIENT: &str = "throttled";
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

impl Trouble {
    /// The destination it happens to, and its topic.
    const fn name(self) -> &'static str {
        match self {
            Trouble::Denied => "denied",
            Trouble::Deleted => "deleted",
            Trouble::Throttled => "throttled",
        }
    }
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
    let (mut calm, mut all, mut by_trouble) = (Vec::new(), Vec::new(), Vec::new());
    for trouble in TROUBLES {
        say(&format!("neighbour of {}, in peace", trouble.name()));
        calm.extend(scene.watch(trouble, false).await?);
        say(&format!("neighbour of {}, in trouble", trouble.name()));
        let mut lateness = scene.watch(trouble, true).await?;
        all.extend_from_slice(&lateness);
        by_trouble.push((trouble.name(), Percentiles::of(&mut lateness, 1.0)));
        scene.check_trouble(trouble).await?;
        scene.pause(trouble).await?;
    }
    let (after, broker_after) = (Reading::take(&server).await?, broker.usage()?);
    server.stop().await?;
    Ok(Neighbour {
        calm: Percentiles::of(&mut calm, 1.0),
        trouble: Percentiles::of(&mut all, 1.0),
        by_trouble,
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
        for name in TROUBLES.map(Trouble::name).into_iter().chain([HEALTHY]) {
            cluster.create_topic(name, i32::try_from(PARTITIONS)?, &[]).await?;
        }
        broker.allow_writing(Trouble::Denied.name()).await?;
        create_destination(server, HEALTHY, connection(&broker.bootstrap(), HEALTHY)).await?;
        for trouble in TROUBLES {
            let connection = sick_connection(broker, trouble, &password);
            create_destination(server, trouble.name(), connection).await?;
        }
        Ok(Scene { broker, server, place: Place::Kafka(KafkaPlace { cluster, topic: HEALTHY.to_owned() }), span })
    }

    /// Both destinations at their pace, and the trouble when its time comes. Returns how late the healthy one's messages were
    /// that were due from then on.
    async fn watch(&self, trouble: Trouble, is_sick: bool) -> anyhow::Result<Vec<i64>> {
        let consumer = Consumer::default();
        let following = self.place.follow_from_now(self.server).await?;
        let (healthy, sick) = (Bodies::batches_to(HEALTHY), Bodies::batches_to(trouble.name()));
        let healthy = Load::new(stage::pace(&healthy, HEALTHY_RATE, self.span), healthy);
        let sick = Load::new(stage::pace(&sick, SICK_RATE, self.span), sick);
        let address = self.server.address();
        let onset = async {
            sleep_until(Instant::now() + self.span / HEAD).await;
            let onset_ms = now_ms();
            if is_sick {
                self.begin(trouble).await?;
            }
            Ok(onset_ms)
        };
        let work = async {
            let ((), (), onset_ms) = try_join3(healthy.run(address), sick.run(address), onset).await?;
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

    async fn begin(&self, trouble: Trouble) -> anyhow::Result<()> {
        match trouble {
            Trouble::Denied => self.broker.deny_everything(trouble.name()).await,
            Trouble::Deleted => self.broker.cluster()?.start_deleting(trouble.name()).await,
            Trouble::Throttled => self.broker.throttle(THROTTLED_CLIENT, THROTTLED_BYTES).await,
        }
    }

    /// A trouble that did not come about would make a good figure.
    async fn check_trouble(&self, trouble: Trouble) -> anyhow::Result<()> {
        let call = self.server.client().call(Method::GET, &["v1", "counts"]);
        let counts = call.query("destination", Some(trouble.name())).send::<client::api::message::Counts>().await?.body;
        if counts.scheduled + counts.retrying + counts.publishing + counts.uncertain == 0 {
            bail!("destination {} is not in trouble: {counts:?}", trouble.name());
        }
        Ok(())
    }

    /// Lets the sick destination rest, so that the next trouble is the only one.
    async fn pause(&self, trouble: Trouble) -> anyhow::Result<()> {
        let call = self.server.client().call(Method::POST, &["v1", "destinations", trouble.name()]).verb(":pause");
        call.send::<Destination>().await.context("pausing a destination").map(drop)
    }
}

fn sick_connection(broker: &Broker, trouble: Trouble, password: &Path) -> KafkaConnection {
    let mut connection = connection(&broker.bootstrap(), trouble.name());
    let mut set = |name: &str, value: String| connection.settings.insert(name.to_owned(), value);
    match trouble {
        Trouble::Denied => {
            set("security.protocol", "sasl_plaintext".to_owned());
            set("sasl.mechanism", "SCRAM-SHA-512".to_owned());
            set("sasl.username", USER.to_owned());
            set("sasl.password", format!("file:{}", password.display()));
            connection.bootstrap_servers = broker.bootstrap_sasl();
        }
        Trouble::Deleted => {}
        Trouble::Throttled => drop(set("client.id", THROTTLED_CLIENT.to_owned())),
    }
    connection
}
