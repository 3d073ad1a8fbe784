//! The way between a process and a server: requests take their time there, take effect, and answers take their time back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::{oneshot, watch};

use super::random::{Delay, chance};
use super::shared::{ProcessId, Shared, wait};

/// Of a hundred requests, how many have left a process that is killed before they took effect.
const SENT_BEFORE_DEATH_PERCENT: u8 = 50;

/// How long requests and answers are on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paces {
    /// From the call until it takes effect.
    pub there: Delay,
    /// From its effect until the caller has the answer.
    pub back: Delay,
}

impl Paces {
    /// A request that takes this long in all, most of it on its way there.
    pub const fn fixed(there_ms: u64, back_ms: u64) -> Paces {
        Paces { there: Delay::fixed(there_ms), back: Delay::fixed(back_ms) }
    }
}

/// One process's way to one server.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: ProcessId,
    random: Arc<Mutex<Rng>>,
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>, client: ProcessId, server: &str) -> Link {
        let random = shared.stream(&format!("way of process {} to {server}", client.0));
        Link { shared, client, random: Arc::new(Mutex::new(random)) }
    }

    /// Sends a request on its way at once. Whoever drops the answer does not call it back.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        paces: Paces,
        effect: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        self.call_behind(paces, std::future::ready(()), effect)
    }

    /// As [`Link::call`], but the requests of one connection take effect in the order they were sent. One that is lost with its
    /// process takes along those behind it.
    pub(crate) fn call_in_turn<T: Send + 'static>(
        &self,
        paces: Paces,
        turns: &Turns,
        effect: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (turn, turns) = (turns.take(), turns.clone());
        let before = turns.clone();
        self.call_behind(paces, async move { before.wait_for(turn).await }, move || {
            let result = effect();
            turns.next.send_replace(turn + 1);
            result
        })
    }

    fn call_behind<T: Send + 'static>(
        &self,
        paces: Paces,
        before: impl Future<Output = ()> + Send + 'static,
        effect: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (there, back, survives) = self.draw(paces);
        let (sender, answer) = oneshot::channel();
        let request = async move {
            wait(there).await;
            before.await;
            let result = effect();
            wait(back).await;
            // A caller that gave up does not mind.
            let _ = sender.send(result);
        };
        let carrier = if survives { ProcessId::WORLD } else { self.client };
        self.shared.spawn(carrier, "request", Box::pin(request));
        answer
    }

    fn draw(&self, paces: Paces) -> (Duration, Duration, bool) {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        (paces.there.draw(&mut random), paces.back.draw(&mut random), chance(&mut random, SENT_BEFORE_DEATH_PERCENT))
    }
}

/// The order of the requests on one connection.
#[derive(Clone)]
pub(crate) struct Turns {
    taken: Arc<Mutex<u64>>,
    next: watch::Sender<u64>,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns { taken: Arc::default(), next: watch::Sender::new(0) }
    }

    fn take(&self) -> u64 {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        *taken - 1
    }

    async fn wait_for(&self, turn: u64) {
        // The sender is this one's own.
        let _ = self.next.subscribe().wait_for(|next| *next == turn).await;
    }
}
