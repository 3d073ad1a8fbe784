//! The metadata store of a world: one server, a client in every process, sessions that end when nothing is heard of theirs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use ports::metadata::{ChangeError, Expected, Metadata, MetadataUnavailable, Session, Versioned, WatchEvent};
use tokio::sync::{Notify, watch};

use super::link::{Link, Paces};
use super::random::{Delay, chance};
use super::shared::{Shared, wait};
use super::{Process, ProcessId, World};

/// Events that may wait for the reader of a watch.
const WATCH_EVENTS_MAX: usize = 64;

/// How long sessions live without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTimes {
    /// After this much silence the server ends a session.
    pub timeout: Duration,
    /// After this much silence a client does not count on its session any more. Shorter.
    pub guard: Duration,
}

/// How often changes fail, of a hundred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataFaults {
    /// Nothing happens, and the server says so.
    pub unavailable_percent: u8,
    /// The answer is lost; half of the changes happened.
    pub unknown_percent: u8,
    /// A watch tells of the same change again.
    pub watch_twice_percent: u8,
    /// How long a watch's news is on its way.
    pub watch_delay: Delay,
}

struct Row {
    value: Bytes,
    version: u64,
    session: Option<u64>,
}

struct State {
    rows: BTreeMap<String, Row>,
    version_last: u64,
    session_last: u64,
    sessions: BTreeMap<u64, LiveSession>,
    watches: Vec<Weak<WatchState>>,
    paces: Paces,
    faults: MetadataFaults,
    random: Rng,
}

struct LiveSession {
    client: ProcessId,
    is_over: watch::Sender<bool>,
    /// Since when its client keeps it alive no more, although the process lives.
    abandoned_since: Option<Duration>,
}

/// The metadata store.
#[derive(Clone)]
pub struct MetadataServer {
    shared: Arc<Shared>,
    times: SessionTimes,
    state: Arc<Mutex<State>>,
}

impl MetadataServer {
    /// An empty store.
    pub fn new(world: &World, times: SessionTimes) -> MetadataServer {
        let shared = world.shared().clone();
        let state = State {
            rows: BTreeMap::new(),
            version_last: 0,
            session_last: 0,
            sessions: BTreeMap::new(),
            watches: Vec::new(),
            paces: Paces::fixed(1, 1),
            faults: MetadataFaults::default(),
            random: shared.stream("metadata"),
        };
        let server = MetadataServer { shared, times, state: Arc::new(Mutex::new(state)) };
        world.spawn("sessions", server.clone().watch_presences());
        server
    }

    /// The store as a process uses it.
    pub fn client(&self, process: &Process) -> Arc<dyn Metadata> {
        let link = Link::new(self.shared.clone(), process.id(), "metadata");
        Arc::new(MetadataClient { server: self.clone(), link })
    }

    /// How long requests take from now on.
    pub fn set_paces(&self, paces: Paces) {
        self.lock().paces = paces;
    }

    /// How changes fail from now on.
    pub fn set_faults(&self, faults: MetadataFaults) {
        self.lock().faults = faults;
    }

    /// How changes fail.
    pub fn faults(&self) -> MetadataFaults {
        self.lock().faults
    }

    /// Ends every session of a process at once, as a server that was restored from a backup may.
    pub fn end_sessions(&self, process: &Process) {
        let mut state = self.lock();
        let of_process = |(id, session): (&u64, &LiveSession)| (session.client == process.id()).then_some(*id);
        let sessions: Vec<u64> = state.sessions.iter().filter_map(of_process).collect();
        for session in sessions {
            self.end_session(&mut state, session);
        }
    }

    /// Makes every watch list again.
    pub fn resync_watches(&self) {
        for watch in self.lock().watches.iter().filter_map(Weak::upgrade) {
            watch.lose();
        }
    }

    async fn watch_presences(self) {
        let mut presences = self.shared.presences.subscribe();
        loop {
            presences.mark_unchanged();
            let changed = match self.end_silent_sessions() {
                Some(next) => {
                    let ahead = next.saturating_sub(self.shared.elapsed()).max(Duration::from_millis(1));
                    tokio::select! {
                        biased;
                        changed = presences.changed() => changed,
                        () = wait(ahead) => Ok(()),
                    }
                }
                None => presences.changed().await,
            };
            if changed.is_err() {
                return;
            }
            for watch in self.lock().watches.iter().filter_map(Weak::upgrade) {
                watch.arrived.notify_one();
            }
        }
    }

