//! Lists show what a look at every message would, in order, whatever the size of pages and over several shards.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use bytes::Bytes;
use proptest::prelude::*;
use shard::commit::Shard;
use shard::memory::MemoryStore;
use shard::query::list::{ListFilter, ListOrder, list};
use shard::query::{self, MessageView};
use shard::state::generation::MessageState;
use shard::state::keys::timeline::DueKey;
use shard::state::{LaneNo, MessageUuid};
use shard::store::Read;
use testkit::log::workload::{RandomLog, Step};
use testkit::log::{Destination, LogWriter, Owner, START_MS, default_limits, default_policy, schedule};

use crate::agreement::{setup, steps};
use crate::story::Story;

/// Two shards of one list, with every message that was ever in them.
struct Shards {
    shards: Vec<(u32, Shard<MemoryStore>)>,
    messages: Vec<BTreeSet<MessageUuid>>,
}

fn apply(log: &RandomLog) -> (Shard<MemoryStore>, BTreeSet<MessageUuid>) {
    let mut shard = Shard::open(MemoryStore::new(), log.identity).expect("an empty store opens");
    shard.commit(&log.records).expect("the store answers");
    (shard, log.model.all().map(|(message, _)| *message).collect())
}

impl Shards {
    fn new(setup: &[u16], first: &[Step], second: &[Step]) -> Shards {
        let (first, in_first) = apply(&RandomLog::new(setup, first));
        let (second, in_second) = apply(&RandomLog::new(setup, second));
        Shards { shards: vec![(0, first), (1, second)], messages: vec![in_first, in_second] }
    }

    /// What a look at every message shows.
    fn naive(&self, filter: &ListFilter) -> Vec<(Bytes, MessageUuid)> {
        let mut found = Vec::new();
        for ((partition, shard), messages) in self.shards.iter().zip(&self.messages) {
            for message in messages {
                let view = query::message(shard.store(), *message).expect("the store answers");
                let Some(view) = view.filter(|view| accepts(filter, view)) else { continue };
                let key = sort_key(filter.order(), *partition, shard.store(), &view);
                found.extend(key.map(|key| (key, *message)));
            }
        }
        found.sort();
        found
    }

    /// All pages, put together by the keys up to which every shard has looked.
    fn paged(&self, filter: &ListFilter, limit: usize, rows_max: usize) -> Vec<(Bytes, MessageUuid)> {
        let mut found = Vec::new();
        let mut cursor: Option<Bytes> = None;
        loop {
            let page = |(partition, shard): &(u32, Shard<MemoryStore>)| {
                list(shard.store(), *partition, filter, cursor.as_deref(), limit, rows_max).expect("the store answers")
            };
            let pages: Vec<_> = self.shards.iter().map(page).collect();
            let bound = pages.iter().filter_map(|page| page.looked_through.clone()).min();
            let mut items: Vec<_> = pages
                .iter()
                .flat_map(|page| page.items.iter().map(|(key, view)| (key.clone(), view.message)))
                .filter(|(key, _)| bound.as_ref().is_none_or(|bound| key <= bound))
                .collect();
            items.sort();
            found.extend(items);
            let Some(bound) = bound else { return found };
            assert!(cursor.is_none_or(|cursor| cursor < bound), "a page that leads nowhere");
            cursor = Some(bound);
        }
    }
}

fn accepts(filter: &ListFilter, view: &MessageView) -> bool {
    filter.profile_ids.as_ref().is_none_or(|wanted| wanted.contains(&view.lane.profile_id))
        && filter.states.as_ref().is_none_or(|wanted| wanted.contains(&view.state))
        && filter.due_from_ms.is_none_or(|from_ms| view.row.deliver_at_ms >= from_ms)
        && filter.due_until_ms.is_none_or(|until_ms| view.row.deliver_at_ms < until_ms)
        && filter.business_key_prefix.as_ref().is_none_or(|prefix| view.row.business_key.starts_with(prefix))
}

/// Where a list of this order has a message; `None` when it does not show it.
fn sort_key(order: ListOrder, partition: u32, read: &dyn Read, view: &MessageView) -> Option<Bytes> {
    let by_time = |time_ms: i64| {
        let parts = [&time_ms.to_be_bytes()[..], &partition.to_be_bytes(), &view.row.seq.to_be_bytes()];
        Bytes::from(parts.concat())
    };
    match order {
        ListOrder::Due => view.row.due_key().map(|DueKey { eligible_at_ms, .. }| by_time(eligible_at_ms)),
        // A dead letter that no sweep has written down is not in its list yet.
        ListOrder::DeadLetters => view.row.terminal.as_ref().map(|terminal| by_time(terminal.at_ms)),
        ListOrder::BusinessKey => {
            let key = &view.row.business_key;
            let newest = query::by_business_key(read, key).expect("the store answers");
            (view.row.business_key_indexed && newest == Some(view.message)).then(|| key.clone())
        }
        ListOrder::MessageId => Some(Bytes::copy_from_slice(view.message.as_bytes())),
    }
}

