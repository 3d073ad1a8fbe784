//! The account at the end of a run: accepted = published + canceled + expired + dead-lettered + pending, and nothing twice without the
//! record saying so.
//!
//! It believes no worker. The log is applied again, which says what every command came to; the destinations say what they were given
//! and when. Both must tell the same story.

use std::collections::BTreeMap;

use protocol::mutation_v2::PublishedEvidence;
use shard::query::MessageView;
use shard::state::MessageUuid;
use shard::state::generation::MessageState;

use crate::cell::Cell;
use crate::invariants;
use crate::story::Story;
use crate::told::Told;
use crate::world::broker::{Delivered, Place};

/// What became of the accepted messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Messages that were accepted.
    pub accepted: usize,
    /// Of these, delivered, with evidence.
    pub published: usize,
    /// Cancelled.
    pub canceled: usize,
    /// Not delivered before their deadline.
    pub expired: usize,
    /// Given up.
    pub dead_lettered: usize,
    /// Not ended.
    pub pending: usize,
    /// Messages that say that they may have been delivered twice, or although they were given up.
    pub possible_duplicates: usize,
    /// Messages that really were delivered more than once.
    pub duplicates: usize,
}

/// Settles the account of every shard of a cell whose logs are sound, and holds it to every invariant.
///
/// # Panics
/// At the first message whose story is not one, with the end of the event log.
pub fn settle(cell: &Cell) -> Account {
    let story = Story {
        cell,
        told: (0..cell.shards.len()).map(|shard| Some(Told::new(cell, shard))).collect(),
        delivered: cell.broker.delivered(),
        received: cell.broker.received(),
        ..Story::of(cell)
    };
    let checked = invariants::ALL
        .iter()
        .try_for_each(|(name, check)| check(&story).map_err(|detail| format!("{name}: {detail}")));
    match checked.and_then(|()| settle_story(&story)) {
        Ok(account) => account,
        Err(reason) => panic!("{reason}\n{}", cell.world.events_tail()),
    }
}

/// Settles the account of every shard whose log is sound.
///
/// # Errors
/// The first message whose story is not one.
pub fn settle_story(story: &Story<'_>) -> Result<Account, String> {
    let mut account = Account::default();
    let mut delivered: BTreeMap<MessageUuid, Vec<&Delivered>> = BTreeMap::new();
    for one in &story.delivered {
        delivered.entry(one.attempt.message).or_default().push(one);
    }
    for (shard, told) in story.told() {
        for message in told.messages() {
            let delivered = delivered.remove(&message).unwrap_or_default();
            let view = told.message(message);
            account.add(&view, &delivered).map_err(|reason| {
                format!("message {message} of shard {shard} {reason}: {view:?}, delivered {delivered:?}")
            })?;
        }
    }
    let of_sound_shards = |one: &&&Delivered| story.told[one.shard.partition as usize].is_some();
    if let Some(one) = delivered.values().flatten().find(of_sound_shards) {
        return Err(format!("nobody accepted {one:?}"));
    }
    let Account { accepted, published, canceled, expired, dead_lettered, pending, .. } = account;
    if accepted != published + canceled + expired + dead_lettered + pending {
        return Err(format!("the account does not close: {account:?}"));
    }
    Ok(account)
}

/// Where everything of a shard was delivered, with the offset of the record that admitted it.
pub fn deliveries(cell: &Cell, shard: usize) -> Vec<(Place, usize)> {
    let admissions = Told::new(cell, shard).admissions;
    let delivered = cell.broker.delivered().into_iter().filter(|one| one.shard == cell.shards[shard].identity.shard);
    delivered.map(|one| (one.place, usize::try_from(admissions[&one.attempt].offset).unwrap_or(usize::MAX))).collect()
}

impl Account {
    fn add(&mut self, view: &MessageView, delivered: &[&Delivered]) -> Result<(), &'static str> {
        let row = &view.row;
        let current = delivered.iter().filter(|one| one.attempt.generation == row.generation).count();
        self.accepted += 1;
        self.possible_duplicates += usize::from(row.possible_duplicate);
        self.duplicates += usize::from(current > 1);
        let counter = match view.state {
            MessageState::Published => &mut self.published,
            MessageState::Canceled => &mut self.canceled,
            MessageState::Expired => &mut self.expired,
            MessageState::DeadLetter => &mut self.dead_lettered,
            _ => &mut self.pending,
        };
        *counter += 1;
        let says_so = row.possible_duplicate || row.has_uncertain_attempt() || view.state == MessageState::Publishing;
        match view.state {
            MessageState::Published if current == 0 => return Err("is PUBLISHED and was never delivered"),
            MessageState::Published if current > 1 && !says_so => {
                return Err("was delivered twice and does not say so");
            }
            MessageState::Published => check_evidence(view, delivered)?,
            _ if current > 0 && !says_so => return Err("was delivered and does not say so"),
            MessageState::Canceled | MessageState::Expired if current > 0 => return Err("was delivered and has ended"),
            _ => {}
        }
        Ok(())
    }
}

/// The evidence of a publication is what the destination has.
fn check_evidence(view: &MessageView, delivered: &[&Delivered]) -> Result<(), &'static str> {
    let Some(terminal) = view.row.terminal.as_ref() else { return Err("is PUBLISHED and has not ended") };
    let evidence = terminal.evidence.clone().map(PublishedEvidence::from_proto);
    let Some(Ok(PublishedEvidence::Embedded(ack))) = evidence else { return Err("has evidence of another system") };
    let is_it = |one: &&Delivered| {
        one.place == (ack.topic, ack.partition)
            && one.offset == ack.offset
            && one.attempt.attempt == terminal.attempt
            && one.attempt.generation == view.row.generation
    };
    if delivered.iter().any(is_it) { Ok(()) } else { Err("has evidence of something else") }
}
