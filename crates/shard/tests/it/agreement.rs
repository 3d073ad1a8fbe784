//! Random logs: the shard and the model say the same of every record and end in the same place.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use shard::commit::Shard;
use shard::effect::Effect;
use shard::machine::verdict::{RecordResult, Rule, Status};
use shard::memory::MemoryStore;
use testkit::log::workload::{RandomLog, Step};
use testkit::model::{audit, compare};

pub(crate) fn steps(length_max: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (any::<u16>(), prop::collection::vec(any::<u16>(), 0..24));
    prop::collection::vec(step.prop_map(|(what, choices)| Step { what, choices }), 0..length_max)
}

pub(crate) fn setup() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 20)
}

/// How often the run met what.
#[derive(Default)]
struct Seen(BTreeMap<String, u32>);

impl Seen {
    fn note(&mut self, what: String) {
        *self.0.entry(what).or_default() += 1;
    }

    fn result(&mut self, result: &RecordResult) {
        let (name, rule) = match result {
            RecordResult::Command { verdict, .. } => {
                let status = if verdict.status == Status::Applied { "applied" } else { "rejected" };
                (format!("{status} {}", verdict.code.name()), verdict.rule)
            }
            RecordResult::Duplicate { .. } => ("duplicate".to_owned(), Rule::None),
            RecordResult::Position(position) => (format!("position {}", position.code.name()), position.rule),
            RecordResult::Owner { accepted, failed } => (
                format!(
                    "owner {}",
                    if *failed > 0 {
                        "failed"
                    } else if *accepted > 0 {
                        "accepted"
                    } else {
                        "nothing"
                    }
                ),
                Rule::None,
            ),
            RecordResult::Control { code, .. } => (format!("control {}", code.name()), Rule::None),
        };
        self.note(name);
        self.note(format!("rule {rule:?}"));
    }

    fn effect(&mut self, effect: &Effect) {
        let name = format!("{effect:?}");
        self.note(format!("effect {}", name.split([' ', '{']).next().unwrap_or_default()));
        if let Effect::Ended { state, .. } = effect {
            self.note(format!("ended {state:?}"));
        }
    }
}

#[test]
fn every_record_comes_to_what_the_model_says() {
    let seen = RefCell::new(Seen::default());
    let config = Config { cases: 1_000, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&(setup(), steps(120)), |(setup, steps)| {
            let log = RandomLog::new(&setup, &steps);
            let mut shard = Shard::open(MemoryStore::new(), log.identity).expect("an empty store opens");
            for (record, expected) in log.records.iter().zip(&log.answers) {
                let committed = shard.commit(std::slice::from_ref(record)).expect("the store answers");
                let [applied] = committed.results() else { panic!("one record, one result") };
                prop_assert_eq!(compare::answer(&applied.result), expected.clone(), "{:?}", applied.result);
                seen.borrow_mut().result(&applied.result);
                committed.effects().iter().for_each(|effect| seen.borrow_mut().effect(effect));
            }
            compare::assert_agree(shard.store(), &log.model);
            audit::assert_consistent(shard.store());
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    for (what, times) in &seen.borrow().0 {
        eprintln!("{times:7} {what}");
    }
}