    /// Ends the sessions of which nothing was heard for too long, and says when there may be another.
    fn end_silent_sessions(&self) -> Option<Duration> {
        let now = self.shared.elapsed();
        let mut state = self.lock();
        let mut next: Option<Duration> = None;
        let mut over = Vec::new();
        for (id, session) in &state.sessions {
            let silent_since = self.shared.presence(session.client).silent_since;
            let Some(since) = silent_since.into_iter().chain(session.abandoned_since).min() else { continue };
            let end = since + self.times.timeout;
            if end <= now {
                over.push(*id);
            } else {
                next = Some(next.map_or(end, |next| next.min(end)));
            }
        }
        for session in over {
            self.end_session(&mut state, session);
        }
        next
    }

    fn end_session(&self, state: &mut State, session: u64) {
        let Some(live) = state.sessions.remove(&session) else { return };
        self.shared.event(format_args!("metadata session={session} of={} over", live.client.0));
        live.is_over.send_replace(true);
        let of_session = |(key, row): (&String, &Row)| (row.session == Some(session)).then(|| key.clone());
        let keys: Vec<String> = state.rows.iter().filter_map(of_session).collect();
        for key in keys {
            state.rows.remove(&key);
            state.publish(&WatchEvent::Deleted { key });
        }
    }

    fn change(
        &self,
        client: ProcessId,
        change: impl FnOnce(&mut State) -> Result<u64, ChangeError>,
    ) -> Result<u64, ChangeError> {
        let injected = || "injected".to_owned();
        if self.shared.presence(client).is_cut_off {
            return Err(ChangeError::Unavailable { reason: "out of reach".to_owned() });
        }
        let mut state = self.lock();
        let faults = state.faults;
        let is_unavailable = chance(&mut state.random, faults.unavailable_percent);
        let is_unknown = chance(&mut state.random, faults.unknown_percent);
        let happens = chance(&mut state.random, 50);
        if is_unavailable {
            return Err(ChangeError::Unavailable { reason: injected() });
        }
        if is_unknown {
            if happens {
                // Whether it held is as unknown as whether it happened.
                let _ = change(&mut state);
            }
            return Err(ChangeError::Unknown { reason: injected() });
        }
        change(&mut state)
    }

    fn read<T>(&self, client: ProcessId, read: impl FnOnce(&State) -> T) -> Result<T, MetadataUnavailable> {
        if self.shared.presence(client).is_cut_off {
            return Err(MetadataUnavailable { reason: "out of reach".to_owned() });
        }
        Ok(read(&self.lock()))
    }

    fn draw_watch(&self) -> (Duration, bool) {
        let mut state = self.lock();
        let MetadataFaults { watch_twice_percent, watch_delay, .. } = state.faults;
        (watch_delay.draw(&mut state.random), chance(&mut state.random, watch_twice_percent))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn expect(&self, key: &str, expected: Expected) -> Result<(), ChangeError> {
        let found = self.rows.get(key).map(|row| row.version);
        let holds = match expected {
            Expected::Absent => found.is_none(),
            Expected::Version(version) => found == Some(version),
        };
        if holds { Ok(()) } else { Err(ChangeError::Conflict { expected, found }) }
    }

    fn put(&mut self, key: String, value: Bytes, expected: Expected, session: Option<u64>) -> Result<u64, ChangeError> {
        if let Some(session) = session.filter(|session| !self.sessions.contains_key(session)) {
            return Err(ChangeError::SessionOver { session });
        }
        self.expect(&key, expected)?;
        self.version_last += 1;
        let version = self.version_last;
        let record = Versioned { value: value.clone(), version };
        self.rows.insert(key.clone(), Row { value, version, session });
        self.publish(&WatchEvent::Put { key, record });
        Ok(version)
    }

    fn delete(&mut self, key: String, version: u64) -> Result<u64, ChangeError> {
        self.expect(&key, Expected::Version(version))?;
        self.rows.remove(&key);
        self.publish(&WatchEvent::Deleted { key });
        Ok(version)
    }

    fn publish(&mut self, event: &WatchEvent) {
        let (WatchEvent::Put { key, .. } | WatchEvent::Deleted { key }) = event else { return };
        self.watches.retain(|watch| {
            let Some(watch) = watch.upgrade() else { return false };
            if key.starts_with(&watch.prefix) {
                watch.offer(event);
            }
            true
        });
    }
}

struct WatchState {
    shared: Arc<Shared>,
    client: ProcessId,
    prefix: String,
    inbox: Mutex<Inbox>,
    arrived: Notify,
}

struct Inbox {
    events: VecDeque<WatchEvent>,
    must_resync: bool,
}

impl WatchState {
    fn offer(&self, event: &WatchEvent) {
        let mut inbox = self.lock();
        let is_lost = inbox.events.len() >= WATCH_EVENTS_MAX || self.shared.presence(self.client).is_cut_off;
        if inbox.must_resync || is_lost {
            inbox.must_resync = true;
            inbox.events.clear();
        } else {
            inbox.events.push_back(event.clone());
        }
        drop(inbox);
        self.arrived.notify_one();
    }

