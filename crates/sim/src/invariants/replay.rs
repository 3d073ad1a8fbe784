//! > The same log in any batching, with any restarts and owners, gives the same state digest and the same results. (invariant 4)
//!
//! Held at times of chance, while everything is under way: what is on a disk is what its log says up to there.

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for snapshot in &story.snapshots {
        let Some(told) = &story.told[snapshot.shard] else { continue };
        if told.digests.get(&snapshot.applied) != Some(&snapshot.digest) {
            return Err(format!(
                "the first {} records make another state of shard {}",
                snapshot.applied, snapshot.shard
            ));
        }
    }
    Ok(())
}
