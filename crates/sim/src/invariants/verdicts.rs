//! A verdict never changes: whoever is told what a command came to, and when, and by which worker, is told what its first copy in the
//! log came to.

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for asked in &story.asked {
        let Some(told) = &story.told[asked.operation.shard()] else { continue };
        let first = told.verdicts.get(&asked.operation.command.command_id.uuid);
        if let Some(answer) = asked.answers.iter().find(|answer| Some(&answer.verdict) != first) {
            return Err(format!("{:?} came to {first:?}, and somebody was told {answer:?}", asked.operation.id));
        }
    }
    Ok(())
}