fn filter() -> impl Strategy<Value = ListFilter> {
    let profiles = prop::option::weighted(0.3, prop::sample::subsequence(vec!["alpha", "beta", "nobody"], 1..3));
    let states = prop::option::weighted(0.8, prop::sample::subsequence(MessageState::ALL.to_vec(), 1..3));
    let time = || prop::option::weighted(0.2, (START_MS - 1_000)..(START_MS + 300_000));
    let prefix = prop::option::weighted(0.2, prop::sample::select(vec!["", "k", "k1", "l"]));
    (profiles, states, time(), time(), prefix).prop_map(|(profiles, states, from, until, prefix)| ListFilter {
        profile_ids: profiles.map(|ids| ids.into_iter().map(Bytes::from).collect()),
        states: states.map(|states| states.into_iter().collect()),
        due_from_ms: from,
        due_until_ms: until,
        business_key_prefix: prefix.map(Bytes::from),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pages_are_what_a_look_at_every_message_shows(
        setup in setup(),
        first in steps(150),
        second in steps(100),
        requests in prop::collection::vec((filter(), 1..5_usize, 1..8_usize), 12),
    ) {
        let shards = Shards::new(&setup, &first, &second);
        for (filter, limit, rows_max) in requests {
            prop_assert_eq!(shards.paged(&filter, limit, rows_max), shards.naive(&filter), "{:?}", filter);
        }
    }
}

/// A key's row stays after its message is gone, until the store drops it.
#[test]
fn a_list_by_key_gets_past_what_is_gone() {
    let mut story = Story::new(default_limits());
    for name in ["a", "b", "c", "d"] {
        story.line(&format!("at 0 schedule {name} deliver=1h key={name}"));
        story.line(&format!("at 0 cancel {name}"));
    }
    story.line("at 8d fence 7d+1h");
    story.line("at 8d schedule e made=8d deliver=9d key=e");
    let message = story.message("e");
    let filter = ListFilter { business_key_prefix: Some(Bytes::new()), ..ListFilter::default() };
    let (mut cursor, mut found) = (None::<Bytes>, Vec::new());
    for _ in 0..5 {
        let page = list(story.shard.store(), 0, &filter, cursor.as_deref(), 1, 2).expect("the store answers");
        found.extend(page.items.into_iter().map(|(_, view)| view.message));
        cursor = page.looked_through;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((found, cursor), (vec![message], None));
}

/// Recovery asks for these: what is publishing in the order of its admission, and what is uncertain by lane.
#[test]
fn open_attempts_are_those_that_somebody_must_still_speak_for() {
    let mut story = Story::new(default_limits());
    story.line("policy patient attempts=9 unknown=3");
    for name in ["first", "second", "third", "fourth"] {
        story.line(&format!("at 1s schedule {name} policy=patient expire=1h"));
    }
    story.line("at 2s admit second");
    story.line("at 3s admit first third");
    story.line("at 4s unknown first");
    story.line("at 5s admit first");
    story.line("at 6s published third");
    // An ended message keeps the attempt that may still be out.
    story.line("at 7s resolve published first attempt=1");
    story.line("at 8s unknown second");
    let (first, second) = (story.message("first"), story.message("second"));
    let read = story.shard.store();
    let shown = |attempts: Vec<query::OpenAttempt>| {
        attempts.iter().map(|open| (open.message, open.attempt, open.owner_epoch)).collect::<Vec<_>>()
    };
    assert_eq!(shown(query::publishing_attempts(read).expect("the store answers")), [(first, 2, 1)]);
    assert_eq!(shown(query::uncertain_attempts(read, LaneNo(1)).expect("the store answers")), [(second, 1, 1)]);
    assert_eq!(shown(query::uncertain_attempts(read, LaneNo(2)).expect("the store answers")), []);
}

/// Half the world schedules for midnight.
#[test]
fn a_page_gets_past_many_messages_of_one_time() {
    let mut log = LogWriter::new(0, NonZeroU32::MIN);
    let (policy, limits) = (default_policy(), default_limits());
    let destination = Destination::new("orders", &policy);
    let identity = shard::commit::ShardIdentity { shard: log.shard(), genesis_hash: log.genesis_mutation(limits).hash };
    let mut records = vec![log.genesis(limits)];
    records.push(log.control(protocol::mutation_v2::ControlPayload::RetryPolicyActivate(Box::new(policy.clone()))));
    records.push(log.control(destination.activate()));
    records.push(log.owner_epoch(&mut Owner::new(1)));
    for _ in 0..300 {
        let id = log.message_id();
        let intent = destination.intent(&policy, START_MS + 86_400_000, START_MS + 90_000_000, "");
        let command = log.prepare(&limits, id, schedule(intent));
        records.push(log.command(&command));
    }
    let mut shard = Shard::open(MemoryStore::new(), identity).expect("an empty store opens");
    shard.commit(&records).expect("the store answers");
    let filter = ListFilter { states: Some(BTreeSet::from([MessageState::Scheduled])), ..ListFilter::default() };
    let (mut cursor, mut found) = (None::<Bytes>, 0);
    for _ in 0..20 {
        let page = list(shard.store(), 0, &filter, cursor.as_deref(), 25, 25).expect("the store answers");
        found += page.items.len();
        cursor = page.looked_through;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((found, cursor), (300, None));
}
