//! The shell's side of lanes: opens sessions, sends through them, watches them, and reports everything as events.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use ports::destination::{AttemptOutcome, AttemptRef, Destination, LaneError, LaneSession, LaneTarget};
use ports::env::{Env, Task};
use protocol::code::StableCode;
use protocol::resource::AdapterKind;
use shard::query::OpenAttempt;
use shard::schedule::claim::AdmittedAttempt;
use shard::state::LaneNo;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::WorkerConfig;
use crate::pump::never_sent;

/// The kinds of destination systems a worker can send to.
pub type Destinations = BTreeMap<AdapterKind, Arc<dyn Destination>>;

/// What lanes report.
pub(crate) enum LaneEvent {
    Opened {
        lane_no: LaneNo,
        session_no: u64,
        session: Arc<dyn LaneSession>,
        resolved: Vec<(AttemptRef, AttemptOutcome)>,
    },
    NotOpened {
        lane_no: LaneNo,
        session_no: u64,
        error: LaneError,
    },
    Lost {
        lane_no: LaneNo,
        session_no: u64,
        error: LaneError,
    },
    Outcomes {
        lane_no: LaneNo,
        answers: Vec<(AttemptRef, AttemptOutcome)>,
    },
    Overdue {
        lane_no: LaneNo,
        attempts: Vec<AttemptRef>,
    },
    LateOutcomes {
        lane_no: LaneNo,
        answers: Vec<(AttemptRef, AttemptOutcome)>,
    },
}

struct Open {
    session: Arc<dyn LaneSession>,
    session_no: u64,
    _watch: Task,
}

/// The open sessions of one shard's lanes.
pub(crate) struct Sessions {
    env: Rc<dyn Env>,
    destinations: Arc<Destinations>,
    events: mpsc::Sender<LaneEvent>,
    send_deadline: Duration,
    open_deadline: Duration,
    open: BTreeMap<LaneNo, Open>,
    /// Sessions in the making, by their number: what another one of the lane reports came too late.
    opening: BTreeMap<LaneNo, (u64, Task)>,
    session_no: u64,
}

impl Sessions {
    pub(crate) fn new(
        env: Rc<dyn Env>,
        destinations: Arc<Destinations>,
        events: mpsc::Sender<LaneEvent>,
        config: &WorkerConfig,
    ) -> Sessions {
        Sessions {
            env,
            destinations,
            events,
            send_deadline: config.send_deadline,
            open_deadline: config.recovery_deadline,
            open: BTreeMap::new(),
            opening: BTreeMap::new(),
            session_no: 0,
        }
    }

    /// Opens a session in the background and asks it about attempts; reports [`LaneEvent::Opened`] or
    /// [`LaneEvent::NotOpened`].
    pub(crate) fn open(&mut self, target: LaneTarget, attempts: Vec<OpenAttempt>) {
        let lane_no = target.lane_no;
        self.close(lane_no);
        self.session_no += 1;
        let session_no = self.session_no;
        let destination = self.destinations.get(&target.profile.resource.adapter()).cloned();
        let (events, deadline) = (self.events.clone(), self.open_deadline);
        let task = self.env.spawn(
            "open lane",
            Box::pin(async move {
                let event = match open_in_time(deadline, destination, target, attempts).await {
                    Ok((session, resolved)) => LaneEvent::Opened { lane_no, session_no, session, resolved },
                    Err(error) => LaneEvent::NotOpened { lane_no, session_no, error },
                };
                report(&events, event).await;
            }),
        );
        self.opening.insert(lane_no, (session_no, task));
    }

    /// Gives up a lane's session, and the one in the making. What was handed over is still followed.
    pub(crate) fn close(&mut self, lane_no: LaneNo) {
        self.open.remove(&lane_no);
        self.opening.remove(&lane_no);
    }

    /// Takes in a session that was reported open. Whether it is the one that was waited for.
    pub(crate) fn opened(&mut self, lane_no: LaneNo, session_no: u64, session: Arc<dyn LaneSession>) -> bool {
        if !self.not_opened(lane_no, session_no) {
            return false;
        }
        let (events, lost) = (self.events.clone(), session.lost());
        let watch = self.env.spawn(
            "watch lane",
            Box::pin(async move {
                let error = lost.await;
                report(&events, LaneEvent::Lost { lane_no, session_no, error }).await;
            }),
        );
        self.open.insert(lane_no, Open { session, session_no, _watch: watch });
        true
    }

    /// Takes note that a session is not in the making any more. Whether it is the one that was waited for.
    pub(crate) fn not_opened(&mut self, lane_no: LaneNo, session_no: u64) -> bool {
        let current = self.opening.get(&lane_no).is_some_and(|(opening, _)| *opening == session_no);
        if current {
            self.opening.remove(&lane_no);
        }
        current
    }

    /// Drops a session that was reported lost. Whether it was the one in use.
    pub(crate) fn lost(&mut self, lane_no: LaneNo, session_no: u64) -> bool {
        let current = self.open.get(&lane_no).is_some_and(|open| open.session_no == session_no);
        if current {
            self.open.remove(&lane_no);
        }
        current
    }

