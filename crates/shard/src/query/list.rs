//! Pages of messages: bounded by rows looked at, in a stated order, with a cursor that survives everything.
//!
//! A sort key is a few bytes that order the same way on every shard, so that whoever asks several shards can merge their pages
//! and continue all of them from one cursor.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bytes::{BufMut, Bytes, BytesMut};

use super::{MessageView, lanes, message_behind, progress};
use crate::state::constitution::successor;
use crate::state::generation::MessageState;
use crate::state::keys::dedupe;
use crate::state::keys::timeline::{self, DueKey};
use crate::state::{LaneNo, MessageUuid, Seq, envelope, message_uuid, row};
use crate::store::{Family, Pair, Read, StoreError};

/// In which order a list comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrder {
    /// By the time the message can next be admitted; only messages that can be. A retry that would come behind its deadline
    /// waits for the fence alone and is not among them.
    Due,
    /// By the time it died; only dead letters.
    DeadLetters,
    /// By the caller's own id; only messages that have one, the newest of each.
    BusinessKey,
    /// By message id, which is roughly by age.
    MessageId,
}

/// Which messages a list shows. Conditions that are `None` or empty do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Of these profiles.
    pub profile_ids: Option<BTreeSet<Bytes>>,
    /// In these states.
    pub states: Option<BTreeSet<MessageState>>,
    /// With a business time at or behind this.
    pub due_from_ms: Option<i64>,
    /// With a business time before this.
    pub due_until_ms: Option<i64>,
    /// Whose own id starts with this.
    pub business_key_prefix: Option<Bytes>,
}

impl ListFilter {
    /// The order that answers this filter by looking at the fewest rows.
    pub fn order(&self) -> ListOrder {
        let only = |states: &[MessageState]| {
            self.states.as_ref().is_some_and(|wanted| wanted.iter().all(|state| states.contains(state)))
        };
        if self.business_key_prefix.is_some() {
            ListOrder::BusinessKey
        } else if only(&[MessageState::DeadLetter]) {
            ListOrder::DeadLetters
        } else if only(&[MessageState::Scheduled, MessageState::RetryWait]) {
            ListOrder::Due
        } else {
            ListOrder::MessageId
        }
    }

    fn accepts(&self, view: &MessageView) -> bool {
        let due_ms = view.row.deliver_at_ms;
        self.profile_ids.as_ref().is_none_or(|wanted| wanted.contains(&view.lane.profile_id))
            && self.states.as_ref().is_none_or(|wanted| wanted.contains(&view.state))
            && self.due_from_ms.is_none_or(|from_ms| due_ms >= from_ms)
            && self.due_until_ms.is_none_or(|until_ms| due_ms < until_ms)
            && self.business_key_prefix.as_ref().is_none_or(|prefix| view.row.business_key.starts_with(prefix))
    }
}

/// One shard's part of a list.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// The messages with their sort keys, ascending.
    pub items: Vec<(Bytes, MessageView)>,
    /// Everything up to this sort key was looked at; `None` when everything was.
    pub looked_through: Option<Bytes>,
}

/// Lists at most `limit` messages behind `after`, looking at no more than about `rows_max` rows.
///
/// # Errors
/// When the store does not answer.
pub fn list(
    read: &dyn Read,
    partition: u32,
    filter: &ListFilter,
    after: Option<&[u8]>,
    limit: usize,
    rows_max: usize,
) -> Result<ListPage, StoreError> {
    let (limit, rows_max) = (limit.max(1), rows_max.max(1));
    let request = Request { read, partition, filter, after, limit, rows_max, closed_ms: progress(read)?.closed_ms };
    match filter.order() {
        ListOrder::Due => request.by_time(timeline::due_from),
        ListOrder::DeadLetters => {
            request.by_time(|lane_no, from| timeline::dead_letters(lane_no, from.eligible_at_ms, from.seq))
        }
        ListOrder::BusinessKey => request.by_business_key(),
        ListOrder::MessageId => request.by_message_id(),
    }
}

struct Request<'a> {
    read: &'a dyn Read,
    partition: u32,
    filter: &'a ListFilter,
    after: Option<&'a [u8]>,
    limit: usize,
    rows_max: usize,
    closed_ms: i64,
}