    fn lose(&self) {
        let mut inbox = self.lock();
        inbox.must_resync = true;
        inbox.events.clear();
        drop(inbox);
        self.arrived.notify_one();
    }

    async fn next(&self) -> WatchEvent {
        loop {
            if !self.shared.presence(self.client).is_cut_off {
                let mut inbox = self.lock();
                if std::mem::take(&mut inbox.must_resync) {
                    return WatchEvent::Resync;
                }
                if let Some(event) = inbox.events.pop_front() {
                    return event;
                }
            }
            self.arrived.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct MetadataClient {
    server: MetadataServer,
    link: Link,
}

impl MetadataClient {
    fn change(
        &self,
        change: impl FnOnce(&mut State) -> Result<u64, ChangeError> + Send + 'static,
    ) -> BoxFuture<'static, Result<u64, ChangeError>> {
        let (server, client, paces) = (self.server.clone(), self.link.client, self.server.lock().paces);
        let answer = self.link.call(paces, move || server.change(client, change));
        let lost = |_| ChangeError::Unknown { reason: "the request was lost".to_owned() };
        answer.map(move |answer| answer.map_err(lost)?).boxed()
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, MetadataUnavailable>> {
        let (server, client, paces) = (self.server.clone(), self.link.client, self.server.lock().paces);
        let answer = self.link.call(paces, move || server.read(client, read));
        let lost = |_| MetadataUnavailable { reason: "the request was lost".to_owned() };
        answer.map(move |answer| answer.map_err(lost)?).boxed()
    }
}

fn versioned(row: &Row) -> Versioned {
    Versioned { value: row.value.clone(), version: row.version }
}

impl Metadata for MetadataClient {
    fn get(&self, key: &str) -> BoxFuture<'static, Result<Option<Versioned>, MetadataUnavailable>> {
        let key = key.to_owned();
        self.read(move |state| state.rows.get(&key).map(versioned))
    }

    fn put(&self, key: &str, value: Bytes, expected: Expected) -> BoxFuture<'static, Result<u64, ChangeError>> {
        let key = key.to_owned();
        self.change(move |state| state.put(key, value, expected, None))
    }

    fn put_ephemeral(&self, key: &str, value: Bytes, session: u64) -> BoxFuture<'static, Result<u64, ChangeError>> {
        let key = key.to_owned();
        self.change(move |state| state.put(key, value, Expected::Absent, Some(session)))
    }