    /// Hands attempts to the lane's session; their fate is reported attempt by attempt. Without a session they were certainly
    /// not sent.
    pub(crate) fn send(&self, lane_no: LaneNo, attempts: Vec<AdmittedAttempt>) {
        let events = self.events.clone();
        let Some(open) = self.open.get(&lane_no) else {
            let answers = attempts.iter().map(admitted_ref).map(|attempt| (attempt, never_sent(attempt))).collect();
            let task = async move { report(&events, LaneEvent::Outcomes { lane_no, answers }).await };
            self.env.spawn("refuse send", Box::pin(task)).detach();
            return;
        };
        // Handed over here and not in the task: by the time that runs, the lease may be lost, and later admissions overtake.
        let waiting = attempts.iter().map(admitted_ref).collect();
        let answers = open.session.send(attempts);
        let overdue_at = Instant::now() + self.send_deadline;
        let session = open.session.clone();
        let task = async move {
            follow(answers, waiting, lane_no, overdue_at, &events).await;
            drop(session);
        };
        self.env.spawn("send", Box::pin(task)).detach();
    }

    /// What a lane's session has to say of itself although it works.
    pub(crate) fn remark(&self, lane_no: LaneNo) -> Option<LaneError> {
        self.open.get(&lane_no)?.session.remark()
    }

    /// Tells every session that older evidence may go.
    pub(crate) fn forget_before(&self, admission_order_token: &bytes::Bytes) {
        for open in self.open.values() {
            open.session.forget_before(admission_order_token.clone());
        }
    }
}

/// A destination that does not answer is asked again, as one that refuses: only another request can find it well again.
async fn open_in_time(
    deadline: Duration,
    destination: Option<Arc<dyn Destination>>,
    target: LaneTarget,
    attempts: Vec<OpenAttempt>,
) -> Result<(Arc<dyn LaneSession>, Vec<(AttemptRef, AttemptOutcome)>), LaneError> {
    let overdue_at = Instant::now() + deadline;
    tokio::select! {
        biased;
        opened = open_and_recover(destination, target, attempts) => opened,
        () = tokio::time::sleep_until(overdue_at) => Err(LaneError {
            code: StableCode::CapabilityUnavailable,
            detail: format!("the destination did not open a session and account for its attempts within {deadline:?}"),
        }),
    }
}

async fn open_and_recover(
    destination: Option<Arc<dyn Destination>>,
    target: LaneTarget,
    attempts: Vec<OpenAttempt>,
) -> Result<(Arc<dyn LaneSession>, Vec<(AttemptRef, AttemptOutcome)>), LaneError> {
    let adapter = target.profile.resource.adapter();
    let destination = destination.ok_or_else(|| LaneError {
        code: StableCode::CapabilityUnavailable,
        detail: format!("this worker cannot deliver to {adapter:?}"),
    })?;
    let session: Arc<dyn LaneSession> = destination.open_lane(target).await?.into();
    let resolved = if attempts.is_empty() { Vec::new() } else { session.recover(attempts).await? };
    Ok((session, resolved))
}

/// Reports what becomes of attempts that were handed over.
async fn follow(
    mut stream: BoxStream<'static, Vec<(AttemptRef, AttemptOutcome)>>,
    mut waiting: BTreeSet<AttemptRef>,
    lane_no: LaneNo,
    overdue_at: Instant,
    events: &mpsc::Sender<LaneEvent>,
) {
    let mut is_overdue = false;
    while !waiting.is_empty() {
        tokio::select! {
            biased;
            answers = stream.next() => {
                let Some(mut answers) = answers else { break };
                answers.retain(|(attempt, _)| waiting.remove(attempt));
                report_outcomes(events, lane_no, answers, is_overdue).await;
            }
            () = tokio::time::sleep_until(overdue_at), if !is_overdue => {
                is_overdue = true;
                let attempts = waiting.iter().copied().collect();
                report(events, LaneEvent::Overdue { lane_no, attempts }).await;
            }
        }
    }
    let code = StableCode::DestinationOutcomeUnknown;
    let unanswered = waiting.into_iter().map(|attempt| (attempt, AttemptOutcome::unknown(code))).collect();
    report_outcomes(events, lane_no, unanswered, is_overdue).await;
}

async fn report_outcomes(
    events: &mpsc::Sender<LaneEvent>,
    lane_no: LaneNo,
    answers: Vec<(AttemptRef, AttemptOutcome)>,
    is_overdue: bool,
) {
    if answers.is_empty() {
        return;
    }
    let event = if is_overdue {
        LaneEvent::LateOutcomes { lane_no, answers }
    } else {
        LaneEvent::Outcomes { lane_no, answers }
    };
    report(events, event).await;
}

/// An owner that is gone needs no reports: its successor asks for evidence.
async fn report(events: &mpsc::Sender<LaneEvent>, event: LaneEvent) {
    let _ = events.send(event).await;
}

/// Which attempt this is.
pub(crate) fn admitted_ref(attempt: &AdmittedAttempt) -> AttemptRef {
    AttemptRef { message: attempt.message_id().uuid, generation: attempt.generation(), attempt: attempt.attempt() }
}
