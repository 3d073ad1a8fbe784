//! Everything that follows from a message row changing: index keys, counts, quotas, open attempts, retention, effects.
//!
//! A handler decides what the row says next and hands both rows to [`Transaction::replace`]. What must be written and deleted
//! beside the row is derived from the difference, in this one place, so no handler can forget an index or count twice.

use bytes::Bytes;
use protocol::mutation_v2::{Limits, PublishedEvidence};

use crate::effect::Effect;
use crate::planted::{self, Mistake};
use crate::state::generation::MessageState;
use crate::state::keys::{dedupe, meta, open, timeline};
use crate::state::transaction::Transaction;
use crate::state::{LaneNo, MessageUuid, envelope, row, uuid_bytes};
use crate::store::{Family, StoreError};

/// The grain of terminal counts: logical ends are rounded up to it, so that counts kept by the hour are exact.
pub(crate) const HOUR_MS: i64 = 3_600_000;

impl Transaction<'_> {
    /// Writes `after` in place of `before` with all that follows from it. The row's revision is moved here and nowhere else.
    pub(crate) fn replace(
        &mut self,
        message: MessageUuid,
        before: Option<&row::Message>,
        mut after: row::Message,
    ) -> Result<(), StoreError> {
        after.log_rev = before.map_or(0, |before| before.log_rev) + 1;
        let ended = after.terminal.is_some() && before.is_none_or(row::Message::is_live);
        if ended {
            self.end(message, &mut after)?;
        }
        self.move_due(message, before, &after);
        self.move_expiry(message, before, &after);
        self.move_uncertain(message, before, &after);
        self.count(before, &after)?;
        if let Some(before) = before {
            self.settle_attempts(message, before, &after)?;
        }
        self.put_message(message, after);
        Ok(())
    }

    fn move_due(&mut self, message: MessageUuid, before: Option<&row::Message>, after: &row::Message) {
        let lane_no = after.lane_no();
        let key_before = before.and_then(row::Message::due_key);
        let key_after = after.due_key();
        if key_before != key_after {
            if let Some(key) = key_before.filter(|_| !forgets_due(after)) {
                self.delete(Family::Timeline, key.encode(lane_no));
                self.emit(Effect::WorkGone { lane_no, key, message });
            }
            if let Some(key) = key_after {
                let entry = row::TimelineEntry {
                    message: uuid_bytes(message),
                    generation: after.generation,
                    payload_bytes: after.payload_bytes,
                };
                self.put_row(Family::Timeline, key.encode(lane_no), &entry, None);
            }
        }
        if let Some(key) = key_after {
            let (generation, log_rev, payload_bytes) = (after.generation, after.log_rev, after.payload_bytes);
            self.emit(Effect::WorkWaiting { lane_no, key, message, generation, log_rev, payload_bytes });
        }
    }

    fn move_expiry(&mut self, message: MessageUuid, before: Option<&row::Message>, after: &row::Message) {
        let deadline = |row: &row::Message| row.is_live().then_some((row.expire_at_ms, row.seq()));
        let (deadline_before, deadline_after) = (before.and_then(deadline), deadline(after));
        if deadline_before == deadline_after {
            return;
        }
        if let Some((expire_at_ms, seq)) = deadline_before {
            self.delete(Family::Timeline, timeline::expiry(expire_at_ms, seq));
        }
        if let Some((expire_at_ms, seq)) = deadline_after {
            let entry =
                row::TimelineEntry { message: uuid_bytes(message), generation: after.generation, payload_bytes: 0 };
            self.put_row(Family::Timeline, timeline::expiry(expire_at_ms, seq), &entry, None);
            self.expiry_floor_ms = self.expiry_floor_ms.min(expire_at_ms);
            self.emit(Effect::DeadlineSet { expire_at_ms });
        }
    }

    /// The UNCERTAIN key stands as long as the row has an uncertain attempt, and no longer than the row.
    fn move_uncertain(&mut self, message: MessageUuid, before: Option<&row::Message>, after: &row::Message) {
        let entry = |row: &row::Message| row.has_uncertain_attempt().then(|| row.logical_end());
        let (entry_before, entry_after) = (before.and_then(entry), entry(after));
        if entry_before == entry_after {
            return;
        }
        let key = timeline::uncertain(after.lane_no(), message);
        match entry_after {
            Some(end_ms) => self.put(Family::Timeline, key, envelope::encode_bytes(&[], end_ms)),
            None => self.delete(Family::Timeline, key),
        }
    }

    /// Moves the row between the live counts of its lane and in and out of the quotas.
    fn count(&mut self, before: Option<&row::Message>, after: &row::Message) -> Result<(), StoreError> {
        let live = |row: &row::Message| row.is_live().then(|| row.state());
        let (live_before, live_after) = (before.and_then(live), live(after));
        if live_before == live_after {
            return Ok(());
        }
        let payload_bytes = u64::from(after.payload_bytes);
        let counts = self.lane_mut(after.lane_no())?.live.get_or_insert_default();
        if let Some(counter) = live_before.and_then(|state| counts.counter(state)) {
            *counter -= 1;
        }
        if let Some(counter) = live_after.and_then(|state| counts.counter(state)) {
            *counter += 1;
        }
        match (live_before, live_after) {
            (None, Some(_)) => {
                counts.payload_bytes += payload_bytes;
                self.progress.active_messages += 1;
                self.progress.active_bytes += payload_bytes;
            }
            (Some(_), None) => {
                counts.payload_bytes -= payload_bytes;
                self.progress.active_messages -= 1;
                self.progress.active_bytes -= payload_bytes;
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
        Ok(())
    }

    /// Takes attempts that stopped publishing out of their admission records.
    fn settle_attempts(
        &mut self,
        message: MessageUuid,
        before: &row::Message,
        after: &row::Message,
    ) -> Result<(), StoreError> {
        for open in before.open.iter().filter(|open| !open.uncertain) {
            let still = after.open.iter().any(|other| other.attempt == open.attempt && !other.uncertain);
            if still {
                continue;
            }
            self.emit(Effect::AttemptSettled {
                lane_no: before.lane_no(),
                message,
                generation: before.generation,
                attempt: open.attempt,
                admission: open.admission.clone(),
                uncertain: after.open.iter().any(|other| other.attempt == open.attempt),
            });
            self.release_admission(&open.admission)?;
        }
        Ok(())
    }

    /// One attempt of an admission record is not publishing any more; the last one takes the record's rows with it.
    fn release_admission(&mut self, order_token: &Bytes) -> Result<(), StoreError> {
        let key = open::remaining(order_token);
        let remaining: row::Remaining = self.get_row(Family::Open, &key)?.ok_or_else(|| StoreError::Corrupt {
            detail: format!("admission {order_token:02x?} has an open attempt and no row"),
        })?;
        match remaining.publishing.checked_sub(1) {
            Some(publishing) if publishing > 0 => {
                self.put_row(Family::Open, key, &row::Remaining { publishing }, None);
            }
            _ => {
                self.delete(Family::Open, key);
                self.delete(Family::Open, open::admitted(order_token));
            }
        }
        Ok(())
    }

    /// What an ending generation leaves behind, and until when.
    fn end(&mut self, message: MessageUuid, after: &mut row::Message) -> Result<(), StoreError> {
        let state = after.state();
        let dead = state == MessageState::DeadLetter;
        let Some(terminal) = &mut after.terminal else { return Ok(()) };
        terminal.ends_at_ms = logical_end(self.limits(), message, state, terminal.at_ms);
        let (ends_at_ms, at_ms) = (terminal.ends_at_ms, terminal.at_ms);

        let payload_key = uuid_bytes(message);
        if dead {
            // A dead letter may be replayed: its payload stays as long as its row.
            if let Some(payload) = self.get(Family::Payloads, &payload_key)? {
                let payload = envelope::encode_bytes(&envelope::body(&payload)?, Some(ends_at_ms));
                self.put(Family::Payloads, payload_key, payload);
            }
            let entry =
                row::TimelineEntry { message: uuid_bytes(message), generation: after.generation, payload_bytes: 0 };
            let key = timeline::dead_letter(after.lane_no(), at_ms, after.seq());
            self.put_row(Family::Timeline, key, &entry, Some(ends_at_ms));
        } else {
            self.delete(Family::Payloads, payload_key);
        }
        if !after.business_key.is_empty() && after.business_key_indexed {
            let entry = row::BusinessKey { message: uuid_bytes(message) };
            self.put_row(Family::Dedupe, dedupe::business_key(&after.business_key), &entry, Some(ends_at_ms));
        }
        self.count_terminal(after.lane_no(), state, ends_at_ms)?;
        let totals = self.totals();
        match state {
            MessageState::Published => totals.published += 1,
            MessageState::Canceled => totals.canceled += 1,
            MessageState::Expired => totals.expired += 1,
            _ => totals.dead_lettered += 1,
        }
        let published_at_ms = published_at_ms(after);
        self.emit(Effect::Ended { message, state, deliver_at_ms: after.deliver_at_ms, at_ms, published_at_ms });
        Ok(())
    }

    fn count_terminal(&mut self, lane_no: LaneNo, state: MessageState, ends_at_ms: i64) -> Result<(), StoreError> {
        let hour = u32::try_from(ends_at_ms / HOUR_MS).unwrap_or(u32::MAX - 1);
        let key = meta::terminal_count(lane_no, state as u8, hour);
        let mut count: row::TerminalCount = self.get_row(Family::Meta, &key)?.unwrap_or_default();
        count.messages += 1;
        self.put_row(Family::Meta, key, &count, Some(ends_at_ms));
        Ok(())
    }
}

impl row::LiveCounts {
    /// The counter of a live state.
    pub fn counter(&mut self, state: MessageState) -> Option<&mut u64> {
        match state {
            MessageState::Scheduled => Some(&mut self.scheduled),
            MessageState::RetryWait => Some(&mut self.retrying),
            MessageState::Publishing => Some(&mut self.publishing),
            MessageState::Uncertain => Some(&mut self.uncertain),
            MessageState::Published | MessageState::Canceled | MessageState::Expired | MessageState::DeadLetter => None,
        }
    }
}

/// When the destination says that it has the message.
fn published_at_ms(row: &row::Message) -> Option<i64> {
    let evidence = row.terminal.as_ref()?.evidence.clone()?;
    PublishedEvidence::from_proto(evidence).ok()?.time_ms()
}

/// From which closed time on a message that ended counts as absent (v2 §8).
pub(crate) fn logical_end(limits: &Limits, message: MessageUuid, state: MessageState, at_ms: i64) -> i64 {
    let retention_ms = match state {
        MessageState::DeadLetter => limits.dead_letter_retention_ms,
        _ => limits.terminal_retention_ms,
    };
    let reusable_from_ms = message.unix_ms().saturating_add(limits.preparation_age_ms_max);
    round_up_to_hour(at_ms.saturating_add(retention_ms).max(reusable_from_ms))
}

fn round_up_to_hour(time_ms: i64) -> i64 {
    match time_ms % HOUR_MS {
        0 => time_ms,
        over => time_ms.saturating_add(HOUR_MS - over),
    }
}

fn forgets_due(after: &row::Message) -> bool {
    planted::is(Mistake::ResurrectCanceled) && after.state() == MessageState::Canceled
}
