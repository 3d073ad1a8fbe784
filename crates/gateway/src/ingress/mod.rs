//! Header ingress: plain producers schedule messages by headers on ordinary topic records (ADR 0024).
//!
//! An ingress reads a topic as a member of a consumer group. Each record schedules exactly one message, over restarts,
//! rebalances and readings from the beginning at any time later, because everything that decides that is durable or derived:
//! [`partition`] makes a run of records durable before it carries it out, [`ids`] derives ids from the run and a record's place,
//! [`decide`] asks for them before it sends again. [`record`] says what a record asks for, [`side`] what is written about it
//! beside the topic, [`session`] is the life of an ingress, [`service`] what operators do.

mod decide;
mod ids;
mod inbox;
mod partition;
pub(crate) mod record;
pub(crate) mod service;
mod session;
mod settings;
mod side;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use control::cas::RecordError;
use control::ingress::{self, IngressRecord};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use ports::metadata::WatchEvent;
use tokio::sync::Notify;

pub(crate) use self::status::Entry;
use crate::state::Gateway;

/// The ingresses of this server, as their records say; kept up to date by a watch.
#[derive(Default)]
pub(crate) struct Ingresses {
    by_name: RwLock<BTreeMap<String, Arc<Entry>>>,
    /// Told when there is one that was not there before.
    added: Notify,
}

impl Ingresses {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Entry>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn put(&self, record: IngressRecord) -> Arc<Entry> {
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = by_name.get(&record.name) {
            entry.put(Some(record));
            return entry.clone();
        }
        let name = record.name.clone();
        let entry = Arc::new(Entry::new(record));
        by_name.insert(name, entry.clone());
        drop(by_name);
        self.added.notify_one();
        entry
    }

    fn remove(&self, name: &str) {
        if let Some(entry) = self.by_name.write().unwrap_or_else(PoisonError::into_inner).remove(name) {
            entry.put(None);
        }
    }

    fn retain(&self, names: &BTreeSet<String>) {
        let gone: Vec<String> = {
            let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
            by_name.keys().filter(|name| !names.contains(*name)).cloned().collect()
        };
        for name in gone {
            self.remove(&name);
        }
    }
}

/// Reads all ingresses, then lives their lives and follows their changes until it is dropped. The first reading is complete when
/// this returns.
///
/// # Errors
/// [`RecordError`] when the metadata store does not answer.
pub(crate) async fn load(gateway: &Arc<Gateway>) -> Result<impl Future<Output = ()> + use<>, RecordError> {
    let prefix = ingress::prefix(&gateway.config.tenant);
    let mut changes = gateway.records.metadata().watch(&prefix);
    read_all(gateway, &prefix).await?;
    let gateway = gateway.clone();
    Ok(async move {
        let follow = async {
            while let Some(event) = changes.next().await {
                if let Err(error) = take(&gateway, &prefix, event).await {
                    tracing::warn!(%error, "ingresses may be out of date");
                }
            }
        };
        tokio::join!(follow, live(&gateway));
    })
}

async fn take(gateway: &Gateway, prefix: &str, event: WatchEvent) -> Result<(), RecordError> {
    match event {
        WatchEvent::Put { key, record } => {
            gateway.ingresses.put(control::cas::decode(&key, &record.value)?);
            Ok(())
        }
        WatchEvent::Resync => read_all(gateway, prefix).await,
        WatchEvent::Deleted { key } => {
            if let Some(name) = key.strip_prefix(prefix) {
                gateway.ingresses.remove(name);
            }
            Ok(())
        }
    }
}

async fn read_all(gateway: &Gateway, prefix: &str) -> Result<(), RecordError> {
    let mut names = BTreeSet::new();
    for (_, stored) in gateway.records.list::<IngressRecord>(prefix).await? {
        names.insert(stored.record.name.clone());
        gateway.ingresses.put(stored.record);
    }
    gateway.ingresses.retain(&names);
    Ok(())
}

/// Lives every ingress's life.
async fn live(gateway: &Gateway) {
    let mut lives = FuturesUnordered::new();
    loop {
        let new = gateway.ingresses.all().into_iter().filter(|entry| entry.begins());
        lives.extend(new.map(|entry| session::live(gateway, entry)));
        tokio::select! {
            () = gateway.ingresses.added.notified() => {}
            // It was deleted.
            Some(()) = lives.next() => {}
        }
    }
}
