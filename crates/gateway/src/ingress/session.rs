//! The life of an ingress: joining its group, handing records to its partitions, and joining again after whatever ended it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control::ingress::IngressRecord;
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use ports::source::{SourceError, SourceEvent, SourcePartition, SourceRecord, SourceSession};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, sleep_until};

use super::inbox::{Inbox, Pushed};
use super::partition::{Partition, Pauses, Start, Surroundings};
use super::settings::Settings;
use super::status::{Entry, PartitionStatus};
use crate::state::Gateway;

/// How often it is asked where partitions end.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How long a session has to last for the next one to be opened without a long pause.
const STEADY: Duration = Duration::from_secs(60);

/// Lives until the ingress is deleted, or it is dropped.
pub(super) async fn live(gateway: &Gateway, entry: Arc<Entry>) {
    let mut record = entry.follow();
    let mut pauses = Pauses::new();
    loop {
        let Some(current) = record.borrow_and_update().clone() else { return };
        let began = Instant::now();
        let ended = tokio::select! {
            // Whoever changes the record lets the session go first.
            biased;
            changed = record.changed() => match changed {
                Ok(()) => None,
                // The entry is gone, and with it the ingress.
                Err(_) => return,
            },
            error = run(gateway, &entry, &current) => Some(error),
        };
        close(&entry);
        let Some(error) = ended else {
            pauses.reset();
            continue;
        };
        if began.elapsed() >= STEADY {
            pauses.reset();
        }
        let pause = pauses.next();
        tracing::warn!(ingress = current.name, %error, pause_ms = pause.as_millis(), "an ingress has no session");
        entry.failed(&error.to_string());
        entry.change(|status| status.reason = Some(error.to_string()));
        wait(&mut record, pause).await;
    }
}

/// Waits, unless the record changes.
async fn wait(record: &mut watch::Receiver<Option<Arc<IngressRecord>>>, pause: Duration) {
    tokio::select! {
        () = sleep_until(Instant::now() + pause) => {}
        // What it says now is read by the caller.
        _ = record.changed() => record.mark_changed(),
    }
}

fn close(entry: &Entry) {
    entry.change(|status| {
        status.is_open = false;
        status.reason = None;
        status.partitions.clear();
    });
}

/// Runs one session until it breaks; a paused ingress has none.
async fn run(gateway: &Gateway, entry: &Entry, record: &IngressRecord) -> SourceError {
    if record.paused {
        return std::future::pending().await;
    }
    let settings = match Settings::read(record) {
        Ok(settings) => settings,
        Err(detail) => return SourceError { detail },
    };
    let Some(system) = gateway.sources.get(settings.system.as_str()) else {
        return SourceError { detail: format!("this server cannot read topics of {}", settings.system) };
    };
    match system.open(settings.source()).await {
        Ok(session) => {
            entry.change(|status| (status.is_open, status.reason) = (true, None));
            tracing::info!(ingress = settings.name, topic = settings.topic, group = settings.group, "an ingress reads");
            let around = Surroundings { gateway, entry, settings: &settings, session: &*session };
            match read(around).await {
                Ok(never) => match never {},
                Err(error) => error,
            }
        }
        Err(error) => error,
    }
}

/// The partitions that the session has.
#[derive(Default)]
struct Assigned {
    partitions: BTreeMap<SourcePartition, (Arc<Inbox>, AbortHandle)>,
}

impl Assigned {
    fn revoke(&mut self, entry: &Entry, partition: &SourcePartition) {
        if let Some((_, life)) = self.partitions.remove(partition) {
            // At whatever point it stands: that is as good as a crash, and no worse.
            life.abort();
        }
        entry.change(|status| {
            status.partitions.remove(partition);
        });
    }
}

async fn read(around: Surroundings<'_>) -> Result<std::convert::Infallible, SourceError> {
    let Surroundings { entry, session, .. } = around;
    let mut assigned = Assigned::default();
    let mut lives = FuturesUnordered::new();
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // What came is carried out before more is taken; when there is enough, the session is told to stop.
            biased;
            // One that was revoked has nothing to say.
            Some(ended) = lives.next() => if let Ok(error) = ended {
                return Err(error);
            },
            event = session.next() => match event? {
                SourceEvent::Assigned { partition, committed, first, end } => {
                    assigned.revoke(entry, &partition);
                    entry.change(|status| {
                        let known = PartitionStatus { end: Some(end), ..PartitionStatus::default() };
                        status.partitions.insert(partition.clone(), known);
                    });
                    let inbox = Arc::new(Inbox::default());
                    let (abort, registration) = AbortHandle::new_pair();
                    assigned.partitions.insert(partition.clone(), (inbox.clone(), abort));
                    let start = Start { committed, first, end };
                    lives.push(Abortable::new(live_partition(around, partition, inbox, start), registration));
                }
                SourceEvent::Revoked { partition } => assigned.revoke(entry, &partition),
                SourceEvent::Records { partition, records } => deliver(session, &assigned, &partition, records)?,
            },
            _ = look.tick() => look_for_ends(entry, session),
        }
    }
}

async fn live_partition(
    around: Surroundings<'_>,
    partition: SourcePartition,
    inbox: Arc<Inbox>,
    start: Start,
) -> SourceError {
    Partition::new(around, partition, &inbox).live(start).await
}

fn deliver(
    session: &dyn SourceSession,
    assigned: &Assigned,
    partition: &SourcePartition,
    records: Vec<SourceRecord>,
) -> Result<(), SourceError> {
    // What comes of a partition that was revoked meanwhile is the next reader's.
    let Some((inbox, _)) = assigned.partitions.get(partition) else { return Ok(()) };
    match inbox.push(records) {
        Pushed::Fits => Ok(()),
        Pushed::Enough => session.stop(partition),
        Pushed::TooMuch => {
            let detail = format!("partition {} was read on although its records wait", partition.partition);
            Err(SourceError { detail })
        }
    }
}

/// Keeps the lag of partitions true whose records wait.
fn look_for_ends(entry: &Entry, session: &dyn SourceSession) {
    entry.change(|status| {
        for (partition, known) in &mut status.partitions {
            known.end = session.end(partition).or(known.end);
        }
    });
}
