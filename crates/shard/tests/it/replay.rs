//! Replay equality (architecture §6), the master property, on the store in memory with commits that fail.

use proptest::prelude::*;
use shard::memory::MemoryDisk;
use testkit::log::replay::{Expected, replay};
use testkit::log::workload::RandomLog;

use crate::agreement::{setup, steps};

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_gives_one_state_however_it_is_applied(
        setup in setup(),
        steps in steps(120),
        courses in prop::collection::vec(prop::collection::vec(any::<u16>(), 0..200), 3),
    ) {
        let log = RandomLog::new(&setup, &steps);
        let expected = Expected::new(&log);
        for course in &courses {
            replay(&MemoryDisk::new(), &log, &expected, course);
        }
    }
}
