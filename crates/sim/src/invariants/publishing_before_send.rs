//! > PUBLISHING is durable before anything is sent. (invariant 2)
//!
//! Whatever reaches a destination has its admission in the log and on a disk by then.

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for received in &story.received {
        let shard = received.shard.partition as usize;
        let Some(told) = &story.told[shard] else { continue };
        let Some(admission) = told.admissions.get(&received.attempt) else {
            return Err(format!("{:?} reached a destination and was never admitted", received.attempt));
        };
        let mut disks = story.disks.iter().filter(|disk| disk.shard == shard);
        // Where nobody kept an eye on disks, the log's word must do.
        let is_durable = story.disks.is_empty() || disks.any(|disk| disk.holds(admission.offset, received.at_us));
        if !is_durable || admission.at_ms * 1_000 > received.at_us {
            return Err(format!("{received:?} was sent before its admission {admission:?} was durable"));
        }
    }
    Ok(())
}
