//! > Callbacks and evidence become log records before they change state. (invariant 3)
//!
//! So every disk, at the end, holds what its log says and nothing that only a callback or a timer knew.

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for disk in &story.disks {
        let Some(told) = &story.told[disk.shard] else { continue };
        let applied = disk.disk.applied();
        if told.digests.get(&applied).is_some_and(|digest| *digest != disk.disk.digest()) {
            let (host, shard) = (disk.host, disk.shard);
            return Err(format!(
                "the disk of shard {shard} on host {host} is not what the first {applied} records say"
            ));
        }
    }
    Ok(())
}
