//! A shard that nobody writes to still delivers on time.

use std::time::Duration;

use shard::state::generation::MessageState;

use sim::account::{self, Account};
use sim::cell::{Cell, CellOptions};

#[test]
fn one_message_is_delivered_on_time_by_a_worker_that_was_restarted() {
    let cell = Cell::new(CellOptions::new(1));
    let disks = cell.disks("a");
    cell.world.run(async {
        let first = cell.start("first", &disks);
        first.active().await;
        let due_ms = cell.world.now_ms() + 3_600_000 / 2;
        let scheduled = cell.schedule(0, 0, due_ms);
        assert_eq!(first.submit(&scheduled).await.code, protocol::code::StableCode::Scheduled);
        cell.world.wait(Duration::from_secs(600)).await;
        first.process.kill();
        cell.world.wait(Duration::from_secs(60)).await;
        let second = cell.start("second", &disks);
        second.active().await;
        cell.world.wait_until(due_ms + 1_000).await;
        let delivered = cell.broker.delivered_of(scheduled.message);
        assert_eq!(delivered.len(), 1);
        let late_us = delivered[0].at_us - due_ms * 1_000;
        assert!((0..=15_000).contains(&late_us), "{late_us} us late");
        let view = second.message(0, scheduled.message);
        assert_eq!((view.state, view.row.possible_duplicate), (MessageState::Published, false));
    });
    assert_eq!(account::settle(&cell), Account { accepted: 1, published: 1, ..Account::default() });
}
