//! The working copy that a run of records is decided on: the store, and what the run has changed so far.
//!
//! Rows that several records of a run touch are decoded once and written once. Everything is ordered (by message, lane and
//! key), so the same run gives the same batch.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use protocol::mutation_v2::Limits;

use crate::effect::Effect;
use crate::state::constitution::{Bindings, Constitution, Policy, Profile};
use crate::state::keys::meta;
use crate::state::{LaneNo, MessageUuid, PolicyNo, Seq, envelope, row, uuid_bytes};
use crate::store::{Batch, Family, Pair, Read, StoreError};

/// A row in the working copy.
struct Slot<Row> {
    row: Option<Row>,
    changed: bool,
}

pub(crate) struct Transaction<'a> {
    store: &'a dyn Read,
    pub(crate) progress: row::Progress,
    pub(crate) constitution: Arc<Constitution>,
    pub(crate) bindings: Arc<Bindings>,
    /// No EXPIRY key stands below this time: a hint for scans, never an input of a decision.
    pub(crate) expiry_floor_ms: i64,
    messages: BTreeMap<MessageUuid, Slot<row::Message>>,
    lanes: BTreeMap<LaneNo, Slot<row::Lane>>,
    /// What lookups of lanes came to, by key: a run asks for the same few again and again.
    lane_nos: BTreeMap<Bytes, Option<LaneNo>>,
    overlay: BTreeMap<(Family, Bytes), Option<Bytes>>,
    effects: Vec<Effect>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(
        store: &'a dyn Read,
        progress: row::Progress,
        constitution: Arc<Constitution>,
        bindings: Arc<Bindings>,
        expiry_floor_ms: i64,
    ) -> Transaction<'a> {
        Transaction {
            store,
            progress,
            constitution,
            bindings,
            expiry_floor_ms,
            messages: BTreeMap::new(),
            lanes: BTreeMap::new(),
            lane_nos: BTreeMap::new(),
            overlay: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// Every deadline through this time is closed.
    pub(crate) fn closed_ms(&self) -> i64 {
        self.progress.closed_ms
    }

    pub(crate) fn limits(&self) -> &Limits {
        self.constitution.limits()
    }

    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn totals(&mut self) -> &mut row::Totals {
        self.progress.totals.get_or_insert_default()
    }

    /// The value of a key whose logical end is not reached.
    pub(crate) fn get(&self, family: Family, key: &Bytes) -> Result<Option<Bytes>, StoreError> {
        let value = match self.overlay.get(&(family, key.clone())) {
            Some(changed) => changed.clone(),
            None => self.store.get(family, key)?,
        };
        Ok(value.filter(|value| !envelope::has_ended(value, self.closed_ms())))
    }

    pub(crate) fn get_row<Row: prost::Message + Default>(
        &self,
        family: Family,
        key: &Bytes,
    ) -> Result<Option<Row>, StoreError> {
        self.get(family, key)?.map(|value| envelope::decode(&value)).transpose()
    }

    pub(crate) fn put(&mut self, family: Family, key: Bytes, value: Bytes) {
        self.overlay.insert((family, key), Some(value));
    }

    pub(crate) fn put_row(&mut self, family: Family, key: Bytes, row: &impl prost::Message, end_ms: Option<i64>) {
        self.put(family, key, envelope::encode(row, end_ms));
    }

    pub(crate) fn delete(&mut self, family: Family, key: Bytes) {
        self.overlay.insert((family, key), None);
    }

    /// At most `limit` pairs of the range as the run sees them, ascending.
    pub(crate) fn scan(
        &self,
        family: Family,
        (from, until): (Bytes, Bytes),
        limit: usize,
    ) -> Result<Vec<Pair>, StoreError> {
        if from >= until {
            return Ok(Vec::new());
        }
        let changed: BTreeMap<&Bytes, &Option<Bytes>> = self
            .overlay
            .range((Bound::Included((family, from.clone())), Bound::Excluded((family, until.clone()))))
            .map(|((_, key), value)| (key, value))
            .collect();
        // Keys that the run deleted take room in the store's answer, so that many more are asked for.
        let deleted = changed.values().filter(|value| value.is_none()).count();
        let mut merged: BTreeMap<Bytes, Bytes> =
            self.store.scan(family, &from, &until, limit.saturating_add(deleted))?.into_iter().collect();
        for (key, value) in changed {
            match value {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(key),
            };
        }
        Ok(merged.into_iter().take(limit).collect())
    }

    /// Reads rows that the run will need in one go; the keys must ascend.
    pub(crate) fn prefetch_messages(&mut self, messages: &[MessageUuid]) -> Result<(), StoreError> {
        let missing: Vec<MessageUuid> =
            messages.iter().filter(|message| !self.messages.contains_key(message)).copied().collect();
        let keys: Vec<&[u8]> = missing.iter().map(|message| &message.as_bytes()[..]).collect();
        let values = self.store.get_many(Family::Messages, &keys)?;
        for (message, value) in missing.into_iter().zip(values) {
            let slot = self.decode_message(value)?;
            self.messages.insert(message, slot);
        }
        Ok(())
    }

    fn decode_message(&self, value: Option<Bytes>) -> Result<Slot<row::Message>, StoreError> {
        let row = value
            .filter(|value| !envelope::has_ended(value, self.closed_ms()))
            .map(|value| envelope::decode(&value))
            .transpose()?;
        Ok(Slot { row, changed: false })
    }

    /// The message's row as it stands, unless its logical end is reached.
    pub(crate) fn message(&mut self, message: MessageUuid) -> Result<Option<row::Message>, StoreError> {
        if !self.messages.contains_key(&message) {
            let value = self.store.get(Family::Messages, message.as_bytes())?;
            let slot = self.decode_message(value)?;
            self.messages.insert(message, slot);
        }
        let closed_ms = self.closed_ms();
        let row = self.messages.get(&message).and_then(|slot| slot.row.as_ref());
        // The fence may have moved since the row was read.
        Ok(row.filter(|row| row.logical_end().is_none_or(|end_ms| end_ms > closed_ms)).cloned())
    }

    pub(crate) fn put_message(&mut self, message: MessageUuid, row: row::Message) {
        self.messages.insert(message, Slot { row: Some(row), changed: true });
    }

    /// The row of a lane.
    pub(crate) fn lane(&mut self, lane_no: LaneNo) -> Result<&row::Lane, StoreError> {
        self.lane_slot(lane_no)?.row.as_ref().ok_or_else(|| no_lane(lane_no))
    }

    /// The row of a lane, to be changed.
    pub(crate) fn lane_mut(&mut self, lane_no: LaneNo) -> Result<&mut row::Lane, StoreError> {
        let slot = self.lane_slot(lane_no)?;
        slot.changed = true;
        slot.row.as_mut().ok_or_else(|| no_lane(lane_no))
    }

    fn lane_slot(&mut self, lane_no: LaneNo) -> Result<&mut Slot<row::Lane>, StoreError> {
        match self.lanes.entry(lane_no) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let value = self.store.get(Family::Meta, &meta::lane(lane_no))?;
                let row = value.map(|value| envelope::decode(&value)).transpose()?;
                Ok(entry.insert(Slot { row, changed: false }))
            }
        }
    }

    /// The lane under a lookup key, if it was made.
    pub(crate) fn lane_no(&mut self, lookup: &Bytes) -> Result<Option<LaneNo>, StoreError> {
        if let Some(lane_no) = self.lane_nos.get(lookup) {
            return Ok(*lane_no);
        }
        let lane_no = self.get_row::<row::LaneLookup>(Family::Meta, lookup)?.map(|row| LaneNo(row.lane_no));
        self.lane_nos.insert(lookup.clone(), lane_no);
        Ok(lane_no)
    }

    pub(crate) fn create_lane(&mut self, lookup: Bytes, lane_no: LaneNo, row: row::Lane) {
        self.lanes.insert(lane_no, Slot { row: Some(row), changed: true });
        self.put_row(Family::Meta, lookup.clone(), &row::LaneLookup { lane_no: lane_no.0 }, None);
        self.lane_nos.insert(lookup, Some(lane_no));
    }

    pub(crate) fn set_constitution(&mut self, constitution: Constitution) {
        self.put_row(Family::Meta, Bytes::from_static(meta::CONSTITUTION), &constitution.to_row(), None);
        self.constitution = Arc::new(constitution);
    }

    pub(crate) fn set_profile(&mut self, profile_id: &Bytes, version: u64, profile: Profile) {
        self.put_row(Family::Meta, meta::profile(profile_id, version), &profile.to_row(), None);
        Arc::make_mut(&mut self.bindings).insert_profile(profile_id.clone(), version, profile);
    }

    pub(crate) fn set_profile_gate(&mut self, profile_id: &Bytes, gate: row::ProfileGate) {
        self.put_row(Family::Meta, meta::profile_gate(profile_id), &gate, None);
        Arc::make_mut(&mut self.bindings).insert_profile_gate(profile_id.clone(), gate);
    }

    pub(crate) fn add_policy(&mut self, policy: Policy) {
        self.progress.policy_no_last += 1;
        self.set_policy(PolicyNo(self.progress.policy_no_last), policy);
    }

    pub(crate) fn close_policy(&mut self, policy_no: PolicyNo) {
        if let Some(policy) = self.bindings.policy(policy_no).cloned() {
            self.set_policy(policy_no, Policy { closed: true, ..policy });
        }
    }

    fn set_policy(&mut self, policy_no: PolicyNo, policy: Policy) {
        let row = row::Policy { policy: policy.bytes.clone(), closed: policy.closed };
        self.put_row(Family::Meta, meta::policy(policy_no), &row, None);
        Arc::make_mut(&mut self.bindings).insert_policy(policy_no, policy);
    }

    /// Takes the next number for keys of a generation.
    pub(crate) fn next_seq(&mut self) -> Seq {
        self.progress.seq_last += 1;
        Seq(self.progress.seq_last)
    }

    /// The batch and the effects of everything the run changed.
    pub(crate) fn finish(self) -> (Batch, Vec<Effect>, Finished) {
        let mut batch = Batch::default();
        for (message, slot) in &self.messages {
            if let (true, Some(row)) = (slot.changed, &slot.row) {
                batch.put(Family::Messages, uuid_bytes(*message), envelope::encode(row, row.logical_end()));
            }
        }
        for (lane_no, slot) in &self.lanes {
            if let (true, Some(row)) = (slot.changed, &slot.row) {
                batch.put(Family::Meta, meta::lane(*lane_no), envelope::encode(row, None));
            }
        }
        for ((family, key), value) in self.overlay {
            match value {
                Some(value) => batch.put(family, key, value),
                None => batch.delete(family, key),
            }
        }
        batch.put(Family::Meta, meta::PROGRESS, envelope::encode(&self.progress, None));
        let finished = Finished {
            progress: self.progress,
            constitution: self.constitution,
            bindings: self.bindings,
            expiry_floor_ms: self.expiry_floor_ms,
        };
        (batch, self.effects, finished)
    }
}

/// What the next run starts from, once the batch is durable.
pub(crate) struct Finished {
    pub(crate) progress: row::Progress,
    pub(crate) constitution: Arc<Constitution>,
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) expiry_floor_ms: i64,
}

fn no_lane(lane_no: LaneNo) -> StoreError {
    StoreError::Corrupt { detail: format!("lane {} has no row", lane_no.0) }
}
