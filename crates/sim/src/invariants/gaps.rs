//! > Gaps stop the shard. A position that does not follow, a log that is shorter than what was applied, or one that starts with another
//! > genesis makes the shard FAILED; it never resumes from somewhere else. (invariant 6)
//!
//! And the other way round: a shard whose log is sound never fails.

use crate::story::{Harm, Story};

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    let harmed = story.harmed.map(|harmed| harmed.shard);
    if let Some((host, shard)) = story.failed.iter().find(|(_, shard)| harmed != Some(*shard)) {
        return Err(format!("shard {shard} has FAILED on host {host}, and nothing is wrong with its log"));
    }
    let Some(harmed) = story.harmed else { return Ok(()) };
    for disk in story.disks.iter().filter(|disk| disk.shard == harmed.shard) {
        let commits = &disk.commits;
        let before = commits.iter().rev().find(|commit| commit.at_us < harmed.at_us).map_or(0, |commit| commit.applied);
        let behind = commits.iter().filter(|commit| commit.at_us >= harmed.at_us);
        // What was read before may still be committed; what is not there any more, or out of turn, may not.
        let passed = behind.map(|commit| commit.applied).find(|applied| match harmed.harm {
            Harm::Skips(offset) => before <= offset && *applied > offset,
            Harm::LostHead(offset) => before < offset && *applied > offset,
            Harm::LostTail(_) | Harm::Recreated => false,
        });
        if let Some(applied) = passed {
            return Err(format!(
                "host {} applied {applied} records of shard {}, over the hole of {harmed:?}",
                disk.host, disk.shard
            ));
        }
    }
    Ok(())
}
