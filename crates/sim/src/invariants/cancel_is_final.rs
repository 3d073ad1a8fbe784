//! Cancel is final: a generation whose cancellation was confirmed is never delivered, before or after.

use crate::story::Story;

pub(super) fn check(story: &Story<'_>) -> Result<(), String> {
    for one in &story.delivered {
        let Some(told) = &story.told[one.shard.partition as usize] else { continue };
        if told.canceled.contains(&(one.attempt.message, one.attempt.generation)) {
            return Err(format!("{one:?} was cancelled"));
        }
    }
    Ok(())
}
