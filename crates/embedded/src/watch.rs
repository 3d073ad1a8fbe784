//! Watches of metadata: bounded queues that say so when they lost something.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ports::metadata::WatchEvent;
use tokio::sync::Notify;

#[derive(Debug)]
struct Inbox {
    events: VecDeque<WatchEvent>,
    /// The reader has to list before events mean anything to it: at the start, and after an overflow.
    must_resync: bool,
    is_closed: bool,
}

#[derive(Debug)]
struct WatchState {
    prefix: String,
    events_max: usize,
    inbox: Mutex<Inbox>,
    arrived: Notify,
}

impl WatchState {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // Nothing that can panic happens between two changes under this lock.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offer(&self, event: &WatchEvent) {
        let mut inbox = self.inbox();
        if inbox.must_resync {
            // What happened before the reader is told to list is in the list.
            return;
        }
        if inbox.events.len() >= self.events_max {
            inbox.events.clear();
            inbox.must_resync = true;
        } else {
            inbox.events.push_back(event.clone());
        }
        drop(inbox);
        self.arrived.notify_one();
    }
}

/// Every watch there is.
#[derive(Debug)]
pub(crate) struct WatchHub {
    watches: Mutex<Vec<Weak<WatchState>>>,
    events_max: usize,
}

impl WatchHub {
    pub(crate) fn new(events_max: usize) -> WatchHub {
        WatchHub { watches: Mutex::default(), events_max }
    }

    fn watches(&self) -> MutexGuard<'_, Vec<Weak<WatchState>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watch(&self, prefix: &str) -> Watch {
        let inbox = Inbox { events: VecDeque::new(), must_resync: true, is_closed: false };
        let state = Arc::new(WatchState {
            prefix: prefix.to_owned(),
            events_max: self.events_max,
            inbox: Mutex::new(inbox),
            arrived: Notify::new(),
        });
        self.watches().push(Arc::downgrade(&state));
        Watch { state }
    }

    /// Tells every watch of the event's key. The change is durable already.
    pub(crate) fn publish(&self, event: &WatchEvent) {
        let (WatchEvent::Put { key, .. } | WatchEvent::Deleted { key }) = event else { return };
        self.watches().retain(|watch| {
            let Some(watch) = watch.upgrade() else { return false };
            if key.starts_with(&watch.prefix) {
                watch.offer(event);
            }
            true
        });
    }

    /// Ends every watch once its events are read.
    pub(crate) fn close(&self) {
        for watch in self.watches().drain(..).filter_map(|watch| watch.upgrade()) {
            watch.inbox().is_closed = true;
            watch.arrived.notify_one();
        }
    }
}

/// Changes of the keys under a prefix. Its first event is [`WatchEvent::Resync`], and so is the one after it fell too far
/// behind.
#[derive(Debug)]
pub struct Watch {
    state: Arc<WatchState>,
}

impl Watch {
    /// The next event; waits for one. `None` once the engine is closed.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            {
                let mut inbox = self.state.inbox();
                if inbox.must_resync {
                    inbox.must_resync = false;
                    return Some(WatchEvent::Resync);
                }
                if let Some(event) = inbox.events.pop_front() {
                    return Some(event);
                }
                if inbox.is_closed {
                    return None;
                }
            }
            // An event that arrives here has left its permit, so the wait is over at once.
            self.state.arrived.notified().await;
        }
    }
}
