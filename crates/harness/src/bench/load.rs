//! The generator: a few connections that post prebuilt bodies, as fast as they are answered or at a fixed pace.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use futures_util::future::try_join_all;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::bodies::Bodies;
use super::connection::{Connection, shown};
use crate::wall_clock::now_ms;

/// What each receipt in an answer has once.
const RECEIPT_MARK: &[u8] = b"\"status\":\"scheduled\"";
/// From sending to the earliest delivery time, where deliveries happen beside the scheduling.
const LEAD_MS: i64 = 500;
/// Delivery times are spread evenly over so much behind the lead.
const SPREAD_MS: i64 = 500;
const DAY_MS: i64 = 86_400_000;

/// When messages are due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// In half a second to a second, evenly spread.
    Soon,
    /// In one day to thirty days, evenly spread: pending for the whole run.
    Far,
    /// In one millisecond.
    At(i64),
}

/// When the generator stops.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// After so many messages.
    Count(u64),
    /// When it has sent for so long.
    After(Duration),
}

/// What to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) connections: usize,
    /// Between two requests over all connections; without it each connection sends on as soon as it is answered.
    pub(crate) interval: Option<Duration>,
    pub(crate) end: End,
    pub(crate) due: Due,
    /// Messages that may be sent and not delivered, so that a rate is one that deliveries keep up with.
    pub(crate) outstanding_max: u64,
}

/// A load in progress.
pub(crate) struct Load {
    plan: Plan,
    bodies: RefCell<Bodies>,
    chance: RefCell<fastrand::Rng>,
    began: Instant,
    request_count: Cell<u32>,
    sent: Cell<u64>,
    accepted: Cell<u64>,
    delivered: Cell<u64>,
    room: Notify,
    /// Of each answered request: from when it was to be sent until the answer, in microseconds.
    latencies_us: RefCell<Vec<i64>>,
}

impl Load {
    pub(crate) fn new(plan: Plan, bodies: Bodies) -> Load {
        Load {
            plan,
            bodies: RefCell::new(bodies),
            chance: RefCell::new(fastrand::Rng::with_seed(3)),
            began: Instant::now(),
            request_count: Cell::new(0),
            sent: Cell::new(0),
            accepted: Cell::new(0),
            delivered: Cell::new(0),
            room: Notify::new(),
            latencies_us: RefCell::new(Vec::new()),
        }
    }

    /// Sends until the plan's end and every answer.
    pub(crate) async fn run(&self, address: &str) -> anyhow::Result<()> {
        try_join_all((0..self.plan.connections).map(|_| self.send_on(address))).await.map(drop)
    }

    /// Messages that were answered as scheduled.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.get()
    }

    /// Tells how many have been delivered, which makes room for more.
    pub(crate) fn set_delivered(&self, count: u64) {
        self.delivered.set(count);
        self.room.notify_waiters();
    }

    /// Of each answered request: from when it was to be sent until the answer, in microseconds.
    pub(crate) fn into_latencies_us(self) -> Vec<i64> {
        self.latencies_us.into_inner()
    }

    async fn send_on(&self, address: &str) -> anyhow::Result<()> {
        let mut connection = Connection::open(address).await?;
        let (path, length) = {
            let bodies = self.bodies.borrow();
            (bodies.path, bodies.length)
        };
        while let Some(planned) = self.next_turn(length as u64) {
            if let Some(planned) = planned {
                sleep_until(planned).await;
            }
            while self.sent.get() - self.delivered.get() > self.plan.outstanding_max {
                self.room.notified().await;
            }
            // A request that could not be sent in time has waited, too: its latency counts from when it was planned.
            let since = planned.unwrap_or_else(Instant::now);
            let answer = connection.post(path, self.body()).await?;
            let receipts = answer.windows(RECEIPT_MARK.len()).filter(|window| *window == RECEIPT_MARK).count();
            if receipts != length {
                bail!("{receipts} of {length} messages were taken: {}", refusal(&answer));
            }
            self.accepted.set(self.accepted.get() + length as u64);
            let took_us = i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX);
            self.latencies_us.borrow_mut().push(took_us);
        }
        Ok(())
    }

    /// Takes the next request's place: `None` at the end, and otherwise when it is to be sent, if that is planned.
    fn next_turn(&self, length: u64) -> Option<Option<Instant>> {
        let planned = self.plan.interval.map(|interval| self.began + interval * self.request_count.get());
        let is_over = match self.plan.end {
            End::Count(count) => self.sent.get() >= count,
            End::After(span) => planned.unwrap_or_else(Instant::now) >= self.began + span,
        };
        if is_over {
            return None;
        }
        self.request_count.set(self.request_count.get() + 1);
        self.sent.set(self.sent.get() + length);
        Some(planned)
    }

    fn body(&self) -> Bytes {
        let now_ms = now_ms();
        let chance = &mut *self.chance.borrow_mut();
        self.bodies.borrow_mut().next(|| match self.plan.due {
            Due::Soon => now_ms + LEAD_MS + chance.i64(0..SPREAD_MS),
            Due::Far => now_ms + DAY_MS + chance.i64(0..29 * DAY_MS),
            Due::At(at_ms) => at_ms,
        })
    }
}

/// The first problem in an answer, for people.
fn refusal(answer: &[u8]) -> String {
    const PROBLEM_MARK: &[u8] = b"{\"type\":";
    let at = answer.windows(PROBLEM_MARK.len()).position(|window| window == PROBLEM_MARK).unwrap_or(0);
    shown(&answer[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(interval: Option<Duration>, end: End) -> Load {
        let plan = Plan { connections: 1, interval, end, due: Due::Soon, outstanding_max: u64::MAX };
        Load::new(plan, Bodies::batches())
    }

    #[test]
    fn a_count_ends_behind_its_last_message() {
        let load = load(None, End::Count(250));
        let turns = std::iter::from_fn(|| load.next_turn(100)).count();
        assert_eq!((turns, load.sent.get()), (3, 300));
    }

    #[test]
    fn a_pace_is_kept_whatever_the_answers_do() {
        let interval = Duration::from_secs(10);
        let load = load(Some(interval), End::After(Duration::from_secs(35)));
        let planned: Vec<Duration> =
            std::iter::from_fn(|| load.next_turn(100)).flatten().map(|at| at - load.began).collect();
        assert_eq!(planned, [0, 10, 20, 30].map(Duration::from_secs));
    }
}
