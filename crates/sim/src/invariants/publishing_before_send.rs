//! > PUBLISHING is durable before anything is sent. (invariant 2)
//!
//! Whatever reaches a destination has its admission in the log and on a disk by then.

use std::collections::BTreeMap;

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    let mut commits: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for disk in &story.disks {
        commits.entry(disk.shard).or_default().extend(disk.disk.commits());
    }
    for received in &story.received {
        let shard = received.shard.partition as usize;
        let Some(told) = &story.told[shard] else { continue };
        let Some(admission) = told.admissions.get(&received.attempt) else {
            return Err(format!("{:?} reached a destination and was never admitted", received.attempt));
        };
        let is_in_time = |at_us: i64| at_us <= received.at_us;
        let mut of_shard = commits.get(&shard).into_iter().flatten();
        // Where nobody kept an eye on disks, the log's word must do.
        let is_durable =
            commits.is_empty() || of_shard.any(|commit| commit.applied > admission.offset && is_in_time(commit.at_us));
        if !is_durable || !is_in_time(admission.at_ms * 1_000) {
            return Err(format!("{received:?} was sent before its admission {admission:?} was durable"));
        }
    }
    Ok(())
}