    fn delete(&self, key: &str, version: u64) -> BoxFuture<'static, Result<(), ChangeError>> {
        let key = key.to_owned();
        self.change(move |state| state.delete(key, version)).map(|deleted| deleted.map(|_| ())).boxed()
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> BoxFuture<'static, Result<Vec<(String, Versioned)>, MetadataUnavailable>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.read(move |state| {
            let wanted = |key: &&String| after.as_ref().is_none_or(|after| *key > after);
            let rows = state.rows.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
            rows.filter(|(key, _)| wanted(key)).take(limit).map(|(key, row)| (key.clone(), versioned(row))).collect()
        })
    }

    fn watch(&self, prefix: &str) -> BoxStream<'static, WatchEvent> {
        let watch = Arc::new(WatchState {
            shared: self.link.shared.clone(),
            client: self.link.client,
            prefix: prefix.to_owned(),
            inbox: Mutex::new(Inbox { events: VecDeque::new(), must_resync: true }),
            arrived: Notify::new(),
        });
        self.server.lock().watches.push(Arc::downgrade(&watch));
        let news = (watch, self.server.clone(), None);
        let next = |(watch, server, again): (Arc<WatchState>, MetadataServer, Option<WatchEvent>)| async move {
            if let Some(event) = again {
                return Some((event, (watch, server, None)));
            }
            let event = watch.next().await;
            let (delay, is_told_twice) = server.draw_watch();
            wait(delay).await;
            let again = is_told_twice.then(|| event.clone());
            Some((event, (watch, server, again)))
        };
        stream::unfold(news, next).boxed()
    }

    fn open_session(&self) -> BoxFuture<'static, Result<Box<dyn Session>, MetadataUnavailable>> {
        let (server, link, paces) = (self.server.clone(), self.link.clone(), self.server.lock().paces);
        let client = link.client;
        let answer = self.link.call(paces, move || {
            let presence = server.shared.presence(client);
            if presence.is_cut_off || presence.is_dead {
                return Err(MetadataUnavailable { reason: "out of reach".to_owned() });
            }
            let mut state = server.lock();
            state.session_last += 1;
            let id = state.session_last;
            let (sender, is_over) = watch::channel(false);
            state.sessions.insert(id, LiveSession { client, is_over: sender, abandoned_since: None });
            drop(state);
            server.shared.event(format_args!("metadata session={id} of={} opened", client.0));
            Ok(Box::new(ClientSession { server, link, id, is_over }) as Box<dyn Session>)
        });
        let lost = |_| MetadataUnavailable { reason: "the request was lost".to_owned() };
        answer.map(move |answer| answer.map_err(lost)?).boxed()
    }
}

struct ClientSession {
    server: MetadataServer,
    link: Link,
    id: u64,
    is_over: watch::Receiver<bool>,
}

impl Session for ClientSession {
    fn id(&self) -> u64 {
        self.id
    }

    fn remaining(&self) -> Duration {
        if *self.is_over.borrow() {
            return Duration::ZERO;
        }
        let shared = &self.link.shared;
        let silence = shared.presence(self.link.client).silent_since.map(|since| shared.elapsed() - since);
        self.server.times.guard.saturating_sub(silence.unwrap_or_default())
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        let (shared, client, guard) = (self.link.shared.clone(), self.link.client, self.server.times.guard);
        let mut is_over = self.is_over.clone();
        let mut presences = shared.presences.subscribe();
        async move {
            loop {
                presences.mark_unchanged();
                let silent_since = shared.presence(client).silent_since;
                let left = silent_since.map(|since| (since + guard).saturating_sub(shared.elapsed()));
                if *is_over.borrow() || left.is_some_and(|left| left.is_zero()) {
                    return;
                }
                let doubt = async {
                    match left {
                        Some(left) => wait(left).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    // A server that is gone has ended it too.
                    _ = is_over.wait_for(|is_over| *is_over) => return,
                    _ = presences.changed() => {}
                    () = doubt => {}
                }
            }
        }
        .boxed()
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        let presence = self.link.shared.presence(self.link.client);
        if presence.is_dead || *self.is_over.borrow() {
            return;
        }
        if presence.is_cut_off {
            // The goodbye does not arrive, and nothing else will: the server waits for its timeout.
            if let Some(session) = self.server.lock().sessions.get_mut(&self.id) {
                session.abandoned_since = Some(self.link.shared.elapsed());
            }
            self.link.shared.change_presence(self.link.client, |_| {});
            return;
        }
        let (server, id, paces) = (self.server.clone(), self.id, self.server.lock().paces);
        drop(self.link.call(paces, move || {
            let mut state = server.lock();
            server.end_session(&mut state, id);
        }));
    }
}
