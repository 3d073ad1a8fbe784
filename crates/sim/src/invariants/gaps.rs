//! > Gaps stop the shard. A position that does not follow, a log that is shorter than what was applied, or one that starts with another
//! > genesis makes the shard FAILED; it never resumes from somewhere else. (invariant 6)
//!
//! And the other way round: a shard whose log is sound never fails.

use crate::story::{Harm, Harmed, Story};

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    let harmed = story.harmed.as_ref();
    if let Some((host, shard)) = story.failed.iter().find(|(_, shard)| harmed.is_none_or(|log| log.shard != *shard)) {
        return Err(format!("shard {shard} has FAILED on host {host}, and nothing is wrong with its log"));
    }
    let Some(Harmed { shard, harm, held }) = harmed else { return Ok(()) };
    let held = held.iter().copied().chain(std::iter::repeat(0));
    for (disk, held) in story.disks.iter().zip(held).filter(|(disk, _)| disk.shard == *shard) {
        // What was read before may still be applied; what is not there any more, or out of turn, may not.
        let hole = match *harm {
            Harm::Skips(offset) if held <= offset => offset,
            Harm::LostHead(offset) if held < offset => offset,
            _ => continue,
        };
        if let Some(applied) = disk.commits.iter().map(|commit| commit.applied).find(|applied| *applied > hole) {
            return Err(format!(
                "host {} applied {applied} records of shard {shard}, over a hole: {harm:?}, and it held {held}",
                disk.host
            ));
        }
    }
    Ok(())
}
