//! > One order a shard; apply is a function of the log. (invariant 4)
//!
//! What is applied on a disk grows and never goes back, and two answers about one place of the log are the same, whoever gives them.

use std::collections::BTreeMap;

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for disk in &story.disks {
        if let Some(pair) = disk.commits.windows(2).find(|pair| pair[1].applied <= pair[0].applied) {
            let (host, shard) = (disk.host, disk.shard);
            return Err(format!("on host {host}, shard {shard} went from {:?} to {:?}", pair[0], pair[1]));
        }
    }
    let mut said = BTreeMap::new();
    for asked in &story.asked {
        for answer in &asked.answers {
            let earlier = said.insert(answer.position.to_bytes(), answer);
            if let Some(earlier) = earlier.filter(|earlier| earlier.verdict != answer.verdict) {
                return Err(format!("one record came to two things: {earlier:?} and {answer:?}"));
            }
        }
    }
    Ok(())
}
