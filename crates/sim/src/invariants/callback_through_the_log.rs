//! > Callbacks and evidence become log records before they change state. (invariant 3)
//!
//! So every disk, at the end, holds what its log says and nothing that only a callback or a timer knew.

use crate::story::{DiskStory, Story};

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for disk in &story.disks {
        let Some(told) = &story.told[disk.shard] else { continue };
        let DiskStory { host, shard, applied, digest, .. } = disk;
        if told.digests.get(applied).is_some_and(|told| told != digest) {
            return Err(format!(
                "the disk of shard {shard} on host {host} is not what the first {applied} records say"
            ));
        }
    }
    Ok(())
}
