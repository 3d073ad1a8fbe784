//! Where scans of the timeline may start.
//!
//! Keys that were deleted and not yet compacted away are crawled over one by one, so a scan from the start of a busy lane gets
//! slower with every message delivered. A mark per lane (and one for the expiry index, under lane number 0, which no lane has)
//! says below which time no key stands. Marks are no function of the log: they are left out of the digest, raised when the
//! owner knows better, and lowered in the very commit that inserts an earlier key.

use std::collections::BTreeMap;

use crate::effect::Effect;
use crate::state::constitution::for_each;
use crate::state::keys::meta;
use crate::state::{LaneNo, envelope, row};
use crate::store::{Batch, Family, Read, StoreError};

/// The expiry index among the lanes.
pub(crate) const EXPIRY: LaneNo = LaneNo(0);

/// The expiry index's mark is raised in steps of this, not at every fence.
const EXPIRY_STEP_MS: i64 = 60_000;

#[derive(Debug, Default)]
pub(crate) struct LowWater {
    marks: BTreeMap<LaneNo, i64>,
    raised: BTreeMap<LaneNo, i64>,
}

impl LowWater {
    pub(crate) fn load(store: &dyn Read) -> Result<LowWater, StoreError> {
        let mut marks = BTreeMap::new();
        for_each(store, meta::low_waters(), |key, value| {
            let row: row::LowWater = envelope::decode(value)?;
            marks.insert(meta::decode_low_water(key)?, row.at_ms);
            Ok(())
        })?;
        Ok(LowWater { marks, raised: BTreeMap::new() })
    }

    /// No key of the lane stands below this time.
    pub(crate) fn mark(&self, lane_no: LaneNo) -> i64 {
        self.marks.get(&lane_no).copied().unwrap_or(0)
    }

    /// Has the next commit raise the mark, if nothing in it stands below.
    pub(crate) fn raise(&mut self, lane_no: LaneNo, at_ms: i64) {
        if at_ms > self.mark(lane_no) {
            self.raised.insert(lane_no, at_ms);
        }
    }

    /// Adds what this commit changes about marks to its batch. Nothing changes here before the commit has returned: a mark
    /// that is lowered in memory only would not be written again when the run is tried again.
    pub(crate) fn write(&self, expiry_floor_ms: i64, effects: &[Effect], batch: &mut Batch) -> ChangedMarks {
        let mut changed = self.raised.clone();
        if expiry_floor_ms >= self.mark(EXPIRY).saturating_add(EXPIRY_STEP_MS) {
            changed.insert(EXPIRY, expiry_floor_ms);
        }
        for effect in effects {
            let (lane_no, at_ms) = match effect {
                Effect::WorkWaiting { lane_no, key, .. } => (*lane_no, key.eligible_at_ms),
                Effect::DeadlineSet { expire_at_ms } => (EXPIRY, *expire_at_ms),
                _ => continue,
            };
            let mark = changed.get(&lane_no).copied().unwrap_or_else(|| self.mark(lane_no));
            if at_ms < mark {
                changed.insert(lane_no, at_ms);
            }
        }
        changed.retain(|lane_no, at_ms| *at_ms != self.mark(*lane_no));
        for (lane_no, at_ms) in &changed {
            batch.put(
                Family::Meta,
                meta::low_water(*lane_no),
                envelope::encode(&row::LowWater { at_ms: *at_ms }, None),
            );
        }
        ChangedMarks(changed)
    }

    /// The commit that wrote these marks has returned.
    pub(crate) fn install(&mut self, changed: ChangedMarks) {
        self.raised.clear();
        self.marks.extend(changed.0);
    }
}

/// Marks that a commit writes.
pub(crate) struct ChangedMarks(BTreeMap<LaneNo, i64>);