impl Request<'_> {
    fn by_message_id(&self) -> Result<ListPage, StoreError> {
        let from = self.after.map_or_else(Bytes::new, successor);
        let pairs = self.read.scan(Family::Messages, &from, &[0xff; 17], self.rows_max)?;
        let keys = pairs.iter().filter_map(|(key, _)| Some((key.clone(), message_uuid(key)?)));
        self.collect(keys, self.more_behind(&pairs).cloned())
    }

    fn by_business_key(&self) -> Result<ListPage, StoreError> {
        let prefix = self.filter.business_key_prefix.clone().unwrap_or_default();
        let (from, until) = dedupe::business_keys(&prefix, self.after);
        let pairs = self.read.scan(Family::Dedupe, &from, &until, self.rows_max)?;
        let more_behind = self.more_behind(&pairs).map(dedupe::decode_business_key);
        let mut keys = Vec::with_capacity(pairs.len());
        for (key, value) in &pairs {
            let entry: row::BusinessKey = envelope::decode(value)?;
            if let (false, Some(message)) = (envelope::has_ended(value, self.closed_ms), message_uuid(&entry.message)) {
                keys.push((dedupe::decode_business_key(key), message));
            }
        }
        self.collect(keys.into_iter(), more_behind)
    }

    /// The last key of a full page: more may stand behind it.
    fn more_behind<'p>(&self, pairs: &'p [Pair]) -> Option<&'p Bytes> {
        pairs.last().filter(|_| pairs.len() >= self.rows_max).map(|(key, _)| key)
    }

    /// Merges a time index over the lanes of the wanted profiles.
    fn by_time(&self, range: impl Fn(LaneNo, DueKey) -> (Bytes, Bytes)) -> Result<ListPage, StoreError> {
        let from = self.after.and_then(|after| first_behind(after, self.partition)).unwrap_or(DueKey::MIN);
        let wanted: Vec<LaneNo> = lanes(self.read)?
            .into_iter()
            .filter(|(_, lane)| self.filter.profile_ids.as_ref().is_none_or(|ids| ids.contains(&lane.profile_id)))
            .map(|(lane_no, _)| lane_no)
            .collect();
        let rows_max = (self.rows_max / wanted.len().max(1)).max(self.limit.min(100));
        let mut keys = Vec::new();
        // Behind the last key of a lane that has more, other lanes' keys are ahead of what was looked at.
        let mut looked_through: Option<Bytes> = None;
        for lane_no in wanted {
            let (from, until) = range(lane_no, from);
            let pairs = self.read.scan(Family::Timeline, &from, &until, rows_max)?;
            for (key, value) in &pairs {
                let (_, time_ms, seq) = timeline::decode_dead_letter(key)?;
                let entry: row::TimelineEntry = envelope::decode(value)?;
                if let Some(message) = message_uuid(&entry.message) {
                    keys.push((time_sort_key(time_ms, self.partition, seq), message));
                }
            }
            if let (true, Some((key, _))) = (pairs.len() == rows_max, pairs.last()) {
                let (_, time_ms, seq) = timeline::decode_dead_letter(key)?;
                let last = time_sort_key(time_ms, self.partition, seq);
                looked_through = Some(looked_through.map_or_else(|| last.clone(), |bound| bound.min(last.clone())));
            }
        }
        keys.sort_unstable();
        if let Some(bound) = &looked_through {
            keys.retain(|(sort_key, _)| sort_key <= bound);
        }
        self.collect(keys.into_iter(), looked_through)
    }

    /// Reads the messages behind ascending keys until the page is full. When it does not fill, everything up to `looked_through`
    /// was looked at.
    fn collect(
        &self,
        keys: impl Iterator<Item = (Bytes, MessageUuid)>,
        looked_through: Option<Bytes>,
    ) -> Result<ListPage, StoreError> {
        let mut page = ListPage { items: Vec::new(), looked_through };
        for (sort_key, message) in keys {
            let view = message_behind(self.read, message, self.closed_ms)?;
            if let Some(view) = view.filter(|view| self.filter.accepts(view)) {
                page.items.push((sort_key.clone(), view));
                if page.items.len() == self.limit {
                    page.looked_through = Some(sort_key);
                    return Ok(page);
                }
            }
        }
        Ok(page)
    }
}

/// The first place in this partition's time index that sorts behind a cursor, which may be another partition's.
fn first_behind(after: &[u8], partition: u32) -> Option<DueKey> {
    let (time, rest) = after.split_first_chunk::<8>()?;
    let (of_partition, rest) = rest.split_first_chunk::<4>()?;
    let (seq, _) = rest.split_first_chunk::<8>()?;
    let at = DueKey { eligible_at_ms: i64::from_be_bytes(*time).max(0), seq: Seq(u64::from_be_bytes(*seq)) };
    Some(match u32::from_be_bytes(*of_partition).cmp(&partition) {
        Ordering::Less => DueKey { seq: Seq(0), ..at },
        Ordering::Equal => at.successor(),
        Ordering::Greater => at.next_millisecond(),
    })
}

/// Orders by time, then by partition, then by the shard's own sequence.
fn time_sort_key(time_ms: i64, partition: u32, seq: Seq) -> Bytes {
    let mut key = BytesMut::with_capacity(20);
    key.put_i64(time_ms);
    key.put_u32(partition);
    key.put_u64(seq.0);
    key.freeze()
}
