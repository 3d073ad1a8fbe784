//! The attempts that evidence must be kept for: those that are publishing, and those that stand as uncertain.
//!
//! A destination that forgot an uncertain attempt would call it absent when it is asked again, and the message would be sent a
//! second time without saying so. So what may be forgotten ends before the first admission with either kind.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ports::destination::AttemptRef;
use shard::query::{self, OpenAttempt};
use shard::state::LaneNo;
use shard::store::{Read, StoreError};

/// Attempts without a final word, by the order token of their admission.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// How many attempts of each admission are publishing.
    publishing: BTreeMap<Bytes, u32>,
    /// Attempts that became uncertain. Which of them still stand so is the store's word, asked for when it matters.
    uncertain: BTreeSet<(Bytes, AttemptRef)>,
}

impl Unsettled {
    /// What a store says, where these attempts are publishing.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) fn load(
        store: &dyn Read,
        lanes: impl Iterator<Item = LaneNo>,
        publishing: &[OpenAttempt],
    ) -> Result<Unsettled, StoreError> {
        let mut unsettled = Unsettled::default();
        for open in publishing {
            unsettled.admitted(&open.admission_order_token);
        }
        for lane_no in lanes {
            let uncertain = query::uncertain_attempts(store, lane_no)?;
            unsettled
                .uncertain
                .extend(uncertain.iter().map(|open| (open.admission_order_token.clone(), attempt_ref(open))));
        }
        Ok(unsettled)
    }

    /// An attempt of this admission is publishing.
    pub(crate) fn admitted(&mut self, admission: &Bytes) {
        *self.publishing.entry(admission.clone()).or_insert(0) += 1;
    }

    /// An attempt of this admission is not publishing any more.
    pub(crate) fn settled(&mut self, admission: &Bytes, attempt: AttemptRef, is_uncertain: bool) {
        if let Some(publishing) = self.publishing.get_mut(admission) {
            *publishing -= 1;
            if *publishing == 0 {
                self.publishing.remove(admission);
            }
        }
        if is_uncertain {
            self.uncertain.insert((admission.clone(), attempt));
        }
    }

    /// The first admission that has an attempt without a final word.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) fn first(&mut self, store: &dyn Read) -> Result<Option<Bytes>, StoreError> {
        while let Some((_, attempt)) = self.uncertain.first()
            && !stands_uncertain(store, *attempt)?
        {
            self.uncertain.pop_first();
        }
        let publishing = self.publishing.first_key_value().map(|(admission, _)| admission);
        let uncertain = self.uncertain.first().map(|(admission, _)| admission);
        Ok(publishing.into_iter().chain(uncertain).min().cloned())
    }
}

fn stands_uncertain(store: &dyn Read, attempt: AttemptRef) -> Result<bool, StoreError> {
    let Some(view) = query::message(store, attempt.message)? else { return Ok(false) };
    let stands = view.row.open.iter().any(|open| open.attempt == attempt.attempt && open.uncertain);
    Ok(view.row.generation == attempt.generation && stands)
}

/// Which attempt an open one is.
pub(crate) fn attempt_ref(open: &OpenAttempt) -> AttemptRef {
    AttemptRef { message: open.message, generation: open.generation, attempt: open.attempt }
}
