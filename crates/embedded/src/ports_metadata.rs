//! The engine as a metadata store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream, StreamExt};
use ports::metadata::{ChangeError, Expected, Metadata, MetadataUnavailable, Session, Versioned, WatchEvent};
use tokio::sync::oneshot;

use crate::core::Core;
use crate::database::{Database, DatabaseError};
use crate::engine::Embedded;
use crate::metadata::{self, MetadataChange};
use crate::queue::{ChangeCommand, Command};
use crate::watch::Watch;

/// Metadata on one machine.
///
/// Versions come from one counter that never goes back, so a version names one state of one key for ever. A record that is
/// put again without a session is no longer ephemeral. A session lives until it is dropped, until the engine closes, or
/// until the process ends: on one machine nobody can lose sight of it before.
#[derive(Clone)]
pub struct EmbeddedMetadata {
    core: Arc<Core>,
}

impl EmbeddedMetadata {
    /// The metadata store of this engine. It does not keep the engine open.
    pub fn new(engine: &Embedded) -> EmbeddedMetadata {
        EmbeddedMetadata { core: Arc::clone(engine.core()) }
    }

    /// [`Metadata::watch`], without boxing.
    pub fn watch(&self, prefix: &str) -> Watch {
        self.core.hub.watch(prefix)
    }

    fn read<T>(&self, read: impl FnOnce(&Database) -> Result<T, DatabaseError>) -> Result<T, MetadataUnavailable> {
        let inside = self.core.gate.enter();
        let database = inside.resource().map_err(|reason| MetadataUnavailable { reason: reason.to_owned() })?;
        read(database).map_err(|error| MetadataUnavailable { reason: error.to_string() })
    }

    fn change(&self, change: MetadataChange) -> BoxFuture<'static, Result<u64, ChangeError>> {
        let core = Arc::clone(&self.core);
        async move {
            let (reply, answer) = oneshot::channel();
            let command = Command::Change(ChangeCommand { change, reply });
            core.queue.push(command).await.map_err(|closed| ChangeError::Unavailable { reason: closed.reason })?;
            match answer.await {
                Ok(outcome) => outcome,
                Err(_) => Err(ChangeError::Unknown { reason: core.closed_reason() }),
            }
        }
        .boxed()
    }
}

impl std::fmt::Debug for EmbeddedMetadata {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EmbeddedMetadata").finish_non_exhaustive()
    }
}

impl Metadata for EmbeddedMetadata {
    fn get(&self, key: &str) -> BoxFuture<'static, Result<Option<Versioned>, MetadataUnavailable>> {
        std::future::ready(self.read(|database| metadata::get(database, key))).boxed()
    }

    fn put(&self, key: &str, value: Bytes, expected: Expected) -> BoxFuture<'static, Result<u64, ChangeError>> {
        self.change(MetadataChange::Put { key: key.to_owned(), value, expected })
    }

    fn put_ephemeral(&self, key: &str, value: Bytes, session: u64) -> BoxFuture<'static, Result<u64, ChangeError>> {
        self.change(MetadataChange::PutEphemeral { key: key.to_owned(), value, session })
    }

    fn delete(&self, key: &str, version: u64) -> BoxFuture<'static, Result<(), ChangeError>> {
        self.change(MetadataChange::Delete { key: key.to_owned(), version }).map(|deleted| deleted.map(|_| ())).boxed()
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> BoxFuture<'static, Result<Vec<(String, Versioned)>, MetadataUnavailable>> {
        std::future::ready(self.read(|database| metadata::list(database, prefix, after, limit))).boxed()
    }

    fn watch(&self, prefix: &str) -> BoxStream<'static, WatchEvent> {
        let watch = self.core.hub.watch(prefix);
        stream::unfold(watch, |mut watch| async move { watch.next().await.map(|event| (event, watch)) }).boxed()
    }

    fn open_session(&self) -> BoxFuture<'static, Result<Box<dyn Session>, MetadataUnavailable>> {
        let opened = match self.core.queue.closed() {
            Some(closed) => Err(MetadataUnavailable { reason: closed.reason }),
            None => Ok(Box::new(EmbeddedSession::open(&self.core)) as Box<dyn Session>),
        };
        std::future::ready(opened).boxed()
    }
}

/// A session; dropping it ends it, and its ephemeral records go.
pub struct EmbeddedSession {
    core: Arc<Core>,
    id: u64,
}

impl EmbeddedSession {
    fn open(core: &Arc<Core>) -> EmbeddedSession {
        EmbeddedSession { core: Arc::clone(core), id: core.sessions.open() }
    }
}

impl Session for EmbeddedSession {
    fn id(&self) -> u64 {
        self.id
    }

    fn remaining(&self) -> Duration {
        if *self.core.is_closed.borrow() { Duration::ZERO } else { Duration::MAX }
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        let mut is_closed = self.core.is_closed.subscribe();
        let core = Arc::clone(&self.core);
        async move {
            // The core is held while this waits, so waiting ends only by the value.
            let _ = is_closed.wait_for(|is_closed| *is_closed).await;
            drop(core);
        }
        .boxed()
    }
}

impl Drop for EmbeddedSession {
    fn drop(&mut self) {
        self.core.sessions.end(self.id);
        self.core.queue.push_end_of_session(self.id);
    }
}

impl std::fmt::Debug for EmbeddedSession {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EmbeddedSession").field("id", &self.id).finish_non_exhaustive()
    }
}
